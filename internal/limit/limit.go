// Package limit counts how often callers reach the limits that keep one tenant,
// key or request from taking the server from the others.
//
// It promises that every limit of that kind has a row in All. It enforces
// nothing, and it never stores who reached a limit or what was sent.
package limit

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Name identifies a limit in metrics, in the status of a server and in docs/limits.md.
type Name string

// The limits.
const (
	Expressions        Name = "expressions"
	Evaluations        Name = "evaluations"
	RequestMemory      Name = "request_memory"
	Connections        Name = "connections"
	AddressConnections Name = "address_connections"
	RequestRate        Name = "request_rate"
	TokenRate          Name = "token_rate"
	KeyTokenRate       Name = "key_token_rate"
	WriterTurn         Name = "writer_turn"
	SandboxShare       Name = "sandbox_share"
	SandboxConnections Name = "sandbox_connections"
	QueuedJobs         Name = "queued_jobs"
	Containers         Name = "containers"
	LogStreams         Name = "log_streams"
)

// Row describes one limit for an operator.
type Row struct {
	Name    Name
	Reached string // what reaching it means
	Do      string // what an operator can do about it
}

// All lists every limit that is counted.
var All = []Row{
	{Expressions, "an expression needed more steps or memory than one request may use", "look for the route in the request log; raise limits.expression_steps or limits.expression_memory if the expressions are legitimate"},
	{Evaluations, "expressions or lists of one tenant waited because the tenant had its share of the processors", "look for a tenant with large expressions or thousands of containers; add processors, or a node"},
	{RequestMemory, "requests in flight needed more memory than the server may use for them", "add memory and raise limits.request_memory, or add a node"},
	{Connections, "more clients connected than the server accepts", "raise limits.connections, or add a node"},
	{AddressConnections, "one address opened more connections than it may", "raise limits.connections_per_address if the address is a proxy of yours, and list it in trusted_proxies"},
	{RequestRate, "a key or an address sent more requests than its rate limit", "raise rate_limit settings if the caller is legitimate"},
	{TokenRate, "a public key or a session accessed more tokens from one address than its rate limit", "raise rate_limit settings if the caller is legitimate"},
	{KeyTokenRate, "all callers of a public key together accessed more tokens than its ceiling", "look for addresses that test cards; raise rate_limit settings if the traffic is legitimate"},
	{WriterTurn, "one tenant waited for its next turn to write because others were waiting", "look for a tenant that writes in bulk"},
	{SandboxShare, "code of one tenant waited because others needed the sandbox", "raise sandbox settings, or add a node"},
	{SandboxConnections, "code tried to open more connections than one run may", "look for the reactor in the request log"},
	{QueuedJobs, "a tenant queued more asynchronous runs than it may", "raise limits.queued_jobs, or add a node"},
	{Containers, "a tenant created more distinct containers than it may", "raise limits.containers, or ask the tenant to use metadata instead"},
	{LogStreams, "a tenant opened more streams of its log than it may", "look for clients that open streams and do not close them"},
}

// Reached is how often a limit was reached within the last hour.
type Reached struct {
	Name  Name      `json:"name"`
	Count int       `json:"count"`
	Last  time.Time `json:"last"`
}

// The last hour is counted in slots of five minutes.
const (
	slot  = 5 * time.Minute
	slots = 12
)

// Recorder counts. A nil Recorder counts nothing.
type Recorder struct {
	now   func() time.Time
	total *prometheus.CounterVec
	tell  func(tenant string, n Name)

	mu     sync.Mutex // guards recent
	recent map[Name]*history
}

type history struct {
	last   time.Time
	counts map[int64]int // by the number of the slot since 1970
}

// NewRecorder returns a Recorder whose totals are the metric
// tokenkeep_limit_reached_total.
func NewRecorder(now func() time.Time, metrics prometheus.Registerer) *Recorder {
	r := &Recorder{now: now, recent: make(map[Name]*history), total: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tokenkeep_limit_reached_total", Help: "How often a caller reached a limit, by the name of the limit in docs/limits.md.",
	}, []string{"limit"})}
	metrics.MustRegister(r.total)
	for _, row := range All { // so that an alert on the increase sees the first one
		r.total.WithLabelValues(string(row.Name))
	}
	return r
}

// Tell sets what ReachedBy calls. It is set once, before the Recorder is used.
func (r *Recorder) Tell(tell func(tenant string, n Name)) { r.tell = tell }

// ReachedBy is Reached for a limit that is a tenant's own, of which the tenant is told.
func (r *Recorder) ReachedBy(tenant string, n Name) {
	r.Reached(n)
	if r != nil && r.tell != nil {
		r.tell(tenant, n)
	}
}

// Reached counts one request, connection or turn that reached the limit.
func (r *Recorder) Reached(n Name) {
	if r == nil {
		return
	}
	r.total.WithLabelValues(string(n)).Inc()
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.recent[n]
	if h == nil {
		h = &history{counts: make(map[int64]int)}
		r.recent[n] = h
	}
	h.last = now
	h.counts[slotOf(now)]++
	h.forget(now)
}

// LastHour returns the limits that were reached within the last hour, in the
// order of All.
func (r *Recorder) LastHour() []Reached {
	if r == nil {
		return nil
	}
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	var reached []Reached
	for _, row := range All {
		h := r.recent[row.Name]
		if h == nil {
			continue
		}
		h.forget(now)
		count := 0
		for _, n := range h.counts {
			count += n
		}
		if count > 0 {
			reached = append(reached, Reached{row.Name, count, h.last.UTC()})
		}
	}
	return reached
}

// Find returns the row of a limit.
func Find(n Name) (Row, bool) {
	i := slices.IndexFunc(All, func(row Row) bool { return row.Name == n })
	if i < 0 {
		return Row{}, false
	}
	return All[i], true
}

// forget removes the slots that are over an hour old.
func (h *history) forget(now time.Time) {
	for s := range h.counts {
		if s <= slotOf(now)-slots {
			delete(h.counts, s)
		}
	}
}

func slotOf(t time.Time) int64 { return t.Unix() / int64(slot/time.Second) }
