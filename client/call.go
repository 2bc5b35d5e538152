package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
)

// caller makes calls. The key lives inside a function value because printers
// that follow unexported fields and pointers by reflection stop there.
type caller struct {
	base        string
	prefix      string
	key         func() string // nil without a key
	http        http.Client
	roots       *x509.CertPool // nil for those of the machine
	retries     int
	maxResponse int64
	sleep       func(context.Context, time.Duration) error
	now         func() time.Time
}

// row is one operation of the API.
type row struct {
	method string
	path   string // with {names}, as it stands in errors
	media  string // of the body; "" is JSON
	// keyed rows are sent under an idempotency key.
	keyed bool
	// rows that run code of a tenant: it may have had effects before it failed.
	runs bool
	// rows that only read may be repeated, whatever their method.
	reads bool
	// open rows take no key and are tried once: they ask how the server is now.
	open bool
}

func (r row) String() string { return r.method + " " + r.path }

// request is one call of a row.
type request struct {
	row
	ids   []string // for the {names} of the path
	query url.Values
	in    any // nil for no body
	idem  string
	trace string // how the server names the call in its log; "" leaves that to the server
}

// CallOption changes one call.
type CallOption func(*request) error

// IdempotencyKey sets the key under which the server knows a call again. A
// client that sets none makes a fresh one for each call, which covers its own
// retries; whoever wants to try again later, or after a restart, sets one and
// keeps it. It must be of 1 to 200 visible ASCII characters. With the key of a
// public application, which many clients share, it must be random and of 22
// characters or more, such as a UUID, and the server refuses it with another
// body.
func IdempotencyKey(key string) CallOption {
	return func(r *request) error {
		if !isVisible(key) || len(key) > 200 {
			return fmt.Errorf("client: the idempotency key must be of 1 to 200 visible ASCII characters: %w", ErrInvalid)
		}
		r.idem = key
		return nil
	}
}

// AtMost asks a read, a list or a search of tokens for less than the rules
// allow: mask, or redact. It never shows more.
func AtMost(transform string) CallOption {
	return func(r *request) error {
		switch r.row {
		case getToken, listTokens, listTokensFrom, searchTokens, searchTokensFrom:
		default:
			return fmt.Errorf("client: only reads of tokens can ask for less: %w", ErrInvalid)
		}
		if r.query == nil {
			r.query = url.Values{}
		}
		r.query.Set("transform", transform)
		return nil
	}
}

// get calls a row and decodes its answer.
func get[T any](ctx context.Context, c *caller, r request, options ...CallOption) (out T, err error) {
	err = c.call(ctx, r, &out, options)
	return out, err
}

// call sends a request until it is answered, or trying again is no use. out
// is nil when no body is expected.
func (c *caller) call(ctx context.Context, r request, out any, options []CallOption) error {
	for _, o := range options {
		if err := o(&r); err != nil {
			return err
		}
	}
	address, err := c.address(r)
	if err != nil {
		return err
	}
	body, isLines := r.in.(Lines)
	if r.in != nil && !isLines {
		if body, err = json.Marshal(r.in); err != nil {
			// The error of the library may quote the value.
			return fmt.Errorf("client: %s: the request cannot be written as JSON: %w", r, ErrInvalid)
		}
	}
	if r.keyed && r.idem == "" {
		r.idem = newUUID()
	}
	for n := 0; ; n++ {
		err := c.try(ctx, r, address, body, out)
		wait, again := c.again(r, err, n)
		if !again {
			return err
		}
		if stopped := c.sleep(ctx, wait); stopped != nil {
			return fmt.Errorf("client: %w while waiting to try again after this: %w", stopped, err)
		}
	}
}

var errID = fmt.Errorf("client: an id is required, and it cannot be a dot or two: %w", ErrInvalid)

// address fills the ids into the path. An empty id, or one that servers on the
// way would take for a step in the path, would turn the call into another one.
func (c *caller) address(r request) (string, error) {
	segments := strings.Split(r.path, "/")
	ids := r.ids
	for i, s := range segments {
		if !strings.HasPrefix(s, "{") {
			continue
		}
		if ids[0] == "" || ids[0] == "." || ids[0] == ".." {
			return "", errID
		}
		segments[i], ids = url.PathEscape(ids[0]), ids[1:]
	}
	address := c.base + strings.Join(segments, "/")
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	return address, nil
}

// try sends a request once.
func (c *caller) try(ctx context.Context, r request, address string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, r.method, address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("client: %s: the request cannot be made", r)
	}
	req.Header.Set("Accept", api.MediaJSON)
	req.Header.Set("User-Agent", "tokenkeep-go")
	if body != nil {
		req.Header.Set("Content-Type", cmp.Or(r.media, api.MediaJSON))
	}
	if c.key != nil && !r.open {
		req.Header.Set(api.Header(c.prefix, api.APIKey), c.key())
	}
	if r.idem != "" {
		req.Header.Set(api.Header(c.prefix, api.IdempotencyKey), r.idem)
	}
	if r.trace != "" {
		req.Header.Set(api.Header(c.prefix, api.TraceID), r.trace)
	}
	got, err := c.send(r.row, req)
	if err != nil {
		return err
	}
	if got.status < 200 || got.status > 299 {
		return c.refused(r.row, got)
	}
	if out == nil {
		return nil
	}
	if results, isLines := out.(*[]api.ImportResult); isLines {
		return c.results(r, got, results)
	}
	media, _, _ := mime.ParseMediaType(got.header.Get("Content-Type"))
	if media != api.MediaJSON || json.Unmarshal(got.text, out) != nil {
		// The error of the library may quote the answer.
		return fmt.Errorf("client: %s: the answer is not understood", r)
	}
	return nil
}

// received is an answer that was read whole.
type received struct {
	status int
	header http.Header
	text   []byte
}

func (c *caller) send(r row, req *http.Request) (received, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return received{}, c.broken(req.Context(), r, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, c.maxResponse+1))
	if err != nil {
		return received{}, c.broken(req.Context(), r, err)
	}
	if int64(len(text)) > c.maxResponse {
		return received{}, fmt.Errorf("client: %s: the answer is larger than this client takes", r)
	}
	return received{resp.StatusCode, resp.Header, text}, nil
}

// broken says that there was no whole answer. What net/http wraps around the
// cause is dropped, because it repeats the address with its ids and filters.
func (c *caller) broken(ctx context.Context, r row, err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	if c.holdsKey(err.Error()) || quotes(err) {
		err = errWithheld
	}
	if ctx.Err() != nil {
		return fmt.Errorf("client: %s: %w", r, ctx.Err())
	}
	return &brokenError{row: r, cause: err}
}

var errWithheld = errors.New("the connection broke, or the answer is not HTTP")

// quotes reports whether the words of an error may repeat what the other side
// sent: net/http quotes what it cannot read, and that may be an answer.
func quotes(err error) bool {
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return false // names and reasons
	}
	var line textproto.ProtocolError
	return errors.As(err, &line) || strings.ContainsRune(err.Error(), '"')
}

// holdsKey reports whether the key is in a text that somebody else wrote.
func (c *caller) holdsKey(text string) bool {
	return c.key != nil && strings.Contains(text, c.key())
}

// newUUID returns a UUID of version 4. Its last group holds a letter: a server
// refuses a trace id whose digits could be a card number.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	b[10] |= 0xa0
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
