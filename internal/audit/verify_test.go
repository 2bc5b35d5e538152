package audit_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// row names an entry in a statement: the tenant, the time and the id.
const row = " WHERE tenant_id = ? AND created_at = ? AND id = ?"

func rowOf(tenant string, e store.LogEntry) []any {
	return []any{id(tenant), int64(e.CreatedAt), id(e.ID)}
}

// tampering is one way to change a log that is sealed, and what Verify is to
// say first.
type tampering struct {
	do    func(w *world, tenant string, e []store.LogEntry)
	kind  audit.Kind
	batch int64
	entry int // index of the entry that is named; -1 for none
}

// setField changes one field of an entry.
func setField(statement string) func(w *world, tenant string, e []store.LogEntry) {
	return func(w *world, tenant string, e []store.LogEntry) {
		w.tamper("UPDATE log SET "+statement+row, rowOf(tenant, e[7])...)
	}
}

func setBatch(statement string, args ...any) func(w *world, tenant string, e []store.LogEntry) {
	return func(w *world, tenant string, _ []store.LogEntry) {
		w.tamper("UPDATE log_batches SET "+statement+" WHERE tenant_id = ? AND number = 2", append(args, id(tenant))...)
	}
}

// flip changes one byte of a blob.
func flip(column string, at int) func(w *world, tenant string, e []store.LogEntry) {
	return func(w *world, tenant string, _ []store.LogEntry) {
		var b []byte
		query := "SELECT " + column + " FROM log_batches WHERE tenant_id = ? AND number = 2"
		key := id(tenant)
		if err := w.raw().QueryRowContext(w.t.Context(), query, key[:]).Scan(&b); err != nil {
			w.t.Fatal(err)
		}
		if at < 0 {
			at += len(b)
		}
		b[at] ^= 1
		w.tamper("UPDATE log_batches SET "+column+" = ? WHERE tenant_id = ? AND number = 2", b, key)
	}
}

var tamperings = map[string]tampering{
	"an entry removed": {func(w *world, tenant string, e []store.LogEntry) {
		w.tamper("DELETE FROM log"+row, rowOf(tenant, e[7])...)
	}, audit.Removed, 2, 7},
	"the first entry removed": {func(w *world, tenant string, e []store.LogEntry) {
		w.tamper("DELETE FROM log"+row, rowOf(tenant, e[0])...)
	}, audit.Removed, 1, 0},
	"the last entry removed": {func(w *world, tenant string, e []store.LogEntry) {
		w.tamper("DELETE FROM log"+row, rowOf(tenant, e[14])...)
	}, audit.Removed, 3, 14},
	"every entry removed": {func(w *world, tenant string, _ []store.LogEntry) {
		w.tamper("DELETE FROM log WHERE tenant_id = ?", id(tenant))
	}, audit.Removed, 1, 0},
	"an entry removed with its counter": {func(w *world, tenant string, e []store.LogEntry) {
		w.tamper("DELETE FROM log"+row, rowOf(tenant, e[7])...)
		w.tamper("UPDATE log_counts SET entries = entries - 1 WHERE tenant_id = ?", id(tenant))
	}, audit.Removed, 2, 7},

	"another actor":        {setField("actor_id = 'somebody else'"), audit.Changed, 2, 7},
	"another actor type":   {setField("actor_type = 'system'"), audit.Changed, 2, 7},
	"another session":      {setField("session_id = 's'"), audit.Changed, 2, 7},
	"another entity type":  {setField("entity_type = 'bank'"), audit.Changed, 2, 7},
	"another entity":       {setField("entity_id = 'other'"), audit.Changed, 2, 7},
	"another operation":    {setField("operation = 'use'"), audit.Changed, 2, 7},
	"another outcome":      {setField("outcome = 'denied'"), audit.Changed, 2, 7},
	"another message":      {setField("message = 'Token used'"), audit.Changed, 2, 7},
	"another trace":        {setField("trace_id = 'trace-2'"), audit.Changed, 2, 7},
	"another address":      {setField("client_address = ''"), audit.Changed, 2, 7},
	"a byte between texts": {setField("trace_id = 'trace-11', client_address = '92.0.2.7'"), audit.Changed, 2, 7},
	"another time":         {setField("created_at = created_at + 1"), audit.Removed, 2, 7},
	"an earlier time":      {setField("created_at = 1"), audit.Inserted, 0, -1},
	"another id":           {setField("id = x'00000000000070008000000000000001'"), audit.Inserted, 0, -1},

	"an entry inserted": {func(w *world, tenant string, e []store.LogEntry) {
		w.tamper("INSERT INTO log SELECT tenant_id, created_at + 1, id, actor_id, actor_type, session_id, entity_type, entity_id, operation, outcome, message, trace_id, client_address, actor_name, reason FROM log"+row,
			rowOf(tenant, e[7])...)
	}, audit.Inserted, 0, -1},
	"contents swapped": {func(w *world, tenant string, e []store.LogEntry) {
		w.tamper("UPDATE log SET entity_id = ?"+row, append([]any{e[8].EntityID}, rowOf(tenant, e[7])...)...)
		w.tamper("UPDATE log SET entity_id = ?"+row, append([]any{e[7].EntityID}, rowOf(tenant, e[8])...)...)
	}, audit.Changed, 2, 7},
	"places swapped": {func(w *world, tenant string, e []store.LogEntry) {
		w.tamper("UPDATE log SET created_at = 0"+row, rowOf(tenant, e[7])...)
		w.tamper("UPDATE log SET created_at = ?"+row, append([]any{int64(e[7].CreatedAt)}, rowOf(tenant, e[8])...)...)
		w.tamper("UPDATE log SET created_at = ? WHERE tenant_id = ? AND created_at = 0", int64(e[8].CreatedAt), id(tenant))
	}, audit.Removed, 2, 7},
	"an entry moved to another tenant": {func(w *world, tenant string, e []store.LogEntry) {
		w.tamper("UPDATE log SET tenant_id = ?"+row, append([]any{uuid.New()}, rowOf(tenant, e[7])...)...)
	}, audit.Removed, 2, 7},
	"an entry sent to be sealed again": {func(w *world, tenant string, e []store.LogEntry) {
		w.tamper("INSERT INTO log_unsealed VALUES (?, ?, ?)", rowOf(tenant, e[7])...)
		w.seal(tenant, 1)
	}, audit.Doubled, 4, 7},

	"the root changed":              {flip("root", 0), audit.BatchChanged, 2, 5},
	"the root lengthened":           {setBatch("root = CAST(root || x'00' AS BLOB)"), audit.BatchChanged, 2, 5},
	"the link changed":              {flip("link", 31), audit.BatchChanged, 2, 5},
	"the signature changed":         {flip("signature", 40), audit.BatchChanged, 2, 5},
	"the link before changed":       {flip("signature", 1), audit.BatchChanged, 2, 5},
	"the signature removed":         {setBatch("signature = x''"), audit.BatchChanged, 2, 5},
	"the number of entries changed": {setBatch("entries = 4"), audit.BatchChanged, 2, 5},
	"the time of sealing changed":   {setBatch("sealed_at = sealed_at - 1"), audit.BatchChanged, 2, 5},
	"a leaf's hash changed":         {flip("leaves", -1), audit.BatchChanged, 2, 5},
	"a leaf cut off":                {setBatch("leaves = substr(leaves, 1, length(leaves) - 56), entries = 4"), audit.BatchChanged, 2, 5},
	"the list cut short":            {setBatch("leaves = substr(leaves, 1, length(leaves) - 1)"), audit.BatchChanged, 2, -1},
	"the list removed":              {setBatch("leaves = x''"), audit.BatchChanged, 2, -1},
	"a batch marked as dropped":     {setBatch("dropped = 1"), audit.BatchChanged, 2, 5},
	"a batch removed":               {removeBatches("number = 2"), audit.BatchRemoved, 2, -1},
	"the first batch removed":       {removeBatches("number = 1"), audit.BatchRemoved, 1, -1},
	"the last batch removed":        {removeBatches("number = 3"), audit.Inserted, 0, 10},
	"a batch given a later number":  {setBatch("number = 7"), audit.BatchRemoved, 2, -1},
	"the batch of another log":      {otherBatch, audit.BatchChanged, 2, 5},
	"everything rechained":          {rechain, audit.BatchChanged, 1, 1},
	"the first batches emptied, said to be dropped": {func(w *world, tenant string, e []store.LogEntry) {
		for _, entry := range e[:5] {
			w.tamper("DELETE FROM log"+row, rowOf(tenant, entry)...)
		}
		w.tamper("UPDATE log_batches SET dropped = 1 WHERE tenant_id = ? AND number = 1", id(tenant))
	}, audit.Removed, 1, 0},
	"an entry removed while it waited": {func(w *world, tenant string, _ []store.LogEntry) {
		e := w.write(tenant, 2)
		w.tamper("DELETE FROM log"+row, rowOf(tenant, e[0])...)
	}, audit.Removed, 0, -1},
}

func removeBatches(which string) func(w *world, tenant string, e []store.LogEntry) {
	return func(w *world, tenant string, _ []store.LogEntry) {
		w.tamper("DELETE FROM log_batches WHERE tenant_id = ? AND "+which, id(tenant))
	}
}

// otherBatch puts a batch of another tenant, signed rightly, in the place of one.
func otherBatch(w *world, tenant string, _ []store.LogEntry) {
	other, _ := w.sealedLog()
	w.tamper(`UPDATE log_batches SET (entries, root, link, signature, sealed_at) = (
		SELECT entries, root, link, signature, sealed_at FROM log_batches WHERE tenant_id = ? AND number = 2) WHERE tenant_id = ? AND number = 2`,
		id(other), id(tenant))
}

// rechain seals the whole log anew, without the first entry: all that somebody
// can do who knows the program and does not have the tenant's key.
func rechain(w *world, tenant string, e []store.LogEntry) {
	forger := newWorld(w.t)
	forger.adopt(tenant)
	forger.update(tenant, func(tx store.Tx) error { return tx.AppendLog(w.t.Context(), e[1:]...) })
	forger.seal(tenant, 1)
	var number, entries, sealedAt int64
	var leaves, root, link, signature []byte
	if err := forger.raw().QueryRowContext(w.t.Context(), "SELECT number, entries, leaves, root, link, signature, sealed_at FROM log_batches").
		Scan(&number, &entries, &leaves, &root, &link, &signature, &sealedAt); err != nil {
		w.t.Fatal(err)
	}
	w.tamper("DELETE FROM log"+row, rowOf(tenant, e[0])...)
	w.tamper("DELETE FROM log_batches WHERE tenant_id = ?", id(tenant))
	w.tamper("INSERT INTO log_batches VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)", id(tenant), number, entries, leaves, root, link, signature, sealedAt)
}

func TestVerifyNamesTheFirstThatIsBad(t *testing.T) {
	for name, test := range tamperings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tenant, entries := w.sealedLog()
			w.clean(tenant, nil, 15, 0)
			test.do(w, tenant, entries)
			v := w.verify(tenant, nil)
			if v.Clean() || len(v.Findings) == 0 {
				t.Fatalf("Verify found nothing, want %s in batch %d", test.kind, test.batch)
			}
			got := v.Findings[0]
			want := ""
			if test.entry >= 0 {
				want = entries[test.entry].ID
			}
			if got.Kind != test.kind || got.Batch != test.batch || test.entry >= 0 && got.ID != want {
				t.Errorf("the first finding is %q, want %s, batch %d, entry %q\nall: %v", got, test.kind, test.batch, want, v.Findings)
			}
		})
	}
}

func TestAnEntryMovedToAnotherTenantIsFoundThereToo(t *testing.T) {
	w := newWorld(t)
	tenant, entries := w.sealedLog()
	other, _ := w.sealedLog()
	w.tamper("UPDATE log SET tenant_id = ?"+row, append([]any{id(other)}, rowOf(tenant, entries[7])...)...)
	v := w.verify(other, nil)
	if v.Found != 1 || v.Findings[0].Kind != audit.Inserted || v.Findings[0].ID != entries[7].ID {
		t.Errorf("Verify of the other tenant found %v, want entry %s inserted", v.Findings, entries[7].ID)
	}
}

func TestALogOfManyPagesIsVerifiedAndOneInsertedEntryIsNamed(t *testing.T) {
	if testing.Short() {
		t.Skip("writes thousands of entries")
	}
	w := newWorld(t)
	tenant := w.tenant()
	const n = 2*audit.PageSize + 100
	var entries []store.LogEntry
	for len(entries) < n {
		entries = append(entries, w.write(tenant, min(1000, n-len(entries)))...)
	}
	w.seal(tenant, (n+audit.MaxBatch-1)/audit.MaxBatch)
	w.write(tenant, 3)
	v := w.clean(tenant, nil, n, 3)
	if v.Batches != (n+audit.MaxBatch-1)/audit.MaxBatch {
		t.Errorf("Verify read %d batches", v.Batches)
	}
	inserted := uuid.New()
	at := int64(entries[audit.PageSize+50].CreatedAt) + 1
	w.tamper("INSERT INTO log SELECT tenant_id, ?, ?, actor_id, actor_type, session_id, entity_type, entity_id, operation, outcome, message, trace_id, client_address, actor_name, reason FROM log"+row,
		append([]any{at, inserted}, rowOf(tenant, entries[7])...)...)
	w.tamper("DELETE FROM log"+row, rowOf(tenant, entries[n-1])...)
	v = w.verify(tenant, nil)
	if v.Found != 2 || v.Findings[0].Kind != audit.Inserted || v.Findings[0].ID != inserted.String() || v.Findings[1].ID != entries[n-1].ID {
		t.Errorf("Verify found %v, want entry %s inserted, then %s removed", v.Findings, inserted, entries[n-1].ID)
	}
}

func TestVerifyIsCleanWhileOthersWriteSealAndDrop(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	const writers, rounds = 4, 60
	c := accesstest.Caller(t, tenant, "a", access.TokenRead)
	var wg sync.WaitGroup
	done := make(chan struct{})
	for n := range writers {
		wg.Go(func() {
			for i := range rounds {
				// Clocks of nodes differ: later entries may be older ones.
				now := w.clock.Advance(5 * time.Millisecond).Add(time.Duration(n) * -37 * time.Millisecond)
				e := audit.Entry(c, now, "card", fmt.Sprintf("%d-%d", n, i), audit.Read)
				if err := w.store.Update(t.Context(), tenant, func(tx store.Tx) error { return tx.AppendLog(t.Context(), e) }); err != nil {
					t.Errorf("AppendLog = %v", err)
					return
				}
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	var others sync.WaitGroup
	for range 2 { // as on two nodes
		others.Go(func() {
			for working := true; working; {
				select {
				case <-done:
					working = false
				default:
				}
				if _, err := w.sealer.SealAll(t.Context()); err != nil {
					t.Errorf("SealAll = %v", err)
					return
				}
			}
		})
	}
	others.Go(func() {
		for working := true; working; {
			select {
			case <-done:
				working = false
			default:
			}
			if _, err := w.service.Retain(t.Context(), tenant, 100*time.Millisecond, nil); err != nil {
				t.Errorf("Retain = %v", err)
				return
			}
		}
	})
	for working := true; working; {
		select {
		case <-done:
			working = false
		default:
		}
		if v := w.verify(tenant, nil); !v.Clean() {
			t.Fatalf("Verify found %v in a log that nobody touched", v.Findings)
		}
	}
	others.Wait()
	if _, err := w.sealer.SealAll(t.Context()); err != nil {
		t.Fatalf("SealAll = %v", err)
	}
	if v := w.verify(tenant, w.checkpoint(tenant)); !v.Clean() || v.Unsealed != 0 || v.Dropped == 0 || v.Dropped == v.Batches {
		t.Errorf("at the end: %d batches, %d dropped, %d unsealed, findings %v", v.Batches, v.Dropped, v.Unsealed, v.Findings)
	}
}

func TestACheckpointFindsWhatWasCutOff(t *testing.T) {
	cut := func(w *world, tenant string, e []store.LogEntry) {
		w.tamper("DELETE FROM log_batches WHERE tenant_id = ? AND number = 3", id(tenant))
		for _, entry := range e[10:] {
			w.tamper("DELETE FROM log"+row, rowOf(tenant, entry)...)
		}
	}
	tests := map[string]struct {
		do    func(w *world, tenant string, e []store.LogEntry)
		kind  audit.Kind
		batch int64
	}{
		"cut off": {cut, audit.Truncated, 3},
		"cut off and gone on": {func(w *world, tenant string, e []store.LogEntry) {
			cut(w, tenant, e)
			w.write(tenant, 5)
			w.seal(tenant, 1)
		}, audit.Forked, 3},
		"everything cut off": {func(w *world, tenant string, _ []store.LogEntry) {
			w.tamper("DELETE FROM log_batches WHERE tenant_id = ?", id(tenant))
			w.tamper("DELETE FROM log WHERE tenant_id = ?", id(tenant))
		}, audit.Truncated, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tenant, entries := w.sealedLog()
			c := w.checkpoint(tenant)
			w.clean(tenant, c, 15, 0)
			test.do(w, tenant, entries)
			if v := w.verify(tenant, nil); !v.Clean() {
				t.Errorf("without the checkpoint Verify found %v: what was cut off can show in nothing else", v.Findings)
			}
			v := w.verify(tenant, c)
			if v.Found != 1 || v.Findings[0].Kind != test.kind || v.Findings[0].Batch != test.batch {
				t.Errorf("Verify with the checkpoint found %v, want %s at batch %d", v.Findings, test.kind, test.batch)
			}
		})
	}
}

func TestALogThatGoesOnKeepsItsCheckpoints(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.sealedLog()
	c := w.checkpoint(tenant)
	w.write(tenant, 3)
	w.seal(tenant, 1)
	w.clean(tenant, c, 18, 0)
	if later := w.checkpoint(tenant); later.Number != c.Number+1 || later.Previous != c.Link {
		t.Errorf("the next checkpoint is %d behind %v, want %d behind %v", later.Number, later.Previous, c.Number+1, c.Link)
	}
}

func TestACheckpointOfAnotherKeyIsAFork(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.sealedLog()
	other, _ := w.sealedLog()
	// The same tenant in another world, so with another key.
	stranger := newWorld(t)
	stranger.adopt(tenant)
	stranger.write(tenant, 5)
	stranger.seal(tenant, 1)
	v := w.verify(tenant, stranger.checkpoint(tenant))
	if v.Clean() || v.Findings[0].Kind != audit.Forked {
		t.Errorf("Verify with a checkpoint of another key found %v, want %s", v.Findings, audit.Forked)
	}
	if _, err := w.service.Verify(t.Context(), tenant, w.checkpoint(other), nil); err == nil {
		t.Error("Verify took the checkpoint of another tenant")
	}
	broken := *w.checkpoint(tenant)
	broken.Entries++
	if _, err := w.service.Verify(t.Context(), tenant, &broken, nil); err == nil {
		t.Error("Verify took a checkpoint that was changed")
	}
}

func TestADeletedTenantsBatchesStayVerifiable(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.sealedLog()
	c := w.checkpoint(tenant)
	w.delete(tenant)
	for name, test := range map[string]struct {
		checkpoint *audit.Checkpoint
		source     string
	}{"with a checkpoint": {c, audit.KeyFromCheckpoint}, "without": {nil, audit.KeyFromLog}} {
		v := w.verify(tenant, test.checkpoint)
		if !v.Clean() || !v.Deleted || v.Batches != 3 || v.KeySource != test.source || v.PublicKey != c.PublicKey {
			t.Errorf("%s: Verify = %+v", name, v)
		}
	}
	w.tamper("UPDATE log_batches SET sealed_at = sealed_at + 1 WHERE tenant_id = ? AND number = 2", id(tenant))
	if v := w.verify(tenant, nil); v.Clean() || v.Findings[0].Kind != audit.BatchChanged || v.Findings[0].Batch != 2 {
		t.Errorf("Verify of a changed batch found %v", v.Findings)
	}
}

func TestVerifyOfWhatIsNoTenant(t *testing.T) {
	w := newWorld(t)
	if _, err := w.service.Verify(t.Context(), uuid.NewString(), nil, nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Verify of an unknown tenant = %v, want %v", err, store.ErrNotFound)
	}
	if _, err := w.service.Verify(t.Context(), "tenant", nil, nil); !errors.Is(err, store.ErrNoTenant) {
		t.Errorf("Verify of what is no id = %v, want %v", err, store.ErrNoTenant)
	}
	if _, err := w.service.Checkpoint(t.Context(), w.tenant()); !errors.Is(err, audit.ErrNothingSealed) {
		t.Errorf("Checkpoint of an empty log = %v, want %v", err, audit.ErrNothingSealed)
	}
}

func TestVerifyReportsTheTail(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.sealedLog()
	tail := w.write(tenant, 4)
	var seen []string
	v, err := w.service.Verify(t.Context(), strings.ToUpper(tenant), nil, func(p audit.Progress) { seen = append(seen, p.Doing) })
	if err != nil || v.Unsealed != 4 || v.OldestUnsealed == nil || !v.OldestUnsealed.Equal(tail[0].CreatedAt.Time()) {
		t.Errorf("Verify = %+v, %v, want a tail of 4 since %v", v, err, tail[0].CreatedAt.Time())
	}
	if len(seen) == 0 {
		t.Error("Verify reported no progress")
	}
}

func TestACheckpointSurvivesPaperAndNoChange(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.sealedLog()
	text := marshal(t, w.checkpoint(tenant))
	c, err := audit.ParseCheckpoint(text)
	if err != nil {
		t.Fatalf("ParseCheckpoint = %v", err)
	}
	w.clean(tenant, c, 15, 0)
	for name, change := range map[string][2]string{
		"number":  {`"number":3`, `"number":4`},
		"entries": {`"entries":5`, `"entries":6`},
		"tenant":  {tenant, uuid.NewString()},
		"time":    {`"sealed_at":"2031`, `"sealed_at":"2030`},
		"finer":   {`Z","link"`, `.0000001Z","link"`},
		"unknown": {`{"tenant_id"`, `{"x":1,"tenant_id"`},
		"key":     {"BEGIN PUBLIC", "BEGIN PRIVATE"},
		"cut":     {"}", ""},
	} {
		changed := bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(changed, text) {
			t.Fatalf("%s: the change changed nothing in %s", name, text)
		}
		if _, err := audit.ParseCheckpoint(changed); err == nil {
			t.Errorf("%s: ParseCheckpoint took a changed checkpoint", name)
		}
	}
	w.tamper("UPDATE log_batches SET entries = 4 WHERE tenant_id = ? AND number = 3", id(tenant))
	if c, err := w.service.Checkpoint(t.Context(), tenant); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("Checkpoint of a changed batch = %v, %v, want %v", c, err, store.ErrDamaged)
	}
}
