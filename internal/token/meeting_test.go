package token_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// meeting is a store on which other nodes write as well: so many updates run
// to their end and are then reported to have met another.
type meeting struct {
	store.Store
	report error
	times  int
}

func (m *meeting) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	if m.times == 0 {
		return m.Store.Update(ctx, tenant, fn)
	}
	m.times--
	undo := errors.New("undo")
	err := m.Store.Update(ctx, tenant, func(tx store.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return undo
	})
	if errors.Is(err, undo) {
		return m.report
	}
	return err
}

func TestWhatMeetsAnotherNodeIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	m := &meeting{Store: w.store}
	w.tokens = token.New(m, w.ring, token.Options{Now: w.clock.Now})
	c := w.revealing()

	m.report, m.times = store.ErrExists, 2
	w.mustCreate(c, `{"type":"token","id":"met","data":1}`)
	m.times = 100
	_, err := w.create(c, `{"type":"token","id":"never","data":1}`)
	wantFault(t, "a create that always meets another", err, fault.Conflict, "")

	m.report, m.times = store.ErrConflict, 5
	w.mustPatch(c, "met", `{"data":2}`)
	m.times = 0
	if got := member(w.mustGet(c, "met"), "data"); got != "2" {
		t.Errorf("data = %s, want the patch to count", got)
	}
	m.times = 100
	_, err = w.patch(c, "met", `{"data":3}`)
	wantFault(t, "an update that always meets another", err, fault.Conflict, "")
}
