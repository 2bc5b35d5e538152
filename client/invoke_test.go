package client_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
)

func TestCallsThroughAProxyCarryWhatIsDue(t *testing.T) {
	f := newFake(t, answer{status: 200, body: "fine", header: []string{"SVC-PROXY-DESTINATION-STATUS", "200", "Content-Type", "text/plain"}})
	c := f.client(t)
	got, err := c.Proxies.Invoke(t.Context(), "key_proxy", client.ProxyCall{
		Path: "/charges/a%2Fb", Query: "x=1&y=%20", Header: http.Header{"authorization": {"Bearer b"}}, Body: []byte(`{"card":"{{ c }}"}`),
	})
	if err != nil || got.Status != 200 || got.DestinationStatus != 200 || string(got.Body) != "fine" || got.Header.Get("Content-Type") != "text/plain" {
		t.Fatalf("Invoke = %+v, %v", got, err)
	}
	r := f.requests()[0]
	if r.Method != "POST" || r.RequestURI != "/proxy/charges/a%2Fb?x=1&y=%20" || f.bodies[0] != `{"card":"{{ c }}"}` ||
		r.Header.Get("SVC-PROXY-KEY") != "key_proxy" || r.Header.Get("SVC-API-KEY") != fakeKey || r.Header.Get("Authorization") != "Bearer b" ||
		r.Header.Get("Content-Type") != "application/json" || r.Header.Get("SVC-IDEMPOTENCY-KEY") != "" {
		t.Errorf("sent %s %s %v %s", r.Method, r.RequestURI, r.Header, f.bodies[0])
	}
	if _, err := c.Proxies.Invoke(t.Context(), "", client.ProxyCall{URL: "https://psp.example", Method: "DELETE"}); err != nil {
		t.Fatal(err)
	}
	if r := f.requests()[1]; r.Method != "DELETE" || r.RequestURI != "/proxy" || r.Header.Get("SVC-PROXY-URL") != "https://psp.example" || r.Header.Get("SVC-PROXY-KEY") != "" || r.Header.Get("Content-Type") != "" {
		t.Errorf("sent %s %s %v", r.Method, r.RequestURI, r.Header)
	}
}

func TestAnswersThroughAProxy(t *testing.T) {
	cases := map[string]struct {
		answer      answer
		status      int // of an answer; 0 for an error
		destination int
		want        string // of an error
	}{
		"a refusal of the destination": {answer{status: 404, body: "no", header: []string{"SVC-PROXY-DESTINATION-STATUS", "404"}}, 404, 404, ""},
		"a proxy_error of its own":     {answer{status: 500, body: `{"proxy_error":{"status":500}}`, header: []string{"SVC-PROXY-DESTINATION-STATUS", "500"}}, 500, 500, ""},
		"an answer of the code":        {answer{status: 402, body: `{"code":"declined"}`}, 402, 0, ""},
		"a redirect":                   {answer{status: 302, header: []string{"Location", "/elsewhere", "SVC-PROXY-DESTINATION-STATUS", "302"}}, 302, 302, ""},
		"refused": {answer{status: 403, body: `{"proxy_error":{"errors":{},"title":"Forbidden proxy request","status":403,"detail":"no"}}`}, 0, 0,
			"client: ANY /proxy: 403 Forbidden proxy request: no (trace id trace-1)"},
		"busy":              {answer{status: 503, body: `{"proxy_error":{"errors":{},"title":"t","status":503,"detail":"d"}}`, header: []string{"Retry-After", "1"}}, 0, 0, "client: ANY /proxy: 503 t: d (trace id trace-1)"},
		"cut off":           {broken, 0, 0, "client: ANY /proxy: EOF"},
		"refused, with key": {answer{status: 403, body: `{"proxy_error":{"errors":{},"title":"` + fakeKey + `","status":403,"detail":"no"}}`}, 0, 0, "client: ANY /proxy: 403 Forbidden (trace id trace-1)"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, test.answer)
			got, err := f.client(t).Proxies.Invoke(t.Context(), "k", client.ProxyCall{Body: []byte("{}")})
			if got.Status != test.status || got.DestinationStatus != test.destination || (err != nil) != (test.want != "") || err != nil && err.Error() != test.want {
				t.Errorf("Invoke = %d, %d, %v, want %d, %d, %s", got.Status, got.DestinationStatus, err, test.status, test.destination, test.want)
			}
			if len(f.requests()) != 1 {
				t.Errorf("sent %d times: a charge must not be made twice", len(f.requests()))
			}
		})
	}
}

// TestACallThroughAProxyIsNotRepeatedByTheTransport, which does so with a call
// that has an Idempotency-Key for its destination, when a kept connection breaks.
func TestACallThroughAProxyIsNotRepeatedByTheTransport(t *testing.T) {
	f := newFake(t, answer{status: 200}, broken, fine)
	c := f.client(t)
	call := client.ProxyCall{Header: http.Header{"Idempotency-Key": {"order-1001"}}, Body: []byte("{}")}
	if _, err := c.Proxies.Invoke(t.Context(), "k", call); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Proxies.Invoke(t.Context(), "k", call); !errors.Is(err, client.ErrUnavailable) || len(f.requests()) != 2 {
		t.Errorf("Invoke = %v after %d requests, want ErrUnavailable after 2", err, len(f.requests()))
	}
}

func TestCallsThroughAProxyThatAreNotSent(t *testing.T) {
	f := newFake(t, fine)
	c := f.client(t)
	for name, test := range map[string]struct {
		key string
		in  client.ProxyCall
	}{
		"a path without its slash": {"k", client.ProxyCall{Path: "canary"}},
		"a query in the path":      {"k", client.ProxyCall{Path: "/a?canary"}},
		"a fragment":               {"k", client.ProxyCall{Query: "a#canary"}},
		"a way out":                {"k", client.ProxyCall{Path: "/a/../../tokens/canary"}},
		"an escaped way out":       {"k", client.ProxyCall{Path: "/%2E%2e/canary"}},
		"a bad escape":             {"k", client.ProxyCall{Path: "/%zz-canary"}},
		"a bad method":             {"k", client.ProxyCall{Method: "GET canary"}},
		"a bad key":                {"k canary", client.ProxyCall{}},
	} {
		if _, err := c.Proxies.Invoke(t.Context(), test.key, test.in); !errors.Is(err, client.ErrInvalid) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(f.requests()) != 0 {
		t.Errorf("%d were sent", len(f.requests()))
	}
}

// TestTheServerForwardsAndTheAnswerComesBack by way of a real proxy.
func TestTheServerForwardsAndTheAnswerComesBack(t *testing.T) {
	to := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(append([]byte(r.URL.Path+" "), body...))
	}))
	defer to.Close()
	url, key := vault()
	manager, err := client.New(url, client.WithKey(key))
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := manager.Proxies.Create(t.Context(), api.WriteProxy{Name: "p", DestinationURL: to.URL + "/v1"})
	if err != nil {
		t.Fatal(err)
	}
	url, key = checkout()
	c, err := client.New(url, client.WithKey(key))
	if err != nil {
		t.Fatal(err)
	}
	token, err := c.Tokens.Create(t.Context(), api.CreateToken{Type: "card_number", Data: testCard})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Proxies.Invoke(t.Context(), proxy.Key, client.ProxyCall{Path: "/charges", Body: []byte(`{"n":"{{ ` + token.ID + ` }}"}`)})
	if err != nil || got.Status != 418 || got.DestinationStatus != 418 || string(got.Body) != `/v1/charges {"n":"`+testCard+`"}` {
		t.Errorf("Invoke = %d, %d, %s, %v", got.Status, got.DestinationStatus, got.Body, err)
	}
	_, err = c.Proxies.Invoke(t.Context(), proxy.Key, client.ProxyCall{Body: []byte(`{"n":"{{ nothing-here }}"}`)})
	if !errors.Is(err, client.ErrInvalid) {
		t.Errorf("Invoke of a token that is not there: %v", err)
	}
}
