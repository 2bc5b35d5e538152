package failover_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
)

// fault is what goes wrong on a line. The zero value is nothing.
type fault struct {
	delay  time.Duration // how much later every piece comes
	cut    float64       // how likely a connection ends in the middle of a piece
	lost   float64       // how likely the answer to a commit gets lost, and the connection with it
	reset  bool          // connections that end, end with a reset and not with a farewell
	refuse bool          // new connections are turned away
	silent bool          // nothing comes through, and connections of this time stay silent
}

// line stands between servers and their database, and has faults.
type line struct {
	listener net.Listener
	ended    sync.WaitGroup

	mu     sync.Mutex // guards what follows
	socket string     // of the database
	fault  fault
	open   map[*connection]bool
	broken int // connections that a fault ended
	met    int // pieces that a fault met, and connections that it turned away
}

type connection struct {
	client, database net.Conn
	silent           bool // guarded by the line's mu
}

func newLine(t *testing.T, c *pgtest.Cluster) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{listener: listener, open: map[*connection]bool{}}
	l.lead(c)
	l.ended.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			l.ended.Go(func() { l.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.breakAll()
		l.ended.Wait()
	})
	return l
}

// url returns the URL of the database over lines, for a server that may use
// whichever leads to one that takes changes.
func url(database string, lines ...*line) string {
	var hosts []string
	for _, l := range lines {
		hosts = append(hosts, l.listener.Addr().String())
	}
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable&target_session_attrs=read-write", strings.Join(hosts, ","), database)
}

// lead makes the line lead to a cluster.
func (l *line) lead(c *pgtest.Cluster) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.socket = filepath.Join(c.Folder(), ".s.PGSQL.5432")
}

// set makes a fault begin, or end.
func (l *line) set(f fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = f
	for c := range l.open {
		c.silent = c.silent || f.silent
	}
}

// breakAll ends every connection.
func (l *line) breakAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		l.end(c)
	}
}

// count returns how many connections faults have ended so far, and how many
// pieces and new connections they met.
func (l *line) count() (broken, met int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken, l.met
}

// end ends a connection, as the fault has it. The caller holds mu.
func (l *line) end(c *connection) {
	if tcp, ok := c.client.(*net.TCPConn); ok && l.fault.reset {
		_ = tcp.SetLinger(0)
	}
	_ = c.client.Close()
	if c.database != nil {
		_ = c.database.Close()
	}
	delete(l.open, c)
}

func (l *line) serve(client net.Conn) {
	c := &connection{client: client}
	l.mu.Lock()
	f, socket := l.fault, l.socket
	c.silent = f.silent
	l.open[c] = true
	if f.refuse {
		l.met++
	}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.end(c)
	}()
	if f.refuse {
		return
	}
	database, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	l.mu.Lock()
	c.database = database
	l.mu.Unlock()
	l.ended.Go(func() { l.carry(c, database, client, true) })
	l.carry(c, client, database, false)
}

// carry takes pieces from one end to the other until either is gone.
func (l *line) carry(c *connection, from, to net.Conn, answers bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		piece, delay, over := l.meet(c, buf[:n], answers)
		if delay > 0 && n > 0 {
			time.Sleep(delay)
		}
		if len(piece) > 0 {
			if _, err := to.Write(piece); err != nil {
				over = true
			}
		}
		if over || err != nil && !l.isSilent(c) {
			l.mu.Lock()
			l.end(c)
			l.mu.Unlock()
		}
		if over || err != nil {
			return
		}
	}
}

func (l *line) isSilent(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.silent
}

// meet says what comes through of a piece, how late, and whether the
// connection is over.
func (l *line) meet(c *connection, piece []byte, answers bool) (through []byte, delay time.Duration, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch f := l.fault; {
	case c.silent:
		if f.silent && len(piece) > 0 {
			l.met++
		}
		return nil, 0, false
	case answers && f.lost > 0 && bytes.Contains(piece, []byte("COMMIT\x00")) && rand.Float64() < f.lost:
		l.broken++
		l.met++
		return nil, 0, true
	case f.cut > 0 && rand.Float64() < f.cut:
		l.broken++
		l.met++
		return piece[:len(piece)/2], f.delay, true
	default:
		if f.delay > 0 && len(piece) > 0 {
			l.met++
		}
		return piece, f.delay, false
	}
}
