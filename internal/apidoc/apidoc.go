// Package apidoc serves the description of the API, and a page on which it is
// read and tried.
//
// It promises that the description names the headers as this server does, and
// that the page loads nothing from any other origin and reaches none. It takes
// no key, it shows nothing of any tenant, and what people enter on the page
// never passes through it.
package apidoc

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// page holds the page and the reference UI that it is made with. A test holds
// the folder swagger-ui against the npm package that it comes from.
//
//go:embed page
var page embed.FS

// files are what the page loads, and the licences of what it loads, by the
// name under /docs/.
var files = map[string]func() (*file, error){
	"page.js":                          embedded("page/page.js", "text/javascript; charset=utf-8"),
	"page.css":                         embedded("page/page.css", "text/css; charset=utf-8"),
	"swagger-ui-bundle.js":             embedded("page/swagger-ui/swagger-ui-bundle.js", "text/javascript; charset=utf-8"),
	"swagger-ui.css":                   embedded("page/swagger-ui/swagger-ui.css", "text/css; charset=utf-8"),
	"swagger-ui.LICENSE":               embedded("page/swagger-ui/LICENSE", "text/plain; charset=utf-8"),
	"swagger-ui.NOTICE":                embedded("page/swagger-ui/NOTICE", "text/plain; charset=utf-8"),
	"swagger-ui-bundle.js.LICENSE.txt": embedded("page/swagger-ui/swagger-ui-bundle.js.LICENSE.txt", "text/plain; charset=utf-8"),
}

var errNoFile = fault.New(fault.NotFound, "no such file")

// Options say what is served.
type Options struct {
	HeaderPrefix string
	Release      string
	Page         bool // whether there is a page, beside the description
}

// Routes returns the rows. Nothing is made before somebody asks for it.
func Routes(o Options) []httpapi.Route {
	asYAML := func() ([]byte, error) { return Describe(o.HeaderPrefix, o.Release), nil }
	asJSON := func() ([]byte, error) { return toJSON(Describe(o.HeaderPrefix, o.Release)) }
	rows := []httpapi.Route{
		{Pattern: "GET /openapi.json", Auth: httpapi.Anonymous, Handle: serve(made("application/json", asJSON))},
		{Pattern: "GET /openapi.yaml", Auth: httpapi.Anonymous, Handle: serve(made("application/yaml", asYAML))},
	}
	if o.Page {
		rows = append(rows,
			httpapi.Route{Pattern: "GET /docs", Auth: httpapi.Anonymous, Handle: servePage},
			httpapi.Route{Pattern: "GET /docs/{file}", Auth: httpapi.Anonymous, Handle: serveFile},
		)
	}
	return rows
}

// policy is what the page may do. Its two scripts are named by a nonce of each
// answer: 'self' would also let in whatever a destination of a proxy answers,
// which comes from this origin, too.
const policy = "default-src 'none'; script-src 'nonce-%s'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

func servePage(w http.ResponseWriter, _ *http.Request, _ access.Caller) error {
	text, err := page.ReadFile("page/index.html")
	if err != nil {
		return fmt.Errorf("apidoc: %w", err)
	}
	nonce := rand.Text()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", fmt.Sprintf(policy, nonce))
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(bytes.ReplaceAll(text, []byte("{nonce}"), []byte(nonce))) // fails only when the client has gone
	return nil
}

func serveFile(w http.ResponseWriter, r *http.Request, c access.Caller) error {
	get := files[r.PathValue("file")]
	if get == nil {
		return errNoFile
	}
	return serve(get)(w, r, c)
}

// file is a body that does not change while the server runs.
type file struct {
	media, tag   string
	body, zipped []byte
}

func embedded(name, media string) func() (*file, error) {
	return made(media, func() ([]byte, error) { return page.ReadFile(name) })
}

// made returns a maker that makes the file once.
func made(media string, body func() ([]byte, error)) func() (*file, error) {
	return sync.OnceValues(func() (*file, error) {
		b, err := body()
		if err != nil {
			return nil, err
		}
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		if _, err := z.Write(b); err != nil {
			return nil, fmt.Errorf("apidoc: compress: %w", err)
		}
		if err := z.Close(); err != nil {
			return nil, fmt.Errorf("apidoc: compress: %w", err)
		}
		sum := sha256.Sum256(b)
		return &file{media: media, tag: base64.RawURLEncoding.EncodeToString(sum[:18]), body: b, zipped: zipped.Bytes()}, nil
	})
}

func serve(get func() (*file, error)) func(http.ResponseWriter, *http.Request, access.Caller) error {
	return func(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
		f, err := get()
		if err != nil {
			return err
		}
		body, tag := f.body, `"`+f.tag+`"`
		h := w.Header()
		if httpapi.TakesGzip(r) {
			body, tag = f.zipped, `"`+f.tag+`-z"`
			h.Set("Content-Encoding", "gzip")
		}
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", tag)
		h.Add("Vary", "Accept-Encoding")
		if known := strings.Join(r.Header.Values("If-None-Match"), ","); known == "*" || strings.Contains(known, tag) {
			h.Del("Content-Encoding")
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
		h.Set("Content-Type", f.media)
		h.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) // fails only when the client has gone
		return nil
	}
}
