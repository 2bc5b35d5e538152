package webhooks_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// TestTheLibraryVerifiesEveryEvent sends events through a whole server, and has the
// library look at each of them, also while a secret is being rotated.
func TestTheLibraryVerifiesEveryEvent(t *testing.T) {
	built := runtimetest.Find(t)
	if _, err := os.Stat(filepath.Join("node_modules", "standardwebhooks")); err != nil {
		if os.Getenv("KEEPTEST_RUNTIME") == "required" {
			t.Fatal(err)
		}
		t.Skip("the library is not installed: 'make webhooks' installs it")
	}
	came := make(chan delivery, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		d := delivery{Headers: map[string]string{}, Body: string(body)}
		for name := range r.Header {
			d.Headers[name] = r.Header.Get(name)
		}
		came <- d
	}))
	defer receiver.Close()
	s := keeptest.Start(t, keeptest.Options{})
	tenant := s.Tenant(t)
	maker := s.Application(t, tenant.Tenant.ID, api.CreateApplication{Type: "private", Permissions: []string{"token:create"}})
	var hook, rotated api.Webhook
	s.Call(t, http.MethodPost, "/webhooks", tenant.Application.Key, `{"name":"w","url":"`+receiver.URL+`","events":["token.created"]}`).Into(t, http.StatusCreated, &hook)
	const each = 5
	deliver := func(prefix string) (list []delivery) {
		for n := range each {
			body := fmt.Sprintf(`{"id":"%s-%d","type":"token","data":"x","containers":["/%s/"]}`, prefix, n, prefix)
			s.Call(t, http.MethodPost, "/tokens", maker.Key, body).Into(t, http.StatusCreated, new(api.Token))
		}
		for range each {
			list = append(list, waittest.Receive(t, "an event", came))
		}
		return list
	}
	first := deliver("first")
	s.Call(t, http.MethodPost, "/webhooks/"+hook.ID+"/secret/rotate", tenant.Application.Key, "").Into(t, http.StatusOK, &rotated)
	second := deliver("second")
	var all []delivery
	var want []string
	add := func(list []delivery, secret, answer string) {
		for _, d := range list {
			d.Secret = secret
			all, want = append(all, d), append(want, answer)
		}
	}
	const genuine, none = "genuine", "No matching signature found"
	add(first, hook.Secret, genuine)
	add(first, rotated.Secret, none)
	add(second, hook.Secret, genuine)
	add(second, rotated.Secret, genuine)
	if got := verify(t, built.Node, all); !slices.Equal(got, want) {
		t.Errorf("the library says %q, want %q", got, want)
	}
}
