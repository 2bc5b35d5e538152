package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/date"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/response"
)

// ErrNoBody says that there is nothing in a body, for those who can do without one.
var ErrNoBody = fault.New(fault.Invalid, "a body is required")

var (
	errMediaJSON  = fault.New(fault.MediaType, "the content type must be application/json")
	errMediaLines = fault.New(fault.MediaType, "the content type must be application/x-ndjson")
	errCoded      = fault.New(fault.MediaType, "the body must not be compressed")
	errMediaPatch = fault.New(fault.MediaType, "the content type must be application/merge-patch+json")
	errTooLarge   = fault.New(fault.TooLarge, "the body is too large")
	errTooSlow    = fault.New(fault.Timeout, "the body did not arrive in time")
	errCutOff     = fault.New(fault.Invalid, "the body could not be read to its end")
	errMalformed  = fault.New(fault.Invalid, "the body is not valid JSON")
	errUTF8       = fault.New(fault.Invalid, "the body is not valid UTF-8")
	errDuplicate  = fault.New(fault.Invalid, "the body gives a member twice in one object")
	errTrailing   = fault.New(fault.Invalid, "something follows the JSON value of the body")
	errTooDeep    = fault.New(fault.Invalid, "the body is nested too deeply")
	errNotObject  = fault.New(fault.Invalid, "the body must be a JSON object")
	errNotList    = fault.New(fault.Invalid, "the body must be a JSON array")
	errWrongType  = fault.New(fault.Invalid, "the body is not of the type that is due")
)

// Decode reads the body of a JSON or MergePatch row into v, a pointer. Names
// are compared as written, unknown members are ignored, and a jsontext.Value
// keeps its part of the body as it was sent, numbers digit by digit. A null
// leaves a member at its zero value, and in a jsontext.Value it is a null.
// Every error that the caller caused is a fault, and none repeats the body.
func Decode(r *http.Request, v any) error {
	x := exchangeOf(r.Context())
	if x == nil {
		return errNoExchange
	}
	if x.row.Body != JSON && x.row.Body != MergePatch {
		return errors.New("httpapi: Decode in a row whose body is neither JSON nor a merge patch")
	}
	body, err := x.readBody(r)
	if err != nil {
		return err
	}
	values, err := checkJSON(body, x.handler.options.MaxDepth)
	if err != nil {
		return err
	}
	if err := x.hold.Grow(x.caller.Tenant(), bodyWeight*int64(len(body))+valueWeight*int64(values)); err != nil {
		return err
	}
	t := reflect.TypeOf(v).Elem()
	if jsontext.Value(body).Kind() == jsontext.KindNull && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map) {
		return errNotObject
	}
	// Names were compared in checkJSON, all of them, so not again.
	if err := json.Unmarshal(body, v, jsontext.AllowDuplicateNames(true)); err != nil {
		return mismatch(t, err)
	}
	return nil
}

// PeekBody reads the body of a row as it was sent, and leaves it to be decoded
// after that. A row that reads no body, and a request without one, has none.
func PeekBody(r *http.Request) ([]byte, error) {
	x := exchangeOf(r.Context())
	if x == nil {
		return nil, errNoExchange
	}
	if x.row.Body != JSON && x.row.Body != MergePatch {
		return nil, nil
	}
	body, err := x.readBody(r)
	if err != nil && !errors.Is(err, ErrNoBody) {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

// readBody reads a body up to the bound. Memory grows with what has arrived,
// not with what the client announced.
func (x *exchange) readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength > x.handler.options.MaxBody {
		return nil, errTooLarge
	}
	var body bytes.Buffer
	_, err := io.CopyN(&body, r.Body, 1)
	empty := errors.Is(err, io.EOF)
	if err != nil && !empty {
		return nil, x.readFault(err)
	}
	if empty && (x.row.Body != MergePatch || len(r.Header.Values("Content-Type")) == 0) {
		// Clients post nothing under any content type. Only a patch that names
		// the wrong one is refused for it, with a body or without.
		return nil, ErrNoBody
	}
	if err := checkMedia(x.row.Body, r.Header.Values("Content-Type")); err != nil {
		return nil, err
	}
	if isCoded(r.Header) {
		return nil, errCoded
	}
	if empty {
		return nil, ErrNoBody
	}
	if _, err := body.ReadFrom(weighed{r.Body, x}); err != nil {
		return nil, x.readFault(err)
	}
	return body.Bytes(), nil
}

func (x *exchange) readFault(err error) error {
	x.closing = true
	var tooLarge *http.MaxBytesError
	var known *fault.Fault
	switch {
	case errors.As(err, &known):
		return known // of the memory of requests
	case errors.As(err, &tooLarge):
		return errTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errTooSlow
	}
	return errCutOff
}

// checkMedia takes any type ending in +json for JSON, as RFC 6839 has it, but
// for a merge patch: its nulls mean something else.
func checkMedia(body Body, contentType []string) error {
	media := ""
	if len(contentType) == 1 {
		media, _, _ = mime.ParseMediaType(contentType[0])
	}
	switch {
	case body == Lines && media != api.MediaNDJSON:
		return errMediaLines
	case body == MergePatch && media != api.MediaMergePatch:
		return errMediaPatch
	case body == JSON && media != api.MediaJSON && (media == api.MediaMergePatch || !strings.HasSuffix(media, "+json")):
		return errMediaJSON
	}
	return nil
}

// isCoded says whether a body is compressed. Nothing is ever expanded here, so
// that no small body becomes a large one. Names that are no codings are let
// pass: there are clients that put a charset here.
func isCoded(h http.Header) bool {
	for _, value := range h.Values("Content-Encoding") {
		for name := range strings.SplitSeq(value, ",") {
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "gzip", "x-gzip", "deflate", "br", "zstd", "compress", "x-compress", "dcb", "dcz":
				return true
			}
		}
	}
	return false
}

// checkJSON walks once over the tokens of a body, and returns how many there
// are. The decoder refuses names that are given twice and text that is not UTF-8.
func checkJSON(body []byte, maxDepth int) (tokens int, err error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(body))
	for first := true; first || d.StackDepth() > 0; first = false {
		_, err := d.ReadToken()
		tokens++
		switch {
		case errors.Is(err, io.EOF):
			return 0, ErrNoBody // nothing but space
		case errors.Is(err, jsontext.ErrDuplicateName):
			return 0, errDuplicate
		case err != nil && !utf8.Valid(body):
			return 0, errUTF8
		case err != nil:
			return 0, errMalformed
		case d.StackDepth() > maxDepth:
			return 0, errTooDeep
		}
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return 0, errTrailing
	}
	return tokens, nil
}

// mismatch turns an error of Unmarshal into a fault. The error itself quotes
// the body, so it goes no further.
func mismatch(t reflect.Type, err error) error {
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		return errMalformed
	}
	path, whole := knownPath(t, semantic.JSONPointer)
	switch {
	case path == "" && t.Kind() == reflect.Slice:
		return errNotList
	case path == "" && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map):
		return errNotObject
	case path == "":
		return errWrongType
	case !whole:
		return fault.Field(path, "holds a value of the wrong type")
	case isTime(semantic.GoType):
		return fault.Field(path, date.Wanted)
	}
	return fault.Field(path, expectation(semantic))
}

func isTime(t reflect.Type) bool {
	instant := reflect.TypeFor[api.Time]()
	return t == instant || t == reflect.PointerTo(instant)
}

// expectation says in constant words what a member should have been.
func expectation(err *json.SemanticError) string {
	if err.GoType == nil {
		return "is not valid"
	}
	kind := err.GoType.Kind()
	switch kind {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "must be a whole number in range"
	case reflect.Float32, reflect.Float64:
		return "must be a number in range"
	}
	if err.Err != nil { // of the right JSON type, but its own decoder refused it
		return "is not valid"
	}
	switch kind {
	case reflect.String:
		return "must be a string"
	case reflect.Bool:
		return "must be true or false"
	case reflect.Slice, reflect.Array:
		return "must be an array"
	case reflect.Struct, reflect.Map:
		return "must be an object"
	}
	return "is not valid"
}

// knownPath writes a pointer into a value of type t as a dotted path. It stops
// where names are the caller's own, because those may be data, and reports
// whether it got to the end.
func knownPath(t reflect.Type, pointer jsontext.Pointer) (path string, whole bool) {
	var names []string
	for token := range pointer.Tokens() {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch t.Kind() {
		case reflect.Struct:
			field, ok := fieldNamed(t, token)
			if !ok {
				return strings.Join(names, "."), false
			}
			names, t = append(names, token), field
		case reflect.Slice, reflect.Array:
			if _, err := strconv.ParseUint(token, 10, 32); err != nil || t.Elem().Kind() == reflect.Uint8 {
				return strings.Join(names, "."), false
			}
			names, t = append(names, token), t.Elem()
		default:
			return strings.Join(names, "."), false
		}
	}
	return strings.Join(names, "."), true
}

// fieldNamed finds the type of the struct field with a JSON name.
func fieldNamed(t reflect.Type, name string) (reflect.Type, bool) {
	for f := range t.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == name || tag == "" && f.Name == name:
			return f.Type, true
		case f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct:
			if inner, ok := fieldNamed(f.Type, name); ok {
				return inner, true
			}
		}
	}
	return nil, false
}

// WriteJSON answers with v, as Encode writes it.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	body, err := Encode(v)
	if err != nil {
		return err
	}
	writeEncoded(w, status, body)
	return nil
}

// Encode writes v as JSON. Numbers in raw values stay as they are, members of
// maps are sorted, and nothing is escaped for HTML.
func Encode(v any) ([]byte, error) {
	// Raw values were checked for duplicate names when they came in.
	body, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowDuplicateNames(true))
	if err != nil {
		// The error names the member, whose name may be a caller's.
		return nil, fmt.Errorf("encode an answer of type %T", v)
	}
	return body, nil
}

// Write answers with a response. A body without headers of its own is what
// Encode wrote.
func Write(w http.ResponseWriter, out *response.Response) error {
	switch {
	case out.Stream != nil:
		return out.Stream(w)
	case out.Replayed:
		w.Header().Set(api.Header(prefixOf(w), api.IdempotentReplayed), "true")
	}
	if out.Location != "" {
		w.Header().Set("Location", out.Location)
	}
	switch {
	case out.Headers != nil:
		writeForeign(w, out.Status, out.Headers, out.Body)
	case out.Body == nil:
		w.WriteHeader(out.Status)
	default:
		writeEncoded(w, out.Status, out.Body)
	}
	return nil
}

func writeEncoded(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", api.MediaJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // JSON, which says so and is not sniffed; it fails only when the client has gone
}
