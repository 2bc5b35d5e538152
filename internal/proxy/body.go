package proxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// maxTransform bounds the bodies that transforms see and make, in bytes.
const maxTransform = 5 << 20

var (
	errTooLarge = fault.New(fault.TooLarge, "the body is too large for a transform")
	errLate     = fault.New(fault.TooLarge, "the body is too large to hold detokenization expressions")
	errEncoded  = fault.New(fault.MediaType, "a transform can be shown bodies in gzip or in no encoding")
	errInflated = fault.New(fault.TooLarge, "the body is too large once it is decompressed")
	errGzip     = fault.New(fault.Invalid, "the body is not valid gzip")
	errCharset  = fault.New(fault.Invalid, "detokenization expressions can stand in UTF-8 alone")
	errCutOff   = fault.New(fault.Invalid, "the body could not be read to its end")
	errSlowBody = fault.New(fault.Timeout, "the body did not arrive in time")
)

// media is how a body is looked into.
type media uint8

const (
	binaryMedia media = iota // not at all
	jsonMedia
	formMedia
	xmlMedia
	textMedia
	multipartMedia
	untypedMedia // as text, if it is text
)

// textTypes are texts whose names do not say so.
var textTypes = map[string]media{
	"application/json": jsonMedia, "text/json": jsonMedia, "application/x-ndjson": jsonMedia, "application/jsonl": jsonMedia,
	"application/xml": xmlMedia, "text/xml": xmlMedia,
	"application/x-www-form-urlencoded": formMedia,
	"application/graphql":               textMedia, "application/javascript": textMedia, "application/yaml": textMedia, "application/x-yaml": textMedia,
	"application/toml": textMedia, "application/sql": textMedia, "application/jwt": textMedia, "application/jose": textMedia,
	"application/edifact": textMedia, "application/edi-x12": textMedia,
}

// mediaOf says how a body of a content type is looked into. One without a type
// is text if its bytes are; one whose type cannot be parsed is binary.
func mediaOf(contentType string) (media, map[string]string) {
	if strings.TrimSpace(contentType) == "" {
		return untypedMedia, nil
	}
	name, params, err := mime.ParseMediaType(contentType)
	if err != nil && name == "" {
		return binaryMedia, nil
	}
	if m, known := textTypes[name]; known {
		return m, params
	}
	switch {
	case strings.HasPrefix(name, "multipart/") && params["boundary"] != "":
		return multipartMedia, params
	case strings.HasSuffix(name, "+json"):
		return jsonMedia, params
	case strings.HasSuffix(name, "+xml"):
		return xmlMedia, params
	case strings.HasPrefix(name, "text/"), strings.HasSuffix(name, "+yaml"):
		return textMedia, params
	}
	return binaryMedia, params
}

// isJSON reports whether a transform gets a body as what its JSON says.
func isJSON(contentType string) bool {
	name, _, _ := mime.ParseMediaType(contentType)
	return name == "application/json" || strings.HasSuffix(name, "+json")
}

// isUTF8 tells from the parameters of a type whether its text is what we read.
func isUTF8(params map[string]string) bool {
	switch strings.ToLower(params["charset"]) {
	case "", "utf-8", "utf8", "us-ascii":
		return true
	}
	return false
}

// payload is the body of a call: whole, or a stream that goes on.
type payload struct {
	bytes    []byte
	template *template // of what the bytes hold, when that is an expression
	decoded  bool      // the bytes are no longer encoded as they came
	stream   io.Reader // instead of all that
	length   int64     // of the stream; -1 when it is not known
}

// contentEncoding returns the one encoding of a message; "" for none.
func contentEncoding(h http.Header) string {
	encoding := strings.ToLower(strings.TrimSpace(strings.Join(h.Values("Content-Encoding"), ",")))
	if encoding == "identity" {
		return ""
	}
	return strings.TrimPrefix(encoding, "x-")
}

// read takes in the body of a call as far as it is looked into. Memory grows
// with what has arrived, up to the bound.
func (s *Service) read(ctx context.Context, in Incoming, t *target, h http.Header, transformed bool) (p payload, err error) {
	if len(h.Values("Content-Type")) > 1 {
		return p, errContentType
	}
	if in.Length == 0 {
		return p, nil
	}
	kind, params := mediaOf(h.Get("Content-Type"))
	encoding := contentEncoding(h)
	if encoding != "" && encoding != "gzip" {
		if transformed {
			return p, errEncoded
		}
		kind = binaryMedia // written in a way that we cannot read
	}
	if kind == binaryMedia && !transformed {
		return payload{stream: in.Body, length: in.Length}, nil
	}
	limit := s.options.MaxBody
	if transformed {
		limit = min(limit, maxTransform)
	}
	var buffer bytes.Buffer
	var to io.Writer = &buffer
	if kind == untypedMedia && encoding == "" && !transformed {
		to = &textWriter{buffer: &buffer}
	}
	charged := weighed{in.Body, func(n int64) error { return in.Origin.ChargeMemory(t.tenant, n) }}
	if _, err := io.Copy(to, io.LimitReader(charged, int64(limit)+1)); errors.Is(err, errNotText) {
		return payload{stream: io.MultiReader(&buffer, in.Body), length: in.Length}, nil
	} else if err != nil {
		return p, readFault(err)
	}
	if kind == untypedMedia && encoding == "gzip" && !transformed && !maybeGzippedText(buffer.Bytes(), limit) {
		return payload{stream: io.MultiReader(&buffer, in.Body), length: in.Length}, nil
	}
	switch {
	case buffer.Len() <= limit:
		p.bytes = buffer.Bytes()
	case transformed:
		return p, errTooLarge
	case encoding == "gzip":
		return p, errInflated // it only grows
	default:
		scan := newScanner(kind, params)
		if scan.found(buffer.Bytes()) {
			return p, errLate
		}
		return payload{stream: io.MultiReader(&buffer, &watched{in.Body, scan}), length: in.Length}, nil
	}
	plain := p.bytes
	if encoding == "gzip" {
		if err := charged.charge(readWeight * min(int64(limit), maxInflation*int64(len(plain)))); err != nil {
			return p, err
		}
		if plain, err = inflate(p.bytes, limit); err != nil {
			return p, err
		}
	}
	if kind != binaryMedia {
		if err := charged.charge(templateWeight * int64(len(plain))); err != nil {
			return p, err
		}
		if p.template, err = parse(s.tokens.BodyBudget(ctx, t.tenant, s.options.MaxBody), kind, params, plain); err != nil {
			return p, err
		}
	}
	if p.template != nil || transformed {
		p.decoded = encoding == "gzip"
		p.bytes = plain
	}
	return p, nil
}

// What bodies are charged with, in bytes of memory for each byte.
const (
	readWeight     = 2    // while they are read into a buffer that grows
	templateWeight = 3    // where they are looked into: the parts, and the body that is sent
	maxInflation   = 1032 // how much gzip can compress
)

// weighed is a body whose bytes are charged as they arrive.
type weighed struct {
	io.Reader
	charge func(bytes int64) error
}

func (w weighed) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		if err := w.charge(readWeight * int64(n)); err != nil {
			return 0, err
		}
	}
	return n, err
}

// inflate decompresses a body, and no more of it than the limit.
func inflate(body []byte, limit int) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, errGzip
	}
	plain, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, errGzip
	}
	if len(plain) > limit {
		return nil, errInflated
	}
	return plain, nil
}

// readFault says why a caller's body did not come.
func readFault(err error) error {
	var known *fault.Fault
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errSlowBody
	}
	return errCutOff
}

// watched ends a body in which an expression turns up too late.
type watched struct {
	io.Reader
	scan scanner
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if w.scan.found(p[:n]) {
		return 0, errLate
	}
	return n, err
}
