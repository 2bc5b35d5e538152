package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/server"
)

func TestWhatAHostNameServes(t *testing.T) {
	const vault, fields = "https://vault.example", "https://fields.example"
	refuse := server.ByHost(&config.Config{PublicURL: vault, ElementsPublicURL: fields})
	fieldPages := []string{"/elements/v1/key/card", "/%65lements/v1/key/card", "/elements/v1/key/card/", "/elements/v1/a%2Fb/card"}
	ofFields := []string{"/elements/v1/key/card", "/elements/v1/elements.js", "/sessions", "/tokens", "/tokens/x", "/tokens/a%2Fb"}
	ofAPI := []string{"/sessions/authorize", "/proxy/x", "/docs", "/healthz", "/tenants/self", "/", "/tokenize", "/%74okens", "/elements", "//tokens"}
	for _, c := range []struct {
		hosts           []string
		serves, refuses [][]string
	}{
		{[]string{"fields.example", "fields.example:443", "FIELDS.example"}, [][]string{ofFields}, [][]string{ofAPI}},
		{[]string{"vault.example", "fields.example:8443", "fields.example.", "fields.example:80", "127.0.0.1:8420", ""}, [][]string{ofAPI, ofFields[1:]}, [][]string{fieldPages}},
	} {
		for _, host := range c.hosts {
			for want, lists := range map[bool][][]string{false: c.serves, true: c.refuses} {
				for _, list := range lists {
					for _, path := range list {
						r := httptest.NewRequestWithContext(t.Context(), "GET", "http://x"+path, nil)
						r.Host = host
						if got := refuse(r) != nil; got != want {
							t.Errorf("%q%s is refused: %v, want %v", host, path, got, want)
						}
					}
				}
			}
		}
	}
	for _, c := range []config.Config{{}, {PublicURL: vault}, {PublicURL: vault, ElementsPublicURL: vault}} {
		if server.ByHost(&c) != nil {
			t.Errorf("without a name of its own for the fields (%q, %q) something is refused", c.PublicURL, c.ElementsPublicURL)
		}
	}
	local := server.ByHost(&config.Config{ElementsPublicURL: "http://localhost:8420"})
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost:8420/docs", nil)
	if local(r) == nil {
		t.Error("a name with a port serves the API, too")
	}
}

func TestFieldPagesUnderAHostNameOfTheirOwn(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"public_url": "https://vault.example", "elements.public_url": "https://fields.example"}})
	key := k.Application(t, k.Tenant(t).Tenant.ID, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key
	page := "/elements/v1/" + key + "/other"
	for _, c := range []struct {
		host, path, says string
		status           int
	}{
		{"fields.example", page, "unknown kind", 404},
		{"vault.example", page, "host name", 404},
		{"fields.example", "/healthz", "host name", 404},
		{"vault.example", "/healthz", "", 200},
		{"fields.example", "/tokens", "API key", 401},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", k.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		got, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(got.Body)
		_ = got.Body.Close()
		if err != nil || got.StatusCode != c.status || !strings.Contains(string(body), c.says) || !strings.Contains(got.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
			t.Errorf("%s%s = %d %s with %v, %v; want %d and %q", c.host, c.path, got.StatusCode, body, got.Header, err, c.status, c.says)
		}
	}
}
