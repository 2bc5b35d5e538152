package sqlite_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// holds counts how often the needle stands in the files of a folder whose names
// end in one of the endings.
func holds(t *testing.T, dir, needle string, endings ...string) (n int) {
	t.Helper()
	for name, content := range files(t, dir) {
		for _, ending := range endings {
			if strings.HasSuffix(name, ending) {
				n += strings.Count(content, needle)
			}
		}
	}
	return n
}

// The rows go in the order in which they came, so that SQLite does not move any
// of them to another page.
func TestDeletedBytesAreOverwrittenWhereTheyStood(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, sqlite.Options{})
	ctx := t.Context()
	const needle = "sealed bytes that somebody wants gone"
	var ids []string
	for n := range 120 { // of many lengths: on pages of their own, and shared
		tok := storetest.SomeToken()
		tok.Data, tok.Details = bytes.Repeat([]byte(needle), 1+n%40*n%200), []byte(needle)
		ids = append(ids, tok.ID)
		if err := s.Update(ctx, tenantA, func(tx store.Tx) error {
			return errors.Join(tx.InsertToken(ctx, tok),
				tx.InsertSession(ctx, store.Session{ID: tok.ID, KeyHash: []byte(tok.ID), NonceHash: []byte(tok.ID), Grant: tok.Data, Version: 1}),
				tx.InsertParcel(ctx, store.Parcel{Kind: store.ParcelAnswer, ID: tok.ID, Contents: tok.Data, Version: 1}),
				tx.InsertDefinition(ctx, store.Definition{Kind: store.DefinitionProxy, ID: tok.ID, Contents: tok.Data, Version: 1}))
		}); err != nil {
			t.Fatal(err)
		}
		if n%3 == 0 {
			insertMany(t, s, 1) // neighbours that stay
		}
	}
	if !s.Checkpoint() || holds(t, dir, needle, ".db") == 0 {
		t.Fatal("the bytes never came into the database")
	}
	for i, id := range ids {
		if err := s.Update(ctx, tenantA, func(tx store.Tx) error {
			if i%2 == 0 {
				return errors.Join(tx.DeleteToken(ctx, id), tx.DeleteSession(ctx, id), tx.DeleteParcel(ctx, store.ParcelAnswer, id), tx.DeleteDefinition(ctx, store.DefinitionProxy, id))
			}
			tok, err := tx.Token(ctx, id)
			if err != nil {
				return err
			}
			tok.Version, tok.Data, tok.Details = tok.Version+1, []byte("new"), nil
			return errors.Join(tx.ReplaceToken(ctx, tok),
				tx.ReplaceSession(ctx, store.Session{ID: id, Grant: []byte("new"), Version: 2}),
				tx.ReplaceParcel(ctx, store.Parcel{Kind: store.ParcelAnswer, ID: id, Version: 2}),
				tx.ReplaceDefinition(ctx, store.Definition{Kind: store.DefinitionProxy, ID: id, Contents: []byte("new"), Version: 2}))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if !s.Checkpoint() {
		t.Fatal("could not copy the log")
	}
	if n := holds(t, dir, needle, ".db", ".db-wal"); n != 0 {
		t.Errorf("what was deleted or replaced still stands in the files %d times", n)
	}
}

func TestDestroyedKeysetsAreInNoFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, sqlite.Options{})
	ctx := t.Context()
	const needle = "wrapped keyset that must be destroyed"
	put := func(tenant, purpose, wrapped string, version int64) {
		t.Helper()
		if err := storetest.AddTenants(ctx, s, tenant); err != nil {
			t.Fatal(err)
		}
		if err := s.Update(ctx, tenant, func(tx store.Tx) error {
			return tx.PutKeyset(ctx, store.Keyset{Purpose: purpose, Wrapped: []byte(wrapped), Version: version})
		}); err != nil {
			t.Fatal(err)
		}
	}
	// Many tenants in random order make pages split around the one that goes.
	for n := range 400 {
		put(uuid.NewString(), "data", strings.Repeat("x", 300+n%200), 1)
		if n%40 == 0 {
			put(tenantA, fmt.Sprint("purpose ", n), strings.Repeat(needle, 1+n/40), 1)
		}
	}
	put(tenantA, "purpose 0", needle+needle, 2)
	if holds(t, dir, needle, ".db", ".db-wal") == 0 {
		t.Fatal("the keysets are in no file to begin with")
	}
	if err := s.Update(ctx, tenantA, func(tx store.Tx) error { return tx.DestroyKeysets(ctx) }); err != nil {
		t.Fatal(err)
	}
	if n := holds(t, dir, needle, ".db", ".db-wal"); n != 0 {
		t.Errorf("destroyed keysets still stand in the files %d times", n)
	}
}

func TestKeysetsDestroyedDuringAViewGoWhenItEnds(t *testing.T) {
	storetest.Long(t)
	dir := t.TempDir()
	s := open(t, dir, sqlite.Options{})
	ctx := t.Context()
	const needle = "wrapped keyset that must be destroyed"
	if err := s.Update(ctx, tenantA, func(tx store.Tx) error {
		return tx.PutKeyset(ctx, store.Keyset{Purpose: "data", Wrapped: []byte(needle), Version: 1})
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.View(ctx, tenantA, func(tx store.Tx) error {
		if sets, err := tx.Keysets(ctx); err != nil || len(sets) != 1 {
			return errors.Join(err, fmt.Errorf("%d keysets", len(sets)))
		}
		err := s.Update(ctx, tenantA, func(tx store.Tx) error { return tx.DestroyKeysets(ctx) })
		if err == nil && holds(t, dir, needle, "-wal") == 0 {
			return errors.New("the view did not keep the log, so this shows nothing")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "destroyed keysets are in no file after the view", func() bool { return holds(t, dir, needle, ".db", ".db-wal") == 0 })
}

func TestDestroyedEpochKeysAreInNoFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, sqlite.Options{})
	const needle = "wrapped epoch key "
	for epoch := range int64(20) {
		if _, err := s.EpochKeys().AddEpochKey(t.Context(), tenantA, epoch, fmt.Append(nil, needle, epoch)); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.EpochKeys().DestroyEpochKeys(t.Context(), 15, 1000); n != 15 || err != nil {
		t.Fatalf("DestroyEpochKeys: got %d, error %v; want 15", n, err)
	}
	if n := holds(t, dir, needle, ""); n != 5 {
		t.Errorf("%d keys stand in the files, want the 5 that are left", n)
	}
	if _, err := s.EpochKeys().AddEpochKey(t.Context(), tenantA, 99, make([]byte, 4096)); err == nil {
		t.Error("a key too long for its place was kept")
	}
}

// walSize is the size of the log's file.
func walSize(t *testing.T, dir string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, databaseName+"-wal"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestTheLogStaysBounded(t *testing.T) {
	storetest.Long(t)
	dir := t.TempDir()
	const soft, hard, step = 256 << 10, 1 << 20, 512 << 10 // a step is more than one commit writes
	s := open(t, dir, sqlite.Options{WALSoftBytes: soft, WALHardBytes: hard})
	load := func(commits int) (largest int64) {
		for range commits {
			insertMany(t, s, 5)
			largest = max(largest, walSize(t, dir))
		}
		return largest
	}
	if largest := load(150); largest > hard+step || largest < soft {
		t.Errorf("under load the log grew to %d bytes, want more than %d and at most about %d", largest, soft, hard)
	}
	ctx := t.Context()
	if err := s.View(ctx, tenantA, func(tx store.Tx) error {
		before, err := tx.CountTokens(ctx, store.TokenFilter{Now: 1, Groups: store.AllGroups()})
		if err != nil {
			return err
		}
		// The view keeps the log from starting over: it must grow, and commits go on.
		if largest := load(40); largest <= hard {
			t.Errorf("with a view running the log grew to %d bytes, which shows nothing", largest)
		}
		after, err := tx.CountTokens(ctx, store.TokenFilter{Now: 1, Groups: store.AllGroups()})
		if before != after {
			t.Errorf("the view saw %d tokens and then %d", before, after)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	load(40)
	if largest := load(20); largest > hard+step {
		t.Errorf("after the view had ended the log still had %d bytes, want at most about %d", largest, hard)
	}
}
