package canary_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// garden is a server with somebody who plants values in it.
type garden struct {
	*plants
	*keeptest.Server
	tenant     string
	revealing  string // the keys of applications
	masking    string
	redacting  string
	narrow     string // may do everything in one container and nothing elsewhere
	public     string
	management string

	refusals strings.Builder // all error answers, with their headers
	hidden   strings.Builder // all answers that must not reveal data
	previews strings.Builder // of calls, for a viewer that may read no token
	ids      []string
	refused  int
}

var tokenPermissions = []string{"token:create", "token:read", "token:update", "token:delete", "token:search", "token:use"}

func newGarden(t *testing.T, o keeptest.Options) *garden {
	g := &garden{plants: &plants{t: t}, Server: keeptest.Start(t, o)}
	made := g.Tenant(t)
	g.tenant, g.management = made.Tenant.ID, made.Application.Key
	private := func(container, transform string) string {
		return g.Application(t, g.tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{
			{Description: g.text("description of a rule"), Container: container, Transform: transform, Permissions: tokenPermissions},
		}}).Key
	}
	g.revealing, g.masking, g.redacting, g.narrow = private("/", "reveal"), private("/", "mask"), private("/", "redact"), private("/narrow/", "reveal")
	g.public = g.Application(t, g.tenant, api.CreateApplication{Type: "public", Permissions: []string{"token:create", "token:update"}}).Key
	return g
}

// call sends a request and keeps the answer where it will be searched.
func (g *garden) call(method, path, key, body string, headers ...string) keeptest.Answer {
	g.t.Helper()
	a := g.Call(g.t, method, path, key, body, headers...)
	whole := fmt.Sprint(a.Status, a.Header, "\n", a.Body, "\n")
	if a.Status >= 400 {
		g.refusals.WriteString(whole)
		g.refused++
	}
	reads := method == http.MethodGet || strings.HasSuffix(path, "/search") || path == "/detokenize"
	if !reads || key != g.revealing {
		g.hidden.WriteString(whole)
	}
	return a
}

func (g *garden) want(status int, method, path, key, body string, headers ...string) keeptest.Answer {
	g.t.Helper()
	a := g.call(method, path, key, body, headers...)
	if a.Status != status {
		g.t.Errorf("%s %s = %d, want %d", method, strings.SplitN(path, "?", 2)[0], a.Status, status)
	}
	return a
}

func (g *garden) create(key, body string) string {
	g.t.Helper()
	var made api.Token
	g.want(201, "POST", "/tokens", key, body).Into(g.t, 201, &made)
	g.ids = append(g.ids, made.ID)
	return made.ID
}

// some are the callers that plant: in a short run only the first.
func some(keys ...string) []string {
	if testing.Short() {
		return keys[:1]
	}
	return keys
}

const mergePatch = "application/merge-patch+json"

func (g *garden) patch(status int, key, id, body string) {
	g.t.Helper()
	g.want(status, "PATCH", "/tokens/"+id, key, body, "Content-Type", mergePatch)
}

func quote(s string) string { b, _ := json.Marshal(s); return string(b) }

// plantTokens makes tokens of every type with values in every attribute, and
// does everything with them that can be done.
func (g *garden) plantTokens() {
	word := func(where string) string { return quote(g.text(where)) }
	attributes := func() string {
		return fmt.Sprintf(`"metadata":{"one":%s,"two":%s},"search_indexes":["{{ data | json: '$' | to_string | append: '%s' }}"],`+
			`"fingerprint_expression":"%s{{ data | stringify }}"`, word("metadata"), word("metadata"), g.text("index expression"), g.text("fingerprint expression"))
	}
	for _, key := range some(g.revealing, g.masking, g.redacting, g.public) {
		for range 3 {
			for _, body := range []string{
				fmt.Sprintf(`{"type":"token","data":%s}`, quote(g.secret("data"))),
				fmt.Sprintf(`{"type":"token","data":{"a":[%s,{"b":%s}]},"mask":{"shown":%s},"metadata":{"k":%s}}`,
					quote(g.secret("data")), quote(g.secret("data")), word("mask"), word("metadata")),
				fmt.Sprintf(`{"type":"card","data":{"number":%q,"expiration_month":12,"expiration_year":2031,"cvc":"987"},"metadata":{"k":%s}}`, g.number("card"), word("metadata")),
				fmt.Sprintf(`{"type":"bank","data":{"routing_number":"021000021","account_number":%q}}`, g.account("bank")),
				fmt.Sprintf(`{"type":"card_number","data":%q,"id":"{{ data | alias_preserve_format: 0, 4 }}"}`, g.number("card number")),
				fmt.Sprintf(`{"type":"us_bank_account_number","data":%q}`, g.account("account")),
				fmt.Sprintf(`{"type":"token","data":%s,%s}`, quote(g.secret("data")), attributes()),
			} {
				id := g.create(key, body)
				g.patch(200, g.revealing, id, fmt.Sprintf(`{"metadata":{"k":%s}}`, word("patched metadata")))
			}
		}
	}
	long := strings.Repeat("0123456789", 3000) // larger than a page of the database
	id := g.create(g.revealing, fmt.Sprintf(`{"type":"token","data":{"x":%s,"long":"%s","y":%s}}`, quote(g.secret("data")), long, quote(g.secret("data"))))
	g.patch(200, g.revealing, id, fmt.Sprintf(`{"data":{"x":%s},"mask":%s,"search_indexes":["{{ data.x }}"]}`, quote(g.secret("patched data")), word("patched mask")))
	g.want(200, "POST", "/tokenize", g.revealing, fmt.Sprintf(`{"plain":%s,"list":[%s,{"type":"card","data":{"number":%q}}],"x":{"type":"token","data":%s,"mask":%s}}`,
		quote(g.secret("tokenize")), quote(g.secret("tokenize")), g.number("tokenize"), quote(g.secret("tokenize")), word("mask of tokenize")))
	for range 2 { // the second gets the results of the first
		g.want(200, "POST", "/imports?id=planted", g.revealing, fmt.Sprintf(`{"type":"token","data":%s,"metadata":{"k":%s}}`+"\n"+`{"type":"card","data":{"number":%q}}`+"\n"+`{"type":"card","data":{"number":%s}}`+"\n"+`%s`,
			quote(g.secret("import")), word("metadata of an import"), g.number("import"), quote(g.secret("a line that is rejected")), g.secret("a line that is not JSON")))
	}
	// Nobody has the identity of this recipient.
	var export api.Export
	g.want(201, "POST", "/exports", g.revealing, `{"recipient":"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"}`).Into(g.t, 201, &export)
	g.hidden.WriteString(g.want(200, "GET", "/exports/"+export.ID+"/content", g.revealing, "").Body)
	// With their dashes, without which nine digits may be the end of a time.
	for kind, number := range map[string]string{"social_security_number": "999-" + g.digits(2) + "-" + g.digits(4), "employer_id_number": "99-9" + g.digits(6)} {
		g.data = append(g.data, len(g.values))
		g.create(g.masking, fmt.Sprintf(`{"type":%q,"data":%q}`, kind, g.add(kind, number)))
	}
	// A cvc is too short to look for alone, so it is looked for as it is sealed.
	g.add("cvc", `"cvc":"987"`)
}

// useTokens reads and uses what is there.
func (g *garden) useTokens() {
	word := func(where string) string { return g.text(where) }
	for _, key := range some(g.revealing, g.masking, g.redacting, g.narrow) {
		for _, id := range g.ids[:20] {
			g.call("GET", "/tokens/"+url.PathEscape(id), key, "")
		}
		for _, q := range []string{
			"", "?size=100", "?metadata.k=" + word("query"), "?metadata[" + word("name in a query") + "]=x", "?metadata=" + url.QueryEscape(`{"k":"`+word("query")+`"}`),
			"?id=" + word("query"), "?id=" + g.number("query"), "?type=" + word("query"), "?page=" + word("query"), "?size=" + g.number("query"), "?start=" + word("query"),
			"?" + word("name in a query") + "=x",
		} {
			g.call("GET", "/tokens"+q, key, "")
			g.call("GET", "/v2/tokens"+q, key, "")
		}
		for _, query := range []string{
			"type:card", "data:" + word("search"), `metadata.k:"` + word("search") + `"`, "fingerprint:" + word("search"), "id:" + word("search"), "created_by:" + word("search"),
			"NOT data:" + g.number("search"), word("search") + ":x", "data:(" + word("search"), "created_at:[" + word("search") + " TO *]", "container:" + word("search"), `data:"` + word("search"),
		} {
			body := fmt.Sprintf(`{"query":%s}`, quote(query))
			g.call("POST", "/tokens/search", key, body)
			g.call("POST", "/v2/tokens/search", key, body)
		}
		for _, doc := range []string{
			`{"a":"{{ ` + g.ids[0] + ` }}","b":` + quote(word("document")) + `}`, `"{{ ` + g.number("expression") + ` }}"`, `"{{ token: ` + g.ids[0] + ` | json: '$.` + word("path") + `' }}"`,
			`"{{ ` + g.ids[0] + ` | ` + word("filter") + ` }}"`, `"{{ ` + g.ids[0] + ` | append: '` + word("argument") + `' | to_number }}"`, `"{% include '` + word("tag") + `' %}"`,
			`"{{ ` + g.ids[1] + ` | json: '$` + word("path") + `[' }}"`,
		} {
			g.call("POST", "/detokenize", key, doc)
		}
	}
	var proxy api.Proxy
	g.want(201, "POST", "/proxies", g.management, `{"name":"p","destination_url":"https://psp.example.com","require_auth":false}`).Into(g.t, 201, &proxy)
	for _, id := range g.ids[:20] {
		body := fmt.Sprintf(`{"body":["{{ %[1]s }}","{{ token: %[1]s }}","{{ token: %[1]s | json: '$.metadata' }}","{{ %[1]s | stringify | size }}"]}`, id)
		g.previews.WriteString(g.want(200, "POST", "/proxies/"+proxy.ID+"/preview", g.management, body).Body)
	}
}

// plantFaults sends what tokens refuse, with the value in the place at fault.
func (g *garden) plantFaults() {
	target := g.ids[0]
	for _, key := range some(g.masking, g.revealing, g.public) {
		for range 2 {
			number, text := g.number("id and data"), g.secret("id and data")
			for _, body := range []string{
				fmt.Sprintf(`{"type":%q,"data":1}`, g.text("type")),
				fmt.Sprintf(`{"type":"token","data":%q,"id":%[1]q}`, text),
				fmt.Sprintf(`{"type":"card","data":{"number":%q},"id":"a %[1]s"}`, number),
				fmt.Sprintf(`{"type":"token","data":1,"id":"<%s>"}`, g.text("id")),
				fmt.Sprintf(`{"type":"token","data":1,"id":"{{ %s }}"}`, g.text("id expression")),
				fmt.Sprintf(`{"type":"token","data":1,"id":{"x":%q}}`, g.text("id")),
				fmt.Sprintf(`{"type":"card","data":{"number":%q}}`, g.secret("card number")),
				fmt.Sprintf(`{"type":"card","data":{"number":"4242424242424242","cvc":%q}}`, g.secret("cvc")),
				fmt.Sprintf(`{"type":"card","data":{"number":"4242424242424242","expiration_year":%q}}`, g.secret("year")),
				fmt.Sprintf(`{"type":"card","data":{"number":"4242424242424242",%q:1}}`, g.secret("member of a card")),
				fmt.Sprintf(`{"type":"bank","data":{"routing_number":%q,"account_number":%q}}`, g.secret("routing number"), g.secret("account number")),
				fmt.Sprintf(`{"type":"social_security_number","data":%q}`, g.secret("number")),
				fmt.Sprintf(`{"type":"token","data":1,"containers":["/%s!/"]}`, g.text("container")),
				fmt.Sprintf(`{"type":"token","data":1,"metadata":{"a b %s":"x"}}`, g.text("key of metadata")),
				fmt.Sprintf(`{"type":"token","data":1,"metadata":{"k":[%q]}}`, g.text("metadata")),
				fmt.Sprintf(`{"type":"token","data":%q,"search_indexes":["{{ data | json: '$.%s' }}"]}`, g.secret("data"), g.text("index expression")),
				fmt.Sprintf(`{"type":"token","data":%q,"search_indexes":[{"x":%q}]}`, g.secret("data"), g.text("index expression")),
				fmt.Sprintf(`{"type":"token","data":%q,"mask":"{{ data | %s }}"}`, g.secret("data"), g.text("mask")),
				fmt.Sprintf(`{"type":"token","data":%q,"fingerprint_expression":"{{ data.%s }}"}`, g.secret("data"), g.text("fingerprint expression")),
				fmt.Sprintf(`{"type":"token","data":%q,"expires_at":%q}`, g.secret("data"), g.text("expiry")),
				fmt.Sprintf(`{"type":"token","data":%q,"deduplicate_token":%q}`, g.secret("data"), g.text("deduplicate")),
				fmt.Sprintf(`{"type":"token","data":%q,"data":%q}`, g.secret("data twice"), g.secret("data twice")),
				fmt.Sprintf(`{"type":"token","data":%q`, g.secret("broken JSON")),
				fmt.Sprintf(`{"type":"token","data":%s}`, g.secret("broken JSON")),
				fmt.Sprintf("{\"type\":\"token\",\"data\":\"%s\xff\"}", g.secret("broken UTF-8")),
			} {
				if a := g.call("POST", "/tokens", key, body); a.Status < 400 {
					g.t.Errorf("POST /tokens took what it should refuse: %d", a.Status)
				}
				g.call("POST", "/tokenize", key, `{"x":[`+body+`]}`)
				g.call("PATCH", "/tokens/"+target, key, body, "Content-Type", mergePatch)
				g.call("PATCH", "/tokens/"+target, key, body) // not that media type
			}
		}
	}
	g.call("POST", "/tokens", g.narrow, fmt.Sprintf(`{"type":"token","data":%q}`, g.secret("data in a container that is not the caller's")))
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		for _, key := range []string{g.revealing, g.narrow} {
			for _, id := range []string{g.text("id that is not there"), g.number("id that is not there")} {
				if a := g.call(method, "/tokens/"+id, key, "{}", "Content-Type", mergePatch); a.Status < 400 {
					g.t.Errorf("%s of a token that is not there = %d", method, a.Status)
				}
			}
		}
	}
}

// plantEverywhere sends values to every row of the API, in every place of a
// request, as callers that may and as callers that may not.
func (g *garden) plantEverywhere() {
	rows := 0
	for _, row := range g.Routes() {
		if row.Pattern == "DELETE /tenants/self" {
			continue // it would take the keys along
		}
		rows++
		method, path, _ := strings.Cut(row.Pattern, " ")
		if method == "*" {
			method = "POST"
		}
		for _, key := range some(g.revealing, g.management) {
			at := func(value string) string { return filled(path, url.PathEscape(value)) }
			if row.Pattern == "GET /v2/logs/stream" {
				// Without follow=false it goes on until its client leaves.
				g.call(method, path+"?follow=false&entity_id="+g.text("query")+"&trace_id="+g.number("query"), key, "{}")
				continue
			}
			plain := at("nothing")
			g.call(method, at(g.text("id in a path")), key, "{}")
			g.call(method, at(g.number("id in a path")), key, "{}")
			g.call(method, plain+"/"+g.text("more of a path"), key, "{}")
			g.call(method, plain+"?q="+g.text("query")+"&page="+g.number("query"), key, "{}")
			g.call(method, plain, key, fmt.Sprintf(`{"rules":%q,"permissions":[%q],"settings":{"deduplicate_tokens":%q},"type":%q,"expires_at":%q,"query":%q}`,
				g.text("body"), g.text("body"), g.text("body"), g.text("body"), g.text("body"), g.text("body")))
			g.call(method, plain, key, fmt.Sprintf(`{%q:1,%[1]q:2}`, g.text("member twice")))
			g.call(method, plain, key, `{"x":`+g.text("broken JSON"))
			g.call(method, plain, key, "{}", "Content-Type", g.text("media type"))
			g.call(method, plain, key+g.text("key"), "{}")
			g.call("X"+strings.ToUpper(g.number("method")), plain, key, "{}")
			for _, name := range []string{"User-Agent", "Cookie", "Referer", "X-Forwarded-For", "Authorization", "Accept", "If-None-Match", "SVC-IDEMPOTENCY-KEY", "SVC-PROXY-KEY", "Origin"} {
				g.call(method, plain, key, "{}", name, g.text("header "+name))
			}
			// A trace id that is well formed is the caller's own and is kept. A card number is not.
			g.call(method, plain, key, "{}", "SVC-TRACE-ID", g.number("trace id"))
		}
	}
	if rows < 30 {
		g.t.Errorf("the API has %d rows: the test looks in the wrong place", rows)
	}
}

// filled puts a value in place of the wildcards of a pattern.
func filled(path, value string) string {
	for {
		from, to := strings.IndexByte(path, '{'), strings.IndexByte(path, '}')
		if from < 0 {
			return path
		}
		path = path[:from] + value + path[to+1:]
	}
}

func TestPlantedValuesAreNowhere(t *testing.T) {
	storetest.Long(t)
	g := newGarden(t, keeptest.Options{})
	// The control stands in clear, where clear text is allowed: in a name.
	control := "control " + g.text("control")
	g.values, g.where = g.values[:len(g.values)-1], g.where[:len(g.where)-1]
	g.Application(t, g.tenant, api.CreateApplication{Name: control, Type: "private", Permissions: []string{"token:read"}})

	hook := g.plantWebhook()
	g.plantTokens()
	g.useTokens()
	g.plantFaults()
	g.plantEverywhere()
	g.readEvents(hook)
	if len(g.values) < 1000 && !testing.Short() {
		t.Errorf("only %d values were planted", len(g.values))
	}
	if g.refused < 1000 && !testing.Short() {
		t.Errorf("only %d requests were refused: the errors were not seen", g.refused)
	}
	metrics := g.Call(t, "GET", "/metrics", "", "").Body
	running := copyFolder(t, g.Data)
	backup := filepath.Join(t.TempDir(), "backup")
	if _, err := g.Operator().Follow(t.Context(), "POST", "/backup", admin.Backup{Folder: backup}, func(admin.Progress) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d values, %d errors", len(g.values), g.refused)

	s, known := g.scanner(), scannerFor(t, control)
	for state, dir := range map[string]string{"killed": running, "stopped": g.Data, "backup": backup} {
		all := files(t, dir)
		found := 0
		for name, b := range all {
			g.none(s, state+": "+name, b)
			found += len(known.Search(b))
		}
		if found == 0 {
			t.Errorf("%s: the control was not found in any of %v: the search looks in the wrong place", state, slices.Sorted(maps.Keys(all)))
		}
		want := []string{"tokenkeep.db", "epoch.keys"}
		switch state {
		case "killed":
			want = append(want, "tokenkeep.db-wal", "tokenkeep.db-shm")
		case "backup":
			want[1] = "manifest.json"
			if _, there := all["epoch.keys"]; there || len(all) != 2 {
				t.Errorf("the backup holds %v", slices.Sorted(maps.Keys(all)))
			}
		}
		for _, name := range want {
			if len(all[name]) == 0 {
				t.Errorf("%s: %s is empty or missing, so searching it shows nothing", state, name)
			}
		}
	}
	log := g.Log.String()
	g.none(s, "log", []byte(log))
	if strings.Count(log, `"msg":"request"`) < g.refused {
		t.Error("the log that was searched is not the whole log")
	}
	g.none(s, "metrics", []byte(metrics))
	sent, _ := hook.read()
	g.none(s, "messages to a webhook", []byte(sent))
	g.none(s, "errors", []byte(g.refusals.String()))
	g.none(s, "previews", []byte(g.previews.String()))
	g.noneOfData("answers that must not reveal", g.hidden.String())
	g.holdsTokens(running)
}

// noneOfData looks for data alone: metadata, masks and expressions are shown
// to whoever may read the token.
func (g *garden) noneOfData(what, text string) {
	g.t.Helper()
	data := make(map[int]bool)
	for _, i := range g.data {
		data[i] = true
	}
	for _, f := range g.scanner().Search([]byte(text)) {
		if data[f.Value] {
			g.t.Errorf("%s: found %v, which was sent as %s", what, f, g.where[f.Value])
		}
	}
}

// holdsTokens makes sure that the folder is one with the tokens in it.
func (g *garden) holdsTokens(dir string) {
	g.t.Helper()
	s, err := sqlite.Open(g.t.Context(), dir, sqlite.Options{})
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var n int64
	err = s.View(g.t.Context(), g.tenant, func(tx store.Tx) (err error) {
		n, err = tx.CountTokens(g.t.Context(), store.TokenFilter{Now: 1, Groups: store.AllGroups()})
		return err
	})
	if err != nil || n < int64(len(g.ids)) {
		g.t.Errorf("the copy holds %d tokens, error %v; want at least %d", n, err, len(g.ids))
	}
}
