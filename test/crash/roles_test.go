package crash_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/tokenkeep/tokenkeep/api"
)

// roles has an actor for each capability; act asks for one thing or two.
var roles = []struct {
	name string
	code bool // it needs the runtime of tenants' code
	act  func(*actor)
}{
	{"tokens", false, (*actor).useTokens},
	{"more-tokens", false, (*actor).useTokens},
	{"tokenize", false, (*actor).tokenize},
	{"sessions", false, (*actor).useSessions},
	{"applications", false, (*actor).useApplications},
	{"reactors", true, (*actor).defineReactors},
	{"proxies", false, (*actor).defineProxies},
	{"react", true, (*actor).react},
	{"react-async", true, (*actor).reactLater},
	{"forward", false, (*actor).forward},
	{"tenant", false, (*actor).administer},
}

// some returns one of the things, if there are enough of them.
func (a *actor) some(atLeast int) *thing {
	if len(a.things) < atLeast {
		return nil
	}
	return a.things[a.random.IntN(len(a.things))]
}

func (a *actor) useTokens() {
	t := a.some(4)
	if t == nil {
		name := a.number()
		data := map[string]any{"name": name, "v": 0}
		a.create(&thing{entity: "token", name: name, list: "/tokens?metadata.name=" + name, key: a.w.private}, "/tokens",
			fmt.Sprintf(`{"type":"token","data":{"name":%[1]q,"v":0},"metadata":{"name":%[1]q,"of":%[2]q},"search_indexes":["{{ data.name }}"]}`, name, a.name),
			state{"data": data, "metadata": map[string]any{"name": name, "of": a.name}})
		return
	}
	switch a.random.IntN(5) {
	case 0:
		a.read(t)
	case 1:
		a.n++
		a.change(t, "PATCH", fmt.Sprintf(`{"data":{"v":%d},"metadata":{"v":"%[1]d"}}`, a.n), "update",
			state{"data": map[string]any{"name": t.name, "v": a.n}, "metadata": map[string]any{"name": t.name, "of": a.name, "v": fmt.Sprint(a.n)}})
	case 2:
		a.change(t, "DELETE", "", "delete", nil)
	case 3:
		a.findTokens("GET", "/tokens?size=100&metadata.of="+a.name, "")
	case 4:
		a.findTokens("POST", "/tokens/search", `{"query":"metadata.of:`+a.name+`","size":100}`)
	}
}

// findTokens looks whether the actor's tokens are found, and nothing else.
func (a *actor) findTokens(method, path, body string) {
	e := a.ask(method, path, a.w.private, body)
	if !e.answered || a.unexpected(e, http.StatusOK) {
		return
	}
	var list api.List[api.Token]
	if err := json.Unmarshal([]byte(e.answer), &list); err != nil {
		a.w.t.Errorf("%s: %v", e, err)
	}
	var got, want []string
	for _, t := range list.Data {
		got = append(got, t.ID)
		e.logged = append(e.logged, entry{"token", "read", t.ID})
	}
	for _, t := range a.things {
		want = append(want, t.id())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		a.w.t.Errorf("%s: it finds %v, want %v", e, got, want)
	}
}

// batch is what one call of /tokenize makes: three tokens or none.
type batch struct {
	name  string
	asked *exchange // not answered
	ids   []string
}

func (a *actor) tokenize() {
	if len(a.batches) > 3 {
		a.detokenize(a.batches[0])
		for _, id := range a.batches[0].ids {
			if e := a.ask("DELETE", "/tokens/"+id, a.w.private, "", entry{"token", "delete", id}); !e.answered {
				break
			}
		}
		a.batches = a.batches[1:] // what was being deleted is nobody's any more
		return
	}
	b := &batch{name: a.number()}
	part := fmt.Sprintf(`{"type":"token","data":"%[1]s","metadata":{"batch":"%[1]s"}}`, b.name)
	create := entry{"token", "create", ""}
	e := a.askOnce("POST", "/tokenize", a.w.private, fmt.Sprintf(`{"a":%[1]s,"b":[%[1]s,{"c":"%[2]s"}]}`, part, b.name), create)
	a.batches = append(a.batches, b)
	if !e.answered {
		b.asked = e
		return
	}
	a.tokenized(b, e)
}

func (a *actor) tokenized(b *batch, e *exchange) {
	var made struct {
		A api.Token
		B []json.RawMessage
	}
	var second api.Token
	var third struct{ C string }
	if a.unexpected(e, http.StatusOK) {
		return
	}
	err := json.Unmarshal([]byte(e.answer), &made)
	if err != nil || len(made.B) != 2 || json.Unmarshal(made.B[0], &second) != nil || json.Unmarshal(made.B[1], &third) != nil {
		a.w.t.Errorf("%s: %v", e, err)
		return
	}
	b.ids = []string{made.A.ID, second.ID, third.C}
	e.logged = nil
	for _, id := range b.ids {
		e.logged = append(e.logged, entry{"token", "create", id})
	}
}

func (a *actor) detokenize(b *batch) {
	if len(b.ids) == 0 {
		return
	}
	e := a.ask("POST", "/detokenize", a.w.private, fmt.Sprintf(`["{{%s}}","{{%s}}","{{%s}}"]`, b.ids[0], b.ids[1], b.ids[2]),
		entry{"token", "read", b.ids[0]}, entry{"token", "read", b.ids[1]}, entry{"token", "read", b.ids[2]})
	if want := fmt.Sprintf(`["%[1]s","%[1]s","%[1]s"]`, b.name); e.answered && e.answer != want {
		a.w.t.Errorf("%s, want %s", e, want)
	}
}

// session is a session that is made, then authorized, then used.
type session struct {
	api.CreatedSession
	asked      *exchange // not answered: how it was made, or authorized
	authorized bool
}

func (a *actor) useSessions() {
	if len(a.sessions) == 0 || a.chance(6) {
		e := a.askOnce("POST", "/sessions", a.w.public, "", entry{"session", "create", ""})
		s := &session{}
		a.sessions = append(a.sessions, s)
		if len(a.sessions) > 4 {
			a.sessions = a.sessions[1:]
		}
		a.sessionStep(s, e)
		return
	}
	switch s := a.sessions[a.random.IntN(len(a.sessions))]; {
	case s.SessionKey == "":
	case !s.authorized:
		a.sessionStep(s, a.askOnce("POST", "/sessions/authorize", a.w.private, fmt.Sprintf(
			`{"nonce":%q,"rules":[{"container":"/","transform":"reveal","permissions":["token:read"]}]}`, s.Nonce), entry{"session", "update", ""}))
	default:
		a.useSession(s)
	}
}

func (a *actor) sessionStep(s *session, e *exchange) {
	switch {
	case !e.answered:
		s.asked = e
	case a.unexpected(e, http.StatusCreated, http.StatusOK):
	case e.path == "/sessions":
		if err := json.Unmarshal([]byte(e.answer), &s.CreatedSession); err != nil {
			a.w.t.Errorf("%s: %v", e, err)
		}
	default:
		s.authorized = true
	}
}

// useSession reads the token of all with the key of a session: what was
// authorized opens it, and nothing else does.
func (a *actor) useSession(s *session) {
	e := a.ask("GET", "/tokens/"+a.w.token, s.SessionKey, "")
	switch {
	case !e.answered:
	case !s.authorized:
		a.unexpected(e, http.StatusForbidden)
	default:
		e.logged = []entry{{"token", "read", a.w.token}}
		if a.unexpected(e, http.StatusOK); e.member("data") != card {
			a.w.t.Errorf("%s: it does not show the token", e)
		}
	}
}

const reactorCode = `module.exports = async () => ({})`

func (a *actor) defineReactors() {
	a.define("reactor", "/reactors", func(name, word string) (string, state) {
		return fmt.Sprintf(`{"name":%q,"code":%q,"configuration":{"WORD":%q}}`, name, reactorCode, word),
			state{"name": name, "code": reactorCode, "configuration": map[string]any{"WORD": word}}
	})
}

func (a *actor) defineProxies() {
	a.define("proxy", "/proxies", func(name, word string) (string, state) {
		return fmt.Sprintf(`{"name":%q,"destination_url":"https://psp.example/%s","configuration":{"WORD":%[2]q}}`, name, word),
			state{"name": name, "destination_url": "https://psp.example/" + word, "configuration": map[string]any{"WORD": word}}
	})
}

func (a *actor) define(entity, path string, body func(name, word string) (string, state)) {
	t := a.some(3)
	if t == nil {
		name := a.number()
		text, then := body(name, "first")
		a.create(&thing{entity: entity, name: name, list: path + "?name=" + name + "*", key: a.w.management}, path, text, then)
		return
	}
	text, then := body(t.name, a.number())
	switch a.random.IntN(4) {
	case 0:
		a.read(t)
	case 1:
		a.change(t, "PUT", text, "update", then)
	case 2:
		a.change(t, "PATCH", text, "update", then)
	case 3:
		a.change(t, "DELETE", "", "delete", nil)
	}
}

// react runs code on the token of all.
func (a *actor) react() {
	n := a.number()
	e := a.ask("POST", "/reactors/"+a.w.reactor+"/react", a.w.private, fmt.Sprintf(`{"args":{"v":"{{%s}}","n":%q}}`, a.w.token, n),
		entry{"reactor", "use", a.w.reactor}, entry{"token", "use", a.w.token})
	if want := fmt.Sprintf(`{"raw":{"v":%q,"n":%q}}`, card, n); e.answered && !a.unexpected(e, http.StatusOK) && !sameJSON(e.answer, want) {
		a.w.t.Errorf("%s, want %s", e, want)
	}
}

// reactLater asks for a run whose result it collects.
func (a *actor) reactLater() {
	if len(a.runs) >= 4 {
		for id := range a.runs {
			if a.collect(id); a.stuck() || a.w.stop.Load() {
				break
			}
		}
	}
	if len(a.runs) >= 12 { // the code cannot keep up
		return
	}
	n := a.number()
	e := a.ask("POST", "/reactors/"+a.w.reactor+"/react-async", a.w.private, fmt.Sprintf(`{"args":{"v":"{{%s}}","n":%q}}`, a.w.token, n),
		entry{"reactor", "use", a.w.reactor}, entry{"token", "use", a.w.token})
	if e.answered && !a.unexpected(e, http.StatusAccepted) {
		a.runs[e.member("asyncReactorRequestId")] = n
	}
}

// collect looks for the result of a run and says whether it is there: what the
// code returned, or that the run was interrupted.
func (a *actor) collect(id string) bool {
	e := a.ask("GET", "/reactors/"+a.w.reactor+"/results/"+id, a.w.private, "")
	switch want := fmt.Sprintf(`{"raw":{"v":%q,"n":%q}}`, card, a.runs[id]); {
	case !e.answered || a.unexpected(e, http.StatusOK, http.StatusNotFound, http.StatusUnprocessableEntity) || e.status == http.StatusNotFound:
		return false
	case e.status == http.StatusOK && !sameJSON(e.answer, want):
		a.w.t.Errorf("%s, want %s", e, want)
	case e.status == http.StatusUnprocessableEntity && e.member("detail") != "the run was interrupted; whether it had effects is not known":
		a.w.t.Errorf("%s, want what the code returned", e)
	}
	delete(a.runs, id)
	return true
}

// forward sends the token of all to the destination, which sends it back.
func (a *actor) forward() {
	n := a.number()
	e := a.ask("POST", "/proxy", a.w.private, fmt.Sprintf(`{"v":"{{%s}}","n":%q}`, a.w.token, n),
		entry{"proxy", "use", a.w.proxy.ID}, entry{"token", "use", a.w.token})
	if want := fmt.Sprintf(`{"v":%q,"n":%q}`, card, n); e.answered && !a.unexpected(e, http.StatusOK) && e.answer != want {
		a.w.t.Errorf("%s, want %s", e, want)
	}
}

func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}
