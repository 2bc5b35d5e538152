// Package elements serves the card fields: the script that a shop's page
// loads, and the pages of the frames into which people type.
//
// It promises that a field page runs only the script and the style that are
// part of it, that it connects only to the routes that it needs, and that only
// the origins of the application can embed it. It never sees a value: the pages
// send values to the routes of the API.
package elements

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"strings"
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// dist holds what 'make build' makes from web/elements. A fresh clone has only
// a page that explains that.
//
//go:embed dist
var dist embed.FS

const notBuilt = "The card fields are not part of this binary. Build it with 'make build', which needs npm, instead of 'go build'.\n"

var errNoFile = fault.New(fault.NotFound, "unknown file; /elements/v1/integrity.json has the name of the loader")

// Origins finds the pages that may embed the fields of a public key. known is
// false for a key that is unknown, expired or not of a public application.
type Origins func(ctx context.Context, key string) (origins []string, known bool, err error)

// Options configure what is served.
type Options struct {
	HeaderPrefix string
	// URL is the origin under which browsers reach the field pages; empty for
	// the host of each request.
	URL string
	// Dev lets pages of every origin embed the fields of an application
	// without a list.
	Dev     bool
	Origins Origins
	// DemoKey returns the public key that the playground begins with; "" for
	// none. The playground is part of development mode.
	DemoKey func() string
}

// kind is one kind of field pages.
type kind struct {
	page    string   // the file of dist without .html
	connect []string // the paths that the page may call
	copies  bool     // the page may write to the clipboard
}

var kinds = map[string]kind{
	"card":   {page: "card", connect: []string{"/sessions", "/tokens"}},
	"number": {page: "card", connect: []string{"/sessions", "/tokens"}},
	"expiry": {page: "card"},
	"cvc":    {page: "card"},
	"bank":   {page: "account", connect: []string{"/sessions", "/tokens"}},
	"iban":   {page: "account", connect: []string{"/sessions", "/tokens"}},
	"text":   {page: "account", connect: []string{"/sessions", "/tokens"}},
	"reveal": {page: "reveal", connect: []string{"/sessions", "/tokens/"}, copies: true},
}

// page is a field page as it was built, with the hashes of its script and its
// style as a policy names them.
type page struct {
	text          string
	Script, Style string
}

// build is everything that was built.
type build struct {
	loader    httpapi.Static
	name      string         // of the loader, with its hash
	hash      string         // of the loader, as a script tag names it
	integrity httpapi.Static // integrity.json
	pages     map[string]page
}

// Built reports whether the binary has the fields.
func Built() bool {
	_, err := fs.Stat(dist, "dist/build.json")
	return err == nil
}

// read returns what was built.
func read() (*build, error) {
	loader, err := dist.ReadFile("dist/elements.js")
	if err != nil {
		return nil, fmt.Errorf("elements: %w", err)
	}
	sum := sha256.Sum256(loader)
	b := &build{name: "elements-" + hex.EncodeToString(sum[:8]) + ".js", pages: make(map[string]page)}
	hashes := make(map[string]any)
	for _, k := range kinds {
		text, err := dist.ReadFile("dist/" + k.page + ".html")
		if err != nil {
			return nil, fmt.Errorf("elements: %w", err)
		}
		p := page{text: string(text)}
		if p.Script, err = hashBetween(p.text, `<script type="module">`, "</script>"); err != nil {
			return nil, err
		}
		if p.Style, err = hashBetween(p.text, "<style>", "</style>"); err != nil {
			return nil, err
		}
		b.pages[k.page] = p
		hashes[k.page] = map[string]string{"script": p.Script, "style": p.Style}
	}
	whole := sha512.Sum384(loader)
	b.hash = "sha384-" + base64.StdEncoding.EncodeToString(whole[:])
	integrity, err := json.MarshalIndent(map[string]any{
		"version": 1,
		"loader":  map[string]string{"file": b.name, "integrity": b.hash},
		"pages":   hashes,
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("elements: %w", err)
	}
	if b.loader, err = httpapi.NewStatic(loader); err == nil {
		b.integrity, err = httpapi.NewStatic(integrity)
	}
	return b, err
}

// hashBetween returns the hash, as a policy names it, of the text between two
// tags that are in a page once.
func hashBetween(text, begin, end string) (string, error) {
	_, rest, found := strings.Cut(text, begin)
	inside, _, closed := strings.Cut(rest, end)
	if !found || !closed || strings.Contains(inside, begin) {
		return "", errors.New("elements: a page was built without " + begin)
	}
	sum := sha256.Sum256([]byte(inside))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:]), nil
}

// service serves the routes.
type service struct {
	options    Options
	built      *build
	playground map[string]httpapi.Static // the files of the playground; empty outside development mode

	mu     sync.Mutex
	filled map[string]httpapi.Static // pages with the origins of an application, by their ETag
}

// maxFilled bounds the pages that are kept.
const maxFilled = 256

// fill returns the body of a page, which is compressed when it is first asked for.
func (s *service) fill(etag, text string) (httpapi.Static, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.filled[etag]; ok {
		return b, nil
	}
	b, err := httpapi.NewStatic([]byte(text))
	if err != nil {
		return httpapi.Static{}, err
	}
	if len(s.filled) >= maxFilled {
		clear(s.filled)
	}
	s.filled[etag] = b
	return b, nil
}

// Routes returns the rows.
func Routes(o Options) ([]httpapi.Route, error) {
	s := &service{options: o, filled: make(map[string]httpapi.Static)}
	if Built() {
		var err error
		if s.built, err = read(); err != nil {
			return nil, err
		}
	}
	rows := []httpapi.Route{
		{Pattern: "GET /elements/v1/{file}", Auth: httpapi.Anonymous, Readers: httpapi.EveryPage, Handle: s.serveFile},
		{Pattern: "GET /elements/v1/{key}/{kind}", Auth: httpapi.Anonymous, Readers: httpapi.NoPage, Handle: s.servePage},
	}
	if o.Dev {
		var err error
		if s.playground, err = readPlayground(); err != nil {
			return nil, err
		}
		rows = append(rows, s.playgroundRoute())
	}
	return rows, nil
}

// refuse responds with a text for developers. The policy of all responses keeps
// pages from embedding it.
func refuse(w http.ResponseWriter, status int, text string) error {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // fails only when the client has gone
	return nil
}

func (s *service) serveFile(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	if s.built == nil {
		return refuse(w, http.StatusServiceUnavailable, notBuilt)
	}
	content, media, cache := s.built.loader, "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"
	switch file := r.PathValue("file"); file {
	case s.built.name:
	case "elements.js": // for trying things out: its content changes with the release
		cache = "public, max-age=300"
	case "integrity.json":
		content, media, cache = s.built.integrity, "application/json", "no-cache"
	default:
		var known bool
		if content, known = s.playground[file]; !known {
			return errNoFile
		}
		media, cache = playgroundFiles[file], "no-cache"
	}
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", cache)
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	h.Set("Referrer-Policy", "no-referrer")
	content.Write(w, r)
	return nil
}

// servePage serves the page of a frame.
func (s *service) servePage(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	k, ok := kinds[r.PathValue("kind")]
	if !ok {
		return refuse(w, http.StatusNotFound, "unknown kind of fields: there are card, number, expiry, cvc, bank, iban, text and reveal\n")
	}
	origins, known, err := s.options.Origins(r.Context(), r.PathValue("key"))
	switch {
	case err != nil:
		return err
	case !known:
		return refuse(w, http.StatusNotFound, "unknown public key: use the key of a public application of this vault\n")
	case len(origins) == 0 && !s.options.Dev:
		return refuse(w, http.StatusForbidden, "the application has no allowed_origins: add the origin of the page that embeds the fields\n")
	case s.built == nil:
		return refuse(w, http.StatusServiceUnavailable, notBuilt)
	}
	p := s.built.pages[k.page]
	text := strings.NewReplacer("{{origins}}", html.EscapeString(strings.Join(origins, " ")), "{{prefix}}", html.EscapeString(s.options.HeaderPrefix)).Replace(p.text)
	h := w.Header()
	k.headers(h, p, s.url(r), origins)
	tag := sha256.Sum256([]byte(text + "\n" + h.Get("Content-Security-Policy")))
	etag := `"` + base64.RawURLEncoding.EncodeToString(tag[:18]) + `"`
	h.Set("ETag", etag)
	if strings.Contains(strings.Join(r.Header.Values("If-None-Match"), ","), etag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	content, err := s.fill(etag, text)
	if err != nil {
		return err
	}
	content.Write(w, r)
	return nil
}

// headers sets the headers of a field page. They are part of the protocol:
// docs/elements.md explains each.
func (k kind) headers(h http.Header, p page, url string, origins []string) {
	connect := "'none'"
	if len(k.connect) > 0 {
		var all []string
		for _, path := range k.connect {
			all = append(all, url+path)
		}
		connect = strings.Join(all, " ")
	}
	policy := []string{
		"default-src 'none'", "script-src '" + p.Script + "'", "style-src '" + p.Style + "'", "connect-src " + connect, "form-action 'none'", "base-uri 'none'",
	}
	if len(origins) > 0 { // none in development mode: every page
		policy = append(policy, "frame-ancestors "+strings.Join(origins, " "))
	}
	policy = append(policy, "require-trusted-types-for 'script'", "trusted-types 'none'")
	clipboard := "()"
	if k.copies {
		clipboard = "(self)"
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", strings.Join(policy, "; "))
	h.Set("Permissions-Policy", strings.ReplaceAll(permissions, "{clipboard}", clipboard))
	h.Set("Cross-Origin-Embedder-Policy", "require-corp")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex")
	h.Set("Cache-Control", "no-cache")
}

const permissions = "accelerometer=(), autoplay=(), browsing-topics=(), camera=(), clipboard-read=(), clipboard-write={clipboard}, display-capture=(), " +
	"geolocation=(), gyroscope=(), hid=(), keyboard-map=(), local-fonts=(), magnetometer=(), microphone=(), midi=(), payment=(), " +
	"publickey-credentials-get=(), screen-wake-lock=(), serial=(), storage-access=(), usb=()"

// url returns the origin of the field pages. Without a setting it is the host
// of the request: a page cannot choose the one that a browser sends.
func (s *service) url(r *http.Request) string {
	if s.options.URL != "" {
		return s.options.URL
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	if strings.Trim(r.Host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:") != "" || r.Host == "" {
		return "https://invalid." // a policy that allows nothing
	}
	return scheme + r.Host
}
