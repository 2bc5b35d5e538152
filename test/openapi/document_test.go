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
	ids := make(map[string]string)
	operations := openapitest.Load(t).Operations()
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

// TestTheWatchSees what it is there to see: every row is an answer or a
// request with one thing wrong, but for those that want nothing said.
func TestTheWatchSees(t *testing.T) {
	const (
		tenant = `{"id":"00000000-0000-4000-8000-000000000001","name":"n","created_at":"2030-01-02T03:04:05.000000+00:00","settings":{"fingerprint_tokens":"true",
			"deduplicate_tokens":"false","disable_ephemeral_proxy":"false","disable_anonymous_detokenization":"false","uncapped_sessions":"false","cvc_retention":"1h"}}`
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
		"another method":                {"PATCH /tenants/self", "", 405, good, problem, "no such operation"},
		"an unknown path":               {"GET /nothing", "", 404, good, problem, "no such operation"},
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
