package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Checkpoint is the signed head of a tenant's log: the newest batch, which is
// chained to all that came before it. Kept elsewhere, it proves later that
// nothing was cut off since. It holds no entries and no secrets.
type Checkpoint struct {
	Tenant   string    `json:"tenant_id"`
	Number   int64     `json:"number"` // of the batch, from 1
	Entries  int       `json:"entries"`
	Root     Hash      `json:"root"`
	Previous Hash      `json:"previous"` // the link of the batch before; zeros for the first
	SealedAt time.Time `json:"sealed_at"`
	Link     Hash      `json:"link"`
	// Signature is plain Ed25519; PublicKey is PEM.
	Signature []byte `json:"signature"`
	PublicKey string `json:"public_key"`
}

// ErrNothingSealed says that a tenant's log has no batch yet.
var ErrNothingSealed = errors.New("audit: nothing is sealed yet")

// errCheckpoint says that a checkpoint contradicts itself.
var errCheckpoint = errors.New("audit: not a checkpoint, or one that was changed")

// link computes what chains the batch to all before it.
func (c *Checkpoint) link() Hash {
	return sha256.Sum256(bind(linkLabel, c.Tenant, decimal(c.Number), decimal(c.Entries),
		string(c.Root[:]), string(c.Previous[:]), decimal(store.At(c.SealedAt))))
}

// message is what is signed. It names the key, which otherwise nothing would
// keep from being replaced in a batch whose tenant has no keys any more.
func (c *Checkpoint) message() []byte {
	return bind(headLabel, c.Tenant, decimal(c.Number), string(c.Link[:]), c.PublicKey)
}

// verify checks the link and the signature.
func (c *Checkpoint) verify(v *keyring.Verifier) bool {
	return exact(c.SealedAt) && c.link() == c.Link && v.Verify(c.Signature, c.message()) == nil
}

// exact reports whether a time is one that a store can hold: no part of it is
// left out of what is hashed.
func exact(t time.Time) bool { return store.At(t).Time().Equal(t) }

// ParseCheckpoint reads a checkpoint in JSON and checks it against the key
// that it names. Whose key that is, Verify finds out.
func ParseCheckpoint(text []byte) (*Checkpoint, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var c Checkpoint
	if d.Decode(&c) != nil || d.More() {
		return nil, errCheckpoint
	}
	_, err := c.self()
	if err != nil {
		return nil, err
	}
	return &c, nil
}

// self checks a checkpoint against the key that it names.
func (c *Checkpoint) self() (*keyring.Verifier, error) {
	v, err := keyring.ParseVerifier([]byte(c.PublicKey))
	if err != nil || c.Number < 1 || !c.verify(v) {
		return nil, errCheckpoint
	}
	return v, nil
}

// Checkpoint returns the signed head of a tenant's log, or ErrNothingSealed.
// Entries that wait to be sealed are not in it: Sealer.SealTenant first.
func (s *Service) Checkpoint(ctx context.Context, tenant string) (*Checkpoint, error) {
	tenant, err := canonical(tenant)
	if err != nil {
		return nil, err
	}
	trust, err := s.trust(ctx, tenant, nil)
	if err != nil {
		return nil, err
	}
	var row store.LogBatch
	err = s.store.View(ctx, tenant, func(tx store.Tx) (err error) {
		row, err = tx.LastLogBatch(ctx)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, ErrNothingSealed
	}
	if err != nil {
		return nil, fmt.Errorf("audit: read the newest batch: %w", err)
	}
	b := parseBatch(tenant, row)
	if fault := b.check(trust.verifier); fault != "" {
		return nil, fmt.Errorf("audit: batch %d: %s: %w", row.Number, fault, store.ErrDamaged)
	}
	return &b.head, nil
}
