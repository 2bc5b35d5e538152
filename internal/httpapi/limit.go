package httpapi

import (
	"container/list"
	"fmt"
	"hash/maphash"
	"math"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// RateLimits are the token buckets of callers. The zero value limits nothing.
type RateLimits struct {
	PerKey     Rate // of keys that are valid
	PerAddress Rate // of client addresses; the /64 network of IPv6 ones
}

// Rate is a token bucket. A PerSecond of 0 turns it off; a Burst of 0 is one
// second's worth.
type Rate struct {
	PerSecond float64
	Burst     int
}

// maxTracked bounds the buckets of one limit. When more callers come than
// that, those that were idle longest start anew with a full bucket.
const maxTracked = 1 << 16

var errTooMany = fault.New(fault.TooMany, "too many requests; see Retry-After")

type limits struct {
	seed    maphash.Seed
	key     *limit[uint64] // by a seeded hash: the key itself is not kept
	address *limit[netip.Prefix]
}

func newLimits(l RateLimits) limits {
	return limits{
		seed:    maphash.MakeSeed(),
		key:     newLimit[uint64]("key", l.PerKey),
		address: newLimit[netip.Prefix]("address", l.PerAddress),
	}
}

// limitAddress takes one request from the bucket of the client's address.
func (x *exchange) limitAddress() error {
	bits := 32
	if x.client.Is6() {
		bits = 64
	}
	network, _ := x.client.Prefix(bits) // of no address: one bucket for all such
	return take(x, x.handler.limits.address, network)
}

// limitKey takes one request from the bucket of a key that is valid, so that
// nobody fills the table with keys of their own making.
func (x *exchange) limitKey(key string) error {
	l := &x.handler.limits
	return take(x, l.key, maphash.String(l.seed, key))
}

// take takes one request from a bucket and writes down what is left.
func take[K comparable](x *exchange, l *limit[K], k K) error {
	if l == nil {
		return nil
	}
	allowed, left := l.take(k, x.handler.now())
	x.policies = append(x.policies, l.policy)
	x.quotas = append(x.quotas, fmt.Sprintf("%q;r=%d;t=%d", l.name, int(max(0, left)), ceilSeconds(l.refill(float64(l.burst)-left))))
	if allowed {
		return nil
	}
	x.handler.metrics.limited.WithLabelValues(l.name).Inc()
	return errTooMany.RetryAfter(l.refill(1 - left))
}

// limit is a table of buckets.
type limit[K comparable] struct {
	name   string
	policy string // the RateLimit-Policy item
	every  rate.Limit
	burst  int

	mu      sync.Mutex
	entries map[K]*list.Element
	recent  list.List // of *bucket[K], the last used first
}

type bucket[K comparable] struct {
	key     K
	limiter *rate.Limiter
}

// newLimit returns nil for a rate that is off.
func newLimit[K comparable](name string, r Rate) *limit[K] {
	if r.PerSecond <= 0 {
		return nil
	}
	if r.Burst <= 0 {
		r.Burst = int(math.Ceil(r.PerSecond))
	}
	l := &limit[K]{name: name, every: rate.Limit(r.PerSecond), burst: r.Burst, entries: make(map[K]*list.Element)}
	l.policy = fmt.Sprintf("%q;q=%d;w=%d", name, l.burst, max(1, ceilSeconds(l.refill(float64(l.burst)))))
	return l
}

// take reports whether k may go on, and what is left in its bucket.
func (l *limit[K]) take(k K, now time.Time) (allowed bool, left float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[k]
	if e == nil {
		if len(l.entries) >= maxTracked {
			oldest := l.recent.Back()
			delete(l.entries, oldest.Value.(*bucket[K]).key)
			l.recent.Remove(oldest)
		}
		e = l.recent.PushFront(&bucket[K]{k, rate.NewLimiter(l.every, l.burst)})
		l.entries[k] = e
	}
	l.recent.MoveToFront(e)
	limiter := e.Value.(*bucket[K]).limiter
	return limiter.AllowN(now, 1), limiter.TokensAt(now)
}

// refill returns how long the bucket takes to gain so many tokens.
func (l *limit[K]) refill(tokens float64) time.Duration {
	return time.Duration(math.Ceil(tokens / float64(l.every) * float64(time.Second)))
}
