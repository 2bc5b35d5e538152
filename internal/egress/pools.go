package egress

import (
	"net/http"
	"sync"
)

// maxPools bounds how many tenants keep idle connections at a time.
const maxPools = 256

// pools has a transport for each tenant that called lately, so that no
// connection, with the TLS session and the address behind it, serves two.
type pools struct {
	mu    sync.Mutex // guards what follows
	clock uint64     // rises with every use
	by    map[string]*pool
}

type pool struct {
	*http.Transport
	used uint64
}

// of returns the transport of a tenant. When there are too many, the one used
// longest ago lets its idle connections go; its requests under way finish.
func (p *pools) of(tenant string, make func() *http.Transport) *http.Transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clock++
	if found, ok := p.by[tenant]; ok {
		found.used = p.clock
		return found.Transport
	}
	if p.by == nil {
		p.by = map[string]*pool{}
	}
	if len(p.by) >= maxPools {
		oldest := ""
		for name, candidate := range p.by {
			if oldest == "" || candidate.used < p.by[oldest].used {
				oldest = name
			}
		}
		go p.by[oldest].CloseIdleConnections() // says goodbye on each, which may take seconds
		delete(p.by, oldest)
	}
	made := &pool{make(), p.clock}
	p.by[tenant] = made
	return made.Transport
}

func (p *pools) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pool := range p.by {
		pool.CloseIdleConnections()
	}
	clear(p.by)
}
