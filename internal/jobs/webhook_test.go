package jobs_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// signature signs as the specification of Standard Webhooks says.
func signature(key, id, stamp, body string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(id + "." + stamp + "." + body))
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func secretOf(key string) secret.Text {
	return secret.NewText("whsec_" + base64.StdEncoding.EncodeToString([]byte(key)))
}

func TestAMessageIsSignedWithEachSecret(t *testing.T) {
	type got struct {
		header http.Header
		body   string
	}
	received := make(chan got, 1)
	to := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- got{r.Header.Clone(), string(body)}
	}))
	defer to.Close()
	s := jobs.Sender{
		Now:       func() time.Time { return time.Unix(1_900_000_000, 0) },
		Transport: func(string, time.Duration) http.RoundTripper { return to.Client().Transport },
	}
	err := s.Send(t.Context(), "tenant", jobs.Message{
		ID: "msg-1", URL: to.URL, Body: []byte(`{"a":1}`), Secrets: []secret.Text{secretOf("first key of a test"), secretOf("second key of a test")},
		Header: map[string]string{"Svc-Trace-Id": "trace-1", "Webhook-Id": "another"},
	})
	if err != nil {
		t.Fatal(err)
	}
	g := <-received
	for name, want := range map[string]string{
		"Webhook-Id": "msg-1", "Webhook-Timestamp": "1900000000", "Content-Type": "application/json", "Svc-Trace-Id": "trace-1", "User-Agent": "tokenkeep",
	} {
		if g.header.Get(name) != want {
			t.Errorf("the header %s is %q, want %q", name, g.header.Get(name), want)
		}
	}
	want := []string{
		signature("first key of a test", "msg-1", "1900000000", `{"a":1}`), signature("second key of a test", "msg-1", "1900000000", `{"a":1}`),
	}
	if list := strings.Split(g.header.Get("Webhook-Signature"), " "); !slices.Equal(list, want) || g.body != `{"a":1}` {
		t.Errorf("the signatures are %q, want %q", list, want)
	}
}

type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

func TestOnlyASuccessTakesAMessage(t *testing.T) {
	status := func(code int) answers {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: code, Body: http.NoBody}, nil
		}
	}
	for name, test := range map[string]struct {
		url    string
		answer answers
		want   error
	}{
		"200":        {"https://example.com/", status(200), nil},
		"299":        {"https://example.com/", status(299), nil},
		"199":        {"https://example.com/", status(199), jobs.ErrNotTaken},
		"a redirect": {"https://example.com/", status(307), jobs.ErrNotTaken},
		"gone":       {"https://example.com/", status(410), jobs.ErrNotTaken},
		"an error": {"https://example.com/", func(r *http.Request) (*http.Response, error) {
			return nil, errors.New("cannot reach " + r.URL.String())
		}, jobs.ErrNotTaken},
		"no URL": {"https://exa mple.com/\x7f", status(200), jobs.ErrNotTaken},
	} {
		s := jobs.Sender{Now: time.Now, Transport: func(string, time.Duration) http.RoundTripper { return test.answer }}
		if err := s.Send(context.Background(), "tenant", jobs.Message{ID: "1", URL: test.url}); !errors.Is(err, test.want) || err != nil && strings.Contains(err.Error(), "mple.com") {
			t.Errorf("%s: Send = %v, want %v", name, err, test.want)
		}
	}
}
