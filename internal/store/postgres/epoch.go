package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// maxWrappedKey bounds a wrapped key, as the other backend does.
const maxWrappedKey = 482

// epochKeys implements store.EpochKeys in a table of its own. What is done
// here may be done twice with the same end, so a lost connection is answered
// with store.ErrUnavailable, whatever became of the statement.
type epochKeys struct{ store *Store }

// EpochKeys implements store.Store.
func (s *Store) EpochKeys() store.EpochKeys { return epochKeys{s} }

// run runs statements in one transaction of a tenant, in one round trip.
func (e epochKeys) run(ctx context.Context, tenant string, steps ...step) error {
	key, err := parseTenant(tenant)
	if err != nil {
		return err
	}
	if err := e.store.enter(ctx); err != nil {
		return err
	}
	defer e.store.running.Done()
	steps = append(steps, step{doing: "commit", text: commit})
	began := time.Now()
	for try := 1; ; try++ {
		c, err := e.store.acquire(ctx)
		if err != nil {
			return err
		}
		t := &tx{store: e.store, conn: c}
		err = exchange(ctx, c, key, beginSingle, steps)
		t.end()
		if try == 3 || time.Since(began) > againWait || !errors.Is(err, errLost) && !errors.Is(err, errAgain) {
			return err
		}
	}
}

const readEpochKey = "SELECT wrapped FROM epoch_keys WHERE tenant_id = $1 AND epoch = $2"

func (e epochKeys) EpochKey(ctx context.Context, tenant string, epoch int64) (wrapped []byte, err error) {
	found := false
	err = e.run(ctx, tenant, step{doing: "read epoch key", text: readEpochKey, args: []any{epoch}, rows: func(r pgx.Rows) error {
		if found = r.Next(); !found {
			return nil
		}
		return r.Scan(&wrapped)
	}})
	if err == nil && !found {
		return nil, store.ErrNotFound
	}
	return wrapped, err
}

func checkWrapped(wrapped []byte) error {
	if len(wrapped) == 0 || len(wrapped) > maxWrappedKey {
		return fmt.Errorf("postgres: a wrapped epoch key must have 1 to %d bytes", maxWrappedKey)
	}
	return nil
}

func (e epochKeys) AddEpochKey(ctx context.Context, tenant string, epoch int64, wrapped []byte) (kept []byte, err error) {
	if _, err := parseTenant(tenant); err != nil {
		return nil, err
	}
	if err := checkWrapped(wrapped); err != nil {
		return nil, err
	}
	// The second statement sees what a rival has committed before the first.
	err = e.run(ctx, tenant,
		step{doing: "add epoch key", text: "INSERT INTO epoch_keys (tenant_id, epoch, wrapped) VALUES ($1, $2, $3) ON CONFLICT (tenant_id, epoch) DO NOTHING", args: []any{epoch, wrapped}},
		step{doing: "read epoch key", text: readEpochKey, args: []any{epoch}, rows: func(r pgx.Rows) error {
			if !r.Next() {
				return pgx.ErrNoRows
			}
			return r.Scan(&kept)
		}})
	return kept, err
}

func (e epochKeys) ReplaceEpochKey(ctx context.Context, tenant string, epoch int64, wrapped []byte) error {
	if _, err := parseTenant(tenant); err != nil {
		return err
	}
	if err := checkWrapped(wrapped); err != nil {
		return err
	}
	e.store.staleEpochKeys.Store(true)
	var n int64
	err := e.run(ctx, tenant, step{doing: "replace epoch key", text: "UPDATE epoch_keys SET wrapped = $3 WHERE tenant_id = $1 AND epoch = $2", args: []any{epoch, wrapped}, changed: &n})
	if err == nil && n == 0 {
		return store.ErrNotFound
	}
	return err
}

func (e epochKeys) EpochKeyList(ctx context.Context, tenant string) (epochs []int64, err error) {
	err = e.run(ctx, tenant, step{doing: "list epoch keys", text: "SELECT epoch FROM epoch_keys WHERE tenant_id = $1 ORDER BY epoch", rows: func(r pgx.Rows) error {
		epochs = nil
		for r.Next() {
			var epoch int64
			if err := r.Scan(&epoch); err != nil {
				return err
			}
			epochs = append(epochs, epoch)
		}
		return nil
	}})
	return epochs, err
}

// DestroyEpochKeys removes the rows; their bytes go when tidy rewrites the table.
func (e epochKeys) DestroyEpochKeys(ctx context.Context, first, last int64) (n int, err error) {
	err = e.store.asOwner(ctx, "destroy epoch keys", func(ctx context.Context, pool *pgxpool.Pool) error {
		n = 0
		older, err := pool.Exec(ctx, "DELETE FROM epoch_keys WHERE epoch < $1", first)
		if err != nil {
			return err
		}
		newer, err := pool.Exec(ctx, "DELETE FROM epoch_keys WHERE epoch > $1", last) // apart, or it would read the whole table
		n = int(older.RowsAffected() + newer.RowsAffected())
		return err
	})
	if n > 0 || err != nil {
		e.store.staleEpochKeys.Store(true)
	}
	return n, err
}

func (e epochKeys) DestroyTenantEpochKeys(ctx context.Context, tenant string) error {
	e.store.staleEpochKeys.Store(true)
	return e.run(ctx, tenant, step{doing: "destroy epoch keys", text: "DELETE FROM epoch_keys WHERE tenant_id = $1"})
}
