package reactor

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/limit"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// How long what is accepted is kept: a job until it has run, a delivery until
// it is taken, a result until it is asked for.
const (
	jobLife      = 24 * time.Hour
	resultLife   = 24 * time.Hour
	asyncDefault = 10 * time.Second
)

var (
	errInterrupted = fault.New(fault.Unprocessable, "the run was interrupted; whether it had effects is not known")
	errTooLate     = fault.New(fault.Conflict, "the values that this was made from are no longer available")
	errNoResult    = fault.New(fault.NotFound, "no such result, or not yet")
	errQueueFull   = fault.New(fault.TooMany, "this tenant has as many asynchronous runs waiting as it may have; send the request again when some of them have ended").WithCode("too_many_queued_jobs").RetryAfter(5 * time.Second)
	errCancelled   = fault.New(fault.Forbidden, "the run was cancelled: the session or application that requested it is no longer valid or lost token:use").WithCode("job_cancelled")
)

// contents are what the row of a job, of its delivery or of its result holds. All
// but the payload is sealed under the data key: where a result goes must be
// known even when the payload went with the epoch key of a security code.
type contents struct {
	callback    string // "" when the result is kept to be asked for
	timeout     time.Duration
	application string
	session     string
	origin      access.Origin
	shown       []access.Shown // the tokens that the payload was made from
	status      int            // of a result
	payload     []byte         // JSON: the input of a run, or a result
	epoch       int64          // whose key seals the payload; 0 for none
	gone        bool           // the payload is
}

// seal puts a job into its parcel. epoch is nil unless the payload must not
// outlive that key.
func seal(keys *keyring.Keys, p *store.Parcel, epoch *keyring.EpochKey, j contents) error {
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
	text("callback", j.callback)
	b.Add("timeout_ms", jsonvalue.NewInt(j.timeout.Milliseconds()))
	text("application", j.application)
	text("session", j.session)
	text("trace", j.origin.TraceID)
	text("address", j.origin.Address)
	b.Add("depth", jsonvalue.NewInt(int64(j.origin.Depth)))
	b.Add("status", jsonvalue.NewInt(int64(j.status)))
	b.Add("epoch", jsonvalue.NewInt(j.epoch))
	shown, err := shownValue(j.shown)
	if err != nil {
		return err
	}
	b.Add("tokens", shown)
	text("payload", string(payload))
	plain := b.Value().AppendJSON(nil)
	defer clear(plain)
	return keys.SealParcel(p, nil, plain)
}

var errDecode = errors.New("decode a job")

// open reads a job from its parcel.
func (s *Service) open(ctx context.Context, keys *keyring.Keys, p store.Parcel) (j contents, err error) {
	plain, err := s.parts.Ring.OpenParcel(ctx, keys, p)
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
	j = contents{
		callback: text("callback"), application: text("application"), session: text("session"),
		origin: access.Origin{TraceID: text("trace"), Address: text("address"), Depth: int(number("depth"))}, timeout: time.Duration(number("timeout_ms")) * time.Millisecond,
		status: int(number("status")), epoch: number("epoch"), payload: []byte(text("payload")),
	}
	if err == nil {
		tokens, _ := v.Get("tokens")
		j.shown, err = shownOf(tokens)
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
	j.payload, err = s.parts.Ring.OpenShortLived(ctx, keys.Tenant(), 0, p.Record(), keyring.FieldParcelShortLived, sealed)
	if errors.Is(err, keyring.ErrGone) {
		j.gone, err = true, nil
	}
	return j, err
}

// shownValue is a list of tokens as it is stored with a job.
func shownValue(list []access.Shown) (jsonvalue.Value, error) {
	b, err := json.Marshal(list)
	if err != nil {
		return jsonvalue.Value{}, fmt.Errorf("encode the tokens of a job: %w", err)
	}
	return jsonvalue.Parse(b)
}

// shownOf reads what shownValue made. Jobs of older releases have none.
func shownOf(v jsonvalue.Value) (list []access.Shown, err error) {
	if err := json.Unmarshal(v.AppendJSON(nil), &list); err != nil {
		return nil, errDecode
	}
	return list, nil
}

// The members of the input of a run.
const (
	memberArgs      = "args"
	memberProtected = "protected"
)

// inputOf is what a job keeps of a run that is ready: the arguments, and the
// values of tokens among them, which errors must not repeat. Values that come
// to more than most bytes are not kept, and then errors repeat nothing.
func inputOf(r ready, most int) jsonvalue.Value {
	var protected []jsonvalue.Value
	size := 0
	for leaf := range r.protected {
		if size += leaf.JSONSize(); size > most {
			break
		}
		protected = append(protected, leaf)
	}
	var b jsonvalue.Builder
	b.Add(memberArgs, r.args)
	if size <= most {
		b.Add(memberProtected, jsonvalue.NewArray(protected))
	}
	return b.Value()
}

// readyFrom is the run that inputOf kept.
func readyFrom(payload []byte) (r ready, err error) {
	v, err := jsonvalue.Parse(payload)
	if err != nil {
		return r, errDecode
	}
	r.args, _ = v.Get(memberArgs)
	protected, known := v.Get(memberProtected)
	r.protected, r.hideAll = protected.Leaves(), !known
	return r, nil
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
// told now; from here on the arguments are sealed. A tenant that has
// Options.QueuedJobs runs waiting is refused before anything is looked up.
func (s *Service) Start(ctx context.Context, c access.Caller, id string, in Invocation, last ...store.Step[string]) (request string, err error) {
	if err := c.RequireSomewhere(access.TokenUse); err != nil {
		return "", err
	}
	if in.Callback != "" {
		if err := s.checkCallback(in.Callback); err != nil {
			return "", err
		}
	}
	if err := s.checkQueue(ctx, c.Tenant()); err != nil {
		return "", err
	}
	keys, err := s.parts.Ring.For(ctx, c.Tenant())
	if err != nil {
		return "", fmt.Errorf("get keys: %w", err)
	}
	r, err := s.prepare(ctx, c, id, in.Args)
	if err != nil {
		return "", err
	}
	j := contents{
		callback: in.Callback, timeout: in.Timeout, application: c.Application(), session: c.Session(), origin: c.Origin(),
		shown: r.shown, payload: inputOf(r, s.options.MaxBody).AppendJSON(nil),
	}
	defer clear(j.payload)
	if j.timeout == 0 {
		j.timeout = asyncDefault
	}
	p := s.parts.Jobs.Record(store.ParcelJob, access.NewID())
	p.Group, p.Owner = id, ownerOf(c)
	if err := seal(keys, &p, r.epoch, j); err != nil {
		return "", err
	}
	err = s.parts.Store.Update(ctx, c.Tenant(), func(tx store.Tx) error {
		if err := s.parts.Jobs.Insert(ctx, tx, p); err != nil {
			return err
		}
		return store.Finish(tx, p.ID, last)
	})
	if err != nil {
		return "", err
	}
	s.parts.Jobs.Wake()
	return p.ID, nil
}

// checkQueue refuses a run when too many of the tenant wait or are running.
func (s *Service) checkQueue(ctx context.Context, tenant string) error {
	err := s.parts.Jobs.Room(ctx, tenant, store.ParcelJob)
	if errors.Is(err, jobs.ErrFull) {
		s.options.Limits.Reached(limit.QueuedJobs)
		return errQueueFull
	}
	return err
}

// Result returns what a run that nobody waited for came to, to the caller that
// started it. The result was made from tokens, so on each of them that still
// exists the caller needs the access that it had then. The log entry is
// committed before Result returns.
func (s *Service) Result(ctx context.Context, c access.Caller, id, request string) (status int, body []byte, err error) {
	if err := c.RequireSomewhere(access.TokenUse); err != nil {
		return 0, nil, err
	}
	keys, err := s.parts.Ring.For(ctx, c.Tenant())
	if err != nil {
		return 0, nil, fmt.Errorf("get keys: %w", err)
	}
	var p store.Parcel
	err = s.parts.Store.View(ctx, c.Tenant(), func(tx store.Tx) (err error) {
		p, err = tx.Parcel(ctx, store.ParcelResult, request)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && (p.Group != id || p.Owner != ownerOf(c) || p.ExpiresAt <= store.At(s.options.Now())) {
		return 0, nil, errNoResult
	}
	if err != nil {
		return 0, nil, fmt.Errorf("look for a result: %w", err)
	}
	j, err := s.open(ctx, keys, p)
	if err == nil && j.gone {
		err = errTooLate
	}
	if err == nil {
		err = s.logResult(ctx, c, id, j.shown)
	}
	if err != nil {
		clear(j.payload)
		return 0, nil, err
	}
	return j.status, j.payload, nil
}

// logResult logs that a result is read, if the caller may read it.
func (s *Service) logResult(ctx context.Context, c access.Caller, id string, shown []access.Shown) error {
	err := s.parts.Store.Read(ctx, c.Tenant(), func(tx store.Tx) error {
		// The tokens were logged when they were used: the entry is about the reactor.
		if _, err := s.parts.Tokens.Replay(ctx, tx, c, shown); err != nil {
			return err
		}
		return tx.AppendLog(ctx, audit.EntryPart(c, s.options.Now(), audit.Reactor, id, "result", audit.Read))
	})
	if errors.Is(err, store.ErrNoTenant) {
		return errNoResult // the tenant was deleted meanwhile
	}
	return err
}
