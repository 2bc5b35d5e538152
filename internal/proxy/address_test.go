package proxy_test

import (
	"errors"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// TestPathAndQueryFollowThoseOfTheDestination, also where the edge in front
// would let through what a line of HTTP cannot hold.
func TestPathAndQueryFollowThoseOfTheDestination(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ base, call, want string }{
		{"https://a.example", "", "/"},
		{"https://a.example", "/", "/"},
		{"https://a.example/", "/x", "/x"},
		{"https://a.example", "//x", "//x"},
		{"https://a.example/v1/", "", "/v1"},
		{"https://a.example/v1//", "/x/", "/v1/x/"},
		{"https://a.example/v%2F1", "/x%2Fy", "/v%2F1/x%2Fy"},
		{"https://a.example/v1?k=1", "/x", "/v1/x?k=1"},
		{"https://a.example/v1?k=1", "/x?l=2&", "/v1/x?k=1&l=2&"},
		{"https://a.example?k=%20", "?l", "/?k=%20&l"},
		{"https://a.example", "/x?svc%2Dproxy-key=a&SVC-PROXY-KEY=b&c", ""},
		{"https://a.example", "/x?SVC-Proxy-Key=b&c=%s", "/x?c=%s"},
		{"https://a.example", "/q?", "/q?"},
		{"https://a.example", "?", "/?"},
		{"https://a.example", "/q??", "/q??"},
		{"https://a.example", "/q?svc-proxy-key=", "/q"},
		{"https://a.example?k=1", "/q?", "/q?k=1"},
		{"https://a.example/v1?", "/q", "/v1/q?"},
		{"https://a.example", "/x y", ""},
		{"https://a.example", "/x\u00e9", ""},
		{"https://a.example", "/x\r\nHost: b", ""},
		{"https://a.example", "/x?a b", ""},
		{"https://a.example", "/x?a\r\nb", ""},
		{"https://a.example", "/x?a#b", ""},
		{"https://a.example", "/x?\u00e9", ""},
		{"https://a.example", "x", ""},
		{"https://a.example/v1", "/a/%2e%2e", ""},
		{"https://a.example/v1", "/..%5cx", ""},
		{"https://a.example/v1", "/%2e.;x/y", ""},
	} {
		p := w.define(`{"name":"p","destination_url":"` + c.base + `"}`)
		_, _, err := w.call(p, "GET", c.call, "", "")
		if c.want == "" {
			if err == nil || fault.Of(err).Kind() == fault.Internal || len(w.got) != 0 {
				t.Errorf("%s and %q = %v with %d requests, want a refusal", c.base, c.call, err, len(w.got))
			}
			continue
		}
		if err != nil || w.got[0].URL.RequestURI() != c.want || w.got[0].URL.Host != "a.example" {
			t.Errorf("%s and %q = %v, %v, want %q", c.base, c.call, w.got, err, c.want)
		}
	}
}

func TestConnectIsNotForwarded(t *testing.T) {
	w := newWorld(t)
	if _, _, err := w.call(w.define(`{"name":"p","destination_url":"https://a.example"}`), "CONNECT", "/", "", ""); !errors.Is(err, fault.Invalid) || len(w.got) != 0 {
		t.Errorf("Invoke = %v, want a refusal", err)
	}
}
