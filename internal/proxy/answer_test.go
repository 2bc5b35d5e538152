package proxy_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/endpoint"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/proxy"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// declined is what code throws when a payment is refused.
type declined struct{}

func (declined) Error() string { return "the code threw an error" }
func (declined) Problem() api.Problem {
	return api.Problem{Title: "Payment Required", Status: 402, Detail: "Invalid Payment Method", Errors: map[string][]string{"error": {"declined"}}}
}

// TestHowCodeAnswers goes through the row, where answers of code are written.
func TestHowCodeAnswers(t *testing.T) {
	w := newWorld(t)
	for name, err := range map[string]error{
		"custom": &script.Custom{Status: 418, Headers: map[string]string{
			"X-Own": "o", "Set-Cookie": "a=b", "SVC-PROXY-DESTINATION-STATUS": "200", "Content-Length": "9", "Content-Type": "text/html",
		}, Body: json.RawMessage(`"<b>"`)},
		"declined": declined{},
	} {
		w.scripts[name] = func(script.Call) (string, error) { return "", err }
	}
	w.scripts["shape"] = func(script.Call) (string, error) {
		return `{"body":{"a":1},"headers":{"X-Own":"o","SVC-X":"y","Set-Cookie":"a=b"}}`, nil
	}
	s := httptest.NewServer(httpapi.New(httpapi.Options{
		Authenticate: func(context.Context, secret.Text) (access.Caller, error) { return w.user, nil },
	}, endpoint.Routes(endpoint.Services{Proxies: w.Service, Audit: audit.New(w.store, w.ring, audit.Options{})})))
	defer s.Close()
	for name, c := range map[string]struct {
		request, response string
		status            int
		destination       string
		body              string
	}{
		"nothing is shaped":           {"", "", 200, "200", "ok"},
		"the answer is shaped":        {"", "shape", 200, "200", `{"a":1}`},
		"its own answer, before":      {"custom", "", 418, "", "<b>"},
		"its own answer, behind":      {"", "custom", 418, "", "<b>"},
		"an error of a class, before": {"declined", "", 402, "", `{"proxy_error":{"errors":{"error":["declined"]},"title":"Payment Required","status":402,"detail":"Invalid Payment Method"}}`},
		"an error of a class, behind": {"", "declined", 402, "", `{"proxy_error":{"errors":{"error":["declined"]},"title":"Payment Required","status":402,"detail":"Invalid Payment Method"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/proxy/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("SVC-API-KEY", "k")
			r.Header.Set("SVC-PROXY-KEY", proxy.Key(w.transformed(c.request, c.response)).Reveal())
			a, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = a.Body.Close() }()
			body, _ := io.ReadAll(a.Body)
			if a.StatusCode != c.status || string(body) != c.body || a.Header.Get("SVC-PROXY-DESTINATION-STATUS") != c.destination {
				t.Errorf("the answer is %d %s, destination %q, want %d %s, %q", a.StatusCode, body, a.Header.Get("SVC-PROXY-DESTINATION-STATUS"), c.status, c.body, c.destination)
			}
			if c.status != 402 && a.Header.Get("Content-Security-Policy") != "sandbox" || a.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("the answer is not kept apart: %v", a.Header)
			}
			if a.Header.Get("Set-Cookie") != "" || a.Header.Get("SVC-X") != "" || a.Header.Get("SVC-TRACE-ID") == "" {
				t.Errorf("the answer has headers that are ours: %v", a.Header)
			}
		})
	}
}
