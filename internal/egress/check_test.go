package egress_test

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/egress"
	"github.com/tokenkeep/tokenkeep/internal/egress/egresstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

func newEgress(t testing.TB, s egress.Settings) *egress.Egress {
	t.Helper()
	e, err := egress.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestAGoodURLGetsItsNormalForm(t *testing.T) {
	e := newEgress(t, egress.Settings{})
	longest := "https://pay.example/" + strings.Repeat("a", 400-len("https://pay.example/"))
	for raw, want := range map[string]string{
		"https://pay.example":                     "https://pay.example",
		"https://pay.example/":                    "https://pay.example/",
		"HTTPS://Pay.Example/Path?q=%20":          "https://pay.example/Path?q=%20",
		"https://pay.example:443/":                "https://pay.example/",
		"https://pay.example:1024/":               "https://pay.example:1024/",
		"https://pay.example:65535/a%2Fb/":        "https://pay.example:65535/a%2Fb/",
		"https://r3---sn-4g5e.pay.example/":       "https://r3---sn-4g5e.pay.example/",
		"https://0x7f.example/":                   "https://0x7f.example/",
		"https://127.0.0.1.pay.example/":          "https://127.0.0.1.pay.example/",
		"https://b\u00fccher.example/":            "https://xn--bcher-kva.example/",
		"https://B\u00dcCHER.example/":            "https://xn--bcher-kva.example/",
		"https://xn--bcher-kva.example/":          "https://xn--bcher-kva.example/",
		"https://fa\u00df.example/":               "https://xn--fa-hia.example/",
		"https://\uff50\uff41\uff59.example/":     "https://pay.example/",
		"https://pay\u3002example/":               "https://pay.example/",
		"https://\u4f8b\u3048.\u30c6\u30b9\u30c8": "https://xn--r8jz45g.xn--zckzah",
		longest: longest,
	} {
		got, err := e.Check(raw)
		if err != nil {
			t.Errorf("Check(%q) = %v, want %s", raw, err, want)
			continue
		}
		if got.String() != want {
			t.Errorf("Check(%q) = %s, want %s", raw, got, want)
		}
	}
}

func TestSettingsOpenWhatTheyNameAndNoMore(t *testing.T) {
	networks := func(list ...string) (out []netip.Prefix) {
		for _, n := range list {
			out = append(out, netip.MustParsePrefix(n))
		}
		return out
	}
	for name, test := range map[string]struct {
		settings     egress.Settings
		open, closed []string
	}{
		"http": {egress.Settings{AllowHTTP: true},
			[]string{"http://pay.example/", "http://pay.example:80/", "http://pay.example:8080/"},
			[]string{"http://pay.example:81/", "ftp://pay.example/", "http://127.0.0.1/", "http://localhost/"}},
		"ports": {egress.Settings{AllowPorts: []uint16{444, 22}},
			[]string{"https://pay.example:444/", "https://pay.example:22/", "https://pay.example/"},
			[]string{"https://pay.example:445/", "https://pay.example:80/", "http://pay.example/"}},
		"hosts": {egress.Settings{AllowHosts: []string{"psp", "Ledger.Internal", "*.svc.cluster.local", "b\u00fccher.local", "*.google.internal"}},
			[]string{"https://psp:8443/", "https://PSP/", "https://ledger.internal/", "https://a.b.svc.cluster.local/", "https://xn--bcher-kva.local/"},
			[]string{"https://ledgers.internal/", "https://x.ledger.internal/", "https://svc.cluster.local/", "https://xsvc.cluster.local/", "https://metadata.google.internal/", "https://10.0.0.1/", "https://psp:22/"}},
		"networks": {egress.Settings{AllowNetworks: networks("10.1.0.0/16", "fd00::/8", "169.254.0.0/16", "64:ff9b::/96")},
			[]string{"https://10.1.2.3/", "https://10.1.2.3:8443/", "https://[fd00::1]/", "https://[fd00:0:0::1]:8443/", "https://[64:ff9b::808:808]/"},
			[]string{"https://10.2.0.1/", "https://0xa.1.2.3/", "https://10.66051/", "https://010.1.2.3/", "https://[::ffff:10.1.2.3]/", "https://[fd00:ec2::254]/", "https://[fd00::1%25eth0]/",
				"https://169.254.169.254/", "https://169.254.1.1/", "https://[64:ff9b::7f00:1]/", "https://[64:ff9b::a9fe:a9fe]/", "https://127.0.0.1/", "https://\uff11\uff10.1.2.3/", "https://10.1.2.3./"}},
		"networks that hold what is never open": {egress.Settings{AllowNetworks: networks("0.0.0.0/8", "224.0.0.0/3", "::/64", "ff00::/8", "168.63.0.0/16")},
			[]string{"https://0.1.2.3/", "https://[::2]/", "https://250.1.1.1/", "https://168.63.1.1/"},
			[]string{"https://0.0.0.0/", "https://224.0.0.1/", "https://255.255.255.255/", "https://[::]/", "https://[ff02::1]/", "https://[::ffff:127.0.0.1]/", "https://168.63.129.16/"}},
		"development": {egress.Settings{Dev: true},
			[]string{"http://localhost:3000/", "http://127.0.0.1:3000/", "https://[::1]:3000/", "http://pay.example/"},
			[]string{"http://10.0.0.1/", "http://redis/", "http://0.0.0.0:3000/", "http://127.1:3000/", "http://localhost:22/", "http://169.254.169.254/"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEgress(t, test.settings)
			for _, raw := range test.open {
				if _, err := e.Check(raw); err != nil {
					t.Errorf("Check(%q) = %v, want nil", raw, err)
				}
			}
			for _, raw := range test.closed {
				if _, err := e.Check(raw); !errors.Is(err, egress.ErrForbidden) {
					t.Errorf("Check(%q) = %v, want a refusal", raw, err)
				}
			}
		})
	}
}

func TestSettingsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, s := range map[string]egress.Settings{
		"every address":          {AllowNetworks: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}},
		"every address of IPv6":  {AllowNetworks: []netip.Prefix{netip.MustParsePrefix("::/0")}},
		"a mapped network":       {AllowNetworks: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 104)}},
		"no network":             {AllowNetworks: []netip.Prefix{{}}},
		"an address as a host":   {AllowHosts: []string{"10.0.0.1"}},
		"a star alone":           {AllowHosts: []string{"*"}},
		"a star in the middle":   {AllowHosts: []string{"a.*.example"}},
		"an empty host":          {AllowHosts: []string{""}},
		"port 0":                 {AllowPorts: []uint16{0}},
		"a file that is missing": {CAFile: "/nowhere/ca.pem"},
		"a file without PEM":     {CAFile: "check_test.go"},
	} {
		if _, err := egress.New(s); err == nil {
			t.Errorf("%s: New = nil, want an error", name)
		}
	}
}

// FuzzCheck holds that what passes is plain to every reader: it is its own
// normal form, and its host is a name that nobody takes for an address, or an
// address in the open network.
func FuzzCheck(f *testing.F) {
	for _, row := range egresstest.Forbidden(8443) {
		f.Add(row.URL)
	}
	for _, raw := range []string{"https://pay.example:8443/a?b", "https://b\u00fccher.example/", "https://10.1.2.3/", "https://[fd00::1]:8443/"} {
		f.Add(raw)
	}
	open := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/16")}
	e := newEgress(f, egress.Settings{AllowNetworks: open})
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := e.Check(raw)
		if err != nil {
			if fault.Of(err).Kind() != fault.Invalid || len(raw) > 20 && strings.Contains(err.Error(), raw) {
				t.Errorf("Check(%q) = %v, want a fault of constant words", raw, err)
			}
			return
		}
		text := u.String()
		again, err := url.Parse(text)
		if err != nil || again.Scheme != "https" || again.Host != u.Host || again.User != nil || again.Fragment != "" || again.Opaque != "" {
			t.Fatalf("Check(%q) = %q, which is read as %+v (%v)", raw, text, again, err)
		}
		if twice, err := e.Check(text); err != nil || twice.String() != text {
			t.Errorf("Check(Check(%q)) = %v, %v; want %q", raw, twice, err, text)
		}
		host := u.Hostname()
		if a, err := netip.ParseAddr(host); err == nil {
			if !open[0].Contains(a) && !open[1].Contains(a) {
				t.Errorf("Check(%q) lets through the address %v", raw, a)
			}
			return
		}
		last := host[strings.LastIndexByte(host, '.')+1:]
		if strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" || !strings.Contains(host, ".") || strings.Trim(last, "0123456789") == "" {
			t.Errorf("Check(%q) lets through the host %q", raw, host)
		}
	})
}
