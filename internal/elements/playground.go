package elements

import (
	"embed"
	"fmt"
	"html"
	"net/http"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// playground holds the page on which developers try the fields. Its script and
// its style are files of their own.
//
//go:embed playground
var playground embed.FS

// playgroundFiles are what the page loads, by the name under /elements/v1/.
var playgroundFiles = map[string]string{
	"playground.js":  "text/javascript; charset=utf-8",
	"playground.css": "text/css; charset=utf-8",
}

// playgroundRoute is the row of the page. Only development mode has it.
func (s *service) playgroundRoute() httpapi.Route {
	return httpapi.Route{Pattern: "GET /elements", Auth: httpapi.Anonymous, Readers: httpapi.NoPage, Handle: s.servePlayground}
}

// readPlayground returns the files that the page loads.
func readPlayground() (map[string]httpapi.Static, error) {
	files := make(map[string]httpapi.Static)
	for name := range playgroundFiles {
		text, err := playground.ReadFile("playground/" + name)
		if err != nil {
			return nil, fmt.Errorf("elements: %w", err)
		}
		if files[name], err = httpapi.NewStatic(text); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// servePlayground serves the page. It has the origin of the vault, so it loads
// three files and the fields, calls nothing, and no page can embed it.
func (s *service) servePlayground(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	if s.built == nil {
		return refuse(w, http.StatusServiceUnavailable, notBuilt)
	}
	text, err := playground.ReadFile("playground/index.html")
	if err != nil {
		return fmt.Errorf("elements: %w", err)
	}
	key := ""
	if s.options.DemoKey != nil {
		key = s.options.DemoKey()
	}
	vault := s.url(r)
	page := strings.NewReplacer("{{key}}", html.EscapeString(key), "{{vault}}", html.EscapeString(vault),
		"{{file}}", s.built.name, "{{integrity}}", s.built.hash).Replace(string(text))
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	// Each file is named: 'self' would also let in what a destination of a proxy responds with.
	h.Set("Content-Security-Policy", strings.Join([]string{
		"default-src 'none'", "script-src " + vault + "/elements/v1/" + s.built.name + " " + vault + "/elements/v1/playground.js",
		"style-src " + vault + "/elements/v1/playground.css", "img-src data:", "frame-src " + vault + "/elements/v1/",
		"form-action 'none'", "base-uri 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
	}, "; "))
	h.Set("Permissions-Policy", strings.ReplaceAll(permissions, "{clipboard}", "(self)"))
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex")
	h.Set("Cache-Control", "no-store")
	content, err := httpapi.NewStatic([]byte(page))
	if err != nil {
		return err
	}
	content.Write(w, r)
	return nil
}
