package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tokenkeep/tokenkeep/api"
)

// ProxyCall is a request to send through a proxy. Expressions such as
// "{{ id }}" in its body are replaced by the values of tokens on the way.
type ProxyCall struct {
	Method string // default POST with a body, else GET
	Path   string // what follows the destination's own path, from its slash on; escaped
	Query  string // without its question mark; escaped
	Header http.Header
	Body   []byte
	// URL is a destination for this call alone, where there is no proxy and so
	// no key of one. It takes the key of a private application.
	URL string
}

// ProxyAnswer is what came back through a proxy, whatever its status.
type ProxyAnswer struct {
	Status int
	// DestinationStatus is what the destination answered with; 0 when the
	// answer is that of the proxy's own code, or of something on the way.
	DestinationStatus int
	Header            http.Header
	Body              []byte
}

var (
	errProxyKey  = fmt.Errorf("client: the proxy's key must be of visible ASCII characters, without spaces: %w", ErrInvalid)
	errProxyCall = fmt.Errorf("client: the method, the path or the query of the call is not valid: %w", ErrInvalid)
)

// Invoke sends a request through the proxy of a key, once: only the caller knows
// whether it may be sent again. (A GET without a body is repeated by net/http
// when a kept connection breaks.) A body without a Content-Type goes out as JSON.
// It takes token:use, unless the proxy asks for no API key; the key is "" when
// the call has a URL.
//
// What the destination answers is an answer, a 404 of it too. An error that the
// proxy itself made is an *Error. Answers are read whole: for streams, call
// /proxy with an HTTP client of your own.
func (p Proxies) Invoke(ctx context.Context, key string, in ProxyCall) (ProxyAnswer, error) {
	method := http.MethodGet
	if in.Method != "" {
		method = in.Method
	} else if in.Body != nil {
		method = http.MethodPost
	}
	r := row{method: "ANY", path: "/proxy"} // as errors name it
	if in.Path != "" && in.Path[0] != '/' || strings.ContainsAny(in.Path, "?#") || strings.Contains(in.Query, "#") || leavesProxy(in.Path) {
		return ProxyAnswer{}, errProxyCall
	}
	address := p.caller.base + "/proxy" + in.Path
	if in.Query != "" {
		address += "?" + in.Query
	}
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(in.Body))
	if err != nil {
		return ProxyAnswer{}, errProxyCall // the library's words quote the address
	}
	req.GetBody = nil // or net/http would send it again by itself when there is an Idempotency-Key
	for name, values := range in.Header {
		req.Header[http.CanonicalHeaderKey(name)] = append([]string(nil), values...)
	}
	if in.Body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", api.MediaJSON)
	}
	name := func(header string) string { return api.Header(p.caller.prefix, header) }
	if key != "" {
		if !isVisible(key) {
			return ProxyAnswer{}, errProxyKey
		}
		req.Header.Set(name(api.ProxyKey), key)
	} else if in.URL != "" {
		req.Header.Set(name(api.ProxyURL), in.URL)
	}
	if p.caller.key != nil {
		req.Header.Set(name(api.APIKey), p.caller.key())
	}
	got, err := p.caller.send(r, req)
	if err != nil {
		return ProxyAnswer{}, err
	}
	destination, _ := strconv.Atoi(got.header.Get(name(api.ProxyDestinationStatus)))
	var own struct {
		Problem json.RawMessage `json:"proxy_error"`
	}
	if destination == 0 && got.status >= 400 && json.Unmarshal(got.text, &own) == nil && own.Problem != nil {
		got.text = own.Problem
		return ProxyAnswer{}, p.caller.refused(r, got)
	}
	return ProxyAnswer{Status: got.status, DestinationStatus: destination, Header: got.header, Body: got.text}, nil
}

// leavesProxy reports whether a server on the way could take a path for one
// outside of /proxy, which would turn the call into another one.
func leavesProxy(path string) bool {
	for segment := range strings.SplitSeq(strings.ReplaceAll(strings.ToLower(path), "%2e", "."), "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}
