package sandbox

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of what one process may hold open.
const (
	maxConnections = 32 // to destinations
	maxStreams     = maxConnections + 16
	maxDials       = 8   // at once
	perSecond      = 500 // connects, and questions, before they are slowed down
	slowDown       = 2 * time.Millisecond
	dialWait       = 8 * time.Second
	purposeWait    = 5 * time.Second
	ticketWait     = 10 * time.Second
	halfCloseWait  = 30 * time.Second
	maxQuestion    = 4096
	maxHost        = 253
	purposeSize    = 17
)

// network serves the connections of one process. What a connection is for, its
// first bytes say: asking for destinations, taking one that was dialled, or
// calling the handler of the call that runs.
type network struct {
	dial    func(ctx context.Context, tenant, host string, port int) (net.Conn, error) // nil refuses all
	ctx     context.Context                                                            // ends with the process
	reached func(Bound)

	mu      sync.Mutex // guards what follows
	tenant  string     // whose code it is; "" before there is any
	streams int
	dialled int                 // connections to destinations, and those being made
	tickets map[string]net.Conn // dialled, and not yet taken
	service *service            // of the call that runs
}

// bind says whose code it is, before there is any.
func (n *network) bind(tenant string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tenant = tenant
}

// pace slows down who asks too often: answering costs the server time.
type pace struct {
	second int64
	asked  int
}

func (p *pace) step() {
	now := time.Now().Unix()
	if p.second != now {
		p.second, p.asked = now, 0
	}
	if p.asked++; p.asked > perSecond {
		time.Sleep(slowDown)
	}
}

// admit makes room for one more stream; nil when there is none.
func (n *network) admit() func(net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.streams >= maxStreams {
		n.reached(Connections)
		return nil
	}
	n.streams++
	return func(c net.Conn) {
		go func() {
			if c != nil {
				n.serve(c)
			}
			n.mu.Lock()
			n.streams--
			n.mu.Unlock()
		}()
	}
}

func (n *network) serve(c net.Conn) {
	defer c.Close()
	defer context.AfterFunc(n.ctx, func() { _ = c.Close() })()
	purpose := make([]byte, purposeSize)
	_ = c.SetReadDeadline(time.Now().Add(purposeWait))
	// The first byte alone first: libc, looking for services of its own, would
	// otherwise wait for an answer that never comes.
	if _, err := io.ReadFull(c, purpose[:1]); err != nil {
		return
	}
	switch purpose[0] {
	case 'A', 'C', 'T':
	default:
		return
	}
	if _, err := io.ReadFull(c, purpose[1:]); err != nil {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	switch purpose[0] {
	case 'A':
		n.mu.Lock()
		s := n.service
		n.mu.Unlock()
		if s != nil {
			s.serve(c)
		}
	case 'C':
		n.answer(c)
	case 'T':
		n.mu.Lock()
		remote := n.tickets[string(purpose)]
		delete(n.tickets, string(purpose))
		n.mu.Unlock()
		if remote != nil {
			n.join(c, remote)
		}
	}
}

// question asks for a destination.
type question struct {
	ID   int64  `json:"id"`
	Host string `json:"host"`
	Port int    `json:"port"`
}

// told is the answer: a ticket, or why there is none.
type told struct {
	ID      int64  `json:"id"`
	Code    string `json:"code,omitempty"`
	Ticket  string `json:"ticket,omitempty"`
	Address string `json:"address,omitempty"`
}

func (n *network) answer(c net.Conn) {
	var writing sync.Mutex
	var dialling sync.WaitGroup
	defer dialling.Wait()
	turns := make(chan struct{}, maxDials)
	lines := bufio.NewScanner(c)
	lines.Buffer(make([]byte, maxQuestion), maxQuestion)
	var questions pace
	for lines.Scan() {
		questions.step()
		var q question
		if json.Unmarshal(lines.Bytes(), &q) != nil {
			return
		}
		turns <- struct{}{}
		dialling.Go(func() {
			defer func() { <-turns }()
			text, err := json.Marshal(n.open(q))
			if err != nil {
				return
			}
			writing.Lock()
			defer writing.Unlock()
			_ = c.SetWriteDeadline(time.Now().Add(purposeWait))
			_, _ = c.Write(append(text, '\n'))
		})
	}
}

// open dials and leaves the connection under a ticket.
func (n *network) open(q question) told {
	if q.Host == "" || len(q.Host) > maxHost || q.Port < 1 || q.Port > 65535 {
		return told{ID: q.ID, Code: "EINVAL"}
	}
	n.mu.Lock()
	tenant := n.tenant
	full := n.dialled >= maxConnections
	if !full {
		n.dialled++
	}
	n.mu.Unlock()
	if full {
		n.reached(Connections)
		return told{ID: q.ID, Code: "EMFILE"}
	}
	ctx, cancel := context.WithTimeout(n.ctx, dialWait)
	defer cancel()
	var remote net.Conn
	var err error = refusedDial{}
	if n.dial != nil && tenant != "" {
		remote, err = n.dial(ctx, tenant, q.Host, q.Port)
	}
	if err != nil {
		n.done()
		return told{ID: q.ID, Code: errnoOf(ctx, err)}
	}
	random := make([]byte, (purposeSize-1)/2)
	_, _ = rand.Read(random)
	ticket := "T" + hex.EncodeToString(random)
	n.mu.Lock()
	n.tickets[ticket] = remote
	n.mu.Unlock()
	forget := func() {
		n.mu.Lock()
		_, there := n.tickets[ticket]
		delete(n.tickets, ticket)
		n.mu.Unlock()
		if there {
			_ = remote.Close()
			n.done()
		}
	}
	stop := context.AfterFunc(n.ctx, forget)
	time.AfterFunc(ticketWait, func() {
		stop()
		forget()
	})
	address, _, _ := net.SplitHostPort(remote.RemoteAddr().String())
	return told{ID: q.ID, Ticket: ticket, Address: address}
}

// refusedDial is the error where there is no way out.
type refusedDial struct{}

func (refusedDial) Error() string { return "connections are refused" }
func (refusedDial) Errno() string { return "EACCES" }

func (n *network) done() {
	n.mu.Lock()
	n.dialled--
	n.mu.Unlock()
}

// join carries bytes both ways until both sides are through.
func (n *network) join(c, remote net.Conn) {
	defer n.done()
	defer remote.Close()
	defer context.AfterFunc(n.ctx, func() { _ = remote.Close() })()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(remote, c)
		closeWrite(remote)
		_ = remote.SetReadDeadline(time.Now().Add(halfCloseWait))
	})
	_, _ = io.Copy(c, remote)
	closeWrite(c)
	_ = c.SetReadDeadline(time.Now().Add(halfCloseWait))
	both.Wait()
}

func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// errnos are what a program may be told of a connection that was not made.
var errnos = map[string]bool{
	"EACCES": true, "ECONNREFUSED": true, "ECONNRESET": true, "EHOSTUNREACH": true, "EMFILE": true, "ENETUNREACH": true,
	"ENOTFOUND": true, "EAI_AGAIN": true, "ETIMEDOUT": true,
}

func errnoOf(ctx context.Context, err error) string {
	var named interface{ Errno() string }
	switch {
	case errors.As(err, &named) && errnos[named.Errno()]:
		return named.Errno()
	case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		return "ETIMEDOUT"
	}
	return "ECONNREFUSED"
}

// service answers the calls that code makes with req.bt, while its call runs.
type service struct {
	server *http.Server
	conns  *oneByOne
	cancel context.CancelFunc
	calls  chan struct{} // has a place for each call that may be under way

	mu      sync.Mutex // guards over, and running against a late start
	over    bool
	running sync.WaitGroup
}

// begin lets code call a handler; a nil one lets it call nothing.
func (n *network) begin(ctx context.Context, h http.Handler) {
	if h == nil {
		return
	}
	s := &service{conns: &oneByOne{next: make(chan net.Conn), closed: make(chan struct{})}, calls: make(chan struct{}, fanOut)}
	ctx, s.cancel = context.WithCancel(ctx)
	bounded := http.MaxBytesHandler(h, maxInput)
	s.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			over := s.over
			if !over {
				s.running.Add(1)
			}
			s.mu.Unlock()
			if over {
				return
			}
			defer s.running.Done()
			// The runtime keeps to this bound by itself; code need not.
			select {
			case s.calls <- struct{}{}:
				defer func() { <-s.calls }()
			case <-r.Context().Done():
				return
			}
			bounded.ServeHTTP(w, r)
		}),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: purposeWait,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	n.mu.Lock()
	n.service = s
	n.mu.Unlock()
}

// end closes what the call had open, and waits for the handler to return.
func (n *network) end() {
	n.mu.Lock()
	s := n.service
	n.service = nil
	n.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.cancel()
	_ = s.conns.Close()
	_ = s.server.Close()
	s.running.Wait()
}

// serve hands a connection to the server and waits until it is closed.
func (s *service) serve(c net.Conn) {
	s.conns.once.Do(func() { go func() { _ = s.server.Serve(s.conns) }() })
	closed := make(chan struct{})
	select {
	case s.conns.next <- &watched{Conn: c, closed: closed}:
		<-closed
	case <-s.conns.closed:
	}
}

// oneByOne is a listener over connections that were made elsewhere.
type oneByOne struct {
	next     chan net.Conn
	closed   chan struct{}
	once     sync.Once // starts the server
	shutting sync.Once
}

func (l *oneByOne) Accept() (net.Conn, error) {
	select {
	case c := <-l.next:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneByOne) Close() error {
	l.shutting.Do(func() { close(l.closed) })
	return nil
}

func (l *oneByOne) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// watched tells when the server closed a connection.
type watched struct {
	net.Conn
	closed chan struct{}
	once   sync.Once
}

func (w *watched) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}
