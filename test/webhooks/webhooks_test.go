// Package webhooks_test receives callbacks as their users do: with the library
// that Standard Webhooks publishes for Node.js.
package webhooks_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }

// delivery is a row of what verify.js reads.
type delivery struct {
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

func TestTheLibraryTakesOurSignatures(t *testing.T) {
	built := runtimetest.Find(t)
	if _, err := os.Stat(filepath.Join("node_modules", "standardwebhooks")); err != nil {
		if os.Getenv("KEEPTEST_RUNTIME") == "required" {
			t.Fatal(err)
		}
		t.Skip("the library is not installed: 'make webhooks' installs it")
	}
	came := make(chan delivery, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		d := delivery{Headers: map[string]string{}, Body: string(body)}
		for name := range r.Header {
			d.Headers[name] = r.Header.Get(name)
		}
		came <- d
	}))
	defer receiver.Close()
	s := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"sandbox.level": "reduced", "sandbox.runtime": built.Folder}})
	tenant := s.Tenant(t)
	user := s.Application(t, tenant.Tenant.ID, api.CreateApplication{Type: "private", Permissions: []string{"token:use"}})
	var made api.Reactor
	s.Call(t, http.MethodPost, "/reactors", tenant.Application.Key, `{"name":"r","configuration":{},"code":"module.exports = async (req) => ({ raw: req.args })"}`).
		Into(t, http.StatusCreated, &made)
	deliver := func() delivery {
		t.Helper()
		answer := s.Call(t, http.MethodPost, "/reactors/"+made.ID+"/react", user.Key, `{"args":{"text":"ümläut ☂ 1.50","n":1.50},"callback_url":"`+receiver.URL+`"}`)
		if answer.Status != http.StatusAccepted || answer.Body != "{}" {
			t.Fatalf("the request was answered with %s", answer)
		}
		return waittest.Receive(t, "a delivery", came)
	}
	with := func(d delivery, secret string) delivery {
		d.Secret = secret
		return d
	}
	var old, fresh api.CallbackSecret
	s.Call(t, http.MethodGet, "/tenants/self/callback-secret", tenant.Application.Key, "").Into(t, http.StatusOK, &old)
	first := deliver()
	s.Call(t, http.MethodPost, "/tenants/self/callback-secret", tenant.Application.Key, "").Into(t, http.StatusOK, &fresh)
	second := deliver()
	changed := second
	changed.Body += " "

	const genuine, none = "genuine", "No matching signature found"
	got := verify(t, built.Node, []delivery{
		with(first, old.Secret), with(first, fresh.Secret), with(second, old.Secret), with(second, fresh.Secret), with(changed, fresh.Secret),
	})
	if want := []string{genuine, none, genuine, genuine, none}; !slices.Equal(got, want) {
		t.Errorf("the library says %q, want %q", got, want)
	}
}

func verify(t *testing.T, node string, list []delivery) (answers []string) {
	t.Helper()
	for _, name := range []string{"verify.js", "package-lock.json"} { // so that a change of them is not answered from the test cache
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	in, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	var words bytes.Buffer
	cmd := exec.Command(node, "verify.js")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &words
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node verify.js: %v: %s", err, words.String())
	}
	if err := json.Unmarshal(out, &answers); err != nil {
		t.Fatalf("node verify.js printed %s: %v", out, err)
	}
	return answers
}
