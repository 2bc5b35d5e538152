package egress_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/egress"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// loopbackNames lists the names of one label that the hosts file of this
// machine gives to 127.0.0.1, and to no other address.
func loopbackNames(t *testing.T) []string {
	t.Helper()
	file, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Skip("this machine has no hosts file")
	}
	addresses := make(map[string][]string)
	for line := range strings.Lines(string(file)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		for _, name := range fields[min(1, len(fields)):] {
			addresses[name] = append(addresses[name], fields[0])
		}
	}
	var names []string
	for name, list := range addresses {
		if !strings.Contains(name, ".") && slices.Contains(list, "127.0.0.1") && !slices.ContainsFunc(list, func(a string) bool { return a != "127.0.0.1" && a != "::1" }) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Skip("the hosts file has no name of one label for loopback")
	}
	return names
}

func TestNamesOfTheHostsFileWorkWhereTheyAreAllowed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	own := func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort(l.Addr().String())} }
	for _, host := range loopbackNames(t) {
		for name, test := range map[string]struct {
			settings egress.Settings
			open     bool
		}{
			"no setting":                   {egress.Settings{}, false},
			"the network alone":            {egress.Settings{AllowNetworks: loopback}, false},
			"the name alone":               {egress.Settings{AllowHosts: []string{host}}, false},
			"another network":              {egress.Settings{AllowHosts: []string{host}, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, false},
			"the name and the network":     {egress.Settings{AllowHosts: []string{host}, AllowNetworks: loopback}, true},
			"both, at this server's own":   {egress.Settings{AllowHosts: []string{host}, AllowNetworks: loopback, OwnAddresses: own}, false},
			"development mode":             {egress.Settings{Dev: true}, host == "localhost"},
			"development mode, at its own": {egress.Settings{Dev: true, OwnAddresses: own}, false},
			"the name in development mode": {egress.Settings{Dev: true, AllowHosts: []string{host}}, true},
		} {
			c, err := newEgress(t, test.settings).Dial(t.Context(), "t1", host, port)
			if err == nil {
				_ = c.Close()
			}
			if test.open && err != nil || !test.open && !errors.Is(err, egress.ErrForbidden) {
				t.Errorf("%s: Dial(%q) = %v, want open to be %v", name, host, err, test.open)
			}
		}
	}
}

func TestMessagesAskForHTTPSOnlyWhereHTTPIsNotAllowed(t *testing.T) {
	for name, test := range map[string]struct {
		settings egress.Settings
		url      string
		want     string
	}{
		"a scheme":                     {egress.Settings{}, "ftp://pay.example/", "the destination must begin with https://"},
		"http":                         {egress.Settings{}, "http://pay.example/", "the destination must begin with https://"},
		"a scheme in development mode": {egress.Settings{Dev: true}, "ftp://pay.example/", "the destination must begin with https:// or http://"},
		"a scheme where http is open":  {egress.Settings{AllowHTTP: true}, "pay.example", "the destination must begin with https:// or http://"},
		"a port":                       {egress.Settings{}, "https://pay.example:80/", "the destination must use port 443 or a port from 1024 to 65535"},
		"a port in development mode":   {egress.Settings{Dev: true}, "http://pay.example:81/", "the destination must use port 80, port 443 or a port from 1024 to 65535"},
	} {
		_, err := newEgress(t, test.settings).Check(test.url)
		if !errors.Is(err, egress.ErrForbidden) || fault.Of(err).Detail() != test.want {
			t.Errorf("%s: Check = %v, want %s", name, err, strconv.Quote(test.want))
		}
	}
}
