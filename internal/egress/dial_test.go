package egress_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenkeep/tokenkeep/internal/egress"
	"github.com/tokenkeep/tokenkeep/internal/egress/egresstest"
)

var onlyTwo = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}

// answers is a resolver with fixed answers.
type answers map[string][]netip.Addr

func (a answers) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	list, ok := a[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return append([]netip.Addr(nil), list...), nil
}

func TestANameThatChangesItsMindIsLookedUpOnce(t *testing.T) {
	w := newWorld(t, egress.Settings{AllowNetworks: onlyTwo})
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skip("this machine has no 127.0.0.2")
	}
	t.Cleanup(func() { _ = l.Close() })
	good := egresstest.Answer{Addresses: []string{"127.0.0.2"}}
	bad := egresstest.Answer{Addresses: []string{"127.0.0.1"}}
	w.names.Set("rebind.example", good, bad)
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()

	c, err := w.Dial(t.Context(), "t1", "rebind.example", port)
	if err != nil {
		t.Fatalf("Dial = %v, want a connection to the address that was checked", err)
	}
	if got := c.RemoteAddr().String(); got != l.Addr().String() {
		t.Errorf("Dial went to %s, want %s", got, l.Addr())
	}
	_ = c.Close()
	if n := w.names.Asked("rebind.example"); n != 1 {
		t.Errorf("the name was looked up %d times, want once", n)
	}
	if _, err := w.Dial(t.Context(), "t1", "rebind.example", port); !errors.Is(err, egress.ErrForbidden) {
		t.Errorf("Dial after the name changed = %v, want a refusal", err)
	}
}

// TestTheLastWordIsSpokenAtTheSocket changes the rules between the check of
// the answers and the connection.
func TestTheLastWordIsSpokenAtTheSocket(t *testing.T) {
	asked := 0
	var w world
	w = newWorld(t, egress.Settings{
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		OwnAddresses: func() []netip.AddrPort {
			if asked++; asked == 1 {
				return nil
			}
			return []netip.AddrPort{w.witness.Addr()}
		},
	})
	_, err := w.Dial(t.Context(), "t1", "127.0.0.1", w.witness.Port())
	if !errors.Is(err, egress.ErrForbidden) || asked != 2 {
		t.Errorf("Dial = %v after %d looks at the rules, want a refusal at the second", err, asked)
	}
	if strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("Dial repeats the address: %v", err)
	}
	if n := w.witness.Connections(); n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
}

func TestTheServersOwnAddressesStayShut(t *testing.T) {
	everyV4 := netip.MustParseAddr("0.0.0.0")
	for name, test := range map[string]struct {
		own     func(port uint16) netip.AddrPort
		refused bool
	}{
		"its listener":                   {func(p uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), p) }, true},
		"its listener, mapped":           {func(p uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("::ffff:127.0.0.1"), p) }, true},
		"a listener on every address":    {func(p uint16) netip.AddrPort { return netip.AddrPortFrom(everyV4, p) }, true},
		"a listener on every v6 address": {func(p uint16) netip.AddrPort { return netip.AddrPortFrom(netip.IPv6Unspecified(), p) }, true},
		"every port of an address":       {func(uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 0) }, true},
		"a listener at another port":     {func(p uint16) netip.AddrPort { return netip.AddrPortFrom(everyV4, p-1) }, false},
		"a listener at another address":  {func(p uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.5"), p) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			w = newWorld(t, egress.Settings{Dev: true, OwnAddresses: func() []netip.AddrPort { return []netip.AddrPort{test.own(w.witness.Port())} }})
			c, err := w.Dial(t.Context(), "t1", "127.0.0.1", w.witness.Port())
			if err == nil {
				_ = c.Close()
			}
			if errors.Is(err, egress.ErrForbidden) != test.refused || err != nil && !test.refused {
				t.Errorf("Dial = %v, want refused to be %v", err, test.refused)
			}
			if n := w.witness.Connections(); (n == 0) != test.refused {
				t.Errorf("%d connections, want refused to be %v", n, test.refused)
			}
		})
	}
}

func TestAPublicAddressOfThisMachineIsShut(t *testing.T) {
	w := newWorld(t, egress.Settings{Resolver: answers{"self.example.": {netip.MustParseAddr("3000::1")}}})
	w.SetInterfaces(func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.ParseIP("3000::1"), Mask: net.CIDRMask(64, 128)}}, nil
	})
	if _, err := w.Dial(t.Context(), "t1", "self.example", w.witness.Port()); !errors.Is(err, egress.ErrForbidden) {
		t.Errorf("Dial = %v, want a refusal", err)
	}
	w.SetInterfaces(func() ([]net.Addr, error) { return nil, errors.New("no answer") })
	if _, err := w.Dial(t.Context(), "t1", "self.example", w.witness.Port()); err == nil {
		t.Error("Dial went through although the machine's addresses are not known")
	}
	if n := w.witness.Connections(); n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
}

// TestANameThatIsOpenMayBePrivateAndNothingElse asks for refusals alone, and
// tells the one that passes by a failure other than a refusal.
func TestANameThatIsOpenMayBePrivateAndNothingElse(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel() // what passes the rules gets no further: no packet leaves this machine
	for address, isOpen := range map[string]bool{
		"10.1.2.3": true, "172.16.0.1": true, "192.168.1.1": true, "100.64.0.1": true, "fd00::1": true, "::ffff:10.1.2.3": true,
		"127.0.0.1": false, "::1": false, "0.0.0.0": false, "169.254.169.254": false, "169.254.1.1": false, "100.100.100.200": false, "168.63.129.16": false,
		"fd00:ec2::254": false, "fe80::1": false, "224.0.0.1": false, "255.255.255.255": false, "192.0.2.1": false, "198.18.0.1": false, "64:ff9b::a01:203": false,
		"2002:a01:203::1": false, "3000::5efe:a01:203": false, "::10.1.2.3": false,
	} {
		w := newWorld(t, egress.Settings{AllowHosts: []string{"psp.internal"}, Resolver: answers{
			"psp.internal.": {netip.MustParseAddr(address)}, "other.example.": {netip.MustParseAddr(address)},
		}})
		if _, err := w.Dial(gone, "t1", "psp.internal", 8443); errors.Is(err, egress.ErrForbidden) == isOpen {
			t.Errorf("Dial of an open name at %s = %v, want open to be %v", address, err, isOpen)
		}
		if _, err := w.Dial(gone, "t1", "other.example", 8443); !errors.Is(err, egress.ErrForbidden) {
			t.Errorf("Dial of another name at %s = %v, want a refusal", address, err)
		}
	}
}

func TestSandboxedCodeGetsNamesOfErrors(t *testing.T) {
	w := newWorld(t, egress.Settings{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("127.0.0.77/32")}})
	// The port is taken, so that nobody else gets it, but at another address.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	nobody := l.Addr().(*net.TCPAddr).AddrPort().Port()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		host string
		port uint16
		want string
	}{
		"nobody listens":     {t.Context(), "127.0.0.77", nobody, "ECONNREFUSED"},
		"no such name":       {t.Context(), "nowhere.example", 443, "ENOTFOUND"},
		"not allowed":        {t.Context(), "127.0.0.2", 443, "EACCES"},
		"a port":             {t.Context(), "127.0.0.1", 22, "EACCES"},
		"out of time":        {late, "127.0.0.1", nobody, "ETIMEDOUT"},
		"a zone":             {t.Context(), "fe80::1%lo", 443, "EACCES"},
		"a mapped literal":   {t.Context(), "::ffff:127.0.0.1", nobody, "EACCES"},
		"everything is well": {t.Context(), "127.0.0.1", w.witness.Port(), ""},
	} {
		c, err := w.Dial(test.ctx, "t1", test.host, test.port)
		if err == nil {
			_ = c.Close()
		}
		if got := egress.Errno(err); got != test.want {
			t.Errorf("%s: Errno(%v) = %q, want %q", name, err, got, test.want)
		}
	}
}

func TestMetricsTellOutcomesAndReasons(t *testing.T) {
	w := newWorld(t, egress.Settings{Dev: true})
	if _, err := w.Check("https://user@pay.example/"); err == nil {
		t.Fatal("Check let a user through")
	}
	_, _ = w.Dial(t.Context(), "t1", "10.0.0.1", 443)
	_, _ = w.Dial(t.Context(), "t1", "nowhere.example", 443)
	c, err := w.Dial(t.Context(), "t1", "127.0.0.1", w.witness.Port())
	if err != nil {
		t.Fatal(err)
	}
	compare := func(open float64) {
		t.Helper()
		families, err := w.witness.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]float64)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := strings.TrimPrefix(f.GetName(), "tokenkeep_egress_")
				for _, l := range m.GetLabel() {
					name += " " + l.GetName() + "=" + l.GetValue()
				}
				got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		want := map[string]float64{
			"connection_attempts_total": 1, "connections": open,
			"dials_total outcome=connected": 1, "dials_total outcome=no_such_host": 1, "dials_total outcome=refused": 1,
			"refused_total reason=literal": 1, "refused_total reason=url": 1,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
	}
	compare(1)
	_ = c.Close()
	_ = c.Close()
	compare(0)
}
