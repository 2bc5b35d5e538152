package httpapi

import (
	"net/http"
	"strconv"
	"strings"
)

// ours are the headers that nobody else sets on an answer of this origin: they
// frame the message, steer the browser's guards, touch its cookies, or hold for
// the whole origin and so for other tenants.
var ours = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Proxy-Authenticate": true, "Proxy-Authorization": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Content-Length": true, "Date": true,
	"Set-Cookie": true, "Set-Cookie2": true, "Clear-Site-Data": true, "Strict-Transport-Security": true, "Alt-Svc": true,
	"Content-Security-Policy": true, "Content-Security-Policy-Report-Only": true, "X-Content-Type-Options": true,
	"Nel": true, "Report-To": true, "Reporting-Endpoints": true, "Accept-Ch": true, "Critical-Ch": true, "Expect-Ct": true,
	"Public-Key-Pins": true, "Service-Worker-Allowed": true, "Sourcemap": true, "Origin-Agent-Cluster": true,
}

// IsForeign reports whether a tenant's code or a destination may set a header
// on an answer of this service; prefix is that of the service's own headers.
func IsForeign(prefix, name string) bool {
	name = http.CanonicalHeaderKey(name)
	return !ours[name] && !strings.HasPrefix(name, "Access-Control-") &&
		!strings.HasPrefix(strings.ToUpper(name), strings.ToUpper(prefix)+"-")
}

// GuardForeign sets the headers that keep a page which a tenant or a
// destination shaped from acting in the name of this origin.
func GuardForeign(h http.Header) {
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
}

// writeForeign answers with what a tenant's code chose, as far as it may. Code
// that passes on the headers of another server has decoded its body by then.
func writeForeign(w http.ResponseWriter, status int, headers map[string]string, body []byte) {
	prefix := prefixOf(w)
	h := w.Header()
	for name, value := range headers {
		if IsForeign(prefix, name) && isToken(name) && !strings.EqualFold(name, "Content-Encoding") && !strings.ContainsFunc(value, isControl) {
			h.Set(name, value)
		}
	}
	GuardForeign(h)
	if status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only when the client has gone
}

// isToken reports whether a text can be the name of a header.
func isToken(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
