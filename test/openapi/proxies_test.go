package openapi_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
)

// walkApplicationOf says everything that can be said about the application of an
// open proxy, and writes back what was read.
func (v *vault) walkApplicationOf(t *testing.T, c *client.Client, id string) {
	t.Helper()
	ctx := t.Context()
	own, err := v.client(t, v.keys.PrivateKey).Applications.Own(ctx)
	if err != nil {
		t.Fatal(err)
	}
	application := own.ID
	write := func(change func(*api.WriteProxy)) (api.Proxy, error) {
		t.Helper()
		p, err := c.Proxies.Get(ctx, id)
		if err != nil {
			t.Fatalf("Proxies.Get: %v", err)
		}
		in := p.Write()
		change(&in)
		return c.Proxies.Replace(ctx, id, in)
	}
	for _, step := range []struct {
		name   string
		change func(*api.WriteProxy)
		want   string
		fails  bool
	}{
		{"an id", func(in *api.WriteProxy) { in.ApplicationID = application }, application, false},
		{"as it was read", func(*api.WriteProxy) {}, application, false},
		{"left out", func(in *api.WriteProxy) { in.ApplicationID = "" }, "", true},
		{"null beside an id", func(in *api.WriteProxy) { in.Application = &api.ApplicationRef{} }, "", true},
		{"null", func(in *api.WriteProxy) { in.ApplicationID, in.Application = "", &api.ApplicationRef{} }, "", false},
		{"an object", func(in *api.WriteProxy) { in.Application = &api.ApplicationRef{ID: application} }, application, false},
		{"an object and its id", func(in *api.WriteProxy) { in.Application = &api.ApplicationRef{ID: application} }, application, false},
	} {
		got, err := write(step.change)
		if errors.Is(err, client.ErrInvalid) != step.fails || err == nil && (got.ApplicationID != step.want || got.RequireAuth) {
			t.Errorf("Proxies.Replace with %s = %q, %v, want %q", step.name, got.ApplicationID, err, step.want)
		}
	}
	if err := c.Proxies.Patch(ctx, id, map[string]any{"application_id": nil}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("Proxies.Patch with a null id = %v, want ErrInvalid", err)
	}
	if err := c.Proxies.Patch(ctx, id, map[string]any{"application": nil}); err != nil {
		t.Errorf("Proxies.Patch with null: %v", err)
	}
}

// walkProxies calls every operation on proxies, and one of them.
func (v *vault) walkProxies(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := t.Context()
	to := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, r.Body)
	}))
	defer to.Close()
	p, err := c.Proxies.Create(ctx, api.WriteProxy{
		Name: "echo", DestinationURL: to.URL, Configuration: map[string]string{"a": "b"}, RequestTransform: &api.ProxyTransform{},
	})
	if err != nil || p.Key == "" || !p.RequireAuth || p.RequestTransform != nil {
		t.Fatalf("Proxies.Create = %v, %v", p.ID, err)
	}
	if got, err := c.Proxies.Get(ctx, p.ID); err != nil || got.Key != p.Key {
		t.Errorf("Proxies.Get = %v, %v", got.ID, err)
	}
	if err := c.Proxies.Patch(ctx, p.ID, map[string]any{"name": "new", "configuration": nil}); err != nil {
		t.Errorf("Proxies.Patch: %v", err)
	}
	count := 0
	for got, err := range c.Proxies.List(ctx, client.ProxyFilter{IDs: []string{p.ID}, Name: "n*w"}) {
		if count++; err != nil || got.Name != "new" || got.Configuration != nil {
			t.Errorf("Proxies.List = %v, %v", got, err)
		}
	}
	if count != 1 {
		t.Errorf("Proxies.List has %d, want 1", count)
	}
	if got, err := c.Proxies.Replace(ctx, p.ID, api.WriteProxy{Name: "echo", DestinationURL: to.URL, RequireAuth: new(false)}); err != nil || got.RequireAuth || got.Key != p.Key {
		t.Errorf("Proxies.Replace = %v, %v", got.ID, err)
	}
	v.walkApplicationOf(t, c, p.ID)
	shown, err := c.Proxies.Preview(ctx, p.ID, api.PreviewProxy{Path: "/x", Query: "?y", Body: []byte(`{"a":1}`)})
	if err != nil || shown.Method != "POST" || shown.URL != to.URL+"/x?y" || shown.Body != `{"a":1}` || !shown.Anonymous || shown.Headers["Content-Type"] != api.MediaJSON {
		t.Errorf("Proxies.Preview = %+v, %v", shown, err)
	}
	versions, err := c.Proxies.Versions(ctx, p.ID)
	if err != nil || len(versions) == 0 {
		t.Fatalf("Proxies.Versions = %+v, %v", versions, err)
	}
	if _, err := c.Proxies.Restore(ctx, p.ID, fmt.Sprint(versions[0].Number)); err != nil {
		t.Errorf("Proxies.Restore = %v", err)
	}
	rotated, err := c.Proxies.RotateKey(ctx, p.ID)
	if err != nil || rotated.Key == p.Key {
		t.Errorf("Proxies.RotateKey = %v, %v", rotated.ID, err)
	}
	for key, want := range map[string]int{rotated.Key: 200, p.Key: 404, "": 400} {
		if got := v.send(t, "POST", "/proxy/x", `{"a":1}`, "SVC-PROXY-KEY", key); got != want {
			t.Errorf("POST /proxy/x = %d, want %d", got, want)
		}
	}
	if err := c.Proxies.Delete(ctx, p.ID); err != nil {
		t.Errorf("Proxies.Delete: %v", err)
	}
}
