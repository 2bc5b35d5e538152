// Package egresstest holds what everything that goes out to a tenant's
// destination is tested with: a corpus of destinations that must be refused, a
// name server with answers to order, and a witness of connections.
//
// It promises that a connection to the witness is seen before Connections
// returns, so that zero means zero. It never leaves loopback, and it never
// reads the rules that it tests: its ranges are written down on their own.
package egresstest

import (
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Witness counts connections: those that arrive at its listeners on loopback,
// and those that the code under test says it began, wherever they go.
type Witness struct {
	// Registry is for the metrics of the code under test, which count attempts.
	Registry *prometheus.Registry

	t         testing.TB
	listeners []net.Listener

	mu       sync.Mutex // guards what follows
	arrived  int
	knocking map[string]chan struct{} // our own connections, by their address
}

// NewWitness listens on 127.0.0.1 and, where the machine has it, on ::1, at
// the same port.
func NewWitness(t testing.TB) *Witness {
	t.Helper()
	w := &Witness{Registry: prometheus.NewRegistry(), t: t, knocking: make(map[string]chan struct{})}
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.watch(first)
	if second, err := net.Listen("tcp", net.JoinHostPort("::1", strconv.Itoa(int(w.Port())))); err == nil {
		w.watch(second)
	}
	return w
}

// Port is where the witness listens.
func (w *Witness) Port() uint16 {
	return w.listeners[0].Addr().(*net.TCPAddr).AddrPort().Port()
}

// Addr is the address on IPv4.
func (w *Witness) Addr() netip.AddrPort {
	return w.listeners[0].Addr().(*net.TCPAddr).AddrPort()
}

func (w *Witness) watch(l net.Listener) {
	w.listeners = append(w.listeners, l)
	w.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.mu.Lock()
			if seen, ours := w.knocking[c.RemoteAddr().String()]; ours {
				close(seen)
			} else {
				w.arrived++
			}
			w.mu.Unlock()
			_ = c.Close()
		}
	}()
}

// Connections returns how many connections arrived or were begun so far. It
// knocks on each listener and waits to be let in: whoever came before it was
// counted before it.
func (w *Witness) Connections() int {
	w.t.Helper()
	for _, l := range w.listeners {
		w.knock(l.Addr().String())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.arrived + w.attempts()
}

func (w *Witness) knock(address string) {
	seen := make(chan struct{})
	w.mu.Lock() // until our own address is known, nobody is let in
	c, err := net.Dial("tcp", address)
	if err != nil {
		w.mu.Unlock()
		w.t.Fatalf("knock on the witness: %v", err)
	}
	w.knocking[c.LocalAddr().String()] = seen
	w.mu.Unlock()
	<-seen
	_ = c.Close()
	w.mu.Lock()
	delete(w.knocking, c.LocalAddr().String())
	w.mu.Unlock()
}

func (w *Witness) attempts() int {
	families, err := w.Registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "tokenkeep_egress_connection_attempts_total" {
			return int(f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	return 0
}
