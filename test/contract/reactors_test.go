package contract_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestAReactorsLife(t *testing.T) {
	const (
		made = `"created_by":"{manager}","created_at":"2031-05-06T07:08:11.123456+00:00"`
		code = `module.exports = async (req) => ({ raw: '<\u00e9&>' })`
	)
	reactor := func(name, code, configuration, more string) string {
		return fmt.Sprintf(`{"id":"{reactor}","tenant_id":"{tenant}","name":%q,"code":%q,"configuration":%s,"state":"active"%s}`, name, code, configuration, more)
	}
	changed := func(second int) string {
		return fmt.Sprintf(`,%s,"modified_by":"{manager}","modified_at":"2031-05-06T07:08:%02d.123456+00:00"`, made, second)
	}
	w := newWalk(t)
	w.walk(
		step{call: "POST /applications", status: 201, body: `{"name":"code","type":"private","permissions":["token:create"]}`, want: `"<any>"`,
			keep: map[string]string{"id": "app"}, location: "/applications/{app}"},
		step{name: "of an application only its id counts", call: "POST /reactors", status: 201,
			body: `{"name":"Charge","code":` + fmt.Sprintf("%q", code) + `,"configuration":{"URL":"https://x","EMPTY":"","NONE":null},"application":{"id":"{app}","name":"whatever","type":"management"},"unknown":1}`,
			want: strings.Replace(reactor("Charge", code, `{"URL":"https://x","EMPTY":""}`, `,"application":{"id":"{app}"},`+made), "{reactor}", "<uuid>", 1),
			keep: map[string]string{"id": "reactor"}, location: "/reactors/{reactor}"},
		step{call: "GET /reactors/{reactor}", status: 200, want: reactor("Charge", code, `{"URL":"https://x","EMPTY":""}`, `,"application":{"id":"{app}"},`+made)},
		step{name: "an application in use stays", call: "DELETE /applications/{app}", status: 409,
			want: problem(409, "the application is in use; reactors and proxies that name it: 1")},
		step{name: "a patch merges the configuration", call: "PATCH /reactors/{reactor}", status: 204, body: `{"configuration":{"URL":"https://y","EMPTY":null,"MORE":"m"}}`},
		step{call: "GET /reactors/{reactor}", status: 200, want: reactor("Charge", code, `{"URL":"https://y","MORE":"m"}`, `,"application":{"id":"{app}"}`+changed(14))},
		step{name: "a patch of nothing is one", call: "PATCH /reactors/{reactor}", status: 204, body: `{"name":"Pay","application":null}`},
		step{call: "GET /reactors/{reactor}", status: 200, want: reactor("Pay", code, `{"URL":"https://y","MORE":"m"}`, changed(16))},
		step{name: "an application without an id is none", call: "PUT /reactors/{reactor}", status: 200, body: `{"name":"Put","code":"1","configuration":{},"application":{"id":null}}`,
			want: reactor("Put", "1", `{}`, changed(18))},
		step{name: "PUT resets what it leaves out", call: "PUT /reactors/{reactor}", status: 200, body: `{"name":"Put","code":"2","configuration":{"A":"a"},"application":{"id":"{app}"}}`,
			want: reactor("Put", "2", `{"A":"a"}`, `,"application":{"id":"{app}"}`+changed(19))},
		step{call: "PUT /reactors/{reactor}", status: 200, body: `{"name":"Put","code":"2","configuration":{}}`, want: reactor("Put", "2", `{}`, changed(20))},
		step{name: "now nothing uses the application", call: "DELETE /applications/{app}", status: 204},
		step{name: "and nothing can", call: "PATCH /reactors/{reactor}", status: 400, body: `{"application":{"id":"{app}"}}`,
			want: refused("application.id", "must be a public or private application of the tenant")},
		step{call: "DELETE /reactors/{reactor}", status: 204},
		step{call: "GET /reactors/{reactor}", status: 404, want: problem(404, "no such reactor")},
		step{call: "PUT /reactors/{reactor}", status: 404, body: `{"name":"x","code":"1","configuration":{}}`, want: problem(404, "no such reactor")},
		step{call: "PATCH /reactors/{reactor}", status: 404, body: `{}`, want: problem(404, "no such reactor")},
		step{call: "DELETE /reactors/{reactor}", status: 404, want: problem(404, "no such reactor")},
		step{name: "the log has it all", call: "GET /logs?entity_type=reactor&entity_id={reactor}&size=1", status: 200,
			want: `{"pagination":{"total_items":10,"page_number":1,"page_size":1,"total_pages":10},"data":["<any>"]}`},
	)
}

func TestWhatMakesNoReactor(t *testing.T) {
	const application = "must be a public or private application of the tenant"
	w := newWalk(t)
	w.names["theirs"] = w.server.Application(t, w.server.Tenant(t).Tenant.ID, private("token:use")).ID
	long := `"` + strings.Repeat("é", 10_000) + `"`
	many := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"K%d":"v"`, i))
		}
		return strings.Join(list, ",")
	}
	for name, test := range map[string]struct{ body, path, message string }{
		"no name":                        {`{"code":"1","configuration":{}}`, "name", "must have 1 to 200 characters"},
		"a long name":                    {`{"name":"` + strings.Repeat("é", 201) + `","code":"1","configuration":{}}`, "name", "must have 1 to 200 characters"},
		"a name of control characters":   {`{"name":"a\u0000","code":"1","configuration":{}}`, "name", "must not hold control characters"},
		"a number as a name":             {`{"name":4242424242424242,"code":"1","configuration":{}}`, "name", "must be a string"},
		"no code":                        {`{"name":"x","configuration":{}}`, "code", "is required"},
		"code of null":                   {`{"name":"x","code":null,"configuration":{}}`, "code", "is required"},
		"code of spaces":                 {`{"name":"x","code":" \n ","configuration":{}}`, "code", "is required"},
		"code that is a number":          {`{"name":"x","code":1,"configuration":{}}`, "code", "must be a string"},
		"code that is long":              {`{"name":"x","code":"` + strings.Repeat("é", 50_001) + `","configuration":{}}`, "code", "is too long"},
		"no configuration":               {`{"name":"x","code":"1"}`, "configuration", "is required"},
		"a configuration of null":        {`{"name":"x","code":"1","configuration":null}`, "configuration", "is required"},
		"a configuration that is a list": {`{"name":"x","code":"1","configuration":[]}`, "configuration", "must be an object"},
		"a configured number":            {`{"name":"x","code":"1","configuration":{"4242424242424242":1}}`, "configuration", "must have values that are strings"},
		"a name too many":                {`{"name":"x","code":"1","configuration":{` + many(26) + `}}`, "configuration", "must have at most 25 entries"},
		"an empty name":                  {`{"name":"x","code":"1","configuration":{"":"v"}}`, "configuration", "must have names of 1 to 200 characters and values of at most 10,000"},
		"a long value":                   {`{"name":"x","code":"1","configuration":{"A":"` + strings.Repeat("x", 10_001) + `"}}`, "configuration", "must have names of 1 to 200 characters and values of at most 10,000"},
		"long values": {`{"name":"x","code":"1","configuration":{"A":` + long + `,"B":` + long + `,"C":` + long + `,"D":` + long + `}}`,
			"configuration", "must come to at most 60 KiB of JSON"},
		"a text as an application":     {`{"name":"x","code":"1","configuration":{},"application":"{manager}"}`, "application", "must be an object"},
		"a number as an application":   {`{"name":"x","code":"1","configuration":{},"application":{"id":1}}`, "application.id", "must be a string"},
		"an application of nothing":    {`{"name":"x","code":"1","configuration":{},"application":{"id":"{nothing}"}}`, "application.id", application},
		"an application for managing":  {`{"name":"x","code":"1","configuration":{},"application":{"id":"{manager}"}}`, "application.id", application},
		"an application of another's":  {`{"name":"x","code":"1","configuration":{},"application":{"id":"{theirs}"}}`, "application.id", application},
		"an application that is a key": {`{"name":"x","code":"1","configuration":{},"application":{"id":"{manager_key}"}}`, "application.id", application},
	} {
		w.step(step{name: name, call: "POST /reactors", body: test.body, status: 400, want: refused(test.path, test.message)})
	}
	w.step(step{call: "POST /reactors", body: `[]`, status: 400, want: problem(400, "the body must be a JSON object")})
	w.step(step{name: "at the bounds", call: "POST /reactors", status: 201, location: "/reactors/{reactor}", keep: map[string]string{"id": "reactor"}, want: `"<any>"`,
		body: `{"name":"` + strings.Repeat("é", 200) + `","code":"` + strings.Repeat("é", 50_000) + `","configuration":{` + many(24) + `,"A":"` + strings.Repeat("x", 10_000) + `"}}`})
	for name, test := range map[string]struct{ body, path, message string }{
		"the name goes":          {`{"name":null}`, "name", "must have 1 to 200 characters"},
		"the code goes":          {`{"code":null}`, "code", "is required"},
		"the code is a number":   {`{"code":1}`, "code", "must be a string"},
		"the configuration goes": {`{"configuration":null}`, "configuration", "is required"},
		"an entry too many":      {`{"configuration":{"B":"b"}}`, "configuration", "must have at most 25 entries"},
	} {
		w.step(step{name: name, call: "PATCH /reactors/{reactor}", body: test.body, status: 400, want: refused(test.path, test.message)})
	}
	w.step(step{call: "PATCH /reactors/{reactor}", body: `[]`, status: 400, want: problem(400, "the body must be a JSON object")})
	if got := w.server.Call(t, "PATCH", w.fill("/reactors/{reactor}"), w.manager.Key, `{}`, "Content-Type", "application/json"); got.Status != 415 {
		t.Errorf("a patch that is sent as JSON = %s, want 415", got)
	}
}

func TestReactorsAreFoundByIDAndName(t *testing.T) {
	w := newWalk(t)
	for _, name := range []string{"Charge card", "charge bank", "100%_Refund", "Look-up *"} {
		w.walk(step{call: "POST /reactors", body: `{"name":"` + name + `","code":"1","configuration":{}}`, status: 201, want: `"<any>"`,
			keep: map[string]string{"id": name}, location: "/reactors/{" + name + "}"})
	}
	for query, want := range map[string][]string{
		"":             {"Look-up *", "100%_Refund", "charge bank", "Charge card"},
		"name=CHARGE":  {"charge bank", "Charge card"},
		"name=charge*": {"charge bank", "Charge card"},
		"name=*card":   {"Charge card"},
		"name=harge*":  {},
		"name=%25_":    {"100%_Refund"},
		"name=c*e+c*":  {"Charge card"},
		"id={Charge card}&id={100%_Refund}&id={nothing}": {"100%_Refund", "Charge card"},
		"id={Charge card}&name=bank":                     {},
		"size=1&page=2":                                  {"100%_Refund"},
	} {
		got := w.server.Call(t, "GET", "/reactors?"+w.fill(query), w.manager.Key, "")
		names := []string{}
		data, _ := member(decode(t, got.Body), "data").([]any)
		for _, item := range data {
			names = append(names, fmt.Sprint(member(item, "name")))
		}
		if fmt.Sprint(names) != fmt.Sprint(want) || got.Status != 200 {
			t.Errorf("GET /reactors?%s = %d %q, want %q", query, got.Status, names, want)
		}
	}
	for _, query := range []string{"size=0", "size=101", "page=0", "page=x"} {
		if got := w.server.Call(t, "GET", "/reactors?"+query, w.manager.Key, ""); got.Status != 400 {
			t.Errorf("GET /reactors?%s = %s, want 400", query, got)
		}
	}
}

// TestAServerWithoutASandboxKeepsReactorsAndRunsNone: one that would fail again
// the same way is no 5xx.
func TestAServerWithoutASandboxKeepsReactorsAndRunsNone(t *testing.T) {
	w := newWalk(t)
	w.names["user"] = w.server.Application(t, w.tenant, private("token:use")).Key
	w.walk(
		step{name: "code is not read here", call: "POST /reactors", body: `{"name":"x","code":"this is no code","configuration":{}}`, status: 201, want: `"<any>"`,
			keep: map[string]string{"id": "reactor"}, location: "/reactors/{reactor}"},
		step{call: "POST /reactors/{reactor}/react", key: "user", body: `{}`, status: 422, want: problem(422, "this server does not run code")},
		step{call: "GET /reactors/{reactor}/runs", status: 200, want: `{"pagination":{"total_items":0,"page_number":1,"page_size":20,"total_pages":0},"data":[]}`},
	)
}
