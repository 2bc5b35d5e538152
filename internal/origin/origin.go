// Package origin checks web origins: the scheme, host and port of a page.
//
// It promises that an origin which it accepts is spelled exactly as browsers
// spell it, so that origins can be compared as texts, and that it is a source expression of a
// Content-Security-Policy that names this one origin: it has no wildcard and
// no character that ends a source, a directive or a header. The package never
// resolves a name.
package origin

import (
	"net/netip"
	"strconv"
	"strings"
)

// Must says what an origin looks like, for the messages of those that refuse one.
const Must = "must be an origin as browsers send it: https://host or https://host:port in lower case, without a path or wildcard; http:// only on localhost or 127.0.0.1"

const (
	maxHost  = 253
	maxLabel = 63
)

// Valid reports whether s is an origin with https, or with http on loopback.
// IPv6 addresses are refused: a Content-Security-Policy cannot name them.
func Valid(s string) bool {
	if rest, ok := strings.CutPrefix(s, "https://"); ok {
		_, ok := hostOf(rest, "443")
		return ok
	}
	rest, ok := strings.CutPrefix(s, "http://")
	if !ok {
		return false
	}
	host, ok := hostOf(rest, "80")
	return ok && isLoopback(host)
}

// hostOf returns the host of host or host:port. The default port of the scheme
// is refused, because browsers leave it out.
func hostOf(s, defaultPort string) (host string, ok bool) {
	host, port, hasPort := strings.Cut(s, ":")
	if hasPort && (port == defaultPort || !isPort(port)) {
		return "", false
	}
	return host, isHost(host)
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

// isHost reports whether s is a name or an IPv4 address in the form that
// browsers give it. They read every host with a last label that is a number as
// an address.
func isHost(s string) bool {
	if s == "" || len(s) > maxHost {
		return false
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if !isLabel(l) {
			return false
		}
	}
	if last := labels[len(labels)-1]; isNumber(last) {
		a, err := netip.ParseAddr(s)
		return err == nil && a.Is4()
	}
	return true
}

func isLabel(s string) bool {
	if s == "" || len(s) > maxLabel || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// isNumber reports whether browsers read a label as a number: digits, or 0x
// with hexadecimal digits or nothing after it.
func isNumber(label string) bool {
	digits, isHex := strings.CutPrefix(label, "0x")
	allowed := "0123456789"
	if isHex {
		allowed += "abcdef"
	}
	return strings.Trim(digits, allowed) == ""
}

func isLoopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}
