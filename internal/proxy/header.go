package proxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

var (
	errConnection  = fault.New(fault.Invalid, "the connection header for the destination must be keep-alive or close")
	errContentType = fault.New(fault.Invalid, "more than one content type was sent")
)

// framing are the headers that belong to one connection or frame one message:
// each side of a proxy writes its own.
var framing = map[string]bool{
	"connection": true, "keep-alive": true, "proxy-connection": true, "proxy-authenticate": true, "proxy-authorization": true,
	"te": true, "trailer": true, "transfer-encoding": true, "upgrade": true, "content-length": true, "host": true, "expect": true,
	"http2-settings": true,
}

// plainName is how servers that turn headers into variables read a name:
// x_a, X-A and x-a are one.
func plainName(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// passable reports whether a header may pass, in either direction. What is
// ours or frames a message does not, nor does what a careless server would take
// for it because of an underscore.
func (s *Service) passable(name string) bool {
	plain := plainName(name)
	return isName(name) && !framing[plain] && !strings.HasPrefix(plain, strings.ToLower(s.options.HeaderPrefix)+"-")
}

// isName reports whether a header name is of letters, digits, - and _ alone.
func isName(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

// named lists the headers that a Connection header keeps to one connection.
func named(h http.Header) map[string]bool {
	list := make(map[string]bool)
	for _, value := range h.Values("Connection") {
		for name := range strings.SplitSeq(value, ",") {
			list[plainName(strings.TrimSpace(name))] = true
		}
	}
	return list
}

// pass copies the headers of a message that may go on.
func (s *Service) pass(from http.Header) http.Header {
	to := make(http.Header, len(from))
	local := named(from)
	for name, values := range from {
		if s.passable(name) && !local[plainName(name)] {
			to[name] = slices.Clone(values)
		}
	}
	return to
}

// forwarded are the headers of a call that its destination gets, before any
// transform.
func (s *Service) forwarded(in Incoming) http.Header {
	h := s.pass(in.Header)
	for name := range h {
		if plain := plainName(name); plain == "forwarded" || strings.HasPrefix(plain, "x-forwarded-") {
			delete(h, name)
		}
	}
	withoutOurCookies(h)
	return h
}

// withoutOurCookies takes the cookies of this service out: they are for it.
func withoutOurCookies(h http.Header) {
	for i, line := range h["Cookie"] {
		var kept []string
		for pair := range strings.SplitSeq(line, ";") {
			name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(pair)), "=")
			name = strings.TrimPrefix(strings.TrimPrefix(name, "__host-"), "__secure-")
			if !strings.HasPrefix(name, "tokenkeep") {
				kept = append(kept, pair)
			}
		}
		h["Cookie"][i] = strings.TrimSpace(strings.Join(kept, ";"))
	}
	if h["Cookie"] = slices.DeleteFunc(h["Cookie"], func(line string) bool { return line == "" }); len(h["Cookie"]) == 0 {
		delete(h, "Cookie")
	}
}

// finish gives an outgoing request the headers that are the service's to set.
// Of names that differ by - and _ alone, the one with dashes stays: a caller
// could otherwise shadow a header that a transform has set. Where there is
// none, nobody can say which was meant, and none stays.
func (s *Service) finish(h http.Header, in Incoming) error {
	spellings := make(map[string]int)
	for name := range h {
		spellings[plainName(name)]++
	}
	for name := range h {
		if spellings[plainName(name)] > 1 && strings.Contains(name, "_") {
			delete(h, name)
		}
	}
	h.Set(s.header(api.TraceID), in.Origin.TraceID)
	switch value := strings.ToLower(in.Header.Get(s.header(api.ProxyConnection))); value {
	case "":
	case "keep-alive", "close":
		h.Set("Connection", value)
	default:
		return errConnection
	}
	if value := in.Header.Get(s.header(api.ProxyKeepAlive)); value != "" {
		h.Set("Keep-Alive", value)
	}
	if len(h.Values("User-Agent")) == 0 {
		h.Set("User-Agent", "") // or the standard library would speak for the caller
	}
	return nil
}

// isValue reports whether a text can be the value of a header.
func isValue(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
