package egresstest

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Names is a name server on loopback. It answers with what a test gave it,
// over UDP, to the real resolver, with answers that last no second.
type Names struct {
	conn net.PacketConn

	mu      sync.Mutex // guards what follows
	answers map[string][]Answer
	asked   map[string]int // look-ups by name; those of IPv6 addresses under six and the name
}

const six = "6 "

// Answer is what one look-up of a name gets: an alias to follow, or addresses.
type Answer struct {
	Alias     string
	Addresses []string
}

// NewNames starts a name server that knows no name.
func NewNames(t testing.TB) *Names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	n := &Names{conn: conn, answers: make(map[string][]Answer), asked: make(map[string]int)}
	go n.serve()
	return n
}

// Set gives the answers of a name, one for each look-up in turn; the last one
// stays. Look-ups are counted anew.
func (n *Names) Set(name string, answers ...Answer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name = absolute(name)
	n.answers[name] = answers
	delete(n.asked, name)
	delete(n.asked, six+name)
}

// SetAll gives the answers of a row.
func (n *Names) SetAll(answers map[string][]Answer) {
	for name, list := range answers {
		n.Set(name, list...)
	}
}

// Asked returns how often a name was looked up.
func (n *Names) Asked(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[absolute(name)]
}

// Resolver asks this name server and no other.
func (n *Names) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

func absolute(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".") + ".") }

func (n *Names) serve() {
	buffer := make([]byte, 4096)
	for {
		size, from, err := n.conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		var question dnsmessage.Message
		if question.Unpack(buffer[:size]) != nil || len(question.Questions) != 1 {
			continue
		}
		if answer, err := n.answer(question).Pack(); err == nil {
			_, _ = n.conn.WriteTo(answer, from)
		}
	}
}

func (n *Names) answer(m dnsmessage.Message) *dnsmessage.Message {
	q := m.Questions[0]
	reply := &dnsmessage.Message{
		Header:    dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionDesired: m.RecursionDesired, RecursionAvailable: true},
		Questions: m.Questions,
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	name := absolute(q.Name.String())
	turn := n.turn(name, q.Type)
	for hop := 0; hop < 16; hop++ {
		list := n.answers[name]
		if len(list) == 0 {
			if hop == 0 {
				reply.RCode = dnsmessage.RCodeNameError
			}
			return reply
		}
		a := list[min(turn, len(list)-1)]
		header := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET}
		if a.Alias == "" {
			for _, text := range a.Addresses {
				reply.Answers = append(reply.Answers, record(header, netip.MustParseAddr(text), q.Type)...)
			}
			return reply
		}
		reply.Answers = append(reply.Answers, dnsmessage.Resource{
			Header: header, Body: &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(absolute(a.Alias))},
		})
		name = absolute(a.Alias)
	}
	return reply
}

// turn counts look-ups. The two questions of one look-up, for IPv4 and IPv6,
// come in either order and get the same turn.
func (n *Names) turn(name string, kind dnsmessage.Type) int {
	if kind != dnsmessage.TypeA {
		name = six + name
	}
	n.asked[name]++
	return n.asked[name] - 1
}

func record(h dnsmessage.ResourceHeader, a netip.Addr, kind dnsmessage.Type) []dnsmessage.Resource {
	switch {
	case kind == dnsmessage.TypeA && a.Is4():
		return []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AResource{A: a.As4()}}}
	case kind == dnsmessage.TypeAAAA && a.Is6():
		return []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}}}
	}
	return nil
}
