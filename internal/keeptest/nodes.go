package keeptest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/server"
)

// nodesVariable makes an installation of every server that tests start on
// PostgreSQL: "2" is two servers over one database, the second of a release
// that has changed the schema since. Each request goes to one of them by
// chance. Tests that bring a database or a listener of their own choose their
// nodes themselves.
const nodesVariable = "KEEPTEST_NODES"

// seedVariable repeats the choices of a run that failed.
const seedVariable = "KEEPTEST_SEED"

// node is one process of an installation, but for the process.
type node struct {
	*server.Server
	operator *admin.Client
	cancel   context.CancelFunc
	done     chan error
}

// run serves until stop.
func run(s *server.Server, data string) *node {
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{Server: s, operator: admin.NewClient(data), cancel: cancel, done: make(chan error, 1)}
	go func() { n.done <- s.Run(ctx) }()
	return n
}

func (n *node) stop() error {
	n.cancel()
	return <-n.done
}

// chance chooses a node for every request.
type chance struct {
	seed uint64

	mu    sync.Mutex // guards rand
	rand  *rand.Rand
	nodes int
}

func newChance(t testing.TB, nodes int) *chance {
	t.Helper()
	c := &chance{seed: rand.Uint64(), nodes: nodes}
	if text := os.Getenv(seedVariable); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s is no number: %v", seedVariable, err)
		}
		c.seed = seed
	}
	c.rand = rand.New(rand.NewPCG(c.seed, 0))
	return c
}

func (c *chance) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rand.IntN(c.nodes)
}

// balancer sends each request to a node by chance, whatever node it names.
type balancer struct {
	http.RoundTripper
	chance *chance
	hosts  []string
}

func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = b.hosts[b.chance.next()]
	return b.RoundTripper.RoundTrip(r)
}

// client calls the nodes, one by chance for each request.
func client(t testing.TB, nodes []*node, c *chance) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	out := &http.Client{Transport: transport}
	if len(nodes) > 1 {
		b := &balancer{RoundTripper: transport, chance: c}
		for _, n := range nodes {
			_, host, _ := strings.Cut(n.BaseURL(), "://")
			b.hosts = append(b.hosts, host)
		}
		out.Transport = b
	}
	return out
}

// Metrics returns what the metrics of every node say.
func (s *Server) Metrics(t testing.TB) string {
	t.Helper()
	var text strings.Builder
	for _, n := range s.nodes {
		response, err := http.Get(n.BaseURL() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(&text, response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}
