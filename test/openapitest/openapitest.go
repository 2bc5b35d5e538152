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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"go.yaml.in/yaml/v3"

	"github.com/tokenkeep/tokenkeep/api"
)

// Document is the description of the API.
type Document struct {
	requests  *openapi3.T
	responses *openapi3.T    // takes no member that is not described
	mux       *http.ServeMux // finds the path and method of a request
}

// Operation is one operation of the document.
type Operation struct {
	Pattern    string // "GET /logs", as in the server's rows
	ID         string
	Summary    string
	Permission string
	Open       bool // takes no key
}

// Load returns the document, and fails the test when it is not valid OpenAPI
// or one of its examples is not what it is an example of.
func Load(t testing.TB) *Document {
	t.Helper()
	d, err := load()
	if err != nil {
		t.Fatalf("api/openapi.yaml: %v", err)
	}
	return d
}

// load reads it once: checking the examples takes a while.
var load = sync.OnceValues(func() (*Document, error) {
	requests, err := parse(api.OpenAPI)
	if err != nil {
		return nil, err
	}
	narrow, err := narrowed(api.OpenAPI)
	if err != nil {
		return nil, err
	}
	responses, err := parse(narrow)
	if err != nil {
		return nil, fmt.Errorf("narrowed: %w", err)
	}
	for _, media := range []string{"text/html", "text/css", "text/javascript"} {
		openapi3filter.RegisterBodyDecoder(media, openapi3filter.PlainBodyDecoder)
	}
	d := &Document{requests: requests, responses: responses, mux: http.NewServeMux()}
	for _, o := range d.Operations() {
		d.mux.Handle(o.Pattern, http.NotFoundHandler())
	}
	return d, nil
})

func parse(text []byte) (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(context.Background(), openapi3.EnableMultiError())
}

// uuidPattern stands in for the format, which the library does not look at.
const uuidPattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"

// narrowed returns the document with every object closed and every id checked:
// clients expect members that are new to them, tests do not.
func narrowed(text []byte) ([]byte, error) {
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
			_, closed := v["additionalProperties"]
			if _, isObject := v["properties"]; isObject && !closed && v["type"] == "object" {
				v["additionalProperties"] = false
			}
			if v["type"] == "string" && v["format"] == "uuid" {
				v["pattern"] = uuidPattern
			}
		}
	}
	walk(doc)
	return json.Marshal(doc)
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
			list = append(list, Operation{
				Pattern: method + " " + path, ID: o.OperationID, Summary: o.Summary, Permission: permission,
				Open: o.Security != nil && len(*o.Security) == 0,
			})
		}
	}
	slices.SortFunc(list, func(a, b Operation) int { return strings.Compare(a.Pattern, b.Pattern) })
	return list
}

// Idempotency says what the document has of an operation's idempotency: the
// header of the request, that of an answer that was kept, and the conflict.
func (d *Document) Idempotency(pattern string) (key, replayed, conflict bool) {
	method, path, _ := strings.Cut(pattern, " ")
	o := d.requests.Paths.Value(path).GetOperation(method)
	key = o.Parameters.GetByInAndName("header", "SVC-IDEMPOTENCY-KEY") != nil
	for status, response := range o.Responses.Map() {
		if strings.HasPrefix(status, "2") {
			replayed = response.Value.Headers["SVC-IDEMPOTENT-REPLAYED"] != nil
		}
	}
	refusal := o.Responses.Status(http.StatusConflict)
	return key, replayed, refusal != nil && refusal.Value.Headers["Retry-After"] != nil
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

// Pattern returns the pattern of the operation that a request asks for; "" when
// there is none.
func (d *Document) Pattern(r *http.Request) string {
	_, pattern := d.mux.Handler(r)
	return pattern
}

// Check holds a request and its answer against the document. The bodies are
// given apart, because those of r and resp may have been read.
func (d *Document) Check(r *http.Request, sent []byte, resp *http.Response, received []byte) error {
	pattern := d.Pattern(r)
	if pattern == "" {
		return errors.New("no such operation")
	}
	options := &openapi3filter.Options{
		IncludeResponseStatus: true, RejectWhenRequestBodyNotSpecified: true, SkipSettingDefaults: true, MultiError: true,
		AuthenticationFunc: hasKey,
	}
	if resp.StatusCode < 400 {
		// The filter reads the body and may change the request.
		again := r.Clone(context.Background())
		again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(sent)), int64(len(sent))
		in := input(d.requests, pattern, again, options)
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			return fmt.Errorf("the server took a request that the document does not: %w", err)
		}
	}
	in := input(d.responses, pattern, r, options)
	if err := d.checkStatus(in.Route.Operation, resp, received); err != nil {
		return err
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header,
		Body: io.NopCloser(bytes.NewReader(received)), Options: options,
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
	if name := in.SecurityScheme.Name; in.RequestValidationInput.Request.Header.Get(name) == "" {
		return errors.New("no " + name)
	}
	return nil
}

func input(doc *openapi3.T, pattern string, r *http.Request, options *openapi3filter.Options) *openapi3filter.RequestValidationInput {
	method, path, _ := strings.Cut(pattern, " ")
	item := doc.Paths.Value(path)
	values := make(map[string]string)
	have := strings.Split(r.URL.Path, "/")
	for i, segment := range strings.Split(path, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok && i < len(have) {
			values[strings.TrimSuffix(name, "}")] = have[i]
		}
	}
	return &openapi3filter.RequestValidationInput{
		Request: r, PathParams: values, Options: options,
		Route: &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: item.GetOperation(method)},
	}
}

// Watch is a transport that checks everything that passes through it.
type Watch struct {
	t    testing.TB
	doc  *Document
	next http.RoundTripper

	mu   sync.Mutex // guards seen
	seen map[string][]int
}

// NewWatch returns a transport in front of next.
func NewWatch(t testing.TB, d *Document, next http.RoundTripper) *Watch {
	return &Watch{t: t, doc: d, next: next, seen: make(map[string][]int)}
}

// RoundTrip sends a request and fails the test when it or its answer is not as
// the document has it.
func (w *Watch) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil {
		var err error
		if sent, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(sent))
	}
	resp, err := w.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	received, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(received))
	if err := w.doc.Check(r, sent, resp, received); err != nil {
		w.t.Errorf("%s %s → %d is not as api/openapi.yaml has it: %v", r.Method, r.URL.Path, resp.StatusCode, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[w.doc.Pattern(r)] = append(w.seen[w.doc.Pattern(r)], resp.StatusCode)
	return resp, nil
}

// Seen returns the statuses of the answers to an operation so far.
func (w *Watch) Seen(pattern string) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen[pattern])
}
