package token

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// recomputeBatch is how many tokens are read, and written, in one transaction.
// A token may hold megabytes.
const recomputeBatch = 25

// recomputeTurn is how many tokens of one tenant are done before the next tenant.
const recomputeTurn = 100

// RecomputeFingerprints computes again, in the form of this release, the
// fingerprints that an older release wrote, of all tenants, and returns of how
// many tokens. What it has done is stored with each token, so it can be stopped
// at any time and run again, on several servers at once.
//
// The tenants take turns, so that one with many tokens does not keep the others
// waiting. One that fails is passed by until the next call.
func (s *Service) RecomputeFingerprints(ctx context.Context) (done int, err error) {
	var errs []error
	stuck := make(map[string]bool)
	for {
		before := done
		for after := ""; ctx.Err() == nil; {
			refs, err := s.store.AllTenants().OutdatedTokens(ctx, after, 0, recomputeTurn)
			if err != nil {
				return done, errors.Join(append(errs, err)...)
			}
			if len(refs) == 0 {
				break
			}
			tenant := refs[0].Tenant
			if after = tenant; stuck[tenant] {
				continue
			}
			if i := slices.IndexFunc(refs, func(r store.TokenRef) bool { return r.Tenant != tenant }); i >= 0 {
				refs = refs[:i]
			}
			n, err := s.recomputeTenant(ctx, tenant, refs)
			done += n
			if err != nil {
				stuck[tenant] = true
				if !errors.Is(err, store.ErrNoTenant) {
					errs = append(errs, err)
				}
			}
		}
		if done == before || ctx.Err() != nil {
			return done, errors.Join(append(errs, ctx.Err())...)
		}
	}
}

// recomputeTenant does the tokens of one tenant's turn.
func (s *Service) recomputeTenant(ctx context.Context, tenant string, refs []store.TokenRef) (done int, err error) {
	for len(refs) > 0 && err == nil {
		n := min(len(refs), recomputeBatch)
		var more int
		more, err = s.recompute(ctx, tenant, refs[:n])
		done, refs = done+more, refs[n:]
	}
	s.recomputed.Add(float64(done))
	return done, err
}

// recompute does a few tokens of one tenant. The work is done between two
// transactions; a token that changes meanwhile was written in today's form, or
// is found again.
func (s *Service) recompute(ctx context.Context, tenant string, refs []store.TokenRef) (done int, err error) {
	system := access.NewSystem(tenant)
	keys, err := s.keysOf(ctx, system)
	if errors.Is(err, errNoTenant) {
		return 0, store.ErrNoTenant
	}
	if err != nil {
		return 0, err
	}
	var set settings
	var rows []store.Token
	var authors []writers
	err = s.store.View(ctx, tenant, func(tx store.Tx) (err error) {
		rows, authors = nil, nil
		if set, err = settingsOf(ctx, tx, keys); err != nil {
			return err
		}
		for _, ref := range refs {
			row, err := tx.Token(ctx, ref.ID)
			if errors.Is(err, store.ErrNotFound) || err == nil && row.Derived {
				continue
			}
			if err != nil {
				return err
			}
			by, err := writersOf(ctx, tx, row)
			if err != nil {
				return err
			}
			rows, authors = append(rows, row), append(authors, by)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read tokens: %w", err)
	}
	limits := s.limitsOf(tenant)
	for i := range rows {
		if err := s.rederive(ctx, limits, keys, set, &rows[i], authors[i]); err != nil {
			return 0, err
		}
	}
	err = s.store.Update(ctx, tenant, func(tx store.Tx) error {
		done = 0 // a transaction may run again
		for _, row := range rows {
			current, err := tx.Token(ctx, row.ID)
			if errors.Is(err, store.ErrNotFound) || err == nil && current.Version != row.Version-1 {
				continue
			}
			if err != nil {
				return err
			}
			if err := tx.ReplaceToken(ctx, row); err != nil {
				return err
			}
			done++
		}
		if done == 0 {
			return nil
		}
		return tx.AppendLog(ctx, audit.EntryThat(system, s.now(), audit.Tenant, tenant, audit.Update, "fingerprints of tokens recomputed"))
	})
	if errors.Is(err, store.ErrConflict) {
		return 0, nil // another server was faster; what is left is found again
	}
	if err != nil {
		return 0, fmt.Errorf("write tokens: %w", err)
	}
	return done, nil
}

// rederive writes the derived values of a row in today's form. A row that does
// not open keeps what it has: 'store check' and reads report it.
func (s *Service) rederive(ctx context.Context, limits expression.Limits, keys *keyring.Keys, set settings, row *store.Token, by writers) error {
	row.Version++
	row.Derived = true
	x, err := openRow(access.Caller{}, keys, *row)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	d := &draft{contents: x, containers: row.Containers}
	if x.writers == (writers{}) {
		d.writers = by
	}
	set.FingerprintTokens = x.fingerprint != "" // a token without one does not get one now
	b := limits.Budget(ctx)
	b.Grow(x.size)
	if err := s.find(b, keys, set, d); err != nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		return nil // an expression that gives nothing keeps its old fingerprint
	}
	row.Terms = d.terms
	if row.Details, err = seal(keys.Seal, row.ID, keyring.FieldTokenDetails, d.object()); err != nil {
		return err
	}
	return nil
}

// writersOf names the writers of a token that an older release wrote. It knew
// the application only: one that is gone is taken for a public one.
func writersOf(ctx context.Context, tx store.Tx, row store.Token) (w writers, err error) {
	through := func(application string) (string, error) {
		if application == "" {
			return "", nil
		}
		a, err := tx.Application(ctx, application)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return "", err
		}
		if err == nil && a.Type == string(access.Private) {
			return "", nil
		}
		return "application:" + application, nil
	}
	if w.created, err = through(row.CreatedBy); err != nil {
		return w, err
	}
	w.changed, err = through(row.ModifiedBy)
	w.filled = w.changed
	return w, err
}
