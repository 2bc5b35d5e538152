package crash_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	"github.com/tokenkeep/tokenkeep/api"
)

// state is what a read shows, as far as an actor set it; nil is not there.
type state map[string]any

// matches compares a state with what a read answered.
func (s state) matches(e *exchange) bool {
	if e.status == http.StatusNotFound {
		return s == nil
	}
	var got map[string]any
	if s == nil || e.status != http.StatusOK || json.Unmarshal([]byte(e.answer), &got) != nil {
		return false
	}
	text, _ := json.Marshal(s) // so that numbers are of one kind
	var want map[string]any
	_ = json.Unmarshal(text, &want)
	for name, value := range want {
		if !reflect.DeepEqual(got[name], value) {
			return false
		}
	}
	return true
}

// thing is a token, reactor, proxy or application that one actor changes.
type thing struct {
	entity string
	name   string // unique
	path   string // where it is read; "" before it is made for certain
	list   string // where it is found by its name
	key    string // with which all this is done
	is     state  // as was told

	asked *exchange // a change that was not answered
	then  state     // what it makes
}

// id is the last part of its path.
func (t *thing) id() string {
	for i := len(t.path) - 1; i >= 0; i-- {
		if t.path[i] == '/' {
			return t.path[i+1:]
		}
	}
	return t.path
}

// create makes a thing under an idempotency key.
func (a *actor) create(t *thing, path, body string, then state) {
	e := a.askOnce("POST", path, t.key, body, entry{t.entity, "create", ""})
	a.things = append(a.things, t)
	if !e.answered {
		t.asked, t.then = e, then
		return
	}
	a.made(t, e, then)
}

func (a *actor) made(t *thing, e *exchange, then state) {
	if a.unexpected(e, http.StatusCreated) {
		a.forget(t)
		return
	}
	t.path, t.is = e.path+"/"+e.member("id"), then
}

func (a *actor) forget(t *thing) {
	for i := range a.things {
		if a.things[i] == t {
			a.things = append(a.things[:i], a.things[i+1:]...)
			return
		}
	}
}

// change asks for a new state.
func (a *actor) change(t *thing, method, body, operation string, then state) {
	e := a.ask(method, t.path, t.key, body, entry{t.entity, operation, t.id()})
	switch {
	case !e.answered:
		t.asked, t.then = e, then
	case !a.unexpected(e, http.StatusOK, http.StatusNoContent):
		t.is = then
		if then == nil {
			a.read(t) // it is gone at once
			a.forget(t)
		}
	}
}

// read looks whether a thing is what its actor was told.
func (a *actor) read(t *thing) {
	e := a.ask("GET", t.path, t.key, "")
	if t.is != nil {
		e.logged = []entry{{t.entity, "read", t.id()}}
	}
	if !a.unexpected(e, http.StatusOK, http.StatusNotFound) && e.answered && !t.is.matches(e) {
		a.w.t.Errorf("%s, want %v", e, t.is)
	}
}

// count tells how many things of a name a list shows.
func (a *actor) count(t *thing) (n int) {
	a.w.t.Helper()
	e := a.must("GET", t.list, t.key, "", http.StatusOK)
	var list api.List[struct {
		Name     string
		Metadata map[string]string
	}]
	if err := json.Unmarshal([]byte(e.answer), &list); err != nil {
		a.w.t.Fatal(err)
	}
	for _, item := range list.Data {
		if item.Name == t.name || item.Metadata["name"] == t.name {
			n++
		}
	}
	return n
}

// decide finds out whether a change that was not answered was made.
func (a *actor) decide(t *thing, log map[string][]api.LogEntry) {
	a.w.t.Helper()
	asked, is := t.asked, false
	a.w.agree(log, func(log map[string][]api.LogEntry) error {
		e := a.ask("GET", t.path, t.key, "")
		var was bool
		was, is = t.is.matches(e), t.then.matches(e)
		if logged := asked.matches(log[asked.trace]) == 1; was == is || is != logged {
			return fmt.Errorf("%s: it is as before: %v, as asked: %v, logged: %v: %s", asked, was, is, logged, e)
		}
		return nil
	})
	if is {
		t.is = t.then
	}
	t.asked = nil
}

// settle finds out, after a crash, what became of a thing.
func (a *actor) settle(t *thing, log map[string][]api.LogEntry) {
	a.w.t.Helper()
	asked, then := t.asked, t.then
	switch {
	case asked == nil:
	case t.path == "":
		t.asked = nil
		before := 0
		a.w.agree(log, func(log map[string][]api.LogEntry) error {
			before = a.count(t)
			if logged := asked.matches(log[asked.trace]); before > 1 || logged != before {
				return fmt.Errorf("%s made %d, and the log has %d of it", asked, before, logged)
			}
			return nil
		})
		again := a.again(asked)
		a.made(t, again, then)
		if after := a.count(t); after != 1 || again.replayed != (before == 1) {
			a.w.t.Errorf("%s was there %d times, after being asked again %d times, replayed: %v", asked, before, after, again.replayed)
		}
	default:
		a.decide(t, log)
	}
	if t.path != "" {
		a.read(t)
		if want := map[bool]int{true: 1, false: 0}[t.is != nil]; a.count(t) != want {
			a.w.t.Errorf("%s: a list shows %d of %s, want %d", t.entity, a.count(t), t.name, want)
		}
	}
	if t.is == nil {
		a.forget(t)
	}
}
