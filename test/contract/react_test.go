package contract_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/openapitest"
)

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

const card = "4242424242424242"

func TestReact(t *testing.T) {
	w := newCoder(t, nil)
	w.token(`{"id":"card","type":"card","data":{"number":"` + card + `","expiration_month":12,"expiration_year":2040,"cvc":"123"},"containers":["/pci/high/"]}`)
	w.token(`{"id":"name","type":"token","data":"Ada Lovelace","mask":"{{ data | reveal_last: 4 }}","containers":["/people/"]}`)
	w.token(`{"id":"both","type":"token","data":7.50,"containers":["/people/","/secret/"]}`)
	for name, test := range map[string]func(*testing.T, *coder){
		"arguments": arguments, "results": results, "errors": thrownErrors, "custom answers": customAnswers, "access": reactorAccess,
		"protected values": protectedValues, "invocations": invocations, "code that does not parse": codeThatDoesNotParse,
		"in whose name": inWhoseName, "sending again": sendingAgain, "replays": replayedRuns, "asynchronous": asynchronous, "runs": runsOfReactors, "the log": reactorLog, "trials": trialsOfCode, "the id of a run": runIDs,
		"refusals in the log": reactorRefusals,
		"tokenize in a result is done as the reactor's application when it has one, else as the caller": tokenizeAsWhom,
		"an invalid tokenize in a result is a 422 that blames the code":                                 invalidTokenize,
	} {
		w.run(t, name, test)
	}
	w.run(t, "a security code", securityCode) // it moves the clock by hours
	if text := w.server.Log.String(); strings.Contains(text, card) || strings.Contains(text, "Lovelace") || strings.Contains(text, "printed by code") {
		t.Error("the server's own log holds what code was given or printed")
	}
}

func arguments(t *testing.T, w *coder) {
	echo := w.reactor(`module.exports = async (req) => ({ raw: { args: req.args, configuration: req.configuration, bt: req.bt } })`)
	for name, test := range map[string]struct{ body, want string }{
		"none":                       {`{}`, `null`},
		"null":                       {`{"args":null}`, `null`},
		"plain ones":                 {`{"args":{"a":[1.50,null,true,"x"],"unknown":{}}}`, `{"a":[1.5,null,true,"x"],"unknown":{}}`},
		"a token whole":              {`{"args":{"card":"{{card}}"}}`, `{"card":{"number":"` + card + `","expiration_month":12,"expiration_year":2040,"cvc":"123"}}`},
		"a part of one":              {`{"args":{"n":"{{ card | json: '$.number' }}","month":"{{ card | json: '$.expiration_month' }}"}}`, `{"n":"` + card + `","month":12}`},
		"several in a text":          {`{"args":{"t":"{{name}} pays {{ both }} with {{ card | json: '$.number' | last4 }}."}}`, `{"t":"Ada Lovelace pays 7.50 with 4242."}`},
		"one more than once":         {`{"args":{"a":"{{name}}","b":["{{ name }}"]}}`, `{"a":"Ada Lovelace","b":["Ada Lovelace"]}`},
		"all of them in one":         {`{"args":"{{card}}"}`, `{"number":"` + card + `","expiration_month":12,"expiration_year":2040,"cvc":"123"}`},
		"names are no expressions":   {`{"args":{"{{name}}":1}}`, `{"{{name}}":1}`},
		"the other spelling is none": {`{"args":{"a":"{ {name} }"}}`, `{"a":"{ {name} }"}`},
	} {
		w.wants(name, w.react(echo, "user", test.body), 200, `{"raw":{"args":`+test.want+`,"configuration":{"NAME":"value"},"bt":null}}`)
	}
	w.token(`{"id":"text","type":"token","data":"{{name}}"}`)
	w.wants("a value is not evaluated again", w.react(echo, "user", `{"args":{"a":"{{text}}"}}`), 200, `{"raw":{"args":{"a":"{{name}}"},"configuration":{"NAME":"value"},"bt":null}}`)
	w.wants("validation comes after detokenization", w.react(echo, "user", `{"args":"{{name}}"}`), 400, refused("args", "must be an object"))
	for _, args := range []string{`[]`, `"x"`, `5`, `true`} {
		w.wants("arguments that are "+args, w.react(echo, "user", `{"args":`+args+`}`), 400, refused("args", "must be an object"))
	}

	deep := strings.Repeat(`[`, 60) + strings.Repeat(`]`, 60)
	w.token(`{"id":"deep","type":"token","data":` + deep + `}`)
	w.wants("nested too deep once expanded", w.react(echo, "user", `{"args":{"a":[[[["{{deep}}"]]]]}}`), 400, refused("args", "is nested too deep once its tokens are in it"))

	w.token(`{"id":"large","type":"token","data":"` + strings.Repeat("x", 1<<20) + `"}`)
	four, six := strings.Repeat(`"{{large}}",`, 3)+`"{{large}}"`, strings.Repeat(`"{{large}}",`, 5)+`"{{large}}"`
	count := w.reactor(`module.exports = (req) => ({ raw: req.args.list.join('').length })`)
	w.wants("large, and within the bound", w.react(count, "user", `{"args":{"list":[`+four+`]}}`), 200, `{"raw":4194304}`)
	w.wants("too large once expanded", w.react(count, "user", `{"args":{"list":[`+six+`]}}`), 413, problem(413, "the request is too large once its tokens are in it"))

	var hundred []string
	for i := range 101 {
		w.token(fmt.Sprintf(`{"id":"of-many-%d","type":"token","data":"value %d"}`, i, i))
		hundred = append(hundred, fmt.Sprintf(`"{{of-many-%d}}"`, i))
	}
	if got := w.react(count, "user", `{"args":{"list":[`+strings.Join(append(hundred[:100:100], hundred[:100]...), ",")+`]}}`); got.Status != 200 {
		t.Errorf("a hundred tokens, each twice = %s, want 200", got)
	}
	if got := w.react(count, "user", `{"args":{"list":[`+strings.Join(hundred, ",")+`]}}`); got.Status != 400 || !strings.Contains(got.Body, "too many tokens are named in one request") {
		t.Errorf("a hundred and one tokens = %s, want 400", got)
	}
}

func results(t *testing.T, w *coder) {
	const nothingElse = "the code must return nothing, or an object with raw, tokenize or both"
	type result struct {
		code   string
		status int
		want   string
	}
	for name, test := range map[string]result{
		"a default export":     {`exports.default = async (req) => ({ raw: 1 })`, 200, `{"raw":1}`},
		"no function":          {`module.exports = { raw: 1 }`, 422, problem(422, "the code does not export a function")},
		"a module that is not": {`require('no-such-module')`, 422, `{"title":"Unprocessable Entity","status":422,"detail":"<text>"}`},
	} {
		w.wants(name, w.react(w.reactor(test.code), "user", `{}`), test.status, test.want)
	}
	cases := map[string]result{
		"nothing":                {`async () => {}`, 200, `{}`},
		"null":                   {`async () => null`, 200, `{}`},
		"an empty object":        {`async () => ({})`, 200, `{}`},
		"raw of null":            {`async () => ({ raw: null })`, 200, `{"raw":null}`},
		"raw of a text":          {`async () => ({ raw: 'x' })`, 200, `{"raw":"x"}`},
		"raw of a list":          {`() => ({ raw: [1, { a: null }] })`, 200, `{"raw":[1,{"a":null}]}`},
		"raw of nothing":         {`() => ({ raw: undefined })`, 200, `{}`},
		"tokens of nothing":      {`() => ({ tokenize: null })`, 200, `{}`},
		"tokens":                 {`() => ({ raw: 1, tokenize: { a: { type: 'token', data: 'x', id: 'made-by-code' }, b: null } })`, 200, `{"raw":1,"tokens":{"a":"<any>","b":null}}`},
		"a text":                 {`async () => 'x'`, 422, problem(422, nothingElse)},
		"a list":                 {`async () => []`, 422, problem(422, nothingElse)},
		"a member too many":      {`async () => ({ raw: 1, statusCode: 200 })`, 422, problem(422, "the code returned an object with members other than raw and tokenize")},
		"a function":             {`async () => () => 1`, 422, problem(422, "the code returned something that is not JSON")},
		"a circle":               {`async () => { const a = {}; a.a = a; return { raw: a } }`, 422, problem(422, "the code returned something that is not JSON")},
		"a BigInt":               {`async () => ({ raw: 5n })`, 422, problem(422, "the code returned something that is not JSON")},
		"too much":               {`async () => ({ raw: 'x'.repeat(5 << 20) })`, 422, problem(422, "the code was given or returned more than 5 MiB")},
		"too deep for JSON":      {`async () => { let a = 1; for (let i = 0; i < 100; i++) a = [a]; return { raw: a } }`, 422, problem(422, "the code returned something that is not JSON")},
		"no end":                 {`() => new Promise(() => {})`, 422, problem(422, "the code's promise can never settle")},
		"its process":            {`() => process.exit(0)`, 422, problem(422, "the code ended its process")},
		"numbers as JSON has it": {`(req) => ({ raw: [1.50, 1e21, -0] })`, 200, `{"raw":[1.5,1e+21,0]}`},
		"halves of surrogates":   {`(req) => ({ raw: 'a\ud800b' })`, 422, `"<any>"`},
	}
	codes := map[string]string{}
	for name, test := range cases {
		codes[name] = test.code
	}
	id := w.reactor(oneOf(codes))
	for name, test := range cases {
		w.wants(name, w.react(id, "user", `{"args":{"case":`+jsonText(name)+`}}`), test.status, test.want)
	}
}

// oneOf is a program of many functions, one of which args.case chooses.
func oneOf(functions map[string]string) string {
	var b strings.Builder
	b.WriteString("const cases = {};\n")
	for name, function := range functions {
		b.WriteString("cases[" + jsonText(name) + "] = " + function + ";\n")
	}
	return b.String() + "module.exports = (req) => cases[req.args.case](req);"
}

// thrownErrors: every class, by the name that published code requires and by ours.
func thrownErrors(t *testing.T, w *coder) {
	id := w.reactor(`
		const theirs = require('@basis-theory/basis-theory-reactor-formulas-sdk-js');
		const ours = require('tokenkeep/errors');
		module.exports = async ({ args }) => {
			const { name, status, argument } = args;
			if (args.own) throw { name, status, message: 'of its own' };
			throw new (args.ours ? ours : theirs)[name](args.error ? new Error(argument) : argument);
		}`)
	for _, class := range []struct {
		name, detail string
		status       int
	}{
		{"BadRequestError", "Bad Request", 400}, {"InvalidReactorConfigurationError", "Invalid Reactor Configuration", 400},
		{"AuthenticationError", "Authentication Failed", 401}, {"InvalidPaymentMethodError", "Invalid Payment Method", 402},
		{"AuthorizationError", "Forbidden", 403}, {"RateLimitError", "Rate Limit Exceeded", 429},
		{"ReactorRuntimeError", "Reactor Runtime Error", 500}, {"ServiceUnavailableError", "Service Unavailable", 503},
	} {
		for args, errors := range map[string]string{
			`{}`:                              "",
			`{"ours":true,"argument":"why"}`:  `,"errors":{"error":["why"]}`,
			`{"argument":["one","two"]}`:      `,"errors":{"error":["one","two"]}`,
			`{"argument":"why","error":true}`: `,"errors":{"error":["why"]}`,
			`{"argument":{"number":["is wrong"],"cvc":["is missing","or not"]}}`: `,"errors":{"number":["is wrong"],"cvc":["is missing","or not"]}`,
			`{"own":true}`: `,"errors":{"error":["of its own"]}`,
		} {
			args = strings.Replace(args, "{", fmt.Sprintf(`{"name":%q,"status":%d,`, class.name, class.status), 1)
			got := w.react(id, "user", `{"args":`+strings.Replace(args, ",}", "}", 1)+`}`)
			w.wants(class.name+" with "+args, got, class.status,
				fmt.Sprintf(`{"title":%q,"status":%d,"detail":%q%s}`, http.StatusText(class.status), class.status, class.detail, errors))
			if wait := got.Header.Get("Retry-After"); (wait != "") != (class.status == 429 || class.status == 503) {
				t.Errorf("%s: Retry-After is %q", class.name, wait)
			}
		}
	}
	type throw struct{ code, detail string }
	throws := map[string]throw{
		"a message":             {`throw new Error('no luck')`, "no luck"},
		"no message":            {`throw new Error()`, "Error"},
		"a text":                {`throw 'a text'`, "a text"},
		"nothing":               {`throw undefined`, "undefined"},
		"another status":        {`throw { name: 'AuthenticationError', status: 500, message: 'theirs' }`, "theirs"},
		"a library's own class": {`throw Object.assign(new Error('bad merchant key'), { name: 'AuthenticationError' })`, "bad merchant key"},
		"a rejection":           {`return Promise.reject(new TypeError('typed'))`, "typed"},
		"a long message":        {`throw new Error('é'.repeat(3000))`, strings.Repeat("é", 2000) + "…"},
		"beside the run":        {`setTimeout(() => { throw new Error('later') }, 1); return new Promise((done) => setTimeout(done, 5000))`, "later"},
	}
	codes := map[string]string{}
	for name, test := range throws {
		codes[name] = "(req) => { " + test.code + " }"
	}
	plain := w.reactor(oneOf(codes))
	for name, test := range throws {
		got := w.react(plain, "user", `{"args":{"case":`+jsonText(name)+`}}`)
		w.wants(name, got, 422, problem(422, test.detail))
		if strings.Contains(got.Body, "/program") || strings.Contains(got.Body, "at ") {
			t.Errorf("%s: the stack is told: %s", name, got)
		}
	}
}

// customStatus is the message for a custom response with another status.
const customStatus = "the status of a CustomHttpResponseError must be an integer from 200 to 599"

func customAnswers(t *testing.T, w *coder) {
	id := w.reactor(`
		const { CustomHttpResponseError } = require('tokenkeep/errors');
		module.exports = async ({ args }) => { throw new CustomHttpResponseError(args); }`)
	for name, test := range map[string]struct {
		args   string
		status int
		media  string
		body   string
	}{
		"an object":        {`{"status":418,"headers":{"X-Tea":"pot"},"body":{"short":true}}`, 418, "application/json", `{"short":true}`},
		"a text":           {`{"status":200,"body":"plain"}`, 200, "text/plain; charset=utf-8", "plain"},
		"a page":           {`{"status":200,"headers":{"content-type":"text/html"},"body":"<p>"}`, 200, "text/html", "<p>"},
		"a number":         {`{"status":201,"body":0}`, 201, "application/json", `0`},
		"nothing":          {`{"status":202}`, 202, "application/json", `{}`},
		"no content":       {`{"status":204}`, 204, "", ""},
		"an error":         {`{"status":503,"body":{"later":1}}`, 503, "application/json", `{"later":1}`},
		"a token's value":  {`{"status":200,"body":"{{name}}"}`, 200, "text/plain; charset=utf-8", "Ada Lovelace"},
		"a place":          {`{"status":201,"headers":{"Location":"https://x.example/"},"body":""}`, 201, "text/plain; charset=utf-8", ""},
		"the last status":  {`{"status":599,"body":{"a":1}}`, 599, "application/json", `{"a":1}`},
		"no answer at all": {`{"status":199}`, 422, "application/json", problem(422, customStatus)},
		"no status at all": {`{"status":600}`, 422, "application/json", problem(422, customStatus)},
		"half a status":    {`{"status":200.5}`, 422, "application/json", problem(422, customStatus)},
	} {
		got := w.react(id, "user", `{"args":`+test.args+`}`)
		if got.Status != test.status || test.status != 422 && got.Body != test.body || test.status == 422 && !isProblem(t, got.Body, test.body) || test.media != "" && got.Header.Get("Content-Type") != test.media {
			t.Errorf("%s = %s of type %q, want %d %s of type %q", name, got, got.Header.Get("Content-Type"), test.status, test.body, test.media)
		}
		if test.status != 422 && (got.Header.Get("Content-Security-Policy") != "sandbox" || got.Header.Get("X-Content-Type-Options") != "nosniff") {
			t.Errorf("%s is not guarded: %v", name, got.Header)
		}
	}
	got := w.react(id, "user", `{"args":{"status":200,"body":"x","headers":{"X-Kept":"yes","x-number":5,"Set-Cookie":"a=b","Content-Length":"999","Transfer-Encoding":"chunked",
		"Content-Encoding":"gzip","Connection":"close","SVC-TRACE-ID":"theirs","svc-idempotent-replayed":"true","Access-Control-Allow-Origin":"https://evil.example",
		"Content-Security-Policy":"none","Clear-Site-Data":"*","NEL":"{}","Report-To":"{}","Strict-Transport-Security":"max-age=0","X-Content-Type-Options":"no",
		"X-Split":"a\r\nSet-Cookie: c=d","X Space":"no"}}}`)
	if got.Status != 200 || got.Body != "x" || got.Header.Get("X-Kept") != "yes" || got.Header.Get("X-Number") != "5" {
		t.Errorf("an answer with headers = %s %v", got, got.Header)
	}
	for _, name := range []string{"Set-Cookie", "Transfer-Encoding", "Content-Encoding", "Clear-Site-Data", "Nel", "Report-To", "Strict-Transport-Security", "X-Split", "SVC-IDEMPOTENT-REPLAYED"} {
		if value := got.Header.Values(name); len(value) > 0 {
			t.Errorf("code set %s: %q", name, value)
		}
	}
	if got.Header.Get("SVC-TRACE-ID") == "theirs" || got.Header.Get("Access-Control-Allow-Origin") != "*" || got.Header.Get("Content-Security-Policy") != "sandbox" {
		t.Errorf("code changed a header of ours: %v", got.Header)
	}
}

func reactorAccess(t *testing.T, w *coder) {
	echo := w.reactor(`module.exports = async (req) => ({ raw: req.args })`)
	lacks := func(p string) string { return problem(403, "missing permission "+p) }
	rule := func(container, transform string) api.CreateApplication {
		return api.CreateApplication{Type: "private", Rules: []api.Rule{{Container: container, Transform: transform, Permissions: []string{"token:use"}}}}
	}
	w.application("reader", private("token:read", "token:create"))
	w.application("people", rule("/people/", "reveal"))
	w.application("masked", rule("/", "mask"))
	w.application("redacted", rule("/", "redact"))
	for name, test := range map[string]struct {
		who, args string
		status    int
		want      string
	}{
		"nobody without token:use":         {"reader", `{}`, 403, lacks("token:use")},
		"its own container":                {"people", `{"a":"{{name}}"}`, 200, `{"raw":{"a":"Ada Lovelace"}}`},
		"another container":                {"people", `{"a":"{{name}}","b":"{{card}}"}`, 403, lacks("token:use")},
		"one of two containers":            {"people", `{"a":"{{both}}"}`, 403, lacks("token:use")},
		"a mask in place of the value":     {"masked", `{"a":"{{name}}"}`, 200, `{"raw":{"a":"XXXXXXXXlace"}}`},
		"a redacted one is not used":       {"redacted", `{"a":"{{name}}"}`, 403, `"<any>"`},
		"a token that is not there":        {"user", `{"a":"{{name}}","b":"{{no-such}}","c":"{{nor-this}}"}`, 400, problem(400, "Failed to detokenize some tokens: no-such, nor-this")},
		"a card number where an id is due": {"user", `{"a":"{{` + card + `}}","b":"{{no-such}}"}`, 400, problem(400, "Failed to detokenize some tokens: no-such")},
		"an expression that is none":       {"user", `{"a":"{{ name | nonsense }}"}`, 400, `"<any>"`},
	} {
		w.wants(name, w.react(echo, test.who, `{"args":`+test.args+`}`), test.status, test.want)
	}
	other := w.server.Tenant(t).Tenant.ID
	key := w.server.Application(t, other, private("token:use")).Key
	w.wants("another tenant", w.server.Call(t, "POST", "/reactors/"+echo+"/react", key, `{}`), 404, problem(404, "no such reactor"))
	w.wants("nothing", w.react("{nothing}", "user", `{}`), 404, problem(404, "no such reactor"))
	w.wants("a management key", w.react(echo, "manager", `{}`), 403, `"<any>"`)
}

// protectedValues: what code says of an error does not repeat what it was given.
func protectedValues(t *testing.T, w *coder) {
	w.token(`{"id":"bin","type":"token","data":"424242"}`)
	w.token(`{"id":"short","type":"token","data":"12345"}`)
	w.token(`{"id":"digits","type":"token","data":9876543}`)
	id := w.reactor(`
		const { BadRequestError } = require('tokenkeep/errors');
		module.exports = async ({ args }) => {
			if (args.list) throw new BadRequestError({ [args.text]: [args.text, 'fine'] });
			throw new Error([].concat(args.text).join(' '));
		}`)
	for name, test := range map[string]struct{ args, want string }{
		"a card":                 {`{"text":["no","{{ card | json: '$.number' }}","here"]}`, "no [protected] here"},
		"its first digits too":   {`{"text":["{{ card | json: '$.number' }}","{{bin}}","/"]}`, "[protected] [protected] /"},
		"what overlaps":          {`{"text":"424242424242424242","b":"{{bin}}","c":"{{card}}"}`, "[protected]"},
		"a number":               {`{"text":["{{digits}}","!"]}`, "[protected] !"},
		"a short one":            {`{"text":["{{short}}","is short"]}`, "12345 is short"},
		"with the text around":   {`{"text":"pay with {{short}}"}`, "[protected]"},
		"what a filter made":     {`{"text":"{{ name | upcase }}"}`, "[protected]"},
		"plain text":             {`{"text":"plain text","b":"{{card}}"}`, "plain text"},
		"twice in what was sent": {`{"text":"Ada Lovelace and Ada Lovelace","b":"{{name}}"}`, "[protected] and [protected]"},
	} {
		w.wants(name, w.react(id, "user", `{"args":`+test.args+`}`), 422, problem(422, test.want))
	}
	w.wants("in the lists of a class", w.react(id, "user", `{"args":{"list":true,"text":"{{name}}"}}`), 400,
		`{"title":"Bad Request","status":400,"detail":"Bad Request","errors":{"[protected]":["[protected]","fine"]}}`)
}

func invocations(t *testing.T, w *coder) {
	id := w.reactor(`module.exports = async () => ({ raw: 1 })`)
	const range_ = "must be a whole number from 10000 to 210000"
	for body, want := range map[string]string{
		`[]`:                            problem(400, "the body must be a JSON object"),
		`"x"`:                           problem(400, "the body must be a JSON object"),
		`{"timeout_ms":10000}`:          refused("timeout_ms", "is for asynchronous requests: give a callback_url too"),
		`{"timeoutMs":10000}`:           refused("timeout_ms", "is for asynchronous requests: give a callback_url too"),
		`{"timeout_ms":9999}`:           refused("timeout_ms", range_),
		`{"timeout_ms":210001}`:         refused("timeout_ms", range_),
		`{"timeout_ms":"20000"}`:        refused("timeout_ms", range_),
		`{"timeout_ms":20000.5}`:        refused("timeout_ms", range_),
		`{"timeout_ms":18446744073729}`: refused("timeout_ms", range_),
		`{"callback_url":5}`:            refused("callback_url", "must be a URL"),
		`{"callback_url":""}`:           refused("callback_url", "must be a URL"),
	} {
		w.wants(body, w.react(id, "user", body), 400, want)
	}
	for _, body := range []string{`{"timeout_ms":null,"callback_url":null,"args":null}`, `{"unknown":1}`} {
		w.wants(body, w.react(id, "user", body), 200, `{"raw":1}`)
	}
	if got := w.server.Call(t, "POST", "/reactors/"+id+"/react", w.names["user_key"], ""); got.Status != 200 || got.Body != `{"raw":1}` {
		t.Errorf("no body = %s, want what no arguments give", got)
	}
	for _, address := range []string{"https://169.254.169.254/latest", "ftp://x.example", "nonsense", "https://user:pass@x.example/"} {
		if got := w.react(id, "user", `{"callback_url":"`+address+`"}`); got.Status != 400 || !strings.Contains(got.Body, `"callback_url"`) || strings.Contains(got.Body, address) {
			t.Errorf("a callback to %s = %s, want 400 that does not repeat it", address, got)
		}
	}
}

func codeThatDoesNotParse(t *testing.T, w *coder) {
	storetest.Long(t)
	bad := func(code string) string { return `{"name":"x","code":` + jsonText(code) + `,"configuration":{}}` }
	for code, message := range map[string]string{
		"let a = 1;\nlet b = 'secret' x;":   "does not parse: line 2, column 18: Unexpected identifier",
		"module.exports = async (req) => {": "does not parse: line 1, column 34: Unexpected end of input",
		"import x from 'y'":                 "does not parse: line 1, column 1: Cannot use import statement outside a module",
	} {
		for _, call := range []string{"POST /reactors", "PUT /reactors/{reactor}", "PATCH /reactors/{reactor}"} {
			w.names["reactor"] = "{nothing}"
			method, path, _ := strings.Cut(w.fill(call), " ")
			got := w.server.Call(t, method, w.fill(path), w.manager.Key, bad(code))
			var p api.Problem
			got.Into(t, 400, &p)
			if len(p.Errors["code"]) != 1 || !strings.HasPrefix(p.Errors["code"][0], message) || strings.Contains(got.Body, "secret") {
				t.Errorf("%s with %q = %s, want %q", call, code, got, message)
			}
			got.CheckProblem(t)
		}
	}
	w.reactor("with ({ a: 1 }) { var b = a }; var public = 010; module.exports = () => ({ raw: b + public })") // sloppy mode
	w.reactor("#!/usr/bin/env node\nmodule.exports = () => {}")
	w.reactor("const x = require('a-module-that-is-not-there'); module.exports = () => x")
}

// inWhoseName: code acts as its application.
func inWhoseName(t *testing.T, w *coder) {
	storetest.Long(t)
	id := w.reactor(`
		module.exports = async (req) => {
			try {
				const made = await req.bt.tokens.create({ type: 'token', data: 'x', metadata: { snake_case: 'kept' } });
				return { raw: { by: made.createdBy, metadata: made.metadata, key: Object.values(req.bt).some((v) => String(v).startsWith('key_')) } };
			} catch (e) {
				return { raw: { status: e.status, detail: e.data && e.data.detail } };
			}
		}`, `"application":{"id":"{all}"}`)
	w.wants("the reactor's application", w.react(id, "user", `{}`), 200, `{"raw":{"by":"{all}","metadata":{"snake_case":"kept"},"key":false}}`)

	w.application("public", api.CreateApplication{Type: "public", Permissions: []string{"token:update"}})
	weak := w.reactor(`
		module.exports = async (req) => {
			try { await req.bt.tokens.create({ type: 'token', data: 'x' }); } catch (e) { return { raw: { status: e.status, detail: e.data.detail } }; }
		}`, `"application":{"id":"{public}"}`)
	w.wants("no more than it may", w.react(weak, "user", `{}`), 200, `{"raw":{"status":403,"detail":"missing permission token:create"}}`)

	expiring := private("token:create")
	expiring.ExpiresAt = api.Time{Time: w.clock.Now().Add(time.Minute)}
	w.application("expiring", expiring)
	late := w.reactor(`module.exports = async () => ({ raw: 1 })`, `"application":{"id":"{expiring}"}`)
	w.clock.Advance(2 * time.Minute)
	w.wants("an expired application is not the caller's key", w.react(late, "user", `{}`), 422, problem(422, "the application that this code acts for has expired or is gone"))

	outer := w.reactor(`module.exports = async (req) => ({ raw: await req.bt.reactors.react(req.args.self, { args: { self: req.args.self } }).then((r) => r.raw + 1, (e) => e.status === 422 ? 1 : String(e)) })`, `"application":{"id":"{all}"}`)
	w.wants("three deep", w.react(outer, "user", `{"args":{"self":"`+outer+`"}}`), 200, `{"raw":3}`)
}

// sendingAgain: code runs once under one idempotency key, unless it failed.
func sendingAgain(t *testing.T, w *coder) {
	id := w.reactor(`
		const { CustomHttpResponseError } = require('tokenkeep/errors');
		const { randomUUID } = require('crypto');
		module.exports = async ({ args }) => {
			const n = randomUUID(); // a count would be of one node's process
			if (args.fail) throw new Error('run ' + n);
			if (args.status) throw new CustomHttpResponseError({ status: args.status, headers: { 'X-Run': n }, body: 'run ' + n });
			return { raw: n, tokenize: args.tokenize };
		}`)
	again := func(key, args string) (first, second string, replayed bool) {
		a := w.react(id, "user", `{"args":`+args+`}`, "SVC-IDEMPOTENCY-KEY", key)
		b := w.react(id, "user", `{"args":`+args+`}`, "SVC-IDEMPOTENCY-KEY", key)
		if a.Header.Get("X-Run") != "" && b.Header.Get("SVC-IDEMPOTENT-REPLAYED") != "" && (a.Header.Get("X-Run") != b.Header.Get("X-Run") || b.Header.Get("Content-Security-Policy") != "sandbox") {
			t.Errorf("the answer came again with headers %v", b.Header)
		}
		return a.String(), b.String(), b.Header.Get("SVC-IDEMPOTENT-REPLAYED") == "true"
	}
	for args, kept := range map[string]bool{
		`{}`: true, `{"tokenize":["a"]}`: true, `{"status":200}`: true, `{"status":299}`: true, `{"status":302}`: false, `{"status":402}`: false, `{"fail":true}`: false,
	} {
		first, second, replayed := again("key "+args, args)
		if replayed != kept || (first == second) != kept {
			t.Errorf("%s: %s, and again %s, replayed %t; want it kept: %t", args, first, second, replayed, kept)
		}
	}
}

// securityCode: a kept answer goes with the security code that it was made from,
// and the code does not run again for that.
func securityCode(t *testing.T, w *coder) {
	id := w.reactor(`module.exports = ({ args }) => ({ raw: [require('crypto').randomUUID(), args.card.cvc] })`)
	w.token(`{"id":"with cvc","type":"card","data":{"number":"` + card + `","expiration_month":12,"expiration_year":2040,"cvc":"987"}}`)
	react := func(key string) string {
		return w.react(id, "user", `{"args":{"card":"{{ with cvc }}"}}`, "SVC-IDEMPOTENCY-KEY", key).String()
	}
	first := react("one")
	if again := react("one"); !strings.HasPrefix(first, `200 {"raw":["`) || !strings.HasSuffix(first, `","987"]}`) || again != first {
		t.Errorf("within the hour = %s, and then %s, want the run with the code, twice", first, again)
	}
	w.clock.Advance(2 * time.Hour)
	if got := react("one"); !isProblem(t, strings.TrimPrefix(got, "409 "), problem(409, "the result is no longer available")) {
		t.Errorf("two hours later = %s, want 409", got)
	}
	if got := react("two"); !strings.HasPrefix(got, `200 {"raw":["`) || !strings.HasSuffix(got, `",null]}`) || got[:40] == first[:40] {
		t.Errorf("a new request = %s, want another run than %s, without the code", got, first)
	}
}

// asynchronous: a result is there for the one who asked, for a day.
func asynchronous(t *testing.T, w *coder) {
	watch := w.server.Client.Transport.(*openapitest.Watch)
	watch.Except("GET /reactors/{id}/results/{request_id}") // two of them are answers of code
	defer watch.Except("")
	id := w.reactor(`
		const { InvalidPaymentMethodError, CustomHttpResponseError } = require('tokenkeep/errors');
		module.exports = async ({ args }) => {
			if (args.fail) throw new Error('no ' + args.fail);
			if (args.declined) throw new InvalidPaymentMethodError('declined');
			if (args.status) throw new CustomHttpResponseError({ status: args.status, body: { own: true } });
			return { raw: { got: args.name }, tokenize: args.name };
		}`)
	for name, test := range map[string]struct {
		args   string
		status int
		want   string
	}{
		"a result":             {`{"name":"{{name}}"}`, 200, `{"raw":{"got":"Ada Lovelace"},"tokens":"<any>"}`},
		"a failure":            {`{"fail":"hope for {{name}}"}`, 422, problem(422, "no [protected]")},
		"a failure of a class": {`{"declined":true}`, 402, `{"title":"Payment Required","status":402,"detail":"Invalid Payment Method","errors":{"error":["declined"]}}`},
		"an answer of its own": {`{"status":201}`, 201, `{"own":true}`},
		"a refusal of its own": {`{"status":402}`, 402, `{"own":true}`},
		"the last status":      {`{"status":599}`, 599, `{"own":true}`},
		"no answer at all":     {`{"status":199}`, 422, problem(422, customStatus)},
	} {
		started := w.server.Call(t, "POST", "/reactors/"+id+"/react-async", w.names["user_key"], `{"args":`+test.args+`,"timeout_ms":210000}`)
		w.wants(name, started, 202, `{"asyncReactorRequestId":"<uuid>"}`)
		request := fmt.Sprint(member(decode(t, started.Body), "asyncReactorRequestId"))
		path := "/reactors/" + id + "/results/" + request
		if got := started.Header.Get("Location"); got != path {
			t.Errorf("%s: Location is %q, want %q", name, got, path)
		}
		w.clock.Advance(time.Second)
		var got keeptest.Answer
		waittest.Until(t, "the result is there", func() bool {
			got = w.server.Call(t, "GET", path, w.names["user_key"], "")
			return got.Status != 404
		})
		w.wants(name, got, test.status, test.want)
		w.wants(name+" for another application", w.server.Call(t, "GET", path, w.names["all_key"], ""), 404, problem(404, "no such result, or not yet"))
		w.wants(name+" of another reactor", w.server.Call(t, "GET", "/reactors/"+w.names["nothing"]+"/results/"+request, w.names["user_key"], ""), 404, problem(404, "no such result, or not yet"))
	}
	w.wants("what is wrong is told at once", w.server.Call(t, "POST", "/reactors/"+id+"/react-async", w.names["user_key"], `{"args":{"a":"{{no-such}}"}}`), 400,
		problem(400, "Failed to detokenize some tokens: no-such"))
}

func runsOfReactors(t *testing.T, w *coder) {
	id := w.reactor(`
		module.exports = async ({ args }) => {
			console.log('printed by code', args.n); console.error(new Error('x').message); console.debug({ a: [1] });
			if (args.n === 2) throw new Error('failed');
		}`)
	for n := range 3 {
		w.clock.Advance(time.Second)
		w.react(id, "user", fmt.Sprintf(`{"args":{"n":%d}}`, n))
	}
	run := func(n int, failed bool) string {
		return fmt.Sprintf(`{"id":"<uuid>","started_at":"<time>","took_us":"<any>","memory_bytes":"<any>","failed":%t,"console":[
			{"level":"log","text":"printed by code %d"},{"level":"error","text":"x"},{"level":"debug","text":"{ a: [ 1 ] }"}]}`, failed, n)
	}
	list := func() keeptest.Answer {
		return w.server.Call(t, "GET", "/reactors/"+id+"/runs?size=2", w.manager.Key, "")
	}
	// The node on which it ran lists a run at once, the others soon after.
	if w.server.Nodes() > 1 {
		waittest.Until(t, "every node lists three runs", func() bool {
			return fmt.Sprint(member(decode(t, list().Body), "pagination.total_items")) == "3"
		})
	}
	w.wants("newest first", list(), 200,
		`{"pagination":{"total_items":3,"page_number":1,"page_size":2,"total_pages":2},"data":[`+run(2, true)+`,`+run(1, false)+`]}`)
	w.wants("without reactor:read", w.server.Call(t, "GET", "/reactors/"+id+"/runs", w.names["all_key"], ""), 403, `"<any>"`)
	w.wants("of nothing", w.server.Call(t, "GET", w.fill("/reactors/{nothing}/runs"), w.manager.Key, ""), 404, problem(404, "no such reactor"))
}

// trialsOfCode runs code that is not saved: who may write code and not use tokens
// gets at no values by it.
func trialsOfCode(t *testing.T, w *coder) {
	try := func(key, body string) keeptest.Answer {
		t.Helper()
		return w.server.Call(t, "POST", "/reactors/try", key, w.fill(body))
	}
	w.wants("a trial", try(w.manager.Key, `{"code":"module.exports = async ({ args, configuration }) => { console.log('said'); return { raw: [args.a, configuration.b], tokenize: 'x' } }","configuration":{"b":"c"},"args":{"a":1}}`), 200,
		`{"raw":[1,"c"],"tokenize":"x","took_us":"<any>","memory_bytes":"<any>","console":[{"level":"log","text":"said"}]}`)
	failed := try(w.manager.Key, `{"code":"module.exports = async () => { throw new Error('no') }"}`)
	if failed.Status != 200 || member(decode(t, failed.Body), "error.status") == nil {
		t.Errorf("a trial that throws = %s", failed)
	}
	w.wants("code that does not parse", try(w.manager.Key, `{"code":"}"}`), 400, `"<any>"`)
	w.wants("no code", try(w.manager.Key, `{}`), 400, `"<any>"`)
	for _, body := range []string{`{"code":"module.exports = async ({ args }) => ({ raw: args })","args":{"a":"{{ card }}"}}`, `{"code":"module.exports = async () => ({})","application_id":"{user}"}`} {
		if got := try(w.manager.Key, body); got.Status != 403 {
			t.Errorf("a trial with tokens and without token:use = %s, want 403", got)
		}
	}
	w.wants("without reactor:update", try(w.names["all_key"], `{"code":"1"}`), 403, `"<any>"`)
	list := w.server.Call(t, "GET", "/logs?entity_type=reactor&entity_id=*&size=1&operation=use&outcome=allowed", w.manager.Key, "")
	if got := fmt.Sprint(member(decode(t, list.Body), "data.0.message")); got != "Reactor code used" {
		t.Errorf("the log has %q of a trial", got)
	}
}

// runIDs finds the run of a response, also of one that failed.
func runIDs(t *testing.T, w *coder) {
	id := w.reactor(`module.exports = async ({ args }) => { if (args.fail) throw new Error('no'); return { raw: 1 } }`)
	want := make(map[string]bool)
	for _, body := range []string{`{"args":{}}`, `{"args":{"fail":true}}`} {
		got := w.server.Call(t, "POST", "/reactors/"+id+"/react", w.names["user_key"], body)
		run := got.Header.Get("SVC-RUN-ID")
		if run == "" {
			t.Fatalf("the response %s has no id of a run", got)
		}
		want[run] = true
	}
	waittest.Until(t, "both runs are listed", func() bool {
		var list api.List[api.Run]
		w.server.Call(t, "GET", "/reactors/"+id+"/runs", w.manager.Key, "").Into(t, 200, &list)
		return len(list.Data) == 2 && want[list.Data[0].ID] && want[list.Data[1].ID]
	})
}

func reactorLog(t *testing.T, w *coder) {
	id := w.reactor(`module.exports = async (req) => ({ raw: 1 })`)
	w.token(`{"id":"logged","type":"token","data":"x"}`)
	w.clock.Advance(time.Second)
	w.react(id, "user", `{"args":{"a":"{{logged}}","b":"{{logged}}"}}`)
	w.react(id, "user", `{"args":{"a":"{{no-such}}"}}`)
	entry := func(kind, id, operation, message, shown string) string {
		return fmt.Sprintf(`{"id":"<id>","tenant_id":"{tenant}","actor_id":"{user}","actor_type":"application","entity_type":%q,"entity_id":%q,"operation":%q,"message":%q,
			"created_at":"<time>","trace_id":"<trace>","outcome":"allowed","client_address":"127.0.0.1","actor_name":"<any>"%s}`, kind, id, operation, message, shown)
	}
	for path, want := range map[string]string{
		"/logs?entity_type=token&entity_id=logged&size=1":       entry("token", "logged", "use", "Token used by reactor", `,"transform":"reveal"`),
		"/logs?entity_type=reactor&entity_id=" + id + "&size=1": entry("reactor", id, "use", "Reactor used", ""),
	} {
		got := w.server.Call(t, "GET", path, w.manager.Key, "")
		data, _ := member(decode(t, got.Body), "data").([]any)
		if len(data) != 1 {
			t.Errorf("GET %s = %s", path, got)
			continue
		}
		if d := compare("", decode(t, w.fill(want)), data[0]); d != "" {
			t.Errorf("GET %s: %s\nin %s", path, d, got)
		}
	}
}

// reactorRefusals: the log names each token that was refused, and the reactor
// when the caller may use no tokens at all.
func reactorRefusals(t *testing.T, w *coder) {
	id := w.reactor(`module.exports = async (req) => ({ raw: req.args })`)
	for _, name := range []string{"near", "far", "farther"} {
		w.token(`{"id":"` + name + `","type":"card_number","data":"` + card + `","containers":["/` + name + `/"]}`)
	}
	use := func(transform string, containers ...string) (rules []api.Rule) {
		for _, c := range containers {
			rules = append(rules, api.Rule{Container: c, Transform: transform, Permissions: []string{"token:use"}})
		}
		return rules
	}
	w.application("near", api.CreateApplication{Type: "private", Rules: use("reveal", "/near/")})
	w.application("none", private("token:read"))
	denied := func(call string, got keeptest.Answer, want ...string) {
		t.Helper()
		if got.Status != 403 {
			t.Errorf("%s = %s, want 403", call, got)
		}
		trace := got.Header.Get("SVC-TRACE-ID")
		for _, entity := range []string{"near", "far", "farther", id} {
			var list api.List[api.LogEntry]
			w.server.Call(t, "GET", "/logs?size=100&entity_id="+entity, w.manager.Key, "").Into(t, 200, &list)
			for _, e := range list.Data {
				if e.TraceID == trace {
					found := e.Outcome + " " + e.EntityType + " " + e.EntityID + " " + e.Message
					i := slices.Index(want, found)
					if i < 0 {
						t.Errorf("%s: the log has %q", call, found)
						continue
					}
					want = slices.Delete(want, i, i+1)
				}
			}
		}
		if len(want) > 0 {
			t.Errorf("%s: the log lacks %q", call, want)
		}
	}
	const far, farther = "denied card_number far Token use denied", "denied card_number farther Token use denied"
	denied("one of three tokens", w.react(id, "near", `{"args":{"a":["{{near}}","{{far}}","{{near}}"]}}`), far)
	denied("two of three tokens", w.react(id, "near", `{"args":{"a":["{{far}}","{{near}}","{{farther}}","{{no-such}}"]}}`), far, farther)
	denied("no tokens at all", w.react(id, "none", `{"args":{"a":"{{near}}"}}`), "denied reactor "+id+" Reactor use denied")
	denied("starting", w.server.Call(t, "POST", "/reactors/"+id+"/react-async", w.names["near_key"], `{"args":{"a":"{{far}}"}}`), far)

	var started api.AsyncReactor
	w.server.Call(t, "POST", "/reactors/"+id+"/react-async", w.names["near_key"], `{"args":{"a":"{{near}}"}}`).Into(t, 202, &started)
	path := "/reactors/" + id + "/results/" + started.AsyncReactorRequestID
	w.clock.Advance(time.Second)
	var got keeptest.Answer
	waittest.Until(t, "the result is there", func() bool {
		got = w.server.Call(t, "GET", path, w.names["near_key"], "")
		return got.Status != 404
	})
	w.wants("the result", got, 200, `{"raw":{"a":"`+card+`"}}`)
	replace := api.ReplaceApplication{Name: "near", Rules: use("mask", "/near/")}
	if got := w.server.Call(t, "PUT", "/applications/"+w.names["near"], w.manager.Key, jsonText(replace)); got.Status != 200 {
		t.Fatalf("PUT /applications = %s", got)
	}
	denied("a result made with more access than now", w.server.Call(t, "GET", path, w.names["near_key"], ""), "denied card_number near Token use denied")
	var wanted api.AsyncReactor
	tokenizing := w.reactor(`module.exports = async () => ({ tokenize: 'x' })`)
	w.clock.Advance(time.Second)
	w.server.Call(t, "POST", "/reactors/"+tokenizing+"/react-async", w.names["near_key"], `{}`).Into(t, 202, &wanted)
	tried := func() bool {
		var list api.List[api.LogEntry]
		w.server.Call(t, "GET", "/logs?size=100&entity_type=token", w.manager.Key, "").Into(t, 200, &list)
		return slices.ContainsFunc(list.Data, func(e api.LogEntry) bool {
			return e.Message == "Token create denied" && e.EntityID == "*" && e.ActorID == w.names["near"]
		})
	}
	waittest.Until(t, "what the code of a job was refused is in the log", tried)
	denied("a result, without token:use", w.server.Call(t, "GET", path, w.names["none_key"], ""), "denied reactor "+id+" Reactor read denied")
}

// TestFullPoolsAreSaidSo: the runs of one reactor beyond its bound are 429, and
// those beyond what the node takes are 503. Nothing ran, and both say when to
// come back. Every node has pools of its own.
func TestFullPoolsAreSaidSo(t *testing.T) {
	storetest.Long(t)
	w := newCoderWith(t, keeptest.Options{Alone: true, Settings: map[string]string{"sandbox.per_program": "1", "sandbox.global": "2", "sandbox.queue": "1"}})
	var ids []string
	for range 4 {
		ids = append(ids, w.reactor(`module.exports = ({ args }) => new Promise((done, failed) =>
			require('http').get(args.gate, (r) => { r.resume(); r.on('end', () => done()) }).on('error', failed))`))
	}
	for name, test := range map[string]struct {
		ids  []string
		want map[int]int
	}{
		"one reactor":   {[]string{ids[0], ids[0], ids[0]}, map[int]int{200: 1, 429: 2}},
		"many reactors": {ids, map[int]int{200: 3, 503: 1}},
	} {
		// Those that run wait until the others were refused.
		open := make(chan struct{})
		gate := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-open }))
		refused := len(test.ids) - test.want[200]
		var group sync.WaitGroup
		var mu sync.Mutex // guards got
		got := map[int]int{}
		for _, id := range test.ids {
			group.Go(func() {
				a := w.react(id, "user", `{"args":{"gate":"`+gate.URL+`"}}`)
				mu.Lock()
				defer mu.Unlock()
				got[a.Status]++
				if a.Status != 200 {
					a.CheckProblem(t)
					if refused--; refused == 0 {
						close(open)
					}
				}
				if wait := a.Header.Get("Retry-After"); (wait == "1") != (a.Status != 200) {
					t.Errorf("%s: a %d says Retry-After %q", name, a.Status, wait)
				}
			})
		}
		group.Wait()
		gate.Close()
		if !maps.Equal(got, test.want) {
			t.Errorf("%d runs of %s at once: %v, want %v", len(test.ids), name, got, test.want)
		}
	}
	waittest.Until(t, "the four that ran are listed", func() bool {
		ran := 0
		for _, id := range ids {
			var list api.List[api.Run]
			w.server.Call(t, "GET", "/reactors/"+id+"/runs", w.manager.Key, "").Into(t, 200, &list)
			ran += len(list.Data)
		}
		return ran == 4
	})
}
