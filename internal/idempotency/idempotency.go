// Package idempotency keeps the first answer to a request that carries an
// idempotency key, and gives it out again for a day.
//
// It promises that of all requests with one key at most one takes effect: its
// answer is stored in the transaction of the effect, so that after a crash
// there are both or neither. Work outside our transactions is held by a mark
// that is stored before it begins. An answer is given out again only to a
// caller that has the access now that it was made with, and only after the log
// entries of that have committed. It never keeps the answer to a request that
// failed, nor any answer in clear, and never the key or the body itself.
package idempotency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/base58"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// How long an answer is given out again, and after which time the mark of a
// request frees its key: its server has died.
const (
	Lifetime     = 24 * time.Hour
	MarkLifetime = time.Minute
)

// LongKey is the number of characters from which an idempotency key counts as
// unguessable: 22 characters can hold 128 random bits.
const LongKey = 22

var (
	errInFlight = fault.New(fault.Conflict, "a request with this idempotency key is being processed").WithCode("idempotency_in_flight").RetryAfter(time.Second)
	errGone     = fault.New(fault.Conflict, "the result is no longer available")
	errNoTenant = fault.New(fault.NotFound, "no such tenant")
	errReused   = fault.New(fault.Unprocessable, "this idempotency key was used with another body").WithCode("idempotency_key_reused")

	// ErrAnswered says that another request with the same key was first; what
	// this one was about to do is undone. Find has the answer of the other. It
	// is a fault of its own for the caller that finds none: the other may have
	// failed behind it, so a later try is worth it.
	ErrAnswered = fault.New(fault.Conflict, "another request with this idempotency key was faster: try again").RetryAfter(time.Second)
)

// record is what is stored, sealed. A record of the release before this one has
// neither tokens nor an entity: a replay of it takes the permission of its row
// and no more, for the day that it lives.
type record struct {
	response.Response
	EntityType string `json:"entity_type,omitempty"`
	EntityID   string `json:"entity_id,omitempty"`
	// BodyDigest binds the key to the body of the first request, where
	// SharesKey says so.
	BodyDigest []byte `json:"body_digest,omitempty"`
}

// Tokens decides whether a caller may get a result about these tokens again,
// and returns the log entries for it: one for each token that still exists.
type Tokens func(ctx context.Context, tx store.Tx, c access.Caller, result []access.Shown) ([]store.LogEntry, error)

// Service keeps answers. Its methods are safe for concurrent use.
type Service struct {
	store  store.Store
	ring   *keyring.Ring
	now    func() time.Time
	tokens Tokens

	mu       sync.Mutex // guards inFlight
	inFlight map[request]bool
}

// request is one key of one caller for one method and path.
type request struct{ tenant, id string }

// New returns the service over a store and the ring of its keys.
func New(s store.Store, ring *keyring.Ring, now func() time.Time, tokens Tokens) *Service {
	return &Service{store: s, ring: ring, now: now, tokens: tokens, inFlight: make(map[request]bool)}
}

// Request is a request that carries an idempotency key.
type Request struct {
	Method, Path, Key string
	// Body is what was sent, byte for byte. Only callers for which SharesKey
	// reports true need it.
	Body []byte
	// Require returns nil when the caller may make such a request now, and an
	// *access.Denial otherwise.
	Require func(access.Caller) error
	// Entity is the type of what such requests are about.
	Entity string
}

// SharesKey reports whether the caller presents an API key that everybody has:
// the own key of a public application. Its idempotency keys are then those of
// many callers. A long one is bound to the body of the first request. A short
// one may be anybody's, so it counts only for one client address and one body.
func SharesKey(c access.Caller) bool { return c.ApplicationType() == access.Public }

// Attempt is a request that may take effect, because no other with its key has.
type Attempt struct {
	service *Service
	keys    *keyring.Keys
	caller  access.Caller
	require func(access.Caller) error
	entity  string
	request request
	owner   string
	// bodyDigest is nil unless the key is bound to the body.
	bodyDigest []byte
	// stale is what lies under the key and no longer counts.
	stale *store.Parcel
	// mark is what Hold stored.
	mark *store.Parcel
	// ran says that the effect was tried: the second time around it looks
	// whether another was faster, which the first time is not worth a read.
	ran bool
}

// Begin starts a request with an idempotency key. It returns the answer of an
// earlier one, or an attempt, which must be released; or neither, when the key
// does not count and the request is to be processed as if it had none. A
// request with the same key that is being processed is a conflict: on this node
// at once; between nodes when the second one commits, and then nothing of it
// remains.
func (s *Service) Begin(ctx context.Context, c access.Caller, r Request) (*response.Response, *Attempt, error) {
	keys, err := s.ring.For(ctx, c.Tenant())
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return nil, nil, errNoTenant
	}
	if err != nil {
		return nil, nil, fmt.Errorf("get keys: %w", err)
	}
	a := &Attempt{service: s, keys: keys, caller: c, require: r.Require, entity: r.Entity, owner: access.NewID()}
	if counts := a.identify(r); !counts {
		return nil, nil, nil
	}
	entered := s.enter(a.request)
	answer, err := a.Find(ctx)
	if answer == nil && err == nil && entered {
		return nil, a, nil
	}
	if entered {
		s.leave(a.request)
	} else if answer == nil && err == nil {
		// Not when there is an answer: then the other only fetches it, too.
		err = errInFlight
	}
	return answer, nil, err
}

// identify sets what makes the request the same as another one. It reports
// false when the key does not count.
func (a *Attempt) identify(r Request) (counts bool) {
	parts := []string{r.Method, r.Path, r.Key}
	digest := sha256.Sum256(r.Body)
	short := utf8.RuneCountInString(r.Key) < LongKey
	if SharesKey(a.caller) && short {
		from, known := network(a.caller.Origin().Address)
		if !known || len(r.Body) == 0 {
			return false // nothing tells this request from those of others
		}
		parts = append(parts, from.String(), string(digest[:]))
	}
	id := idOf(a.keys, a.caller, parts...)
	a.request = request{a.caller.Tenant(), id}
	if SharesKey(a.caller) && !short {
		// With the id in it the digest says nothing about any other request
		// with the same body.
		a.bodyDigest = a.keys.IndexTerm("idempotency body", id+string(digest[:]))
	}
	return true
}

// network returns what counts as one client address: a whole IPv4 address, and
// the /64 of an IPv6 one, as for rate limits.
func network(address string) (p netip.Prefix, known bool) {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return p, false
	}
	addr = addr.Unmap()
	p, err = addr.Prefix(min(addr.BitLen(), 64))
	return p, err == nil
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

// Find returns the answer of an earlier request with the same key, which the
// caller then gets; nil when there is none. It is the one way to a stored
// answer: it decides whether the caller may have it, and the log entries of the
// replay have committed when it returns.
func (a *Attempt) Find(ctx context.Context) (*response.Response, error) {
	r, err := a.stored(ctx)
	if err != nil || r == nil {
		return nil, err
	}
	if a.bodyDigest != nil {
		switch {
		case r.BodyDigest == nil:
			// Stored by the release before this one, for anyone who sends the
			// key: whether the bodies are the same cannot be known.
			return nil, errGone
		case subtle.ConstantTimeCompare(r.BodyDigest, a.bodyDigest) != 1:
			return nil, errReused
		}
	}
	if err := a.replay(ctx, r.Response); err != nil {
		return nil, err
	}
	return &r.Response, nil
}

// stored returns the record under the key; nil when there is none.
func (a *Attempt) stored(ctx context.Context) (*record, error) {
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
	defer clear(b)
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, errors.New("decode an answer") // the decoder's words may repeat it
	}
	if r.Status == 0 {
		return nil, errGone
	}
	r.Entity = access.Entity{Type: r.EntityType, ID: r.EntityID}
	return &r, nil
}

// replay decides whether the caller may have a stored answer now, and logs that
// it gets it: for each token that the answer is about and that still exists,
// and otherwise for the entity that it is about.
func (a *Attempt) replay(ctx context.Context, answer response.Response) error {
	if err := a.require(a.caller); err != nil {
		return err
	}
	s := a.service
	err := s.store.Read(ctx, a.request.tenant, func(tx store.Tx) error {
		entries, err := s.tokens(ctx, tx, a.caller, answer.Tokens)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			about := answer.Entity
			if about.ID == "" {
				about = access.Entity{Type: a.entity, ID: audit.Many}
			}
			entries = append(entries, audit.Replayed(a.caller, s.now(), about.Type, about.ID))
		}
		return tx.AppendLog(ctx, entries...)
	})
	if errors.Is(err, store.ErrNoTenant) {
		return errNoTenant
	}
	if err != nil {
		return fmt.Errorf("replay an answer: %w", err)
	}
	return nil
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

// encode writes a record so that the headers of its answer stay the same byte
// for byte: json.Marshal would escape what HTML escapes.
func encode(r record) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, errors.New("encode an answer") // the encoder's words may repeat it
	}
	return b.Bytes(), nil
}

// Keep stores the answer in the transaction of the effect, under the tenant's
// data key, or under epoch where the answer must not outlive that key. It fails
// with ErrAnswered, or the store reports ErrExists or ErrConflict, when another
// request was first.
func (a *Attempt) Keep(ctx context.Context, tx store.Tx, answer response.Response, epoch *keyring.EpochKey) error {
	if answer.Stream != nil {
		return errors.New("idempotency: a response that is written as it comes cannot be stored")
	}
	b, err := encode(record{answer, answer.Entity.Type, answer.Entity.ID, a.bodyDigest})
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
