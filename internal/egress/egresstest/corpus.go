package egresstest

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Where says at what point a destination of the corpus must be stopped.
type Where int

// The points, in the order in which a destination meets them.
const (
	AtDefinition  Where = iota // when it is defined: the URL itself is refused
	AtDial                     // when it is dialled: the URL is fine, an address is not
	AfterRedirect              // when a destination answers with it as a Location: it is passed on, not followed
)

func (w Where) String() string {
	return [...]string{"at definition", "at dial", "after a redirect"}[w]
}

// Row is one destination that must not be reached.
type Row struct {
	Name    string
	URL     string
	Answers map[string][]Answer // what names resolve to, for Names.SetAll
	Where   Where
}

// Forbidden returns the corpus. Where a port is free to choose it is the given
// one, the witness's: a hole then leads to a connection that is seen.
func Forbidden(port uint16) []Row {
	c := &corpus{port: strconv.Itoa(int(port))}
	c.ranges()
	c.translated()
	c.spellings()
	c.authorities()
	c.international()
	c.names()
	c.schemes()
	c.ports()
	c.answers()
	c.redirects()
	return c.rows
}

type corpus struct {
	port string
	rows []Row
}

// define adds a URL that is refused at definition; PORT stands for the port.
func (c *corpus) define(name, url string) {
	c.rows = append(c.rows, Row{Name: name, URL: strings.ReplaceAll(url, "PORT", c.port), Where: AtDefinition})
}

// defineAll adds many in the order of their names; HOST in the form stands for
// what is given.
func (c *corpus) defineAll(prefix, form string, by map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(by)) {
		c.define(prefix+name, strings.ReplaceAll(form, "HOST", by[name]))
	}
}

// address adds an address twice: as a literal and behind a name.
func (c *corpus) address(name string, a netip.Addr) {
	c.define(name+", as a literal", "https://"+net.JoinHostPort(a.String(), "PORT")+"/")
	c.named(name+", behind a name", Answer{Addresses: []string{a.String()}})
}

// named adds a name of its own with the answers of its look-ups.
func (c *corpus) named(name string, answers ...Answer) {
	host := fmt.Sprintf("d%d.corpus.example", len(c.rows))
	c.rows = append(c.rows, Row{
		Name: name, URL: "https://" + net.JoinHostPort(host, c.port) + "/", Where: AtDial, Answers: map[string][]Answer{host: answers},
	})
}

// Ranges that no destination of a tenant may lie in: the first address, one
// inside, and the last.
var specialRanges = []struct{ name, first, inside, last string }{
	{"this network", "0.0.0.0", "0.1.2.3", "0.255.255.255"},
	{"private 10/8", "10.0.0.0", "10.20.30.40", "10.255.255.255"},
	{"shared address space", "100.64.0.0", "100.100.100.200", "100.127.255.255"},
	{"loopback", "127.0.0.1", "127.0.0.2", "127.255.255.255"},
	{"link-local", "169.254.0.0", "169.254.169.254", "169.254.255.255"},
	{"link-local, container credentials", "169.254.170.1", "169.254.170.2", "169.254.170.23"},
	{"private 172.16/12", "172.16.0.0", "172.17.0.1", "172.31.255.255"},
	{"protocol assignments", "192.0.0.0", "192.0.0.192", "192.0.0.255"},
	{"documentation 1", "192.0.2.0", "192.0.2.1", "192.0.2.255"},
	{"6to4 relay anycast", "192.88.99.0", "192.88.99.1", "192.88.99.255"},
	{"private 192.168/16", "192.168.0.0", "192.168.1.1", "192.168.255.255"},
	{"benchmarking", "198.18.0.0", "198.19.0.1", "198.19.255.255"},
	{"documentation 2", "198.51.100.0", "198.51.100.7", "198.51.100.255"},
	{"documentation 3", "203.0.113.0", "203.0.113.9", "203.0.113.255"},
	{"multicast", "224.0.0.0", "239.255.255.250", "239.255.255.255"},
	{"reserved", "240.0.0.0", "250.1.2.3", "255.255.255.254"},
	{"broadcast and Azure's metadata", "255.255.255.255", "168.63.129.16", ""},
	{"unspecified and loopback v6", "::", "::1", ""},
	{"IPv4-compatible", "::2", "::127.0.0.1", "::ffff:ffff"},
	{"IPv4-translated", "::ffff:0:0:0", "::ffff:0:127.0.0.1", "::ffff:0:ffff:ffff"},
	{"NAT64", "64:ff9b::", "64:ff9b::808:808", "64:ff9b::ffff:ffff"},
	{"local NAT64", "64:ff9b:1::", "64:ff9b:1::7f00:1", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"},
	{"discard only", "100::", "100::1", "100::ffff:ffff:ffff:ffff"},
	{"dummy prefix", "100:0:0:1::", "100:0:0:1::1", "100:0:0:1:ffff:ffff:ffff:ffff"},
	{"NSAP and IPX", "200::1", "400::1", "7ff::1"},
	{"Teredo", "2001::", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff"},
	{"benchmarking v6", "2001:2::", "2001:2::1", "2001:2:0:ffff:ffff:ffff:ffff:ffff"},
	{"ORCHID", "2001:10::", "2001:1f::1", "2001:1f:ffff:ffff:ffff:ffff:ffff:ffff"},
	{"ORCHIDv2", "2001:20::", "2001:20::1", "2001:2f:ffff:ffff:ffff:ffff:ffff:ffff"},
	{"documentation v6", "2001:db8::", "2001:db8::1", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"},
	{"6to4", "2002::", "2002:7f00:1::1", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
	{"documentation v6 of 2024", "3fff::", "3fff::1", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"},
	{"unassigned above 2000::/3", "4000::1", "5000::1", "e000::1"},
	{"segment routing", "5f00::", "5f00::1", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
	{"unique local", "fc00::", "fd00:ec2::254", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
	{"unique local, metadata of others", "fd20:ce::254", "fd00:42::42", "fd00:c1::a9fe:a9fe"},
	{"link-local v6", "fe80::", "fe80::1", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
	{"site-local", "fec0::", "fec0::1", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
	{"multicast v6", "ff00::", "ff02::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
}

func (c *corpus) ranges() {
	for _, r := range specialRanges {
		for _, text := range []string{r.first, r.inside, r.last} {
			if text != "" {
				c.address(r.name+" "+text, netip.MustParseAddr(text))
			}
		}
	}
}

// translated adds the IPv6 addresses that some machine on the way turns into
// an inner IPv4 one.
func (c *corpus) translated() {
	forms := []struct {
		name   string
		prefix string
	}{
		{"mapped", "::ffff:0:0"},
		{"translated by SIIT", "::ffff:0:0:0"},
		{"compatible", "::"},
		{"behind NAT64", "64:ff9b::"},
		{"behind a local NAT64", "64:ff9b:1::"},
		{"in an ISATAP tunnel", "3000::5efe:0:0"},
		{"in an ISATAP tunnel with the universal bit", "3000::200:5efe:0:0"},
	}
	for _, text := range []string{"127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "172.16.5.4", "100.64.0.1", "0.0.0.0"} {
		v4 := netip.MustParseAddr(text).As4()
		for _, f := range forms {
			b := netip.MustParseAddr(f.prefix).As16()
			copy(b[12:], v4[:])
			c.address(text+" "+f.name, netip.AddrFrom16(b))
		}
		sixToFour := netip.MustParseAddr("2002::1").As16()
		copy(sixToFour[2:], v4[:])
		c.address(text+" in 6to4", netip.AddrFrom16(sixToFour))
		teredo := netip.MustParseAddr("2001:0:4136:e378:8000:63bf::").As16()
		for i, b := range v4 {
			teredo[12+i] = ^b
		}
		c.address(text+" in Teredo", netip.AddrFrom16(teredo))
	}
}

// answers adds names that behave badly. Each has an inner address somewhere.
func (c *corpus) answers() {
	to := func(list ...string) Answer { return Answer{Addresses: list} }
	// Public to the rules, and so far given to nobody: a hole sends nothing to strangers.
	const public = "3000::1"
	c.named("a public address and loopback", to(public, "127.0.0.1"))
	c.named("loopback and a public address", to("127.0.0.1", public))
	c.named("a public address and loopback v6", to(public, "::1"))
	c.named("a public address and a mapped one", to(public, "::ffff:127.0.0.1"))
	c.named("many public addresses and metadata at the end", to("3000::1", "3000::2", "3000::3", "3000::4", "3000::5", "3000::6", "3000::7", "3000::8", "3000::9", "169.254.169.254"))
	c.named("a public address and a private one", to(public, "10.0.0.1"))
	c.named("a public address and this network", to(public, "0.0.0.0"))
	c.named("a public address and NAT64", to(public, "64:ff9b::7f00:1"))
	c.named("a public address and Azure's metadata", to(public, "168.63.129.16"))
	c.named("private first, then loopback", to("10.0.0.1"), to("127.0.0.1"))
	c.named("loopback first, then public", to("127.0.0.1"), to(public))
	c.named("both first, then loopback", to(public, "127.0.0.1"), to("127.0.0.1"))
	for hops := 1; hops <= 8; hops++ {
		c.named(fmt.Sprintf("a chain of %d aliases to loopback", hops))
		row := &c.rows[len(c.rows)-1]
		var first string
		for host := range row.Answers {
			first = host
		}
		next := func(i int) string { return fmt.Sprintf("hop%d.%s", i, first) }
		row.Answers = map[string][]Answer{first: {{Alias: next(1)}}, next(hops): {to("127.0.0.1")}}
		for i := 1; i < hops; i++ {
			row.Answers[next(i)] = []Answer{{Alias: next(i + 1)}}
		}
	}
	for _, alias := range []string{"metadata.google.internal", "inner.corpus.local", "kubernetes.default.svc"} {
		c.named("an alias to " + alias)
		row := &c.rows[len(c.rows)-1]
		for host := range row.Answers {
			row.Answers = map[string][]Answer{host: {{Alias: alias}}, alias: {to("169.254.169.254")}}
		}
	}
}

func (c *corpus) redirects() {
	for _, url := range []string{
		"https://127.0.0.1:PORT/", "http://127.0.0.1:PORT/", "https://localhost:PORT/", "http://[::1]:PORT/", "//127.0.0.1:PORT/",
		"http://169.254.169.254/latest/meta-data/", "http://2130706433:PORT/", "file:///etc/passwd", "gopher://127.0.0.1:PORT/_x",
	} {
		url = strings.ReplaceAll(url, "PORT", c.port)
		c.rows = append(c.rows, Row{Name: fmt.Sprintf("redirect %d", len(c.rows)), URL: url, Where: AfterRedirect})
	}
}
