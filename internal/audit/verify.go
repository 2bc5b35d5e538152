package audit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Verification is what Verify found.
type Verification struct {
	Tenant  string `json:"tenant_id"`
	Batches int64  `json:"batches"`
	// Entries were read and are as they were sealed.
	Entries int64 `json:"entries"`
	// Dropped batches have lost their entries to retention, rightly, and
	// still have their root, link and signature.
	Dropped int64 `json:"dropped"`
	// Unsealed entries wait for a batch: nothing is proven about them.
	Unsealed       int64      `json:"unsealed"`
	OldestUnsealed *time.Time `json:"oldest_unsealed,omitempty"`
	// Deleted says that the tenant is deleted: its entries are gone, and the
	// chain of its batches was verified alone.
	Deleted bool `json:"deleted,omitempty"`
	// KeySource says where the key came from against which signatures were
	// verified, and PublicKey is that key in PEM.
	KeySource string `json:"key_source"`
	PublicKey string `json:"public_key"`
	// Head is the newest batch; nil when nothing is sealed.
	Head *Checkpoint `json:"head,omitempty"`
	// Findings are in the order of the log, so the first is the first that is
	// bad; when there are very many they are not all listed. Found counts all.
	Findings []Finding `json:"findings"`
	Found    int64     `json:"found"`
}

// Clean reports whether nothing was found.
func (v *Verification) Clean() bool { return v.Found == 0 }

// maxFindings is how many findings of one pass are listed.
const maxFindings = 100

// examiner is a verification under way.
type examiner struct {
	*Service
	tenant     string
	trust      trust
	checkpoint *Checkpoint
	progress   func(Progress)
	result     *Verification
	listed     int // findings of this pass
	// dropped has for batches that are marked as dropped behind one that is not
	// what is wrong with them, unless retention came that far meanwhile.
	dropped []Finding
	key     [32]byte
	pages   []page
}

// Verify reads a tenant's whole log and finds whatever was removed, changed or
// inserted in what is sealed. With a checkpoint it also finds that batches
// were cut off the end. Writers and sealers may be at work meanwhile. The error
// says that the verification could not finish; what it found is in the result.
func (s *Service) Verify(ctx context.Context, tenant string, c *Checkpoint, progress func(Progress)) (*Verification, error) {
	tenant, err := canonical(tenant)
	if err != nil {
		return nil, err
	}
	if c != nil {
		if _, err := c.self(); err != nil {
			return nil, err
		}
		if c.Tenant != tenant {
			return nil, errors.New("audit: the checkpoint is that of another tenant")
		}
	}
	t, err := s.trust(ctx, tenant, c)
	if err != nil {
		return nil, err
	}
	v := &examiner{Service: s, tenant: tenant, trust: t, checkpoint: c, progress: progress, result: &Verification{
		Tenant: tenant, Deleted: t.deleted, KeySource: t.source, PublicKey: string(t.verifier.PEM()), Findings: []Finding{},
	}}
	_, _ = rand.Read(v.key[:]) // never fails
	// The log is read before the batches: what was sealed when a page of it
	// was read is then in a batch that is still to come.
	steps := []func(context.Context) error{v.walk, v.verifyBatches, v.nameInserted, v.verifyRetention}
	if t.deleted {
		steps = []func(context.Context) error{v.verifyBatches}
	}
	for _, step := range steps {
		v.listed = 0
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	v.listed = 0
	v.verifyCheckpoint()
	slices.SortStableFunc(v.result.Findings, func(a, b Finding) int { return a.order.compare(b.order) })
	return v.result, nil
}

// found notes a finding.
func (v *examiner) found(f Finding) {
	v.result.Found++
	if v.listed < maxFindings {
		v.listed++
		v.result.Findings = append(v.result.Findings, f)
	}
}

// chain is how far the batches were followed.
type chain struct {
	number int64
	link   Hash
	end    place // of the last entry that a batch listed
	live   bool  // a batch was seen that has its entries
}

// verifyBatches follows the chain from the first batch to the last.
func (v *examiner) verifyBatches(ctx context.Context) error {
	var c chain
	for {
		batches, total, err := v.readBatches(ctx, v.tenant, c.number, !v.trust.deleted)
		if err != nil {
			return err
		}
		if len(batches) == 0 {
			return nil
		}
		for _, b := range batches {
			v.verifyBatch(&c, b)
		}
		report(v.progress, "checking batches", c.number, total)
	}
}

// verifyBatch checks one batch, its place in the chain and its entries.
func (v *examiner) verifyBatch(c *chain, b *batch) {
	number := b.head.Number
	for n := c.number + 1; n < number; n++ {
		if v.listed == maxFindings {
			v.result.Found += number - n
			break
		}
		v.found(Finding{Kind: BatchRemoved, Batch: n, order: c.end, Detail: "no batch of this number is there"})
	}
	gap := number != c.number+1
	detail := b.check(v.trust.verifier)
	if detail == "" && !gap && b.head.Previous != c.link {
		detail = "it is not chained to the batch before it"
	}
	if detail != "" {
		f := about(BatchChanged, number, b.first(), detail)
		if f.ID == "" {
			f.order = c.end
		}
		v.found(f)
	}
	v.result.Batches++
	switch {
	case !b.dropped:
		c.live = true
	case c.live && len(v.dropped) < maxFindings:
		v.dropped = append(v.dropped, about(BatchChanged, number, b.first(), "it is marked as dropped, and an older one is not"))
	}
	if b.dropped {
		v.result.Dropped++
	}
	v.verifyEntries(b)
	c.number, c.link = number, b.head.Link
	if n := len(b.leaves); n > 0 {
		c.end = b.leaves[n-1].place
	}
	v.compareCheckpoint(b)
	head := b.head
	v.result.Head = &head
}

// verifyEntries compares the stored entries with what the batch lists.
func (v *examiner) verifyEntries(b *batch) {
	for i, l := range b.leaves {
		if b.entries == nil {
			v.match(b.head.Number, l.place)
			continue
		}
		e := b.entries[i]
		if e == nil {
			v.found(about(Removed, b.head.Number, l.place, "it was sealed and is not in the log"))
			continue
		}
		v.match(b.head.Number, l.place)
		if hashEntry(v.tenant, *e) != l.entry {
			v.found(about(Changed, b.head.Number, l.place, "it is not what was sealed"))
			continue
		}
		v.result.Entries++
	}
}

// compareCheckpoint looks whether the log passes through the checkpoint.
func (v *examiner) compareCheckpoint(b *batch) {
	c := v.checkpoint
	if c == nil || b.head.Number != c.Number || b.head.Link == c.Link {
		return
	}
	v.found(about(Forked, c.Number, b.first(), "the checkpoint has another batch of this number"))
}

// verifyCheckpoint looks whether the log reaches the checkpoint, and whether
// both are signed with one key.
func (v *examiner) verifyCheckpoint() {
	c := v.checkpoint
	if c == nil {
		return
	}
	last := int64(0)
	if v.result.Head != nil {
		last = v.result.Head.Number
	}
	behindAll := place{at: math.MaxInt64}
	if last < c.Number {
		v.found(Finding{Kind: Truncated, Batch: last + 1, order: behindAll, Detail: "the checkpoint names a later batch than the log has"})
	}
	if v.trust.verifier.Verify(c.Signature, c.message()) != nil {
		v.found(Finding{Kind: Forked, Batch: c.Number, order: behindAll, Detail: "the checkpoint is signed with another key than the tenant's"})
	}
}

// maxUnsaid bounds how far back verifyRetention looks for the last batch that
// was dropped rightly.
const maxUnsaid = 1 << 16

// verifyRetention looks for the entry that retention leaves: a batch that is
// marked as dropped behind the one that the entry names was emptied by somebody
// else. It asks when all batches were read, because retention may have come
// further meanwhile.
func (v *examiner) verifyRetention(ctx context.Context) error {
	if v.result.Dropped == 0 {
		return nil
	}
	var through, said int64
	var unsaid *batch
	err := v.store.View(ctx, v.tenant, func(tx store.Tx) (err error) {
		unsaid = nil
		if through, err = droppedThrough(ctx, tx, 0); err != nil {
			return err
		}
		if said, err = retentionSaid(ctx, tx, through); err != nil {
			return err
		}
		for n := said; n < through && unsaid == nil; n++ {
			rows, err := tx.LogBatches(ctx, n, 1)
			if err != nil {
				return err
			}
			if len(rows) > 0 && rows[0].Dropped {
				unsaid = parseBatch(v.tenant, rows[0])
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("audit: look for the entries of retention: %w", err)
	}
	if unsaid != nil {
		v.found(about(Removed, unsaid.head.Number, unsaid.first(), "its batch is marked as dropped, and no entry of retention says so"))
	}
	for _, f := range v.dropped {
		if f.Batch > through {
			v.found(f)
		}
	}
	return nil
}
