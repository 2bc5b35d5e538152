package directory_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

var (
	publicApplication = directory.NewApplication{Name: "browser", Type: "public", Permissions: []string{"token:create"}}
	weakMaker         = directory.NewApplication{
		Name: "weak", Type: "private", Rules: []access.Rule{accesstest.Rule("/pci/", access.Mask, access.TokenRead)},
	}
	strongMaker = directory.NewApplication{
		Name: "strong", Type: "private", Rules: []access.Rule{accesstest.Rule("/", access.Reveal, access.TokenRead, access.TokenUse)},
	}
	masks   = directory.Authorization{Rules: weakMaker.Rules}
	reveals = directory.Authorization{Rules: strongMaker.Rules}
)

// cast is a tenant with its sessions.
type cast struct {
	tenant                        string
	public, public2, weak, strong directory.Application
	// The sessions: one of little worth, one of much, one that waits.
	victim, rich, waiting directory.Session
}

func (s *stage) cast() (c cast) {
	s.t.Helper()
	tenant, made := s.tenant(publicApplication, publicApplication, weakMaker, strongMaker)
	c = cast{tenant: tenant, public: made[0], public2: made[1], weak: made[2], strong: made[3]}
	long := reveals
	long.ExpiresAt = start.Add(time.Hour)
	c.victim, c.rich, c.waiting = s.session(c.public, &c.weak, masks), s.session(c.public2, &c.strong, long), s.session(c.public, nil, masks)
	return c
}

// powers is what all that was handed out can do, at some instants.
type powers struct {
	shows       map[string]map[string]access.Transform
	authorizes  map[string]bool
	exceedMaker bool
}

// powersOf tries every key and every nonce. It uses nonces up.
func (s *stage) powersOf(c cast) (p powers) {
	s.t.Helper()
	defer s.at(s.clock.Now())
	p.shows, p.authorizes = map[string]map[string]access.Transform{}, map[string]bool{}
	for _, after := range []time.Duration{0, 3 * time.Minute, time.Hour - time.Microsecond, time.Hour} {
		s.at(start.Add(after))
		for name, x := range map[string]directory.Session{"victim": c.victim, "rich": c.rich, "waiting": c.waiting} {
			p.shows[fmt.Sprint(name, " after ", after)] = s.shows(s.nodes[0], x.Key)
		}
	}
	s.at(start)
	for name, x := range map[string]directory.Session{"victim": c.victim, "rich": c.rich, "waiting": c.waiting} {
		for maker, with := range map[string]directory.Authorization{"weak": masks, "strong": reveals, "weak with more": reveals} {
			key := c.strong.Key
			if strings.HasPrefix(maker, "weak") {
				key = c.weak.Key
			}
			with.Nonce = x.Nonce
			_, err := s.nodes[0].AuthorizeSession(s.t.Context(), s.as(key), with)
			p.authorizes[name] = p.authorizes[name] || err == nil
			p.exceedMaker = p.exceedMaker || err == nil && maker == "weak with more"
		}
	}
	return p
}

// Whoever can write to the database, and has the key of a session or of an
// application of little worth, must not make it worth more.
func TestASessionChangedByHandIsWorthNoMore(t *testing.T) {
	storetest.Long(t)
	onStages(t, func(t *testing.T, s *stage) {
		reference, other := s.cast(), s.cast()
		want := s.powersOf(reference)
		if len(want.shows["victim after 0s"]) == 0 || want.shows["waiting after 0s"] != nil || want.shows["victim after 3m0s"] != nil ||
			len(want.shows["rich after 59m59.999999s"]) == 0 || want.shows["rich after 1h0m0s"] != nil || !want.authorizes["waiting"] || want.authorizes["victim"] {
			t.Fatalf("without a change: %+v", want)
		}

		tested := map[string]bool{"row_id": true} // where the row lies in the file
		for _, test := range []struct {
			column, change string
			statements     []string // V, R, W, O: the ids of the victim, the rich, the waiting, another tenant's
			damaged        bool     // the victim's key opens nothing
		}{
			{"id", "a new one", []string{"UPDATE sessions SET id = 'ffffffff-0000-4000-8000-@' WHERE id = 'V'"}, true},
			{"tenant_id", "another tenant's", []string{"UPDATE sessions SET tenant_id = (SELECT tenant_id FROM sessions WHERE id = 'O') WHERE id = 'V'"}, true},
			{"key_hash", "the key of the weak for the rich", []string{
				"UPDATE sessions SET tenant_id = (SELECT tenant_id FROM sessions WHERE id = 'O') WHERE id = 'V'",
				"UPDATE sessions SET key_hash = (SELECT key_hash FROM sessions WHERE id = 'V') WHERE id = 'R'"}, true},
			{"key_hash", "the nonce for the key", []string{"UPDATE sessions SET key_hash = nonce_hash WHERE id = 'V'"}, true},
			{"key_hash", "of the one that waits", []string{
				"UPDATE sessions SET tenant_id = (SELECT tenant_id FROM sessions WHERE id = 'O') WHERE id = 'W'",
				"UPDATE sessions SET key_hash = (SELECT key_hash FROM sessions WHERE id = 'W') WHERE id = 'R'"}, false},
			{"nonce_hash", "of the one that waits", []string{
				"UPDATE sessions SET tenant_id = (SELECT tenant_id FROM sessions WHERE id = 'O') WHERE id = 'W'",
				"UPDATE sessions SET nonce_hash = (SELECT nonce_hash FROM sessions WHERE id = 'W') WHERE id = 'V'"}, true},
			{"nonce_hash", "a used one for the one that waits", []string{
				"UPDATE sessions SET tenant_id = (SELECT tenant_id FROM sessions WHERE id = 'O') WHERE id = 'V'",
				"UPDATE sessions SET nonce_hash = (SELECT nonce_hash FROM sessions WHERE id = 'V') WHERE id = 'W'"}, true},
			{"prefix", "another", []string{"UPDATE sessions SET prefix = 'x' WHERE id = 'V'"}, false},
			{"sealed_grant", "of the rich", []string{"UPDATE sessions SET sealed_grant = (SELECT sealed_grant FROM sessions WHERE id = 'R') WHERE id = 'V'"}, true},
			{"sealed_grant", "all of the rich", []string{"UPDATE sessions SET (sealed_grant, authorized_by, created_by, expires_at) = " +
				"(SELECT sealed_grant, authorized_by, created_by, expires_at FROM sessions WHERE id = 'R') WHERE id = 'V'"}, true},
			{"sealed_grant", "of another tenant", []string{"UPDATE sessions SET sealed_grant = (SELECT sealed_grant FROM sessions WHERE id = 'O') WHERE id = 'V'"}, true},
			{"sealed_grant", "the rules of an application", []string{"UPDATE sessions SET sealed_grant = (SELECT rules FROM applications WHERE id = 'S') WHERE id = 'V'"}, true},
			{"sealed_grant", "a byte", []string{"UPDATE sessions SET sealed_grant = FLIP WHERE id = 'V'"}, true},
			{"sealed_grant", "none", []string{"UPDATE sessions SET sealed_grant = NULL WHERE id = 'V'"}, true},
			{"sealed_grant", "the one that waits as authorized", []string{"UPDATE sessions SET (sealed_grant, authorized_by, expires_at) = " +
				"(SELECT sealed_grant, authorized_by, expires_at FROM sessions WHERE id = 'V') WHERE id = 'W'"}, false},
			{"created_key_id", "another", []string{"UPDATE sessions SET created_key_id = (SELECT created_key_id FROM sessions WHERE id = 'R') WHERE id = 'V'"}, true},
			{"created_key_id", "none", []string{"UPDATE sessions SET created_key_id = '' WHERE id = 'V'"}, true},
			{"authorized_key_id", "another", []string{"UPDATE sessions SET authorized_key_id = (SELECT authorized_key_id FROM sessions WHERE id = 'R') WHERE id = 'V'"}, true},
			{"authorized_key_id", "none", []string{"UPDATE sessions SET authorized_key_id = '' WHERE id = 'V'"}, true},
			{"created_by", "another", []string{"UPDATE sessions SET created_by = (SELECT created_by FROM sessions WHERE id = 'R') WHERE id = 'V'"}, true},
			{"created_at", "later", []string{"UPDATE sessions SET created_at = created_at + 1000000 WHERE id = 'V'"}, false},
			{"authorized_by", "the strong one", []string{"UPDATE sessions SET authorized_by = 'S' WHERE id = 'V'"}, true},
			{"authorized_by", "nobody again", []string{"UPDATE sessions SET authorized_by = '' WHERE id = 'V'"}, true},
			{"authorized_by", "by hand", []string{"UPDATE sessions SET authorized_by = 'S', authorized_at = created_at WHERE id = 'W'"}, false},
			{"authorized_at", "later", []string{"UPDATE sessions SET authorized_at = authorized_at + 1000000 WHERE id = 'V'"}, false},
			{"expires_at", "later", []string{"UPDATE sessions SET expires_at = expires_at + 1000000 WHERE id = 'V'"}, true},
			{"expires_at", "never", []string{"UPDATE sessions SET expires_at = 9000000000000000000 WHERE id = 'V'"}, true},
			{"version", "another", []string{"UPDATE sessions SET version = version + 1 WHERE id = 'V'"}, false},
			{"version", "an older one", []string{"UPDATE sessions SET version = 1 WHERE id = 'V'"}, false},
			{"settings", "no cap", []string{`UPDATE tenants SET settings = '{"uncapped_sessions":"true"}' WHERE tenant_id = (SELECT tenant_id FROM sessions WHERE id = 'V')`}, false},
		} {
			tested[test.column] = true
			name := test.column + ": " + test.change
			c := s.cast()
			names := strings.NewReplacer("'V'", "'"+c.victim.ID+"'", "'R'", "'"+c.rich.ID+"'", "'W'", "'"+c.waiting.ID+"'", "'O'", "'"+other.rich.ID+"'",
				"'S'", "'"+c.strong.ID+"'", "@", c.victim.ID[24:], "FLIP", s.flip)
			for _, text := range test.statements {
				if n, _ := s.behind(names.Replace(text)); n != 1 {
					t.Fatalf("%s changed %d rows, want 1", name, n)
				}
			}
			_, err := s.nodes[0].Authenticate(t.Context(), c.victim.Key)
			if refused := errors.Is(err, keyring.ErrDamaged) || errors.Is(err, fault.Unauthenticated); refused != test.damaged || err != nil && !refused {
				t.Errorf("%s: Authenticate = %v, want a refusal: %t", name, err, test.damaged)
			}
			got := s.powersOf(c)
			for when, shows := range got.shows {
				before := map[string]access.Transform{}
				for place, transform := range want.shows[when] { // of the same tenant
					before[strings.Replace(place, reference.tenant, c.tenant, 1)] = transform
				}
				if places := wider(shows, before); len(places) > 0 {
					t.Errorf("%s: the %s may do more: %v", name, when, places)
				}
			}
			for session, may := range got.authorizes {
				if may && !want.authorizes[session] {
					t.Errorf("%s: the %s session can be authorized", name, session)
				}
			}
			if got.exceedMaker {
				t.Errorf("%s: an application gave away more than it has", name)
			}
		}
		query := "SELECT name FROM pragma_table_info('sessions')"
		if strings.Contains(t.Name(), "postgres") {
			query = "SELECT column_name::text FROM information_schema.columns WHERE table_schema = 'tokenkeep' AND table_name = 'sessions'"
		}
		_, columns := s.behind(query)
		if len(columns) < 14 {
			t.Fatalf("the columns are %v", columns)
		}
		for _, column := range columns {
			if !tested[column] {
				t.Errorf("nobody has tried to change the column %s", column)
			}
		}
	})
}

func TestTheCapIsLiftedByTheTenantAlone(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		c := s.cast()
		more := reveals
		more.Nonce = c.waiting.Nonce
		weak := s.as(c.weak.Key)
		if _, err := s.nodes[0].AuthorizeSession(t.Context(), weak, more); !errors.Is(err, fault.Forbidden) {
			t.Fatalf("AuthorizeSession with more = %v, want a refusal", err)
		}
		choose := func(value string) {
			if _, err := s.nodes[0].ReplaceTenant(t.Context(), s.manager(c.tenant), "Tenant", map[string]string{"uncapped_sessions": value}); err != nil {
				t.Fatal(err)
			}
		}
		choose("true")
		if _, err := s.nodes[0].RotateCallbackSecret(t.Context(), s.manager(c.tenant)); err != nil {
			t.Fatal(err) // it is sealed beside the choice
		}
		if _, err := s.nodes[0].AuthorizeSession(t.Context(), weak, more); err != nil {
			t.Fatalf("AuthorizeSession without the cap = %v: a refused try used the nonce up, or the choice was lost", err)
		}
		for _, step := range []struct {
			value string
			want  access.Transform
		}{{"true", access.Reveal}, {"false", access.Nothing}, {"true", access.Reveal}} {
			choose(step.value)
			if got := s.as(c.waiting.Key).Decide(access.TokenRead, access.Target{ID: "x", Containers: []string{"/"}}).Transform; got != step.want {
				t.Errorf("with uncapped_sessions %s it reads with %s, want %s", step.value, got, step.want)
			}
		}
		choose("false")
		s.behind(fmt.Sprintf(`UPDATE tenants SET settings = '{"uncapped_sessions":"true"}' WHERE tenant_id = (SELECT tenant_id FROM sessions WHERE id = '%s')`, c.waiting.ID))
		if got := s.shows(s.nodes[0], c.waiting.Key); len(wider(got, nil)) != 1*2*2 { // what the weak one masks below /pci/
			t.Errorf("lifted by hand, it may do %v", wider(got, nil))
		}
	})
}

func TestASessionIsWorthWhatItsMakerIsNow(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		tenant, made := s.tenant(publicApplication, strongMaker)
		maker := made[1]
		session := s.session(made[0], &maker, directory.Authorization{Rules: strongMaker.Rules, ExpiresAt: start.Add(20 * time.Hour)})
		s.addNode()
		manager := s.manager(tenant)
		all := func() (got []access.Transform) {
			for _, n := range s.nodes {
				for range 2 { // the second time from memory
					c, err := n.Authenticate(t.Context(), session.Key)
					if err != nil {
						t.Fatalf("Authenticate = %v", err)
					}
					got = append(got, c.Decide(access.TokenRead, access.Target{ID: "x", Containers: []string{"/"}}).Transform)
				}
			}
			return slices.Compact(got)
		}
		expires := start.Add(2 * time.Hour)
		for _, want := range []access.Transform{access.Reveal, access.Redact, access.Mask, access.Reveal} {
			in := strongMaker
			in.Rules, in.ExpiresAt = []access.Rule{accesstest.Rule("/", want, access.TokenRead)}, expires
			if _, err := s.nodes[0].ReplaceApplication(t.Context(), manager, maker.ID, in); err != nil {
				t.Fatal(err)
			}
			if got := all(); len(got) != 1 || got[0] != want {
				t.Errorf("with a maker that may %s, the session may %v", want, got)
			}
		}
	})
}

func TestSessionsOfADeletedApplicationDie(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		c := s.cast()
		s.addNode()
		if err := s.nodes[0].DeleteApplication(t.Context(), s.manager(c.tenant), c.public.ID); err != nil {
			t.Fatal(err)
		}
		for i, n := range s.nodes {
			for name, x := range map[string]directory.Session{"authorized": c.victim, "waiting": c.waiting} {
				if got, err := n.Authenticate(t.Context(), x.Key); !errors.Is(err, fault.Unauthenticated) || got.Tenant() != "" {
					t.Errorf("node %d: the key of the %s session = %v, want a refusal", i, name, err)
				}
			}
			if s.shows(n, c.rich.Key) == nil {
				t.Errorf("node %d: the session of another application died too", i)
			}
		}
	})
}

func TestASessionEndsWhenItIsDeletedOrExpires(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		c, other := s.cast(), s.cast()
		s.addNode()
		manager := s.manager(c.tenant)
		if err := s.nodes[0].DeleteSession(t.Context(), s.manager(other.tenant), c.victim.ID); !errors.Is(err, fault.NotFound) {
			t.Errorf("DeleteSession from another tenant = %v, want not found", err)
		}
		if err := s.nodes[0].DeleteSession(t.Context(), manager, c.victim.ID); err != nil {
			t.Fatal(err)
		}
		if err := s.nodes[1].DeleteSession(t.Context(), manager, c.victim.ID); !errors.Is(err, fault.NotFound) {
			t.Errorf("DeleteSession of one that is gone = %v, want not found", err)
		}
		for i, n := range s.nodes {
			if _, err := n.Authenticate(t.Context(), c.victim.Key); !errors.Is(err, fault.Unauthenticated) {
				t.Errorf("node %d: a deleted session = %v, want a refusal", i, err)
			}
		}
		for _, step := range []struct {
			after time.Duration
			live  bool
		}{{time.Hour - time.Microsecond, true}, {time.Hour, false}} {
			s.at(start.Add(step.after))
			for i, n := range s.nodes {
				_, err := n.Authenticate(t.Context(), c.rich.Key)
				if step.live != (err == nil) || !step.live && !errors.Is(err, fault.Unauthenticated) {
					t.Errorf("node %d, after %s: Authenticate = %v, want it to open: %t", i, step.after, err, step.live)
				}
				list, total, err := n.Sessions(t.Context(), manager, store.Page{Limit: 10})
				if want := map[bool]int{true: 1, false: 0}[step.live]; len(list) != want || total != int64(want) || err != nil {
					t.Errorf("node %d, after %s: %d sessions of %d, %v; want %d", i, step.after, len(list), total, err, want)
				}
			}
		}
		if err := s.nodes[0].DeleteSession(t.Context(), manager, c.rich.ID); !errors.Is(err, fault.NotFound) {
			t.Errorf("DeleteSession of one that has expired = %v, want not found", err)
		}
	})
}

func TestExpiredSessionsAreSweptOnceWhoeverSweeps(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		const each = 130 // more than one transaction removes
		var tenants []string
		var kept []directory.Session
		for range 2 {
			tenant, made := s.tenant(publicApplication, strongMaker)
			tenants = append(tenants, tenant)
			c := s.as(made[0].Key)
			for range each {
				if _, err := s.nodes[0].CreateSession(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			kept = append(kept, s.session(made[0], &made[1], directory.Authorization{Permissions: []string{"token:use"}, ExpiresAt: start.Add(time.Hour)}))
		}
		s.addNode()
		for _, n := range s.nodes {
			if removed, err := n.SweepSessions(t.Context()); removed != 0 || err != nil {
				t.Fatalf("SweepSessions before they expire = %d, %v", removed, err)
			}
		}
		s.at(start.Add(3 * time.Minute))
		var removed atomic.Int64
		var wg sync.WaitGroup
		for _, n := range s.nodes {
			wg.Go(func() {
				got, err := n.SweepSessions(t.Context())
				if err != nil {
					t.Errorf("SweepSessions = %v", err)
				}
				removed.Add(int64(got))
			})
		}
		wg.Wait()
		if removed.Load() != 2*each {
			t.Errorf("%d sessions were removed, want %d", removed.Load(), 2*each)
		}
		for i, tenant := range tenants {
			expired := map[string]int{}
			var left int
			err := s.store.View(t.Context(), tenant, func(tx store.Tx) error {
				rows, err := tx.Sessions(t.Context(), store.SessionFilter{Now: -1 << 62}, store.Page{Limit: 1000})
				if left = len(rows); err != nil {
					return err
				}
				positions, err := tx.LogPositions(t.Context(), nil, 100_000)
				for _, at := range positions {
					e, readErr := tx.LogEntry(t.Context(), at)
					if err = errors.Join(err, readErr); e.Message == "Session expired" && e.EntityType == "session" && e.ActorType == "system" && e.Operation == "delete" {
						expired[e.EntityID]++
					}
				}
				return err
			})
			if err != nil || left != 1 || len(expired) != each || slices.Max(slices.Collect(maps.Values(expired))) != 1 {
				t.Errorf("tenant %d: %d sessions are left and %d entries tell of others, %v; want 1 and %d, each once", i, left, len(expired), err, each)
			}
			if s.shows(s.nodes[0], kept[i].Key) == nil {
				t.Errorf("tenant %d: a live session was swept", i)
			}
		}
	})
}

func TestOneOfManyAuthorizationsOfANonceCounts(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		_, made := s.tenant(publicApplication, strongMaker)
		nodes := []*directory.Service{s.nodes[0], s.addNode()}
		c := s.as(made[1].Key)
		for range 5 {
			waiting := s.session(made[0], nil, directory.Authorization{})
			var authorized, used atomic.Int64
			var begin, done sync.WaitGroup
			begin.Add(1)
			for i := range 20 {
				done.Go(func() {
					begin.Wait()
					switch _, err := nodes[i%2].AuthorizeSession(t.Context(), c, directory.Authorization{Nonce: waiting.Nonce, Permissions: []string{"token:use"}}); {
					case err == nil:
						authorized.Add(1)
					case errors.Is(err, fault.Conflict) && fault.Of(err).Detail() == "the nonce was used already":
						used.Add(1)
					default:
						t.Errorf("AuthorizeSession = %v", err)
					}
				})
			}
			begin.Done()
			done.Wait()
			if authorized.Load() != 1 || used.Load() != 19 {
				t.Errorf("%d authorizations counted and %d were refused, want 1 and 19", authorized.Load(), used.Load())
			}
		}
	})
}

// Making a session takes a public key and authorizing it a private one; what
// goes wrong on the way uses no nonce up and leaves nothing.
func TestWhoMakesAndWhoAuthorizesASession(t *testing.T) {
	w := newWorld(t)
	tenant, manager := w.tenant()
	other, _ := w.tenant()
	key := func(tenant string, in directory.NewApplication) access.Caller {
		c, err := w.Authenticate(t.Context(), w.application(tenant, in).Key)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	managing, err := w.Authenticate(t.Context(), manager.Key)
	if err != nil {
		t.Fatal(err)
	}
	public, strong, stranger := key(tenant, publicApplication), key(tenant, strongMaker), key(other, strongMaker)
	made, err := w.CreateSession(t.Context(), public)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := w.Authenticate(t.Context(), made.Key); !errors.Is(err, fault.Forbidden) || c.Tenant() != "" {
		t.Errorf("a session that waits = %v, want a refusal", err)
	}
	good := directory.Authorization{Nonce: made.Nonce, Permissions: []string{"token:use"}}
	with := func(change func(*directory.Authorization)) directory.Authorization {
		in := good
		change(&in)
		return in
	}
	session := accesstest.Session(t, tenant, "a", "s", nil, access.TokenUse)
	step := errors.New("the last step fails")
	before := w.rows(tenant)
	entries := w.since(tenant, func() {
		for name, c := range map[string]access.Caller{"a private key": strong, "a management key": managing, "a session": session, "nobody": {}} {
			if _, err := w.CreateSession(t.Context(), c); !errors.Is(err, fault.Forbidden) {
				t.Errorf("CreateSession with %s = %v, want a refusal", name, err)
			}
		}
		if _, err := w.CreateSession(t.Context(), public, failing[directory.Session](step)); !errors.Is(err, step) {
			t.Errorf("CreateSession with a failing step = %v", err)
		}
		for name, test := range map[string]struct {
			c    access.Caller
			in   directory.Authorization
			want error
		}{
			"a public key":          {public, good, fault.Forbidden},
			"a management key":      {managing, good, fault.Forbidden},
			"a session":             {session, good, fault.Forbidden},
			"nobody":                {access.Caller{}, good, fault.Forbidden},
			"another tenant":        {stranger, good, fault.NotFound},
			"the key for the nonce": {strong, with(func(in *directory.Authorization) { in.Nonce = made.Key }), fault.NotFound},
			"no nonce":              {strong, with(func(in *directory.Authorization) { in.Nonce = directory.Session{}.Nonce }), fault.Invalid},
			"nothing granted":       {strong, directory.Authorization{Nonce: made.Nonce}, fault.Invalid},
			"a past expiry":         {strong, with(func(in *directory.Authorization) { in.ExpiresAt = w.clock.Now() }), fault.Invalid},
			"a day and a bit":       {strong, with(func(in *directory.Authorization) { in.ExpiresAt = w.clock.Now().Add(24*time.Hour + 1) }), fault.Invalid},
			"more than it has":      {strong, with(func(in *directory.Authorization) { in.Permissions = []string{"token:delete"} }), fault.Forbidden},
		} {
			if _, err := w.AuthorizeSession(t.Context(), test.c, test.in); !errors.Is(err, test.want) {
				t.Errorf("AuthorizeSession with %s = %v, want %v", name, err, test.want)
			}
		}
		if _, err := w.AuthorizeSession(t.Context(), strong, good, failing[directory.Session](step)); !errors.Is(err, step) {
			t.Errorf("AuthorizeSession with a failing step = %v", err)
		}
		w.store.logBroken = true
		if _, err := w.AuthorizeSession(t.Context(), strong, good); !errors.Is(err, errBroken) {
			t.Errorf("AuthorizeSession without its entry = %v", err)
		}
		w.store.mend()
	})
	if got := w.rows(tenant); len(entries) != 0 || !reflect.DeepEqual(got, before) {
		t.Errorf("they left %d entries and rows\n%+v, were\n%+v", len(entries), got.Sessions, before.Sessions)
	}
	entries = w.since(tenant, func() {
		if _, err := w.AuthorizeSession(t.Context(), strong, good); err != nil {
			t.Fatalf("AuthorizeSession = %v", err)
		}
		if _, err := w.AuthorizeSession(t.Context(), strong, good); !errors.Is(err, fault.Conflict) {
			t.Errorf("AuthorizeSession once more = %v, want a conflict", err)
		}
	})
	if len(entries) != 1 || entries[0].EntityID != made.ID || entries[0].Message != "Session updated by authorization" {
		t.Errorf("the entries are %+v", entries)
	}
	w.clock.Advance(3 * time.Minute)
	if _, err := w.AuthorizeSession(t.Context(), strong, good); !errors.Is(err, fault.NotFound) {
		t.Errorf("AuthorizeSession after it has expired = %v, want not found", err)
	}
}

// What a sweep cannot tell in the log, it does not remove.
func TestASweepThatFailsIsToldAndTriedAgain(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	c, err := w.Authenticate(t.Context(), w.application(tenant, publicApplication).Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.CreateSession(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(3 * time.Minute)
	w.store.logBroken = true
	if n, err := w.SweepSessions(t.Context()); n != 0 || !errors.Is(err, errBroken) {
		t.Errorf("SweepSessions without entries = %d, %v", n, err)
	}
	w.store.mend()
	if n, err := w.SweepSessions(t.Context()); n != 1 || err != nil {
		t.Errorf("SweepSessions = %d, %v; want 1", n, err)
	}
}
