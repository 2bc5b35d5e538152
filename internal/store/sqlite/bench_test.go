package sqlite_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

// measured is how long each side of a comparison runs.
const measured = time.Second

// rate runs do on some goroutines for a while and returns how often a second
// it was done.
func rate(b *testing.B, goroutines int, do func(n int64) error) float64 {
	var n, done atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	deadline := start.Add(measured)
	for range goroutines {
		wg.Go(func() {
			for time.Now().Before(deadline) {
				if err := do(n.Add(1)); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(done.Load()) / time.Since(start).Seconds()
}

// benchToken is a token as a service would seal one, with random ids as in life.
func benchToken() store.Token {
	id := uuid.New()
	var first, second [32]byte
	copy(first[:], id[:])
	copy(second[16:], id[:])
	return store.Token{
		ID: id.String(), Type: "card", Containers: []string{"/pci/high/"}, Data: make([]byte, 220), Details: make([]byte, 180),
		Terms: [][]byte{first[:], second[:]}, CreatedBy: uuid.NewString(), CreatedAt: store.At(time.Now()), Version: 1,
	}
}

func benchEntry(entity string) store.LogEntry {
	return store.LogEntry{
		ID: uuid.NewString(), CreatedAt: store.At(time.Now()), ActorID: "5e2d6b1c-8a1d-4a53-9d5a-0d6a2f6f7a11", ActorType: "application",
		EntityType: "card", EntityID: entity, Operation: "create", Outcome: "success", Message: "Token created", TraceID: "0123456789abcdef0123",
		ClientAddress: "192.0.2.17",
	}
}

func benchTenant(n int64) string {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[8:], uint64(n%8)+1)
	return id.String()
}

func insertToken(ctx context.Context, s store.Store, n int64) error {
	t := benchToken()
	e := benchEntry(t.ID)
	return s.Update(ctx, benchTenant(n), func(tx store.Tx) error {
		if err := tx.InsertToken(ctx, t); err != nil {
			return err
		}
		return tx.AppendLog(ctx, e)
	})
}

func appendEntry(ctx context.Context, s store.Store, n int64) error {
	e := benchEntry("5e2d6b1c-8a1d-4a53-9d5a-0d6a2f6f7a11")
	return s.Update(ctx, benchTenant(n), func(tx store.Tx) error { return tx.AppendLog(ctx, e) })
}

// compareGrouping measures the same writes with and without group commit.
func compareGrouping(b *testing.B, write func(ctx context.Context, s store.Store, n int64) error) {
	for _, writers := range []int{1, 32, 128} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			for b.Loop() {
				var rates [2]float64
				for i, o := range []sqlite.Options{{}, {Ungrouped: true}} {
					s := open(b, b.TempDir(), o)
					rates[i] = rate(b, writers, func(n int64) error { return write(b.Context(), s, n) })
				}
				b.ReportMetric(rates[0], "grouped/s")
				b.ReportMetric(rates[1], "ungrouped/s")
				b.ReportMetric(rates[0]/rates[1], "ratio")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// BenchmarkInsertToken is a durable token with two search terms and its log entry.
func BenchmarkInsertToken(b *testing.B) { compareGrouping(b, insertToken) }

// BenchmarkAppendLog is a durable log entry alone, as for a read.
func BenchmarkAppendLog(b *testing.B) { compareGrouping(b, appendEntry) }

func BenchmarkReadToken(b *testing.B) {
	s := open(b, b.TempDir(), sqlite.Options{})
	const rows = 20_000
	ids := make([]string, rows)
	for at := 0; at < rows; at += 1000 {
		if err := s.Update(b.Context(), benchTenant(0), func(tx store.Tx) error {
			for i := range 1000 {
				t := benchToken()
				ids[at+i] = t.ID
				if err := tx.InsertToken(b.Context(), t); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	for _, readers := range []int{1, 32} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(rate(b, readers, func(n int64) error {
					return s.View(b.Context(), benchTenant(0), func(tx store.Tx) error {
						_, err := tx.Token(b.Context(), ids[n*7919%rows])
						return err
					})
				}), "reads/s")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}
