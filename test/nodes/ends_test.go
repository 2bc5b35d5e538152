package nodes_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// change is something that is changed on one node while the other knows it
// from before.
type change struct {
	// use is what the other node is asked; before and after are the statuses
	// with which it answers, or its bodies where those do not tell.
	use           func(n *keeptest.Server) keeptest.Answer
	before, after string
	do            func()
}

func status(code int) string { return fmt.Sprintf("%d ", code) }

// TestWhatChangesOnOneNodeCountsOnTheOther: at once, and not within some time:
// the clock of both stands still, so that nothing which a node remembers grows
// old. Nobody is told of a change, so there is nothing to be lost on the way;
// that a node which loses all its connections meanwhile does no worse is tried
// all the same.
func TestWhatChangesOnOneNodeCountsOnTheOther(t *testing.T) {
	storetest.Long(t)
	w := newTown(t, options{})
	for _, cut := range []bool{false, true} {
		for name, prepare := range map[string]func(*town) change{
			"a key is revoked": func(w *town) change {
				a := w.application()
				return change{lists(w, a.Key), status(200), status(401), func() { w.must(w.a, "DELETE", "/applications/"+a.ID+"/keys/"+a.Keys[0].ID, "") }}
			},
			"a key is replaced": func(w *town) change {
				a := w.application()
				return change{lists(w, a.Key), status(200), status(401), func() { w.must(w.a, "POST", "/applications/"+a.ID+"/regenerate", "") }}
			},
			"an application is deleted": func(w *town) change {
				a := w.application()
				return change{lists(w, a.Key), status(200), status(401), func() { w.must(w.a, "DELETE", "/applications/"+a.ID, "") }}
			},
			"a permission is taken away": func(w *town) change {
				a := w.application()
				return change{lists(w, a.Key), status(200), status(403), func() {
					w.must(w.a, "PUT", "/applications/"+a.ID, `{"name":"n","permissions":["token:create"]}`)
				}}
			},
			"a permission is given": func(w *town) change {
				a := w.a.Application(w.t, w.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:create"}})
				return change{lists(w, a.Key), status(403), status(200), func() {
					w.must(w.a, "PUT", "/applications/"+a.ID, `{"name":"n","permissions":["token:read"]}`)
				}}
			},
			"a rule changes": func(w *town) change {
				a := w.application()
				var made api.Token
				w.b.Call(w.t, "POST", "/tokens", a.Key, `{"type":"token","data":"revealed","mask":"masked"}`).Into(w.t, 201, &made)
				return change{func(n *keeptest.Server) keeptest.Answer {
					got := n.Call(w.t, "GET", "/tokens/"+made.ID, a.Key, "")
					got.Into(w.t, 200, &made)
					return keeptest.Answer{Status: 200, Body: string(made.Data)}
				}, `200 "revealed"`, `200 "masked"`, func() {
					w.must(w.a, "PUT", "/applications/"+a.ID, `{"name":"n","rules":[{"container":"/","transform":"mask","permissions":["token:read"]}]}`)
				}}
			},
			"a session is ended": func(w *town) change {
				made, id := w.session()
				return change{lists(w, made.SessionKey), status(200), status(401), func() { w.must(w.a, "DELETE", "/sessions/"+id, "") }}
			},
			"who authorized a session is deleted": func(w *town) change {
				made, _ := w.session()
				return change{lists(w, made.SessionKey), status(200), status(401), func() { w.must(w.a, "DELETE", "/applications/"+w.private.ID, "") }}
			},
			"who authorized a session is deleted, and the cap is lifted": func(w *town) change {
				w.must(w.a, "PUT", "/tenants/self", `{"name":"n","settings":{"uncapped_sessions":"true"}}`)
				made, _ := w.session()
				return change{lists(w, made.SessionKey), status(200), status(401), func() { w.must(w.a, "DELETE", "/applications/"+w.private.ID, "") }}
			},
			"the key that authorized a session is deleted": func(w *town) change {
				made, _ := w.session()
				return change{lists(w, made.SessionKey), status(200), status(401), func() {
					w.must(w.a, "DELETE", "/applications/"+w.private.ID+"/keys/"+w.private.Keys[0].ID, "")
				}}
			},
			"the key that authorized a session is replaced": func(w *town) change {
				made, _ := w.session()
				return change{lists(w, made.SessionKey), status(200), status(401), func() { w.must(w.a, "POST", "/applications/"+w.private.ID+"/regenerate", "") }}
			},
			"the key that created a session is deleted": func(w *town) change {
				made, _ := w.session()
				return change{lists(w, made.SessionKey), status(200), status(401), func() {
					w.must(w.a, "DELETE", "/applications/"+w.public.ID+"/keys/"+w.public.Keys[0].ID, "")
				}}
			},
			"the key that created a session is replaced": func(w *town) change {
				made, _ := w.session()
				return change{lists(w, made.SessionKey), status(200), status(401), func() { w.must(w.a, "POST", "/applications/"+w.public.ID+"/regenerate", "") }}
			},
			"another key of who authorized a session is deleted": func(w *town) change {
				made, _ := w.session()
				var other api.Key
				w.must(w.a, "POST", "/applications/"+w.private.ID+"/keys", "").Into(w.t, 201, &other)
				return change{lists(w, made.SessionKey), status(200), status(200), func() {
					w.must(w.a, "DELETE", "/applications/"+w.private.ID+"/keys/"+other.ID, "")
				}}
			},
			"who made a session is deleted": func(w *town) change {
				made, _ := w.session()
				return change{lists(w, made.SessionKey), status(200), status(401), func() { w.must(w.a, "DELETE", "/applications/"+w.public.ID, "") }}
			},
			"a token is deleted": func(w *town) change {
				var made api.Token
				w.b.Call(w.t, "POST", "/tokens", w.private.Key, `{"type":"token","data":1}`).Into(w.t, 201, &made)
				return change{func(n *keeptest.Server) keeptest.Answer {
					return n.Call(w.t, "GET", "/tokens/"+made.ID, w.private.Key, "")
				}, status(200), status(404), func() {
					remover := w.a.Application(w.t, w.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:delete"}})
					if got := w.a.Call(w.t, "DELETE", "/tokens/"+made.ID, remover.Key, ""); got.Status != 204 {
						w.t.Fatalf("DELETE = %s", got)
					}
				}}
			},
			"the key of a proxy is replaced": func(w *town) change {
				p := w.proxy(1)
				return change{through(w, p), "200 1", status(404), func() { w.must(w.a, "POST", "/proxies/"+p.ID+"/rotate-key", "") }}
			},
			"a proxy gets another destination": func(w *town) change {
				p := w.proxy(1)
				return change{through(w, p), "200 1", "200 2", func() {
					w.must(w.a, "PATCH", "/proxies/"+p.ID, fmt.Sprintf(`{"destination_url":%q}`, destination(w.t, 2)))
				}}
			},
			"a proxy is deleted": func(w *town) change {
				p := w.proxy(1)
				return change{through(w, p), "200 1", status(404), func() { w.must(w.a, "DELETE", "/proxies/"+p.ID, "") }}
			},
			"the tenant is deleted": func(w *town) change {
				return change{lists(w, w.private.Key), status(200), status(401), func() { w.must(w.a, "DELETE", "/tenants/self", "") }}
			},
			"the tenant of a session is deleted": func(w *town) change {
				made, _ := w.session()
				return change{lists(w, made.SessionKey), status(200), status(401), func() { w.must(w.a, "DELETE", "/tenants/self", "") }}
			},
			"the tenant of a proxy that asks for no key is deleted": func(w *town) change {
				p := w.proxy(1)
				return change{through(w, p), "200 1", status(404), func() { w.must(w.a, "DELETE", "/tenants/self", "") }}
			},
		} {
			if cut {
				name += ", and connections are lost"
			}
			t.Run(name, func(t *testing.T) { check(t, w.settle(t), prepare, cut) })
		}
	}
}

func TestReactorsThatChangeOnOneNodeChangeOnTheOther(t *testing.T) {
	storetest.CheckOnly(t)
	o := options{settings: map[string]string{"sandbox.level": "full", "sandbox.runtime": runtimetest.Find(t).Folder, "sandbox.blank": "1"}}
	w := newTown(t, o)
	var made api.Reactor
	w.must(w.a, "POST", "/reactors", `{"name":"n","code":"module.exports = () => ({ raw: 1 })","configuration":{"a":"b"}}`).Into(t, 201, &made)
	run := func(n *keeptest.Server) keeptest.Answer {
		return n.Call(t, "POST", "/reactors/"+made.ID+"/react", w.private.Key, `{"args":{}}`)
	}
	check(t, w, func(*town) change {
		return change{run, `200 {"raw":1}`, `200 {"raw":2}`, func() {
			w.must(w.a, "PATCH", "/reactors/"+made.ID, `{"code":"module.exports = () => ({ raw: 2 })"}`)
		}}
	}, false)
	check(t, w, func(*town) change {
		return change{run, `200 {"raw":2}`, status(404), func() { w.must(w.a, "DELETE", "/reactors/"+made.ID, "") }}
	}, false)
}

// check makes a change on one node and looks at both.
func check(t *testing.T, w *town, prepare func(*town) change, cut bool) {
	t.Helper()
	c := prepare(w)
	for _, n := range []*keeptest.Server{w.b, w.a, w.b} { // the last time with all that it remembers
		if got := c.use(n).String(); !startsWith(got, c.before) {
			t.Fatalf("before: got %s, want %s", got, c.before)
		}
	}
	c.do()
	if cut {
		w.cut()
	}
	for i, n := range []*keeptest.Server{w.b, w.b, w.a} {
		if got := c.use(n).String(); !startsWith(got, c.after) {
			t.Errorf("after, %s: got %s, want %s", []string{"on the other node", "once more", "on the same node"}[i], got, c.after)
		}
	}
}

func startsWith(s, prefix string) bool { return len(s) >= len(prefix) && s[:len(prefix)] == prefix }

// lists reads tokens with a key.
func lists(w *town, key string) func(*keeptest.Server) keeptest.Answer {
	return func(n *keeptest.Server) keeptest.Answer { return n.Call(w.t, "GET", "/tokens", key, "") }
}

// through calls a proxy, whose key is all that it takes.
func through(w *town, p api.Proxy) func(*keeptest.Server) keeptest.Answer {
	return func(n *keeptest.Server) keeptest.Answer {
		return n.Call(w.t, "GET", "/proxy", "", "", api.Header(api.DefaultPrefix, api.ProxyKey), p.Key)
	}
}

// proxy makes a proxy to a destination that answers with a number.
func (w *town) proxy(number int) (p api.Proxy) {
	w.t.Helper()
	w.must(w.a, "POST", "/proxies", fmt.Sprintf(`{"name":"n","destination_url":%q,"require_auth":false}`, destination(w.t, number))).Into(w.t, 201, &p)
	return p
}

func destination(t *testing.T, number int) string {
	t.Helper()
	d := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, number) }))
	t.Cleanup(d.Close)
	return d.URL
}
