package directory

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// CreateTenant makes a tenant with its keys and its first applications; it is
// the operator's, as no caller exists before it. All of it is there afterwards,
// or nothing.
func (s *Service) CreateTenant(ctx context.Context, name string, first ...NewApplication) (t Tenant, applications []Application, err error) {
	var f fault.Fields
	checkName(&f, name)
	if err := f.Err(); err != nil {
		return t, nil, err
	}
	id := access.NewID()
	sets, err := s.ring.NewTenant(ctx, id)
	if err != nil {
		return t, nil, fmt.Errorf("make keys: %w", err)
	}
	keys, err := s.ring.Unstored(ctx, id, sets)
	if err != nil {
		return t, nil, fmt.Errorf("open keys: %w", err)
	}
	operator := access.NewSystem(id)
	row := store.Tenant{ID: id, Name: name, CreatedAt: store.At(s.now())}
	if row.Secrets, err = sealSecrets(keys, keptSecrets{Callback: newCallbackSecret()}); err != nil {
		return t, nil, err
	}
	ready := make([]prepared, len(first))
	for i, in := range first {
		kind := in.check(&f, s.now())
		if err := f.Err(); err != nil {
			return t, nil, err
		}
		if ready[i], err = s.prepare(keys, operator, kind, in); err != nil {
			return t, nil, err
		}
	}
	err = s.store.Update(ctx, id, func(tx store.Tx) error {
		applications = nil // a transaction may run again
		if err := tx.InsertTenant(ctx, row); err != nil {
			return fmt.Errorf("insert tenant: %w", err)
		}
		for _, k := range sets {
			if err := tx.PutKeyset(ctx, k); err != nil {
				return fmt.Errorf("put keyset: %w", err)
			}
		}
		entries := []store.LogEntry{audit.Entry(operator, s.now(), audit.Tenant, id, audit.Create)}
		for _, p := range ready {
			a, err := p.insert(ctx, tx)
			if err != nil {
				return err
			}
			applications = append(applications, a)
			entries = append(entries, audit.Entry(operator, s.now(), audit.Application, a.ID, audit.Create))
		}
		return tx.AppendLog(ctx, entries...)
	})
	return tenantOf(row), applications, err
}

// Operator is the caller for the operator's work in a tenant. An id may be
// written in every way that a UUID can be: the store would find its rows, but
// its keys are bound to the one way in which we write it.
func Operator(tenant string) access.Caller {
	if id, err := uuid.Parse(tenant); err == nil {
		tenant = id.String()
	}
	return access.NewSystem(tenant, access.TenantRead, access.TenantDelete,
		access.ApplicationCreate, access.ApplicationRead, access.ApplicationUpdate, access.ApplicationDelete,
		access.SessionRead, access.SessionDelete, access.MemberCreate, access.MemberRead, access.MemberUpdate, access.MemberDelete)
}

// AllTenants calls fn for every tenant that is not being deleted.
func (s *Service) AllTenants(ctx context.Context, fn func(Tenant) error) error {
	return s.eachTenant(ctx, func(t store.Tenant) error {
		if t.Deleting {
			return nil
		}
		return fn(tenantOf(t))
	})
}

// ManagementApplication is the first application of a tenant: it may do
// everything that there is to manage.
func ManagementApplication() NewApplication {
	return NewApplication{Name: "management", Type: string(access.Management), Permissions: names(access.Management.Permissions())}
}

// DemoApplications are those of the tenant that development mode makes: one to
// manage, one for a server that may see everything, one for browsers.
func DemoApplications() []NewApplication {
	plain := []access.Permission{access.TokenCreate, access.TokenUpdate, access.TokenDelete, access.TokenUse}
	return []NewApplication{
		ManagementApplication(),
		{
			Name: "private", Type: string(access.Private), Permissions: names(plain),
			Rules: []access.Rule{{
				Description: "Sees everything in clear.", Container: "/", Transform: access.Reveal.String(),
				Permissions: names([]access.Permission{access.TokenRead, access.TokenSearch}),
			}},
		},
		{Name: "public", Type: string(access.Public), Permissions: names([]access.Permission{access.TokenCreate})},
	}
}

func names(permissions []access.Permission) []string {
	out := make([]string, len(permissions))
	for i, p := range permissions {
		out[i] = p.String()
	}
	return out
}
