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

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/limit"
)

// RateLimits are the token buckets of callers. The zero value limits nothing.
type RateLimits struct {
	PerKey     Rate // of keys that are valid
	PerAddress Rate // of client addresses; the /64 network of IPv6 ones
	// PublicRequests and PublicTokens are for a public key or a session together
	// with a client address: requests, and tokens that they access.
	PublicRequests, PublicTokens Rate
	// PublicKeyTokens is a ceiling on the tokens that all callers of a public key
	// access together. Anyone can use that key, so the busiest addresses are
	// refused first; without PublicTokens nobody knows which these are.
	PublicKeyTokens Rate
}

// Rate is a token bucket. A PerSecond of 0 turns it off; a Burst of 0 is one
// second's worth.
type Rate struct {
	PerSecond float64
	Burst     int
}

// maxTracked bounds the buckets of one limit. When more callers come than
// that, those that were idle longest start again with a full bucket.
const maxTracked = 1 << 16

var (
	errTooMany       = fault.New(fault.TooMany, "too many requests; see Retry-After").WithCode("request_rate")
	errTooManyTokens = fault.New(fault.TooMany, "too many tokens accessed; see Retry-After").WithCode("token_rate")
	errKeyTokens     = fault.New(fault.TooMany, "the callers of this key together access too many tokens; see Retry-After").WithCode("key_token_rate")
)

// client is a public key or a session together with a network.
type client struct {
	key     uint64
	network netip.Prefix
}

type limits struct {
	seed     maphash.Seed
	key      *buckets[uint64] // by a seeded hash: the key itself is not kept
	address  *buckets[netip.Prefix]
	requests *buckets[client]

	shared    sync.Mutex // held while tokens and keyTokens are compared and taken from
	tokens    *buckets[client]
	keyTokens *buckets[uint64]
}

func newLimits(l RateLimits) *limits {
	return &limits{
		seed:      maphash.MakeSeed(),
		key:       newBuckets[uint64]("key", l.PerKey),
		address:   newBuckets[netip.Prefix]("address", l.PerAddress),
		requests:  newBuckets[client]("requests", l.PublicRequests),
		tokens:    newBuckets[client]("tokens", l.PublicTokens),
		keyTokens: newBuckets[uint64]("key_tokens", l.PublicKeyTokens),
	}
}

// network is what of the client's address is counted: all of an IPv4 address,
// the /64 of an IPv6 one. Clients without an address are one network.
func (x *exchange) network() netip.Prefix {
	bits := 32
	if x.client.Is6() {
		bits = 64
	}
	p, _ := x.client.Prefix(bits)
	return p
}

// limitAddress takes one request from the bucket of the client's address.
func (x *exchange) limitAddress() error { return take(x, x.handler.limits.address, x.network()) }

// limitKey takes one request from the buckets of a key that is valid, so that
// nobody fills the table with keys of their own making.
func (x *exchange) limitKey(key string, c access.Caller) error {
	l := x.handler.limits
	hash := maphash.String(l.seed, key)
	if err := take(x, l.key, hash); err != nil {
		return err
	}
	public := c.ApplicationType() == access.Public
	if !public && c.Session() == "" {
		return nil
	}
	x.limited, x.public, x.limitedAs = true, public, client{hash, x.network()}
	if l.tokens != nil {
		x.showQuota(l.tokens.policy, l.tokens.quota(l.tokens.left(x.limitedAs, x.handler.now())))
	}
	return take(x, l.requests, x.limitedAs)
}

// take takes one request from a bucket and notes what is left for the response.
func take[K comparable](x *exchange, b *buckets[K], k K) error {
	if b == nil {
		return nil
	}
	allowed, left := b.take(k, 1, x.handler.now())
	x.showQuota(b.policy, b.quota(left))
	if allowed {
		return nil
	}
	return x.refuse(b.name, limit.RequestRate, errTooMany, b.refill(1-left))
}

// refuse counts a refusal by a rate limit and returns it.
func (x *exchange) refuse(name string, reached limit.Name, f *fault.Fault, wait time.Duration) error {
	x.handler.metrics.limited.WithLabelValues(name).Inc()
	x.handler.options.Limits.Reached(reached)
	return f.RetryAfter(max(wait, time.Second))
}

// limitTokens takes tokens from the buckets of a public key or a session: from
// both or from none.
func (x *exchange) limitTokens(n int) error {
	l := x.handler.limits
	if !x.limited {
		return nil
	}
	now := x.handler.now()
	l.shared.Lock()
	defer l.shared.Unlock()
	busy := 0.0 // the part of its burst that the address would have used
	if l.tokens != nil {
		n = min(n, l.tokens.burst)
		left := l.tokens.left(x.limitedAs, now)
		if left < float64(n) {
			x.showQuota(l.tokens.policy, l.tokens.quota(left))
			return x.refuse(l.tokens.name, limit.TokenRate, errTooManyTokens, l.tokens.refill(float64(n)-left))
		}
		busy = (float64(l.tokens.burst) - left + float64(n)) / float64(l.tokens.burst)
	}
	if l.keyTokens != nil && x.public {
		n := min(n, l.keyTokens.burst)
		left := l.keyTokens.left(x.limitedAs.key, now)
		if needed := max(float64(n), shedding(busy)*float64(l.keyTokens.burst)); left < needed {
			return x.refuse(l.keyTokens.name, limit.KeyTokenRate, errKeyTokens, l.keyTokens.refill(needed-left))
		}
		l.keyTokens.take(x.limitedAs.key, n, now)
	}
	if l.tokens != nil {
		_, left := l.tokens.take(x.limitedAs, n, now)
		x.showQuota(l.tokens.policy, l.tokens.quota(left))
	}
	return nil
}

// shedding returns the part of a key's bucket that must be left for an address
// which is that busy, from 0 to 1. While more than half is left, nobody is
// refused; the less there is, the calmer an address must be.
func shedding(busy float64) float64 { return busy / 2 }

// buckets is a table of token buckets.
type buckets[K comparable] struct {
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

// newBuckets returns nil for a rate that is off.
func newBuckets[K comparable](name string, r Rate) *buckets[K] {
	if r.PerSecond <= 0 {
		return nil
	}
	if r.Burst <= 0 {
		r.Burst = int(math.Ceil(r.PerSecond))
	}
	b := &buckets[K]{name: name, every: rate.Limit(r.PerSecond), burst: r.Burst, entries: make(map[K]*list.Element)}
	b.policy = fmt.Sprintf("%q;q=%d;w=%d", name, b.burst, max(1, ceilSeconds(b.refill(float64(b.burst)))))
	return b
}

// quota is the RateLimit item of a bucket.
func (b *buckets[K]) quota(left float64) string {
	return fmt.Sprintf("%q;r=%d;t=%d", b.name, int(max(0, left)), ceilSeconds(b.refill(float64(b.burst)-left)))
}

// take reports whether n could be taken from the bucket of k, and what is left
// in it.
func (b *buckets[K]) take(k K, n int, now time.Time) (allowed bool, left float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[k]
	if e == nil {
		if len(b.entries) >= maxTracked {
			oldest := b.recent.Back()
			delete(b.entries, oldest.Value.(*bucket[K]).key)
			b.recent.Remove(oldest)
		}
		e = b.recent.PushFront(&bucket[K]{k, rate.NewLimiter(b.every, b.burst)})
		b.entries[k] = e
	}
	b.recent.MoveToFront(e)
	limiter := e.Value.(*bucket[K]).limiter
	return limiter.AllowN(now, n), limiter.TokensAt(now)
}

// left returns what is left in the bucket of k, and makes none.
func (b *buckets[K]) left(k K, now time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[k]; e != nil {
		return e.Value.(*bucket[K]).limiter.TokensAt(now)
	}
	return float64(b.burst)
}

// refill returns how long a bucket takes to gain so many tokens.
func (b *buckets[K]) refill(tokens float64) time.Duration {
	return time.Duration(math.Ceil(tokens / float64(b.every) * float64(time.Second)))
}
