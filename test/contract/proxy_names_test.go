package contract_test

import (
	"strings"
	"testing"
	"time"
)

// TestNamesAndTimesOfProxies: a name has at most 200 characters on create,
// update and patch, and a change is stamped with who made it and when.
func TestNamesAndTimesOfProxies(t *testing.T) {
	w := newWalk(t)
	var made struct{ ID, CreatedBy string }
	w.server.Call(t, "POST", "/proxies", w.manager.Key, `{"name":"`+strings.Repeat("é", 200)+`","destination_url":"https://psp.example.com"}`).Into(t, 201, &made)
	long := `"name":"` + strings.Repeat("é", 201) + `"`
	for _, call := range []struct{ method, path, body string }{
		{"POST", "/proxies", `{` + long + `,"destination_url":"https://psp.example.com"}`},
		{"PUT", "/proxies/" + made.ID, `{` + long + `,"destination_url":"https://psp.example.com"}`},
		{"PATCH", "/proxies/" + made.ID, `{` + long + `}`},
	} {
		if got := w.server.Call(t, call.method, call.path, w.manager.Key, call.body); got.Status != 400 || !strings.Contains(got.Body, `"errors":{"name"`) {
			t.Errorf("%s %s with a name of 201 characters = %s, want 400 at name", call.method, call.path, got)
		}
	}
	before := decode(t, w.server.Call(t, "GET", "/proxies/"+made.ID, w.manager.Key, "").Body)
	if member(before, "created_by") != w.manager.ID || member(before, "created_at") == nil || member(before, "modified_by") != nil || member(before, "modified_at") != nil {
		t.Errorf("a new proxy is %v, want created_by and created_at alone", before)
	}
	w.clock.Advance(time.Second)
	if got := w.server.Call(t, "PATCH", "/proxies/"+made.ID, w.manager.Key, `{"name":"x"}`); got.Status != 204 {
		t.Fatalf("PATCH = %s", got)
	}
	after := decode(t, w.server.Call(t, "GET", "/proxies/"+made.ID, w.manager.Key, "").Body)
	if member(after, "modified_by") != w.manager.ID || member(after, "modified_at") == nil || member(after, "created_at") != member(before, "created_at") {
		t.Errorf("a changed proxy is %v, want modified_by and modified_at", after)
	}
}
