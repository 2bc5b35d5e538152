// Package clock_test lets the clock of a whole server jump, between requests
// and during them: nothing is lost that has not expired, nothing that has ended
// comes back to life, and the log stays one chain.
package clock_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/clock"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// jumps are how far a clock moves by itself.
var jumps = []time.Duration{-year, -30 * day, -day, -time.Hour, -time.Minute, time.Minute, time.Hour, day, 30 * day, year, 10 * year}

var start = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)

// world is a server with a tenant, and a clock.
type world struct {
	*keeptest.Server
	t                           *testing.T
	clock                       *clocktest.Clock
	tenant                      string
	management, private, public string // keys
}

func newWorld(t *testing.T, now func() time.Time) *world {
	t.Helper()
	k := keeptest.Start(t, keeptest.Options{Alone: true, Now: now}) // each node drops keys from its own memory, when it sweeps
	made := k.Tenant(t)
	w := &world{Server: k, t: t, tenant: made.Tenant.ID, management: made.Application.Key}
	w.private = k.Application(t, w.tenant, api.CreateApplication{
		Type: "private", Permissions: []string{"token:create", "token:update", "token:use"},
		Rules: []api.Rule{{Container: "/", Transform: "reveal", Permissions: []string{"token:read"}}},
	}).Key
	w.public = k.Application(t, w.tenant, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key
	return w
}

// onJumpyClock is a world whose server believes every jump at once.
func onJumpyClock(t *testing.T) *world {
	c := clocktest.New(start)
	w := newWorld(t, c.Now)
	w.clock = c
	return w
}

// keep makes a token that expires so long from now, or never when that is 0,
// and returns its path.
func (w *world) keep(data string, expires time.Duration, headers ...string) string {
	w.t.Helper()
	body := `{"type":"token","data":"` + data + `"}`
	if expires > 0 {
		body = fmt.Sprintf(`{"type":"token","data":%q,"expires_at":%q}`, data, w.clock.Now().Add(expires).Format(time.RFC3339))
	}
	return w.create(body, headers...)
}

func (w *world) create(body string, headers ...string) string {
	w.t.Helper()
	var made api.Token
	w.Call(w.t, "POST", "/tokens", w.private, body, headers...).Into(w.t, 201, &made)
	return "/tokens/" + made.ID
}

// shows fails unless a token is there with that data, or is not there when
// that is empty.
func (w *world) shows(name, path, data string) {
	w.t.Helper()
	got := w.Call(w.t, "GET", path, w.private, "")
	if data == "" {
		if got.Status != 404 {
			w.t.Errorf("%s: %s, want 404", name, got)
		}
		return
	}
	var token api.Token
	if got.Status != 200 || json.Unmarshal([]byte(got.Body), &token) != nil || string(token.Data) != data {
		w.t.Errorf("%s: %s, want the data %s", name, got, data)
	}
}

// sweep does the chores that remove what is due.
func (w *world) sweep() (swept admin.Swept) {
	w.t.Helper()
	if err := w.Operator().Call(w.t.Context(), http.MethodPost, "/sweep", nil, &swept); err != nil {
		w.t.Errorf("sweep: %v", err)
	}
	return swept
}

// seal seals the log and fails when it does not verify.
func (w *world) seal(name string) {
	w.t.Helper()
	quiet := func(admin.Progress) error { return nil }
	if _, err := w.Operator().Follow(w.t.Context(), http.MethodPost, "/tenants/"+w.tenant+"/audit/checkpoint", nil, quiet); err != nil {
		w.t.Errorf("%s: seal the log: %v", name, err)
	}
	last, err := w.Operator().Follow(w.t.Context(), http.MethodPost, "/tenants/"+w.tenant+"/audit/verify", admin.VerifyLog{}, quiet)
	var found audit.Verification
	if err != nil || json.Unmarshal(last.Data, &found) != nil || found.Found != 0 || found.Unsealed != 0 {
		w.t.Errorf("%s: the log does not verify: %v %s", name, err, last.Data)
	}
}

func TestAClockThatJumpsLosesNothingThatHasNotExpired(t *testing.T) {
	for _, jump := range jumps {
		t.Run(jump.String(), func(t *testing.T) {
			w := onJumpyClock(t)
			forever, soon, late := w.keep("forever", 0), w.keep("soon", 2*time.Hour), w.keep("late", 20*year)
			w.seal("before")
			w.clock.Advance(jump)
			w.shows("a token that never expires", forever, `"forever"`)
			w.shows("a token that expires in twenty years", late, `"late"`)
			w.shows("a token that expires in two hours", soon, map[bool]string{true: `"soon"`}[jump < 2*time.Hour])
			after := w.keep("after", time.Hour)
			w.seal("after the jump")
			w.sweep()
			w.shows("a token from after the jump", after, `"after"`)
			w.clock.Advance(-jump) // and back
			w.sweep()
			w.shows("a token that never expires", forever, `"forever"`)
			w.shows("a token that expires in twenty years", late, `"late"`)
			w.seal("at last")
		})
	}
}

func TestWhatHasEndedDoesNotComeBackToLife(t *testing.T) {
	for _, jump := range jumps {
		if jump > -time.Hour {
			continue
		}
		t.Run(jump.String(), func(t *testing.T) {
			w := onJumpyClock(t)
			var ended, running, waiting api.CreatedSession
			authorize := func(s *api.CreatedSession) {
				w.Call(t, "POST", "/sessions", w.public, "").Into(t, 201, s)
				if got := w.Call(t, "POST", "/sessions/authorize", w.private, fmt.Sprintf(`{"nonce":%q,"permissions":["token:create"]}`, s.Nonce)); got.Status != 200 {
					t.Fatalf("authorize: %s", got)
				}
			}
			use := func(name string, s api.CreatedSession, want int) {
				t.Helper()
				if got := w.Call(t, "POST", "/tokens", s.SessionKey, `{"type":"token","data":"x"}`); got.Status != want {
					t.Errorf("%s: %s, want %d", name, got, want)
				}
			}
			authorize(&ended)
			w.clock.Advance(3 * time.Minute)
			use("a session that has expired", ended, 401)
			authorize(&running)
			w.Call(t, "POST", "/sessions", w.public, "").Into(t, 201, &waiting)
			card := w.create(`{"type":"card","data":{"number":"4242424242424242","cvc":"123"}}`)
			w.shows("a card with its code", card, `{"number":"4242424242424242","cvc":"123"}`)

			w.clock.Advance(jump)
			use("a session that had expired", ended, 401)
			use("a session of a time that has not come", running, 401)
			if got := w.Call(t, "POST", "/sessions/authorize", w.private, fmt.Sprintf(`{"nonce":%q,"permissions":["token:create"]}`, waiting.Nonce)); got.Status != 404 {
				t.Errorf("authorize a session of a time that has not come: %s, want 404", got)
			}
			w.shows("the code of a time that has not come", card, `{"number":"4242424242424242"}`)
			var fresh api.CreatedSession
			authorize(&fresh)
			use("a session from after the jump", fresh, 201)

			// Nobody knows how old such a code is: it is gone for good.
			if swept := w.sweep(); jump < -time.Hour && swept.Keys != 1 {
				t.Errorf("the sweep destroyed %d keys, want 1", swept.Keys)
			}
			w.clock.Advance(-jump)
			if jump < -time.Hour {
				w.shows("a code whose key was destroyed", card, `{"number":"4242424242424242"}`)
			}
			use("a session that is in its time again", running, 201)
			w.seal("at last")
		})
	}
}

func TestIdempotencyKeysFollowTheClock(t *testing.T) {
	w := onJumpyClock(t)
	key := []string{api.Header(api.DefaultPrefix, api.IdempotencyKey), "order-1"}
	first := w.keep("x", 0, key...)
	for _, jump := range jumps {
		want := jump < day // a day and more is another request
		w.clock.Advance(jump)
		again := w.keep("x", 0, key...)
		if got := again == first; got != want {
			t.Errorf("after a jump of %v it is the same token: %v, want %v", jump, got, want)
		}
		w.clock.Advance(-jump)
		first = w.keep("x", 0, key...)
	}
}

// A jump during requests: whatever the clock says, answers are answers.
func TestAClockThatJumpsUnderRequestsBreaksNone(t *testing.T) {
	storetest.Long(t)
	w := onJumpyClock(t)
	forever := w.keep("forever", 0)
	stop := make(chan struct{})
	var jumping, asking sync.WaitGroup
	jumping.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				waittest.Sometime(2 * time.Millisecond)
			}
			jump := jumps[i%len(jumps)]
			w.clock.Advance(jump)
			w.clock.Advance(-jump)
			if i%20 == 0 {
				w.sweep()
			}
		}
	})
	for caller := range 4 {
		asking.Go(func() {
			for i := range 60 {
				w.shows("a token that never expires", forever, `"forever"`)
				text := fmt.Sprintf("%d-%d", caller, i)
				w.shows("a new token", w.keep(text, 0), `"`+text+`"`)
				w.shows("a new card", w.create(fmt.Sprintf(`{"type":"card","data":{"number":"4242424242424242","expiration_year":%d}}`, 2040+i)),
					fmt.Sprintf(`{"number":"4242424242424242","expiration_year":%d}`, 2040+i))
				if got := w.Call(t, "POST", "/sessions", w.public, ""); got.Status != 201 {
					t.Errorf("a session: %s", got)
				}
			}
		})
	}
	asking.Wait()
	close(stop)
	jumping.Wait()
	w.seal("at last")
	if log := w.Log.String(); strings.Contains(log, `"level":"ERROR`) || strings.Contains(log, "panic") {
		t.Error("the server's own log tells of errors")
	}
}

// The clock of servers doubts jumps: one that passes is as if it had not been.
func TestAClockThatIsWrongForAMinuteIsNotNoticed(t *testing.T) {
	storetest.Long(t)
	for _, jump := range jumps {
		t.Run(jump.String(), func(t *testing.T) {
			wall, elapsed := clocktest.New(start), clocktest.New(start)
			pass := func(d time.Duration) { wall.Advance(d); elapsed.Advance(d) }
			k := clock.New(wall.Now, func() time.Duration { return elapsed.Now().Sub(start) }, func(time.Duration, bool) {})
			w := newWorld(t, k.Now)
			w.clock = clocktest.New(start)
			key := []string{api.Header(api.DefaultPrefix, api.IdempotencyKey), "order-1"}
			forever, soon := w.keep("forever", 0, key...), w.keep("soon", time.Hour)
			card := w.create(`{"type":"card","data":{"number":"4242424242424242","cvc":"123"}}`)
			var session api.CreatedSession
			w.Call(t, "POST", "/sessions", w.public, "").Into(t, 201, &session)
			if got := w.Call(t, "POST", "/sessions/authorize", w.private, fmt.Sprintf(`{"nonce":%q,"permissions":["token:create"]}`, session.Nonce)); got.Status != 200 {
				t.Fatalf("authorize: %s", got)
			}
			all := func(when string) {
				t.Helper()
				w.sweep()
				w.shows(when+": a token that never expires", forever, `"forever"`)
				w.shows(when+": a token that expires in an hour", soon, `"soon"`)
				w.shows(when+": a card with its code", card, `{"number":"4242424242424242","cvc":"123"}`)
				if again := w.keep("x", 0, key...); again != forever {
					t.Errorf("%s: a request that was sent again was done again", when)
				}
				if got := w.Call(t, "POST", "/tokens", session.SessionKey, `{"type":"token","data":"x"}`); got.Status != 201 {
					t.Errorf("%s: a session: %s, want 201", when, got)
				}
			}
			wall.Advance(jump)
			all("when it jumped")
			pass(time.Minute - time.Second)
			all("after a minute")
			wall.Advance(-jump)
			all("when it is right again")
			w.seal("at last")
		})
	}
}
