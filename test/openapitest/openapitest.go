// Package openapitest holds what travels between a test and a server against
// api/openapi.yaml.
//
// It promises that an answer with a status, a header or a member that the
// document does not have fails the test, and so does a request which the
// server took and the document would not. It is for tests alone: its messages
// show the values that they are about, so they must never leave one.
package openapitest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"go.yaml.in/yaml/v3"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/apidoc"
)

// Document is the description of the API.
type Document struct {
	requests  *openapi3.T
	responses *openapi3.T    // takes no member that is not described
	plain     bool           // has no words that only OpenAPI 3.1 has: both are 3.0
	strict    func() strict  // both as they are written
	mux       *http.ServeMux // finds the path and method of a request
	traceID   string         // the name of the header
	status    string         // likewise, of a destination's status
	replayed  string         // likewise, of an answer that was kept
	good      sync.Map       // digests of answers that are as described
}

// strict is the document as it is written.
type strict struct {
	requests, responses *openapi3.T
	err                 error
}

// Operation is one operation of the document.
type Operation struct {
	Pattern    string // "GET /logs", as in the server's rows
	ID         string
	Summary    string
	Permission string
	Open       bool   // takes no key
	Body       string // the media type of what it reads; "" when that is nothing
}

// Load returns the document as a server serves it by default.
func Load(t testing.TB) *Document {
	t.Helper()
	return For(t, api.DefaultPrefix)
}

// loaded has the documents by their header prefix: checking the examples takes
// a while.
var loaded sync.Map

// For returns the document as a server with a header prefix serves it. It does
// not validate the document, which takes a second in each test binary: package
// test/openapi does, for all of them.
func For(t testing.TB, prefix string) *Document {
	t.Helper()
	load, _ := loaded.LoadOrStore(prefix, sync.OnceValues(func() (*Document, error) {
		return newDocument(apidoc.Describe(prefix, ""), strings.ToUpper(prefix))
	}))
	d, err := load.(func() (*Document, error))()
	if err != nil {
		t.Fatalf("api/openapi.yaml: %v", err)
	}
	return d
}

// Parse returns another document, in YAML, for tests of what the validator
// understands.
func Parse(t testing.TB, text string) *Document {
	t.Helper()
	d, err := newDocument([]byte(text), api.DefaultPrefix)
	if err == nil {
		err = d.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Plain reports whether messages are checked without compiling schemas.
func (d *Document) Plain() bool { return d.plain }

// Validate returns what OpenAPI does not allow in the document.
func (d *Document) Validate() error {
	written := d.strict()
	if written.err != nil {
		return written.err
	}
	if err := written.requests.Validate(context.Background(), openapi3.EnableMultiError()); err != nil {
		return err
	}
	if err := written.responses.Validate(context.Background(), openapi3.EnableMultiError()); err != nil {
		return fmt.Errorf("narrowed: %w", err)
	}
	return nil
}

func newDocument(text []byte, prefix string) (*Document, error) {
	plain := true
	if _, err := rewritten(text, func(v map[string]any) { plain = plain && isPlain(v) }); err != nil {
		return nil, err
	}
	requests, responses, err := load(text, plain)
	if err != nil {
		return nil, err
	}
	decoders()
	d := &Document{
		requests: requests, responses: responses, plain: plain, mux: http.NewServeMux(),
		traceID: api.Header(prefix, api.TraceID), status: api.Header(prefix, api.ProxyDestinationStatus),
		replayed: api.Header(prefix, api.IdempotentReplayed),
		strict: sync.OnceValue(func() (s strict) {
			s.requests, s.responses, s.err = load(text, false)
			return s
		}),
	}
	for _, o := range d.Operations() {
		if o.Pattern != root { // a mux would take it for every path
			d.mux.Handle(o.Pattern, http.NotFoundHandler())
		}
	}
	return d, nil
}

// load returns a document for requests and one for responses, as they are or
// in words of OpenAPI 3.0.
//
// The library compiles every schema of OpenAPI 3.1 again for every message, and
// then uses its validator for 3.0 wherever there are references. That is a
// third of the time of many tests.
func load(text []byte, plain bool) (requests, responses *openapi3.T, err error) {
	narrow, err := rewritten(text, narrowed)
	if err != nil {
		return nil, nil, err
	}
	for doc, text := range map[**openapi3.T][]byte{&requests: text, &responses: narrow} {
		if plain {
			if text, err = rewritten(text, inOlderWords); err != nil {
				return nil, nil, err
			}
		}
		if *doc, err = openapi3.NewLoader().LoadFromData(text); err != nil {
			return nil, nil, err
		}
		if plain {
			(*doc).OpenAPI = "3.0.3"
		}
	}
	return requests, responses, nil
}

// decoders teaches the library the media types that it does not know.
var decoders = sync.OnceFunc(func() {
	for _, media := range []string{"text/html", "text/css", "text/javascript", "text/event-stream", "text/csv", api.MediaNDJSON} {
		openapi3filter.RegisterBodyDecoder(media, openapi3filter.PlainBodyDecoder)
	}
})

// uuidPattern stands in for the format, which the library does not look at.
const uuidPattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"

// rewritten returns a document after a function has changed each object in it.
func rewritten(text []byte, change func(map[string]any)) ([]byte, error) {
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			for _, item := range v {
				walk(item)
			}
			change(v)
		}
	}
	walk(doc)
	return json.Marshal(doc)
}

// narrowed closes objects and checks ids: clients expect fields that are new to
// them, tests do not.
func narrowed(v map[string]any) {
	_, closed := v["additionalProperties"]
	if _, isObject := v["properties"]; isObject && !closed && v["type"] == "object" {
		v["additionalProperties"] = false
	}
	if v["type"] == "string" && v["format"] == "uuid" {
		v["pattern"] = uuidPattern
	}
}

// inOlderWords changes schemas to what they are in OpenAPI 3.0: a constant is the
// only value of an enum, and what says nothing about types takes null too.
func inOlderWords(v map[string]any) {
	if value, there := v["const"]; there && v["enum"] == nil {
		v["enum"] = []any{value}
		delete(v, "const")
	}
	untyped := func(schema any) {
		s, ok := schema.(map[string]any)
		for _, word := range []string{"type", "enum", "$ref", "allOf", "anyOf", "oneOf", "not"} {
			_, there := s[word]
			ok = ok && !there
		}
		if ok {
			s["nullable"] = true
		}
	}
	for _, word := range []string{"schema", "items", "additionalProperties"} {
		untyped(v[word])
	}
	for _, word := range []string{"properties", "schemas"} {
		schemas, _ := v[word].(map[string]any)
		for _, schema := range schemas {
			untyped(schema)
		}
	}
}

// isPlain reports whether an object, if it is a schema, has no word that
// OpenAPI 3.0 has not, except for lists of types and for constants.
func isPlain(v map[string]any) bool {
	for _, word := range []string{
		"prefixItems", "contains", "patternProperties", "dependentSchemas", "dependentRequired", "propertyNames",
		"unevaluatedItems", "unevaluatedProperties", "if", "$defs", "contentSchema",
	} {
		if _, there := v[word]; there {
			return false
		}
	}
	properties, _ := v["properties"].(map[string]any)
	for _, p := range properties {
		if _, always := p.(bool); always { // a schema that takes everything or nothing
			return false
		}
	}
	return true
}

// Operations returns the operations in the order of their patterns.
func (d *Document) Operations() []Operation {
	var list []Operation
	for path, item := range d.requests.Paths.Map() {
		for method, o := range item.Operations() {
			// Without the extension there is no permission that a row could have.
			permission, ok := o.Extensions["x-permission"].(string)
			if !ok {
				permission = "(no x-permission)"
			}
			body := ""
			if o.RequestBody != nil {
				body = strings.Join(slices.Sorted(maps.Keys(o.RequestBody.Value.Content)), " ")
			}
			list = append(list, Operation{
				Pattern: method + " " + path, ID: o.OperationID, Summary: o.Summary, Permission: permission,
				Open: o.Security != nil && len(*o.Security) == 0, Body: body,
			})
		}
	}
	slices.SortFunc(list, func(a, b Operation) int { return strings.Compare(a.Pattern, b.Pattern) })
	return list
}

// Idempotency says what the document has of an operation's idempotency: the
// header of the request, that of an answer that was kept, and the conflict.
func (d *Document) Idempotency(pattern string) (key, replayed, conflict bool) {
	o := operationOf(d.requests, pattern).operation
	key = o.Parameters.GetByInAndName("header", "SVC-IDEMPOTENCY-KEY") != nil
	for status, response := range o.Responses.Map() {
		if strings.HasPrefix(status, "2") {
			replayed = response.Value.Headers["SVC-IDEMPOTENT-REPLAYED"] != nil
		}
	}
	refusal := o.Responses.Status(http.StatusConflict)
	return key, replayed, refusal != nil && refusal.Value.Headers["Retry-After"] != nil
}

// Describes reports whether an operation has an answer of a status of its own.
func (d *Document) Describes(pattern string, status int) bool {
	return operationOf(d.requests, pattern).operation.Responses.Status(status) != nil
}

// Enum returns the values of a schema that lists them.
func (d *Document) Enum(schema string) []any {
	if ref := d.requests.Components.Schemas[schema]; ref != nil {
		return ref.Value.Enum
	}
	return nil
}

// Properties returns the defaults of the members of a schema.
func (d *Document) Properties(schema string) map[string]any {
	out := make(map[string]any)
	if ref := d.requests.Components.Schemas[schema]; ref != nil {
		for name, p := range ref.Value.Properties {
			out[name] = p.Value.Default
		}
	}
	return out
}

// proxied is the pattern of all calls of proxies: a document has no word for
// every method and every path.
const proxied = "POST /proxy/{rest}"

// The patterns of the page that leads to the console, and of the console, whose
// paths are of any depth.
const (
	root    = "GET /"
	console = "GET /console/{rest}"
)

// Pattern returns the pattern of the operation that a request asks for; "" when
// there is none.
func (d *Document) Pattern(r *http.Request) string {
	at := r.URL.Path
	if at == "/proxy" || strings.HasPrefix(at, "/proxy/") {
		return proxied
	}
	if isRead := r.Method == http.MethodGet || r.Method == http.MethodHead; isRead && at == "/" {
		return root
	} else if isRead && (at == "/console" || strings.HasPrefix(at, "/console/")) {
		return console
	}
	// The service takes one slash at the end, and tidies up nothing else.
	trimmed := strings.TrimSuffix(at, "/")
	if trimmed == "" || path.Clean(trimmed) != trimmed {
		return ""
	}
	again := r.Clone(context.Background())
	again.URL.Path, again.URL.RawPath = trimmed, strings.TrimSuffix(r.URL.RawPath, "/")
	_, pattern := d.mux.Handler(again)
	return pattern
}

// Check holds a request and its answer against the document. The bodies are
// given apart, because those of r and resp may have been read.
func (d *Document) Check(r *http.Request, sent []byte, resp *http.Response, received []byte) error {
	if err := d.CheckRequest(r, sent, resp); err != nil {
		return err
	}
	return d.CheckAnswer(r, resp, received)
}

// options are those of both checks.
func options(r *http.Request) *openapi3filter.Options {
	return &openapi3filter.Options{
		IncludeResponseStatus: true, SkipSettingDefaults: true, MultiError: true,
		AuthenticationFunc: hasKey, ExcludeResponseBody: r.Method == http.MethodHead,
	}
}

// CheckRequest holds a request that the server took against the document.
func (d *Document) CheckRequest(r *http.Request, sent []byte, resp *http.Response) error {
	pattern := d.Pattern(r)
	// A kept answer is given out whatever the request is, and the console has no
	// path that a parameter of the document could be.
	if pattern == "" || pattern == console || resp.StatusCode >= 400 || resp.Header.Get(d.replayed) != "" {
		return nil
	}
	if r.Method != http.MethodPatch {
		sent = withoutNull(sent)
	}
	// The filter reads the body and may change the request.
	again := r.Clone(context.Background())
	again.Body, again.ContentLength, again.GetBody = io.NopCloser(bytes.NewReader(sent)), int64(len(sent)), nil
	err := d.either(d.requests, (*Document).strictRequests, func(doc *openapi3.T) error {
		again.Body = io.NopCloser(bytes.NewReader(sent))
		return openapi3filter.ValidateRequest(context.Background(), input(doc, pattern, again, options(r)))
	})
	if err != nil {
		return fmt.Errorf("the server took a request that the document does not: %w", err)
	}
	return nil
}

// either checks a message with the document in words of OpenAPI 3.0, and if
// that refuses it, with the document as it is, which decides: the library takes
// some values only there, like numbers beyond those of floating point.
func (d *Document) either(plain *openapi3.T, strict func(*Document) (*openapi3.T, error), check func(*openapi3.T) error) error {
	err := check(plain)
	if err == nil || !d.plain {
		return err
	}
	doc, failed := strict(d)
	if failed != nil {
		return failed
	}
	return check(doc)
}

func (d *Document) strictRequests() (*openapi3.T, error) {
	s := d.strict()
	return s.requests, s.err
}

func (d *Document) strictResponses() (*openapi3.T, error) {
	s := d.strict()
	return s.responses, s.err
}

// withoutNull leaves out the members of a JSON body that are null: as the
// document says of all bodies at once, they count as absent.
func withoutNull(body []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return body
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			for name, item := range v {
				if item == nil {
					delete(v, name)
				}
				walk(item)
			}
		}
	}
	walk(v)
	out, err := json.Marshal(v)
	if err != nil {
		return body
	}
	return out
}

// CheckAnswer holds an answer against the document.
func (d *Document) CheckAnswer(r *http.Request, resp *http.Response, received []byte) error {
	pattern := d.Pattern(r)
	switch {
	case resp.Header.Get(d.traceID) == "":
		return errors.New("the answer has no " + d.traceID)
	case isForeign(resp):
		return d.checkForeign(resp)
	case r.Method == http.MethodOptions && resp.StatusCode == http.StatusNoContent && len(received) == 0:
		return nil // a browser asked what it may do
	case pattern == "":
		return d.checkStray(r, resp, received)
	}
	// Most answers of a test are refusals, and one is like the other.
	known := d.digest(r.Method+" "+pattern, resp, received)
	if _, good := d.good.Load(known); good {
		return nil
	}
	in := input(d.responses, pattern, r, options(r))
	if err := d.checkStatus(in.Route.Operation, resp, received); err != nil {
		return err
	}
	err := d.either(d.responses, (*Document).strictResponses, func(doc *openapi3.T) error {
		in := input(doc, pattern, r, options(r))
		return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
			RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header,
			Body: io.NopCloser(bytes.NewReader(received)), Options: in.Options,
		})
	})
	if err == nil {
		d.good.Store(known, true)
	}
	return err
}

// digest is the same for answers that differ in nothing but their time and
// their trace id.
func (d *Document) digest(operation string, resp *http.Response, received []byte) [sha256.Size]byte {
	h := resp.Header.Clone()
	h.Del("Date")
	h.Set(d.traceID, "")
	return sha256.Sum256(fmt.Appendf(nil, "%s %d %v %s", operation, resp.StatusCode, h, received))
}

// isForeign reports whether an answer is that of a destination or of a
// tenant's code, which may be anything.
func isForeign(resp *http.Response) bool {
	return resp.Header.Get("Content-Security-Policy") == "sandbox"
}

func (d *Document) checkForeign(resp *http.Response) error {
	if status := resp.Header.Get(d.status); status != "" && status != strconv.Itoa(resp.StatusCode) {
		return fmt.Errorf("the status is %d, and %s says %s", resp.StatusCode, d.status, status)
	}
	return nil
}

// checkStray wants a problem for what is no operation.
func (d *Document) checkStray(r *http.Request, resp *http.Response, received []byte) error {
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusTooManyRequests:
	default:
		return errors.New("no such operation")
	}
	if resp.Header.Get("Content-Type") != api.MediaJSON {
		return errors.New("no such operation, and the answer is no problem")
	}
	if r.Method == http.MethodHead {
		return nil
	}
	var body any
	if err := json.Unmarshal(received, &body); err != nil {
		return err
	}
	return d.either(d.responses, (*Document).strictResponses, func(doc *openapi3.T) error {
		var options []openapi3.SchemaValidationOption
		if doc.IsOpenAPI31OrLater() {
			options = append(options, openapi3.EnableJSONSchema2020())
		}
		return doc.Components.Schemas["Problem"].Value.VisitJSON(body, options...)
	})
}

// checkStatus lets "default" stand for the few statuses that its description
// names, and wants no body where none is described.
func (d *Document) checkStatus(o *openapi3.Operation, resp *http.Response, body []byte) error {
	described := o.Responses.Status(resp.StatusCode)
	if described == nil {
		if s := resp.StatusCode; s == http.StatusBadRequest || s == http.StatusNotFound || s == http.StatusMethodNotAllowed {
			return nil
		}
		return fmt.Errorf("status %d is not described", resp.StatusCode)
	}
	if len(described.Value.Content) == 0 && len(body) > 0 {
		return fmt.Errorf("status %d has a body, and none is described", resp.StatusCode)
	}
	return nil
}

func hasKey(_ context.Context, in *openapi3filter.AuthenticationInput) error {
	if strings.Contains(in.RequestValidationInput.Request.Header.Get("Cookie"), "tokenkeep=") {
		return nil // a person, as the scheme says in words
	}
	if name := in.SecurityScheme.Name; in.RequestValidationInput.Request.Header.Get(name) == "" {
		return errors.New("no " + name)
	}
	return nil
}

func methodAndPath(pattern string) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	return method, path
}

func input(doc *openapi3.T, pattern string, r *http.Request, options *openapi3filter.Options) *openapi3filter.RequestValidationInput {
	method, path := methodAndPath(pattern)
	item := doc.Paths.Value(path)
	values := make(map[string]string)
	have := strings.Split(r.URL.EscapedPath(), "/")
	for i, segment := range strings.Split(path, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok && i < len(have) {
			values[strings.TrimSuffix(name, "}")], _ = url.PathUnescape(have[i]) // the server took it apart before
		}
	}
	return &openapi3filter.RequestValidationInput{
		Request: r, PathParams: values, Options: options,
		Route: &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: item.GetOperation(method)},
	}
}
