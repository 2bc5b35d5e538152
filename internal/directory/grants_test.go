package directory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// reads says how much a key shows now.
func (w *world) reads(key secret.Text) (access.Transform, error) {
	c, err := w.Authenticate(w.t.Context(), key)
	return c.Decide(access.TokenRead, access.Target{ID: "x", Containers: []string{"/"}}).Transform, err
}

// A server that has seen the application must not be easier to deceive than
// one that has not.
func TestAGrantInMemoryIsOfNoUseToAChangedRow(t *testing.T) {
	weak := directory.NewApplication{
		Name: "weak", Type: "private", Permissions: []string{"token:read"}, ExpiresAt: start.Add(24 * time.Hour),
		Rules: []access.Rule{accesstest.Rule("/", access.Redact, access.TokenRead)},
	}
	strong := weak
	strong.Rules = []access.Rule{accesstest.Rule("/", access.Reveal, access.TokenRead)}
	for name, change := range map[string]func(row, other *store.Application){
		"rules of another application": func(row, other *store.Application) { row.Rules = other.Rules },
		"a byte of the rules":          func(row, _ *store.Application) { row.Rules[len(row.Rules)-1] ^= 1 },
		"no rules":                     func(row, _ *store.Application) { row.Rules = nil },
		"more permissions":             func(row, _ *store.Application) { row.Permissions = append(row.Permissions, "token:use") },
		"fewer permissions":            func(row, _ *store.Application) { row.Permissions = nil },
		"no expiry":                    func(row, _ *store.Application) { row.ExpiresAt = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tenant, _ := w.tenant()
			victim, other := w.application(tenant, weak), w.application(tenant, strong)
			for range 2 { // the second time from memory
				for key, want := range map[*directory.Application]access.Transform{&victim: access.Redact, &other: access.Reveal} {
					if got, err := w.reads(key.Key); got != want || err != nil {
						t.Fatalf("reads with %s, %v; want %s", got, err, want)
					}
				}
			}
			if err := w.store.Update(t.Context(), tenant, func(tx store.Tx) error {
				row, err := tx.Application(t.Context(), victim.ID)
				if err != nil {
					return err
				}
				from, err := tx.Application(t.Context(), other.ID)
				if err != nil {
					return err
				}
				change(&row, &from)
				row.Version++
				return tx.ReplaceApplication(t.Context(), row)
			}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if got, err := w.reads(victim.Key); got != access.Nothing || !errors.Is(err, keyring.ErrDamaged) {
					t.Errorf("Authenticate = %v and reads with %s, want %v and nothing", err, got, keyring.ErrDamaged)
				}
			}
			if got, err := w.reads(other.Key); got != access.Reveal || err != nil {
				t.Errorf("the other application reads with %s, %v", got, err)
			}
		})
	}
}

func TestAChangedApplicationCountsAtOnce(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	in := private()
	in.ExpiresAt = start.Add(time.Hour)
	a := w.application(tenant, in)
	for _, want := range []access.Transform{access.Mask, access.Reveal, access.Redact, access.Mask} {
		in.Rules = []access.Rule{accesstest.Rule("/", want, access.TokenRead)}
		if _, err := w.ReplaceApplication(t.Context(), w.manager(tenant), a.ID, in); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := w.reads(a.Key); got != want || err != nil {
				t.Errorf("reads with %s, %v; want %s", got, err, want)
			}
		}
	}
	w.clock.Advance(time.Hour)
	if _, err := w.reads(a.Key); !errors.Is(err, fault.Unauthenticated) {
		t.Errorf("after it has expired = %v, want %v", err, fault.Unauthenticated)
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	w := newWorld(b)
	tenant, _ := w.tenant()
	a := w.application(tenant, private())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Authenticate(b.Context(), a.Key); err != nil {
			b.Fatal(err)
		}
	}
}
