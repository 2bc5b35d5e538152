package contract_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// explain asks a question and returns the answer.
func (w *walk) explain(question string) (e api.Explanation) {
	w.t.Helper()
	w.server.Call(w.t, "POST", "/access/explain", w.names["manager_key"], w.fill(question)).Into(w.t, 200, &e)
	return e
}

// verdict is what a question comes to, in short.
func verdict(e api.Explanation) string {
	out := "refused"
	if e.Allowed {
		out = e.Transform
	}
	if e.DependsOnID {
		out += ", depends on the id"
	}
	if e.Inactive != "" {
		out += ", " + e.Inactive
	}
	if by := e.DecidedBy; by != nil {
		out += ": "
		if by.OfMaker {
			out += "maker's "
		}
		if by.Rule != nil {
			out += fmt.Sprint("rule ", *by.Rule, ", ")
		}
		out += by.Reason
	}
	return out
}

func newAccess(t *testing.T) *walk {
	t.Helper()
	w := newSessions(t, "token:create",
		api.Rule{Container: "/pci/low/", Transform: "reveal", Permissions: []string{"token:read"}},
		api.Rule{Container: "/pci/", Transform: "mask", Permissions: []string{"token:read", "token:use"}})
	w.call("filler_key", "POST /tokens", `{"id":"two","type":"card","data":{"number":"4242424242424242"},"containers":["/pci/low/","/bank/"],"metadata":{"a":"secret"}}`, 201)
	w.session("s", `"permissions":["token:create"],"rules":[{"conditions":[{"attribute":"id","operator":"equals","value":"card-1"}],"transform":"mask","permissions":["token:read"]}]`)
	w.wait("waiting")
	var list api.List[api.Session]
	w.server.Call(t, "GET", "/sessions", w.names["manager_key"], "").Into(t, 200, &list)
	for _, x := range list.Data {
		if x.AuthorizedBy != "" {
			w.names["s"] = x.ID
		} else {
			w.names["waiting"] = x.ID
		}
	}
	return w
}

func TestExplanations(t *testing.T) {
	storetest.Long(t)
	w := newAccess(t)
	const rule, plain, missing = "the rule matches and decides", "no rule matches; the plain permission decides", "no rule matches and the plain permission is missing"
	for name, test := range map[string]struct{ question, want string }{
		"a token":                        {`"application_id":"{server}","permission":"token:read","token_id":"card-1"`, "mask: rule 1, " + rule},
		"a container":                    {`"application_id":"{server}","permission":"token:read","container":"/PCI/low/x/"`, "reveal: rule 0, " + rule},
		"the least of several":           {`"application_id":"{server}","permission":"token:read","containers":["/pci/low/","/pci/high/"]`, "mask: rule 1, " + rule},
		"container and containers":       {`"application_id":"{server}","permission":"token:read","container":"/pci/high/","containers":["/pci/low/"]`, "mask: rule 1, " + rule},
		"a token in two containers":      {`"application_id":"{server}","permission":"token:read","token_id":"two"`, "refused: " + missing},
		"a plain permission":             {`"application_id":"{server}","permission":"token:create","container":"/x/"`, "mask: " + plain},
		"another permission":             {`"application_id":"{server}","permission":"token:delete","container":"/pci/"`, "refused: " + missing},
		"a management permission":        {`"application_id":"{manager}","permission":"log:read"`, "redact: " + plain},
		"which a private one lacks":      {`"application_id":"{server}","permission":"log:read"`, "refused: a caller of this kind cannot hold the permission"},
		"a management one's tokens":      {`"application_id":"{manager}","permission":"token:read","token_id":"card-1"`, "refused: a caller of this kind cannot hold the permission"},
		"a session and its token":        {`"session_id":"{s}","permission":"token:read","token_id":"card-1"`, "mask: rule 0, " + rule},
		"a session and another":          {`"session_id":"{s}","permission":"token:read","token_id":"card-2"`, "refused: " + missing},
		"a session and some container":   {`"session_id":"{s}","permission":"token:read","container":"/pci/high/"`, "refused, depends on the id: " + missing},
		"where its maker sees nothing":   {`"session_id":"{s}","permission":"token:read","container":"/bank/"`, "refused: " + missing},
		"a session that waits":           {`"session_id":"{waiting}","permission":"token:read","container":"/"`, "refused, it is not authorized yet"},
		"a grant of nobody":              {`"proposed":{"type":"private","rules":[{"container":"/","transform":"redact","permissions":["token:read"]}]},"permission":"token:read","token_id":"card-1"`, "redact: rule 0, " + rule},
		"a public one's":                 {`"proposed":{"type":"public","permissions":["token:create"]},"permission":"token:read","container":"/"`, "refused: a caller of this kind cannot hold the permission"},
		"a management one's":             {`"proposed":{"type":"management","permissions":["log:read"]},"permission":"log:read"`, "redact: " + plain},
		"a session's":                    {`"proposed":{"type":"session","rules":[{"conditions":[{"attribute":"id","operator":"starts_with","value":"card-"}],"transform":"reveal","permissions":["token:read"]}]},"permission":"token:read","token_id":"card-2"`, "reveal: rule 0, " + rule},
		"a session's of the other kinds": {`"proposed":{"type":"session","rules":[{"conditions":[{"attribute":"id","operator":"starts_with","value":"card-"}],"transform":"reveal","permissions":["token:read"]}]},"permission":"token:read","token_id":"two"`, "refused: " + missing},
	} {
		if got := verdict(w.explain("{" + test.question + "}")); got != test.want {
			t.Errorf("%s: the answer is %s, want %s", name, got, test.want)
		}
	}
	// What an explanation says, a request gets.
	w.call("s_key", "GET /tokens/card-2", "", 403)
	w.shows("s_key", "card-1", masked)
}

func TestAnExplanationHasEveryStep(t *testing.T) {
	w := newAccess(t)
	w.clock.Advance(time.Minute)
	w.walk(step{call: "POST /access/explain", body: `{"session_id":"{s}","permission":"token:read","token_id":"card-2"}`, status: 200, // 10
		want: `{"allowed":false,"permission":"token:read","depends_on_id":false,"containers":["/pci/high/"],
			"decided_by":{"of_maker":false,"container":"/pci/high/","decides":false,"reason":"no rule matches and the plain permission is missing"},
			"steps":[
				{"of_maker":false,"container":"/pci/high/","rule":0,"priority":1,"condition":0,"decides":false,"reason":"a condition of the rule does not hold"},
				{"of_maker":false,"container":"/pci/high/","decides":false,"reason":"no rule matches and the plain permission is missing"},
				{"of_maker":true,"container":"/pci/high/","rule":0,"priority":1,"decides":false,"reason":"the rule is about another container"},
				{"of_maker":true,"container":"/pci/high/","rule":1,"priority":2,"decides":true,"transform":"mask","reason":"the rule matches and decides"}]}`})
	asked := func(entity, id, message string) string {
		return strings.Replace(entry(entity, id, "read", "allowed", message, 10), "07:08:", "07:09:", 1)
	}
	for _, s := range []step{
		{name: "the log has the look at the session", call: "GET /logs?entity_type=session&start_date=2031-05-06T07:09:00Z", want: page(1, asked("session", "{s}", "Session retrieved by access explanation"))},
		{name: "and at the token", call: "GET /logs?entity_id=card-2&start_date=2031-05-06T07:09:00Z", want: page(1, asked("card", "card-2", "Token retrieved by access explanation"))},
	} {
		s.status = 200
		w.step(s)
	}
}

func TestWhatIsNoQuestion(t *testing.T) {
	w := newAccess(t)
	const one = "is required, or session_id, or proposed, and only one of them"
	many := `"/a/"` + strings.Repeat(`,"/a/"`, 10)
	for name, test := range map[string]struct{ question, want string }{
		"no permission":            {`"application_id":"{server}","container":"/"`, refused("permission", unknownPermission)},
		"nobody":                   {`"permission":"token:read","container":"/"`, refused("application_id", one)},
		"two of them":              {`"application_id":"{server}","session_id":"{s}","permission":"token:read","container":"/"`, refused("application_id", one)},
		"no target":                {`"application_id":"{server}","permission":"token:read"`, refused("token_id", "is required for this permission, or containers")},
		"both targets":             {`"application_id":"{server}","permission":"token:read","token_id":"card-1","container":"/"`, refused("containers", "cannot be given together with a token")},
		"a target of the log":      {`"application_id":"{manager}","permission":"log:read","container":"/"`, refused("token_id", "cannot be given for a permission that is not on tokens")},
		"no container":             {`"application_id":"{server}","permission":"token:read","container":"4242424242424242"`, refused("containers", "must be paths such as /pci/high/")},
		"an empty container":       {`"application_id":"{server}","permission":"token:read","containers":[""]`, refused("containers", "must be paths such as /pci/high/")},
		"more than a token has":    {`"application_id":"{server}","permission":"token:read","containers":[` + many + `]`, refused("containers", "must have at most 10 items")},
		"a grant of no type":       {`"proposed":{"permissions":["token:read"]},"permission":"token:read","container":"/"`, refused("proposed.type", "must be public, private, management or session")},
		"a grant of nothing":       {`"proposed":{"type":"private"},"permission":"token:read","container":"/"`, refused("proposed.permissions", "permissions or rules are required")},
		"a rule that is none":      {`"proposed":{"type":"private","rules":[{"container":"/","transform":"mask","permissions":["token:read"]},{"container":"x","transform":"mask","permissions":["token:read"]}]},"permission":"token:read","container":"/"`, refused("proposed.rules.1.container", "must be a path of letters, digits, - and _ that begins and ends with /")},
		"conditions of no session": {`"proposed":{"type":"private","rules":[{"conditions":[{"attribute":"id","operator":"equals","value":"x"}],"transform":"mask","permissions":["token:read"]}]},"permission":"token:read","container":"/"`, refused("proposed.rules.0.conditions", "only rules of sessions have conditions")},
	} {
		w.step(step{name: name, call: "POST /access/explain", body: "{" + test.question + "}", status: 400, want: test.want})
	}
	w.names["stranger_key"] = w.server.Tenant(t).Application.Key
	for _, key := range []string{"manager_key", "stranger_key"} {
		for question, detail := range map[string]string{
			`"application_id":"{nothing}","permission":"log:read"`:                                                         "no such application",
			`"application_id":"{server}","permission":"log:read"`:                                                          "no such application",
			`"session_id":"{nothing}","permission":"token:read","container":"/"`:                                           "no such session",
			`"session_id":"{s}","permission":"token:read","container":"/"`:                                                 "no such session",
			`"proposed":{"type":"private","permissions":["token:read"]},"permission":"token:read","token_id":"{nothing}"`:  "no such token",
			`"proposed":{"type":"private","permissions":["token:read"]},"permission":"token:read","token_id":"card-1"`:     "no such token",
			`"proposed":{"type":"private","permissions":["token:read"]},"permission":"token:read","token_id":"4242424242"`: "no such token",
		} {
			if there := strings.Contains(question, "{server}") || strings.Contains(question, "{s}") || strings.Contains(question, "card-1"); there && key == "manager_key" {
				continue
			}
			w.step(step{name: key + " asks for " + detail, call: "POST /access/explain", key: key, body: "{" + question + "}", status: 404, want: problem(404, detail)})
		}
	}
}

func TestInactiveHolders(t *testing.T) {
	w := newAccess(t)
	w.call("manager_key", "PUT /applications/{server}", `{"name":"x","permissions":["token:read"],"expires_at":"`+start.Add(time.Minute).Format(time.RFC3339Nano)+`"}`, 200)
	w.call("manager_key", "PUT /applications/{web}", `{"name":"x","permissions":["token:create"],"expires_at":"`+start.Add(2*time.Minute).Format(time.RFC3339Nano)+`"}`, 200)
	for _, at := range []struct {
		advance   time.Duration
		what      string
		want, who string
	}{
		{0, `"application_id":"{server}"`, "mask: no rule matches; the plain permission decides", "server s"},
		{time.Minute, `"application_id":"{server}"`, "refused, it has expired: no rule matches; the plain permission decides", ""},
		{0, `"session_id":"{s}"`, "refused, the key that authorized it is gone or its application has expired", ""},
		{time.Minute, `"session_id":"{s}"`, "refused, the key that created it is gone or its application has expired", ""},
		{time.Minute, `"session_id":"{s}"`, "refused, it has expired", ""},
	} {
		w.clock.Advance(at.advance)
		if got := verdict(w.explain(`{` + at.what + `,"permission":"token:read","token_id":"card-1"}`)); got != at.want {
			t.Errorf("after %v %s: the answer is %s, want %s", w.clock.Now().Sub(start), at.what, got, at.want)
		}
		if got := w.who("permission=token:read&container=/pci/"); got != at.who {
			t.Errorf("after %v: %q could read, want %q", w.clock.Now().Sub(start), got, at.who)
		}
	}
	for _, name := range []string{"server", "web"} {
		w.call("manager_key", "PUT /applications/{"+name+"}", `{"name":"x","permissions":["token:create"]}`, 200)
	}
	w.session("last", `"permissions":["token:create"]`)
	var list api.List[api.Session]
	w.server.Call(t, "GET", "/sessions?size=1", w.names["manager_key"], "").Into(t, 200, &list)
	w.names["last"] = list.Data[0].ID
	w.call("manager_key", "DELETE /applications/{server}", "", 204)
	for _, setting := range []string{"false", "true"} {
		w.call("manager_key", "PUT /tenants/self", `{"name":"x","settings":{"uncapped_sessions":"`+setting+`"}}`, 200)
		if got := verdict(w.explain(`{"session_id":"{last}","permission":"token:create","container":"/"}`)); got != "refused, the key that authorized it is gone or its application has expired" {
			t.Errorf("with uncapped_sessions %s, without its maker: the answer is %s", setting, got)
		}
	}
	w.call("manager_key", "DELETE /applications/{web}", "", 204)
	if got := verdict(w.explain(`{"session_id":"{last}","permission":"token:read","container":"/"}`)); got != "refused, the key that created it is gone or its application has expired" {
		t.Errorf("the answer about a session without its application is %s", got)
	}
}

// who returns the names of those who are listed.
func (w *walk) who(query string) string {
	w.t.Helper()
	var list api.List[api.AccessHolder]
	w.server.Call(w.t, "GET", "/access/who?"+query, w.names["manager_key"], "").Into(w.t, 200, &list)
	names := make([]string, len(list.Data))
	for i, h := range list.Data {
		for name, id := range w.names {
			if id == h.ID {
				names[i] = name
			}
		}
	}
	return strings.Join(names, " ")
}

func TestWhoCould(t *testing.T) {
	w := newAccess(t)
	w.clock.Advance(time.Second)
	w.application("auditor", "private", "token:search", api.Rule{Container: "/pci/high/deep/", Transform: "reveal", Permissions: []string{"token:read"}})
	for query, want := range map[string]string{
		"permission=token:read&container=/":           "auditor server s",
		"permission=token:read&container=/PCI/":       "auditor server s",
		"permission=token:read&container=/pci/low/":   "server s",
		"permission=token:read&container=/pci/high/":  "auditor server s",
		"permission=token:read&container=/bank/":      "",
		"permission=token:use&container=/pci/":        "server",
		"permission=token:delete&container=/":         "",
		"permission=token:search&container=/general/": "auditor",
		"permission=log:read":                         "manager",
		"permission=session:delete":                   "manager",
	} {
		if got := w.who(query); got != want {
			t.Errorf("GET /access/who?%s = %q, want %q", query, got, want)
		}
	}
	w.step(step{call: "GET /access/who?permission=token:read&container=/pci/&size=2", status: 200,
		want: `{"pagination":{"total_items":3,"page_number":1,"page_size":2,"total_pages":2},"data":[
			{"kind":"application","id":"{auditor}","name":"auditor","application_type":"private","transform":"reveal","container":"/pci/high/deep/"},
			{"kind":"application","id":"{server}","name":"server","application_type":"private","transform":"reveal","container":"/pci/low/"}]}`})
	w.step(step{call: "GET /access/who?permission=token:read&container=/pci/&size=2&page=2", status: 200,
		want: `{"pagination":{"total_items":3,"page_number":2,"page_size":2,"total_pages":2},"data":[
			{"kind":"session","id":"{s}","name":"web","transform":"mask","container":"/pci/","expires_at":"2031-05-06T07:11:09.123456+00:00"}]}`})
	w.step(step{name: "past the end", call: "GET /access/who?permission=token:read&container=/pci/&page=9", status: 200,
		want: `{"pagination":{"total_items":3,"page_number":9,"page_size":20,"total_pages":1},"data":[]}`})
	w.step(step{call: "GET /access/who?permission=log:read", status: 200,
		want: page(1, `{"kind":"application","id":"{manager}","name":"management","application_type":"management","transform":"redact"}`)})
	for query, want := range map[string]string{
		"permission=4242424242424242":             refused("permission", unknownPermission),
		"container=/":                             refused("permission", unknownPermission),
		"permission=token:read":                   refused("container", "is for permissions on tokens, and required for those"),
		"permission=log:read&container=/":         refused("container", "is for permissions on tokens, and required for those"),
		"permission=token:read&container=pci":     refused("container", "must be a path such as /pci/high/"),
		"permission=token:read&container=/&size=": refused("size", "must be a whole number from 1 to 100"),
	} {
		w.step(step{name: query, call: "GET /access/who?" + query, status: 400, want: want})
	}
	w.clock.Advance(time.Second)
	w.names["stranger_key"] = w.server.Tenant(t).Application.Key
	w.step(step{name: "another tenant has nobody", call: "GET /access/who?permission=token:read&container=/", key: "stranger_key", status: 200, want: page(0)})
	w.call("manager_key", "GET /access/who?permission=token:read&container=/", "", 200)
	w.step(step{name: "the review is in the log", call: "GET /logs?entity_id=*&entity_type=application&start_date=2031-05-06T07:08:11Z", status: 200,
		want: page(1, entry("application", "*", "read", "allowed", "Application retrieved by access review", 11))})
}

// TestNoExplanationHoldsData, be it of the token or of a rule's words.
func TestNoExplanationHoldsData(t *testing.T) {
	w := newAccess(t)
	w.call("manager_key", "PUT /applications/{server}", `{"name":"x","rules":[{"description":"of Jane","container":"/","transform":"reveal","permissions":["token:read"]}]}`, 200)
	for _, question := range []string{
		`{"application_id":"{server}","permission":"token:read","token_id":"two"}`, `{"session_id":"{s}","permission":"token:read","token_id":"two"}`,
		`{"proposed":{"type":"session","rules":[{"conditions":[{"attribute":"id","operator":"equals","value":"of Jane"}],"transform":"reveal","permissions":["token:read"]}]},"permission":"token:read","token_id":"two"}`,
	} {
		body := w.call("manager_key", "POST /access/explain", question, 200)
		for _, private := range []string{"4242", "secret", "Jane", "visa"} {
			if strings.Contains(body, private) {
				t.Errorf("the answer to %s holds %s: %s", question, private, body)
			}
		}
	}
	// A review is about rules and holders: it names no token.
	for _, permission := range []string{"token:read", "token:use", "token:search"} {
		body := w.call("manager_key", "GET /access/who?permission="+permission+"&container=/", "", 200)
		for _, private := range []string{"4242424242424242", "secret", "Jane", "visa", `"two"`, "card-1", "card-2"} {
			if strings.Contains(body, private) {
				t.Errorf("the review of %s holds %s: %s", permission, private, body)
			}
		}
	}
}

// TestAnExplanationIsInTheLogAsAReadOfTheToken, whoever it is about: it says
// that the token exists, and where.
func TestAnExplanationIsInTheLogAsAReadOfTheToken(t *testing.T) {
	w := newAccess(t)
	for _, question := range []string{
		`{"application_id":"{server}","permission":"token:read","token_id":"two"}`,
		`{"application_id":"{server}","permission":"token:delete","token_id":"two"}`,
		`{"session_id":"{s}","permission":"token:read","token_id":"two"}`,
		`{"session_id":"{waiting}","permission":"token:read","token_id":"two"}`,
		`{"proposed":{"type":"public","permissions":["token:create"]},"permission":"token:read","token_id":"two"}`,
	} {
		const path = "/logs?entity_id=two&size=100"
		var before, after api.List[api.LogEntry]
		w.server.Call(t, "GET", path, w.manager.Key, "").Into(t, 200, &before)
		if e := w.explain(question); len(e.Containers) != 2 {
			t.Errorf("the containers in the answer to %s are %v", question, e.Containers)
		}
		w.server.Call(t, "GET", path, w.manager.Key, "").Into(t, 200, &after)
		reads := func(list []api.LogEntry) (n int) {
			for _, e := range list {
				if e.Message == "Token retrieved by access explanation" && e.EntityType == "card" && e.Operation == "read" && e.ActorID == w.manager.ID {
					n++
				}
			}
			return n
		}
		if n := reads(after.Data) - reads(before.Data); n != 1 {
			t.Errorf("the log has %d new reads of the token after %s, want 1", n, question)
		}
	}
}
