// Package storetest is the suite that every backend of package store passes.
//
// It promises that a backend which passes it keeps the contract as far as one
// process can see. It never looks behind the interface and never asks for more
// than the interface says: how a backend crashes is its own to test, with the
// workload and the verification of this package.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Open opens an empty store for one test and sees to it that it is closed when
// the test ends. The function beside it opens the same store again, after the
// first one has been closed.
type Open func(t *testing.T) (s store.Store, again func() store.Store)

type test struct {
	name string
	run  func(f *fixture)
}

// bare are the parts whose tests begin without a tenant. In all others the
// three of them are there.
var bare = map[string]bool{
	"tenants are apart": true, "transactions": true, "tenants": true, "tenants that go": true, "epoch keys": true, "the installation": true, "closing": true,
}

// Run runs the whole suite, each test on a store of its own.
func Run(t *testing.T, open Open) {
	for _, part := range []struct {
		name  string
		tests []test
	}{
		{"tenants are apart", isolationTests},
		{"transactions", transactionTests},
		{"reads", readTests},
		{"concurrency", concurrencyTests},
		{"values", valueTests},
		{"tokens", tokenTests},
		{"token lists", listTests},
		{"random operations", modelTests},
		{"applications", applicationTests},
		{"sessions", sessionTests},
		{"parcels", parcelTests},
		{"definitions", definitionTests},
		{"tenants", tenantTests},
		{"tenants that go", goneTests},
		{"keysets and marks", keysetTests},
		{"log", logTests},
		{"events", eventTests},
		{"epoch keys", epochTests},
		{"the installation", installationTests},
		{"closing", closingTests},
	} {
		t.Run(part.name, func(t *testing.T) {
			for _, c := range part.tests {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					s, again := open(t)
					f := &fixture{T: t, Store: s, again: again}
					if !bare[part.name] {
						f.people(tenantA, tenantB, tenantC)
					}
					c.run(f)
				})
			}
		})
	}
}

// fixture is a test with its store. Functions given to Update must not end the
// test from within (t.Fatal): they may run on a goroutine of the store's.
type fixture struct {
	*testing.T
	store.Store
	again func() store.Store
}

// The tenants of the tests, in the order of their ids.
const (
	tenantA = "11111111-1111-4111-8111-111111111111"
	tenantB = "22222222-2222-4222-8222-222222222222"
	tenantC = "33333333-3333-4333-8333-333333333333"
	tenantD = "44444444-4444-4444-8444-444444444444" // never there to begin with
)

// day is when the tests take place.
var day = store.At(time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC))

const (
	second = store.Time(1_000_000)
	hour   = 3600 * second
)

var errStop = errors.New("the test stops here")

func (f *fixture) update(tenant string, fn func(ctx context.Context, tx store.Tx) error) {
	f.Helper()
	ctx := f.Context()
	if err := f.Update(ctx, tenant, func(tx store.Tx) error { return fn(ctx, tx) }); err != nil {
		f.Fatalf("Update: got %v, want no error", err)
	}
}

func (f *fixture) view(tenant string, fn func(ctx context.Context, tx store.Tx) error) {
	f.Helper()
	ctx := f.Context()
	if err := f.View(ctx, tenant, func(tx store.Tx) error { return fn(ctx, tx) }); err != nil {
		f.Fatalf("View: got %v, want no error", err)
	}
}

// people inserts the rows of tenants.
func (f *fixture) people(ids ...string) {
	f.Helper()
	for _, id := range ids {
		f.update(id, func(ctx context.Context, tx store.Tx) error { return tx.InsertTenant(ctx, tenant(id)) })
	}
}

// refused runs an Update that must fail with want, reported by the write or by
// Update itself.
func (f *fixture) refused(doing, tenant string, want error, fn func(ctx context.Context, tx store.Tx) error) {
	f.Helper()
	ctx := f.Context()
	err := f.Update(ctx, tenant, func(tx store.Tx) error { return fn(ctx, tx) })
	if !errors.Is(err, want) {
		f.Errorf("%s: got error %v, want %v", doing, err, want)
	}
}

// sound fails the test when Check finds something.
func (f *fixture) sound() {
	f.Helper()
	found, err := f.Check(f.Context(), nil)
	if err != nil || len(found) > 0 {
		f.Errorf("Check: got %q, error %v; want nothing", found, err)
	}
}

func (f *fixture) same(what string, got, want any) {
	f.Helper()
	if !reflect.DeepEqual(got, want) {
		f.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// uuid makes the n-th of a row of ids that sort by n.
func uuid(n int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", n, n) }

// token makes a token with all its parts, the n-th of its tenant.
func token(n int) store.Token {
	return store.Token{
		ID: fmt.Sprintf("token-%05d", n), Type: "card", Containers: []string{"/pci/high/"},
		Data: fmt.Appendf(nil, "sealed data %d", n), Details: fmt.Appendf(nil, "sealed details %d", n),
		ShortLived: fmt.Appendf(nil, "sealed cvc %d", n), Terms: [][]byte{fmt.Appendf(nil, "term %d", n), []byte("term of all")},
		Expiry:    store.Expiry{At: day + 1000*hour, OffsetSeconds: -5 * 3600},
		CreatedBy: "application 1", CreatedAt: day + store.Time(n), ModifiedBy: "application 2", ModifiedAt: day + store.Time(n) + second,
		Version: 1, Derived: true,
	}
}

func application(n int) store.Application {
	return store.Application{
		ID: fmt.Sprintf("application-%05d", n), Name: fmt.Sprintf("Application %d", n), Type: "private",
		Permissions: []string{"token:create", "token:read"}, Rules: []byte("sealed rules"), ExpiresAt: day + hour,
		CreatedBy: "somebody", CreatedAt: day + store.Time(n), ModifiedBy: "somebody else", ModifiedAt: day + second, Version: 1,
	}
}

func key(applicationID string, n int) store.Key {
	return store.Key{
		ID: fmt.Sprintf("key-%05d", n), ApplicationID: applicationID, Version: n, Hash: fmt.Appendf(nil, "hash %d", n),
		Prefix: "key_test_pvt_", CreatedBy: "somebody", CreatedAt: day + store.Time(n),
	}
}

func session(n int) store.Session {
	return store.Session{
		ID: fmt.Sprintf("session-%05d", n), KeyHash: fmt.Appendf(nil, "key hash %d", n), NonceHash: fmt.Appendf(nil, "nonce hash %d", n),
		Prefix: "key_test_ses_", Grant: fmt.Appendf(nil, "sealed grant %d", n), CreatedBy: "application 1", CreatedAt: day + store.Time(n),
		CreatedKeyID: "key 1", AuthorizedBy: "application 2", AuthorizedKeyID: "key 2", AuthorizedAt: day + second, ExpiresAt: day + hour, Version: 1,
	}
}

func parcel(kind string, n int) store.Parcel {
	return store.Parcel{
		Kind: kind, ID: fmt.Sprintf("parcel-%05d", n), Group: "reactor 1", Owner: "application 1", Contents: fmt.Appendf(nil, "sealed contents %d", n),
		Epoch: 7, CreatedAt: day + store.Time(n), DueAt: day + hour, ExpiresAt: day + 2*hour, Attempts: 3, Version: 1,
	}
}

func definition(kind string, n int) store.Definition {
	return store.Definition{
		Kind: kind, ID: fmt.Sprintf("definition-%05d", n), Name: fmt.Sprintf("Definition %d", n), ApplicationID: "application 1",
		KeyHash: fmt.Appendf(nil, "hash of %s %d", kind, n), Contents: fmt.Appendf(nil, "sealed contents %d", n),
		CreatedBy: "somebody", CreatedAt: day + store.Time(n), ModifiedBy: "somebody else", ModifiedAt: day + second, Version: 1,
	}
}

func entry(n int) store.LogEntry {
	return store.LogEntry{
		ID: uuid(n), CreatedAt: day + store.Time(n), ActorID: "application 1", ActorType: "application", SessionID: "session 1",
		EntityType: "card", EntityID: fmt.Sprintf("token-%05d", n), Operation: "create", Outcome: "success", Message: "Token created",
		TraceID: "trace 1", ClientAddress: "192.0.2.1", ActorName: "Shop", Transform: "mask", Reason: "a refund",
	}
}

func at(e store.LogEntry) store.Position { return store.Position{CreatedAt: e.CreatedAt, ID: e.ID} }

func batch(number int64, count int) store.LogBatch {
	return store.LogBatch{
		Number: number, Count: count, Leaves: []byte("leaves"), Root: []byte("root"), Link: []byte("link"),
		Signature: []byte("signature"), SealedAt: day + hour,
	}
}

func keyset(purpose string, version int64) store.Keyset {
	return store.Keyset{
		Purpose: purpose, Wrapped: fmt.Appendf(nil, "wrapped %s %d", purpose, version), KEK: "kek 1", Version: version,
		CreatedAt: day, ModifiedAt: day + store.Time(version),
	}
}

func tenant(id string) store.Tenant {
	return store.Tenant{
		ID: id, Name: "Tenant", Settings: map[string]string{"deduplicate_tokens": "true"}, Secrets: []byte("sealed secrets\x00\xff"),
		CreatedBy: "operator", CreatedAt: day, ModifiedBy: "operator", ModifiedAt: day + second,
	}
}

// all chooses every token that has not expired at the time of the tests.
var all = store.TokenFilter{Now: day, Groups: every}

// every is the groups of a filter that does not narrow them.
var every = store.AllGroups()

// large is a page that holds every row of a test.
var large = store.Page{Limit: 10_000}
