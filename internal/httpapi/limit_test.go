package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

func TestRateLimitsRefuseAndRecover(t *testing.T) {
	clock := time.Unix(1_700_000_000, 0)
	e := newEdge(t, httpapi.Options{
		Now:        func() time.Time { return clock },
		RateLimits: httpapi.RateLimits{PerKey: httpapi.Rate{PerSecond: 0.5, Burst: 2}, PerAddress: httpapi.Rate{PerSecond: 1, Burst: 4}},
	}, httpapi.Route{Pattern: "GET /x", Auth: httpapi.APIKey, Handle: answer}, httpapi.Route{Pattern: "GET /open", Auth: httpapi.Anonymous, Handle: answer})
	type result struct {
		Status               int
		Retry, Policy, Quota string
	}
	call := func(path string, headers ...string) result {
		w := e.do("GET", path, nil, headers...)
		return result{w.Code, w.Header().Get("Retry-After"), w.Header().Get("RateLimit-Policy"), w.Header().Get("RateLimit")}
	}
	const both = `"address";q=4;w=4, "key";q=2;w=4`
	for _, step := range []struct {
		name    string
		advance time.Duration
		path    string
		headers []string
		want    result
	}{
		{"the first", 0, "/x", []string{"SVC-API-KEY", goodKey}, result{200, "", both, `"address";r=3;t=1, "key";r=1;t=2`}},
		{"the second", 0, "/x", []string{"SVC-API-KEY", goodKey}, result{200, "", both, `"address";r=2;t=2, "key";r=0;t=4`}},
		{"the key is used up", 0, "/x", []string{"SVC-API-KEY", goodKey}, result{429, "2", both, `"address";r=1;t=3, "key";r=0;t=4`}},
		{"an unknown key has no bucket", 0, "/x", []string{"SVC-API-KEY", "no"}, result{401, "", `"address";q=4;w=4`, `"address";r=0;t=4`}},
		{"the address is used up", 0, "/open", nil, result{429, "1", `"address";q=4;w=4`, `"address";r=0;t=4`}},
		{"for what is not there too", 0, "/nothing", nil, result{429, "1", `"address";q=4;w=4`, `"address";r=0;t=4`}},
		{"not for health checks", 0, "/healthz", nil, result{200, "", "", ""}},
		{"later both have recovered", 2 * time.Second, "/x", []string{"SVC-API-KEY", goodKey}, result{200, "", both, `"address";r=1;t=3, "key";r=0;t=4`}},
	} {
		clock = clock.Add(step.advance)
		if diff := cmp.Diff(step.want, call(step.path, step.headers...)); diff != "" {
			t.Fatalf("%s: GET %s (-want +got)\n%s", step.name, step.path, diff)
		}
	}
	metrics := e.exposition()
	for _, want := range []string{`tokenkeep_http_rate_limited_total{limit="key"} 1`, `tokenkeep_http_rate_limited_total{limit="address"} 2`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if strings.Contains(metrics+e.log.String(), goodKey) {
		t.Error("the key was shown")
	}
}

func TestAddressesShareABucketByNetwork(t *testing.T) {
	for name, tt := range map[string]struct {
		first, second string
		shared        bool
	}{
		"the same address":          {"192.0.2.7:1", "192.0.2.7:2", true},
		"the next address":          {"192.0.2.7:1", "192.0.2.8:1", false},
		"the same /64":              {"[2001:db8::1]:1", "[2001:db8::ffff:1]:1", true},
		"another /64":               {"[2001:db8::1]:1", "[2001:db8:0:1::1]:1", false},
		"an IPv4 address in IPv6":   {"192.0.2.7:1", "[::ffff:192.0.2.7]:1", true},
		"two IPv4 addresses in it":  {"[::ffff:192.0.2.8]:1", "[::ffff:192.0.2.7]:1", false},
		"peers that have no number": {"@", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t, httpapi.Options{
				Now:        func() time.Time { return time.Unix(1, 0) },
				RateLimits: httpapi.RateLimits{PerAddress: httpapi.Rate{PerSecond: 0.1}},
			}, httpapi.Route{Pattern: "GET /x", Auth: httpapi.Anonymous, Handle: answer})
			var codes []int
			for _, addr := range []string{tt.first, tt.second} {
				r, w := httptest.NewRequest("GET", "/x", nil), httptest.NewRecorder()
				r.RemoteAddr = addr
				e.ServeHTTP(w, r)
				codes = append(codes, w.Code)
			}
			want := 200
			if tt.shared {
				want = 429
			}
			if codes[0] != 200 || codes[1] != want {
				t.Errorf("%s then %s = %v, want 200 then %d", tt.first, tt.second, codes, want)
			}
		})
	}
}

func TestManyAddressesDoNotFillTheMemory(t *testing.T) {
	storetest.Long(t)
	h := httpapi.New(httpapi.Options{
		Now:        func() time.Time { return time.Unix(1, 0) },
		RateLimits: httpapi.RateLimits{PerAddress: httpapi.Rate{PerSecond: 0.1, Burst: 1}},
	}, []httpapi.Route{{Pattern: "GET /x", Auth: httpapi.Anonymous, Handle: failing(nil)}})
	call := func(i int) int {
		r, w := httptest.NewRequest("GET", "/x", nil), httptest.NewRecorder()
		addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		r.RemoteAddr = netip.AddrPortFrom(addr, 1).String()
		h.ServeHTTP(w, r)
		return w.Code
	}
	const tracked = 1 << 16
	for i := range tracked {
		if got := call(i); got != 200 {
			t.Fatalf("address %d = %d, want 200", i, got)
		}
	}
	// Address 0 comes again, so that 1 has been away longest when one more comes.
	got := []int{call(0), call(tracked), call(tracked), call(0), call(1)}
	if diff := cmp.Diff([]int{429, 200, 429, 429, 200}, got); diff != "" {
		t.Errorf("only address 1 should have been forgotten (-want +got)\n%s", diff)
	}
}

func TestTheClientAddressIsBelievedFromTrustedProxiesAlone(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}
	for name, tt := range map[string]struct {
		peer      string
		forwarded []string
		want      string
	}{
		"no proxy":                      {"192.0.2.1:1", nil, "192.0.2.1"},
		"a stranger's word":             {"192.0.2.1:1", []string{"203.0.113.9"}, "192.0.2.1"},
		"a proxy's word":                {"10.0.0.1:1", []string{"203.0.113.9"}, "203.0.113.9"},
		"a proxy over IPv6":             {"[2001:db8:1::1]:1", []string{"2001:db8:2::9"}, "2001:db8:2::9"},
		"a proxy mapped into IPv6":      {"[::ffff:10.0.0.1]:1", []string{"203.0.113.9"}, "203.0.113.9"},
		"the rightmost that counts":     {"10.0.0.1:1", []string{"198.51.100.1, 203.0.113.9, 10.1.1.1"}, "203.0.113.9"},
		"several lines":                 {"10.0.0.1:1", []string{"198.51.100.1", "203.0.113.9", "10.1.1.1"}, "203.0.113.9"},
		"with a port":                   {"10.0.0.1:1", []string{"203.0.113.9:443"}, "203.0.113.9"},
		"IPv6 with a port":              {"10.0.0.1:1", []string{"[2001:db8:2::9]:443"}, "2001:db8:2::9"},
		"only proxies":                  {"10.0.0.1:1", []string{"10.2.2.2, 10.1.1.1"}, "10.2.2.2"},
		"a proxy that says nothing":     {"10.0.0.1:1", nil, "10.0.0.1"},
		"nonsense":                      {"10.0.0.1:1", []string{"4242424242424242"}, "10.0.0.1"},
		"nonsense left of a proxy":      {"10.0.0.1:1", []string{"203.0.113.9, unknown, 10.1.1.1"}, "10.1.1.1"},
		"nonsense left of the client":   {"10.0.0.1:1", []string{"unknown, 203.0.113.9"}, "203.0.113.9"},
		"an empty place":                {"10.0.0.1:1", []string{"203.0.113.9,,"}, "10.0.0.1"},
		"an IPv6 zone is left out":      {"[fe80::1%eth0]:1", nil, "fe80::1"},
		"a very long list is no matter": {"10.0.0.1:1", []string{strings.Repeat("10.1.1.1,", 5000) + "10.1.1.2"}, "10.1.1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			var seen netip.Addr
			e := newEdge(t, httpapi.Options{TrustedProxies: trusted}, httpapi.Route{Pattern: "GET /x", Auth: httpapi.Anonymous, Handle: func(_ http.ResponseWriter, r *http.Request, _ access.Caller) error {
				seen = httpapi.ClientAddr(r.Context())
				return nil
			}})
			r := httptest.NewRequest("GET", "/x", nil)
			r.RemoteAddr = tt.peer
			r.Header["X-Forwarded-For"] = tt.forwarded
			e.ServeHTTP(httptest.NewRecorder(), r)
			if seen.String() != tt.want || e.records()[0]["client"] != tt.want {
				t.Errorf("client of %s forwarding %.60q = %s, want %s", tt.peer, tt.forwarded, seen, tt.want)
			}
		})
	}
}
