package sqlite_test

import (
	"context"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// writeUntilKilled is the second process.
func writeUntilKilled(dir string) error {
	return storetest.WriteUntilKilled(func() (store.Store, error) {
		return sqlite.Open(context.Background(), dir, sqlite.Options{Readers: 1, WALSoftBytes: 128 << 10, WALHardBytes: 512 << 10})
	})
}

func TestAKilledProcessLosesNothing(t *testing.T) {
	rounds, random := storetest.Rounds(100, 500), storetest.Randomly(t)
	var dir string
	var told storetest.Ledger
	changes := 0
	for round := range rounds {
		if round%10 == 0 {
			dir, told = t.TempDir(), storetest.Ledger{} // so that the store stays small
		}
		before := len(told.Read())
		if err := storetest.KillSometime(process(t, "write", dir), round, &told, random, 40*time.Millisecond, 55*time.Millisecond); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		changes += len(told.Read()) - before
		s, err := sqlite.Open(t.Context(), dir, sqlite.Options{Readers: 1})
		if err != nil {
			t.Fatalf("round %d: Open: %v", round, err)
		}
		if err := storetest.Verify(t.Context(), s, told.Read()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := s.Close(); err != nil {
			t.Fatalf("round %d: Close: %v", round, err)
		}
	}
	t.Logf("%d rounds, %d changes acknowledged", rounds, changes)
	if changes == 0 { // how many there are is the machine's affair
		t.Error("nothing was acknowledged: the test proves nothing")
	}
}
