package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/clock"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// machineClock is the machine's clock, whose jumps are doubted at first.
func machineClock(log *slog.Logger) *clock.Clock {
	begun := time.Now()
	return clock.New(time.Now, func() time.Duration { return time.Since(begun) }, func(jump time.Duration, believed bool) {
		if believed {
			log.Error("the clock jumped and has stayed there: it is followed", "by", jump)
			return
		}
		log.Error("the clock jumped: until it has stayed there for some minutes, time goes on as before", "by", jump)
	})
}

// lastSeen names the setting that says when a server was last at work.
const lastSeen = "clock.last"

// away is how long a server may be away before its clock is doubted at the start.
const away = time.Hour

// noteTime keeps the time for the next start.
func (s *Server) noteTime(ctx context.Context) error {
	return s.store.AllTenants().PutSetting(ctx, lastSeen, []byte(s.now().UTC().Format(time.RFC3339)))
}

// compareClock compares the clock with the time when a server was last at work.
// When it is far ahead, or behind, either the server was away or the clock is
// wrong, as it is on machines that start before their time service: nothing is
// destroyed by it for some minutes.
func (s *Server) compareClock(ctx context.Context) error {
	value, err := s.store.AllTenants().Setting(ctx, lastSeen)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read when a server was last at work: %w", err)
	}
	last, err := time.Parse(time.RFC3339, string(value))
	if err != nil {
		return errors.New("read when a server was last at work: it is not a time")
	}
	if passed := s.now().Sub(last); passed > away || passed < -clock.Jump {
		s.patient = time.Now().Add(clock.Doubt)
		s.log.Warn("no server was at work for a while, or the clock is wrong: nothing that has expired is removed for some minutes", "since", last)
	}
	return nil
}

// doubtsClock says that nothing may be destroyed now because the clock says so.
func (s *Server) doubtsClock() bool { return time.Now().Before(s.patient) || !s.steady() }
