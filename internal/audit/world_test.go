package audit_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

// start is when the clock of every world stands at first.
var start = time.Date(2031, 5, 6, 7, 8, 30, 0, time.UTC)

// world is an installation: a store on disk, keys, a clock, and a second door
// to the database for whoever tampers with it.
type world struct {
	t       testing.TB
	dir     string
	store   store.Store
	ring    *keyring.Ring
	clock   *clocktest.Clock
	service *audit.Service
	sealer  *audit.Sealer
	db      *sql.DB // see raw
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), clock: clocktest.New(start)}
	kek := filepath.Join(w.dir, "kek.json")
	if _, err := localkms.Generate(kek); err != nil {
		t.Fatal(err)
	}
	kms, err := localkms.Open(kek)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), w.dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	w.store = s
	if w.ring, err = keyring.Open(t.Context(), kms, s, keyring.Options{Now: w.clock.Now}); err != nil {
		t.Fatal(err)
	}
	w.service = audit.New(s, w.ring, w.options())
	w.sealer = audit.NewSealer(s, w.ring, w.options())
	return w
}

func (w *world) options() audit.Options { return audit.Options{Now: w.clock.Now} }

// tenant adds a tenant with keys and returns its id.
func (w *world) tenant() string {
	w.t.Helper()
	id := uuid.NewString()
	w.adopt(id)
	return id
}

// adopt adds a tenant of that id, with keys of its own.
func (w *world) adopt(id string) {
	w.t.Helper()
	sets, err := w.ring.NewTenant(w.t.Context(), id)
	if err != nil {
		w.t.Fatalf("NewTenant = %v", err)
	}
	w.update(id, func(tx store.Tx) error {
		for _, set := range sets {
			if err := tx.PutKeyset(w.t.Context(), set); err != nil {
				return err
			}
		}
		return tx.InsertTenant(w.t.Context(), store.Tenant{ID: id, Name: "test"})
	})
}

// delete deletes a tenant as the directory does: keys first, then rows.
func (w *world) delete(tenant string) {
	w.t.Helper()
	w.update(tenant, func(tx store.Tx) error { return tx.DestroyKeysets(w.t.Context()) })
	w.ring.Forget(tenant)
	w.update(tenant, func(tx store.Tx) error {
		_, err := tx.DeleteTenantRows(w.t.Context(), 1<<20)
		return err
	})
}

func (w *world) update(tenant string, fn func(store.Tx) error) {
	w.t.Helper()
	if err := w.store.Update(w.t.Context(), tenant, fn); err != nil {
		w.t.Fatalf("Update = %v", err)
	}
}

// write appends n entries, a second apart, and returns them.
func (w *world) write(tenant string, n int) []store.LogEntry {
	w.t.Helper()
	c := accesstest.Caller(w.t, tenant, "6f1f3a52-6f0e-4a39-8a3c-52a0b7a3f001", access.TokenRead).
		WithOrigin(access.Origin{TraceID: "trace-1", Address: "192.0.2.7"})
	var entries []store.LogEntry
	for i := range n {
		entries = append(entries, audit.Entry(c, w.clock.Advance(time.Second), "card", fmt.Sprintf("card-%d", i), audit.Read))
	}
	w.update(tenant, func(tx store.Tx) error { return tx.AppendLog(w.t.Context(), entries...) })
	return entries
}

// seal seals what waits, and fails unless that makes so many batches.
func (w *world) seal(tenant string, batches int) {
	w.t.Helper()
	sealed, err := w.sealer.SealTenant(w.t.Context(), tenant)
	if err != nil || sealed.Batches != batches {
		w.t.Fatalf("SealTenant = %+v, %v, want %d batches", sealed, err, batches)
	}
}

// sealedLog is a tenant with three batches of five entries each.
func (w *world) sealedLog() (tenant string, entries []store.LogEntry) {
	w.t.Helper()
	tenant = w.tenant()
	for range 3 {
		entries = append(entries, w.write(tenant, 5)...)
		w.seal(tenant, 1)
	}
	return tenant, entries
}

// verify fails when the verification could not finish.
func (w *world) verify(tenant string, c *audit.Checkpoint) *audit.Verification {
	w.t.Helper()
	v, err := w.service.Verify(w.t.Context(), tenant, c, nil)
	if err != nil {
		w.t.Fatalf("Verify = %v", err)
	}
	return v
}

// clean fails unless the log verifies with so many sealed and unsealed entries.
func (w *world) clean(tenant string, c *audit.Checkpoint, sealed, unsealed int64) *audit.Verification {
	w.t.Helper()
	v := w.verify(tenant, c)
	if !v.Clean() || v.Entries != sealed || v.Unsealed != unsealed {
		w.t.Fatalf("Verify = %d sealed, %d unsealed, findings %v, want %d, %d, none", v.Entries, v.Unsealed, v.Findings, sealed, unsealed)
	}
	return v
}

func (w *world) checkpoint(tenant string) *audit.Checkpoint {
	w.t.Helper()
	c, err := w.service.Checkpoint(w.t.Context(), tenant)
	if err != nil {
		w.t.Fatalf("Checkpoint = %v", err)
	}
	return c
}

// raw opens the database behind the store's back.
func (w *world) raw() *sql.DB {
	w.t.Helper()
	if w.db == nil {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(w.dir, "tokenkeep.db")+"?_pragma=busy_timeout(5000)")
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = db.Close() })
		w.db = db
	}
	return w.db
}

// tamper changes rows behind the store's back, and fails when it changed none.
func (w *world) tamper(statement string, args ...any) {
	w.t.Helper()
	for i, a := range args {
		switch a := a.(type) {
		case uuid.UUID:
			args[i] = a[:]
		case audit.Hash:
			args[i] = a[:]
		}
	}
	r, err := w.raw().ExecContext(context.Background(), statement, args...)
	if err != nil {
		w.t.Fatalf("tamper: %v", err)
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		w.t.Fatalf("tamper changed %d rows, %v", n, err)
	}
}

func id(text string) uuid.UUID { return uuid.MustParse(text) }

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
