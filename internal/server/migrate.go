package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/providers"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/transfer"
)

// Migrated is what MigrateStore moved.
type Migrated struct {
	Tables map[string]transfer.Digest `json:"tables"`
	// EpochKeys counts the keys that live an hour and had some of it left.
	EpochKeys int `json:"epoch_keys"`
	// Verified is what was looked at in the database; nil when the migration
	// was complete before.
	Verified *Verified `json:"verified,omitempty"`
	Complete time.Time `json:"complete"`
}

// migration is a migration under way.
type migration struct {
	kms  keyring.KMS
	now  func() time.Time
	say  func(string)
	from *sqlite.Store
	to   *postgres.Store
	mark *transfer.Mark
}

// MigrateStore moves the embedded store in the data folder to the PostgreSQL
// database of the configuration, rows as they stand. It has the folder to
// itself, and leaves the store in it as it is, but for the keys that live an
// hour: those are in one place alone when it is done. A run that was cut short,
// by whatever, is run again, and goes on behind the last row that arrived. No
// server uses the database before all of it is there, is the same, opens and
// verifies.
func MigrateStore(ctx context.Context, c *config.Config, now func() time.Time, say func(string)) (_ *Migrated, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.StoreURL.IsZero() && c.StoreURLFile == "" {
		return nil, errors.New("store.url is not set: it names the database to move the store to")
	}
	m := &migration{now: now, say: say}
	kms, err := openKMS(ctx, c, providers.Options{Now: now})
	if err != nil {
		return nil, err
	}
	if kms == nil {
		return nil, errors.New("kek is not set: the key-encryption key of the store is needed to verify what was moved")
	}
	m.kms = kms
	if _, err := os.Stat(filepath.Join(c.Data, sqlite.BackupFile)); err != nil {
		return nil, errors.New("there is no embedded store in the data folder, or it cannot be read")
	}
	if m.from, err = sqlite.Open(ctx, c.Data, sqlite.Options{AsItIs: true}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.from.Close()) }()
	source, err := m.ring(ctx, m.from)
	if err != nil {
		return nil, err
	}
	if m.to, err = openPostgres(ctx, c, postgres.Options{Receive: true}); err != nil {
		return nil, err
	}
	defer func() { _ = m.to.Close() }()
	free, err := m.to.Claim(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	return m.run(ctx, source)
}

func (m *migration) ring(ctx context.Context, s store.Store) (*keyring.Ring, error) {
	return keyring.Open(ctx, m.kms, s, keyring.Options{Now: m.now})
}

func (m *migration) run(ctx context.Context, source *keyring.Ring) (out *Migrated, err error) {
	if m.mark, err = m.to.Mark(ctx); err != nil {
		return nil, err
	}
	if err := m.agree(ctx, source); err != nil {
		return nil, err
	}
	out = &Migrated{Tables: m.mark.Tables}
	if m.mark.Complete == nil {
		if err := m.copy(ctx); err != nil {
			return nil, err
		}
		target, err := m.ring(ctx, m.to)
		if err != nil {
			return nil, err
		}
		p := proof{now: m.now, say: m.say, where: "in the database", so: "the migration is not complete"}
		if out.Verified, err = p.verify(ctx, m.to, target); err != nil {
			return nil, err
		}
		if out.EpochKeys, err = m.copyEpochKeys(ctx, source, target); err != nil {
			return nil, err
		}
		done := m.now().UTC()
		m.mark.Complete = &done
		if err := m.to.PutMark(ctx, m.mark); err != nil {
			return nil, err
		}
	}
	out.Complete = *m.mark.Complete
	// A key that stayed here would outlive its hour: no server looks after it.
	return out, m.eachTenant(ctx, func(tenant string) error {
		return m.from.EpochKeys().DestroyTenantEpochKeys(ctx, tenant)
	})
}

// agree reads the source and makes sure that the database is for it and for
// nothing else. What is not sound or does not open does not begin to move.
func (m *migration) agree(ctx context.Context, source *keyring.Ring) error {
	tables, err := m.digests(ctx, "reading", m.from)
	if err != nil {
		return err
	}
	switch {
	case m.mark.Tables == nil:
		p := proof{now: m.now, say: m.say, where: "in the data folder", so: "nothing was moved"}
		if _, err := p.verify(ctx, m.from, source); err != nil {
			return err
		}
		m.mark.Tables = tables
		return m.to.PutMark(ctx, m.mark)
	case !maps.Equal(m.mark.Tables, tables):
		return fmt.Errorf("%w: a migration of another store, or of this one before it changed, was begun or done in it; empty the database, or name another", transfer.ErrOccupied)
	}
	m.say("going on with the migration that was begun at " + m.mark.Begun.Format(time.RFC3339))
	return nil
}

func (m *migration) digests(ctx context.Context, doing string, from transfer.Reader) (map[string]transfer.Digest, error) {
	tell := paced(m.say)
	all := make(map[string]transfer.Digest)
	for _, t := range transfer.Tables {
		m.say(doing + " " + t.Name)
		d, err := transfer.DigestOf(ctx, from, t, func(rows int64) { tell("%s %s: %d rows", doing, t.Name, rows) })
		if err != nil {
			return nil, err
		}
		all[t.Name] = d
	}
	return all, nil
}

// copy moves what is not there yet, and compares all of it.
func (m *migration) copy(ctx context.Context) error {
	tell := paced(m.say)
	for _, t := range transfer.Tables {
		m.say(fmt.Sprintf("copying %s: %d rows in all", t.Name, m.mark.Tables[t.Name].Rows))
		if err := transfer.Copy(ctx, m.from, m.to, t, func(rows int64) { tell("copying %s: wrote %d rows", t.Name, rows) }); err != nil {
			return err
		}
	}
	if err := m.to.Analyze(ctx); err != nil {
		return err
	}
	there, err := m.digests(ctx, "comparing", m.to)
	if err != nil {
		return err
	}
	for _, t := range transfer.Tables {
		if was, is := m.mark.Tables[t.Name], there[t.Name]; was != is {
			return fmt.Errorf("%w: %s has %d rows in the data folder and %d in the database, and their hashes differ; empty the database and begin again", transfer.ErrDiffers, t.Name, was.Rows, is.Rows)
		}
	}
	return nil
}

// copyEpochKeys moves the keys that live an hour and have some of it left.
func (m *migration) copyEpochKeys(ctx context.Context, source, target *keyring.Ring) (moved int, err error) {
	m.say("copying the keys that live an hour")
	for _, ring := range []*keyring.Ring{source, target} {
		if _, err := ring.DestroyDue(ctx, 0); err != nil {
			return 0, err
		}
	}
	err = m.eachTenant(ctx, func(tenant string) error {
		epochs, err := m.from.EpochKeys().EpochKeyList(ctx, tenant)
		if err != nil {
			return err
		}
		for _, epoch := range epochs {
			wrapped, err := m.from.EpochKeys().EpochKey(ctx, tenant, epoch)
			if err != nil {
				return err
			}
			kept, err := m.to.EpochKeys().AddEpochKey(ctx, tenant, epoch, wrapped)
			if err != nil {
				return err
			}
			if !bytes.Equal(kept, wrapped) {
				return fmt.Errorf("%w: a key that lives an hour is another one in the database", transfer.ErrDiffers)
			}
			moved++
		}
		return nil
	})
	return moved, err
}

func (m *migration) eachTenant(ctx context.Context, do func(tenant string) error) error {
	const page = 100
	for after := ""; ; {
		tenants, err := m.from.AllTenants().Tenants(ctx, after, page)
		if err != nil {
			return err
		}
		for _, t := range tenants {
			if err := do(t.ID); err != nil {
				return err
			}
			after = t.ID
		}
		if len(tenants) < page {
			return nil
		}
	}
}
