package sandbox

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// probeSource tries from inside what must not work, and returns what did.
//
//go:embed probe.js
var probeSource string

const probeWait = 15 * time.Second

// probe finds the best level that this machine allows, and refuses when that is
// less than what is acceptable.
func (s *Sandbox) probe(ctx context.Context, best Level) error {
	var missing error
	for level := best; level <= s.settings.Level; level++ {
		if s.level = level; level == UnsafeNone {
			s.settings.Log.Warn("code of tenants runs WITHOUT a sandbox: it can read all that this server can read", "level", level.String(), "missing", missing)
		}
		err := s.try(ctx)
		if err == nil {
			if level != UnsafeNone {
				s.settings.Log.Info("code of tenants runs in sandboxes", "level", level.String(), "landlock", landlockVersion(), "jit", s.settings.JIT)
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if missing == nil {
			missing = fmt.Errorf("level %s: %w", level, err)
		} else {
			missing = fmt.Errorf("%w; level %s: %w", missing, level, err)
		}
	}
	return fmt.Errorf("code of tenants cannot be sandboxed well enough on this machine: %w", missing)
}

// try starts one process at the level, and has it attack its walls.
func (s *Sandbox) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	p, err := s.startProcess(ctx, s.level)
	if err != nil {
		return err
	}
	defer func() {
		p.kill()
		<-p.dead
	}()
	program := Program{Tenant: "probe", ID: "probe", Version: "1", Sources: map[string]string{"main": probeSource}}
	if err := p.bind(program); err != nil {
		return err
	}
	input := fmt.Appendf(nil, `{"args":{"level":%q,"jit":%t}}`, s.level, s.settings.JIT)
	out, _, err := p.call(ctx, Call{Entry: "main", Input: input})
	if err != nil {
		return err
	}
	var open []string
	if out.Thrown != nil || json.Unmarshal(out.Value, &open) != nil {
		return errors.New("the self-test failed")
	}
	if len(open) > 0 {
		return fmt.Errorf("the self-test found a gap: %s", open[0])
	}
	return nil
}
