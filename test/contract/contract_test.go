// Package contract_test walks through the API as the contract describes it,
// one file for each of its sections.
package contract_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// start is when the clocks of servers stand at first.
var start = time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)

// walk is a server with one tenant, and the names that steps use.
type walk struct {
	t       *testing.T
	server  *keeptest.Server
	clock   *clocktest.Clock
	tenant  string
	manager api.Application
	// names stand in paths, bodies and answers as {name}.
	names map[string]string
}

func newWalk(t *testing.T) *walk {
	t.Helper()
	return newWalkWith(t, keeptest.Options{})
}

func newWalkWith(t *testing.T, o keeptest.Options) *walk {
	t.Helper()
	c := clocktest.New(start)
	o.Now = c.Now
	return walkOn(t, keeptest.Start(t, o), c)
}

// walkOn is a walk in a tenant of its own on a server that others share.
func walkOn(t *testing.T, k *keeptest.Server, c *clocktest.Clock) *walk {
	t.Helper()
	made := k.Tenant(t)
	return &walk{t: t, server: k, clock: c, tenant: made.Tenant.ID, manager: made.Application, names: map[string]string{
		"tenant": made.Tenant.ID, "manager": made.Application.ID, "manager_key": made.Application.Key, "manager_key_id": made.Application.Keys[0].ID,
		"nothing": "b7f1d3a0-0000-4000-8000-000000000001",
	}}
}

// step is one call and what must come back.
type step struct {
	name   string
	call   string // "GET /tenants/self"
	body   string
	status int
	// want is the body, member by member, in JSON: nothing may be missing and
	// nothing may be more. Of a text between < and > only the form counts.
	want string
	// keep gives members of the answer, by their dotted path, a name.
	keep map[string]string
	// key is the name of the key; "" is the manager's.
	key string
	// location is the Location header.
	location string
}

func (w *walk) fill(s string) string {
	for name, value := range w.names {
		s = strings.ReplaceAll(s, "{"+name+"}", value)
	}
	return s
}

// walk makes the steps in their order, a second apart.
func (w *walk) walk(steps ...step) {
	w.t.Helper()
	for _, s := range steps {
		w.t.Helper()
		w.clock.Advance(time.Second)
		w.step(s)
	}
}

func (w *walk) step(s step) {
	w.t.Helper()
	method, path, _ := strings.Cut(w.fill(s.call), " ")
	key := w.names["manager_key"]
	if s.key != "" {
		key = w.names[s.key]
	}
	name := s.name
	if name == "" {
		name = s.call
	}
	got := w.server.Call(w.t, method, path, key, w.fill(s.body))
	if got.Status != s.status {
		w.t.Fatalf("%s: the answer is %s, want status %d", name, got, s.status)
	}
	if want := w.fill(s.want); want == "" && got.Body != "" {
		w.t.Errorf("%s: the answer is %s, want no body", name, got)
	} else if want != "" {
		if difference := compare("", decode(w.t, want), decode(w.t, got.Body)); difference != "" {
			w.t.Errorf("%s: %s\nin %s", name, difference, got)
		}
	}
	switch {
	case got.Status >= 400:
		got.CheckProblem(w.t)
	case got.Body != "" && got.Header.Get("Content-Type") != api.MediaJSON:
		w.t.Errorf("%s: the answer is of type %q", name, got.Header.Get("Content-Type"))
	}
	for path, name := range s.keep {
		w.names[name] = fmt.Sprint(member(decode(w.t, got.Body), path))
	}
	if location := got.Header.Get("Location"); location != w.fill(s.location) {
		w.t.Errorf("%s: Location is %q, want %q", name, location, w.fill(s.location))
	}
}

func decode(t *testing.T, text string) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s is not JSON: %v", text, err)
	}
	return v
}

// member finds a member by its dotted path.
func member(v any, path string) any {
	for _, name := range strings.Split(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[name]
		case []any:
			v = nil
			for i := range at {
				if fmt.Sprint(i) == name {
					v = at[i]
				}
			}
		}
	}
	return v
}

const base58 = "[1-9A-HJ-NP-Za-km-z]"

// forms are the texts of which only the form counts.
var forms = map[string]*regexp.Regexp{
	"<uuid>":           regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`),
	"<id>":             regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`),
	"<time>":           regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$`),
	"<public>":         regexp.MustCompile(`^key_test_pub_` + base58 + `{50}$`),
	"<private>":        regexp.MustCompile(`^key_test_pvt_` + base58 + `{50}$`),
	"<manage>":         regexp.MustCompile(`^key_test_mgt_` + base58 + `{50}$`),
	"<session>":        regexp.MustCompile(`^key_test_sess_` + base58 + `{50}$`),
	"<nonce>":          regexp.MustCompile(`^nonce_test_` + base58 + `{50}$`),
	"<session prefix>": regexp.MustCompile(`^key_test_sess_` + base58 + `{26}$`),
	"<prefix>":         regexp.MustCompile(`^key_test_(pub|pvt|mgt)_` + base58 + `{26}$`),
	"<secret>":         regexp.MustCompile(`^whsec_[A-Za-z0-9+/]{43}=$`),
	"<trace>":          regexp.MustCompile(`^[0-9a-f-]{36}$`),
	"<text>":           regexp.MustCompile(`^.+$`),
}

// compare returns where two values differ; "" when they do not.
func compare(path string, want, got any) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s is %v, want an object", path, got)
		}
		w = likeEveryProblem(w, g)
		for name := range g {
			if _, ok := w[name]; !ok {
				return fmt.Sprintf("%s.%s is there and should not be", path, name)
			}
		}
		for name := range w {
			value, ok := g[name]
			if !ok {
				return fmt.Sprintf("%s.%s is missing", path, name)
			}
			if d := compare(path+"."+name, w[name], value); d != "" {
				return d
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Sprintf("%s is %v, want a list of %d", path, got, len(w))
		}
		for i := range w {
			if d := compare(fmt.Sprint(path, ".", i), w[i], g[i]); d != "" {
				return d
			}
		}
		return ""
	case string:
		g, ok := got.(string)
		if w == "<any>" {
			return ""
		}
		if form := forms[w]; form != nil {
			if !ok || !form.MatchString(g) {
				return fmt.Sprintf("%s is %v, want the form %s", path, got, w)
			}
			return ""
		}
	}
	if want != got {
		return fmt.Sprintf("%s is %v, want %v", path, got, want)
	}
	return ""
}

// likeEveryProblem adds to a problem that is wanted what every problem has
// besides: a code and a trace id.
func likeEveryProblem(want, got map[string]any) map[string]any {
	if want["title"] == nil || want["status"] == nil || want["detail"] == nil || got["trace_id"] == nil {
		return want
	}
	full := map[string]any{"code": "<text>", "trace_id": "<text>"}
	maps.Copy(full, want)
	return full
}

// unknownType is the message for a type that is not a token's; "" for a name
// that is not repeated.
func unknownType(name string) string {
	var names []string
	for _, row := range token.Types() {
		names = append(names, row.Name)
	}
	if name != "" {
		name = fmt.Sprintf(" %q", name)
	}
	return "unknown token type" + name + "; the types are " + strings.Join(names, ", ")
}

// unknownPermission is the message for a name that is not repeated.
const unknownPermission = "unknown permission; GET /permissions lists them"

// isProblem reports whether a body is the problem that is wanted.
func isProblem(t *testing.T, body, want string) bool {
	t.Helper()
	return compare("", decode(t, want), decode(t, body)) == ""
}

// refused is the body of a validation error.
func refused(path, message string) string {
	return fmt.Sprintf(`{"title":"One or more validation errors occurred.","status":400,"detail":"the request is not valid; see errors","errors":{%q:[%q]}}`, path, message)
}

// problem is the body of another error.
func problem(status int, detail string) string {
	return fmt.Sprintf(`{"title":%q,"status":%d,"detail":%q}`, http.StatusText(status), status, detail)
}

// coded is a problem with a machine-readable code.
func coded(status int, detail, code string) string {
	return strings.TrimSuffix(problem(status, detail), "}") + fmt.Sprintf(`,"code":%q}`, code)
}

func TestTheComparisonFindsEveryDifference(t *testing.T) {
	for name, test := range map[string]struct{ want, got string }{
		"a member less": {`{"a":1,"b":2}`, `{"a":1}`}, "a member more": {`{"a":1}`, `{"a":1,"b":null}`},
		"a null": {`{"a":"<text>"}`, `{"a":null}`}, "another number": {`{"a":1}`, `{"a":1.0}`},
		"an item more": {`[1]`, `[1,2]`}, "an item less": {`[1,2]`, `[1]`}, "another item": {`[{"a":1}]`, `[{"a":2}]`},
		"not an object": {`{}`, `[]`}, "a time with Z": {`"<time>"`, `"2031-05-06T07:08:09.123456Z"`},
		"a time without a fraction": {`"<time>"`, `"2031-05-06T07:08:09+00:00"`}, "another version of a UUID": {`"<uuid>"`, `"b7f1d3a0-0000-7000-8000-000000000001"`},
	} {
		if compare("", decode(t, test.want), decode(t, test.got)) == "" {
			t.Errorf("%s: no difference is found", name)
		}
		if d := compare("", decode(t, test.got), decode(t, test.got)); d != "" {
			t.Errorf("%s: a difference is found where there is none: %s", name, d)
		}
	}
}
