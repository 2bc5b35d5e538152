package contract_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// tokenizeAsWhom: tokenize in a result is done as the reactor's application
// when it has one, else as the caller. What the caller sees of the tokens
// depends on its own access, also when it gets the result again.
func tokenizeAsWhom(t *testing.T, w *coder) {
	reader := func(permissions []string, rules ...api.Rule) api.CreateApplication {
		in := private(permissions...)
		in.Rules = rules
		return in
	}
	rule := func(transform string) api.Rule {
		return api.Rule{Container: "/", Transform: transform, Permissions: []string{"token:read"}}
	}
	w.application("uses", reader([]string{"token:use"}))
	w.application("redacts", reader([]string{"token:use"}, rule("redact")))
	w.application("masks", reader([]string{"token:use"}, rule("mask")))
	w.application("reveals", reader([]string{"token:use"}, rule("reveal")))
	w.application("makes-nothing", private("token:use"))
	const code = `module.exports = async ({ args }) => ({ tokenize: { card: { type: 'card', data: { number: '` + card + `' }, metadata: { a: 'b' }, id: args.id, deduplicate_token: args.again } } })`
	id := w.reactor(code, `"application":{"id":"{all}"}`)
	base := func(id string) string {
		return `"id":"` + id + `","tenant_id":"{tenant}","type":"card","containers":["/pci/high/"],"created_by":"{all}","created_at":"<time>"`
	}
	details := `,"mask":"<any>","fingerprint_expression":"{{ data.number }}","metadata":{"a":"b"}`
	masked := `,"data":{"number":"XXXXXXXXXXXX4242"},"card":{"bin":"42424242","last4":"4242","brand":"visa"}` + strings.Replace(details, `"mask":"<any>",`, ``, 1)
	for name, test := range map[string]struct{ who, shown string }{
		// token:use with reveal shows the fingerprint, and nothing else.
		"a caller that may not read":     {"uses", `,"fingerprint":"<text>"`},
		"a caller that reads redacted":   {"redacts", `,"fingerprint":"<text>"` + details},
		"a caller that reads masked":     {"masks", `,"fingerprint":"<text>"` + masked},
		"a caller that reads everything": {"reveals", `,"fingerprint":"<text>"` + masked},
	} {
		made := "result-of-" + test.who
		got := w.react(id, test.who, `{"args":{"id":"`+made+`"}}`)
		w.wants(name, got, 200, `{"tokens":{"card":{`+base(made)+test.shown+`}}}`)
		if strings.Contains(got.Body, card) {
			t.Errorf("%s: the response reveals", name)
		}
	}
	// The token "card" holds the same number.
	again := w.react(id, "uses", `{"args":{"again":true}}`)
	if got := fmt.Sprint(member(decode(t, again.Body), "tokens.card.id")); got != "card" || strings.Contains(again.Body, `"data"`) || strings.Contains(again.Body, `"metadata"`) {
		t.Errorf("a duplicate that the application finds = %s, want its id and nothing that the caller may not read", again)
	}

	own := w.reactor(code)
	w.wants("without an application, the caller needs token:create", w.react(own, "uses", `{"args":{}}`), 403,
		problem(403, "missing permission token:create"))
	if got := w.react(own, "user", `{"args":{}}`); got.Status != 200 || fmt.Sprint(member(decode(t, got.Body), "tokens.card.created_by")) != w.names["user"] {
		t.Errorf("without an application, the tokens are the caller's: %s", got)
	}

	denied := w.reactor(code, `"application":{"id":"{makes-nothing}"}`)
	before := w.log()
	w.wants("an application that may not create", w.react(denied, "all", `{"args":{}}`), 422,
		coded(422, "the application of the reactor may not create the tokens that its code returned", "reactor_application_denied"))
	var found []string
	for id, e := range w.log() {
		if _, known := before[id]; !known && e.Outcome == "denied" {
			found = append(found, e.Message+" "+e.ActorID)
		}
	}
	if want := []string{"Token create denied " + w.names["makes-nothing"]}; !slices.Equal(found, want) {
		t.Errorf("the log has the refusals %q, want %q", found, want)
	}

	w.run(t, "again", func(t *testing.T, w *coder) { tokenizedAgain(t, w, id) })
}

// tokenizedAgain: a caller gets a result again with the access to the made
// tokens that it had itself, whatever the application may do.
func tokenizedAgain(t *testing.T, w *coder, id string) {
	w.names["makes-tokens"] = id
	w.application("asks", private("token:use"))
	set := func(permissions, rules string) {
		t.Helper()
		w.call("manager_key", "PUT /applications/{asks}", `{"name":"x","permissions":[`+permissions+`],"rules":[`+rules+`]}`, 200)
	}
	const use, read, lost = `"token:use"`, `"token:read"`, "missing permission token:read"
	for i, test := range []struct{ name, then, now, detail string }{
		{"nothing changed, and it may read nothing", "", "", ""},
		{"it reads the mask, then too", on("/", "mask", read), on("/", "mask", read), ""},
		{"it reads more than then", "", on("/", "reveal", read), ""},
		{"it reads nothing any more", on("/", "mask", read), "", lost},
		{"it reads less than then", on("/", "mask", read), on("/", "redact", read), "the caller may now see less of a token than the stored result shows"},
	} {
		made := fmt.Sprint("again-", i)
		body := `{"args":{"id":"` + made + `"}}`
		set(use, test.then)
		first := w.keyed(made, "asks_key", "POST /reactors/{makes-tokens}/react", body, 200, false)
		started := w.server.Call(t, "POST", "/reactors/"+id+"/react-async", w.names["asks_key"], `{"args":{"id":"async-`+made+`"}}`)
		path := started.Header.Get("Location")
		w.clock.Advance(time.Second)
		waittest.Until(t, "the result", func() bool { return w.server.Call(t, "GET", path, w.names["asks_key"], "").Status != 404 })
		set(use, test.now)
		want := 200
		if test.detail != "" {
			want = 403
		}
		got := w.keyed(made, "asks_key", "POST /reactors/{makes-tokens}/react", body, want, want == 200)
		if want == 200 && got.Body != first.Body || want == 403 && fmt.Sprint(member(decode(t, got.Body), "detail")) != test.detail {
			t.Errorf("%s: the replay = %s, want %d %s", test.name, got, want, test.detail)
		}
		if got := w.server.Call(t, "GET", path, w.names["asks_key"], ""); got.Status != want || want == 403 && fmt.Sprint(member(decode(t, got.Body), "detail")) != test.detail {
			t.Errorf("%s: the result = %s, want %d %s", test.name, got, want, test.detail)
		}
	}
}

// invalidTokenize: an invalid tokenize in a result is a 422 that blames the
// code, and repeats nothing of it.
func invalidTokenize(t *testing.T, w *coder) {
	id := w.reactor(`module.exports = async ({ args }) => ({ tokenize: args.tokenize })`)
	const words = "the code returned a tokenize that is not valid; see errors"
	w.token(`{"id":"taken-by-another","type":"token","data":1}`)
	for name, test := range map[string]struct{ tokenize, path, message string }{
		"a type that is unknown":       {`{"type":"nonsense","data":1}`, "tokenize.type", unknownType("")},
		"a field of a card":            {`{"items":["x",{"type":"card","data":{"number":"1"}}]}`, "tokenize.*.1.data.number", "a card number has 12 to 19 digits"},
		"below a name that is a value": {`{"` + card + `":{"type":"card","data":null}}`, "tokenize.*.data", "is required"},
		"a root list":                  {`[{"type":"token","data":"x","metadata":5}]`, "tokenize.0.metadata", "must be an object of strings"},
		"an id":                        {`{"type":"token","data":"x","id":"a"}`, "tokenize.id", "<text>"},
		"too many":                     {`["x"` + strings.Repeat(`,"x"`, 1000) + `]`, "tokenize", "the body would become more than 1,000 tokens"},
		"an id that is taken":          {`{"type":"token","data":"x","id":"taken-by-another"}`, "tokenize", "a token with this id exists already"},
	} {
		want := fmt.Sprintf(`{"title":"Unprocessable Entity","status":422,"detail":%q,"code":"tokenize_invalid","errors":{%q:[%q]}}`, words, test.path, test.message)
		got := w.react(id, "user", `{"args":{"tokenize":`+test.tokenize+`}}`)
		w.wants(name, got, 422, want)
		if strings.Contains(got.Body, card) || strings.Contains(got.Body, "nonsense") || strings.Contains(got.Body, "items") {
			t.Errorf("%s: the response repeats what the code returned: %s", name, got)
		}
	}
	started := w.server.Call(t, "POST", "/reactors/"+id+"/react-async", w.names["user_key"], `{"args":{"tokenize":{"type":"nonsense","data":1}}}`)
	w.clock.Advance(time.Second)
	var got keeptest.Answer
	waittest.Until(t, "the result", func() bool {
		got = w.server.Call(t, "GET", started.Header.Get("Location"), w.names["user_key"], "")
		return got.Status != 404
	})
	w.wants("asynchronously", got, 422, fmt.Sprintf(`{"title":"Unprocessable Entity","status":422,"detail":%q,"code":"tokenize_invalid","errors":{"tokenize.type":[%q]}}`, words, unknownType("")))
}
