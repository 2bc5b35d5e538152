// Package idempotency keeps the first answer to a request that carries an
// idempotency key, and gives it out again for a day.
//
// It promises that of all requests with one key at most one takes effect: its
// answer is stored in the transaction of the effect, so that after a crash
// there are both or neither. Work outside our transactions is held by a mark
// that is stored before it begins. It never keeps the answer to a request that
// failed, nor any answer in clear, and never the key itself.
package idempotency

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/base58"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// How long an answer is given out again, and after which time the mark of a
// request frees its key: its server has died.
const (
	Lifetime     = 24 * time.Hour
	MarkLifetime = time.Minute
)

var (
	errInFlight = fault.New(fault.Conflict, "a request with this idempotency key is being processed").RetryAfter(time.Second)
	errGone     = fault.New(fault.Conflict, "the result is no longer available")
	errNoTenant = fault.New(fault.NotFound, "no such tenant")

	// ErrAnswered says that another request with the same key was first; what
	// this one was about to do is undone. Find has the answer of the other. It
	// is a fault of its own for the caller that finds none: the other may have
	// failed behind it, so a later try is worth it.
	ErrAnswered = fault.New(fault.Conflict, "another request with this idempotency key was faster: try again").RetryAfter(time.Second)
)

// Answer is what a request was answered with.
type Answer struct {
	Status   int    `json:"status"`
	Location string `json:"location,omitempty"`
	// Headers are those of an answer that is not the service's own JSON.
	Headers map[string]string `json:"headers,omitempty"`
	Body    []byte            `json:"body,omitempty"`
}

// Service keeps answers. Its methods are safe for concurrent use.
type Service struct {
	store store.Store
	ring  *keyring.Ring
	now   func() time.Time

	mu       sync.Mutex // guards inFlight
	inFlight map[request]bool
}

// request is one key of one caller for one method and path.
type request struct{ tenant, id string }

// New returns the service over a store and the ring of its keys.
func New(s store.Store, ring *keyring.Ring, now func() time.Time) *Service {
	return &Service{store: s, ring: ring, now: now, inFlight: make(map[request]bool)}
}

// Attempt is a request that may take effect, because no other with its key has.
type Attempt struct {
	service *Service
	keys    *keyring.Keys
	request request
	owner   string
	// stale is what lies under the key and no longer counts.
	stale *store.Parcel
	// mark is what Hold stored.
	mark *store.Parcel
	// ran says that the effect was tried: the second time around it looks
	// whether another was faster, which the first time is not worth a read.
	ran bool
}

// Begin starts a request with an idempotency key. It returns the answer of an
// earlier one, or an attempt, which must be released. A request with the same
// key that is being processed is a conflict: on this node at once; between
// nodes when the second one commits, and then nothing of it remains.
func (s *Service) Begin(ctx context.Context, c access.Caller, method, path, key string) (*Answer, *Attempt, error) {
	keys, err := s.ring.For(ctx, c.Tenant())
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return nil, nil, errNoTenant
	}
	if err != nil {
		return nil, nil, fmt.Errorf("get keys: %w", err)
	}
	r := request{c.Tenant(), idOf(keys, c, method, path, key)}
	a := &Attempt{service: s, keys: keys, request: r, owner: access.NewID()}
	entered := s.enter(r)
	answer, err := a.Find(ctx)
	if answer == nil && err == nil && entered {
		return nil, a, nil
	}
	if entered {
		s.leave(r)
	} else if answer == nil && err == nil {
		// Not when there is an answer: then the other only fetches it, too.
		err = errInFlight
	}
	return answer, nil, err
}

// idOf names a request without telling its key: a keyed hash over who asks for
// what. Every part has its length before it, so that no two requests run
// together.
func idOf(keys *keyring.Keys, c access.Caller, parts ...string) string {
	who := c.Application()
	if c.Session() != "" {
		who = c.Session()
	}
	var b []byte
	for _, part := range append([]string{who}, parts...) {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return base58.Encode(keys.IndexTerm("idempotency", string(b)))
}

func (s *Service) enter(r request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight[r] {
		return false
	}
	s.inFlight[r] = true
	return true
}

func (s *Service) leave(r request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inFlight, r)
}

// Find returns the stored answer; nil when there is none.
func (a *Attempt) Find(ctx context.Context) (*Answer, error) {
	var p store.Parcel
	err := a.service.store.View(ctx, a.request.tenant, func(tx store.Tx) (err error) {
		p, err = tx.Parcel(ctx, store.ParcelAnswer, a.request.id)
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for an answer: %w", err)
	case p.ExpiresAt <= store.At(a.service.now()):
		a.stale = &p
		return nil, nil
	case p.Contents == nil:
		return nil, errInFlight
	}
	b, err := a.service.ring.OpenParcel(ctx, a.keys, p)
	if errors.Is(err, keyring.ErrGone) {
		return nil, errGone
	}
	if err != nil {
		return nil, fmt.Errorf("open an answer: %w", err)
	}
	var answer Answer
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, errors.New("decode an answer") // the decoder's words may repeat it
	}
	if answer.Status == 0 {
		return nil, errGone
	}
	return &answer, nil
}

// Hold stores the mark of this attempt before work that our transactions do
// not hold. It is a conflict when another holds the key. Release removes the
// mark unless Keep has put the answer in its place; when the server dies, the
// mark frees its key after MarkLifetime.
func (a *Attempt) Hold(ctx context.Context) error {
	now := a.service.now()
	mark := store.Parcel{
		Kind: store.ParcelAnswer, ID: a.request.id, Owner: a.owner,
		CreatedAt: store.At(now), ExpiresAt: store.At(now.Add(MarkLifetime)), Version: 1,
	}
	err := a.service.store.Update(ctx, a.request.tenant, func(tx store.Tx) error { return a.put(ctx, tx, mark) })
	if errors.Is(err, store.ErrExists) {
		return errInFlight
	}
	if err != nil {
		return fmt.Errorf("mark a request: %w", err)
	}
	a.mark = &mark
	return nil
}

// put stores a new row in place of one that no longer counts.
func (a *Attempt) put(ctx context.Context, tx store.Tx, p store.Parcel) error {
	if a.stale != nil {
		old, err := tx.Parcel(ctx, store.ParcelAnswer, a.request.id)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return err
		case old.Version != a.stale.Version || old.Owner != a.stale.Owner:
			return ErrAnswered
		default:
			if err := tx.DeleteParcel(ctx, store.ParcelAnswer, a.request.id); err != nil {
				return err
			}
		}
	}
	return tx.InsertParcel(ctx, p)
}

// encode writes an answer so that its body stays the same byte for byte:
// json.Marshal would escape what HTML escapes.
func encode(answer Answer) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(answer); err != nil {
		return nil, errors.New("encode an answer") // the encoder's words may repeat it
	}
	return b.Bytes(), nil
}

// Keep stores the answer in the transaction of the effect, under the tenant's
// data key, or under epoch where the answer must not outlive that key. It fails
// with ErrAnswered, or the store reports ErrExists or ErrConflict, when another
// request was first.
func (a *Attempt) Keep(ctx context.Context, tx store.Tx, answer Answer, epoch *keyring.EpochKey) error {
	b, err := encode(answer)
	if err != nil {
		return err
	}
	defer clear(b)
	now := a.service.now()
	p := store.Parcel{
		Kind: store.ParcelAnswer, ID: a.request.id, Owner: a.owner,
		CreatedAt: store.At(now), ExpiresAt: store.At(now.Add(Lifetime)), Version: 1,
	}
	err = a.keys.SealParcel(&p, epoch, b)
	if errors.Is(err, keyring.ErrGone) {
		// The key ended while the answer was made. That there was one is kept.
		err = a.keys.SealParcel(&p, nil, []byte("{}"))
	}
	if err != nil {
		return err
	}
	if a.mark != nil {
		old, err := tx.Parcel(ctx, store.ParcelAnswer, a.request.id)
		if errors.Is(err, store.ErrNotFound) || err == nil && old.Owner != a.owner {
			return ErrAnswered // the mark was given up: another may have run
		}
		if err != nil {
			return err
		}
		p.CreatedAt, p.Version = old.CreatedAt, old.Version+1
		return tx.ReplaceParcel(ctx, p)
	}
	if a.ran && a.stale == nil {
		switch _, err := tx.Parcel(ctx, store.ParcelAnswer, a.request.id); {
		case err == nil:
			return ErrAnswered
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
	}
	a.ran = true
	return a.put(ctx, tx, p)
}

// Release ends an attempt. A mark without an answer is removed, so that a
// later request is processed as new.
func (a *Attempt) Release(ctx context.Context) error {
	defer a.service.leave(a.request)
	if a.mark == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx) // the client may have gone
	err := a.service.store.Update(ctx, a.request.tenant, func(tx store.Tx) error {
		p, err := tx.Parcel(ctx, store.ParcelAnswer, a.request.id)
		if errors.Is(err, store.ErrNotFound) || err == nil && (p.Owner != a.owner || p.Contents != nil) {
			return nil
		}
		if err != nil {
			return err
		}
		return tx.DeleteParcel(ctx, store.ParcelAnswer, a.request.id)
	})
	if err != nil {
		return fmt.Errorf("remove the mark of a request: %w", err)
	}
	return nil
}
