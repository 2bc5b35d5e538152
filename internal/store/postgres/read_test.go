package postgres_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// tally keeps the statements of requests in their order, and counts round trips.
type tally struct {
	mu         sync.Mutex // guards what follows
	statements []string
	trips      int
}

func (c *tally) note(texts ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statements = append(c.statements, texts...)
	c.trips++
}

// take returns what was counted since it was called last.
func (c *tally) take() (statements []string, trips int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	statements, trips = c.statements, c.trips
	c.statements, c.trips = nil, 0
	return statements, trips
}

func (c *tally) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.note(data.SQL)
	return ctx
}

func (c *tally) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *tally) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	var texts []string
	for _, q := range data.Batch.QueuedQueries {
		texts = append(texts, q.SQL)
	}
	c.note(texts...)
	return ctx
}

func (c *tally) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *tally) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// openWithToken opens a store in which tenant A has one token.
func openWithToken(t *testing.T, o postgres.Options, requests pgx.QueryTracer) (*postgres.Store, string) {
	t.Helper()
	s := openTraced(t, pgtest.Database(t), o, requests, nil)
	if err := storetest.AddTenants(t.Context(), s, storetest.Tenants()...); err != nil {
		t.Fatal(err)
	}
	tok := storetest.SomeToken()
	if err := s.Update(t.Context(), tenantA, func(tx store.Tx) error { return tx.InsertToken(t.Context(), tok) }); err != nil {
		t.Fatal(err)
	}
	return s, tok.ID
}

func readToken(ctx context.Context, s *postgres.Store, id string) error {
	return s.Read(ctx, tenantA, func(tx store.Tx) error {
		if _, err := tx.Token(ctx, id); err != nil {
			return err
		}
		e := storetest.SomeEntry(id)
		e.Operation = "read"
		return tx.AppendLog(ctx, e)
	})
}

// kinds shortens statements to what they are for.
func kinds(statements []string) []string {
	var list []string
	for _, text := range statements {
		words := strings.Fields(text)
		switch {
		case strings.Contains(text, "set_config"):
			list = append(list, "tenant")
		case strings.Contains(text, "FROM tokens"):
			list = append(list, "token")
		case strings.Contains(text, "INTO log_unsealed"):
			list = append(list, "entries")
		case strings.Contains(text, "INTO log_counts"):
			list = append(list, "counter")
		case strings.Contains(text, "INTO commits"):
			list = append(list, "name")
		default:
			list = append(list, words[0])
		}
	}
	return list
}

// TestAReadTakesTwoRoundTrips counts what one read alone sends: a view, which no
// other transaction can fail, and the commit of its entry.
func TestAReadTakesTwoRoundTrips(t *testing.T) {
	var sent tally
	s, id := openWithToken(t, postgres.Options{Connections: 1}, &sent)
	if err := readToken(t.Context(), s, id); err != nil { // once, so that the statements are prepared
		t.Fatal(err)
	}
	sent.take()
	if err := readToken(t.Context(), s, id); err != nil {
		t.Fatal(err)
	}
	statements, trips := sent.take()
	want := []string{"BEGIN", "tenant", "token", "BEGIN", "tenant", "name", "entries", "counter", "COMMIT"}
	if got := kinds(statements); !slices.Equal(got, want) || trips != 2 {
		t.Errorf("a read sent %v in %d round trips, want %v in 2", got, trips, want)
	}
}

// TestReadsShareTheCommitOfTheirEntries lets the entries of many reads wait for
// one commit.
func TestReadsShareTheCommitOfTheirEntries(t *testing.T) {
	var sent tally
	s, id := openWithToken(t, postgres.Options{}, &sent)
	const n = 30
	waiting, release, err := s.HoldCommits(tenantA)
	if err != nil {
		t.Fatal(err)
	}
	sent.take()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			errs[i] = s.Read(t.Context(), tenantA, func(tx store.Tx) error { return tx.AppendLog(t.Context(), storetest.SomeEntry(id)) })
		})
	}
	for waiting() < n {
		runtime.Gosched()
	}
	release()
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Errorf("Read: %v", err)
	}
	statements, trips := sent.take()
	want := []string{"BEGIN", "tenant", "name", "entries", "counter", "COMMIT"}
	if got := kinds(statements); !slices.Equal(got, want) || trips != 1 {
		t.Errorf("the entries of %d reads took %v in %d round trips, want %v in 1", n, got, trips, want)
	}
}

// TestAReadIsKeptByTheServerThatItReadFrom lets every connection but one lead to
// what calls itself another server: the entries of a read must not be kept there.
func TestAReadIsKeptByTheServerThatItReadFrom(t *testing.T) {
	s, id := openWithToken(t, postgres.Options{Connections: 2}, nil)
	runs := 0
	ctx := t.Context()
	err := s.Read(ctx, tenantA, func(tx store.Tx) error {
		if runs++; runs == 1 {
			if err := s.Rename(ctx, tx, "the primary of before"); err != nil {
				return err
			}
		}
		if _, err := tx.Token(ctx, id); err != nil {
			return err
		}
		return tx.AppendLog(ctx, storetest.SomeEntry(id))
	})
	if err != nil || runs != 2 {
		t.Errorf("Read: got error %v after %d runs, want none after 2", err, runs)
	}
	if err := s.View(ctx, tenantA, func(tx store.Tx) error {
		n, err := tx.CountLogs(ctx, store.LogFilter{EntityID: id})
		if n != 1 {
			t.Errorf("%d entries of the read, want that of its second run", n)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
