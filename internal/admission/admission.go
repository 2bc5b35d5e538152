// Package admission bounds the memory that requests in flight use together.
//
// It promises that what requests hold never exceeds the bound, that a part of it
// is reserved for small requests, and that one tenant gets at most half of it. It
// never waits: a request that does not fit is refused at once, so requests that
// hold memory cannot block each other. It counts what its callers estimate, and
// measures nothing.
package admission

import (
	"sync"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/limit"
)

// Small is the most that a request may hold to count as small, in bytes.
const Small = 256 << 10

// The parts of a pool.
const (
	reservedPart = 8 // one in eight bytes is reserved for small requests
	tenantPart   = 2 // one tenant may use one in two
)

var (
	errFull   = fault.New(fault.Unavailable, "requests in flight use all memory that is set aside for them; see Retry-After").WithCode("request_memory").RetryAfter(2 * time.Second)
	errTenant = fault.New(fault.Unavailable, "requests of this tenant in flight use all memory that one tenant may use; see Retry-After").WithCode("tenant_request_memory").RetryAfter(2 * time.Second)
	errHeavy  = fault.New(fault.TooLarge, "the request needs more memory than one request may use; divide it").WithCode("request_too_heavy")
)

// Pool is the memory for requests in flight. A nil Pool bounds nothing.
type Pool struct {
	size   int64
	limits *limit.Recorder

	mu      sync.Mutex // guards all below, and the fields of each Hold
	used    int64
	peak    int64
	tenants map[string]int64
}

// NewPool returns a pool of so many bytes. Refusals are counted in limits.
func NewPool(size int64, limits *limit.Recorder) *Pool {
	return &Pool{size: size, limits: limits, tenants: make(map[string]int64)}
}

// Size returns the bytes of the pool.
func (p *Pool) Size() int64 { return p.size }

// Used returns the bytes that requests hold now.
func (p *Pool) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Peak returns the most bytes that requests ever held at once.
func (p *Pool) Peak() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peak
}

// Hold is what one request holds. The zero Hold, and a nil one, bound nothing.
type Hold struct {
	pool   *Pool
	tenant string
	held   int64
	closed bool
}

// Open returns a hold for one request, which holds nothing yet.
func (p *Pool) Open() *Hold { return &Hold{pool: p} }

// Grow takes n bytes more for a tenant, or returns a fault and takes nothing. A
// negative n gives bytes back. The first tenant that is not "" is charged with
// everything that the request holds. After Close, nothing is taken.
func (h *Hold) Grow(tenant string, n int64) error {
	if h == nil || h.pool == nil {
		return nil
	}
	p := h.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.closed {
		return nil // of work that outlasts its request
	}
	if h.tenant == "" && tenant != "" {
		h.tenant = tenant
		p.add(tenant, h.held)
	}
	n = max(n, -h.held)
	if n > 0 {
		if err := p.fits(h, n); err != nil {
			p.limits.Reached(limit.RequestMemory)
			return err
		}
	}
	h.held += n
	p.used += n
	p.peak = max(p.peak, p.used)
	p.add(h.tenant, n)
	return nil
}

// fits decides whether a request may take n bytes more.
func (p *Pool) fits(h *Hold, n int64) error {
	room := p.size
	if h.held+n > Small {
		room -= p.size / reservedPart
	}
	switch most := p.size / tenantPart; {
	case h.held+n > most:
		return errHeavy
	case p.used+n > room:
		return errFull
	case h.tenant != "" && p.tenants[h.tenant]+n > most:
		return errTenant
	}
	return nil
}

func (p *Pool) add(tenant string, n int64) {
	if tenant == "" {
		return
	}
	if p.tenants[tenant] += n; p.tenants[tenant] == 0 {
		delete(p.tenants, tenant)
	}
}

// Close gives everything back.
func (h *Hold) Close() {
	if h == nil || h.pool == nil {
		return
	}
	p := h.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= h.held
	p.add(h.tenant, -h.held)
	h.held, h.closed = 0, true
}
