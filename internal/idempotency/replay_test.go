package idempotency_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// ruled is the application, with a rule on all tokens.
func (w *world) ruled(transform access.Transform, permissions ...access.Permission) access.Caller {
	w.t.Helper()
	return accesstest.Application(w.t, w.tenant, app, access.Private, []access.Rule{accesstest.Rule("/", transform, permissions...)})
}

// token makes a token with an id.
func (w *world) token(body string) {
	w.t.Helper()
	v, err := jsonvalue.Parse([]byte(body))
	if err != nil {
		w.t.Fatal(err)
	}
	in, err := token.ParseRequest(v)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.tokens.Create(w.t.Context(), w.caller(app), in); err != nil {
		w.t.Fatalf("Create = %v", err)
	}
}

// deny fails unless err is a denial of a permission.
func deny(t *testing.T, call string, err error, p access.Permission) {
	t.Helper()
	var denial *access.Denial
	if !errors.As(err, &denial) || denial.Permission() != p || !errors.Is(err, fault.Forbidden) {
		t.Errorf("%s = %v, want a denial of %s", call, err, p)
	}
}

func TestAReplayTakesThePermissionOfItsRow(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		request := creating("key")
		request.Require = func(c access.Caller) error { return c.Require(access.ApplicationUpdate) }
		request.Entity = "application"
		manager := accesstest.Caller(t, w.tenant, app, access.ApplicationUpdate)
		if got := w.outcome(manager, request); got != "new" {
			t.Fatalf("the first request: %s", got)
		}
		lost := accesstest.Caller(t, w.tenant, app, access.ApplicationRead)
		answer, _, err := w.Begin(t.Context(), lost, request)
		deny(t, "Begin without the permission", err, access.ApplicationUpdate)
		if answer != nil || len(w.replays()) != 0 {
			t.Errorf("a refused replay has the answer %v, and the log %q", answer, w.replays())
		}
		if got := w.outcome(manager, request); got != "replayed  " {
			t.Errorf("with the permission: %q", got)
		}
	})
}

func TestAReplayTakesTheAccessOfThenOnEachToken(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		for _, id := range []string{"shown", "other", "deleted"} {
			w.token(`{"id":"` + id + `","type":"card_number","data":"4242424242424242"}`)
		}
		w.token(`{"id":"expiring","type":"token","data":1,"expires_at":"` + start.Add(time.Minute).Format(time.RFC3339) + `"}`)
		about := func(p access.Permission, transform access.Transform, ids ...string) (list []access.Shown) {
			for _, id := range ids {
				list = append(list, access.Shown{ID: id, Permission: p, Transform: transform})
			}
			return list
		}
		w.mustKeep(w.node, "created", response.Response{Status: 201, Tokens: about(access.TokenCreate, access.Mask, "shown", "deleted", "expiring")})
		w.mustKeep(w.node, "used", response.Response{Status: 200, Tokens: about(access.TokenUse, access.Reveal, "other", "shown")})
		w.mustKeep(w.node, "blind", response.Response{Status: 201, Tokens: about(access.TokenCreate, access.Nothing, "shown")})
		w.mustKeep(w.node, "none of it", response.Response{Status: 201, Tokens: about(access.TokenCreate, access.Mask, "never was", "4242 {{")})
		w.change(func(tx store.Tx) error { return tx.DeleteToken(t.Context(), "deleted") })
		w.clock.Advance(time.Minute)

		mask, redact, reveal := access.Mask, access.Redact, access.Reveal
		create, use := access.TokenCreate, access.TokenUse
		for _, test := range []struct {
			name    string
			c       access.Caller
			key     string
			refused access.Permission // 0 when it gets the answer
			tokens  string            // of the log entries
		}{
			{"as much", w.ruled(mask, create), "created", 0, "shown"},
			{"plainly", w.caller(app), "created", 0, "shown"},
			{"less", w.ruled(redact, create), "created", create, "shown"},
			{"nothing there", accesstest.Application(t, w.tenant, app, access.Private, []access.Rule{accesstest.Rule("/general/", mask, create)}), "created", create, "shown"},
			{"another permission", w.ruled(reveal, access.TokenRead, use), "created", create, ""},
			{"used, as much", w.ruled(reveal, create, use), "used", 0, "other shown"},
			{"used, masked now", w.ruled(mask, create, use), "used", use, "other"},
			{"used, and not any more", w.ruled(mask, create), "used", use, "other"},
			{"it showed nothing of it", accesstest.Application(t, w.tenant, app, access.Private, []access.Rule{accesstest.Rule("/general/", mask, create)}), "blind", 0, "shown"},
			{"none of the tokens is there", w.ruled(redact, create), "none of it", 0, "*"},
		} {
			before := w.replays()
			answer, a, err := w.Begin(t.Context(), test.c, creating(test.key))
			if a != nil {
				t.Fatalf("%s: there is an attempt", test.name)
			}
			var want []string
			if test.refused != 0 {
				deny(t, test.name+": Begin", err, test.refused)
				var denial *access.Denial
				var named []access.Entity
				if test.tokens != "" {
					named = []access.Entity{{Type: "card_number", ID: test.tokens}}
				}
				if !errors.As(err, &denial) || !slices.Equal(denial.Entities(), named) {
					t.Errorf("%s: the denial is about %v, want %v", test.name, denial.Entities(), named)
				}
			} else {
				if err != nil || answer == nil {
					t.Errorf("%s: Begin = %v, %v; want the answer", test.name, answer, err)
				}
				for _, id := range strings.Fields(test.tokens) {
					kind := "card_number"
					if id == "*" {
						kind = "token"
					}
					want = append(want, "allowed read "+kind+" "+id+" Token result replayed by "+app+" from ")
				}
			}
			got := w.replays()
			for _, e := range before {
				i := slices.Index(got, e)
				got = slices.Delete(got, i, i+1)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: the log has %q, want %q", test.name, got, want)
			}
		}
	})
}

func TestAReplayIsLoggedForWhatItIsAbout(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		w.token(`{"id":"one","type":"card_number","data":"4242424242424242"}`)
		twice := []access.Shown{{ID: "one", Permission: access.TokenCreate, Transform: access.Mask}, {ID: "one", Permission: access.TokenRead, Transform: access.Mask}}
		w.mustKeep(w.node, "named", response.Response{Status: 201, Entity: access.Entity{Type: "application", ID: "a-1"}})
		w.mustKeep(w.node, "not named", response.Response{Status: 201})
		w.mustKeep(w.node, "a token", response.Response{Status: 201, Tokens: twice, Entity: access.Entity{Type: "reactor", ID: "r-1"}})
		if got := w.replays(); len(got) != 0 {
			t.Errorf("first requests are in the log: %q", got)
		}
		from := w.caller(app).WithOrigin(access.Origin{TraceID: "trace", Address: "192.0.2.1"})
		var want []string
		for _, test := range [][2]string{
			{"named", "application a-1 Application"}, {"not named", "token * Token"}, {"a token", "card_number one Token"}, {"a token", "card_number one Token"},
		} {
			if answer, _, err := w.Begin(t.Context(), from, creating(test[0])); err != nil || answer == nil {
				t.Fatalf("Begin = %v, %v", answer, err)
			}
			want = append(want, "allowed read "+test[1]+" result replayed by "+app+" from 192.0.2.1")
		}
		slices.Sort(want)
		if got := w.replays(); !slices.Equal(got, want) {
			t.Errorf("the log has %q, want %q", got, want)
		}
	})
}

// The look after a conflict with another node decides and logs as well.
func TestTheOneThatWasSlowerNeedsTheAccessToo(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		w.token(`{"id":"one","type":"token","data":1}`)
		answer := response.Response{Status: 201, Tokens: []access.Shown{{ID: "one", Permission: access.TokenCreate, Transform: access.Mask}}}
		other := w.newNode()
		_, poor, err := other.Begin(t.Context(), w.ruled(access.Redact, access.TokenCreate), creating("key"))
		if err != nil {
			t.Fatal(err)
		}
		a, third := w.begin(w.node, "key"), w.begin(w.newNode(), "key")
		if err := w.keep(t.Context(), a, w.tenant, answer, nil); err != nil {
			t.Fatal(err)
		}
		got, err := poor.Find(t.Context())
		deny(t, "Find with less access", err, access.TokenCreate)
		if got != nil || len(w.replays()) != 0 {
			t.Errorf("a refused look has the answer %v and the log %q", got, w.replays())
		}
		if got, err := third.Find(t.Context()); err != nil || got == nil || len(w.replays()) != 1 {
			t.Errorf("Find = %v, %v, and the log %q; want the answer and one entry", got, err, w.replays())
		}
	})
}

// What is not in the log was not given out.
func TestAReplayThatCannotBeLoggedIsNone(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		w.token(`{"id":"one","type":"token","data":1}`)
		w.mustKeep(w.node, "key", response.Response{Status: 201, Tokens: []access.Shown{{ID: "one", Permission: access.TokenCreate, Transform: access.Mask}}})
		for _, broken := range []string{"Token", "AppendLog"} {
			w.store.breaks(broken)
			if got, err := w.find(w.node, "key"); got != nil || !errors.Is(err, errBroken) {
				t.Errorf("Begin without %s = %v, %v; want %v", broken, got, err, errBroken)
			}
			w.store.breaks("")
		}
		w.store.breaksWith("AppendLog", store.ErrNoTenant)
		if got, err := w.find(w.node, "key"); got != nil || !errors.Is(err, fault.NotFound) {
			t.Errorf("Begin while the tenant is deleted = %v, %v; want not found", got, err)
		}
		w.store.breaks("")
		if got, err := w.find(w.node, "key"); got == nil || err != nil {
			t.Errorf("Begin = %v, %v; want the answer", got, err)
		}
	})
}

// An answer whose access could never be checked again is not kept.
func TestWhatAnAnswerShowsMustHaveAPermission(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		a := w.begin(w.node, "key")
		defer w.release(a)
		err := w.keep(t.Context(), a, w.tenant, response.Response{Status: 201, Tokens: []access.Shown{{ID: "Planted-1", Transform: access.Mask}}}, nil)
		if err == nil || strings.Contains(err.Error(), "Planted") || len(w.parcels()) != 0 {
			t.Errorf("Keep = %v, and there are %d rows; want an error and none", err, len(w.parcels()))
		}
	})
}
