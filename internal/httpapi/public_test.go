package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/limit"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// publicEdge is a handler with keys of several kinds, and a row that accesses as
// many tokens as its path says.
type publicEdge struct {
	*edge
	clock  time.Time
	limits *limit.Recorder
}

func newPublicEdge(t *testing.T, l httpapi.RateLimits) *publicEdge {
	t.Helper()
	p := &publicEdge{clock: time.Unix(1_700_000_000, 0)}
	now := func() time.Time { return p.clock }
	p.limits = limit.NewRecorder(now, prometheus.NewRegistry())
	callers := map[string]access.Caller{
		"public":  accesstest.Application(t, "shop", "checkout", access.Public, nil, access.TokenCreate),
		"another": accesstest.Application(t, "shop", "other", access.Public, nil, access.TokenCreate),
		"session": accesstest.Session(t, "shop", "checkout", "session-1", nil, access.TokenRead),
		"private": accesstest.Application(t, "shop", "backend", access.Private, nil, access.TokenRead),
	}
	p.edge = newEdge(t, httpapi.Options{
		Now: now, RateLimits: l, Limits: p.limits,
		Authenticate: func(_ context.Context, key secret.Text) (access.Caller, error) {
			for name, c := range callers {
				if key.Equal(secret.NewText(name)) {
					return c, nil
				}
			}
			return access.Caller{}, fault.New(fault.Unauthenticated, "unknown API key")
		},
	}, httpapi.Route{Pattern: "GET /tokens/{n}", Auth: httpapi.APIKey, Handle: func(w http.ResponseWriter, r *http.Request, c access.Caller) error {
		n, err := strconv.Atoi(r.PathValue("n"))
		if err != nil {
			return err
		}
		if err := c.ChargeTokens(n); err != nil {
			return err
		}
		return answer(w, r, c)
	}})
	return p
}

func (p *publicEdge) call(key, address string, tokens int) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest("GET", "/tokens/"+strconv.Itoa(tokens), nil), httptest.NewRecorder()
	r.Header.Set("SVC-API-KEY", key)
	r.RemoteAddr = address
	p.ServeHTTP(w, r)
	return w
}

const (
	attacker = "192.0.2.66:1"
	customer = "198.51.100.7:1"
)

var decided = httpapi.RateLimits{
	PublicRequests: httpapi.Rate{PerSecond: 20, Burst: 200}, PublicTokens: httpapi.Rate{PerSecond: 50, Burst: 1000}, PublicKeyTokens: httpapi.Rate{PerSecond: 2000, Burst: 20000},
}

func TestAFloodWithAPublicKeyStopsItsAddressAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		tokens, passes int
		code, policy   string
		reached        limit.Name
	}{
		"of requests": {0, 200, "request_rate", `"requests";q=200;w=10`, limit.RequestRate},
		"of tokens":   {100, 10, "token_rate", `"tokens";q=1000;w=20`, limit.TokenRate},
	} {
		for _, key := range []string{"public", "session"} {
			t.Run(name+" with a "+key+" key", func(t *testing.T) {
				p := newPublicEdge(t, decided)
				for i := range tt.passes {
					if w := p.call(key, attacker, tt.tokens); w.Code != 200 {
						t.Fatalf("call %d = %d %s, want 200", i, w.Code, w.Body)
					}
				}
				w := p.call(key, attacker, tt.tokens)
				if got := problem(t, w); w.Code != 429 || got.Code != tt.code || w.Header().Get("Retry-After") == "" {
					t.Errorf("the flood = %d %+v, Retry-After %q, want 429 %s", w.Code, got, w.Header().Get("Retry-After"), tt.code)
				}
				if got := w.Header().Get("RateLimit-Policy"); !strings.Contains(got, tt.policy) {
					t.Errorf("RateLimit-Policy = %s, want %s in it", got, tt.policy)
				}
				for _, other := range []struct{ key, address string }{{key, customer}, {"another", attacker}, {"private", attacker}} {
					if w := p.call(other.key, other.address, tt.tokens); w.Code != 200 {
						t.Errorf("the %s key from %s = %d, want 200 beside the flood", other.key, other.address, w.Code)
					}
				}
				if got := p.limits.LastHour(); len(got) != 1 || got[0].Name != tt.reached || got[0].Count != 1 {
					t.Errorf("the limits reached are %v, want %s once", got, tt.reached)
				}
				p.clock = p.clock.Add(20 * time.Second)
				if w := p.call(key, attacker, tt.tokens); w.Code != 200 {
					t.Errorf("20 seconds later = %d, want 200", w.Code)
				}
			})
		}
	}
}

func TestPublicCallersSeeTheirQuotas(t *testing.T) {
	p := newPublicEdge(t, decided)
	w := p.call("public", customer, 10)
	got := []string{w.Header().Get("RateLimit-Policy"), w.Header().Get("RateLimit")}
	want := []string{`"tokens";q=1000;w=20, "requests";q=200;w=10`, `"tokens";r=990;t=1, "requests";r=199;t=1`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the headers (-want +got)\n%s", diff)
	}
	if w := p.call("private", customer, 10); w.Header().Get("RateLimit") != "" {
		t.Errorf("RateLimit of a private key = %s, want none", w.Header().Get("RateLimit"))
	}
}

func TestARequestOfManyTokensCountsThemAll(t *testing.T) {
	p := newPublicEdge(t, decided)
	for _, step := range []struct{ tokens, want int }{{1000, 200}, {1, 429}, {0, 200}} {
		if w := p.call("public", customer, step.tokens); w.Code != step.want {
			t.Errorf("%d tokens = %d, want %d", step.tokens, w.Code, step.want)
		}
	}
	if w := p.call("public", "[2001:db8::1]:1", 1000); w.Code != 200 {
		t.Errorf("an IPv6 address = %d, want 200", w.Code)
	}
	if w := p.call("public", "[2001:db8::2]:1", 1); w.Code != 429 {
		t.Errorf("another address of its /64 = %d, want 429", w.Code)
	}
	if w := p.call("public", "[2001:db8:0:1::1]:1", 1); w.Code != 200 {
		t.Errorf("another /64 = %d, want 200", w.Code)
	}
}

func TestTheCeilingOfAKeyShedsTheBusiestAddressesFirst(t *testing.T) {
	l := decided
	l.PublicKeyTokens = httpapi.Rate{PerSecond: 10, Burst: 4000}
	p := newPublicEdge(t, l)
	addresses := []string{"192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1", "192.0.2.4:1", "192.0.2.5:1"}
	refused := 0
	for range 9 {
		for _, a := range addresses {
			switch w := p.call("public", a, 100); w.Code {
			case 200:
			case 429:
				refused++
				if got := problem(t, w); got.Code != "key_token_rate" || w.Header().Get("Retry-After") == "" {
					t.Errorf("the refusal = %+v, Retry-After %q, want key_token_rate", got, w.Header().Get("Retry-After"))
				}
			default:
				t.Fatalf("a busy address = %d", w.Code)
			}
		}
	}
	if refused == 0 {
		t.Error("no busy address was refused")
	}
	for i := range 50 {
		address := "198.51.100." + strconv.Itoa(i+1) + ":1"
		if w := p.call("public", address, 5); w.Code != 200 {
			t.Errorf("customer %d beside the busy addresses = %d %s, want 200", i, w.Code, w.Body)
		}
	}
	if w := p.call("session", addresses[0], 100); w.Code != 200 {
		t.Errorf("a session from a busy address = %d, want 200: the ceiling is the public key's", w.Code)
	}
	if !strings.Contains(p.exposition(), `tokenkeep_http_rate_limited_total{limit="key_tokens"} `+strconv.Itoa(refused)) {
		t.Errorf("the metrics do not count %d refusals by the ceiling", refused)
	}
}
