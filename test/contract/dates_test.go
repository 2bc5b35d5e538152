package contract_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/date"
)

// inTime fills a form with a date and returns a call with its body.
type inTime func(form string) (key, method, path, body string)

func TestAllDateInputsTakeISO8601InExtendedForm(t *testing.T) {
	w := newWalk(t)
	w.application("server", "private", "token:create", api.Rule{Container: "/", Transform: "reveal", Permissions: []string{"token:read", "token:search"}})
	if got := w.server.Call(t, "POST", "/tokens", w.names["server_key"], `{"id":"one","type":"token","data":1}`); got.Status != 201 {
		t.Fatal(got)
	}
	inputs := map[string]struct {
		call inTime
		want string // in the response when the date is 2031-05-06T07:30:00Z
		says string // about what is no date
	}{
		"an application's expires_at": {func(form string) (string, string, string, string) {
			return "manager_key", "POST", "/applications", `{"name":"x","type":"private","permissions":["token:use"],"expires_at":"` + form + `"}`
		}, `"expires_at":"2031-05-06T07:30:00.000000+00:00"`, date.Wanted},
		"a token's expires_at": {func(form string) (string, string, string, string) {
			return "server_key", "POST", "/tokens", `{"type":"token","data":1,"expires_at":"` + form + `"}`
		}, `:30:00.000000`, date.WantedExpiry},
		"the start of the log": {func(form string) (string, string, string, string) {
			return "manager_key", "GET", "/logs?entity_id=one&start_date=" + url.QueryEscape(form), ""
		}, `"total_items":0`, date.Wanted},
		"the end of the log": {func(form string) (string, string, string, string) {
			return "manager_key", "GET", "/logs?entity_id=one&operation=create&end_date=" + url.QueryEscape(form), ""
		}, `"Token created"`, date.Wanted},
		"the end of the log, with + unescaped": {func(form string) (string, string, string, string) {
			return "manager_key", "GET", "/logs?entity_id=one&end_date=" + strings.ReplaceAll(form, " ", "%09"), ""
		}, `"Token created"`, date.Wanted},
		"a range of a search": {func(form string) (string, string, string, string) {
			return "server_key", "POST", "/tokens/search", `{"query":"id:one AND created_at:[* TO ` + form + `]"}`
		}, `"total_items":1`, "is not understood at character 29: this " + date.Wanted},
		"the other end of a range": {func(form string) (string, string, string, string) {
			return "server_key", "POST", "/tokens/search", `{"query":"id:one AND created_at:[` + form + ` TO *]"}`
		}, `"total_items":0`, "is not understood at character 24: this " + date.Wanted},
	}
	for name, in := range inputs {
		for _, form := range []string{
			"2031-05-06T07:30", "2031-05-06T07:30Z", "2031-05-06T07:30:00", "2031-05-06T07:30:00.000Z", "2031-05-06t07:30:00z", "2031-05-06T07:30:00+00:00",
			"2031-05-06T07:30:00+0000", "2031-05-06T09:30+02:00", "2031-05-06T00:30:00-0700",
		} {
			key, method, path, body := in.call(form)
			if got := w.server.Call(t, method, path, w.names[key], body); got.Status >= 300 || !strings.Contains(got.Body, in.want) {
				t.Errorf("%s as %s: the response is %s, want %s in it", name, form, got, in.want)
			}
		}
		for _, form := range []string{"9999-12-31", "9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59-07:00"} {
			key, method, path, body := in.call(form)
			if got := w.server.Call(t, method, path, w.names[key], body); got.Status >= 300 {
				t.Errorf("%s as %s: the response is %s", name, form, got)
			}
		}
		for _, form := range []string{"tomorrow", "2031-05-06T7:30", "2031-05-32", "10000-01-01"} {
			key, method, path, body := in.call(form)
			if got := w.server.Call(t, method, path, w.names[key], body); got.Status != 400 || !strings.Contains(got.Body, in.says) {
				t.Errorf("%s as %s: the response is %s, want %s in it", name, form, got, in.says)
			}
		}
	}
	for form, status := range map[string]int{"5/6/2031 7:30:00 AM": 201, "12/31/9999": 201, "5/7/2031 0:00:00 AM": 400} {
		if got := w.server.Call(t, "POST", "/tokens", w.names["server_key"], `{"type":"token","data":1,"expires_at":"`+form+`"}`); got.Status != status {
			t.Errorf("a token that expires at %s: the response is %s, want status %d", form, got, status)
		}
	}
}
