package contract_test

import (
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
)

// TestUUIDsInPathsInAnyCase calls every resource whose id is a UUID by its id
// in capitals. Ids of tokens are texts, in which case counts.
func TestUUIDsInPathsInAnyCase(t *testing.T) {
	w := newWalk(t)
	w.names["server"] = w.server.Application(t, w.tenant, private("token:create", "token:read", "token:use")).Key
	w.names["stranger"] = w.server.Tenant(t).Application.Key
	made := func(path, body string) string {
		t.Helper()
		var out struct{ ID string }
		w.server.Call(t, "POST", path, w.manager.Key, body).Into(t, 201, &out)
		return path + "/" + strings.ToUpper(out.ID)
	}
	application := made("/applications", `{"name":"a","type":"private","permissions":["token:read"]}`)
	for _, path := range []string{
		application,
		made("/reactors", `{"name":"r","code":"module.exports = async () => ({})","configuration":{}}`),
		made("/proxies", `{"name":"p","destination_url":"https://psp.example.com"}`),
	} {
		for _, spelled := range []string{path, strings.ToLower(path), path[:len(path)-1] + strings.ToLower(path[len(path)-1:])} {
			got := w.server.Call(t, "GET", spelled, w.manager.Key, "")
			if id, _ := member(decode(t, got.Body), "id").(string); got.Status != 200 || !strings.HasSuffix(strings.ToLower(path), "/"+id) {
				t.Errorf("GET %s = %s, want 200 with the id in small letters", spelled, got)
			}
			if got := w.server.Call(t, "GET", spelled, w.names["stranger"], ""); got.Status != 404 {
				t.Errorf("GET %s by another tenant = %s, want 404", spelled, got)
			}
		}
	}
	var keys []api.Key
	w.server.Call(t, "GET", application+"/keys", w.manager.Key, "").Into(t, 200, &keys)
	key := application + "/keys/" + strings.ToUpper(keys[0].ID)
	if got := w.server.Call(t, "GET", key, w.manager.Key, ""); got.Status != 200 {
		t.Errorf("GET %s = %s, want 200", key, got)
	}
	if got := w.server.Call(t, "DELETE", application, w.manager.Key, ""); got.Status != 204 {
		t.Errorf("DELETE %s = %s, want 204", application, got)
	}
	if got := w.server.Call(t, "GET", application, w.manager.Key, ""); got.Status != 404 {
		t.Errorf("GET %s after that = %s, want 404", application, got)
	}

	var token api.Token
	w.server.Call(t, "POST", "/tokens", w.names["server"], `{"type":"token","data":"secret"}`).Into(t, 201, &token)
	if got := w.server.Call(t, "GET", "/tokens/"+strings.ToUpper(token.ID), w.names["server"], ""); got.Status != 404 {
		t.Errorf("GET of a token by its id in capitals = %s, want 404: it may be another token's", got)
	}
	own := strings.ToUpper(token.ID)
	w.server.Call(t, "POST", "/tokens", w.names["server"], `{"id":"`+own+`","type":"token","data":"another"}`).Into(t, 201, &token)
	if token.ID != own {
		t.Errorf("a token that names its id in capitals has the id %s, want %s", token.ID, own)
	}
}

// TestAPatchWithAWrongContentTypeAndNoBody is a 415 on every resource that is
// patched; other requests without a body may carry any content type.
func TestAPatchWithAWrongContentTypeAndNoBody(t *testing.T) {
	w := newWalk(t)
	w.names["server"] = w.server.Application(t, w.tenant, private("token:update")).Key
	for path, key := range map[string]string{"/tokens/x": w.names["server"], "/reactors/{nothing}": w.manager.Key, "/proxies/{nothing}": w.manager.Key} {
		for contentType, want := range map[string]int{"application/json": 415, "text/plain": 415, "application/merge-patch+json": 400} {
			if got := w.server.Call(t, "PATCH", w.fill(path), key, "", "Content-Type", contentType); got.Status != want {
				t.Errorf("PATCH %s of the type %q without a body = %s, want %d", path, contentType, got, want)
			}
		}
	}
	browser := w.server.Application(t, w.tenant, api.CreateApplication{Name: "browser", Type: "public", Permissions: []string{"token:create"}}).Key
	if got := w.server.Call(t, "POST", "/sessions", browser, "", "Content-Type", "application/x-www-form-urlencoded"); got.Status != 201 {
		t.Errorf("POST /sessions, form-encoded and empty = %s, want 201", got)
	}
}
