package egress

import (
	"sync"
	"time"
)

// patience calls a function when nothing happened for a while. It can be
// paused, and it ends when the answer begins.
type patience struct {
	span time.Duration

	mu    sync.Mutex // guards what follows
	timer *time.Timer
	ended bool
}

func newPatience(span time.Duration, lost func()) *patience {
	return &patience{span: span, timer: time.AfterFunc(span, lost)}
}

func (p *patience) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer.Stop()
}

// resume starts the whole span again.
func (p *patience) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.timer.Reset(p.span)
	}
}

func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.timer.Stop()
}
