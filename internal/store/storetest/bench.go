package storetest

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	googleuuid "github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Rate runs do on some goroutines for a while and returns how often a second
// it was done.
func Rate(b *testing.B, goroutines int, measured time.Duration, do func(n int64) error) float64 {
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

// SomeToken is a token as a service would seal one, with random ids as in life.
func SomeToken() store.Token {
	id := googleuuid.New()
	var first, second [32]byte
	copy(first[:], id[:])
	copy(second[16:], id[:])
	return store.Token{
		ID: id.String(), Type: "card", Containers: []string{"/pci/high/"}, Data: make([]byte, 220), Details: make([]byte, 180),
		Terms: [][]byte{first[:], second[:]}, CreatedBy: googleuuid.NewString(), CreatedAt: store.At(time.Now()), Version: 1,
	}
}

// SomeEntry is the log entry of a create.
func SomeEntry(entity string) store.LogEntry {
	return store.LogEntry{
		ID: googleuuid.NewString(), CreatedAt: store.At(time.Now()), ActorID: "5e2d6b1c-8a1d-4a53-9d5a-0d6a2f6f7a11", ActorType: "application",
		EntityType: "card", EntityID: entity, Operation: "create", Outcome: "success", Message: "Token created", TraceID: "0123456789abcdef0123",
		ClientAddress: "192.0.2.17",
	}
}

// BenchTenant is one of the eight tenants of the benchmarks.
func BenchTenant(n int64) string {
	var id googleuuid.UUID
	binary.BigEndian.PutUint64(id[8:], uint64(n%8)+1)
	return id.String()
}

// Tenants are those that tests and benchmarks of a backend write for.
func Tenants() []string {
	list := []string{tenantA, tenantB}
	for n := range int64(8) {
		list = append(list, BenchTenant(n))
	}
	return list
}

// InsertToken inserts a token with its log entry, as a create does.
func InsertToken(ctx context.Context, s store.Store, n int64) error {
	t := SomeToken()
	e := SomeEntry(t.ID)
	return s.Update(ctx, BenchTenant(n), func(tx store.Tx) error {
		if err := tx.InsertToken(ctx, t); err != nil {
			return err
		}
		return tx.AppendLog(ctx, e)
	})
}

// InsertMany inserts n tokens of one tenant and returns their ids.
func InsertMany(b *testing.B, s store.Store, tenant string, n int) (ids []string) {
	b.Helper()
	for len(ids) < n {
		var some []string
		if err := s.Update(b.Context(), tenant, func(tx store.Tx) error {
			some = nil
			for range min(1000, n-len(ids)) {
				t := SomeToken()
				some = append(some, t.ID)
				if err := tx.InsertToken(b.Context(), t); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
		ids = append(ids, some...)
	}
	return ids
}
