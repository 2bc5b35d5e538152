package client_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

func TestCallsOfSessionsCarryWhatIsDue(t *testing.T) {
	const list = `{"pagination":{},"data":[]}`
	ctx := t.Context()
	cases := map[string]struct {
		answer string
		call   func(c *client.Client) error
		target string
		body   string
		idem   bool
	}{
		"create": {`{}`, func(c *client.Client) error { _, err := c.Sessions.Create(ctx); return err }, "POST /sessions", "", true},
		"authorize": {``, func(c *client.Client) error {
			return c.Sessions.Authorize(ctx, api.AuthorizeSession{Nonce: "n", Permissions: []string{"token:read"}})
		}, "POST /sessions/authorize", `{"nonce":"n","permissions":["token:read"]}`, true},
		"authorize until": {``, func(c *client.Client) error {
			return c.Sessions.Authorize(ctx, api.AuthorizeSession{Nonce: "n", ExpiresAt: api.Time{Time: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)},
				Rules: []api.Rule{{Transform: "mask", Permissions: []string{"token:read"}, Conditions: []api.Condition{{Attribute: "id", Operator: "equals", Value: "x"}}}}})
		}, "POST /sessions/authorize", `{"nonce":"n","rules":[{"transform":"mask","permissions":["token:read"],"conditions":[{"attribute":"id","operator":"equals","value":"x"}]}],"expires_at":"2030-01-02T03:04:05.000000+00:00"}`, true},
		"page":   {list, func(c *client.Client) error { _, err := c.Sessions.Page(ctx, 2, 50); return err }, "GET /sessions?page=2&size=50", "", false},
		"delete": {``, func(c *client.Client) error { return c.Sessions.Delete(ctx, "a/b") }, "DELETE /sessions/a%2Fb", "", false},
		"explain": {`{}`, func(c *client.Client) error {
			_, err := c.Access.Explain(ctx, api.ExplainAccess{ApplicationID: "a", Permission: "token:read", TokenID: "t"})
			return err
		}, "POST /access/explain", `{"application_id":"a","permission":"token:read","token_id":"t"}`, false},
		"who": {list, func(c *client.Client) error {
			for _, err := range c.Access.Who(ctx, "token:read", "/pci/") {
				return err
			}
			return nil
		}, "GET /access/who?container=%2Fpci%2F&page=1&permission=token%3Aread&size=100", "", false},
		"who, of no tokens": {list, func(c *client.Client) error {
			for _, err := range c.Access.Who(ctx, "log:read", "") {
				return err
			}
			return nil
		}, "GET /access/who?page=1&permission=log%3Aread&size=100", "", false},
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, answer{status: 200, body: want.answer})
			if err := want.call(f.client(t)); err != nil {
				t.Fatal(err)
			}
			r := f.requests()[0]
			if got := r.Method + " " + r.URL.RequestURI(); got != want.target || f.bodies[0] != want.body {
				t.Errorf("sent %s %s, want %s %s", got, f.bodies[0], want.target, want.body)
			}
			if got := len(r.Header.Get("SVC-IDEMPOTENCY-KEY")) == 36; got != want.idem {
				t.Errorf("with an idempotency key %t, want %t", got, want.idem)
			}
		})
	}
}

// cutting loses the first answer on the way: the server has done its work.
type cutting struct {
	next http.RoundTripper
	cut  bool
}

func (c *cutting) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	if err != nil || c.cut {
		return response, err
	}
	c.cut = true
	_ = response.Body.Close()
	return nil, errors.New("cut")
}

// TestAnAnswerThatWasLostIsAskedForAgain, and what it answers is done once.
func TestAnAnswerThatWasLostIsAskedForAgain(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	keys, _, err := k.Demo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(k.URL, client.WithKey(keys.PrivateKey), client.WithHTTPClient(&http.Client{Transport: &cutting{next: k.Client.Transport}}),
		client.WithSleep(func(context.Context, time.Duration) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.Tokens.Create(t.Context(), api.CreateToken{Type: "token", Data: "Jane"})
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.Tokens.Page(t.Context(), client.TokenFilter{}, 1, 10)
	if err != nil || len(all.Data) != 1 || all.Data[0].ID != made.ID {
		t.Errorf("there are %d tokens, %v, want the one that the second try was told of", len(all.Data), err)
	}
}
