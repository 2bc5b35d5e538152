// Package openapi_test holds api/openapi.yaml and docs/api.md against the
// server that they describe.
package openapi_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/test/openapitest"
)

func TestTheDocumentIsValidAndEveryOperationIsNamed(t *testing.T) {
	document := openapitest.Load(t)
	if err := document.Validate(); err != nil {
		t.Errorf("api/openapi.yaml: %v", err)
	}
	if !document.Plain() {
		t.Error("the document has a schema that takes the tests of all packages much more time: see openapitest")
	}
	ids := make(map[string]string)
	operations := document.Operations()
	for _, o := range operations {
		if o.ID == "" || o.Summary == "" {
			t.Errorf("%s has no operationId or no summary", o.Pattern)
		}
		if other, taken := ids[o.ID]; taken {
			t.Errorf("%s and %s are both called %s", o.Pattern, other, o.ID)
		}
		ids[o.ID] = o.Pattern
	}
	if len(operations) < 20 {
		t.Errorf("found %d operations: the document was not read whole", len(operations))
	}
}

func TestEverythingHasAnExampleThatIsOne(t *testing.T) {
	wrong, count := openapitest.Load(t).CheckExamples()
	for _, w := range wrong {
		t.Error(w)
	}
	if count < 300 {
		t.Errorf("looked at %d examples: the search is wrong", count)
	}
}

// TestAnExampleThatIsNoneIsFound, wherever it stands, and one that is missing.
func TestAnExampleThatIsNoneIsFound(t *testing.T) {
	const good = `
openapi: 3.1.0
info: {title: t, version: '1'}
paths:
  /x:
    parameters:
      - {name: a, in: query, schema: {type: integer, examples: [1]}}
    post:
      parameters:
        - {name: b, in: header, schema: {type: integer}, example: 2}
      requestBody: {content: {application/json: {schema: {type: integer}, examples: {e: {value: 3}}}}}
      responses:
        '200':
          description: d
          headers: {H: {schema: {type: integer}, example: 4}}
          content: {application/json: {schema: {type: integer}, example: 5}}
`
	if wrong, count := openapitest.Parse(t, good).CheckExamples(); len(wrong) > 0 || count != 5 {
		t.Errorf("CheckExamples = %v, %d, want 5 that are right", wrong, count)
	}
	for part, want := range map[string]string{
		", examples: [1]": "query parameter a has no", ", example: 2": "header parameter b has no", ", examples: {e: {value: 3}}": "request application/json has no",
		", example: 4": "header H has no", ", example: 5": "200 application/json has no",
	} {
		wrong, _ := openapitest.Parse(t, strings.Replace(good, part, "", 1)).CheckExamples()
		if len(wrong) != 1 || !strings.Contains(wrong[0], want) {
			t.Errorf("without %s: %v, want %s", part, wrong, want)
		}
	}
	wrong, _ := openapitest.Parse(t, strings.Replace(good, "[1]", "[x]", 1)).CheckExamples()
	if len(wrong) != 1 || !strings.Contains(wrong[0], "an example that is none") {
		t.Errorf("with another type: %v, want it named", wrong)
	}
}

// TestTheWatchSees what it is there to see: every row is an answer or a
// request with one thing wrong, but for those that want nothing said.
func TestTheWatchSees(t *testing.T) {
	const (
		tenant = `{"id":"00000000-0000-4000-8000-000000000001","name":"n","created_at":"2030-01-02T03:04:05.000000+00:00","settings":{"fingerprint_tokens":"true",
			"deduplicate_tokens":"false","disable_ephemeral_proxy":"false","disable_anonymous_detokenization":"false","uncapped_sessions":"false","blind_deduplication":"false","masked_fingerprints":"false","numeric_ids":"false","export_approval":"false","trusted_export_keys":"none","cvc_retention":"1h"}}`
		problem = `{"title":"Forbidden","status":403,"detail":"no"}`
	)
	good := http.Header{"Content-Type": {"application/json"}, "Svc-Trace-Id": {"t"}}
	without := func(name string) http.Header {
		h := good.Clone()
		h.Del(name)
		return h
	}
	with := func(name, value string) http.Header {
		h := good.Clone()
		h.Set(name, value)
		return h
	}
	foreign := with("Content-Security-Policy", "sandbox")
	foreign.Set("SVC-PROXY-DESTINATION-STATUS", "200")
	cases := map[string]struct {
		request string
		sent    string
		status  int
		header  http.Header
		body    string
		want    string // "" when all is well
	}{
		"as described":                  {"GET /tenants/self", "", 200, good, tenant, ""},
		"a problem":                     {"GET /tenants/self", "", 403, good, problem, ""},
		"no body where none is due":     {"DELETE /tenants/self", "", 204, without("Content-Type"), "", ""},
		"another method":                {"PATCH /tenants/self", "", 405, good, strings.ReplaceAll(problem, "403", "405"), ""},
		"an unknown path":               {"GET /nothing", "", 404, good, strings.ReplaceAll(problem, "403", "404"), ""},
		"a success on no path":          {"GET /nothing", "", 200, good, tenant, "no such operation"},
		"no problem on no path":         {"GET /nothing", "", 404, good, `{"title":"Not Found"}`, "status"},
		"a page on no path":             {"GET /nothing", "", 404, with("Content-Type", "text/html"), problem, "no problem"},
		"a slash at the end":            {"GET /tenants/self/", "", 201, good, tenant, "status 201"},
		"two slashes":                   {"GET /tenants//self", "", 404, good, strings.ReplaceAll(problem, "403", "404"), ""},
		"a question of a browser":       {"OPTIONS /tenants/self", "", 204, without("Content-Type"), "", ""},
		"a head":                        {"HEAD /tenants/self", "", 200, good, "", ""},
		"a head without a trace id":     {"HEAD /tenants/self", "", 200, without("Svc-Trace-Id"), "", "SVC-TRACE-ID"},
		"what a destination says":       {"PUT /proxy/a/b", "", 418, with("Content-Security-Policy", "sandbox"), "?", ""},
		"another status than it says":   {"PUT /proxy/a/b", "", 418, foreign, "?", "SVC-PROXY-DESTINATION-STATUS"},
		"an error of a proxy":           {"GET /proxy", "", 400, good, `{"proxy_error":{"errors":{},"title":"t","status":400,"detail":"d"}}`, ""},
		"another error of a proxy":      {"GET /proxy", "", 400, good, problem, "proxy_error"},
		"a status that is not there":    {"GET /tenants/self", "", 402, good, problem, "status 402"},
		"another success":               {"GET /tenants/self", "", 201, good, tenant, "status 201"},
		"a body where none is due":      {"DELETE /tenants/self", "", 204, good, tenant, "has a body"},
		"no trace id":                   {"GET /tenants/self", "", 200, without("Svc-Trace-Id"), tenant, "SVC-TRACE-ID"},
		"no wait":                       {"GET /tenants/self", "", 429, good, strings.ReplaceAll(problem, "403", "429"), "Retry-After"},
		"a wait that is no number":      {"GET /tenants/self", "", 429, with("Retry-After", "soon"), strings.ReplaceAll(problem, "403", "429"), "Retry-After"},
		"another media type":            {"GET /tenants/self", "", 200, with("Content-Type", "text/html"), tenant, "Content-Type"},
		"no JSON":                       {"GET /tenants/self", "", 200, good, "{", "decode"},
		"a member too many":             {"GET /tenants/self", "", 200, good, strings.Replace(tenant, `"name"`, `"secret":"s","name"`, 1), "secret"},
		"a member too few":              {"GET /tenants/self", "", 200, good, strings.Replace(tenant, `"name":"n",`, "", 1), "name"},
		"a time in another form":        {"GET /tenants/self", "", 200, good, strings.Replace(tenant, ".000000+00:00", "Z", 1), "created_at"},
		"an id that is none":            {"GET /tenants/self", "", 200, good, strings.Replace(tenant, "-4000-", "", 1), "/id"},
		"a setting that does not exist": {"GET /tenants/self", "", 200, good, strings.Replace(tenant, `"cvc_retention"`, `"x":"y","cvc_retention"`, 1), "x"},
		"a problem without its members": {"GET /tenants/self", "", 403, good, `{"title":"Forbidden"}`, "detail"},
		"a request as described":        {"PUT /tenants/self", `{"name":"n"}`, 200, good, tenant, ""},
		"a request with more":           {"PUT /tenants/self", `{"name":"n","other":1}`, 200, good, tenant, ""},
		"a request that was refused":    {"PUT /tenants/self", `{}`, 400, good, strings.ReplaceAll(problem, "403", "400"), ""},
		"a request that was not":        {"PUT /tenants/self", `{}`, 200, good, tenant, "name"},
		"a size that was taken":         {"GET /logs?size=101", "", 200, good, `{"pagination":{"total_items":0,"page_number":1,"page_size":100,"total_pages":0},"data":[]}`, "size"},
		"nobody's request":              {"GET /logs/entity-types", "nobody", 200, good, `[]`, "SVC-API-KEY"},
	}
	d := openapitest.Load(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			method, target, _ := strings.Cut(c.request, " ")
			r := httptest.NewRequest(method, "http://127.0.0.1:1"+target, nil)
			r.Header.Set("SVC-API-KEY", "k")
			if c.sent == "nobody" {
				c.sent = ""
				r.Header.Del("SVC-API-KEY")
			}
			if c.sent != "" {
				r.Header.Set("Content-Type", "application/json")
				r.Body = io.NopCloser(strings.NewReader(c.sent))
			}
			resp := &http.Response{StatusCode: c.status, Header: c.header}
			err := d.Check(r, []byte(c.sent), resp, []byte(c.body))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("Check = %v, want nil", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("Check = %v, want something about %s", err, c.want)
			}
		})
	}
}

// TestTheWatchComplains of what it sees, on paths that are none as well, unless
// it was told to look away.
func TestTheWatchComplains(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("SVC-TRACE-ID", "t") }))
	defer s.Close()
	c := complaints{TB: t}
	watch := openapitest.NewWatch(&c, openapitest.Load(t), http.DefaultTransport)
	get := func(path string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := watch.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	get("/nothing")
	get("/healthz")
	if c.count != 2 {
		t.Errorf("two answers that are not described made %d complaints", c.count)
	}
	watch.Except("GET /healthz")
	get("/healthz")
	if c.count != 2 {
		t.Error("the watch complained of what it was not to look at")
	}
}

// complaints is a test that counts its failures.
type complaints struct {
	testing.TB
	count int
}

func (c *complaints) Errorf(string, ...any) { c.count++ }

// TestTheWatchLeavesTheBodiesAsTheyWere reads both ends.
func TestTheWatchLeavesTheBodiesAsTheyWere(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("SVC-TRACE-ID", "t")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(bytes.Replace([]byte(`{"title":"t","status":400,"detail":"BODY"}`), []byte("BODY"), bytes.ToUpper(body), 1))
	}))
	defer s.Close()
	watch := openapitest.NewWatch(t, openapitest.Load(t), http.DefaultTransport)
	c := &http.Client{Transport: watch}
	resp, err := c.Post(s.URL+"/applications", "application/json", strings.NewReader("abc"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if want := `{"title":"t","status":400,"detail":"ABC"}`; err != nil || string(got) != want {
		t.Errorf("the body came through as %s, %v, want %s", got, err, want)
	}
	if got := watch.Seen("POST /applications"); len(got) != 1 || got[0] != 400 {
		t.Errorf("Seen = %v, want [400]", got)
	}
}
