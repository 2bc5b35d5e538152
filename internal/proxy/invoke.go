package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

var (
	errMethod   = fault.New(fault.Invalid, "the method is not valid")
	errSilent   = fault.New(fault.BadGateway, "the destination fell silent in the middle of its answer")
	errSwitched = fault.New(fault.BadGateway, "the destination answered with another protocol")
)

// Answer is what a destination answered, after its transform.
type Answer struct {
	Status int
	Header http.Header   // without those that frame a message or are the service's own
	Body   io.ReadCloser // errors are faults
	Length int64         // -1 when it is not known
}

// Invoke forwards one call. The caller it returns is the one for the log, as
// far as it is known, whatever the error: a fault, or what a transform threw
// (*script.Thrown, *script.Custom). It sends one request, and none before every
// token of it is in the log.
func (s *Service) Invoke(ctx context.Context, in Incoming) (*Answer, access.Caller, error) {
	t, err := s.admit(ctx, in)
	if err != nil {
		return nil, t.caller, t.about(err)
	}
	out, err := s.prepare(ctx, in, &t)
	if err != nil {
		return nil, t.caller, t.about(err)
	}
	answer, err := s.send(ctx, &t, out)
	return answer, t.caller, err
}

// outgoing is a request that is ready to be sent, and what went into it.
type outgoing struct {
	method string
	url    *url.URL
	header http.Header
	body   payload
	used   *token.Used // nil for a preview
}

// prepare makes the outgoing request of a call: everything but sending it. For
// a preview it is the same request with masks and placeholders in place of
// values, as it is before its transform.
func (s *Service) prepare(ctx context.Context, in Incoming, t *target) (out outgoing, err error) {
	out.method, out.header = in.Method, s.forwarded(in)
	if out.url, err = address(t.destination, in.Path, t.query); err != nil {
		return out, err
	}
	shaped := t.code.request != nil
	if out.body, err = s.read(ctx, in, t, out.header, shaped); err != nil {
		return out, err
	}
	if err := s.detokenize(ctx, t, &out); err != nil {
		return out, err
	}
	if out.body.decoded {
		out.header.Del("Content-Encoding")
	}
	if shaped && t.viewer == nil {
		var args jsonvalue.Builder
		args.Add("method", jsonvalue.NewString(in.Method))
		args.Add("path", jsonvalue.NewString(in.Path))
		args.Add("query", jsonvalue.NewString(t.query))
		m, err := s.transform(ctx, t, t.code.request, message{out.header, out.body.bytes}, args.Value(), out.used)
		if err != nil {
			return out, err
		}
		out.header, out.body.bytes = m.header, m.body
	}
	if t.code.response != nil {
		// The answer is charged before the call is sent: afterwards it is too late
		// to refuse it.
		if err := t.caller.ChargeMemory(2 * readWeight * maxTransform); t.viewer == nil && err != nil {
			return out, err
		}
		out.header.Set("Accept-Encoding", "gzip") // what its code can be shown
	}
	return out, s.finish(out.header, in)
}

// detokenize puts the values of tokens into the body of a call.
func (s *Service) detokenize(ctx context.Context, t *target, out *outgoing) (err error) {
	var refs []expression.Reference
	if out.body.template != nil {
		refs = out.body.template.texts.IDs()
	}
	var lookup expression.Lookup
	if out.used, lookup, err = s.use(ctx, t, refs); err != nil {
		return err
	}
	if out.body.template != nil {
		if out.used != nil {
			out.used.Grow(out.body.template.texts.Budget)
		}
		out.body.bytes, err = out.body.template.fill(lookup, s.options.MaxBody, t.viewer != nil)
	}
	return err
}

// silence is how long a destination may pause in the middle of its answer.
const silence = 5 * time.Minute

// send sends a request and takes the answer. Where a connection had died before
// anything was sent on it, or method or caller say that once is as good as
// twice, it is sent on another.
func (s *Service) send(ctx context.Context, t *target, out outgoing) (_ *Answer, err error) {
	calling, cancel := context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			cancel(nil)
		}
	}()
	r, err := http.NewRequestWithContext(calling, out.method, "/", nil)
	if err != nil {
		return nil, errMethod
	}
	r.URL, r.Header = out.url, out.header
	source := &source{}
	switch {
	case out.body.stream != nil:
		source.Reader = out.body.stream
		r.Body, r.ContentLength = source, out.body.length
	case len(out.body.bytes) > 0:
		r.ContentLength = int64(len(out.body.bytes))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.body.bytes)), nil }
		r.Body, _ = r.GetBody()
	default:
		r.Body = http.NoBody
	}
	answer, err := s.destinations.Transport(t.tenant, s.options.FirstByte).RoundTrip(r)
	if failed := source.failed.Load(); err != nil && failed != nil {
		return nil, readFault(*failed) // the caller's body, not the destination
	}
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusSwitchingProtocols {
		_ = answer.Body.Close()
		return nil, errSwitched
	}
	got := &Answer{Status: answer.StatusCode, Header: s.pass(answer.Header), Length: answer.ContentLength}
	got.Body = &attentive{answer.Body, time.AfterFunc(silence, func() { cancel(errSilent) }), cancel}
	if t.code.response == nil {
		return got, nil
	}
	return s.shape(ctx, t, out, got)
}

// source is the body of a caller on its way out. It remembers why it ended,
// which errors of the way out do not tell.
type source struct {
	io.Reader
	failed atomic.Pointer[error]
}

func (b *source) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && err != io.EOF {
		b.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

func (b *source) Close() error { return nil }

// attentive is the body of an answer, whose request ends when it falls silent.
type attentive struct {
	io.ReadCloser
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func (b *attentive) Read(p []byte) (int, error) {
	b.timer.Reset(silence)
	return b.ReadCloser.Read(p)
}

func (b *attentive) Close() error {
	defer b.cancel(nil)
	b.timer.Stop()
	return b.ReadCloser.Close()
}

// shape runs the response transform on an answer.
func (s *Service) shape(ctx context.Context, t *target, out outgoing, a *Answer) (*Answer, error) {
	body, err := readAnswer(a)
	if err != nil {
		return nil, err
	}
	a.Header.Del("Content-Encoding")
	var args jsonvalue.Builder
	args.Add("status", jsonvalue.NewInt(int64(a.Status)))
	m, err := s.transform(ctx, t, t.code.response, message{a.Header, body}, args.Value(), out.used)
	if err != nil {
		return nil, err
	}
	if out.method == http.MethodHead || a.Status == http.StatusNoContent || a.Status == http.StatusNotModified {
		m.body = nil // where there is none
	}
	return &Answer{Status: a.Status, Header: m.header, Body: io.NopCloser(bytes.NewReader(m.body)), Length: int64(len(m.body))}, nil
}

// readAnswer reads an answer to its end, decompressed and under the bound.
func readAnswer(a *Answer) ([]byte, error) {
	defer func() { _ = a.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(a.Body, maxTransform+1))
	if err != nil {
		return nil, fmt.Errorf("read an answer: %w", err)
	}
	if len(body) > maxTransform {
		return nil, errAnswerSize
	}
	encoding := contentEncoding(a.Header)
	if encoding == "" || len(body) == 0 {
		return body, nil
	}
	if encoding != "gzip" {
		return nil, errEncoding
	}
	if body, err = inflate(body, maxTransform); errors.Is(err, errInflated) {
		return nil, errAnswerSize
	} else if err != nil {
		return nil, errEncoding
	}
	return body, nil
}
