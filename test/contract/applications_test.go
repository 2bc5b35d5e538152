package contract_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/date"
	"github.com/tokenkeep/tokenkeep/internal/origin"
)

const everyManagement = `["tenant:read","tenant:update","tenant:delete","application:create","application:read","application:update",` +
	`"application:delete","session:read","session:delete","reactor:create","reactor:read","reactor:update","reactor:delete",` +
	`"proxy:create","proxy:read","proxy:update","proxy:delete","log:read","report:read","event:read",` +
	`"webhook:create","webhook:read","webhook:update","webhook:delete","member:create","member:read","member:update","member:delete"]`

func TestAnApplicationsLife(t *testing.T) {
	const (
		rule   = `{"priority":1,"description":"For support.","container":"/pci/high/","transform":"mask","permissions":["token:read"]}`
		key    = `{"id":"{key_id}","version":"1","prefix":"<prefix>","created_by":"{manager}","created_at":"2031-05-06T07:08:10.123456+00:00"}`
		made   = `"created_by":"{manager}","created_at":"2031-05-06T07:08:10.123456+00:00"`
		server = `"id":"{app}","tenant_id":"{tenant}","name":"server","type":"private","permissions":["token:create"],"rules":[` + rule + `],"keys":[` + key + `]`
	)
	w := newWalk(t)
	w.walk(
		step{name: "the answer that makes it shows its key, once", call: "POST /applications", status: 201,
			body: `{"name":"server","type":"private","permissions":["token:create","token:create"],"unknown":{},` +
				`"rules":[{"description":"For support.","container":"/PCI/high/","transform":"mask","permissions":["token:read"],"conditions":[]}]}`,
			want: `{"id":"<uuid>","tenant_id":"{tenant}","name":"server","type":"private","permissions":["token:create"],"rules":[` + rule + `],` +
				`"keys":[{"id":"<uuid>","version":"1","prefix":"<prefix>","created_by":"{manager}","created_at":"<time>"}],"key":"<private>",` + made + `}`,
			keep: map[string]string{"id": "app", "key": "app_key", "keys.0.id": "key_id"}, location: "/applications/{app}"},
		step{call: "GET /applications/{app}", status: 200, want: `{` + server + `,` + made + `}`},
		step{name: "it knows itself", call: "GET /applications/key", key: "app_key", status: 200, want: `{` + server + `,` + made + `}`},
		step{name: "PUT replaces what it gives and resets what it leaves out", call: "PUT /applications/{app}", status: 200,
			body: `{"name":"other","type":"private","permissions":["token:use"],"expires_at":"2031-12-24T18:00:00.5-05:00"}`,
			want: `{"id":"{app}","tenant_id":"{tenant}","name":"other","type":"private","permissions":["token:use"],"rules":[],"keys":[` + key + `],` +
				`"expires_at":"2031-12-24T23:00:00.500000+00:00",` + made + `,"modified_by":"{manager}","modified_at":"2031-05-06T07:08:13.123456+00:00"}`},
		step{name: "an expiry that is null is none", call: "PUT /applications/{app}", status: 200,
			body: `{"name":"other","permissions":null,"expires_at":null,"rules":[{"container":"/","transform":"redact","permissions":["token:search"],"priority":7}]}`,
			want: `{"id":"{app}","tenant_id":"{tenant}","name":"other","type":"private","permissions":[],` +
				`"rules":[{"priority":7,"container":"/","transform":"redact","permissions":["token:search"]}],"keys":[` + key + `],` +
				made + `,"modified_by":"{manager}","modified_at":"2031-05-06T07:08:14.123456+00:00"}`},
		step{name: "its type is for ever", call: "PUT /applications/{app}", status: 400, body: `{"name":"other","type":"public","permissions":["token:create"]}`,
			want: refused("type", "cannot be changed")},
		step{call: "DELETE /applications/{app}", status: 204},
		step{name: "it is gone", call: "GET /applications/{app}", status: 404, want: problem(404, "no such application")},
		step{name: "and gone for whoever deletes it again", call: "DELETE /applications/{app}", status: 404, want: problem(404, "no such application")},
		step{name: "its key is dead", call: "GET /applications/key", key: "app_key", status: 401, want: problem(401, "unknown API key")},
	)
}

func TestAllowedOrigins(t *testing.T) {
	const (
		who   = `"tenant_id":"{tenant}","name":"page","type":"public","permissions":["token:create"],"rules":[]`
		keys  = `"keys":[{"id":"<uuid>","version":"1","prefix":"<prefix>","created_by":"{manager}","created_at":"<time>"}]`
		times = `"created_by":"{manager}","created_at":"<time>","modified_by":"{manager}","modified_at":"<time>"`
	)
	w := newWalk(t)
	w.walk(
		step{name: "a page may embed fields", call: "POST /applications", status: 201,
			body: `{"name":"page","type":"public","permissions":["token:create"],"allowed_origins":["https://shop.example","http://localhost:3000","https://shop.example"]}`,
			want: `{"id":"<uuid>",` + who + `,` + keys + `,"key":"<public>","allowed_origins":["https://shop.example","http://localhost:3000"],"created_by":"{manager}","created_at":"<time>"}`,
			keep: map[string]string{"id": "page", "key": "page_key"}, location: "/applications/{page}"},
		step{name: "a page can read its own", call: "GET /applications/key", key: "page_key", status: 200,
			want: `{"id":"{page}",` + who + `,` + keys + `,"allowed_origins":["https://shop.example","http://localhost:3000"],"created_by":"{manager}","created_at":"<time>"}`},
		step{name: "PUT replaces the list", call: "PUT /applications/{page}", status: 200,
			body: `{"name":"page","permissions":["token:create"],"allowed_origins":["https://pay.example:8443"]}`,
			want: `{"id":"{page}",` + who + `,` + keys + `,"allowed_origins":["https://pay.example:8443"],` + times + `}`},
		step{name: "and removes it when it leaves it out", call: "PUT /applications/{page}", status: 200,
			body: `{"name":"page","permissions":["token:create"]}`,
			want: `{"id":"{page}",` + who + `,` + keys + `,` + times + `}`},
		step{name: "null and an empty list are none", call: "PUT /applications/{page}", status: 200,
			body: `{"name":"page","permissions":["token:create"],"allowed_origins":null}`,
			want: `{"id":"{page}",` + who + `,` + keys + `,` + times + `}`},
	)
}

func TestWhatMakesNoApplication(t *testing.T) {
	w := newWalk(t)
	for name, test := range map[string]struct{ body, want string }{
		"origins of a server": {`{"name":"x","type":"private","permissions":["token:create"],"allowed_origins":["https://shop.example"]}`, refused("allowed_origins", "only public applications have allowed origins")},
		"an origin's path":    {`{"name":"x","type":"public","permissions":["token:create"],"allowed_origins":["https://shop.example/"]}`, refused("allowed_origins.0", origin.Must)},
		"a wildcard":          {`{"name":"x","type":"public","permissions":["token:create"],"allowed_origins":["https://shop.example","*"]}`, refused("allowed_origins.1", origin.Must)},
		"a null origin":       {`{"name":"x","type":"public","permissions":["token:create"],"allowed_origins":[null]}`, refused("allowed_origins.0", origin.Must)},
		"too many origins":    {`{"name":"x","type":"public","permissions":["token:create"],"allowed_origins":[` + strings.Repeat(`"https://shop.example",`, 20) + `"https://shop.example"]}`, refused("allowed_origins", "must have at most 20 origins")},
		"no type":             {`{"name":"x","permissions":["token:create"]}`, refused("type", "must be public, private or management")},
		"neither grants":      {`{"name":"x","type":"private"}`, refused("permissions", "permissions or rules are required")},
		"empty grants":        {`{"name":"x","type":"private","permissions":[],"rules":[]}`, refused("permissions", "permissions or rules are required")},
		"no permission":       {`{"name":"x","type":"private","permissions":["4242424242424242"]}`, refused("permissions", unknownPermission)},
		"a null permission":   {`{"name":"x","type":"private","permissions":[null]}`, refused("permissions", unknownPermission)},
		"another type's":      {`{"name":"x","type":"public","permissions":["token:use"]}`, refused("permissions", "has a permission that cannot be held here")},
		"a text as a list":    {`{"name":"x","type":"private","permissions":"token:create"}`, refused("permissions", "must be an array")},
		"a rule's container":  {`{"name":"x","type":"private","rules":[{"container":"pci","transform":"mask","permissions":["token:read"]}]}`, refused("rules.0.container", "must be a path of letters, digits, - and _ that begins and ends with /")},
		"a rule's conditions": {`{"name":"x","type":"private","rules":[{"conditions":[{"attribute":"id","operator":"equals","value":"x"}],"transform":"mask","permissions":["token:read"]}]}`, refused("rules.0.conditions", "only rules of sessions have conditions")},
		"a rule's priority":   {`{"name":"x","type":"private","rules":[{"priority":"1","container":"/","transform":"mask","permissions":["token:read"]}]}`, refused("rules.0.priority", "must be a whole number in range")},
		"management rules":    {`{"name":"x","type":"management","permissions":["log:read"],"rules":[{"container":"/","transform":"mask","permissions":["token:read"]}]}`, refused("rules", "management applications have no rules")},
		"an expiry now":       {`{"name":"x","type":"private","permissions":["token:use"],"expires_at":"2031-05-06T07:08:09.123456Z"}`, refused("expires_at", "must be in the future")},
		"an expiry long ago":  {`{"name":"x","type":"private","permissions":["token:use"],"expires_at":"1970-01-01T00:00:00Z"}`, refused("expires_at", "must be in the future")},
		"the year 1":          {`{"name":"x","type":"private","permissions":["token:use"],"expires_at":"0001-01-01T00:00:00Z"}`, refused("expires_at", date.Wanted)},
		"no instant":          {`{"name":"x","type":"private","permissions":["token:use"],"expires_at":"tomorrow"}`, refused("expires_at", date.Wanted)},
		"a number as expiry":  {`{"name":"x","type":"private","permissions":["token:use"],"expires_at":4242424242424242}`, refused("expires_at", date.Wanted)},
		"no choice":           {`{"name":"x","type":"private","permissions":["token:use"],"create_key":"no"}`, refused("create_key", "must be true or false")},
		"a long name":         {`{"name":"` + strings.Repeat("x", 201) + `","type":"private","permissions":["token:use"]}`, refused("name", "must have 1 to 200 characters")},
		"a control character": {`{"name":"a\u0007b","type":"private","permissions":["token:use"]}`, refused("name", "must not hold control characters")},
		"a member twice":      {`{"name":"x","name":"y"}`, problem(400, "the body gives a member twice in one object")},
		"no JSON":             {`{"name":`, problem(400, "the body is not valid JSON")},
	} {
		w.step(step{name: name, call: "POST /applications", body: test.body, status: 400, want: test.want})
	}
	w.step(step{name: "nothing was made", call: "GET /applications?type=public&type=private", status: 200,
		want: `{"pagination":{"total_items":0,"page_number":1,"page_size":20,"total_pages":0},"data":[]}`})
}

func TestKeys(t *testing.T) {
	const (
		first  = `{"id":"{k1}","version":"1","prefix":"<prefix>","created_by":"{manager}","created_at":"2031-05-06T07:08:11.123456+00:00"}`
		second = `{"id":"{k2}","version":"2","prefix":"<prefix>","created_by":"{manager}","created_at":"2031-05-06T07:08:12.123456+00:00"}`
		third  = `{"id":"{k3}","version":"3","prefix":"<prefix>","created_by":"{manager}","created_at":"2031-05-06T07:08:13.123456+00:00"}`
		shown  = `{"id":"<uuid>","version":"%","prefix":"<prefix>","key":"<public>","created_by":"{manager}","created_at":"<time>"}`
	)
	w := newWalk(t)
	w.names["stranger_key"] = w.server.Tenant(t).Application.Key
	web := `"id":"{app}","tenant_id":"{tenant}","name":"web","type":"public","permissions":["token:create"],"rules":[],`
	made := `"created_by":"{manager}","created_at":"2031-05-06T07:08:10.123456+00:00"`
	w.walk(
		step{name: "an application may begin without a key", call: "POST /applications", status: 201,
			body: `{"name":"web","type":"public","permissions":["token:create"],"create_key":false}`,
			want: `{"id":"<uuid>","tenant_id":"{tenant}","name":"web","type":"public","permissions":["token:create"],"rules":[],"keys":[],` + made + `}`,
			keep: map[string]string{"id": "app"}, location: "/applications/{app}"},
		step{call: "POST /applications/{app}/keys", status: 201, want: strings.Replace(shown, "%", "1", 1),
			keep: map[string]string{"id": "k1", "key": "key1"}, location: "/applications/{app}/keys/{k1}"},
		step{call: "POST /applications/{app}/keys", status: 201, want: strings.Replace(shown, "%", "2", 1),
			keep: map[string]string{"id": "k2", "key": "key2"}, location: "/applications/{app}/keys/{k2}"},
		step{call: "POST /applications/{app}/keys", status: 201, want: strings.Replace(shown, "%", "3", 1),
			keep: map[string]string{"id": "k3", "key": "key3"}, location: "/applications/{app}/keys/{k3}"},
		step{name: "a fourth", call: "POST /applications/{app}/keys", status: 409,
			want: problem(409, "the application has as many keys as it may have: delete one first")},
		step{name: "the list shows none of them", call: "GET /applications/{app}/keys", status: 200, want: `[` + first + `,` + second + `,` + third + `]`},
		step{name: "those asked for", call: "GET /applications/{app}/keys?id={k3}&id={k1}&id=none", status: 200, want: `[` + first + `,` + third + `]`},
		step{name: "none that is asked for", call: "GET /applications/{app}/keys?id=none", status: 200, want: `[]`},
		step{call: "GET /applications/{app}/keys/{k2}", status: 200, want: second},
		step{name: "the second key is its application's", call: "GET /applications/key", key: "key2", status: 200,
			want: `{` + web + `"keys":[` + first + `,` + second + `,` + third + `],` + made + `}`},
		step{call: "DELETE /applications/{app}/keys/{k2}", status: 204},
		step{name: "one that is gone is gone", call: "DELETE /applications/{app}/keys/{k2}", status: 204},
		step{name: "one that never was, too", call: "DELETE /applications/{app}/keys/{nothing}", status: 204},
		step{name: "one of an application that is not there, too", call: "DELETE /applications/{nothing}/keys/{k1}", status: 204},
		step{name: "another tenant's is not seen", call: "DELETE /applications/{app}/keys/{k1}", key: "stranger_key", status: 204},
		step{call: "GET /applications/{app}/keys/{k2}", status: 404, want: problem(404, "no such key")},
		step{name: "a revoked key is dead", call: "GET /applications/key", key: "key2", status: 401, want: problem(401, "unknown API key")},
		step{name: "the others live", call: "GET /applications/key", key: "key1", status: 200, want: `{` + web + `"keys":[` + first + `,` + third + `],` + made + `}`},
		step{name: "regenerate leaves one", call: "POST /applications/{app}/regenerate", status: 200,
			want: `{` + web + `"keys":[{"id":"<uuid>","version":"4","prefix":"<prefix>","created_by":"{manager}","created_at":"<time>"}],"key":"<public>",` + made + `}`,
			keep: map[string]string{"key": "key4", "keys.0.id": "k4"}},
		step{name: "all older ones are dead", call: "GET /applications/key", key: "key1", status: 401, want: problem(401, "unknown API key")},
		step{name: "all older ones are dead", call: "GET /applications/key", key: "key3", status: 401, want: problem(401, "unknown API key")},
		step{name: "the new one is in the list, without itself", call: "GET /applications/{app}/keys", status: 200, key: "manager_key",
			want: `[{"id":"{k4}","version":"4","prefix":"<prefix>","created_by":"{manager}","created_at":"<time>"}]`},
		step{name: "PUT shows no key", call: "PUT /applications/{app}", status: 200, body: `{"name":"web","permissions":["token:create"]}`,
			want: `{` + web + `"keys":[{"id":"{k4}","version":"4","prefix":"<prefix>","created_by":"{manager}","created_at":"<time>"}],` + made +
				`,"modified_by":"{manager}","modified_at":"<time>"}`},
		step{call: "DELETE /applications/{app}", status: 204},
		step{name: "with its application it is gone", call: "DELETE /applications/{app}/keys/{k4}", status: 204},
	)
	w.application("clerk", "private", "token:use")
	w.call("clerk_key", "DELETE /applications/{app}/keys/{k4}", "", 403) // nothing is told to callers that may not delete it
	var log api.List[api.LogEntry]
	w.server.Call(t, "GET", "/logs?entity_type=key&size=100", w.names["manager_key"], "").Into(t, 200, &log)
	var deleted []string
	for _, e := range log.Data {
		if e.Operation == "delete" && e.Outcome == "allowed" {
			deleted = append(deleted, e.EntityID)
		}
	}
	if len(deleted) != 1 || deleted[0] != w.names["k2"] {
		t.Errorf("the log has deletions of the keys %v, want that of %s alone", deleted, w.names["k2"])
	}
}

func TestAnExpiredApplication(t *testing.T) {
	w := newWalk(t)
	w.walk(step{call: "POST /applications", status: 201, body: `{"name":"x","type":"private","permissions":["token:use"],"expires_at":"2031-05-06T08:00:00Z"}`,
		want: `{"id":"<uuid>","tenant_id":"{tenant}","name":"x","type":"private","permissions":["token:use"],"rules":[],"key":"<private>",` +
			`"keys":[{"id":"<uuid>","version":"1","prefix":"<prefix>","created_by":"{manager}","created_at":"<time>"}],` +
			`"expires_at":"2031-05-06T08:00:00.000000+00:00","created_by":"{manager}","created_at":"<time>"}`,
		keep: map[string]string{"id": "app", "key": "app_key"}, location: "/applications/{app}"})
	w.clock.Advance(time.Hour)
	w.walk(
		step{call: "GET /applications/key", key: "app_key", status: 401, want: problem(401, "the application of this API key has expired")},
		step{name: "it can be let in again", call: "PUT /applications/{app}", status: 200, body: `{"name":"x","permissions":["token:use"]}`,
			want: `{"id":"{app}","tenant_id":"{tenant}","name":"x","type":"private","permissions":["token:use"],"rules":[],` +
				`"keys":[{"id":"<uuid>","version":"1","prefix":"<prefix>","created_by":"{manager}","created_at":"<time>"}],` +
				`"created_by":"{manager}","created_at":"<time>","modified_by":"{manager}","modified_at":"<time>"}`},
	)
	if got := w.server.Call(t, "GET", "/permissions", w.names["app_key"], ""); got.Status != 200 {
		t.Errorf("the key of an application that does not expire any more = %s", got)
	}
}

func TestPermissions(t *testing.T) {
	const (
		public  = `[{"type":"token:create","description":"<text>","application_types":["public","private"]},{"type":"token:update","description":"<text>","application_types":["public","private"]}]`
		private = `[{"type":"token:create","description":"<text>","application_types":["public","private"]},{"type":"token:read","description":"<text>","application_types":["private"]},` +
			`{"type":"token:update","description":"<text>","application_types":["public","private"]},{"type":"token:delete","description":"<text>","application_types":["private"]},` +
			`{"type":"token:search","description":"<text>","application_types":["private"]},{"type":"token:use","description":"<text>","application_types":["private"]}]`
	)
	var management []string
	for _, name := range strings.Split(strings.Trim(everyManagement, "[]"), ",") {
		management = append(management, `{"type":`+name+`,"description":"<text>","application_types":["management"]}`)
	}
	all := strings.TrimSuffix(private, "]") + "," + strings.Join(management, ",") + "]"
	w := newWalk(t)
	for _, kind := range []string{"public", "private"} {
		w.walk(step{call: "POST /applications", status: 201, body: `{"name":"x","type":"` + kind + `","permissions":["token:create"]}`,
			want: `{"id":"<uuid>","tenant_id":"{tenant}","name":"x","type":"` + kind + `","permissions":["token:create"],"rules":[],"key":"<` + kind + `>",` +
				`"keys":[{"id":"<uuid>","version":"1","prefix":"<prefix>","created_by":"{manager}","created_at":"<time>"}],"created_by":"{manager}","created_at":"<time>"}`,
			keep: map[string]string{"id": kind, "key": kind + "_key"}, location: "/applications/{" + kind + "}"})
	}
	for _, key := range []string{"manager_key", "private_key", "public_key"} { // any valid key
		w.walk(
			step{call: "GET /permissions", key: key, status: 200, want: all},
			step{call: "GET /permissions?application_type=public", key: key, status: 200, want: public},
			step{call: "GET /permissions?application_type=private", key: key, status: 200, want: private},
			step{call: "GET /permissions?application_type=management", key: key, status: 200, want: "[" + strings.Join(management, ",") + "]"},
			step{call: "GET /permissions?application_type=4242424242424242", key: key, status: 400, want: refused("application_type", "must be public, private or management")},
			step{call: "GET /permissions?application_type=", key: key, status: 400, want: refused("application_type", "must be public, private or management")},
		)
	}
}

func TestTheVersionOfAKeyIsAStringOfDigits(t *testing.T) {
	w := newWalk(t)
	w.application("server", "private", "token:use")
	for call, path := range map[string]string{"GET /applications/{server}": "keys.0.version", "GET /applications/{server}/keys": "0.version", "POST /applications/{server}/keys": "version"} {
		method, target, _ := strings.Cut(w.fill(call), " ")
		got := w.server.Call(t, method, target, w.names["manager_key"], "")
		if version, ok := member(decode(t, got.Body), path).(string); !ok || strings.Trim(version, "0123456789") != "" || version == "" {
			t.Errorf("%s: %s is no string of digits in %s", call, path, got)
		}
	}
}
