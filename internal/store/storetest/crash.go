package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// CrashTenant is the tenant that Work writes for.
const CrashTenant = tenantA

// Event is something that a writer did or was told, in the order in which it
// knew of it.
type Event struct{ What, ID string }

// What an event tells.
const (
	Kept     = "kept"     // an insert was acknowledged
	Dropping = "dropping" // a deletion begins
	Dropped  = "dropped"  // a deletion was acknowledged
	Refused  = "refused"  // an insert was answered with store.ErrUnavailable
	Stays    = "stays"    // a deletion was answered with store.ErrUnavailable
	Seen     = "seen"     // a read was acknowledged; the id is that of its log entry
)

// Ledger gathers what the writers know.
type Ledger struct {
	mu     sync.Mutex // guards events
	events []Event
}

// Note adds an event.
func (l *Ledger) Note(what, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, Event{what, id})
}

// Read returns the events so far.
func (l *Ledger) Read() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clip(l.events)
}

// Count returns how many events of a kind there are so far.
func (l *Ledger) Count(what string) (n int) {
	for _, e := range l.Read() {
		if e.What == what {
			n++
		}
	}
	return n
}

// Work writes while next allows it: tokens of many sizes, each with two terms
// and a log entry; every fifth time the token before goes again, with an entry,
// and before that it is read, with an entry. It returns the first error.
func Work(ctx context.Context, s store.Store, note func(what, id string), next func() bool) error {
	return work(ctx, s, note, next, func(err error) error { return err })
}

// WorkOn is Work on a store that goes and comes back: who is told that it is
// not available waits a little, as a client would, and goes on.
func WorkOn(ctx context.Context, s store.Store, note func(what, id string), next func() bool) error {
	return work(ctx, s, note, next, func(err error) error {
		if !errors.Is(err, store.ErrUnavailable) {
			return err
		}
		waittest.Sometime(10 * time.Millisecond)
		return nil
	})
}

// work asks whether to go on after an error.
func work(ctx context.Context, s store.Store, note func(what, id string), next func() bool, after func(error) error) error {
	for err := AddTenants(ctx, s, CrashTenant); err != nil; err = AddTenants(ctx, s, CrashTenant) {
		if err := after(err); err != nil {
			return err
		}
	}
	last := ""
	for n := 0; next(); n++ {
		var err error
		switch {
		case n%5 == 3 && last != "":
			err = see(ctx, s, note, last)
		case n%5 == 4 && last != "":
			err = drop(ctx, s, note, last)
			last = ""
		default:
			t := SomeToken()
			t.Data = make([]byte, 1+n*n*37%3000)
			if err = keep(ctx, s, note, t); err == nil {
				last = t.ID
			}
		}
		if err == nil {
			continue
		}
		if err := after(err); err != nil {
			return err
		}
	}
	return nil
}

func keep(ctx context.Context, s store.Store, note func(what, id string), t store.Token) error {
	err := s.Update(ctx, CrashTenant, func(tx store.Tx) error {
		return errors.Join(tx.InsertToken(ctx, t), tx.AppendLog(ctx, SomeEntry(t.ID)))
	})
	if err == nil {
		note(Kept, t.ID)
	} else if errors.Is(err, store.ErrUnavailable) {
		note(Refused, t.ID)
	}
	return err
}

// see reads a token that its writer was told of.
func see(ctx context.Context, s store.Store, note func(what, id string), id string) error {
	e := SomeEntry(id)
	e.Operation = "read"
	err := s.Read(ctx, CrashTenant, func(tx store.Tx) error {
		if _, err := tx.Token(ctx, id); err != nil {
			return fmt.Errorf("read a token that was acknowledged: %w", err)
		}
		return tx.AppendLog(ctx, e)
	})
	if err == nil {
		note(Seen, e.ID)
	}
	return err
}

func drop(ctx context.Context, s store.Store, note func(what, id string), id string) error {
	note(Dropping, id)
	e := SomeEntry(id)
	e.Operation = "delete"
	err := s.Update(ctx, CrashTenant, func(tx store.Tx) error {
		return errors.Join(tx.DeleteToken(ctx, id), tx.AppendLog(ctx, e))
	})
	if err == nil {
		note(Dropped, id)
	} else if errors.Is(err, store.ErrUnavailable) {
		note(Stays, id)
	}
	return err
}

// Verify says what is wrong with a store, given what its writers had been told:
// something acknowledged that is lost, something refused that is there, or
// something that is there in part.
func Verify(ctx context.Context, s store.Store, events []Event) error {
	found, err := s.Check(ctx, nil)
	if err != nil || len(found) > 0 {
		return fmt.Errorf("Check: found %q, error %v", found, err)
	}
	return s.View(ctx, CrashTenant, func(tx store.Tx) error {
		there, seen, err := whatIsThere(ctx, tx)
		if err != nil {
			return err
		}
		for i, e := range events {
			if e.What == Seen && !seen[e.ID] {
				return fmt.Errorf("of %d events the entry of the acknowledged read at %d is lost", len(events), i)
			}
		}
		return agree(there, events)
	})
}

// whatIsThere returns the ids of all tokens, having compared them with their
// terms, their counter and the log; and those of the entries of reads.
func whatIsThere(ctx context.Context, tx store.Tx) (there, seen map[string]bool, err error) {
	page := store.Page{Limit: 1 << 30}
	filter := store.TokenFilter{Now: 1, Groups: every}
	tokens, err := tx.Tokens(ctx, filter, page)
	if err != nil {
		return nil, nil, err
	}
	count, err := tx.CountTokens(ctx, filter)
	if err != nil {
		return nil, nil, err
	}
	entries, err := tx.Logs(ctx, store.LogFilter{}, page)
	if err != nil {
		return nil, nil, err
	}
	created, deleted := map[string]bool{}, map[string]bool{}
	there, seen = map[string]bool{}, map[string]bool{}
	for i, t := range tokens {
		there[t.ID] = true
		if i < 50 {
			byTerms, err := tx.CountTokens(ctx, store.TokenFilter{Now: 1, Groups: every, Terms: t.Terms})
			if err != nil || byTerms != 1 {
				return nil, nil, fmt.Errorf("a token is found by its terms %d times, error %v", byTerms, err)
			}
		}
	}
	for _, e := range entries {
		switch e.Operation {
		case "delete":
			deleted[e.EntityID] = true
		case "read":
			seen[e.ID] = true
		default:
			created[e.EntityID] = true
		}
	}
	if int(count) != len(tokens) || len(created)-len(deleted) != len(tokens) || len(created)+len(deleted)+len(seen) != len(entries) {
		return nil, nil, fmt.Errorf("%d tokens, %d counted, %d created, %d deleted and %d read in %d log entries", len(tokens), count, len(created), len(deleted), len(seen), len(entries))
	}
	for id := range there {
		if !created[id] || deleted[id] {
			return nil, nil, errors.New("a token is there whose log says otherwise")
		}
	}
	return there, seen, nil
}

func agree(there map[string]bool, events []Event) error {
	leaving := map[string]bool{}
	for _, e := range events {
		leaving[e.ID] = (leaving[e.ID] || e.What == Dropping) && e.What != Stays
	}
	for i, e := range events {
		switch {
		case e.What == Kept && !leaving[e.ID] && !there[e.ID]:
			return fmt.Errorf("of %d events the acknowledged insert at %d is lost", len(events), i)
		case e.What == Dropped && there[e.ID]:
			return fmt.Errorf("of %d events the acknowledged deletion at %d is lost", len(events), i)
		case e.What == Refused && there[e.ID]:
			return fmt.Errorf("of %d events the refused insert at %d is there", len(events), i)
		case e.What == Stays && !there[e.ID]:
			return fmt.Errorf("of %d events the refused deletion at %d was done", len(events), i)
		}
	}
	return nil
}
