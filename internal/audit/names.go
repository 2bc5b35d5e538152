package audit

import (
	"context"
	"errors"
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Named says what an id of the tenant belongs to.
type Named struct {
	ID   string
	Kind string // the value of an entity type
	// Name is empty for what has none, for what is deleted, and for kinds that
	// the caller may not read.
	Name    string
	Deleted bool
}

// maxNames bounds the ids of one call.
const maxNames = 100

var (
	errNoNames   = fault.Field("id", "is required, once or several times")
	errManyNames = fault.Field("id", "must be given at most 100 times")
)

// Names returns what ids belong to, in the order asked for: what exists with its
// name, and what the log knows besides. Ids of which neither knows anything, such
// as those of other tenants, are left out. The caller needs log:read, which
// already shows the ids and kinds of all entries; a name takes the permission to
// read the thing itself.
func (s *Service) Names(ctx context.Context, c access.Caller, ids []string) (list []Named, err error) {
	if err := c.Require(access.LogRead); err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, errNoNames
	}
	if len(ids) > maxNames {
		return nil, errManyNames
	}
	err = s.readFor(ctx, c, "retrieved for names", func(tx store.Tx) error {
		list = nil
		live, err := existing(ctx, tx, c, ids)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if slices.ContainsFunc(list, func(n Named) bool { return n.ID == id }) {
				continue
			}
			n, ok := live[id]
			if !ok {
				if n, ok, err = logged(ctx, tx, id); err != nil {
					return err
				}
			}
			if ok {
				list = append(list, n)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// existing finds what has a name, by its id.
func existing(ctx context.Context, tx store.Tx, c access.Caller, ids []string) (map[string]Named, error) {
	found := make(map[string]Named)
	add := func(p access.Permission, kind, id, name string) {
		if c.Require(p) != nil {
			name = ""
		}
		found[id] = Named{ID: id, Kind: kind, Name: name}
	}
	definitions, err := tx.Definitions(ctx, store.DefinitionFilter{IDs: ids}, store.Page{Limit: 2 * maxNames})
	if err != nil {
		return nil, err
	}
	for _, d := range definitions {
		switch d.Kind {
		case store.DefinitionReactor:
			add(access.ReactorRead, Reactor, d.ID, d.Name)
		case store.DefinitionProxy:
			add(access.ProxyRead, Proxy, d.ID, d.Name)
		case store.DefinitionMember: // whose name is sealed; entries have it
			add(access.MemberRead, Member, d.ID, "")
		case store.DefinitionRole:
			add(access.MemberRead, Role, d.ID, d.ID)
		}
	}
	applications, err := tx.Applications(ctx, store.ApplicationFilter{IDs: ids}, store.Page{Limit: maxNames})
	if err != nil {
		return nil, err
	}
	for _, a := range applications {
		add(access.ApplicationRead, Application, a.ID, a.Name)
	}
	if slices.Contains(ids, tx.Tenant()) {
		row, err := tx.TenantRow(ctx)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if err == nil {
			add(access.TenantRead, Tenant, row.ID, row.Name)
		}
	}
	return found, nil
}

// logged finds what the log knows of an id. Nothing is done to an entity after
// it was deleted, so the newest entry of something that was done tells.
func logged(ctx context.Context, tx store.Tx, id string) (n Named, found bool, err error) {
	if id == "" || id == Many {
		return n, false, nil
	}
	const enough = 20 // attempts that were refused may stand before it
	entries, err := tx.Logs(ctx, store.LogFilter{EntityID: id}, store.Page{Limit: enough})
	if err != nil || len(entries) == 0 {
		return n, false, err
	}
	n = Named{ID: id, Kind: entries[0].EntityType}
	for _, e := range entries {
		if e.Outcome == outcomeAllowed {
			n.Kind, n.Deleted = e.EntityType, e.Operation == string(Delete)
			break
		}
	}
	return n, true, nil
}
