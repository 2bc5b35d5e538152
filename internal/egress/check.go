package egress

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxURL is the longest URL of a definition, in characters.
const maxURL = 400

// Check judges a destination_url or callback_url when it is defined, and gives
// its normal form: lower-case scheme, ASCII host, no default port. It looks
// nothing up, since what a name means may change until it is dialled. Errors
// are faults of kind Invalid that never repeat the URL.
func (e *Egress) Check(raw string) (*url.URL, error) {
	u, err := e.policy.url(raw)
	if err != nil {
		return nil, e.refused(err)
	}
	return u, nil
}

func (p *policy) url(raw string) (*url.URL, error) {
	if utf8.RuneCountInString(raw) > maxURL {
		return nil, errLength
	}
	if !utf8.ValidString(raw) {
		return nil, errURL
	}
	for _, r := range raw {
		if r <= ' ' || r == 0x7f || r == '\\' {
			return nil, errURL
		}
	}
	if strings.Contains(raw, "#") {
		return nil, errFragment
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errURL
	}
	if u.Scheme != "https" && u.Scheme != "http" {
		return nil, p.badScheme()
	}
	_, rest, ok := strings.Cut(raw, "://")
	if !ok || u.Opaque != "" {
		return nil, errURL
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	switch {
	case u.User != nil || strings.Contains(rest[:end], "@"):
		return nil, errUserinfo
	case rest[:end] != u.Host: // the parser undid percent-encoding
		return nil, errName
	case !isASCII(rest[end:]):
		return nil, errURL
	}
	if err := p.destination(u); err != nil {
		return nil, err
	}
	if len(u.String()) > maxURL { // the normal form is what is kept, and it may be longer
		return nil, errLength
	}
	return u, nil
}

// destination judges scheme, host and port of a URL, at definition and again
// before every request, and leaves them in normal form.
func (p *policy) destination(u *url.URL) error {
	if u.Scheme != "https" && (u.Scheme != "http" || !p.http) {
		return p.badScheme()
	}
	if u.User != nil {
		return errUserinfo
	}
	host, port, err := splitPort(u.Host)
	if err != nil {
		return err
	}
	fallback := uint16(443)
	if u.Scheme == "http" {
		fallback = 80
	}
	if port == 0 {
		port = fallback
	}
	if !p.port(port) {
		return p.badPort()
	}
	host, isBracketed := cutBrackets(host)
	if host, err = p.host(host, isBracketed); err != nil {
		return err
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != fallback {
		host += ":" + strconv.Itoa(int(port))
	}
	u.Host = host
	return nil
}

// splitPort takes the port off a host; 0 means that there is none. A port is
// written in one way alone.
func splitPort(hostport string) (string, uint16, error) {
	i := strings.LastIndexByte(hostport, ':')
	if i < 0 || strings.HasSuffix(hostport, "]") {
		return hostport, 0, nil
	}
	port, err := strconv.ParseUint(hostport[i+1:], 10, 16)
	if err != nil || port == 0 || strconv.FormatUint(port, 10) != hostport[i+1:] {
		return "", 0, errPort
	}
	return hostport[:i], uint16(port), nil
}

func cutBrackets(host string) (string, bool) {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if inner, ok := strings.CutSuffix(inner, "]"); ok {
			return inner, true
		}
	}
	return host, false
}

// splitAddress reads what net/http makes of a checked URL.
func splitAddress(address string) (string, uint16, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, errURL
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, errPort
	}
	return host, uint16(port), nil
}
