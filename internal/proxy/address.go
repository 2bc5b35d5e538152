package proxy

import (
	"net/url"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

var (
	errPath  = fault.New(fault.Invalid, "the path holds something that must be percent-encoded")
	errDots  = fault.New(fault.Invalid, "the path must not hold .. segments")
	errQuery = fault.New(fault.Invalid, "the query holds something that must be percent-encoded")
)

// queryKey is the name of the query parameter for the proxy key.
func (s *Service) queryKey() string { return strings.ToLower(s.options.HeaderPrefix) + "-proxy-key" }

// cutKeys takes the proxy keys out of the query of a call and leaves everything
// else as it was sent, with the question mark in front. A name in another case
// is no key, but is taken out all the same: it was meant as one, and no
// destination is to see it.
func (s *Service) cutKeys(in Incoming) (rest string, keys []string) {
	if in.Query == "" && in.ForceQuery {
		return "?", nil
	}
	var kept []string
	for _, pair := range strings.Split(in.Query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err != nil || !strings.EqualFold(name, s.queryKey()) {
			kept = append(kept, pair)
			continue
		}
		if value, err = url.QueryUnescape(value); err == nil && value != "" && name == s.queryKey() {
			keys = append(keys, value)
		}
	}
	if rest = strings.Join(kept, "&"); rest != "" {
		rest = "?" + rest
	}
	return rest, keys
}

// address is the URL of an outgoing request: path and query of the call behind
// those of the destination, byte for byte. The query begins with a question
// mark unless it is empty.
func address(base *url.URL, path, query string) (*url.URL, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	if strings.ContainsFunc(query, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }) {
		return nil, errQuery
	}
	u := *base
	raw := strings.TrimRight(base.EscapedPath(), "/") + path
	if raw == "" {
		raw = "/"
	}
	var err error
	if u.Path, err = url.PathUnescape(raw); err != nil {
		return nil, errPath
	}
	u.RawPath = raw
	if u.EscapedPath() != raw { // it would be written in another way than it came
		return nil, errPath
	}
	query, asked := strings.CutPrefix(query, "?")
	u.ForceQuery = u.ForceQuery || asked // for a question mark alone
	switch {
	case base.RawQuery == "":
		u.RawQuery = query
	case query != "":
		u.RawQuery += "&" + query
	}
	return &u, nil
}

// checkPath refuses what leads out of the destination's own path, in every
// spelling that some server understands: encoded dots and slashes, backslashes,
// and parameters after a segment.
func checkPath(path string) error {
	if path != "" && path[0] != '/' {
		return errPath
	}
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return errPath
	}
	for _, segment := range strings.FieldsFunc(decoded, func(r rune) bool { return r == '/' || r == '\\' }) {
		segment, _, _ = strings.Cut(segment, ";")
		if segment == ".." {
			return errDots
		}
	}
	return nil
}
