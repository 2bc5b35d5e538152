package audit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func (w *world) retain(tenant string, keep time.Duration) audit.Retained {
	w.t.Helper()
	r, err := w.service.Retain(w.t.Context(), tenant, keep, nil)
	if err != nil {
		w.t.Fatalf("Retain = %v", err)
	}
	return r
}

func TestRetainDropsWholeBatchesAndKeepsTheirRoots(t *testing.T) {
	w := newWorld(t)
	tenant, entries := w.sealedLog() // batches at 5, 10 and 15 seconds
	other, _ := w.sealedLog()
	before := w.checkpoint(tenant)

	if got := w.retain(tenant, 0); got != (audit.Retained{}) {
		t.Errorf("Retain without a time = %+v, want nothing", got)
	}
	// Everything since the second entry of the second batch is to be kept.
	keep := w.clock.Now().Sub(entries[6].CreatedAt.Time())
	if got, want := w.retain(tenant, keep), (audit.Retained{Batches: 1, Entries: 5, Through: 1}); got != want {
		t.Errorf("Retain = %+v, want %+v", got, want)
	}
	v := w.clean(tenant, before, 10, 1)
	if v.Dropped != 1 || v.Batches != 3 {
		t.Errorf("%d of %d batches are dropped, want 1 of 3", v.Dropped, v.Batches)
	}
	got := w.entries(tenant)
	if len(got) != 11 {
		t.Fatalf("%d entries are left, want 10 and the one of retention", len(got))
	}
	said := got[0]
	if said.ActorType != "system" || said.EntityType != "log" || said.EntityID != "1" || said.Operation != "delete" || said.Message != "Logs deleted by retention" {
		t.Errorf("the entry of retention is %+v", said)
	}
	w.clean(other, nil, 15, 0)

	// A second time finds nothing new; later the rest goes.
	if got, want := w.retain(tenant, keep), (audit.Retained{Through: 1}); got != want {
		t.Errorf("a second Retain = %+v, want %+v", got, want)
	}
	w.seal(tenant, 1)
	w.clock.Advance(time.Hour)
	if got, want := w.retain(tenant, time.Minute), (audit.Retained{Batches: 3, Entries: 11, Through: 4}); got != want {
		t.Errorf("a later Retain = %+v, want %+v", got, want)
	}
	w.clean(tenant, before, 0, 1)
	w.seal(tenant, 1)
	w.clean(tenant, before, 1, 0)
}

func TestADroppedBatchMustKeepItsRecord(t *testing.T) {
	for name, change := range map[string]string{
		"root":      "root = x'00'",
		"link":      "link = root",
		"signature": "signature = substr(signature, 1, length(signature) - 1)",
		"leaves":    "leaves = substr(leaves, 1, length(leaves) - 56), entries = 4",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tenant, entries := w.sealedLog()
			w.retain(tenant, w.clock.Now().Sub(entries[10].CreatedAt.Time()))
			w.clean(tenant, nil, 5, 1)
			w.tamper("UPDATE log_batches SET "+change+" WHERE tenant_id = ? AND number = 1", id(tenant))
			v := w.verify(tenant, nil)
			if v.Clean() || v.Findings[0].Kind != audit.BatchChanged || v.Findings[0].Batch != 1 {
				t.Errorf("Verify found %v, want batch 1 changed", v.Findings)
			}
		})
	}
}

func TestWhatIsEmptiedBehindRetentionIsFound(t *testing.T) {
	w := newWorld(t)
	tenant, entries := w.sealedLog()
	w.retain(tenant, w.clock.Now().Sub(entries[5].CreatedAt.Time()))
	w.seal(tenant, 1)
	w.clean(tenant, nil, 11, 0)
	for _, e := range entries[5:] {
		w.tamper("DELETE FROM log"+row, rowOf(tenant, e)...)
	}
	w.tamper("UPDATE log_batches SET dropped = 1 WHERE tenant_id = ? AND number IN (2, 3)", id(tenant))
	v := w.verify(tenant, nil)
	if v.Found != 1 || v.Findings[0].Kind != audit.Removed || v.Findings[0].Batch != 2 || v.Findings[0].ID != entries[5].ID {
		t.Errorf("Verify found %v, want entry %s of batch 2 removed", v.Findings, entries[5].ID)
	}
}

func TestRetainLeavesEvidence(t *testing.T) {
	for name, test := range tamperings {
		if test.kind != audit.Changed && test.kind != audit.Removed && test.kind != audit.BatchChanged || test.batch != 2 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tenant, entries := w.sealedLog()
			test.do(w, tenant, entries)
			if name == "a batch marked as dropped" {
				return // it looks dropped: Verify finds it, and nothing is left to keep
			}
			w.clock.Advance(time.Hour)
			got, err := w.service.Retain(t.Context(), tenant, time.Minute, nil)
			if !errors.Is(err, audit.ErrRetention) || got.Through != 0 {
				t.Errorf("Retain = %+v, %v, want %v and nothing dropped", got, err, audit.ErrRetention)
			}
		})
	}
}

func TestManySmallBatchesAreDroppedWithFewEntries(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	for range 140 {
		w.write(tenant, 1)
		w.seal(tenant, 1)
	}
	w.clock.Advance(time.Hour)
	if got, want := w.retain(tenant, time.Minute), (audit.Retained{Batches: 140, Entries: 140, Through: 140}); got != want {
		t.Errorf("Retain = %+v, want %+v", got, want)
	}
	if got := len(w.entries(tenant)); got != 2 {
		t.Errorf("%d entries say so, want 2", got)
	}
	w.clean(tenant, nil, 0, 2)
}

func TestRetainOfATenantWithoutKeys(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.sealedLog()
	w.delete(tenant)
	if _, err := w.service.Retain(t.Context(), tenant, time.Minute, nil); !errors.Is(err, keyring.ErrNoKeys) {
		t.Errorf("Retain of a deleted tenant = %v, want %v", err, keyring.ErrNoKeys)
	}
	if _, err := w.service.Retain(t.Context(), "tenant", time.Minute, nil); !errors.Is(err, store.ErrNoTenant) {
		t.Errorf("Retain of what is no id = %v, want %v", err, store.ErrNoTenant)
	}
}
