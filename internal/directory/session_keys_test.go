package directory_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// family is a tenant with an application that creates sessions and one that
// authorizes them, each with two keys, and a session for each combination of
// keys. None of the sessions expires within a day.
type family struct {
	tenant          string
	public, private directory.Application
	keys            map[string]directory.Key // by the name of the application and the number of the key
	sessions        []related
}

// related is a session with the keys that created and authorized it.
type related struct {
	directory.Session
	name    string
	created string // the name of the creating key
	by      string // the name of the authorizing key; "" while it waits
}

func (s *stage) family(uncapped bool) (f family) {
	s.t.Helper()
	ctx := s.t.Context()
	tenant, made := s.tenant(publicApplication, strongMaker)
	f = family{tenant: tenant, public: made[0], private: made[1], keys: map[string]directory.Key{}}
	if uncapped {
		if _, err := s.nodes[0].ReplaceTenant(ctx, s.manager(tenant), "Tenant", map[string]string{"uncapped_sessions": "true"}); err != nil {
			s.t.Fatal(err)
		}
	}
	for name, a := range map[string]directory.Application{"public": f.public, "private": f.private} {
		second, err := s.nodes[0].CreateKey(ctx, s.manager(tenant), a.ID)
		if err != nil {
			s.t.Fatal(err)
		}
		first := a.Keys[0]
		first.Text = a.Key
		f.keys[name+" 1"], f.keys[name+" 2"] = first, second
	}
	for _, created := range []string{"public 1", "public 2"} {
		for _, by := range []string{"", "private 1", "private 2"} {
			x, err := s.nodes[0].CreateSession(ctx, s.as(f.keys[created].Text))
			if err != nil {
				s.t.Fatal(err)
			}
			if by != "" {
				in := reveals
				in.Nonce, in.ExpiresAt = x.Nonce, s.clock.Now().Add(24*time.Hour)
				if _, err := s.nodes[0].AuthorizeSession(ctx, s.as(f.keys[by].Text), in); err != nil {
					s.t.Fatal(err)
				}
			}
			f.sessions = append(f.sessions, related{x, fmt.Sprintf("the session of keys %q and %q", created, by), created, by})
		}
	}
	s.clock.Advance(time.Second)
	return f
}

// check fails unless exactly the sessions whose keys are not among the dead
// live, on every node, for every way in which a session is looked at.
func (s *stage) check(f family, dead func(key string) bool) {
	s.t.Helper()
	ctx := s.t.Context()
	live := map[string]bool{}
	for _, x := range f.sessions {
		live[x.ID] = !dead(x.created) && (x.by == "" || !dead(x.by))
		inactive := directory.Active
		switch {
		case dead(x.created):
			inactive = directory.NoCreatingKey
		case x.by == "":
			inactive = directory.NotAuthorized
		case dead(x.by):
			inactive = directory.NoAuthorizingKey
		}
		for i, n := range s.nodes {
			c, err := n.Authenticate(ctx, x.Key)
			switch {
			case !live[x.ID]:
				if !errors.Is(err, fault.Unauthenticated) || fault.Of(err).Code() != "session_revoked" || c.Tenant() != "" {
					s.t.Errorf("node %d: %s: Authenticate = %v, want it to be revoked", i, x.name, err)
				}
			case x.by == "":
				if !errors.Is(err, fault.Forbidden) {
					s.t.Errorf("node %d: %s: Authenticate = %v, want it to wait", i, x.name, err)
				}
			case err != nil || c.Require(access.TokenUse, "/pci/") != nil || c.Key() != "":
				s.t.Errorf("node %d: %s: Authenticate = %v, want it to live", i, x.name, err)
			}
			if _, err := n.Acting(ctx, f.tenant, f.public.ID, x.ID); live[x.ID] && x.by != "" != (err == nil) {
				s.t.Errorf("node %d: %s: Acting = %v", i, x.name, err)
			}
			if e, err := n.Explain(ctx, s.manager(f.tenant), directory.Question{Session: x.ID, Permission: "token:use", Containers: []string{"/pci/"}}); err != nil || e.Inactive != inactive {
				s.t.Errorf("node %d: %s: Explain = %q, %v, want %q", i, x.name, e.Inactive, err, inactive)
			}
		}
	}
	for i, n := range s.nodes {
		list, total, err := n.Sessions(ctx, s.manager(f.tenant), store.Page{Limit: 100})
		want := 0
		for _, x := range f.sessions {
			listed := slices.ContainsFunc(list, func(l directory.Session) bool { return l.ID == x.ID })
			if listed != live[x.ID] {
				s.t.Errorf("node %d: %s is in the list: %t, want %t", i, x.name, listed, live[x.ID])
			}
			if live[x.ID] {
				want++
			}
		}
		if err != nil || len(list) != want || total != int64(want) {
			s.t.Errorf("node %d: %d sessions of %d, %v; want %d", i, len(list), total, err, want)
		}
		holders, err := n.Who(ctx, s.manager(f.tenant), "token:use", "/pci/")
		for _, h := range holders {
			if h.Session && !live[h.ID] {
				s.t.Errorf("node %d: Who names a session that is dead", i)
			}
		}
		if err != nil {
			s.t.Errorf("node %d: Who = %v", i, err)
		}
	}
}

// end is a way in which keys of an application end.
type end struct {
	name string
	do   func(s *stage, c access.Caller, a directory.Application, first directory.Key) error
	all  bool // all keys of the application end, and not only the first
}

var ends = []end{
	{"it is deleted", func(s *stage, c access.Caller, a directory.Application, first directory.Key) error {
		return s.nodes[0].DeleteKey(s.t.Context(), c, a.ID, first.ID)
	}, false},
	{"its application is regenerated", func(s *stage, c access.Caller, a directory.Application, _ directory.Key) error {
		_, err := s.nodes[0].Regenerate(s.t.Context(), c, a.ID)
		return err
	}, true},
	{"its application is deleted", func(s *stage, c access.Caller, a directory.Application, _ directory.Key) error {
		return s.nodes[0].DeleteApplication(s.t.Context(), c, a.ID)
	}, true},
	{"its application expires", func(s *stage, c access.Caller, a directory.Application, _ directory.Key) error {
		_, err := s.nodes[0].ReplaceApplication(s.t.Context(), c, a.ID, directory.NewApplication{
			Name: a.Name, Permissions: a.Permissions, Rules: a.Rules, ExpiresAt: s.clock.Now().Add(time.Minute),
		})
		s.clock.Advance(time.Minute)
		return err
	}, true},
}

// A session dies with the key that created it and with the key that authorized
// it, however that key ends, and not with another key of the same application.
func TestASessionDiesWithItsKeys(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		s.addNode()
		for _, uncapped := range []bool{false, true} {
			bystander := s.family(uncapped)
			for _, of := range []string{"public", "private"} {
				for _, e := range ends {
					t.Run(fmt.Sprintf("uncapped %t, the %s key, %s", uncapped, of, e.name), func(t *testing.T) {
						s.t = t
						s.at(start)
						f := s.family(uncapped)
						s.check(f, func(string) bool { return false })
						a := f.public
						if of == "private" {
							a = f.private
						}
						before := s.entries(f.tenant)
						if err := e.do(s, s.manager(f.tenant), a, f.keys[of+" 1"]); err != nil {
							t.Fatal(err)
						}
						if made := s.entries(f.tenant) - before; made != 1 {
							t.Errorf("it made %d entries, want 1 however many sessions die", made)
						}
						s.check(f, func(key string) bool { return strings.HasPrefix(key, of) && (e.all || key == of+" 1") })
						for _, x := range f.sessions {
							if x.by != "" {
								continue
							}
							in := reveals
							in.Nonce = x.Nonce
							want := error(nil)
							if of == "public" && (e.all || x.created == "public 1") {
								want = fault.NotFound
							}
							maker := f.keys["private 2"].Text
							if of == "private" && e.all {
								continue // nobody is left who could
							}
							if _, err := s.nodes[1].AuthorizeSession(t.Context(), s.as(maker), in); !errors.Is(err, want) {
								t.Errorf("%s: AuthorizeSession = %v, want %v", x.name, err, want)
							}
						}
					})
				}
			}
			s.t = t
			s.at(start.Add(time.Second))
			s.check(bystander, func(string) bool { return false }) // of another tenant
		}
	})
}

// An expiry can be moved. Then the keys of the application are valid again, and
// so are the sessions.
func TestASessionLivesAgainWithItsApplication(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		f := s.family(false)
		for _, a := range []directory.Application{f.public, f.private} {
			in := directory.NewApplication{Name: a.Name, Permissions: a.Permissions, Rules: a.Rules, ExpiresAt: s.clock.Now().Add(time.Second)}
			if _, err := s.nodes[0].ReplaceApplication(t.Context(), s.manager(f.tenant), a.ID, in); err != nil {
				t.Fatal(err)
			}
			s.clock.Advance(time.Second)
			s.check(f, func(key string) bool { return strings.HasPrefix(key, string(a.Type)) })
			in.ExpiresAt = time.Time{}
			if _, err := s.nodes[0].ReplaceApplication(t.Context(), s.manager(f.tenant), a.ID, in); err != nil {
				t.Fatal(err)
			}
			s.check(f, func(string) bool { return false })
		}
	})
}

func TestSessionsOfADeletedTenantDie(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		s.addNode()
		for _, uncapped := range []bool{false, true} {
			f := s.family(uncapped)
			if err := s.nodes[0].DeleteTenant(t.Context(), s.manager(f.tenant)); err != nil {
				t.Fatal(err)
			}
			for i, n := range s.nodes {
				for _, x := range f.sessions {
					if c, err := n.Authenticate(t.Context(), x.Key); !errors.Is(err, fault.Unauthenticated) || c.Tenant() != "" {
						t.Errorf("node %d: %s: Authenticate = %v, want a refusal", i, x.name, err)
					}
				}
			}
		}
	})
}

// A key that was revoked after it was presented creates and authorizes nothing.
// So does an application that acts without a key.
func TestARevokedKeyMakesNoSession(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		f := s.family(false)
		public, private := s.as(f.keys["public 1"].Text), s.as(f.keys["private 1"].Text)
		if public.Key() != f.keys["public 1"].ID || private.Key() != f.keys["private 1"].ID {
			t.Fatalf("the callers have the keys %q and %q", public.Key(), private.Key())
		}
		acting := func(a directory.Application) access.Caller {
			c, err := s.nodes[0].Acting(t.Context(), f.tenant, a.ID, "")
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		for name, a := range map[string]directory.Application{"public 1": f.public, "private 1": f.private} {
			if err := s.nodes[0].DeleteKey(t.Context(), s.manager(f.tenant), a.ID, f.keys[name].ID); err != nil {
				t.Fatal(err)
			}
		}
		in := reveals
		in.Nonce = f.sessions[3].Nonce // of the second public key
		for name, c := range map[string][2]access.Caller{"a revoked key": {public, private}, "no key": {acting(f.public), acting(f.private)}} {
			if _, err := s.nodes[0].CreateSession(t.Context(), c[0]); !errors.Is(err, fault.Unauthenticated) {
				t.Errorf("CreateSession with %s = %v, want a refusal", name, err)
			}
			if _, err := s.nodes[0].AuthorizeSession(t.Context(), c[1], in); !errors.Is(err, fault.Unauthenticated) {
				t.Errorf("AuthorizeSession with %s = %v, want a refusal", name, err)
			}
		}
		if _, err := s.nodes[0].AuthorizeSession(t.Context(), s.as(f.keys["private 2"].Text), in); err != nil {
			t.Errorf("AuthorizeSession with the other key = %v", err)
		}
	})
}

// Anyone who can write to the database must not bring a session back whose key
// was revoked.
func TestARevokedSessionStaysDeadWhateverTheRowsSay(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		const key = "INSERT INTO application_keys (tenant_id, hash, application_id, id, version, prefix, created_by, created_at) " +
			"SELECT tenant_id, HASH, 'A', 'K', 1, '', '', created_at FROM sessions WHERE id = 'S'"
		for _, of := range []string{"public", "private"} {
			for name, statements := range map[string][]string{
				"a key of the old id":   {key},
				"the other key renamed": {"UPDATE application_keys SET id = 'K' WHERE id = 'O'"},
				"the other key in the session": {
					"UPDATE sessions SET created_key_id = 'O' WHERE id = 'S' AND created_key_id = 'K'",
					"UPDATE sessions SET authorized_key_id = 'O' WHERE id = 'S' AND authorized_key_id = 'K'"},
				"no key in the session, and a session that is young": {
					"UPDATE sessions SET created_key_id = '', authorized_key_id = '', created_at = created_at + 100000000, authorized_at = authorized_at + 100000000 WHERE id = 'S'"},
				"what was sealed before the authorization": {"UPDATE sessions SET sealed_grant = (SELECT sealed_grant FROM sessions WHERE id = 'W') WHERE id = 'S'"},
			} {
				f := s.family(false)
				a := f.public
				if of == "private" {
					a = f.private
				}
				if err := s.nodes[0].DeleteKey(t.Context(), s.manager(f.tenant), a.ID, f.keys[of+" 1"].ID); err != nil {
					t.Fatal(err)
				}
				victim := f.sessions[1] // of the first keys
				names := strings.NewReplacer("'S'", "'"+victim.ID+"'", "'A'", "'"+a.ID+"'", "'K'", "'"+f.keys[of+" 1"].ID+"'", "'O'", "'"+f.keys[of+" 2"].ID+"'",
					"'W'", "'"+f.sessions[0].ID+"'", "HASH", "key_hash")
				changed := int64(0)
				for _, text := range statements {
					n, _ := s.behind(names.Replace(text))
					changed += n
				}
				if changed != 1 {
					t.Fatalf("%s key, %s: changed %d rows, want 1", of, name, changed)
				}
				if c, err := s.nodes[0].Authenticate(t.Context(), victim.Key); err == nil || c.Tenant() != "" || !errors.Is(err, fault.Unauthenticated) && !errors.Is(err, keyring.ErrDamaged) {
					t.Errorf("%s key, %s: Authenticate = %v, want a refusal", of, name, err)
				}
			}
		}
	})
}

// A key whose row was changed by hand opens nothing, and neither do its sessions.
func TestAKeyChangedByHandTakesItsSessionsAlong(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		for _, of := range []string{"public", "private"} {
			for name, text := range map[string]string{
				"another id":          "UPDATE application_keys SET id = 'aaaaaaaa-0000-4000-8000-000000000000' WHERE id = 'K'",
				"another application": "UPDATE application_keys SET application_id = 'B' WHERE id = 'K'",
				"another hash":        "UPDATE application_keys SET hash = (SELECT nonce_hash FROM sessions WHERE id = 'S') WHERE id = 'K'",
			} {
				f := s.family(false)
				in := publicApplication
				if of == "private" {
					in = strongMaker
				}
				other, err := s.nodes[0].CreateApplication(t.Context(), s.manager(f.tenant), in)
				if err != nil {
					t.Fatal(err)
				}
				victim := f.sessions[1]
				text = strings.NewReplacer("'K'", "'"+f.keys[of+" 1"].ID+"'", "'B'", "'"+other.ID+"'", "'S'", "'"+victim.ID+"'").Replace(text)
				if n, _ := s.behind(text); n != 1 {
					t.Fatalf("%s key, %s: changed %d rows, want 1", of, name, n)
				}
				for what, key := range map[string]secret.Text{"the session": victim.Key, "the key": f.keys[of+" 1"].Text} {
					if c, err := s.nodes[0].Authenticate(t.Context(), key); !errors.Is(err, fault.Unauthenticated) || c.Tenant() != "" {
						t.Errorf("%s key, %s: Authenticate with %s = %v, want a refusal", of, name, what, err)
					}
				}
			}
		}
	})
}

// A server of the release before seals no keys. Its sessions die when no key of
// the application is left that could have created or authorized them.
func TestASessionWithoutKeysDiesWithTheOldKeys(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		ctx := t.Context()
		ring, err := keyring.Open(ctx, s.kms, s.store, keyring.Options{Now: s.clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		// older makes a session one that a server of the release before has sealed.
		older := func(tenant, id string, columns bool) {
			keys, err := ring.For(ctx, tenant)
			if err != nil {
				t.Fatal(err)
			}
			err = s.store.Update(ctx, tenant, func(tx store.Tx) error {
				r, err := tx.Session(ctx, id)
				if err != nil {
					return err
				}
				b, err := keys.Open(r.ID, keyring.FieldSessionGrant, r.Grant)
				if err != nil {
					return err
				}
				sealed := map[string]json.RawMessage{}
				if err := json.Unmarshal(b, &sealed); err != nil {
					return err
				}
				if len(sealed["created_with"]) == 0 {
					return errors.New("the creating key is not sealed")
				}
				delete(sealed, "created_with")
				delete(sealed, "authorized_with")
				if b, err = json.Marshal(sealed); err != nil {
					return err
				}
				if r.Grant, err = keys.Seal(r.ID, keyring.FieldSessionGrant, b); err != nil {
					return err
				}
				if r.AuthorizedKeyID = ""; !columns {
					r.CreatedKeyID = ""
				}
				return errors.Join(tx.DeleteSession(ctx, id), tx.InsertSession(ctx, r))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for name, test := range map[string]struct {
			do      func(f family, c access.Caller) error
			columns bool // the row still has the id of the creating key
			dead    func(key string) bool
		}{
			"nothing happens": {func(family, access.Caller) error { return nil }, false, func(string) bool { return false }},
			"the public application is regenerated": {func(f family, c access.Caller) error {
				_, err := s.nodes[0].Regenerate(ctx, c, f.public.ID)
				return err
			}, false, func(key string) bool { return strings.HasPrefix(key, "public") }},
			"the private application is regenerated": {func(f family, c access.Caller) error {
				_, err := s.nodes[0].Regenerate(ctx, c, f.private.ID)
				return err
			}, false, func(key string) bool { return strings.HasPrefix(key, "private") }},
			"the private application is deleted": {func(f family, c access.Caller) error {
				return s.nodes[0].DeleteApplication(ctx, c, f.private.ID)
			}, false, func(key string) bool { return strings.HasPrefix(key, "private") }},
			"one of the keys that it could be is deleted": {func(f family, c access.Caller) error {
				return s.nodes[0].DeleteKey(ctx, c, f.private.ID, f.keys["private 1"].ID)
			}, false, func(string) bool { return false }},
			"the creating key is deleted, whose id the row has": {func(f family, c access.Caller) error {
				return s.nodes[0].DeleteKey(ctx, c, f.public.ID, f.keys["public 1"].ID)
			}, true, func(key string) bool { return key == "public 1" }},
		} {
			s.at(start)
			f := s.family(false)
			for _, x := range f.sessions {
				older(f.tenant, x.ID, test.columns)
			}
			s.check(f, func(string) bool { return false })
			if err := test.do(f, s.manager(f.tenant)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			s.check(f, test.dead)
			if t.Failed() {
				t.Fatalf("when %s", name)
			}
		}
	})
}

// entries is how many entries of changes there are in a tenant's log.
func (s *stage) entries(tenant string) (n int) {
	s.t.Helper()
	err := s.store.View(s.t.Context(), tenant, func(tx store.Tx) error {
		n = 0
		positions, err := tx.LogPositions(s.t.Context(), nil, 100_000)
		for _, at := range positions {
			e, readErr := tx.LogEntry(s.t.Context(), at)
			if err = errors.Join(err, readErr); e.Operation != "read" {
				n++
			}
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}
