package transit_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/envelope"
	"github.com/tokenkeep/tokenkeep/internal/keyring/kmstest"
	"github.com/tokenkeep/tokenkeep/internal/keyring/transit"
	"github.com/tokenkeep/tokenkeep/internal/keyring/transit/transittest"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

func open(t *testing.T, uri string, o transit.Options) *envelope.KMS {
	t.Helper()
	if o.Envelope.Wait == nil {
		o.Envelope = kmstest.Calls()
	}
	k, err := transit.Open(uri, o)
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	return k
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func byToken(t *testing.T) string { return "auth=token&token_file=" + write(t, transittest.RootToken) }

func TestTransitIsAKMS(t *testing.T) {
	kmstest.Run(t, func(t *testing.T) kmstest.Fixture {
		s := transittest.New(t)
		s.Create("one")
		s.Create("two")
		query := byToken(t)
		return kmstest.Fixture{
			KMS: open(t, s.URI("one", query), transit.Options{}), Other: open(t, s.URI("two", query), transit.Options{}),
			Fail: s.Fail, Hung: s.Hung,
		}
	})
}

// KEEPTEST_TRANSIT names a key of a real Vault or OpenBao as the setting kek
// does, and KEEPTEST_TRANSIT_OTHER another one.
func TestARealServerIsAKMS(t *testing.T) {
	uri, other := os.Getenv("KEEPTEST_TRANSIT"), os.Getenv("KEEPTEST_TRANSIT_OTHER")
	if uri == "" || other == "" {
		t.Skip("KEEPTEST_TRANSIT and KEEPTEST_TRANSIT_OTHER name no keys")
	}
	o := transit.Options{Token: secret.NewText(os.Getenv("VAULT_TOKEN"))}
	kmstest.Run(t, func(t *testing.T) kmstest.Fixture {
		return kmstest.Fixture{KMS: open(t, uri, o), Other: open(t, other, o)}
	})
}

func TestWaysToLogIn(t *testing.T) {
	for name, query := range map[string]func(t *testing.T) string{
		"a token in a file": byToken,
		"approle": func(t *testing.T) string {
			return "auth=approle&role_id=" + transittest.RoleID + "&secret_id_file=" + write(t, transittest.SecretID)
		},
		"kubernetes": func(t *testing.T) string {
			return "auth=kubernetes&role=" + transittest.RoleID + "&jwt_file=" + write(t, transittest.JWT)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := transittest.New(t)
			s.Create("key")
			k := open(t, s.URI("key", query(t)), transit.Options{})
			if err := k.Probe(t.Context()); err != nil {
				t.Errorf("Probe = %v", err)
			}
			// A token that is refused is replaced, once.
			s.Forget()
			if err := k.Probe(t.Context()); err != nil {
				t.Errorf("Probe after the token was revoked = %v", err)
			}
		})
	}
	t.Run("wrong credentials", func(t *testing.T) {
		s := transittest.New(t)
		s.Create("key")
		k := open(t, s.URI("key", "auth=approle&role_id=x&secret_id_file="+write(t, "y")), transit.Options{})
		if err := k.Probe(t.Context()); !errors.Is(err, keyring.ErrKEKRefused) {
			t.Errorf("Probe = %v, want ErrKEKRefused", err)
		}
	})
	t.Run("a file that is gone", func(t *testing.T) {
		s := transittest.New(t)
		s.Create("key")
		k := open(t, s.URI("key", "auth=token&token_file="+filepath.Join(t.TempDir(), "none")), transit.Options{})
		if err := k.Probe(t.Context()); !errors.Is(err, keyring.ErrKEKRefused) {
			t.Errorf("Probe = %v, want ErrKEKRefused", err)
		}
	})
}

func TestATokenIsRenewedAtTwoThirdsOfItsLease(t *testing.T) {
	s := transittest.New(t)
	s.Create("key")
	s.Lease(300)
	clock := clocktest.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	k := open(t, s.URI("key", "auth=approle&role_id="+transittest.RoleID+"&secret_id_file="+write(t, transittest.SecretID)), transit.Options{Now: clock.Now})
	for _, step := range []struct {
		wait             time.Duration
		logins, renewals int
	}{{0, 1, 0}, {199 * time.Second, 1, 0}, {time.Second, 1, 1}, {199 * time.Second, 1, 1}, {time.Second, 1, 2}} {
		clock.Advance(step.wait)
		if _, _, err := k.Wrap(t.Context(), []byte("key"), nil); err != nil {
			t.Fatal(err)
		}
		if logins, renewals, _ := s.Counts(); logins != step.logins || renewals != step.renewals {
			t.Errorf("after %s more: %d logins and %d renewals, want %d and %d", step.wait, logins, renewals, step.logins, step.renewals)
		}
	}
}

func TestATokenThatMayCreateKeysIsFound(t *testing.T) {
	for name, tc := range map[string]struct {
		capabilities []string
		want         error
	}{
		"only update":       {[]string{"update"}, nil},
		"create and update": {[]string{"create", "update"}, keyring.ErrExcess},
		"root":              {[]string{"root"}, keyring.ErrExcess},
	} {
		t.Run(name, func(t *testing.T) {
			s := transittest.New(t)
			s.Create("key")
			s.Allow(tc.capabilities...)
			if err := open(t, s.URI("key", byToken(t)), transit.Options{}).Probe(t.Context()); !errors.Is(err, tc.want) {
				t.Errorf("Probe = %v, want %v", err, tc.want)
			}
		})
	}
}

func TestADeletedKeyIsNoLoss(t *testing.T) {
	s := transittest.New(t)
	s.Create("key")
	k := open(t, s.URI("key", byToken(t)), transit.Options{})
	wrapped, id, err := k.Wrap(t.Context(), []byte("key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Delete("key")
	if _, err := k.Unwrap(t.Context(), id, wrapped, nil); !errors.Is(err, keyring.ErrKEKRefused) || errors.Is(err, keyring.ErrUnwrap) {
		t.Errorf("Unwrap = %v, want ErrKEKRefused", err)
	}
	s.Create("key") // another key under the same name
	if _, err := k.Unwrap(t.Context(), id, wrapped, nil); !errors.Is(err, keyring.ErrUnwrap) {
		t.Errorf("Unwrap with another key of that name = %v, want ErrUnwrap", err)
	}
}

func TestARotatedKeyOpensWhatOlderVersionsWrapped(t *testing.T) {
	s := transittest.New(t)
	s.Create("key")
	k := open(t, s.URI("key", byToken(t)), transit.Options{})
	wrapped, id, err := k.Wrap(t.Context(), []byte("key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Create("key")
	if got, err := k.Unwrap(t.Context(), id, wrapped, nil); err != nil || string(got) != "key" {
		t.Errorf("Unwrap = %q, %v", got, err)
	}
}

func TestURIs(t *testing.T) {
	for uri, want := range map[string]string{
		"hcvault://h/transit/keys/k":                                       "token_file",
		"hcvault://h/transit/keys/k?auth=approle":                          "role_id",
		"hcvault://h/transit/keys/k?auth=kubernetes":                       "role",
		"hcvault://h/transit/keys/k?auth=ldap":                             "approle, kubernetes or token",
		"hcvault://h/transit/keys/k?token=x":                               "token_file",
		"hcvault://h/transit/keys/k?auth=token&auth=token":                 "repeated",
		"hcvault://h/transit/k":                                            "hcvault://host",
		"hcvault://u:p@h/transit/keys/k":                                   "hcvault://host",
		"hcvault:///transit/keys/k":                                        "hcvault://host",
		"https://h/transit/keys/k":                                         "hcvault://host",
		"hcvault://h/transit/keys/k?auth=token&token_file=x&ca_file=/none": "ca_file",
	} {
		_, err := transit.Open(uri, transit.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q) = %v, want one that names %q", uri, err, want)
		}
	}
	k := open(t, "hcvault://h/a/transit/keys/k?auth=token&token_file=x", transit.Options{})
	if k.Primary() != "hcvault:a/transit/keys/k" {
		t.Errorf("Primary = %q", k.Primary())
	}
	k = open(t, "hcvault://h/transit/keys/k?auth=token&token_file=x&id=main-2", transit.Options{})
	if k.Primary() != "main-2" {
		t.Errorf("Primary = %q, want what the URI says", k.Primary())
	}
	for _, what := range []keyring.Operation{keyring.Create, keyring.Rotate, keyring.Drop} {
		if k.Advise(what) == "" {
			t.Errorf("no advice for %s", what)
		}
	}
}
