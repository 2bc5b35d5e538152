package origin_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/origin"
)

var valid = []string{
	"https://shop.example", "https://shop.example:8443", "https://shop", "https://a-b.c_d.example", "https://xn--bcher-kva.example", "https://192.0.2.1",
	"https://192.0.2.1:444", "https://localhost", "https://1.shop", "https://0x.shop", "https://" + strings.Repeat("a", 63) + ".example",
	"http://localhost", "http://localhost:3000", "http://shop.localhost:3000", "http://127.0.0.1", "http://127.0.0.1:8420", "http://127.255.0.9", "https://shop.example:65535", "https://shop.example:1",
	"http://localhost:443", "https://shop.example:80",
}

var invalid = map[string]string{
	"nothing": "", "no host": "https://", "only a host": "shop.example", "null": "null", "a wildcard": "*", "a wildcard label": "https://*.shop.example",
	"a path": "https://shop.example/", "a long path": "https://shop.example/pay", "a query": "https://shop.example?a", "a fragment": "https://shop.example#a",
	"a user": "https://a@shop.example", "upper case": "https://Shop.example", "an upper-case scheme": "HTTPS://shop.example", "http elsewhere": "http://shop.example",
	"http on another network": "http://192.0.2.1", "http on a name that begins alike": "http://localhost.example", "http on a name that ends alike": "http://notlocalhost",
	"another scheme": "ftp://shop.example", "a socket": "wss://shop.example", "the default port": "https://shop.example:443", "the default port of http": "http://localhost:80",
	"no port": "https://shop.example:", "port 0": "https://shop.example:0", "a zero before the port": "https://shop.example:08443", "a port too high": "https://shop.example:65536",
	"a sign before the port": "https://shop.example:+1", "a word as port": "https://shop.example:https", "a wildcard port": "https://shop.example:*", "two ports": "https://shop.example:1:2",
	"an empty label": "https://shop..example", "a dot at the end": "https://shop.example.", "a dot at the start": "https://.example", "a dash at the start": "https://-a.example",
	"a dash at the end": "https://a-.example", "a long label": "https://" + strings.Repeat("a", 64) + ".example", "a long host": "https://" + strings.Repeat("a.", 130) + "example",
	"a space": "https://shop.example https://evil.example", "a space before": " https://shop.example", "a space after": "https://shop.example ", "a semicolon": "https://shop.example;script-src",
	"a comma": "https://shop.example,https://evil.example", "a quote": "https://shop.example'none'", "a line break": "https://shop.example\r\nX: y", "a zero byte": "https://shop.example\x00",
	"letters beyond ASCII": "https://bücher.example", "a percent": "https://shop%2eexample", "a backslash": "https://shop.example\\a", "a number": "https://2130706433", "a short address": "https://127.1",
	"an address with a zero": "https://127.0.0.01", "a hexadecimal address": "https://0x7f.0.0.0x1", "a large byte": "https://256.0.0.1", "IPv6": "https://[2001:db8::1]", "IPv6 on loopback": "http://[::1]:3000",
	"a name that ends with a number": "https://shop.example.1", "a keyword": "'self'", "data": "data:", "a hexadecimal end": "https://a.0x", "http on a number": "http://2130706433",
}

func TestValid(t *testing.T) {
	for _, s := range valid {
		if !origin.Valid(s) {
			t.Errorf("Valid(%q) = false, want true", s)
		}
	}
	for name, s := range invalid {
		if origin.Valid(s) {
			t.Errorf("%s: Valid(%q) = true, want false", name, s)
		}
	}
}

// What is accepted ends up in headers, and is compared with what browsers send.
func FuzzValid(f *testing.F) {
	for _, s := range valid {
		f.Add(s)
	}
	for _, s := range invalid {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !origin.Valid(s) {
			return
		}
		u, err := url.Parse(s)
		if err != nil || u.Scheme+"://"+u.Host != s || u.Hostname() == "" || u.Port() == "443" && u.Scheme == "https" {
			t.Errorf("Valid(%q) = true, but it parses as %v, %v", s, u, err)
		}
		if strings.ContainsAny(s, " \t\r\n;,'\"*/\\@?#%") && strings.Trim(strings.TrimPrefix(strings.TrimPrefix(s, "https://"), "http://"), "abcdefghijklmnopqrstuvwxyz0123456789-_.:") != "" {
			t.Errorf("Valid(%q) = true, but it holds what a source expression must not", s)
		}
		if u.Scheme == "http" && u.Hostname() != "localhost" && !strings.HasSuffix(u.Hostname(), ".localhost") && !strings.HasPrefix(u.Hostname(), "127.") {
			t.Errorf("Valid(%q) = true, but it is no loopback", s)
		}
	})
}
