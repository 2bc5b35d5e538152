package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

var (
	fine   = answer{status: 200, body: `{}`}
	broken = answer{broken: true}
	// inFlight is the answer while another request has the idempotency key.
	inFlight = answer{status: 409, header: []string{"Retry-After", "1"}}
)

func status(n int) answer { return answer{status: n} }

func TestRetries(t *testing.T) {
	look := func(ctx context.Context, c *client.Client) error { _, err := c.Tenant.Get(ctx); return err }
	post := func(ctx context.Context, c *client.Client) error { _, err := c.Keys.Create(ctx, "a"); return err }
	put := func(ctx context.Context, c *client.Client) error {
		_, err := c.Tenant.Replace(ctx, api.ReplaceTenant{Name: "n"})
		return err
	}
	run := func(ctx context.Context, c *client.Client) error {
		_, err := c.Reactors.React(ctx, "a", api.React{})
		return err
	}
	remove := func(ctx context.Context, c *client.Client) error { return c.Applications.Delete(ctx, "a") }
	health := func(ctx context.Context, c *client.Client) error { return c.Health(ctx) }
	ready := func(ctx context.Context, c *client.Client) error { return c.Ready(ctx) }

	cases := map[string]struct {
		call    func(context.Context, *client.Client) error
		answers []answer
		options []client.Option
		tries   int
		ok      bool
	}{
		"success at once":             {look, []answer{fine}, nil, 1, true},
		"a look, after 503":           {look, []answer{status(503), fine}, nil, 2, true},
		"a look, after a cut":         {look, []answer{broken, fine}, nil, 2, true},
		"a post that was not done":    {post, []answer{status(503), fine}, nil, 2, true},
		"a post that came too soon":   {post, []answer{status(429), fine}, nil, 2, true},
		"a post, after 500":           {post, []answer{status(500), fine}, nil, 2, true},
		"a post, after a cut":         {post, []answer{broken, fine}, nil, 2, true},
		"a post, behind its own cut":  {post, []answer{broken, inFlight, fine}, nil, 3, true},
		"not for ever":                {post, []answer{inFlight}, nil, 4, false},
		"not a look in the way":       {look, []answer{inFlight, fine}, nil, 1, false},
		"not a deletion in the way":   {remove, []answer{inFlight, fine}, nil, 1, false},
		"a run, after a cut":          {run, []answer{broken, inFlight, fine}, nil, 3, true},
		"not a run, after 503":        {run, []answer{status(503), fine}, nil, 1, false},
		"not a run, after 500":        {run, []answer{status(500), fine}, nil, 1, false},
		"not a run, after 429":        {run, []answer{status(429), fine}, nil, 1, false},
		"a put, after two":            {put, []answer{status(502), status(504), fine}, nil, 3, true},
		"a deletion":                  {remove, []answer{status(503), {status: 204}}, nil, 2, true},
		"408":                         {look, []answer{status(408), fine}, nil, 2, true},
		"429":                         {look, []answer{status(429), fine}, nil, 2, true},
		"no more than three":          {look, []answer{status(503)}, nil, 4, false},
		"no more than three cuts":     {look, []answer{broken}, nil, 4, false},
		"as many as asked":            {look, []answer{status(503)}, []client.Option{client.WithRetries(7)}, 8, false},
		"none":                        {look, []answer{status(503), fine}, []client.Option{client.WithRetries(0)}, 1, false},
		"not 501":                     {look, []answer{status(501), fine}, nil, 1, false},
		"not health":                  {health, []answer{status(503), fine}, nil, 1, false},
		"not readiness":               {ready, []answer{status(503), fine}, nil, 1, false},
		"not 400":                     {look, []answer{status(400), fine}, nil, 1, false},
		"not 401":                     {look, []answer{status(401), fine}, nil, 1, false},
		"not 403":                     {look, []answer{status(403), fine}, nil, 1, false},
		"not 404":                     {look, []answer{status(404), fine}, nil, 1, false},
		"not 409":                     {post, []answer{status(409), fine}, nil, 1, false},
		"not 422":                     {post, []answer{status(422), fine}, nil, 1, false},
		"until it is another failure": {look, []answer{status(503), status(404), fine}, nil, 2, false},
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, want.answers...)
			err := want.call(t.Context(), f.client(t, want.options...))
			if got := len(f.requests()); got != want.tries || (err == nil) != want.ok {
				t.Errorf("%d tries, error %v, want %d tries, ok %t", got, err, want.tries, want.ok)
			}
			for i, r := range f.requests() {
				first := f.requests()[0]
				if f.bodies[i] != f.bodies[0] || r.Header.Get("SVC-IDEMPOTENCY-KEY") != first.Header.Get("SVC-IDEMPOTENCY-KEY") {
					t.Errorf("try %d sent another body or another idempotency key than the first", i+1)
				}
			}
			if len(f.waits) != max(0, want.tries-1) {
				t.Errorf("waited %d times, want %d", len(f.waits), want.tries-1)
			}
		})
	}
}

func TestEveryCallHasAnIdempotencyKeyOfItsOwn(t *testing.T) {
	f := newFake(t, fine)
	c := f.client(t)
	for range 2 {
		if _, err := c.Keys.Create(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Keys.Create(t.Context(), "a", client.IdempotencyKey("order-1")); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, r := range f.requests() {
		keys = append(keys, r.Header.Get("SVC-IDEMPOTENCY-KEY"))
	}
	if keys[0] == keys[1] || keys[0] == "" || keys[2] != "order-1" {
		t.Errorf("idempotency keys %q, want two different ones and order-1", keys)
	}
	for _, bad := range []string{"", "a b", "a\nb", "ü", strings.Repeat("x", 201)} {
		if _, err := c.Keys.Create(t.Context(), "a", client.IdempotencyKey(bad)); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("IdempotencyKey(%q): error %v, want ErrInvalid", bad, err)
		}
	}
	if n := len(f.requests()); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
}

func TestWaitsGrowUpToABound(t *testing.T) {
	f := newFake(t, status(503))
	_, err := f.client(t, client.WithRetries(20)).Tenant.Get(t.Context())
	if !errors.Is(err, client.ErrUnavailable) || len(f.waits) != 20 {
		t.Fatalf("error %v after %d waits, want ErrUnavailable after 20", err, len(f.waits))
	}
	for i, got := range f.waits {
		full := 8 * time.Second
		if i < 5 {
			full = 250 * time.Millisecond << i
		}
		if got < full/2 || got > full {
			t.Errorf("wait %d is %v, want between %v and %v", i+1, got, full/2, full)
		}
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	cases := map[string]struct {
		header string
		tries  int
		wait   time.Duration // at least
		says   time.Duration
	}{
		"seconds":            {"7", 2, 7 * time.Second, 7 * time.Second},
		"a date":             {now.Add(9 * time.Second).Format(http.TimeFormat), 2, 9 * time.Second, 9 * time.Second},
		"a date in the past": {now.Add(-time.Hour).Format(http.TimeFormat), 2, 125 * time.Millisecond, 0},
		"zero":               {"0", 2, 125 * time.Millisecond, 0},
		"nonsense":           {"soon", 2, 125 * time.Millisecond, 0},
		"negative":           {"-5", 2, 125 * time.Millisecond, 0},
		"a minute":           {"60", 2, time.Minute, time.Minute},
		"longer than that":   {"61", 1, 0, 61 * time.Second},
		"for ever":           {"99999999999999999999", 2, 125 * time.Millisecond, 0},
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, answer{status: 429, header: []string{"Retry-After", want.header}})
			_, err := f.client(t, client.WithRetries(1), client.WithNow(func() time.Time { return now })).Tenant.Get(t.Context())
			var e *client.Error
			if !errors.As(err, &e) || e.RetryAfter != want.says {
				t.Errorf("error %v says to wait %v, want %v", err, e.RetryAfter, want.says)
			}
			if got := len(f.requests()); got != want.tries {
				t.Fatalf("%d tries, want %d", got, want.tries)
			}
			if want.tries > 1 && (f.waits[0] < want.wait || f.waits[0] > want.wait+250*time.Millisecond) {
				t.Errorf("waited %v, want %v", f.waits[0], want.wait)
			}
		})
	}
}

func TestAContextThatEndsEndsTheWaiting(t *testing.T) {
	f := newFake(t, answer{status: 503, header: []string{"Retry-After", "60"}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, err := client.New(f.URL, client.WithKey(fakeKey), client.WithSleep(func(waiting context.Context, d time.Duration) error {
		go func() { // the answer is there, and the waiting begins
			waittest.Sometime(20 * time.Millisecond)
			cancel()
		}()
		return client.Sleep(waiting, d)
	}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Tenant.Get(ctx)
	var e *client.Error
	if !errors.Is(err, context.Canceled) || !errors.As(err, &e) || e.Status != 503 {
		t.Errorf("error %v, want that of the context and the last answer", err)
	}
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// TestACertificateThatIsNotTrustedIsNotTriedAgain: it will not be trusted the
// next time either.
func TestACertificateThatIsNotTrustedIsNotTriedAgain(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	s.Config.ErrorLog = nil
	defer s.Close()
	waits := 0
	c, err := client.New(s.URL, client.WithKey(fakeKey), client.WithSleep(func(context.Context, time.Duration) error {
		waits++
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tenant.Get(t.Context()); !errors.Is(err, client.ErrUnavailable) || waits != 0 {
		t.Errorf("error %v after %d waits, want ErrUnavailable after none", err, waits)
	}
}
