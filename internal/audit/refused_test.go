package audit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// pan stands where an id should: people paste card numbers there.
const pan = "4242424242424242"

// furnished is a tenant that has one of everything, under these ids.
func (w *world) furnished() (tenant string) {
	w.t.Helper()
	tenant = w.tenant()
	ctx, at := w.t.Context(), store.At(start)
	w.update(tenant, func(tx store.Tx) error {
		return errors.Join(
			tx.InsertToken(ctx, store.Token{ID: "card-1", Type: "card", Containers: []string{"/pci/high/"}, Data: make([]byte, 1<<20), CreatedAt: at, Version: 1}),
			tx.InsertApplication(ctx, store.Application{ID: "application-1", Type: "private", CreatedAt: at, Version: 1}),
			tx.InsertKey(ctx, store.Key{ID: "key-1", ApplicationID: "application-1", Hash: []byte("h"), CreatedAt: at, Version: 1}),
			tx.InsertSession(ctx, store.Session{ID: "session-1", KeyHash: []byte("k"), NonceHash: []byte("n"), CreatedAt: at, ExpiresAt: store.At(start.Add(time.Hour)), Version: 1}),
			tx.InsertSession(ctx, store.Session{ID: "session-2", KeyHash: []byte("l"), NonceHash: []byte("o"), CreatedAt: at, ExpiresAt: at, Version: 1}),
			tx.InsertDefinition(ctx, store.Definition{Kind: store.DefinitionReactor, ID: "reactor-1", Name: "x", CreatedAt: at, Version: 1}),
			tx.InsertDefinition(ctx, store.Definition{Kind: store.DefinitionProxy, ID: "proxy-1", Name: "x", CreatedAt: at, Version: 1}),
		)
	})
	return tenant
}

func TestARefusedAttemptIsLogged(t *testing.T) {
	about := func(p access.Permission, kind, id string) error {
		return access.About(refusal(p), access.Entity{Type: kind, ID: id})
	}
	wrongKey := access.Caller{}.RequireType(access.Public)
	use, update, read := access.TokenUse, access.ApplicationUpdate, access.ApplicationRead
	tests := map[string]struct {
		err                            error
		attempt                        audit.Attempt
		entity, id, operation, message string
	}{
		"a list of tokens": {refusal(access.TokenRead), audit.Attempt{}, "token", "*", "read", "Token read denied"},
		"a search":         {refusal(access.TokenSearch), audit.Attempt{}, "token", "*", "read", "Token search denied"},
		"the log":          {refusal(access.LogRead), audit.Attempt{}, "log", "*", "read", "Logs read denied"},
		"the tenant":       {refusal(access.TenantDelete), audit.Attempt{}, "tenant", "<tenant>", "delete", "Tenant delete denied"},
		"a report":         {refusal(access.ReportRead), audit.Attempt{}, "tenant", "<tenant>", "read", "Tenant read denied"},
		"any application":  {refusal(access.ApplicationDelete), audit.Attempt{}, "application", "*", "delete", "Application delete denied"},
		"the wrong key":    {wrongKey, audit.Attempt{}, "key", "*", "use", "Key use denied"},

		"a card that the denial names": {about(use, "card", "card-9"), audit.Attempt{}, "card", "card-9", "use", "Token use denied"},
		"a card that the denial names, in the path of a reactor": {about(use, "card", "card-9"),
			audit.Attempt{Entity: audit.Reactor, ID: "reactor-1", Permission: use, Operation: audit.Read}, "card", "card-9", "use", "Token use denied"},
		"a session that the denial names": {about(access.TokenRead, "session", "session-9"),
			audit.Attempt{Entity: audit.Session, Operation: audit.Update}, "session", "session-9", "update", "Session update denied"},
		"a session that is to be made, with the wrong key": {wrongKey, audit.Attempt{Entity: audit.Session, Operation: audit.Create},
			"session", "*", "create", "Session create denied"},

		"a token in the path": {refusal(access.TokenRead), audit.Attempt{Entity: audit.Token, ID: "card-1", Permission: access.TokenRead},
			"card", "card-1", "read", "Token read denied"},
		"a token in the path, for another permission on tokens": {refusal(access.TokenRead), audit.Attempt{Entity: audit.Token, ID: "card-1", Permission: access.TokenUpdate},
			"card", "card-1", "read", "Token read denied"},
		"no token in the path": {refusal(access.TokenRead), audit.Attempt{Entity: audit.Token, ID: pan, Permission: access.TokenRead},
			"token", "*", "read", "Token read denied"},

		"an application": {refusal(read), audit.Attempt{Entity: audit.Application, ID: "application-1", Permission: read},
			"application", "application-1", "read", "Application read denied"},
		"no application": {refusal(read), audit.Attempt{Entity: audit.Application, ID: pan, Permission: read}, "application", "*", "read", "Application read denied"},
		"a key": {refusal(update), audit.Attempt{Entity: audit.Key, ID: "key-1", Application: "application-1", Permission: update, Operation: audit.Delete},
			"key", "key-1", "delete", "Key delete denied"},
		"no key of an application": {refusal(update), audit.Attempt{Entity: audit.Key, ID: pan, Application: "application-1", Permission: update, Operation: audit.Delete},
			"application", "application-1", "update", "Application update denied"},
		"a key of another application": {refusal(update), audit.Attempt{Entity: audit.Key, ID: "key-1", Application: pan, Permission: update, Operation: audit.Delete},
			"key", "*", "delete", "Key delete denied"},

		"a session": {refusal(access.SessionDelete), audit.Attempt{Entity: audit.Session, ID: "session-1", Permission: access.SessionDelete},
			"session", "session-1", "delete", "Session delete denied"},
		"a session that has expired": {refusal(access.SessionDelete), audit.Attempt{Entity: audit.Session, ID: "session-2", Permission: access.SessionDelete},
			"session", "*", "delete", "Session delete denied"},
		"no session": {refusal(access.SessionDelete), audit.Attempt{Entity: audit.Session, ID: pan, Permission: access.SessionDelete},
			"session", "*", "delete", "Session delete denied"},

		"a reactor": {refusal(access.ReactorUpdate), audit.Attempt{Entity: audit.Reactor, ID: "reactor-1", Permission: access.ReactorUpdate},
			"reactor", "reactor-1", "update", "Reactor update denied"},
		"a reactor, of a caller that may use no tokens": {refusal(use), audit.Attempt{Entity: audit.Reactor, ID: "reactor-1", Permission: use},
			"reactor", "reactor-1", "use", "Reactor use denied"},
		"the result of a reactor": {refusal(use), audit.Attempt{Entity: audit.Reactor, ID: "reactor-1", Permission: use, Operation: audit.Read},
			"reactor", "reactor-1", "read", "Reactor read denied"},
		"what a reactor's code may not do": {refusal(access.TokenCreate), audit.Attempt{Entity: audit.Reactor, ID: "reactor-1", Permission: use},
			"token", "*", "create", "Token create denied"},
		"a proxy in the path of a reactor": {refusal(access.ReactorRead), audit.Attempt{Entity: audit.Reactor, ID: "proxy-1", Permission: access.ReactorRead},
			"reactor", "*", "read", "Reactor read denied"},
		"a proxy": {refusal(access.ProxyRead), audit.Attempt{Entity: audit.Proxy, ID: "proxy-1", Permission: access.ProxyRead},
			"proxy", "proxy-1", "read", "Proxy read denied"},
		"no proxy": {refusal(access.ProxyRead), audit.Attempt{Entity: audit.Proxy, ID: pan, Permission: access.ProxyRead}, "proxy", "*", "read", "Proxy read denied"},
	}
	const application = "6f1f3a52-6f0e-4a39-8a3c-52a0b7a3f003"
	w := newWorld(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tenant := w.furnished()
			c := accesstest.Session(t, tenant, application, "session-1", nil, access.TokenCreate).WithOrigin(access.Origin{TraceID: "t1", Address: "192.0.2.9"})
			audit.New(w.store, w.ring, w.options()).Refused(t.Context(), c, test.err, test.attempt)
			got := w.entries(tenant)
			if len(got) != 1 {
				t.Fatalf("%d entries, want 1", len(got))
			}
			e := got[0]
			e.ID = ""
			id := test.id
			if id == "<tenant>" {
				id = tenant
			}
			want := store.LogEntry{
				CreatedAt: store.At(start), ActorID: application, ActorType: "application", SessionID: "session-1",
				EntityType: test.entity, EntityID: id, Operation: test.operation, Outcome: "denied", Message: test.message,
				TraceID: "t1", ClientAddress: "192.0.2.9",
			}
			if e != want {
				t.Errorf("the entry is %+v, want %+v", e, want)
			}
		})
	}
}

func TestAnEntityOfAnotherTenantIsNotNamed(t *testing.T) {
	w := newWorld(t)
	w.furnished()
	tenant := w.tenant()
	for kind, id := range map[string]string{
		audit.Token: "card-1", audit.Application: "application-1", audit.Key: "key-1", audit.Session: "session-1", audit.Reactor: "reactor-1", audit.Proxy: "proxy-1",
	} {
		w.service.Refused(t.Context(), accesstest.Caller(t, tenant, kind), refusal(access.TokenUse),
			audit.Attempt{Entity: kind, ID: id, Application: "application-1", Permission: access.TokenUse})
	}
	entries := w.entries(tenant)
	for _, e := range entries {
		if e.EntityID != "*" || e.EntityType != e.ActorID {
			t.Errorf("a refused attempt at the %s of another tenant is logged as one at %s %s", e.ActorID, e.EntityType, e.EntityID)
		}
	}
	if len(entries) != 6 {
		t.Errorf("%d entries, want 6", len(entries))
	}
}

func TestEveryEntityOfADenialHasAnEntry(t *testing.T) {
	w := newWorld(t)
	r := prometheus.NewRegistry()
	o := w.options()
	o.Metrics = r
	s := audit.New(w.store, w.ring, o)
	tenant := w.tenant()
	c := accesstest.Caller(t, tenant, application)
	refuse := func(first, n int) {
		var all *access.Denial
		for i := first; i < first+n; i++ {
			var next *access.Denial
			if !errors.As(access.About(c.Require(access.TokenUse, "/"), access.Entity{Type: "card", ID: fmt.Sprintf("card-%02d", i)}), &next) {
				t.Fatal("no denial")
			}
			all = all.And(next)
		}
		s.Refused(t.Context(), c, all, audit.Attempt{})
	}
	refuse(0, 3)
	refuse(3, audit.RefusedBurst)
	refuse(40, 2)
	var got, want []string
	for _, e := range w.entries(tenant) {
		got = append(got, e.Message+" "+e.EntityType+" "+e.EntityID)
	}
	for i := range audit.RefusedBurst {
		want = append(want, fmt.Sprintf("Token use denied card card-%02d", i))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the log has %v, want %v", got, want)
	}
	if written, suppressed := refused(t, r, "written"), refused(t, r, "suppressed"); written != audit.RefusedBurst || suppressed != 3+2 {
		t.Errorf("%v entries are counted as written and %v as suppressed, want %d and 5", written, suppressed, audit.RefusedBurst)
	}
}

// calls returns the calls to the store that the entry of a refusal takes, by
// letting one after the other fail.
func (w *world) calls(tenant string, a audit.Attempt) (names []string) {
	w.t.Helper()
	failing := storetest.NewFailing(w.store, func(context.Context) bool { return true })
	for n := 1; ; n++ {
		failing.FailAt(n, errors.New("a test says so"))
		audit.New(failing, w.ring, w.options()).Refused(w.t.Context(), accesstest.Caller(w.t, tenant, fmt.Sprint(n)), refusal(a.Permission), a)
		name := failing.Rest()
		if name == "" {
			return names
		}
		names = append(names, name)
	}
}

// A refused caller must not learn from the response time whether an id exists.
func TestTheLookUpIsTheSameWhetherTheEntityExistsOrNot(t *testing.T) {
	w := newWorld(t)
	tenant := w.furnished()
	for kind, id := range map[string]string{
		audit.Token: "card-1", audit.Application: "application-1", audit.Key: "key-1", audit.Session: "session-1", audit.Reactor: "reactor-1", audit.Proxy: "proxy-1",
	} {
		a := audit.Attempt{Entity: kind, ID: id, Application: "application-1", Permission: access.TokenUse}
		there := w.calls(tenant, a)
		a.ID = pan
		if missing := w.calls(tenant, a); !slices.Equal(there, missing) || len(there) < 4 || slices.Contains(there, "Token") {
			t.Errorf("%s: the store is asked %v, and for an id of nothing %v", kind, there, missing)
		}
		a.Application = pan
		if missing := w.calls(tenant, a); !slices.Equal(there, missing) {
			t.Errorf("%s: the store is asked %v, and for an application of nothing %v", kind, there, missing)
		}
	}
}
