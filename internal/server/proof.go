package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// ErrLogChanged says that a log in a store is not what was sealed.
var ErrLogChanged = errors.New("a tenant's log is not what was sealed")

// Verified is what a proof looked at.
type Verified struct {
	keyring.Opened
	Logs    int64 `json:"logs"`        // of tenants
	Entries int64 `json:"log_entries"` // that are as they were sealed
}

// proof looks at a whole store: that it is sound, that everything in it opens,
// and that its logs are what was sealed.
type proof struct {
	now   func() time.Time
	say   func(string)
	where string // the store is, in sentences
	so    string // what follows when it is not right
}

func (p proof) verify(ctx context.Context, s store.Store, ring *keyring.Ring) (*Verified, error) {
	found, err := s.Check(ctx, p.say)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		p.say("found: " + f)
	}
	if len(found) > 0 {
		return nil, fmt.Errorf("%w: the check of the store %s found %d faults; %s", store.ErrDamaged, p.where, len(found), p.so)
	}
	v := &Verified{}
	p.say("opening every sealed value")
	tell := paced(p.say)
	if v.Opened, err = ring.OpenAll(ctx, func(o keyring.Opened) { tell("opened %d values", o.Values) }); err != nil {
		return nil, err
	}
	if v.First != nil {
		p.say("found: " + v.First.String())
	}
	if v.Failed > 0 {
		return nil, fmt.Errorf("%w: %d of %d sealed values %s do not open; %s", store.ErrDamaged, v.Failed, v.Values, p.where, p.so)
	}
	return v, p.verifyLogs(ctx, s, ring, v)
}

// verifyLogs verifies the log of every tenant.
func (p proof) verifyLogs(ctx context.Context, s store.Store, ring *keyring.Ring, v *Verified) error {
	log := audit.New(s, ring, audit.Options{Now: p.now})
	const page = 100
	for after := ""; ; {
		tenants, err := s.AllTenants().Tenants(ctx, after, page)
		if err != nil {
			return err
		}
		for _, t := range tenants {
			after = t.ID
			p.say("verifying the log of tenant " + t.ID)
			result, err := log.Verify(ctx, t.ID, nil, nil)
			if errors.Is(err, store.ErrNotFound) && t.Deleting {
				continue // it went before anything of its log was sealed
			}
			if err != nil {
				return err
			}
			if !result.Clean() {
				p.say("found: " + result.Findings[0].String())
				return fmt.Errorf("%w: that of tenant %s %s; %s", ErrLogChanged, t.ID, p.where, p.so)
			}
			v.Logs, v.Entries = v.Logs+1, v.Entries+result.Entries
		}
		if len(tenants) < page {
			return nil
		}
	}
}

// paced tells of long work once a second.
func paced(say func(string)) func(format string, args ...any) {
	told := time.Now()
	return func(format string, args ...any) {
		if at := time.Now(); at.Sub(told) >= time.Second {
			told = at
			say(fmt.Sprintf(format, args...))
		}
	}
}
