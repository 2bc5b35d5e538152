package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite/powercut"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// TestTheReserveIsForTheLog has writes find no space as long as the reserve
// takes it: what makes the store larger is refused, and what shares a commit
// with it is kept.
func TestTheReserveIsForTheLog(t *testing.T) {
	storetest.Long(t)
	dir := t.TempDir()
	recorder := powercut.New(t, dir)
	const bytes = 1 << 20
	s := open(t, dir, sqlite.Options{VFS: recorder.Name(), ReserveBytes: bytes})
	tenant, ctx := storetest.Tenants()[0], t.Context()
	held := func() bool {
		info, err := os.Stat(filepath.Join(dir, "reserve"))
		return err == nil && info.Size() == bytes
	}
	token := func() error {
		return s.Update(ctx, tenant, func(tx store.Tx) error {
			return tx.InsertToken(ctx, store.Token{ID: uuid.NewString(), Type: "token", Containers: []string{"/"}, Data: []byte("sealed"), CreatedAt: 1, Version: 1})
		})
	}
	entry := func() error {
		return s.Update(ctx, tenant, func(tx store.Tx) error {
			return tx.AppendLog(ctx, store.LogEntry{ID: uuid.NewString(), CreatedAt: 1, EntityType: "token"})
		})
	}
	if err := token(); err != nil || !held() {
		t.Fatalf("an insert before any fault: %v, the reserve is there: %v", err, held())
	}
	for n := range 2 {
		recorder.FailWritesWhile(held, sqlite3.SQLITE_FULL)
		var inserts, entries [3]error
		var clients sync.WaitGroup
		for i := range 3 {
			clients.Go(func() { inserts[i] = token() })
			clients.Go(func() { entries[i] = entry() })
		}
		clients.Wait()
		refused := 0
		for _, err := range inserts {
			if errors.Is(err, store.ErrUnavailable) {
				refused++
			} else if err != nil {
				t.Errorf("an insert on a full disk: %v", err)
			}
		}
		if err := errors.Join(entries[:]...); err != nil || refused == 0 {
			t.Errorf("fault %d: entries of the log: %v; %d inserts were refused", n, err, refused)
		}
		if err := s.Ready(ctx); err != nil {
			t.Errorf("fault %d: Ready = %v", n, err)
		}
		recorder.Heal()
		waittest.Until(t, "the store goes on with room on the disk", func() bool { return token() == nil && held() })
	}
}

// TestAReserveThatFindsNoRoomRefusesWhatGrows has a reserve that no disk holds:
// each method of a transaction is on one side or the other.
func TestAReserveThatFindsNoRoomRefusesWhatGrows(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	tenant := storetest.Tenants()[0]
	s := open(t, dir, sqlite.Options{})
	token := store.Token{ID: "t", Type: "token", Containers: []string{"/"}, Data: []byte("sealed"), CreatedAt: 1, Version: 1}
	application := store.Application{ID: "a", Type: "private", CreatedAt: 1, Version: 1}
	session := store.Session{ID: "s", KeyHash: []byte{1}, NonceHash: []byte{2}, CreatedAt: 1, Version: 1}
	parcel := store.Parcel{Kind: "answer", ID: "p", CreatedAt: 1, Version: 1}
	definition := store.Definition{Kind: "proxy", ID: "d", CreatedAt: 1, Version: 1}
	if err := s.Update(ctx, tenant, func(tx store.Tx) error {
		return errors.Join(tx.InsertToken(ctx, token), tx.InsertApplication(ctx, application), tx.InsertSession(ctx, session), tx.InsertParcel(ctx, parcel), tx.InsertDefinition(ctx, definition))
	}); err != nil || s.Room() != nil {
		t.Fatalf("before: %v, and Room = %v", err, s.Room())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openBare(t, dir, sqlite.Options{ReserveBytes: 1 << 60})
	if err := s.Room(); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Room = %v, want %v", err, store.ErrUnavailable)
	}
	if err := s.Ready(ctx); err != nil {
		t.Errorf("Ready = %v", err)
	}
	token.Version, application.Version, session.Version, parcel.Version, definition.Version = 2, 2, 2, 2, 2
	for name, test := range map[string]struct {
		write func(tx store.Tx) error
		kept  bool
	}{
		"a tenant":        {func(tx store.Tx) error { return tx.InsertTenant(ctx, store.Tenant{}) }, false},
		"a token":         {func(tx store.Tx) error { return tx.InsertToken(ctx, store.Token{ID: "u", Version: 1}) }, false},
		"a changed token": {func(tx store.Tx) error { return tx.ReplaceToken(ctx, token) }, false},
		"an application":  {func(tx store.Tx) error { return tx.InsertApplication(ctx, store.Application{ID: "b"}) }, false},
		"a session": {func(tx store.Tx) error {
			return tx.InsertSession(ctx, store.Session{ID: "u", KeyHash: []byte{3}, NonceHash: []byte{4}})
		}, false},
		"a parcel":             {func(tx store.Tx) error { return tx.InsertParcel(ctx, store.Parcel{Kind: "job", ID: "p"}) }, false},
		"a changed parcel":     {func(tx store.Tx) error { return tx.ReplaceParcel(ctx, parcel) }, false},
		"a definition":         {func(tx store.Tx) error { return tx.InsertDefinition(ctx, store.Definition{Kind: "proxy", ID: "e"}) }, false},
		"a changed definition": {func(tx store.Tx) error { return tx.ReplaceDefinition(ctx, definition) }, false},
		"an entry of the log":  {func(tx store.Tx) error { return tx.AppendLog(ctx, store.LogEntry{ID: uuid.NewString(), CreatedAt: 1}) }, true},
		"a key": {func(tx store.Tx) error {
			return tx.InsertKey(ctx, store.Key{ID: "k", ApplicationID: "a", Hash: []byte{1}})
		}, true},
		"a changed application": {func(tx store.Tx) error { return tx.ReplaceApplication(ctx, application) }, true},
		"a changed session":     {func(tx store.Tx) error { return tx.ReplaceSession(ctx, session) }, true},
		"a mark":                {func(tx store.Tx) error { return tx.PutMark(ctx, "m", []byte{1}) }, true},
		"a keyset": {func(tx store.Tx) error {
			return tx.PutKeyset(ctx, store.Keyset{Purpose: "data", Wrapped: []byte{1}, Version: 1})
		}, true},
		"a token that goes": {func(tx store.Tx) error { return tx.DeleteToken(ctx, "t") }, true},
	} {
		err := s.Update(ctx, tenant, func(tx store.Tx) error { return test.write(tx) })
		if test.kept && err != nil || !test.kept && !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s on a full disk: %v, want it kept: %v", name, err, test.kept)
		}
	}
}

// TestAReserveThatWasCopiedIsTakenAgain has a file of the right size that takes
// no room, as a copy that leaves out zeros does.
func TestAReserveThatWasCopiedIsTakenAgain(t *testing.T) {
	dir := t.TempDir()
	const bytes = 1 << 20
	path := filepath.Join(dir, "reserve")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, bytes)); err != nil {
		t.Fatal(err)
	}
	openBare(t, dir, sqlite.Options{ReserveBytes: bytes})
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Size != bytes || st.Blocks*512 < bytes {
		t.Errorf("the reserve has %d bytes in %d blocks, %v", st.Size, st.Blocks, err)
	}
}
