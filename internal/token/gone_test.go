package token_test

import (
	"context"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// interrupted is a store on which something happens between what a service
// asks first and its update or read.
type interrupted struct {
	store.Store
	before func()
}

func (i *interrupted) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	i.interrupt()
	return i.Store.Update(ctx, tenant, fn)
}

func (i *interrupted) Read(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	i.interrupt()
	return i.Store.Read(ctx, tenant, fn)
}

func (i *interrupted) interrupt() {
	if before := i.before; before != nil {
		i.before = nil
		before()
	}
}

// left counts the rows of a tenant that a deletion should have taken.
func (w *world) left(tenant string) (rows int64) {
	w.t.Helper()
	err := w.store.View(w.t.Context(), tenant, func(tx store.Tx) error {
		tokens, err := tx.CountTokens(w.t.Context(), store.TokenFilter{Now: 1, Groups: store.AllGroups()})
		if err != nil {
			return err
		}
		groups, err := tx.TokenGroups(w.t.Context())
		if err != nil {
			return err
		}
		entries, err := tx.CountLogs(w.t.Context(), store.LogFilter{})
		if err != nil {
			return err
		}
		waiting, err := tx.CountUnsealedLog(w.t.Context())
		rows = tokens + int64(len(groups)) + entries + waiting
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// A request that was let in before its tenant was deleted leaves nothing
// behind, however far the deletion has come when it writes.
func TestARequestThatMeetsTheTenantsDeletionLeavesNothing(t *testing.T) {
	calls := map[string]func(w *world, c access.Caller) error{
		"Create":  func(w *world, c access.Caller) error { _, err := w.create(c, `{"type":"token","data":1}`); return err },
		"Replace": func(w *world, c access.Caller) error { _, err := w.patch(c, "tok", `{"data":2}`); return err },
		"Get":     func(w *world, c access.Caller) error { _, err := w.get(c, "tok"); return err },
		"Delete":  func(w *world, c access.Caller) error { return w.tokens.Delete(w.t.Context(), c, "tok") },
		"List": func(w *world, c access.Caller) error {
			_, _, err := w.tokens.List(w.t.Context(), c, token.Filter{}, store.Page{Limit: 10})
			return err
		},
		"Detokenize": func(w *world, c access.Caller) error {
			_, err := w.tokens.Detokenize(w.t.Context(), c, parse(w.t, `"{{ tok }}"`))
			return err
		},
		"Tokenize": func(w *world, c access.Caller) error {
			_, err := w.tokens.Tokenize(w.t.Context(), c, parse(w.t, `{"type":"token","data":"x"}`))
			return err
		},
		"Sweep": func(w *world, _ access.Caller) error {
			w.clock.Advance(2 * time.Hour)
			_, err := w.tokens.Sweep(w.t.Context())
			return err
		},
	}
	for name, call := range calls {
		for _, finished := range []bool{false, true} {
			t.Run(name+map[bool]string{false: " as it begins", true: " as it ends"}[finished], func(t *testing.T) {
				w := newWorld(t)
				c := w.revealing()
				w.mustCreate(c, `{"type":"token","id":"tok","data":{"a":1},"expires_at":"`+start.Add(time.Hour).Format(time.RFC3339)+`"}`)
				sealer := audit.NewSealer(w.store, w.ring, audit.Options{Now: w.clock.Now})
				tenants := directory.New(w.store, w.ring, w.clock.Now, "test", func(ctx context.Context, tenant string) error {
					_, err := sealer.SealTenant(ctx, tenant)
					return err
				})
				deleted := false
				w.tokens = token.New(&interrupted{Store: w.store, before: func() {
					deleted = true
					if err := tenants.DeleteTenant(t.Context(), directory.Operator(w.tenant)); err != nil {
						t.Errorf("DeleteTenant = %v", err)
					}
					if finished {
						if err := tenants.FinishDeletions(t.Context()); err != nil {
							t.Errorf("FinishDeletions = %v", err)
						}
					}
				}}, w.ring, token.Options{Now: w.clock.Now})
				if err := call(w, c); name == "Sweep" && err != nil {
					t.Errorf("Sweep = %s, want it to pass the tenant by", says(err))
				} else if name == "Detokenize" && finished {
					wantFault(t, name, err, fault.Invalid, "") // its tokens are gone first
				} else if name != "Sweep" {
					wantFault(t, name, err, fault.NotFound, "")
				}
				if !deleted {
					t.Fatal("the call wrote nothing: there was nothing to meet")
				}
				if err := tenants.FinishDeletions(t.Context()); err != nil {
					t.Errorf("FinishDeletions = %v", err)
				}
				if n := w.left(w.tenant); n != 0 {
					t.Errorf("%d rows are left of a tenant that is gone", n)
				}
			})
		}
	}
}
