package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// cardNumber is the n-th Luhn-valid number of a range that is no issuer's.
func cardNumber(n int64) string {
	body := fmt.Sprintf("999999%09d", n%1_000_000_000)
	sum := 0
	for i := range body {
		d := int(body[i] - '0')
		if i%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return body + fmt.Sprint((10-sum%10)%10)
}

func cardBody(n int64) string {
	return fmt.Sprintf(`{"type":"card","data":{"number":"%s","expiration_month":12,"expiration_year":2031,"cvc":"123"}}`, cardNumber(n))
}

// made is the id of what an answer shows.
func made(b *testing.B, text string, err error) string {
	b.Helper()
	var it api.Token
	if err == nil {
		err = json.Unmarshal([]byte(text), &it)
	}
	if err != nil {
		b.Fatal(err)
	}
	return it.ID
}

func (p *place) create(b *testing.B, n int) (ids []string) {
	b.Helper()
	for i := range n {
		text, err := p.ask("POST", "/tokens", p.revealing, cardBody(int64(i)), 201)
		ids = append(ids, made(b, text, err))
	}
	return ids
}

// loaded is how many cards a loaded store has, and how many of them are read in
// turn. BENCH_LOAD chooses another number.
func loaded(b *testing.B) int {
	b.Helper()
	text := os.Getenv("BENCH_LOAD")
	if text == "" {
		return 20_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1000 {
		b.Fatal("BENCH_LOAD must be a number from 1000 on")
	}
	return n
}

// load creates many cards, a thousand in one body, and returns their ids.
func (p *place) load(b *testing.B) (ids []string) {
	b.Helper()
	for n := loaded(b); len(ids) < n; {
		var bodies []string
		for i := range 1000 {
			bodies = append(bodies, cardBody(int64(len(ids)+i)))
		}
		text, err := p.ask("POST", "/tokenize", p.revealing, "["+strings.Join(bodies, ",")+"]", 200)
		var made []api.Token
		if err == nil {
			err = json.Unmarshal([]byte(text), &made)
		}
		if err != nil {
			b.Fatal(err)
		}
		for _, t := range made {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// readingCards reads one card after the other.
func (p *place) readingCards(name, key string, ids []string) side {
	return side{name, p.pid(), func(_ int, i int64) error {
		_, err := p.ask("GET", "/tokens/"+ids[i*7919%int64(len(ids))], key, "", 200)
		return err
	}}
}

// creating makes a card.
func (p *place) creating() side {
	return side{"create", p.pid(), func(_ int, n int64) error {
		_, err := p.ask("POST", "/tokens", p.masking, cardBody(n), 201)
		return err
	}}
}

// inserting puts the rows of a card into a store of its own, without anything
// that makes them. It works in this process.
func inserting(b *testing.B) side {
	b.Helper()
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "bare"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	tenant := uuid.NewString()
	if err := storetest.AddTenants(b.Context(), s, tenant); err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	return side{"insert", 0, func(int, int64) error {
		id := uuid.New()
		row := store.Token{
			ID: id.String(), Type: "card", Containers: []string{"/pci/high/"}, Data: make([]byte, 140), Details: make([]byte, 120), ShortLived: make([]byte, 80),
			Terms: [][]byte{append(id[:], id[:]...)}, CreatedBy: "5e2d6b1c-8a1d-4a53-9d5a-0d6a2f6f7a11", CreatedAt: store.At(time.Now()), Version: 1,
		}
		e := entry("create", row.ID)
		return s.Update(ctx, tenant, func(tx store.Tx) error {
			if err := tx.InsertToken(ctx, row); err != nil {
				return err
			}
			return tx.AppendLog(ctx, e)
		})
	}}
}

var connections = []int{1, 32, 128}

func named(work string, connections int) string {
	if connections == 1 {
		return work + ", 1 connection"
	}
	return fmt.Sprintf("%s, %d connections", work, connections)
}

// BenchmarkCreate creates cards over HTTP, beside the bare insert of the same rows.
func BenchmarkCreate(b *testing.B) {
	for _, n := range connections {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := measure(b, n, serve(b, "", nil).creating(), inserting(b))
			against(named("create a card, SQLite", n), "grouped inserts", f[0], f[1], 0.5)
		})
	}
}

// BenchmarkCreateInPostgres is the same on PostgreSQL, beside pgbench with the
// same inserts.
func BenchmarkCreateInPostgres(b *testing.B) {
	c := pgtest.Start(b, pgtest.Options{})
	limit := c.Database(b)
	if s, err := postgres.Open(b.Context(), limit, postgres.Options{}); err != nil {
		b.Fatal(err)
	} else if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for _, n := range connections {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := serve(b, "", []string{"TOKENKEEP_STORE_URL=" + c.Database(b)})
			before := c.Pgbench(b, limit, n, time.Second)
			f := measure(b, n, p.creating())
			f = append(f, figure{rate: (before + c.Pgbench(b, limit, n, time.Second)) / 2})
			against(named("create a card, PostgreSQL", n), "pgbench", f[0], f[1], 0.6)
		})
	}
}

// BenchmarkRead reads cards of a loaded store, masked and revealed with the cvc,
// beside a handler that answers as many bytes after one log entry: as every read is
// logged before it is answered, none can be faster.
func BenchmarkRead(b *testing.B) {
	for _, n := range []int{1, 32} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := serve(b, "", nil)
			ids := p.load(b)
			sample, err := p.ask("GET", "/tokens/"+ids[0], p.masking, "", 200)
			if err != nil {
				b.Fatal(err)
			}
			logged := startLimit(b, "logged", sample, "")
			f := measure(b, n, p.readingCards("masked", p.masking, ids), p.readingCards("revealed", p.revealing, ids), side{"logged", logged.pid, logged.do(p, "")})
			against(named("read a card masked", n), "handler with one log entry", f[0], f[2], 0.6)
			against(named("read a card revealed", n), "handler with one log entry", f[1], f[2], 0.6)
		})
	}
}

// BenchmarkReadInPostgres is the masked read on PostgreSQL, beside the read of one
// token by pgbench, which logs nothing.
func BenchmarkReadInPostgres(b *testing.B) {
	c := pgtest.Start(b, pgtest.Options{})
	for _, n := range []int{1, 32} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			database := c.Database(b)
			p := serve(b, "", []string{"TOKENKEEP_STORE_URL=" + database})
			ids := p.load(b)
			before := c.PgbenchRead(b, database, n, time.Second)
			f := measure(b, n, p.readingCards("masked", p.masking, ids))
			f = append(f, figure{rate: (before + c.PgbenchRead(b, database, n, time.Second)) / 2})
			against(named("read a card masked, PostgreSQL", n), "pgbench that selects a token", f[0], f[1], 0.5)
		})
	}
}

// BenchmarkHundred compares one body of a hundred with a hundred calls.
func BenchmarkHundred(b *testing.B) {
	p := serve(b, "", nil)
	ids := p.create(b, 100)
	var next atomic.Int64
	b.Run("tokenize", func(b *testing.B) {
		f := measure(b, 1,
			side{"one-body", p.pid(), func(int, int64) error {
				var list []string
				for range 100 {
					list = append(list, cardBody(next.Add(1)))
				}
				_, err := p.ask("POST", "/tokenize", p.masking, "["+strings.Join(list, ",")+"]", 200)
				return err
			}},
			side{"100-calls", p.pid(), func(int, int64) error {
				for range 100 {
					if _, err := p.ask("POST", "/tokens", p.masking, cardBody(next.Add(1)), 201); err != nil {
						return err
					}
				}
				return nil
			}})
		against("tokenize 100 cards in one body", "100 creates", f[0], f[1], 5)
	})
	b.Run("detokenize", func(b *testing.B) {
		var list []string
		for _, id := range ids {
			list = append(list, `"{{ `+id+` }}"`)
		}
		body := "[" + strings.Join(list, ",") + "]"
		f := measure(b, 1,
			side{"one-body", p.pid(), func(int, int64) error { _, err := p.ask("POST", "/detokenize", p.revealing, body, 200); return err }},
			side{"100-calls", p.pid(), func(int, int64) error {
				for _, id := range ids {
					if _, err := p.ask("GET", "/tokens/"+id, p.revealing, "", 200); err != nil {
						return err
					}
				}
				return nil
			}})
		against("detokenize 100 in one body", "100 reads", f[0], f[1], 5)
	})
}
