package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/api"
)

// cors says which web pages may call, and which headers they may send and
// read. Credentials of browsers are never allowed: a key is always explicit.
type cors struct {
	origins []string // nil: all
	allow   string
	expose  string
}

const corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

func newCORS(prefix string, origins []string) cors {
	var names []string
	for _, n := range api.HeaderNames {
		names = append(names, api.Header(prefix, n))
	}
	ours := strings.Join(names, ", ")
	if slices.Contains(origins, "*") {
		origins = nil
	}
	return cors{
		origins: slices.Clone(origins),
		// Proxies forward any header. The star does not cover Authorization,
		// and old browsers do not know it.
		allow:  "*, Authorization, Content-Type, " + ours,
		expose: "Location, Retry-After, RateLimit, RateLimit-Policy, " + ours,
	}
}

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

// stamp sets the headers of an answer and removes those that a proxied
// destination may have left there. What the browser asked for in a preflight
// is not looked at, so it is not repeated.
func (c cors) stamp(header http.Header, origin string, preflight bool) {
	for name := range header {
		if strings.HasPrefix(name, "Access-Control-") {
			delete(header, name)
		}
	}
	allowed := "*"
	if len(c.origins) > 0 {
		header.Add("Vary", "Origin")
		i := slices.Index(c.origins, origin)
		if i < 0 {
			return
		}
		allowed = c.origins[i]
	}
	header.Set("Access-Control-Allow-Origin", allowed)
	header.Set("Access-Control-Expose-Headers", c.expose)
	if preflight {
		header.Set("Access-Control-Allow-Methods", corsMethods)
		header.Set("Access-Control-Allow-Headers", c.allow)
		header.Set("Access-Control-Max-Age", "7200")
	}
}
