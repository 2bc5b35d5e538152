package httpapi

import (
	"context"
	"io"

	"github.com/tokenkeep/tokenkeep/internal/access"
)

// What requests are charged with, in bytes of memory. These are estimates on
// the high side: a body is read into a buffer that grows by doubling, copied,
// parsed, sealed for the store, and written into the response.
const (
	requestWeight = 16 << 10 // of any request: its goroutine, buffers and headers
	readWeight    = 2        // for each byte of a body, while it is read
	bodyWeight    = 4        // for each byte once it is whole
	valueWeight   = 128      // for each value of its JSON
)

// meter is the access.Meter of an exchange.
type meter struct{ x *exchange }

func (m meter) Tokens(n int) error { return m.x.limitTokens(n) }

func (m meter) Memory(tenant string, n int64) error { return m.x.hold.Grow(tenant, n) }

func (x *exchange) originOf() access.Origin {
	o := access.Origin{TraceID: x.trace, Address: x.client.String(), Meter: meter{x}}
	if x.acting != nil {
		o.Depth = x.acting.Origin().Depth
	}
	return o
}

// OriginOf returns where the request that ctx belongs to came from, for
// handlers that find their caller themselves. It is empty outside a request.
func OriginOf(ctx context.Context) access.Origin {
	if x := exchangeOf(ctx); x != nil {
		return x.originOf()
	}
	return access.Origin{}
}

// weighed is a body whose bytes are charged as they arrive, and not as they
// were announced: a client that announces much and sends nothing holds nothing.
type weighed struct {
	io.Reader
	x *exchange
}

func (w weighed) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		if err := w.x.hold.Grow(w.x.caller.Tenant(), readWeight*int64(n)); err != nil {
			return 0, err
		}
	}
	return n, err
}
