package crash_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// exchange is a line of a transcript: what was asked, and what was answered if
// anything was.
type exchange struct {
	trace, method, path string
	key, body, once     string // once is the idempotency key

	answered bool
	status   int
	replayed bool
	answer   string

	// logged is what the log must have of it when it was done: all of it, or
	// nothing when it was not.
	logged []entry
}

// entry is what the log says; an id that is empty stands for any.
type entry struct{ entity, operation, id string }

func (e *exchange) String() string {
	return fmt.Sprintf("%s %s %s %s → %v %d %s", e.trace, e.method, e.path, e.body, e.answered, e.status, e.answer)
}

// done says that the server said that it did it.
func (e *exchange) done() bool { return e.answered && e.status < 300 }

// member returns a member of the answer that is a text.
func (e *exchange) member(name string) string {
	var members map[string]any
	_ = json.Unmarshal([]byte(e.answer), &members)
	text, _ := members[name].(string)
	return text
}

// matches says how much of what should be logged is.
func (e *exchange) matches(entries []api.LogEntry) (found int) {
	for _, want := range e.logged {
		if slices.ContainsFunc(entries, func(got api.LogEntry) bool {
			return got.EntityType == want.entity && got.Operation == want.operation && (want.id == "" || got.EntityID == want.id) && got.Outcome == "allowed"
		}) {
			found++
		}
	}
	return found
}

// actor is a caller with what it alone changes, and its transcript.
type actor struct {
	w          *world
	name       string
	act        func(*actor)
	n          int // requests and things are numbered
	random     *rand.Rand
	transcript []*exchange

	things   []*thing
	keys     []*appKey
	batches  []*batch
	sessions []*session
	runs     map[string]string // results that are due, with what they must be
	tenant   *thing
	secret   string
}

// number returns a name that nobody else uses.
func (a *actor) number() string {
	a.n++
	return fmt.Sprintf("%s-%d", a.name, a.n)
}

// chance is true once in n times.
func (a *actor) chance(n int) bool { return a.random.IntN(n) == 0 }

// ask sends a request and writes it down.
func (a *actor) ask(method, path, key, body string, logged ...entry) *exchange {
	return a.send(&exchange{method: method, path: path, key: key, body: body, logged: logged})
}

// askOnce sends a request under an idempotency key, a long one: short keys do
// not count for every request with a public key.
func (a *actor) askOnce(method, path, key, body string, logged ...entry) *exchange {
	once := "idempotency-key-number-" + a.number()
	return a.send(&exchange{method: method, path: path, key: key, body: body, once: once, logged: logged})
}

// again sends a request once more, under the same idempotency key, until it is
// not in the way of the first.
func (a *actor) again(e *exchange) (last *exchange) {
	waittest.Until(a.w.t, "the end of a request that is repeated", func() bool {
		last = a.send(&exchange{method: e.method, path: e.path, key: e.key, body: e.body, once: e.once, logged: e.logged})
		return last.status != http.StatusConflict
	})
	return last
}

func (a *actor) send(e *exchange) *exchange {
	e.trace = a.number()
	a.transcript = append(a.transcript, e)
	r, err := http.NewRequest(e.method, a.w.farm.URL+e.path, strings.NewReader(e.body))
	if err != nil {
		a.w.t.Errorf("%s: %v", e, err)
		return e
	}
	set := func(name, value string) {
		if value != "" {
			r.Header.Set(api.Header(api.DefaultPrefix, name), value)
		}
	}
	set(api.APIKey, e.key)
	set(api.TraceID, e.trace)
	set(api.IdempotencyKey, e.once)
	if e.path == "/proxy" {
		set(api.ProxyKey, a.w.proxy.Key)
	}
	if e.body != "" {
		r.Header.Set("Content-Type", api.MediaJSON)
		if e.method == http.MethodPatch {
			r.Header.Set("Content-Type", api.MediaMergePatch)
		}
	}
	response, err := a.w.client.Do(r)
	if err != nil {
		a.lost(e, err)
		return e
	}
	defer func() { _ = response.Body.Close() }()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		a.lost(e, err)
		return e
	}
	e.answered, e.status, e.answer = true, response.StatusCode, string(b)
	e.replayed = response.Header.Get(api.Header(api.DefaultPrefix, api.IdempotentReplayed)) == "true"
	return e
}

// lost is called for a request that was not answered: only a kill is a reason.
func (a *actor) lost(e *exchange, err error) {
	if !a.w.killing.Load() {
		a.w.t.Errorf("%s: nobody was killed: %v", e, err)
	}
}

// must sends a request that has to be answered with that status.
func (a *actor) must(method, path, key, body string, status int, logged ...entry) *exchange {
	a.w.t.Helper()
	e := a.ask(method, path, key, body, logged...)
	if e.status != status {
		a.w.t.Fatalf("%s, want status %d", e, status)
	}
	return e
}

// unexpected fails unless an answer has one of these statuses, or asks to come
// back, or there is none.
func (a *actor) unexpected(e *exchange, statuses ...int) bool {
	if !e.answered || slices.Contains(statuses, e.status) {
		return false
	}
	if e.status != http.StatusServiceUnavailable {
		a.w.t.Errorf("%s, want status %v", e, statuses)
	}
	return true
}
