package token

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// shown are rows that a transaction found for a caller, with how much of each
// is to be seen. They are opened when the transaction is over: that may take
// I/O, and others wait behind a transaction.
type shown struct {
	rows       []store.Token
	transforms []access.Transform
	retention  time.Duration // of short-lived members; 0 while none are to be shown
}

// add notes a row. The tenant's settings are read when they matter.
func (v *shown) add(ctx context.Context, tx store.Tx, row store.Token, t access.Transform) error {
	v.rows, v.transforms = append(v.rows, row), append(v.transforms, t)
	if t != access.Reveal || len(row.ShortLived) == 0 || v.retention > 0 {
		return nil
	}
	set, err := settingsOf(ctx, tx)
	v.retention = set.retention
	return err
}

// entries are the log entries of what is shown, one for each token.
func (v *shown) entries(c access.Caller, now time.Time) []store.LogEntry {
	list := make([]store.LogEntry, len(v.rows))
	for i, row := range v.rows {
		list[i] = audit.Entry(c, now, row.Type, row.ID, audit.Read)
	}
	return list
}

// open opens the rows.
func (s *Service) open(ctx context.Context, c access.Caller, keys *keyring.Keys, v shown) ([]Token, error) {
	var epochs []int64
	for i, row := range v.rows {
		if v.transforms[i] == access.Reveal && len(row.ShortLived) > 0 {
			if epoch, err := keyring.SealedEpoch(row.ShortLived); err == nil {
				epochs = append(epochs, epoch)
			}
		}
	}
	var set *keyring.EpochSet
	if len(epochs) > 0 {
		var err error
		if set, err = s.ring.EpochOf(ctx, c.Tenant(), v.retention, epochs...); err != nil {
			return nil, fmt.Errorf("get epoch keys: %w", err)
		}
	}
	list := make([]Token, len(v.rows))
	for i, row := range v.rows {
		x, err := open(keys, row)
		if err != nil {
			return nil, err
		}
		var shortLived jsonvalue.Value
		if v.transforms[i] == access.Reveal && len(row.ShortLived) > 0 {
			if shortLived, err = openShortLived(set, row); err != nil {
				return nil, err
			}
		}
		list[i] = s.show(c.Tenant(), row, x, shortLived, v.transforms[i])
	}
	return list, nil
}

// openShortLived returns the short-lived members of a row; null when their
// time is over.
func openShortLived(set *keyring.EpochSet, row store.Token) (jsonvalue.Value, error) {
	if set == nil {
		return jsonvalue.Value{}, fmt.Errorf("open token: %w", keyring.ErrDamaged)
	}
	plain, err := set.Open(row.ID, keyring.FieldTokenShortLived, row.ShortLived)
	if errors.Is(err, keyring.ErrGone) {
		return jsonvalue.Value{}, nil
	}
	if err != nil {
		return jsonvalue.Value{}, fmt.Errorf("open token: %w", err)
	}
	return parseSealed(plain)
}

// Get returns a token. The caller needs token:read on each of its containers.
func (s *Service) Get(ctx context.Context, c access.Caller, id string) (Token, error) {
	if err := c.RequireSomewhere(access.TokenRead); err != nil {
		return Token{}, err
	}
	keys, err := s.keysOf(ctx, c)
	if err != nil {
		return Token{}, err
	}
	var found shown
	err = s.update(ctx, c, func(tx store.Tx) error {
		found = shown{} // a transaction may run again
		row, err := s.live(ctx, tx, id)
		if err != nil {
			return err
		}
		d := decide(c, access.TokenRead, row)
		if err := d.Err(); err != nil {
			return err
		}
		if err := found.add(ctx, tx, row, d.Transform); err != nil {
			return err
		}
		return tx.AppendLog(ctx, found.entries(c, s.now())...)
	})
	if err != nil {
		return Token{}, err
	}
	list, err := s.open(ctx, c, keys, found)
	if err != nil {
		return Token{}, err
	}
	return list[0], nil
}

// Delete removes a token. The caller needs token:delete on each of its
// containers.
func (s *Service) Delete(ctx context.Context, c access.Caller, id string) error {
	if err := c.RequireSomewhere(access.TokenDelete); err != nil {
		return err
	}
	return s.update(ctx, c, func(tx store.Tx) error {
		row, err := s.live(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := decide(c, access.TokenDelete, row).Err(); err != nil {
			return err
		}
		if err := tx.DeleteToken(ctx, id); errors.Is(err, store.ErrNotFound) {
			return errNoToken
		} else if err != nil {
			return fmt.Errorf("delete token: %w", err)
		}
		return tx.AppendLog(ctx, audit.Entry(c, s.now(), row.Type, id, audit.Delete))
	})
}
