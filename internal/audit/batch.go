package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// batch is a stored batch, parsed as far as that went.
type batch struct {
	head    Checkpoint
	leaves  []leaf // nil when the stored list is malformed
	dropped bool
	public  []byte // DER; nil when the stored root, link or signature is malformed
	// entries has for each leaf the stored entry, nil where there is none. It
	// is nil itself unless entries were asked for.
	entries []*store.LogEntry
}

// newBatch seals entries that follow one another, behind the last batch.
func newBatch(keys *keyring.Keys, last store.LogBatch, entries []store.LogEntry, now store.Time) (store.LogBatch, []store.Position, error) {
	leaves := make([]leaf, len(entries))
	sealed := make([]store.Position, len(entries))
	for i, e := range entries {
		p, err := placeOf(e.CreatedAt, e.ID)
		if err != nil {
			return store.LogBatch{}, nil, err
		}
		leaves[i] = leaf{p, hashEntry(keys.Tenant(), e)}
		sealed[i] = p.position()
	}
	verifier := keys.Verifier()
	head := Checkpoint{
		Tenant: keys.Tenant(), Number: last.Number + 1, Entries: len(entries),
		Root: merkle(hashLeaves(leaves), nil), SealedAt: now.Time(), PublicKey: string(verifier.PEM()),
	}
	copy(head.Previous[:], last.Link)
	head.Link = head.link()
	signature, err := keys.Sign(head.message())
	if err != nil {
		return store.LogBatch{}, nil, fmt.Errorf("audit: sign: %w", err)
	}
	public, err := publicDER(verifier)
	if err != nil {
		return store.LogBatch{}, nil, err
	}
	return store.LogBatch{
		Number: head.Number, Count: head.Entries, Leaves: formatLeafList(leaves), Root: head.Root[:], Link: head.Link[:],
		Signature: signed{head.Previous, signature, public}.format(), SealedAt: now,
	}, sealed, nil
}

// parseBatch reads a stored batch. Whether it is sound, check tells.
func parseBatch(tenant string, row store.LogBatch) *batch {
	b := &batch{dropped: row.Dropped, head: Checkpoint{
		Tenant: tenant, Number: row.Number, Entries: row.Count, SealedAt: row.SealedAt.Time(),
	}}
	copy(b.head.Root[:], row.Root)
	copy(b.head.Link[:], row.Link)
	b.leaves, _ = parseLeaves(row.Leaves)
	if s, ok := parseSigned(row.Signature); ok && len(row.Root) == len(Hash{}) && len(row.Link) == len(Hash{}) {
		b.public = s.public
		b.head.Previous, b.head.Signature, b.head.PublicKey = s.previous, s.signature, string(publicPEM(s.public))
	}
	return b
}

// check returns what is wrong with the record of a batch in itself, "" when
// its list of entries is the one that was signed.
func (b *batch) check(v *keyring.Verifier) string {
	switch {
	case b.leaves == nil:
		return "its list of entries was changed"
	case b.public == nil:
		return "its root, link or signature was changed"
	case len(b.leaves) != b.head.Entries:
		return "its number of entries was changed"
	case merkle(hashLeaves(b.leaves), nil) != b.head.Root:
		return "its list of entries or its root was changed"
	case b.head.link() != b.head.Link:
		return "what its link covers was changed"
	case v.Verify(b.head.Signature, b.head.message()) != nil:
		return "it is not signed with the tenant's key"
	}
	return ""
}

// intact reports whether a batch, chained to the link of the one before, and
// all of its entries are what was sealed.
func (b *batch) intact(v *keyring.Verifier, previous []byte) bool {
	var link Hash
	copy(link[:], previous)
	if b.check(v) != "" || b.head.Previous != link {
		return false
	}
	for i, l := range b.leaves {
		if b.entries[i] == nil || hashEntry(b.head.Tenant, *b.entries[i]) != l.entry {
			return false
		}
	}
	return true
}

// first is where the first entry stands that the batch lists.
func (b *batch) first() (p place) {
	if len(b.leaves) > 0 {
		p = b.leaves[0].place
	}
	return p
}

// spare is how many entries of other batches a range read may pass over.
const spare = 64

// readEntries fetches the entries that a batch lists. Those of a batch mostly
// stand together, so one range is read, and single ones for what it lacked.
func (b *batch) readEntries(ctx context.Context, tx store.Tx) error {
	b.entries = make([]*store.LogEntry, len(b.leaves))
	if len(b.leaves) == 0 {
		return nil
	}
	near, err := tx.Logs(ctx, store.LogFilter{From: b.leaves[0].at, Before: b.leaves[len(b.leaves)-1].at + 1},
		store.Page{Limit: len(b.leaves) + spare})
	if err != nil {
		return fmt.Errorf("audit: read entries: %w", err)
	}
	found := make(map[place]*store.LogEntry, len(near))
	for i := range near {
		p, err := placeOf(near[i].CreatedAt, near[i].ID)
		if err != nil {
			return err
		}
		found[p] = &near[i]
	}
	for i, l := range b.leaves {
		if b.entries[i] = found[l.place]; b.entries[i] != nil {
			continue
		}
		e, err := tx.LogEntry(ctx, l.position())
		switch {
		case err == nil:
			b.entries[i] = &e
		case !errors.Is(err, store.ErrNotFound):
			return fmt.Errorf("audit: read entry: %w", err)
		}
	}
	return nil
}

// readAtOnce is how many batches one look at the store reads.
const readAtOnce = 8

// readBatches reads some batches behind a number, with their entries if asked,
// and the number of the last batch there is.
func (s *Service) readBatches(ctx context.Context, tenant string, after int64, entries bool) (batches []*batch, total int64, err error) {
	err = s.store.View(ctx, tenant, func(tx store.Tx) error {
		batches = nil
		rows, err := tx.LogBatches(ctx, after, readAtOnce)
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, row := range rows {
			b := parseBatch(tenant, row)
			if entries && !b.dropped {
				if err := b.readEntries(ctx, tx); err != nil {
					return err
				}
			}
			batches = append(batches, b)
		}
		last, err := tx.LastLogBatch(ctx)
		total = last.Number
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("audit: read batches: %w", err)
	}
	return batches, total, nil
}

// trust is the key against which signatures are verified.
type trust struct {
	verifier *keyring.Verifier
	source   string
	// deleted says that the tenant is deleted or being deleted: its entries
	// are gone, rightly.
	deleted bool
}

// Where the key came from. One from the log itself proves only that whoever
// wrote the first batch wrote the others: compare it with one kept elsewhere.
const (
	KeyFromKeyring    = "keyring"
	KeyFromCheckpoint = "checkpoint"
	KeyFromLog        = "log"
	KeyFromExport     = "export"
	KeyGiven          = "given"
)

// trust finds the key of a tenant's log. A deleted tenant has none in the
// keyring; then that of the checkpoint counts, and without one that of the
// first batch.
func (s *Service) trust(ctx context.Context, tenant string, c *Checkpoint) (trust, error) {
	keys, err := s.ring.For(ctx, tenant)
	if err == nil {
		return trust{verifier: keys.Verifier(), source: KeyFromKeyring}, nil
	}
	if !errors.Is(err, keyring.ErrNoKeys) {
		return trust{}, err
	}
	t := trust{source: KeyFromCheckpoint}
	var first []store.LogBatch
	err = s.store.View(ctx, tenant, func(tx store.Tx) (err error) {
		row, err := tx.TenantRow(ctx)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		t.deleted = err != nil || row.Deleting
		first, err = tx.LogBatches(ctx, 0, 1)
		return err
	})
	if err != nil {
		return trust{}, fmt.Errorf("audit: look for a deleted tenant: %w", err)
	}
	if c != nil {
		t.verifier, err = c.self()
		return t, err
	}
	if len(first) == 0 {
		return trust{}, fmt.Errorf("audit: no such tenant: %w", store.ErrNotFound)
	}
	t.source = KeyFromLog
	signed, _ := parseSigned(first[0].Signature)
	t.verifier, err = keyring.ParseVerifier(publicPEM(signed.public))
	if err != nil {
		return trust{}, fmt.Errorf("audit: the first batch holds no public key: %w", store.ErrDamaged)
	}
	return t, nil
}
