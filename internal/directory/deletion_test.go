package directory_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// copyFolder copies the files of a store that nobody has open.
func copyFolder(t testing.TB, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// raw opens the database of a folder that nobody has open, without us.
func raw(t testing.TB, dir string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "tokenkeep.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// statement runs one on the database of a folder that nobody has open, and
// wants it to change n rows.
func statement(t testing.TB, dir string, n int64, text string, args ...any) {
	t.Helper()
	db := raw(t, dir)
	result, err := db.Exec(text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if changed, err := result.RowsAffected(); err != nil || changed != n {
		t.Fatalf("%s changed %d rows, %v; want %d", text, changed, err, n)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// flipped is an expression of SQLite's: the column with another last byte,
// whichever it has.
func flipped(column string) string {
	return strings.ReplaceAll("CAST(substr(@, 1, length(@) - 1) || iif(substr(@, -1) = x'00', x'01', x'00') AS BLOB)", "@", column)
}

func blob(id string) []byte {
	u := uuid.MustParse(id)
	return u[:]
}

// texts is how FORMAT.md of package keyring writes a list.
func texts(list ...string) (b []byte) {
	for _, s := range list {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	return b
}

// kekOf reads a key-encryption key with Tink alone.
func kekOf(t testing.TB, path string) tink.AEAD {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	a, err := aead.New(handle)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// sealed is a value of the store with what it is bound to.
type sealed struct {
	bound []byte
	value []byte
}

// sealedIn returns what is sealed for a tenant in a folder.
func sealedIn(t testing.TB, dir, tenant string) (list []sealed) {
	t.Helper()
	rows, err := raw(t, dir).Query("SELECT id, rules FROM applications WHERE tenant_id = ? AND rules IS NOT NULL", blob(tenant))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		var s sealed
		if err := rows.Scan(&id, &s.value); err != nil {
			t.Fatal(err)
		}
		s.bound = texts("tokenkeep data 1", tenant, id, "application.rules")
		list = append(list, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// openers are all the keys that somebody with the key-encryption key and a
// folder has, in the name of a tenant: the key-encryption key itself, and
// whatever keyset of the folder it unwraps.
func openers(t testing.TB, dir, kekFile, tenant string) (list []tink.AEAD) {
	t.Helper()
	kek := kekOf(t, kekFile)
	list = append(list, kek)
	rows, err := raw(t, dir).Query("SELECT wrapped, purpose FROM keysets")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var wrapped []byte
		var purpose string
		if err := rows.Scan(&wrapped, &purpose); err != nil {
			t.Fatal(err)
		}
		at := bytes.IndexByte(wrapped, 0x31) // behind the padding
		serialized, err := kek.Decrypt(wrapped[at+1:], texts("tokenkeep keyset 1", tenant, purpose))
		if err != nil {
			continue // another tenant's
		}
		handle, err := insecurecleartextkeyset.Read(keyset.NewBinaryReader(bytes.NewReader(serialized)))
		if err != nil {
			t.Fatal(err)
		}
		if a, err := aead.New(handle); err == nil {
			list = append(list, a)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// opened counts what Tink opens of a tenant's values in a folder.
func opened(t testing.TB, dir, kekFile, tenant string) (n int) {
	t.Helper()
	values := sealedIn(t, dir, tenant)
	if len(values) == 0 {
		t.Fatal("there is nothing to open")
	}
	for _, a := range openers(t, dir, kekFile, tenant) {
		for _, s := range values {
			if _, err := a.Decrypt(s.value[1:], s.bound); err == nil {
				n++
			}
		}
	}
	return n
}

// A copy of the files without the wrapped keysets is worth nothing, even to
// those who have the key-encryption key and every other tenant's keys.
func TestACopyWithoutTheKeysetsDoesNotOpen(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	other, _ := w.tenant()
	for _, id := range []string{tenant, other} {
		w.application(id, private())
	}
	w.close()
	copied := copyFolder(t, w.dir)
	if n := opened(t, copied, w.kekFile, tenant); n != 2 {
		t.Fatalf("with the keysets, Tink opens %d values, want 2: the test looks in the wrong place", n)
	}
	statement(t, copied, 5, "DELETE FROM keysets WHERE tenant_id = ?", blob(tenant))
	if n := opened(t, copied, w.kekFile, tenant); n != 0 {
		t.Errorf("without the keysets, Tink opens %d values", n)
	}
	if n := opened(t, copied, w.kekFile, other); n != 2 {
		t.Errorf("of the other tenant, Tink opens %d values, want 2", n)
	}
	again := openWorld(t, copied, w.kekFile)
	if _, err := again.ring.For(t.Context(), tenant); !errors.Is(err, keyring.ErrNoKeys) {
		t.Errorf("For on the copy = %v, want %v", err, keyring.ErrNoKeys)
	}
	if _, err := again.ring.For(t.Context(), other); err != nil {
		t.Errorf("For of the other tenant = %v", err)
	}
}

// fill gives a tenant more rows than one step of a deletion removes.
func (w *world) fill(tenant string) {
	w.t.Helper()
	for i := range 2 {
		w.application(tenant, private())
		err := w.files.Update(w.t.Context(), tenant, func(tx store.Tx) error {
			entries := make([]store.LogEntry, 300)
			for i := range entries {
				entries[i] = audit.Entry(w.manager(tenant), w.clock.Now(), "token", uuid.NewString(), audit.Read)
			}
			token := store.Token{
				ID: uuid.NewString(), Type: "token", Containers: []string{"/"}, Data: []byte{byte(i)}, Terms: [][]byte{{byte(i)}},
				CreatedAt: store.At(w.clock.Now()), Version: 1,
			}
			return errors.Join(tx.AppendLog(w.t.Context(), entries...), tx.InsertToken(w.t.Context(), token))
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := w.ring.Epoch(w.t.Context(), tenant); err != nil {
		w.t.Fatal(err)
	}
}

// remains counts the rows of a tenant in every table of a folder.
func remains(t testing.TB, dir, tenant string) map[string]int {
	t.Helper()
	db := raw(t, dir)
	tables, err := db.Query("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%tenant_id%'")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for tables.Next() {
		var name string
		if err := tables.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	_ = tables.Close()
	counts := map[string]int{}
	for _, name := range names {
		var n int
		if err := db.QueryRow("SELECT count(*) FROM "+name+" WHERE tenant_id = ?", blob(tenant)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			counts[name] = n
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return counts
}

func TestDeletingATenantDestroysItsKeysAndThenItsRows(t *testing.T) {
	w := newWorld(t)
	tenant, manager := w.tenant()
	other, otherManager := w.tenant()
	w.fill(tenant)
	w.fill(other)
	var wrapped [][]byte
	for _, k := range w.rows(tenant).Keysets {
		wrapped = append(wrapped, k.Wrapped)
	}
	otherBefore, otherEntries := w.rows(other), len(w.entries(other))
	if _, err := w.sealer.SealTenant(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	checkpoint, err := w.audit.Checkpoint(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}

	if err := w.DeleteTenant(t.Context(), w.manager(tenant)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ring.For(t.Context(), tenant); !errors.Is(err, keyring.ErrNoKeys) {
		t.Errorf("For after the deletion = %v, want %v", err, keyring.ErrNoKeys)
	}
	if w.authenticates(manager.Key) || !w.authenticates(otherManager.Key) {
		t.Error("after the deletion, not exactly the other tenant's key opens")
	}
	if epochs, err := w.files.EpochKeys().EpochKeyList(t.Context(), tenant); err != nil || len(epochs) != 0 {
		t.Errorf("the epoch keys are %v, %v; want none", epochs, err)
	}
	if epochs, err := w.files.EpochKeys().EpochKeyList(t.Context(), other); err != nil || len(epochs) != 1 {
		t.Errorf("the other tenant's epoch keys are %v, %v; want one", epochs, err)
	}
	if err := w.DeleteTenant(t.Context(), w.manager(tenant)); !errors.Is(err, fault.Conflict) {
		t.Errorf("a second DeleteTenant = %v, want a conflict", err)
	}
	for name, b := range folder(t, w.dir) {
		for _, k := range wrapped {
			if bytes.Contains(b, k) {
				t.Errorf("%s still has a wrapped keyset", name)
			}
		}
	}
	var left []string
	if err := w.AllTenants(t.Context(), func(t directory.Tenant) error { left = append(left, t.ID); return nil }); err != nil || !reflect.DeepEqual(left, []string{other}) {
		t.Errorf("the tenants are %v, %v; want the other", left, err)
	}
	for range 2 { // the second time there is nothing to do
		if err := w.FinishDeletions(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.rows(other); !reflect.DeepEqual(got, otherBefore) || len(w.entries(other)) != otherEntries {
		t.Errorf("the other tenant has %+v, had %+v", got, otherBefore)
	}
	for name, c := range map[string]*audit.Checkpoint{"with a checkpoint": checkpoint, "without one": nil} {
		v, err := w.audit.Verify(t.Context(), tenant, c, nil)
		if err != nil || !v.Clean() || !v.Deleted || v.Batches <= checkpoint.Number {
			t.Errorf("Verify %s = %+v, %v; want a clean chain that goes on behind the checkpoint", name, v, err)
		}
	}
	if found, err := w.files.Check(t.Context(), nil); err != nil || len(found) != 0 {
		t.Errorf("the store is not sound: %v, %v", found, err)
	}
	w.close()
	if got := remains(t, w.dir, tenant); got["log_batches"] == 0 || len(got) != 1 {
		t.Errorf("left of the tenant: %v, want log batches alone", got)
	}
}

// Whatever cuts a deletion short, at whatever call of the store and whether
// or not that had its effect, the next round goes on from there.
func TestADeletionGoesOnAfterAnInterruptionAtEveryStep(t *testing.T) {
	for _, lost := range []bool{false, true} {
		w := newWorld(t)
		other, otherManager := w.tenant()
		for n, failed := 0, true; failed; n++ {
			if n > 60 {
				t.Fatal("a deletion never got through")
			}
			tenant, manager := w.tenant()
			if n < 8 {
				w.application(tenant, private())
			} else {
				w.fill(tenant)
			}
			w.store.breakAfter(n, lost)
			err := errors.Join(w.DeleteTenant(t.Context(), w.manager(tenant)), w.FinishDeletions(t.Context()))
			if failed = w.store.mend(); failed && !errors.Is(err, errBroken) || !failed && err != nil {
				t.Fatalf("call %d: the deletion = %v", n, err)
			}
			if !w.rows(tenant).Tenant.Deleting && w.rows(tenant).Tenant.ID != "" {
				if !failed || !w.authenticates(manager.Key) {
					t.Errorf("call %d: a deletion that did not begin has done something", n)
				}
				if err := w.DeleteTenant(t.Context(), w.manager(tenant)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.FinishDeletions(t.Context()); err != nil {
				t.Fatalf("call %d: the next round = %v", n, err)
			}
			if r := w.rows(tenant); r.Tenant.ID != "" || len(r.Applications)+len(r.Keysets)+len(w.entries(tenant)) != 0 {
				t.Errorf("call %d: left after the next round: %+v", n, r)
			}
			if w.authenticates(manager.Key) || !w.authenticates(otherManager.Key) {
				t.Errorf("call %d: not exactly the other tenant's key opens", n)
			}
			if v, err := w.audit.Verify(t.Context(), tenant, nil, nil); err != nil || !v.Clean() || !v.Deleted || v.Batches == 0 {
				t.Errorf("call %d: the log = %+v, %v; want clean batches", n, v, err)
			}
		}
		if found, err := w.files.Check(t.Context(), nil); err != nil || len(found) != 0 {
			t.Errorf("the store is not sound: %v, %v", found, err)
		}
		if _, err := w.Tenant(t.Context(), w.manager(other)); err != nil {
			t.Errorf("the other tenant: %v", err)
		}
	}
}

// Who asked for a deletion may go: from the mark on it does not stop.
func TestADeletionDoesNotStopWhenItsCallerGoes(t *testing.T) {
	w := newWorld(t)
	tenant, manager := w.tenant()
	ctx, cancel := context.WithCancel(t.Context())
	w.store.before = func() { // the mark; what follows it runs without the caller
		w.store.before = cancel
	}
	if err := w.DeleteTenant(ctx, w.manager(tenant)); err != nil {
		t.Fatalf("DeleteTenant = %v", err)
	}
	if ctx.Err() == nil {
		t.Fatal("the caller is still there")
	}
	if w.authenticates(manager.Key) || len(w.rows(tenant).Keysets) != 0 {
		t.Error("the keys are still there")
	}
}

// A tenant that cannot be deleted now does not keep others from it, and keys
// that do not open do not keep their tenant.
func TestOneDeletionThatFailsKeepsNoOther(t *testing.T) {
	w := newWorld(t)
	var tenants []string
	for range 3 {
		id, _ := w.tenant()
		tenants = append(tenants, id)
	}
	w.close()
	for _, id := range tenants {
		statement(t, w.dir, 1, "UPDATE tenants SET deleting = 1 WHERE tenant_id = ?", blob(id))
	}
	statement(t, w.dir, 1, "UPDATE keysets SET wrapped = zeroblob(3000) WHERE tenant_id = ? AND purpose = 'audit'", blob(tenants[0]))

	again := openWorld(t, w.dir, w.kekFile)
	broken := tenants[1]
	service := directory.New(again.store, again.ring, again.clock.Now, "test", func(ctx context.Context, tenant string) error {
		if tenant == broken {
			return errBroken
		}
		return nil
	})
	if err := service.FinishDeletions(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("FinishDeletions = %v, want %v", err, errBroken)
	}
	for i, id := range tenants {
		if there := again.rows(id).Tenant.ID != ""; there != (id == broken) {
			t.Errorf("tenant %d of 3 is there: %t", i+1, there)
		}
	}
	if len(again.rows(broken).Keysets) == 0 {
		t.Error("the keys of a tenant whose log could not be sealed are gone")
	}
	if err := again.FinishDeletions(t.Context()); err != nil {
		t.Errorf("FinishDeletions later = %v", err)
	}
	again.none()
}

// deletions is a store that notes in which order the rows of tenants go.
type deletions struct {
	store.Store
	order []string
}

func (d *deletions) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return d.Store.Update(ctx, tenant, func(tx store.Tx) error { return fn(deletion{tx, d}) })
}

type deletion struct {
	store.Tx
	all *deletions
}

func (d deletion) DeleteTenantRows(ctx context.Context, limit int) (bool, error) {
	d.all.order = append(d.all.order, d.Tenant())
	return d.Tx.DeleteTenantRows(ctx, limit)
}

// TestDeletionsTakeTurns: a tenant with many rows does not keep others waiting.
func TestDeletionsTakeTurns(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		id, _ := w.tenant()
		for range 6 { // each needs several steps
			err := w.store.Update(t.Context(), id, func(tx store.Tx) error {
				for range 200 {
					if err := tx.AppendLog(t.Context(), storetest.SomeEntry("entity")); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := w.DeleteTenant(t.Context(), w.manager(id)); err != nil {
			t.Fatal(err)
		}
	}
	s := &deletions{Store: w.store}
	service := directory.New(s, w.ring, w.clock.Now, "test", func(context.Context, string) error { return nil })
	if err := service.FinishDeletions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.order) < 6 || s.order[0] == s.order[1] || s.order[1] == s.order[2] || s.order[0] == s.order[2] || s.order[0] != s.order[3] {
		t.Errorf("rows were deleted in the order %v, want the three tenants in turn", s.order)
	}
	w.none()
}

// outdated is a store that a newer release shares.
type outdated struct{ store.Store }

func (o outdated) AllTenants() store.AllTenants { return outdatedTenants{o.Store.AllTenants()} }

type outdatedTenants struct{ store.AllTenants }

func (outdatedTenants) Current(context.Context) error { return store.ErrNewerSchema }

// The newer release may have rows of the tenant that this one does not know, and
// the tenant's own row, by which they are found, goes last.
func TestBesideANewerReleaseKeysGoAndRowsStay(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	w.fill(tenant)
	older := directory.New(outdated{w.store}, w.ring, w.clock.Now, "test", func(context.Context, string) error { return nil })
	if err := older.DeleteTenant(t.Context(), w.manager(tenant)); err != nil {
		t.Fatal(err)
	}
	if err := older.FinishDeletions(t.Context()); err != nil {
		t.Errorf("FinishDeletions = %v", err)
	}
	if rows := w.rows(tenant); rows.Tenant.ID == "" || len(rows.Keysets) != 0 {
		t.Errorf("of the tenant are left %+v, want all but its keys", rows)
	}
	if err := w.FinishDeletions(t.Context()); err != nil {
		t.Errorf("FinishDeletions of the newer release = %v", err)
	}
	w.none()
}

func TestFinishDeletionsEndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	w.fill(tenant)
	if err := w.DeleteTenant(t.Context(), w.manager(tenant)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.FinishDeletions(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("FinishDeletions = %v, want %v", err, context.Canceled)
	}
	if w.rows(tenant).Tenant.ID == "" {
		t.Error("it went on")
	}
}

// folder reads every file of a folder.
func folder(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	content := map[string][]byte{}
	for _, e := range entries {
		if content[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return content
}
