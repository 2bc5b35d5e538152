// Package console serves the console: the page with which people look after a
// vault, and the files that it loads.
//
// It promises that the page runs only scripts and styles that the server named
// in the same response, that it connects to this server only, and that no other
// page can embed it. It takes no key and never reads anything of a tenant: the
// page calls the routes of the API as the person who signed in.
package console

import (
	"bytes"
	"crypto/rand"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

var (
	errNoFile = fault.New(fault.NotFound, "unknown file of the console")
	errNoRoot = fault.New(fault.NotFound, "no such resource")
)

const (
	notBuilt = "The console is not part of this binary. Build it with 'make build', which needs npm, instead of 'go build'."
	leftOut  = "The console is not part of this binary: it was built with the tag noconsole."
)

// Built reports whether the binary has the console.
func Built() bool {
	_, err := fs.Stat(dist, "dist/index.html")
	return err == nil
}

// Routes returns the rows. elements is the origin of the card fields where they
// have a host name apart from that of the API, and "" otherwise.
func Routes(elements string) []httpapi.Route {
	s := &service{elements: elements}
	return []httpapi.Route{
		{Pattern: "GET /", Auth: httpapi.Anonymous, Readers: httpapi.NoPage, Handle: serveRoot},
		{Pattern: "GET /console/{rest...}", Auth: httpapi.Anonymous, Readers: httpapi.NoPage, Handle: s.serve},
	}
}

// service serves the console. Files are compressed when they are first asked for.
type service struct {
	elements string
	files    sync.Map // of httpapi.Static, by name
}

// takesHTML reports whether a request comes from a browser that shows a document.
func takesHTML(r *http.Request) bool {
	return strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/html")
}

const root = `<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/console/"><title>Tokenkeep</title>` +
	`<p>This is a Tokenkeep server. <a href="/console/">Open the console</a>, or read <a href="/docs">the reference of the API</a>.</p></html>
`

// serveRoot leads browsers to the console. For programs there is nothing.
func serveRoot(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	if !takesHTML(r) {
		return errNoRoot
	}
	setHeaders(w.Header(), policy("", ""))
	w.Header().Add("Vary", "Accept")
	_, _ = w.Write([]byte(root)) // fails only when the client has gone
	return nil
}

// serve serves the page for every path of the console that names no file: the
// page reads the path itself.
func (s *service) serve(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	name := strings.TrimPrefix(r.PathValue("rest"), "/")
	if !Built() {
		return explain(w)
	}
	if strings.HasPrefix(name, "assets/") {
		return s.serveFile(w, r, name)
	}
	return s.servePage(w, r)
}

// explain responds with a page for developers.
func explain(w http.ResponseWriter) error {
	text := notBuilt
	if !embedded {
		text = leftOut
	}
	setHeaders(w.Header(), policy("", ""))
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(`<!doctype html><html lang="en"><meta charset="utf-8"><title>Tokenkeep</title><h1>No console</h1><p>` + text + "</p></html>\n"))
	return nil
}

// serveFile serves a file whose name has the hash of its content.
func (s *service) serveFile(w http.ResponseWriter, r *http.Request, name string) error {
	content, err := s.file(name)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", mediaType(name))
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	content.Write(w, r)
	return nil
}

func (s *service) file(name string) (httpapi.Static, error) {
	if known, ok := s.files.Load(name); ok {
		return known.(httpapi.Static), nil //nolint:forcetypeassert // only this function stores
	}
	if name != path.Clean(name) {
		return httpapi.Static{}, errNoFile
	}
	plain, err := fs.ReadFile(dist, "dist/"+name)
	if err != nil {
		return httpapi.Static{}, errNoFile
	}
	content, err := httpapi.NewStatic(plain)
	if err == nil {
		s.files.Store(name, content)
	}
	return content, err
}

// mediaTypes are those of the files that the build makes. The table of the
// standard library depends on the machine.
var mediaTypes = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".woff2": "font/woff2", ".txt": "text/plain; charset=utf-8",
}

func mediaType(name string) string {
	if t := mediaTypes[path.Ext(name)]; t != "" {
		return t
	}
	return "application/octet-stream"
}

// nonceMark is what the build leaves in the page for the nonce of each response.
const nonceMark = "__NONCE__"

func (s *service) servePage(w http.ResponseWriter, r *http.Request) error {
	text, err := fs.ReadFile(dist, "dist/index.html")
	if err != nil {
		return errNoFile
	}
	nonce := rand.Text()
	content, err := httpapi.NewStatic(bytes.ReplaceAll(text, []byte(nonceMark), []byte(nonce)))
	if err != nil {
		return err
	}
	setHeaders(w.Header(), policy(nonce, s.elements))
	content.Write(w, r)
	return nil
}

// policy is what the page may do. Scripts and styles are named by a nonce of
// the response: 'self' would also allow what a destination of a proxy returns,
// which comes from this origin, too. Frames are those of the card fields.
func policy(nonce, elements string) string {
	if nonce == "" {
		return "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	}
	frames := "'self'"
	if elements != "" {
		frames = elements
	}
	return "default-src 'none'; script-src 'nonce-" + nonce + "'; style-src 'nonce-" + nonce + "'; font-src 'self'; img-src 'self'; connect-src 'self'; " +
		"frame-src " + frames + "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// setHeaders sets the headers of a document. Cache-Control is no-store by default.
func setHeaders(h http.Header, policy string) {
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Robots-Tag", "noindex")
}
