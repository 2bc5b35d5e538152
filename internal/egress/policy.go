package egress

import (
	"errors"
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

// policy is what the settings open, in a form that is quick to ask.
type policy struct {
	http     bool
	hosts    map[string]bool
	suffixes []string // ".name", for the hosts given as *.name
	networks []netip.Prefix
	ports    map[uint16]bool
}

func newPolicy(s Settings) (policy, error) {
	p := policy{
		http:  s.AllowHTTP || s.Dev,
		hosts: make(map[string]bool),
		ports: map[uint16]bool{443: true},
	}
	if p.http {
		p.ports[80] = true
	}
	for _, port := range s.AllowPorts {
		if port == 0 {
			return policy{}, errors.New("egress: an allowed port must be from 1 to 65535")
		}
		p.ports[port] = true
	}
	for _, h := range s.AllowHosts {
		name, isSuffix := strings.CutPrefix(h, "*.")
		name, err := normalName(name)
		switch {
		case err != nil:
			return policy{}, errors.New("egress: an allowed host must be a DNS name, or *. and a DNS name")
		case isSuffix:
			p.suffixes = append(p.suffixes, "."+name)
		default:
			p.hosts[name] = true
		}
	}
	for _, n := range s.AllowNetworks {
		if !n.IsValid() || n.Bits() == 0 || n.Addr().Is4In6() {
			return policy{}, errors.New("egress: an allowed network must be an IPv4 or IPv6 network, and not all of either")
		}
		p.networks = append(p.networks, n.Masked())
	}
	if s.Dev {
		p.networks = append(p.networks, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
		p.hosts["localhost"] = true
	}
	return p, nil
}

func (p *policy) port(port uint16) bool { return port >= 1024 || p.ports[port] }

// badScheme is the refusal of a scheme. It does not ask for https where http is
// allowed too.
func (p *policy) badScheme() error {
	if p.http {
		return errAnyScheme
	}
	return errScheme
}

// badPort is the refusal of a port.
func (p *policy) badPort() error {
	if p.http {
		return errAnyPort
	}
	return errPort
}

// isNamed tells whether the operator opened a name.
func (p *policy) isNamed(name string) bool {
	if p.hosts[name] {
		return true
	}
	for _, s := range p.suffixes {
		if strings.HasSuffix(name, s) {
			return true
		}
	}
	return false
}

// metadataNames lead to metadata addresses from inside a cloud.
var metadataNames = map[string]bool{
	"metadata": true, "instance-data": true, "instance-data.ec2.internal": true, "metadata.google.internal": true, "metadata.goog": true,
	"metadata.azure.internal": true, "metadata.tencentyun.com": true, "metadata.platformequinix.com": true, "metadata.packet.net": true,
	"metadata.internal": true, "kubernetes.default.svc": true,
}

// innerSuffixes end names that have no meaning outside one network. The check
// of addresses is the wall; this one tells a tenant early.
var innerSuffixes = []string{
	".localhost", ".localdomain", ".local", ".internal", ".intranet", ".private", ".corp", ".home", ".lan", ".home.arpa", ".svc",
}

// host judges the host of a URL or of a dial, without its brackets, and gives
// its normal form. What it lets through is a lower-case ASCII name that no
// resolver takes for an address, or an address inside an open network.
func (p *policy) host(host string, bracketed bool) (string, error) {
	if a, err := netip.ParseAddr(host); err == nil && bracketed == a.Is6() {
		switch {
		case isIn(a, metadata):
			return "", errMetadata
		case !p.isOpen(a) || p.address(a, false) != nil:
			return "", errLiteral
		}
		return a.String(), nil
	}
	if bracketed {
		return "", errLiteral
	}
	name, err := normalName(host)
	if err != nil {
		return "", err
	}
	switch {
	case metadataNames[name]:
		return "", errInnerName
	case p.isNamed(name):
		return name, nil
	case !strings.Contains(name, "."):
		return "", errInnerName
	}
	for _, s := range innerSuffixes {
		if strings.HasSuffix(name, s) {
			return "", errInnerName
		}
	}
	return name, nil
}

// normalName maps an international name to its ASCII form and refuses what is
// not letters, digits and dashes in labels of 1 to 63, or could be read as an
// IPv4 address in one of its old spellings.
func normalName(name string) (string, error) {
	if !isASCII(name) || hasALabel(name) {
		mapped, err := idna.Lookup.ToASCII(name)
		if err != nil {
			return "", errName
		}
		name = mapped
	}
	name = strings.ToLower(name)
	if len(name) == 0 || len(name) > 253 {
		return "", errName
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label) {
			return "", errName
		}
		last = label
	}
	if isNumber(last) {
		return "", errLiteral
	}
	return name, nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func hasALabel(name string) bool {
	for label := range strings.SplitSeq(name, ".") {
		if len(label) >= 4 && strings.EqualFold(label[:4], "xn--") {
			return true
		}
	}
	return false
}

func isLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// isNumber tells a last label that makes browsers and C libraries read the
// whole name as an IPv4 address: 2130706433, 0x7f000001, 127.1, 0177.0.0.1.
// No top-level domain looks like that.
func isNumber(label string) bool {
	digits, isHex := strings.CutPrefix(label, "0x")
	for i := range len(digits) {
		c := digits[i]
		if (c < '0' || c > '9') && (!isHex || c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
