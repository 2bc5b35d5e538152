package access_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// The oracle once more, through the rows of the directory: what a session may
// do with its key is the lesser of what it was given and what its maker holds
// now, whatever became of the maker since.
func TestASessionNeverGetsMoreThanItsMakerHoldsNow(t *testing.T) {
	for name, test := range map[string]struct {
		sessions int
		open     func(t *testing.T) (store.Store, error)
	}{
		"sqlite": {200, func(t *testing.T) (store.Store, error) {
			return sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "data"), sqlite.Options{})
		}},
		"postgres": {40, func(t *testing.T) (store.Store, error) {
			return postgres.Open(t.Context(), pgtest.Database(t), postgres.Options{Connections: 4})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "postgres" {
				storetest.Long(t)
			}
			s, err := test.open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			meetTheOracle(t, directoryOn(t, s), test.sessions)
		})
	}
}

func directoryOn(t *testing.T, s store.Store) *directory.Service {
	t.Helper()
	kek := filepath.Join(t.TempDir(), "kek.json")
	if _, err := localkms.Generate(kek); err != nil {
		t.Fatal(err)
	}
	kms, err := localkms.Open(kek)
	if err != nil {
		t.Fatal(err)
	}
	ring, err := keyring.Open(t.Context(), kms, s, keyring.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return directory.New(s, ring, time.Now, "test", func(context.Context, string) error { return nil })
}

// someHolder holds something, as a request must say.
func someHolder(r *rand.Rand, session bool) (h holder) {
	for len(h.permissions)+len(h.rules) == 0 {
		h = randomHolder(r, session)
	}
	return h
}

func meetTheOracle(t *testing.T, d *directory.Service, sessions int) {
	ctx, r := t.Context(), rand.New(rand.NewPCG(seedOf(t), 1))
	made, applications, err := d.CreateTenant(ctx, "Tenant", directory.NewApplication{Name: "p", Type: "public", Permissions: []string{"token:create"}})
	if err != nil {
		t.Fatal(err)
	}
	manager := access.NewApplication(made.ID, "m", access.Management, access.PlainGrant(access.Management.Permissions()...))
	public, err := d.Authenticate(ctx, applications[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	chooseCap := func(uncapped string) {
		if _, err := d.ReplaceTenant(ctx, manager, "Tenant", map[string]string{"uncapped_sessions": uncapped}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	for n := range sessions {
		own, maker := someHolder(r, true), someHolder(r, false)
		in := directory.NewApplication{Name: "maker", Type: "private", Permissions: maker.permissions, Rules: maker.rules}
		application, err := d.CreateApplication(ctx, manager, in)
		if err != nil {
			t.Fatalf("session %d: CreateApplication = %v %v", n, err, fault.Of(err).Fields())
		}
		private, err := d.Authenticate(ctx, application.Key)
		if err != nil {
			t.Fatal(err)
		}
		// A copy of the maker's own grant is never refused.
		if n%4 == 0 {
			own = maker
		}
		session, err := d.CreateSession(ctx, public)
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.AuthorizeSession(ctx, private, directory.Authorization{Nonce: session.Nonce, Permissions: own.permissions, Rules: own.rules})
		switch _, exceeds := access.PlainExcess(own.grant(t), maker.grant(t)); {
		case errors.Is(err, fault.Forbidden) && exceeds && n%4 != 0:
			// It is given more while the tenant has lifted the cap, and only then.
			seen["excess"]++
			chooseCap("true")
			if _, err := d.AuthorizeSession(ctx, private, directory.Authorization{Nonce: session.Nonce, Permissions: own.permissions, Rules: own.rules}); err != nil {
				t.Fatalf("session %d: AuthorizeSession without the cap = %v", n, err)
			}
			chooseCap("false")
		case err != nil || exceeds:
			t.Fatalf("session %d: AuthorizeSession = %v, with an excess: %t\nown %s\nmaker %s", n, err, exceeds, own, maker)
		}
		for change := range 3 {
			var err error
			switch change {
			case 1: // other rights
				maker = someHolder(r, false)
				in.Permissions, in.Rules = maker.permissions, maker.rules
				_, err = d.ReplaceApplication(ctx, manager, application.ID, in)
			case 2: // none
				maker = holder{}
				err = d.DeleteApplication(ctx, manager, application.ID)
			}
			if err != nil {
				t.Fatalf("session %d, change %d: %v %v", n, change, err, fault.Of(err).Fields())
			}
			c, err := d.Authenticate(ctx, session.Key)
			if change == 2 {
				if !errors.Is(err, fault.Unauthenticated) || c.Tenant() != "" {
					t.Fatalf("session %d, without its maker: Authenticate = %v, want a refusal", n, err)
				}
				err = nil // and the zero caller may do nothing
			}
			if err != nil {
				t.Fatalf("session %d: Authenticate = %v", n, err)
			}
			for _, name := range poolNames {
				p, _ := access.ParsePermission(name)
				for range 10 {
					id, containers := pick(r, everyID), some(r, everyContainer, 1, 2)
					want := least(own.onToken(name, id, containers...), maker.onToken(name, id, containers...))
					if got := answer(c.Decide(p, target(id, containers...))); got != want {
						t.Fatalf("session %d, change %d: %s on %s in %v = %s, want %s\nown %s\nmaker %s", n, change, name, id, containers, got, want, own, maker)
					}
					seen[want]++
				}
			}
		}
	}
	t.Log(seen)
	for _, outcome := range order {
		if seen[outcome] < sessions/4 {
			t.Errorf("only %d of the cases came to %q: they do not test it", seen[outcome], outcome)
		}
	}
}
