package accesstest

import (
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// Meter is an access.Meter that counts, and that refuses memory beyond Most.
type Meter struct {
	Most int64 // 0: everything is refused

	mu         sync.Mutex // guards all below
	tokens     int
	held, peak int64
}

// Tokens counts tokens.
func (m *Meter) Tokens(n int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens += n
	return nil
}

// Memory counts bytes.
func (m *Meter) Memory(_ string, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > 0 && m.held+n > m.Most {
		return fault.New(fault.Unavailable, "no memory")
	}
	m.held += n
	m.peak = max(m.peak, m.held)
	return nil
}

// Charged returns the tokens, the bytes that are held, and the most that ever were.
func (m *Meter) Charged() (tokens int, held, peak int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tokens, m.held, m.peak
}
