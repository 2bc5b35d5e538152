package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Integrity is what is known of the integrity of a tenant's log without reading
// all of it.
type Integrity struct {
	// Head is the signed head; nil while nothing is sealed.
	Head     *Checkpoint
	Unsealed int64
	// Oldest is when the oldest entry was made that waits to be sealed.
	Oldest *time.Time
	// Last is the last verification that finished; nil when there was none.
	Last *Verified
}

// Verified is the record of a verification. It stands in the store in clear and
// unsigned: it says when somebody looked, and proves nothing.
type Verified struct {
	ID        string    `json:"id,omitempty"`
	At        time.Time `json:"at"`
	ActorID   string    `json:"actor_id,omitempty"`
	ActorType string    `json:"actor_type"`
	ActorName string    `json:"actor_name,omitempty"`
	Batches   int64     `json:"batches"`
	Entries   int64     `json:"entries"`
	Found     int64     `json:"found"`
	// Head is the number of the newest batch that was verified.
	Head int64 `json:"head"`
}

// verifiedMark is where the last verification stands.
const verifiedMark = "log-verified"

// verifiedBy is the record of a verification that a caller asked for.
func verifiedBy(c access.Caller, id string, at time.Time, v *Verification) Verified {
	r := Verified{ID: id, At: at.UTC(), ActorID: c.Application(), ActorType: c.ActorType(), ActorName: c.ActorName(), Batches: v.Batches, Entries: v.Entries, Found: v.Found}
	if v.Head != nil {
		r.Head = v.Head.Number
	}
	return r
}

func (v Verified) put(ctx context.Context, tx store.Tx) error {
	b, err := json.Marshal(v)
	if err != nil {
		return errors.New("audit: encode the record of a verification")
	}
	return tx.PutMark(ctx, verifiedMark, b)
}

// lastVerified reads the record of the last verification; nil when there is none.
func lastVerified(ctx context.Context, tx store.Tx) (*Verified, error) {
	b, err := tx.Mark(ctx, verifiedMark)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v := new(Verified)
	if json.Unmarshal(b, v) != nil {
		return nil, fmt.Errorf("audit: read the record of a verification: %w", store.ErrDamaged)
	}
	return v, nil
}

// RecordVerification notes that the operator verified a tenant's log.
func (s *Service) RecordVerification(ctx context.Context, v *Verification) error {
	if v.Deleted {
		return nil
	}
	r := verifiedBy(access.NewSystem(v.Tenant), "", s.now(), v)
	if err := s.store.Update(ctx, v.Tenant, func(tx store.Tx) error { return r.put(ctx, tx) }); err != nil {
		return fmt.Errorf("audit: record a verification: %w", err)
	}
	return nil
}

// Integrity returns the signed head of the log of the caller's tenant, what is
// not sealed yet, and when the log was last verified and by whom. The caller
// needs log:read.
func (s *Service) Integrity(ctx context.Context, c access.Caller) (in Integrity, err error) {
	if err := c.Require(access.LogRead); err != nil {
		return in, err
	}
	in.Head, err = s.Checkpoint(ctx, c.Tenant())
	if err != nil && !errors.Is(err, ErrNothingSealed) {
		return in, err
	}
	err = s.readFor(ctx, c, "integrity retrieved", func(tx store.Tx) (err error) {
		if in.Unsealed, err = tx.CountUnsealedLog(ctx); err != nil {
			return err
		}
		oldest, err := tx.UnsealedLogPositions(ctx, nil, 1)
		if err != nil {
			return err
		}
		if len(oldest) > 0 {
			at := oldest[0].CreatedAt.Time()
			in.Oldest = &at
		}
		in.Last, err = lastVerified(ctx, tx)
		return err
	})
	return in, err
}
