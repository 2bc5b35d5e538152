package reactor

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// A job is a run that nobody waits for. It is claimed by moving the instant at
// which it wants attention: whoever does so has it until then, and moves the
// instant on while at work. When its node dies, another finds it due.
const (
	lease        = 15 * time.Second
	renewal      = 5 * time.Second
	jobLife      = 24 * time.Hour
	resultLife   = 24 * time.Hour
	jobsAtOnce   = 16
	jobsFound    = 100
	asyncDefault = 10 * time.Second
)

var (
	errInterrupted = fault.New(fault.Unprocessable, "the run was interrupted; whether it had effects is not known")
	errTooLate     = fault.New(fault.Conflict, "the values that this was made from are no longer available")
	errNoResult    = fault.New(fault.NotFound, "no such result, or not yet")
	errNoCaller    = fault.New(fault.Forbidden, "whoever asked for this run may no longer do so")
)

// The stages of a job: its code runs, then the result is delivered.
const (
	stageRun     = "run"
	stageDeliver = "deliver"
)

// job is what a job's parcel holds. All but its payload is sealed under the
// data key: where a result goes must be known even when the payload went with
// the epoch key of a security code.
type job struct {
	stage       string
	callback    string // "" when the result is kept to be asked for
	timeout     time.Duration
	application string
	session     string
	origin      access.Origin
	status      int    // of a result
	payload     []byte // JSON: the arguments of a run, or a result
	epoch       int64  // whose key seals the payload; 0 for none
	gone        bool   // the payload is
}

// seal puts a job into its parcel. epoch is nil unless the payload must not
// outlive that key.
func seal(keys *keyring.Keys, p *store.Parcel, epoch *keyring.EpochKey, j job) error {
	payload := j.payload
	if j.epoch = 0; epoch != nil {
		j.epoch = epoch.Epoch()
		sealed, err := epoch.Seal(p.Record(), keyring.FieldParcelShortLived, j.payload)
		if errors.Is(err, keyring.ErrGone) {
			j.gone, sealed = true, nil
		} else if err != nil {
			return err
		}
		payload = []byte(base64.StdEncoding.EncodeToString(sealed))
	}
	var b jsonvalue.Builder
	text := func(name, value string) { b.Add(name, jsonvalue.NewString(value)) }
	text("stage", j.stage)
	text("callback", j.callback)
	b.Add("timeout_ms", jsonvalue.NewInt(j.timeout.Milliseconds()))
	text("application", j.application)
	text("session", j.session)
	text("trace", j.origin.TraceID)
	text("address", j.origin.Address)
	b.Add("status", jsonvalue.NewInt(int64(j.status)))
	b.Add("epoch", jsonvalue.NewInt(j.epoch))
	text("payload", string(payload))
	plain := b.Value().AppendJSON(nil)
	defer clear(plain)
	return keys.SealParcel(p, nil, plain)
}

var errDecode = errors.New("decode a job")

// open reads a job from its parcel.
func (s *Service) open(ctx context.Context, keys *keyring.Keys, p store.Parcel) (j job, err error) {
	plain, err := s.ring.OpenParcel(ctx, keys, p)
	if err != nil {
		return j, fmt.Errorf("open a job: %w", err)
	}
	defer clear(plain)
	v, err := jsonvalue.Parse(plain)
	if err != nil {
		return j, errDecode
	}
	text := func(name string) string {
		member, _ := v.Get(name)
		return member.Reveal()
	}
	number := func(name string) int64 {
		n, bad := strconv.ParseInt(text(name), 10, 64)
		if bad != nil {
			err = errDecode
		}
		return n
	}
	j = job{
		stage: text("stage"), callback: text("callback"), application: text("application"), session: text("session"),
		origin: access.Origin{TraceID: text("trace"), Address: text("address")}, timeout: time.Duration(number("timeout_ms")) * time.Millisecond,
		status: int(number("status")), epoch: number("epoch"), payload: []byte(text("payload")),
	}
	if err != nil || j.epoch == 0 {
		return j, err
	}
	sealed, err := base64.StdEncoding.DecodeString(string(j.payload))
	if err != nil {
		return j, errDecode
	}
	j.payload = nil
	if len(sealed) == 0 {
		j.gone = true
		return j, nil
	}
	j.payload, err = s.ring.OpenShortLived(ctx, keys.Tenant(), 0, p.Record(), keyring.FieldParcelShortLived, sealed)
	if errors.Is(err, keyring.ErrGone) {
		j.gone, err = true, nil
	}
	return j, err
}

// ownerOf is who may ask for a result.
func ownerOf(c access.Caller) string {
	if c.Session() != "" {
		return c.Session()
	}
	return c.Application()
}

// Start accepts a run that nobody waits for, and returns the id under which
// its result is delivered, or kept when there is no callback. Tokens are looked
// up and their use is logged now, so that what is wrong with the request is
// told now; from here on the arguments are sealed.
func (s *Service) Start(ctx context.Context, c access.Caller, id string, in Invocation, last ...store.Step[string]) (request string, err error) {
	if err := c.RequireSomewhere(access.TokenUse); err != nil {
		return "", err
	}
	if in.Callback != "" {
		if err := s.checkCallback(in.Callback); err != nil {
			return "", err
		}
	}
	keys, err := s.ring.For(ctx, c.Tenant())
	if err != nil {
		return "", fmt.Errorf("get keys: %w", err)
	}
	r, err := s.prepare(ctx, c, id, in.Args)
	if err != nil {
		return "", err
	}
	j := job{
		stage: stageRun, callback: in.Callback, timeout: in.Timeout, application: c.Application(), session: c.Session(),
		origin: c.Origin(), payload: r.args.AppendJSON(nil),
	}
	defer clear(j.payload)
	if j.timeout == 0 {
		j.timeout = asyncDefault
	}
	now := s.now()
	p := store.Parcel{
		Kind: store.ParcelJob, ID: access.NewID(), Group: id, Owner: ownerOf(c),
		CreatedAt: store.At(now), DueAt: store.At(now), ExpiresAt: store.At(now.Add(jobLife)), Version: 1,
	}
	if err := seal(keys, &p, r.epoch, j); err != nil {
		return "", err
	}
	err = s.store.Update(ctx, c.Tenant(), func(tx store.Tx) error {
		if err := tx.InsertParcel(ctx, p); err != nil {
			return fmt.Errorf("insert a job: %w", err)
		}
		return store.Finish(tx, p.ID, last)
	})
	if err != nil {
		return "", err
	}
	s.wake()
	return p.ID, nil
}

func (s *Service) wake() {
	select {
	case s.woken <- struct{}{}:
	default: // somebody is about to look anyway
	}
}

// Work does the jobs that are due, on this node, until ctx ends, and keeps what
// runs printed.
func (s *Service) Work(ctx context.Context) {
	for ticker := time.NewTicker(time.Second); ; {
		if _, err := s.DoDue(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("jobs could not be done and will be tried again", "cause", err)
		}
		select {
		case <-ctx.Done():
			ticker.Stop()
			return
		case <-ticker.C:
		case <-s.woken:
		}
		if err := s.keepRuns(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("what runs printed could not be kept", "cause", err)
		}
	}
}

// DoDue does every job that is due now and returns how many it did. Several
// nodes may do so at once: each job is done by the one that claims it.
func (s *Service) DoDue(ctx context.Context) (done int, err error) {
	for {
		due, err := s.store.AllTenants().DueParcels(ctx, store.At(s.now()), jobsFound)
		if err != nil {
			return done, fmt.Errorf("find jobs: %w", err)
		}
		var (
			group sync.WaitGroup
			mu    sync.Mutex // guards the two below
			count int
			errs  []error
		)
		slots := make(chan struct{}, jobsAtOnce)
		for _, ref := range due {
			slots <- struct{}{}
			group.Go(func() {
				defer func() { <-slots }()
				did, err := s.doOne(ctx, ref)
				mu.Lock()
				defer mu.Unlock()
				if did {
					count++
				}
				errs = append(errs, err)
			})
		}
		group.Wait()
		done += count
		if err := errors.Join(errs...); err != nil || count == 0 || len(due) < jobsFound || ctx.Err() != nil {
			return done, err
		}
	}
}

// claim takes a job for this node; false when it is gone or another has it.
func (s *Service) claim(ctx context.Context, ref store.ParcelRef) (p store.Parcel, mine bool, err error) {
	err = s.store.Update(ctx, ref.Tenant, func(tx store.Tx) (err error) {
		mine = false // a transaction may run again
		now := s.now()
		p, err = tx.Parcel(ctx, ref.Kind, ref.ID)
		if errors.Is(err, store.ErrNotFound) || err == nil && (p.DueAt.IsZero() || p.DueAt > store.At(now) || p.ExpiresAt <= store.At(now)) {
			return nil
		}
		if err != nil {
			return err
		}
		p.DueAt, p.Attempts, p.Version = store.At(now.Add(lease)), p.Attempts+1, p.Version+1
		mine = true
		return tx.ReplaceParcel(ctx, p)
	})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return p, false, nil
	}
	return p, mine, err
}

// held is a job that this node has claimed.
type held struct {
	mu     sync.Mutex // guards parcel
	parcel store.Parcel
}

// renew moves the lease on until ctx ends.
func (s *Service) renew(ctx context.Context, tenant string, h *held) {
	for ticker := time.NewTicker(renewal); ; {
		select {
		case <-ctx.Done():
			ticker.Stop()
			return
		case <-ticker.C:
		}
		h.mu.Lock()
		next := h.parcel
		next.DueAt, next.Version = store.At(s.now().Add(lease)), next.Version+1
		// A renewal that fails is tried again; if the lease ends meanwhile,
		// another node takes the job and ours cannot be finished.
		if err := s.store.Update(ctx, tenant, func(tx store.Tx) error { return tx.ReplaceParcel(ctx, next) }); err == nil {
			h.parcel = next
		}
		h.mu.Unlock()
	}
}

func (s *Service) doOne(ctx context.Context, ref store.ParcelRef) (did bool, err error) {
	p, mine, err := s.claim(ctx, ref)
	if err != nil || !mine {
		return false, err
	}
	keys, err := s.ring.For(ctx, ref.Tenant)
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return false, nil // the tenant is being deleted
	}
	if err != nil {
		return false, fmt.Errorf("get keys: %w", err)
	}
	j, err := s.open(ctx, keys, p)
	if err != nil {
		return false, err
	}
	defer clear(j.payload)
	if j.stage == stageDeliver {
		return true, s.deliver(ctx, keys, p, j)
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	h := &held{parcel: p}
	var renewing sync.WaitGroup
	renewing.Go(func() { s.renew(working, ref.Tenant, h) })
	return true, s.runJob(ctx, keys, h, j, func() { stop(); renewing.Wait() })
}

// runJob runs the code of a job, once: a job that is found a second time was
// interrupted in the middle, and its code may have charged a card.
func (s *Service) runJob(ctx context.Context, keys *keyring.Keys, h *held, j job, settle func()) error {
	switch {
	case h.parcel.Attempts > 1:
		settle()
		return s.finish(ctx, keys, h.parcel, j, nil, s.problem(errInterrupted, j))
	case j.gone:
		settle()
		return s.finish(ctx, keys, h.parcel, j, nil, s.problem(errTooLate, j))
	}
	epoch, err := s.epochOf(ctx, keys, j)
	if err != nil {
		return err
	}
	args, err := jsonvalue.Parse(j.payload)
	if err != nil {
		return errDecode
	}
	c, err := s.callerOf(ctx, keys.Tenant(), j)
	r := ready{args: args, protected: args.Leaves(), epoch: epoch, request: h.parcel.ID}
	if err == nil {
		r.reactor, err = s.definitions.Find(ctx, keys.Tenant(), h.parcel.Group)
	}
	if err == nil {
		_, err = s.run(ctx, c, r, j.timeout, func(tx store.Tx, out Response) error {
			settle()
			return s.put(ctx, tx, keys, h.parcel, j, epoch, resultOf(out))
		}, true)
		if err == nil {
			s.wake()
			return nil
		}
	}
	settle()
	switch {
	case neverRan(err):
		// Nothing happened: it is as if it had not been claimed.
		next := h.parcel
		next.Attempts, next.DueAt, next.Version = 0, store.At(s.now().Add(time.Second)), next.Version+1
		return s.store.Update(ctx, keys.Tenant(), func(tx store.Tx) error { return tx.ReplaceParcel(ctx, next) })
	case !isFault(err):
		return fmt.Errorf("run a job: %w", err)
	}
	return s.finish(ctx, keys, h.parcel, j, epoch, s.problem(err, j))
}

// epochOf returns the key under which a job's payload is; nil for none.
func (s *Service) epochOf(ctx context.Context, keys *keyring.Keys, j job) (*keyring.EpochKey, error) {
	if j.epoch == 0 {
		return nil, nil
	}
	epoch, err := s.ring.EpochKeyOf(ctx, keys.Tenant(), j.epoch)
	if err != nil {
		return nil, fmt.Errorf("get epoch key: %w", err)
	}
	return epoch, nil
}

// neverRan reports whether code was not started because there was no room.
func neverRan(err error) bool {
	k := fault.Of(err).Kind()
	var thrown *script.Thrown
	return (k == fault.TooMany || k == fault.Unavailable) && !errors.As(err, &thrown)
}

// result is what a run came to, as it is delivered.
type result struct {
	status int
	body   []byte
}

func resultOf(out Response) result {
	if out.Custom != nil {
		return result{out.Custom.Status, out.Custom.Body}
	}
	return result{200, out.Object().AppendJSON(nil)}
}

// finish puts a result in the place of a job, in a transaction of its own.
func (s *Service) finish(ctx context.Context, keys *keyring.Keys, p store.Parcel, j job, epoch *keyring.EpochKey, res result) error {
	err := s.store.Update(ctx, keys.Tenant(), func(tx store.Tx) error { return s.put(ctx, tx, keys, p, j, epoch, res) })
	if err != nil {
		return fmt.Errorf("keep the result of a job: %w", err)
	}
	s.wake()
	return nil
}

// put replaces a job that has run: by its delivery, or by a result that waits
// to be asked for.
func (s *Service) put(ctx context.Context, tx store.Tx, keys *keyring.Keys, p store.Parcel, j job, epoch *keyring.EpochKey, res result) error {
	j.stage, j.status, j.payload = stageDeliver, res.status, res.body
	now := s.now()
	if j.callback != "" {
		p.DueAt, p.Attempts, p.Version = store.At(now), 0, p.Version+1
		if err := seal(keys, &p, epoch, j); err != nil {
			return err
		}
		return tx.ReplaceParcel(ctx, p)
	}
	if err := tx.DeleteParcel(ctx, p.Kind, p.ID); err != nil {
		return err
	}
	p.Kind, p.CreatedAt, p.DueAt, p.ExpiresAt, p.Attempts, p.Version = store.ParcelResult, store.At(now), 0, store.At(now.Add(resultLife)), 0, 1
	if err := seal(keys, &p, epoch, j); err != nil {
		return err
	}
	return tx.InsertParcel(ctx, p)
}

// Result returns what a run that nobody waited for came to, to the one who
// asked for it.
func (s *Service) Result(ctx context.Context, c access.Caller, id, request string) (status int, body []byte, err error) {
	if err := c.RequireSomewhere(access.TokenUse); err != nil {
		return 0, nil, err
	}
	keys, err := s.ring.For(ctx, c.Tenant())
	if err != nil {
		return 0, nil, fmt.Errorf("get keys: %w", err)
	}
	var p store.Parcel
	err = s.store.View(ctx, c.Tenant(), func(tx store.Tx) (err error) {
		p, err = tx.Parcel(ctx, store.ParcelResult, request)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && (p.Group != id || p.Owner != ownerOf(c) || p.ExpiresAt <= store.At(s.now())) {
		return 0, nil, errNoResult
	}
	if err != nil {
		return 0, nil, fmt.Errorf("look for a result: %w", err)
	}
	j, err := s.open(ctx, keys, p)
	if err == nil && j.gone {
		err = errTooLate
	}
	return j.status, j.payload, err
}
