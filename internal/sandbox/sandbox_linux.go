package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// firstUser is the user of the first sandbox where the server is root. Those
// that follow are above it, and none of them may have anything on the machine.
const firstUser = 900_000

// Sandbox runs code. It is safe for concurrent use.
type Sandbox struct {
	settings Settings
	level    Level
	root     preparedRoot
	launcher *launcher
	slots    slots
	turns    *turns
	pool     pool
	metrics  *metrics
	closing  sync.Once
}

// New starts the launcher, prepares the root of sandboxes and tries out what
// this machine allows. It must be called early in the life of a server, in a
// binary whose main function calls Main. The error says in one sentence what is
// missing; less than Settings.Level is refused.
func New(ctx context.Context, settings Settings) (*Sandbox, error) {
	return newSandbox(ctx, settings, Full)
}

// newSandbox tries the levels from best on.
func newSandbox(ctx context.Context, settings Settings, best Level) (*Sandbox, error) {
	settings = settings.filled()
	root, err := prepareRoot(settings)
	if err != nil {
		return nil, err
	}
	node := []string{"--no-addons", "--no-warnings", fmt.Sprintf("--max-old-space-size=%d", settings.OldSpaceMiB)}
	if !settings.JIT {
		node = append(node, "--jitless")
	}
	s := &Sandbox{settings: settings, root: root, launcher: &launcher{plan: plan{
		Root: root.folder, Libraries: root.libraries, Node: node, DataMiB: settings.DataMiB, JIT: settings.JIT, FirstUser: firstUser,
		HeaderPrefix: settings.HeaderPrefix,
	}}}
	s.pool.busy = make(map[*process]bool)
	s.turns = newTurns(settings)
	s.pool.more = sync.NewCond(&s.pool.mu)
	if err := s.probe(ctx, best); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.metrics = newMetrics(s, settings.Metrics)
	background, stop := context.WithCancel(context.Background())
	s.pool.stop = stop
	for range starters {
		s.pool.done.Go(func() { s.keepStarting(background) })
	}
	s.pool.done.Go(func() { s.keepSweeping(background) })
	return s, nil
}

// Level tells what was reached.
func (s *Sandbox) Level() Level { return s.level }

// Close ends every process, running calls included.
func (s *Sandbox) Close() error {
	var err error
	s.closing.Do(func() { err = s.close() })
	return err
}

func (s *Sandbox) close() error {
	s.pool.mu.Lock()
	s.pool.closed = true
	s.pool.more.Broadcast()
	s.pool.mu.Unlock()
	s.turns.close()
	s.hand(fresh{err: ErrClosed})
	if s.pool.stop != nil {
		s.pool.stop()
		s.pool.done.Wait()
	}
	s.pool.mu.Lock()
	all := slices.Concat(s.pool.blank, s.pool.idle)
	for p := range s.pool.busy {
		all = append(all, p)
	}
	for _, p := range all {
		p.kill()
	}
	s.pool.mu.Unlock()
	patience := time.After(closeWait)
	for _, p := range all {
		select {
		case <-p.dead:
		case <-patience:
		}
	}
	s.launcher.mu.Lock()
	s.launcher.end()
	s.launcher.mu.Unlock()
	if err := s.root.remove(); err != nil {
		return fmt.Errorf("remove the root of sandboxes: %w", err)
	}
	return nil
}
