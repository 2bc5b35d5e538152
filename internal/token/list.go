package token

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Filter chooses tokens; an empty part does not narrow the choice.
type Filter struct {
	IDs      []string // these alone, in this order and not newest first
	Types    []string
	Metadata map[string]string // all of these, the case of values aside
	// Container is one that a token has; with "*" behind it, or one under it.
	Container   string
	Fingerprint string
}

var errManyFilters = fault.Field("metadata", "must have at most 50 keys")

// List returns a page of the tokens that the caller may read, newest first or
// in the order of the ids asked for, and how many there are in all. A caller may
// ask for less than its rules allow: most is the most that is shown, and that
// tokens are compared by.
func (s *Service) List(ctx context.Context, c access.Caller, f Filter, p store.Page, most ...access.Transform) ([]Token, int64, error) {
	return s.page(ctx, reading{c, access.TokenRead, atMost(most)}, f.plan, p)
}

// ListFrom returns up to size tokens behind the place that start names, and
// the place to go on from; "" at the end. Its cost does not grow with depth.
func (s *Service) ListFrom(ctx context.Context, c access.Caller, f Filter, start string, size int, most ...access.Transform) ([]Token, string, error) {
	return s.pageFrom(ctx, reading{c, access.TokenRead, atMost(most)}, f.plan, start, size)
}

// reading is who reads tokens, by which permission, and how much of them the
// caller asks to be shown at most.
type reading struct {
	c    access.Caller
	perm access.Permission
	most access.Transform
}

// planner makes the plan of a list or search for one caller.
type planner func(*keyring.Keys, matcher) (plan, error)

// plan is the selection of a filter.
func (f Filter) plan(keys *keyring.Keys, m matcher) (plan, error) {
	if len(f.Metadata) > maxMetadata {
		return plan{}, errManyFilters
	}
	source := store.TokenFilter{}
	for _, id := range f.IDs {
		if !slices.Contains(source.IDs, id) {
			source.IDs = append(source.IDs, id)
		}
	}
	for key, value := range f.Metadata {
		source.Terms = append(source.Terms, keys.IndexTerm(termMetadata+key, fold(value)))
	}
	if f.Fingerprint != "" {
		source.Terms = append(source.Terms, keys.IndexTerm(termFingerprint, f.Fingerprint))
	}
	p := plan{sources: []store.TokenFilter{source}, asAsked: len(f.IDs) > 0}
	if f.Fingerprint != "" {
		p.guarded, p.guards = m.fingerprint, []func(store.Token) bool{m.fingerprint}
	}
	if len(f.Types) > 0 || f.Container != "" {
		path, below := strings.CutSuffix(strings.ToLower(f.Container), "/*")
		if below {
			path += "/"
		}
		p.group = func(g store.TokenGroup) bool {
			return (len(f.Types) == 0 || slices.Contains(f.Types, g.Type)) && (path == "" || inContainer(g.Containers, path, below))
		}
	}
	return p, nil
}

// inContainer says whether one of the containers is this one or, with below,
// under it.
func inContainer(containers []string, path string, below bool) bool {
	return slices.ContainsFunc(containers, func(have string) bool { return have == path || below && strings.HasPrefix(have, path) })
}

// page runs a plan for a page by its number.
func (s *Service) page(ctx context.Context, by reading, planned planner, p store.Page) (list []Token, total int64, err error) {
	list, err = s.choose(ctx, by, planned, func(tx store.Tx, sel selection) (rows []store.Token, err error) {
		if total, err = sel.count(ctx, tx); err != nil {
			return nil, err
		}
		if int64(p.Offset) >= total {
			return nil, nil // to find that out by the index takes all of it
		}
		return sel.page(ctx, tx, p)
	})
	return list, total, err
}

// pageFrom runs a plan for what follows a place.
func (s *Service) pageFrom(ctx context.Context, by reading, planned planner, start string, size int) (list []Token, next string, err error) {
	if err := by.c.RequireSomewhere(by.perm); err != nil {
		return nil, "", err
	}
	keys, err := s.keysOf(ctx, by.c)
	if err != nil {
		return nil, "", err
	}
	after, err := openCursor(keys, start)
	if err != nil {
		return nil, "", err
	}
	list, err = s.choose(ctx, by, planned, func(tx store.Tx, sel selection) ([]store.Token, error) {
		next = ""
		// One more than is asked for tells whether there is more.
		rows, err := sel.page(ctx, tx, store.Page{After: after, Limit: size + 1})
		if err != nil || len(rows) <= size {
			return rows, err
		}
		rows = rows[:size]
		last := rows[size-1]
		next, err = sealCursor(keys, store.Position{CreatedAt: last.CreatedAt, ID: last.ID})
		return rows, err
	})
	return list, next, err
}

// choose selects rows in a view of its own, because a count may take long and
// others wait for the connections of reads; then it logs each token that is shown, and opens them. A
// list without tokens has one entry too: that there are none is shown.
func (s *Service) choose(ctx context.Context, by reading, planned planner, take func(store.Tx, selection) ([]store.Token, error)) ([]Token, error) {
	c, perm := by.c, by.perm
	keys, set, err := s.begin(ctx, c, perm)
	if err != nil {
		return nil, err
	}
	m := matcher{c, by.most, set}
	p, err := planned(keys, m)
	if err != nil {
		return nil, err
	}
	// Each comparison with protected data is a guess at it.
	if err := c.ChargeTokens(len(p.guards)); err != nil {
		return nil, err
	}
	var found shown
	work, err := s.beginSelection(ctx, c.Tenant())
	defer work.End()
	if err != nil {
		return nil, err
	}
	err = s.store.View(ctx, c.Tenant(), func(tx store.Tx) error {
		found.reset(c)
		sel, err := p.selection(ctx, tx, m, perm, store.At(s.now()))
		if err != nil {
			return err
		}
		s.groups.note(c.Tenant(), sel.groups)
		rows, err := take(tx, sel)
		if err != nil {
			return fmt.Errorf("list tokens: %w", err)
		}
		viewer := viewer{c: c, most: by.most, keys: keys, set: &set}
		for _, row := range rows {
			if err := found.add(ctx, tx, &viewer, perm, row); err != nil {
				return err
			}
		}
		return nil
	})
	work.End()
	if err != nil {
		return nil, err
	}
	if err := c.ChargeTokens(len(found.rows)); err != nil {
		return nil, err
	}
	err = s.read(ctx, c, func(tx store.Tx) error {
		entries := found.entries(c, s.now())
		if len(entries) == 0 {
			entries = append(entries, audit.Entry(c, s.now(), audit.Token, audit.Many, audit.Read))
		}
		return tx.AppendLog(ctx, entries...)
	})
	if err != nil {
		return nil, fmt.Errorf("log what is shown: %w", err)
	}
	return s.open(ctx, c, keys, found)
}

var errStart = fault.Field("start", "is not a place in a list of this tenant")

// cursor is what a place in a list holds. It is sealed with the tenant's key,
// so it can be neither made up nor taken to another tenant.
type cursor struct {
	At store.Time `json:"at"`
	ID string     `json:"id"`
}

const cursorRecord = "list"

func sealCursor(keys *keyring.Keys, at store.Position) (string, error) {
	b, err := json.Marshal(cursor{At: at.CreatedAt, ID: at.ID})
	if err != nil {
		return "", errors.New("encode a cursor")
	}
	sealed, err := keys.Seal(cursorRecord, keyring.FieldTokenCursor, b)
	return base64.RawURLEncoding.EncodeToString(sealed), err
}

func openCursor(keys *keyring.Keys, text string) (*store.Position, error) {
	if text == "" {
		return nil, nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, errStart
	}
	b, err := keys.Open(cursorRecord, keyring.FieldTokenCursor, sealed)
	if err != nil {
		return nil, errStart
	}
	var at cursor
	if json.Unmarshal(b, &at) != nil {
		return nil, errStart
	}
	return &store.Position{CreatedAt: at.At, ID: at.ID}, nil
}
