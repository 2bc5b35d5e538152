package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

const tenantA, tenantB = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

// event is something that a writer did or was told, in the order in which it
// knew of it.
type event struct{ what, id string }

const (
	kept     = "kept"     // an insert was acknowledged
	dropping = "dropping" // a deletion begins
	dropped  = "dropped"  // a deletion was acknowledged
	refused  = "refused"  // an insert was answered with store.ErrUnavailable
	stays    = "stays"    // a deletion was answered with store.ErrUnavailable
)

// ledger gathers what the writers know.
type ledger struct {
	mu     sync.Mutex
	events []event
}

func (l *ledger) note(what, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event{what, id})
}

func (l *ledger) read() []event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clip(l.events)
}

// work writes while next allows it: tokens of many sizes, each with two terms
// and a log entry; every fifth time the token before goes again, with an entry.
// Inserts are gathered with those of others, deletions read first and are not.
// A store that is not available is waited for.
func work(ctx context.Context, s store.Store, note func(what, id string), next func() bool) error {
	if err := storetest.AddTenants(ctx, s, tenantA); err != nil {
		return err
	}
	last := ""
	// Who is refused waits a little, as a client would.
	refuse := func(what, id string) { note(what, id); time.Sleep(5 * time.Millisecond) }
	for n := 0; next(); n++ {
		if n%5 == 4 && last != "" {
			note(dropping, last)
			err := s.Update(ctx, tenantA, func(tx store.Tx) error {
				e := benchEntry(last)
				e.Operation = "delete"
				return errors.Join(tx.DeleteToken(ctx, last), tx.AppendLog(ctx, e))
			})
			switch {
			case err == nil:
				note(dropped, last)
			case errors.Is(err, store.ErrUnavailable):
				refuse(stays, last)
			default:
				return err
			}
			last = ""
			continue
		}
		t := benchToken()
		t.Data = make([]byte, 1+n*n*37%3000)
		err := s.Update(ctx, tenantA, func(tx store.Tx) error {
			return errors.Join(tx.InsertToken(ctx, t), tx.AppendLog(ctx, benchEntry(t.ID)))
		})
		switch {
		case err == nil:
			note(kept, t.ID)
			last = t.ID
		case errors.Is(err, store.ErrUnavailable):
			refuse(refused, t.ID)
		default:
			return err
		}
	}
	return nil
}

// verify says what is wrong with a store, given what its writers had been told:
// something acknowledged that is lost, something refused that is there, or
// something that is there in part.
func verify(t testing.TB, s store.Store, events []event) error {
	t.Helper()
	ctx := t.Context()
	found, err := s.Check(ctx, nil)
	if err != nil || len(found) > 0 {
		return fmt.Errorf("Check: found %q, error %v", found, err)
	}
	return s.View(ctx, tenantA, func(tx store.Tx) error {
		page := store.Page{Limit: 1 << 30}
		filter := store.TokenFilter{Now: 1}
		tokens, err := tx.Tokens(ctx, filter, page)
		if err != nil {
			return err
		}
		count, err := tx.CountTokens(ctx, filter)
		if err != nil {
			return err
		}
		entries, err := tx.Logs(ctx, store.LogFilter{}, page)
		if err != nil {
			return err
		}
		there, created, deleted := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for i, tok := range tokens {
			there[tok.ID] = true
			if i < 20 {
				byTerms, err := tx.CountTokens(ctx, store.TokenFilter{Now: 1, Terms: tok.Terms})
				if err != nil || byTerms != 1 {
					return fmt.Errorf("a token is found by its terms %d times, error %v", byTerms, err)
				}
			}
		}
		for _, e := range entries {
			if e.Operation == "delete" {
				deleted[e.EntityID] = true
			} else {
				created[e.EntityID] = true
			}
		}
		if int(count) != len(tokens) || len(created)-len(deleted) != len(tokens) || len(created)+len(deleted) != len(entries) {
			return fmt.Errorf("%d tokens, %d counted, %d created and %d deleted in %d log entries", len(tokens), count, len(created), len(deleted), len(entries))
		}
		for id := range there {
			if !created[id] || deleted[id] {
				return errors.New("a token is there whose log says otherwise")
			}
		}
		leaving := map[string]bool{}
		for _, e := range events {
			leaving[e.id] = (leaving[e.id] || e.what == dropping) && e.what != stays
		}
		for i, e := range events {
			switch {
			case e.what == kept && !leaving[e.id] && !there[e.id]:
				return fmt.Errorf("of %d events the acknowledged insert at %d is lost", len(events), i)
			case e.what == dropped && there[e.id]:
				return fmt.Errorf("of %d events the acknowledged deletion at %d is lost", len(events), i)
			case e.what == refused && there[e.id]:
				return fmt.Errorf("of %d events the refused insert at %d is there", len(events), i)
			case e.what == stays && !there[e.id]:
				return fmt.Errorf("of %d events the refused deletion at %d was done", len(events), i)
			}
		}
		return nil
	})
}
