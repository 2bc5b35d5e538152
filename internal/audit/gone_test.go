package audit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// interrupted is a store on which something happens before each update or read.
type interrupted struct {
	store.Store
	before func()
}

func (i *interrupted) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	i.before()
	return i.Store.Update(ctx, tenant, fn)
}

func (i *interrupted) Read(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	i.before()
	return i.Store.Read(ctx, tenant, fn)
}

// A tenant whose last row has gone gets no entry behind it.
func TestNoEntryComesBehindTheLastRowOfATenant(t *testing.T) {
	w := newWorld(t)
	for name, call := range map[string]func(s *audit.Service, c access.Caller){
		"List": func(s *audit.Service, c access.Caller) {
			list, total, err := s.List(t.Context(), c, store.LogFilter{}, store.Page{Limit: 10})
			if !errors.Is(err, fault.NotFound) || len(list) != 0 || total != 0 {
				t.Errorf("List = %d entries of %d, %v; want not found", len(list), total, err)
			}
		},
		"Refused": func(s *audit.Service, c access.Caller) {
			s.Refused(t.Context(), c, c.Require(access.TenantDelete), audit.Attempt{})
		},
	} {
		tenant := w.tenant()
		w.write(tenant, 3)
		o, registry, met := w.options(), prometheus.NewPedanticRegistry(), false
		o.Metrics = registry
		s := audit.New(&interrupted{w.store, func() { met = true; w.delete(tenant) }}, w.ring, o)
		call(s, accesstest.Caller(t, tenant, "6f1f3a52-6f0e-4a39-8a3c-52a0b7a3f001", access.LogRead))
		if !met {
			t.Fatalf("%s wrote nothing: there was nothing to meet", name)
		}
		if err := w.store.View(t.Context(), tenant, func(tx store.Tx) error {
			n, err := tx.CountLogs(t.Context(), store.LogFilter{})
			if n != 0 {
				t.Errorf("%s left %d entries of a tenant that is gone", name, n)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if name == "Refused" && (refused(t, registry, "suppressed") != 1 || refused(t, registry, "failed") != 0) {
			t.Error("an entry that found no tenant is not counted as left out")
		}
	}
}
