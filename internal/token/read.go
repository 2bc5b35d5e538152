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

// shown are rows that a transaction found for a caller, with the sight of each.
// They are opened after the transaction: that may take I/O, and other
// transactions wait for this one.
type shown struct {
	rows      []store.Token
	sights    []sight
	retention time.Duration // of short-lived fields; 0 while none are to be shown
	charged   int64         // bytes of memory, to the request of the caller
}

// rowWeight is how many bytes of memory are charged for each byte of a row that
// is to be opened: the row, its plaintext, and the value in the response twice.
const rowWeight = 4

// reset forgets the rows, for a transaction that may run again.
func (f *shown) reset(c access.Caller) {
	_ = c.ChargeMemory(-f.charged) // giving back never fails
	*f = shown{}
}

// add decides what the caller sees of a row and keeps both. The error is the
// denial.
func (f *shown) add(ctx context.Context, tx store.Tx, by *viewer, p access.Permission, row store.Token) error {
	s, err := by.look(ctx, tx, p, row)
	if err != nil {
		return err
	}
	return f.keep(ctx, tx, by, row, s)
}

// keep keeps a row with a sight of it.
func (f *shown) keep(ctx context.Context, tx store.Tx, by *viewer, row store.Token, s sight) error {
	weight := rowWeight * row.Size()
	if err := by.c.ChargeMemory(weight); err != nil {
		return err
	}
	f.charged += weight
	f.rows, f.sights = append(f.rows, row), append(f.sights, s)
	if s.data != access.Reveal || len(row.ShortLived) == 0 || f.retention > 0 {
		return nil
	}
	set, err := by.settings(ctx, tx)
	f.retention = set.CVCRetention
	return err
}

// entries are the log entries of what is shown, one for each token.
func (f *shown) entries(c access.Caller, now time.Time) []store.LogEntry {
	list := make([]store.LogEntry, len(f.rows))
	for i, row := range f.rows {
		list[i] = audit.Entry(c, now, row.Type, row.ID, audit.Read)
	}
	return list
}

// open opens the rows.
func (s *Service) open(ctx context.Context, c access.Caller, keys *keyring.Keys, f shown) ([]Token, error) {
	var epochs []int64
	for i, row := range f.rows {
		if f.sights[i].data == access.Reveal && len(row.ShortLived) > 0 {
			if epoch, err := keyring.SealedEpoch(row.ShortLived); err == nil {
				epochs = append(epochs, epoch)
			}
		}
	}
	var set *keyring.EpochSet
	if len(epochs) > 0 {
		var err error
		if set, err = s.ring.EpochOf(ctx, c.Tenant(), f.retention, epochs...); err != nil {
			return nil, fmt.Errorf("get epoch keys: %w", err)
		}
	}
	list := make([]Token, len(f.rows))
	for i, row := range f.rows {
		// What could be stored can be shown, however many are shown with it: each
		// has the budget that it was stored with.
		b := s.limits.Budget(ctx)
		if err := b.Err(); err != nil {
			return nil, err
		}
		x, err := openRow(c, keys, row)
		if err != nil {
			return nil, err
		}
		var shortLived jsonvalue.Value
		if f.sights[i].data == access.Reveal && len(row.ShortLived) > 0 {
			if shortLived, err = openShortLived(set, row); err != nil {
				return nil, err
			}
		}
		if list[i], err = s.show(b, c.Tenant(), row, x, shortLived, f.sights[i]); err != nil {
			return nil, err
		}
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

// Get returns a token. The caller needs token:read on each of its containers. It
// may ask for less than its rules allow: most is the most that is shown then.
func (s *Service) Get(ctx context.Context, c access.Caller, id string, most ...access.Transform) (Token, error) {
	if err := c.RequireSomewhere(access.TokenRead); err != nil {
		return Token{}, err
	}
	return s.get(ctx, c, id, atMost(most), func(store.Token, access.Transform) error { return nil })
}

// get returns a token unless check, which is told how much of it would be shown,
// refuses.
func (s *Service) get(ctx context.Context, c access.Caller, id string, most access.Transform, check func(store.Token, access.Transform) error) (Token, error) {
	if err := c.ChargeTokens(1); err != nil {
		return Token{}, err
	}
	keys, err := s.keysOf(ctx, c)
	if err != nil {
		return Token{}, err
	}
	var found shown
	err = s.update(ctx, c, func(tx store.Tx) error {
		found.reset(c) // a transaction may run again
		row, err := s.live(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := found.add(ctx, tx, &viewer{c: c, most: most, keys: keys}, access.TokenRead, row); err != nil {
			return err
		}
		if err := check(row, found.sights[0].data); err != nil {
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
	if err := c.ChargeTokens(1); err != nil {
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
