package contract_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

// definer makes proxies and reactors for applications {one} and {two}.
type definer struct {
	*walk
	kind string // proxies or reactors
	base string // the fields that are required
}

func newDefiner(t *testing.T, kind string) *definer {
	t.Helper()
	w := newWalk(t)
	w.names["one"] = w.server.Application(t, w.tenant, private("token:use")).ID
	w.names["two"] = w.server.Application(t, w.tenant, private("token:use")).ID
	w.names["theirs"] = w.server.Application(t, w.server.Tenant(t).Tenant.ID, private("token:use")).ID
	base := `"name":"x","destination_url":"https://psp.example.com"`
	if kind == "reactors" {
		base = `"name":"x","code":"1","configuration":{}`
	}
	return &definer{w, kind, base}
}

func (d *definer) send(method, path, fields string) keeptest.Answer {
	d.t.Helper()
	if method != "PATCH" {
		fields = strings.TrimSuffix(d.base+","+fields, ",")
	}
	return d.server.Call(d.t, method, "/"+d.kind+path, d.manager.Key, d.fill("{"+fields+"}"))
}

// make makes one and returns its path.
func (d *definer) make(fields string) string {
	d.t.Helper()
	var made struct{ ID string }
	d.send("POST", "", fields).Into(d.t, 201, &made)
	return "/" + made.ID
}

func (d *definer) read(path string) keeptest.Answer {
	d.t.Helper()
	return d.server.Call(d.t, "GET", "/"+d.kind+path, d.manager.Key, "")
}

// applicationOf returns the name of the application in an answer; "" for none.
func (d *definer) applicationOf(body string) string {
	d.t.Helper()
	id := member(decode(d.t, body), "application_id")
	if d.kind == "reactors" {
		id = member(decode(d.t, body), "application.id")
	}
	for name, known := range d.names {
		if known == id {
			return name
		}
	}
	return ""
}

const (
	mismatch = "application_id application_mismatch"
	required = "application application_required"
	unknown  = "must be a public or private application of the tenant"
)

// TestWhatARequestSaysAboutAnApplication holds for proxies and reactors alike.
func TestWhatARequestSaysAboutAnApplication(t *testing.T) {
	for _, kind := range []string{"proxies", "reactors"} {
		d := newDefiner(t, kind)
		for _, test := range []struct {
			method, fields string
			want           string // the application afterwards, from {one} for PUT and PATCH
			err            string // the path at fault, and its code or message
		}{
			{"POST", ``, "", ""},
			{"POST", `"application":{"id":"{one}"}`, "one", ""},
			{"POST", `"application":{"id":"{one}","name":"x","type":"management"}`, "one", ""},
			{"POST", `"application_id":"{one}"`, "one", ""},
			{"POST", `"application":{"id":"{one}"},"application_id":"{one}"`, "one", ""},
			{"POST", `"application":{"id":"{one}"},"application_id":"{two}"`, "", mismatch},
			{"POST", `"application":null`, "", ""},
			{"POST", `"application":{}`, "", ""},
			{"POST", `"application":{"id":null}`, "", ""},
			{"POST", `"application_id":null`, "", ""},
			{"POST", `"application":null,"application_id":null`, "", ""},
			{"POST", `"application":null,"application_id":"{one}"`, "", mismatch},
			{"POST", `"application":{},"application_id":"{one}"`, "one", ""},
			{"POST", `"application":{"id":null},"application_id":"{one}"`, "one", ""},
			{"POST", `"application":{"id":"{one}"},"application_id":null`, "one", ""},
			{"POST", `"application_id":""`, "", "application_id must be the id of an application; null stands for none"},
			{"POST", `"application":{"id":""}`, "", "application.id must be the id of an application; null stands for none"},
			{"POST", `"application_id":1`, "", "application_id must be a string"},
			{"POST", `"application_id":{"id":"{one}"}`, "", "application_id must be a string"},
			{"POST", `"application":"{one}"`, "", "application must be an object"},
			{"POST", `"application_id":"{nothing}"`, "", "application_id " + unknown},
			{"POST", `"application_id":"{manager}"`, "", "application_id " + unknown},
			{"POST", `"application_id":"{theirs}"`, "", "application_id " + unknown},
			{"POST", `"application":{"id":"{theirs}"}`, "", "application.id " + unknown},

			{"PUT", ``, "", ""},
			{"PUT", `"application_id":"{one}"`, "one", ""},
			{"PUT", `"application_id":"{two}"`, "two", ""},
			{"PUT", `"application":{"id":"{two}"}`, "two", ""},
			{"PUT", `"application":null`, "", ""},
			{"PUT", `"application":{}`, "", ""},
			{"PUT", `"application_id":null`, "", ""},
			{"PUT", `"application":null,"application_id":"{one}"`, "", mismatch},
			{"PUT", `"application":{"id":"{two}"},"application_id":"{one}"`, "", mismatch},
			{"PUT", `"application_id":""`, "", "application_id must be the id of an application; null stands for none"},
			{"PUT", `"application_id":"{theirs}"`, "", "application_id " + unknown},

			{"PATCH", ``, "one", ""},
			{"PATCH", `"application":{}`, "one", ""},
			{"PATCH", `"application":{"name":"x"}`, "one", ""},
			{"PATCH", `"application":null`, "", ""},
			{"PATCH", `"application":{"id":null}`, "", ""},
			{"PATCH", `"application_id":null`, "", ""},
			{"PATCH", `"application":null,"application_id":null`, "", ""},
			{"PATCH", `"application_id":"{two}"`, "two", ""},
			{"PATCH", `"application":{"id":"{two}"}`, "two", ""},
			{"PATCH", `"application":{},"application_id":"{two}"`, "two", ""},
			{"PATCH", `"application":{"id":"{two}"},"application_id":"{two}"`, "two", ""},
			{"PATCH", `"application":{"id":"{two}"},"application_id":"{one}"`, "", mismatch},
			{"PATCH", `"application":null,"application_id":"{one}"`, "", mismatch},
			{"PATCH", `"application":{"id":null},"application_id":"{one}"`, "", mismatch},
			{"PATCH", `"application":{"id":"{two}"},"application_id":null`, "", mismatch},
			{"PATCH", `"application_id":""`, "", "application_id must be the id of an application; null stands for none"},
			{"PATCH", `"application":{"id":""}`, "", "application.id must be the id of an application; null stands for none"},
			{"PATCH", `"application":"{two}"`, "", "application must be an object"},
			{"PATCH", `"application_id":"{manager}"`, "", "application_id " + unknown},
		} {
			name := kind + ": " + test.method + " {" + test.fields + "}"
			path := ""
			if test.method != "POST" {
				path = d.make(`"application":{"id":"{one}"}`)
			}
			d.judge(name, test.method, path, test.fields, test.want, test.err)
		}
	}
}

// judge sends a request and checks the application afterwards, or the error, and
// that a request in error changed nothing.
func (d *definer) judge(name, method, path, fields, want, wantErr string) {
	d.t.Helper()
	before := ""
	if path != "" {
		before = d.read(path).Body
	}
	got := d.send(method, path, fields)
	if wantErr != "" {
		var p api.Problem
		_ = json.Unmarshal([]byte(got.Body), &p)
		at, what, _ := strings.Cut(wantErr, " ")
		if got.Status != 400 || len(p.Errors) != 1 || len(p.Errors[at]) != 1 || p.Code != what && p.Errors[at][0] != what {
			d.t.Errorf("%s = %s, want an error under %s: %s", name, got, at, what)
		}
		if path != "" && d.read(path).Body != before {
			d.t.Errorf("%s was refused and changed something", name)
		}
		return
	}
	if got.Status >= 300 {
		d.t.Errorf("%s = %s, want the application %q", name, got, want)
		return
	}
	if path == "" {
		path = "/" + fmt.Sprint(member(decode(d.t, got.Body), "id"))
	} else if method == "PUT" && d.applicationOf(got.Body) != want {
		d.t.Errorf("%s answered with the application %q, want %q", name, d.applicationOf(got.Body), want)
	}
	if after := d.applicationOf(d.read(path).Body); after != want {
		d.t.Errorf("%s: the application is then %q, want %q", name, after, want)
	}
}

// TestAnOpenProxyLosesItsApplicationOnlyWhenThatIsWrittenOut: without an
// application anyone who has its key can use every token of the tenant.
func TestAnOpenProxyLosesItsApplicationOnlyWhenThatIsWrittenOut(t *testing.T) {
	d := newDefiner(t, "proxies")
	const open, closed, one = `"require_auth":false`, `"require_auth":true`, `"application":{"id":"{one}"}`
	for _, test := range []struct {
		name, from, method, fields, want, err string
	}{
		{"PUT that leaves it out", open, "PUT", open, "", required},
		{"PUT with an empty object", open, "PUT", open + `,"application":{}`, "", required},
		{"PUT without an id", open, "PUT", open + `,"application":{"id":null}`, "", required},
		{"PUT with a null id", open, "PUT", open + `,"application_id":null`, "", required},
		{"PUT with null", open, "PUT", open + `,"application":null`, "", ""},
		{"PUT with both null", open, "PUT", open + `,"application":null,"application_id":null`, "", ""},
		{"PUT as it was read", open, "PUT", open + `,"application_id":"{one}"`, "one", ""},
		{"PUT of another", open, "PUT", open + `,"application":{"id":"{two}"}`, "two", ""},
		{"PUT of null and of an application", open, "PUT", open + `,"application":null,"application_id":"{one}"`, "", mismatch},
		{"PUT that closes it", open, "PUT", ``, "", ""},
		{"PUT that closes it in words", open, "PUT", closed, "", ""},
		{"PUT that opens it", closed, "PUT", open, "", required},
		{"PUT that opens it with null", closed, "PUT", open + `,"application":null`, "", ""},
		{"PUT that opens it and keeps it", closed, "PUT", open + `,"application_id":"{one}"`, "one", ""},
		{"PATCH of something else", open, "PATCH", `"name":"y"`, "one", ""},
		{"PATCH with an empty object", open, "PATCH", `"application":{}`, "one", ""},
		{"PATCH with null", open, "PATCH", `"application":null`, "", ""},
		{"PATCH with both null", open, "PATCH", `"application":null,"application_id":null`, "", ""},
		{"PATCH with a null id", open, "PATCH", `"application_id":null`, "", required},
		{"PATCH without an id", open, "PATCH", `"application":{"id":null}`, "", required},
		{"PATCH to another", open, "PATCH", `"application_id":"{two}"`, "two", ""},
		{"PATCH that closes it", open, "PATCH", closed + `,"application_id":null`, "", ""},
		{"PATCH that returns to the default", open, "PATCH", `"require_auth":null,"application_id":null`, "", ""},
		{"PATCH that opens it", closed, "PATCH", open, "one", ""},
		{"PATCH that opens it with null", closed, "PATCH", open + `,"application":null`, "", ""},
		{"PATCH that opens it with a null id", closed, "PATCH", open + `,"application_id":null`, "", required},
	} {
		d.judge(test.name, test.method, d.make(test.from+","+one), test.fields, test.want, test.err)
	}
	// One that has no application has none to lose.
	d.judge("PUT of one without an application", "PUT", d.make(open), open, "", "")
	d.judge("PATCH of one without an application", "PATCH", d.make(open), `"application_id":null`, "", "")
}

// TestWhatWasReadCanBeWrittenBack for every field, of proxies and reactors of
// any form: nothing of it changes but who changed it, and when.
func TestWhatWasReadCanBeWrittenBack(t *testing.T) {
	const rounds = 25
	for _, kind := range []string{"proxies", "reactors"} {
		d := newDefiner(t, kind)
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		for range rounds {
			in, err := json.Marshal(d.random(r))
			if err != nil {
				t.Fatal(err)
			}
			var made struct{ ID string }
			d.server.Call(t, "POST", "/"+kind, d.manager.Key, string(in)).Into(t, 201, &made)
			path := "/" + made.ID
			before := d.read(path)
			for _, method := range []string{"PUT", "PATCH"} {
				if got := d.server.Call(t, method, "/"+kind+path, d.manager.Key, before.Body); got.Status >= 300 {
					t.Fatalf("seed %d: %s of what was read = %s\n%s", seed, method, got, before.Body)
				}
				want, got := decode(t, before.Body).(map[string]any), decode(t, d.read(path).Body).(map[string]any)
				for _, v := range []map[string]any{want, got} {
					maps.DeleteFunc(v, func(name string, _ any) bool { return strings.HasPrefix(name, "modified_") })
				}
				if difference := compare("", want, got); difference != "" {
					t.Fatalf("seed %d: after a %s of what was read, %s\nbefore %s", seed, method, difference, before.Body)
				}
			}
		}
	}
}

// random is a body that makes a proxy or a reactor.
func (d *definer) random(r *rand.Rand) map[string]any {
	letters := []rune("aZ09 _-.\"'\\/<>&é☂😀{}$\n\t\u2028")
	text := func(longest int) string {
		var b strings.Builder
		for range r.IntN(longest + 1) {
			b.WriteRune(letters[r.IntN(len(letters))])
		}
		return b.String()
	}
	name := func() string { return "n" + strings.NewReplacer("\n", "", "\t", "", "\u2028", "").Replace(text(40)) }
	configuration := make(map[string]any)
	for range r.IntN(4) {
		configuration["k"+text(20)] = text(100)
	}
	code := func() string { return "module.exports = 1 //" + text(200) }
	out := map[string]any{"name": name(), "configuration": configuration}
	optional := func(do func()) {
		if r.IntN(2) == 0 {
			do()
		}
	}
	optional(func() { out["application"] = map[string]string{"id": d.names[[]string{"one", "two"}[r.IntN(2)]]} })
	if d.kind == "reactors" {
		out["code"] = code()
		return out
	}
	out["destination_url"] = "https://psp.example.com/" + []string{"", "v1", "v1/?k=1&l=%7B", "a%2fb"}[r.IntN(4)]
	optional(func() { out["require_auth"] = r.IntN(2) == 0 })
	optional(func() { out["request_transform"] = map[string]string{"code": code()} })
	optional(func() { out["response_transform"] = map[string]string{"code": code()} })
	if len(configuration) == 0 {
		optional(func() { delete(out, "configuration") })
	}
	return out
}
