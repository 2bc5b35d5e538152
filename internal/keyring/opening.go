package keyring

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Opened is what OpenAll found.
type Opened struct {
	Tenants int64 `json:"tenants"`
	Values  int64 `json:"values"`
	// Failed counts values that do not open, and tenants that lost their keys.
	Failed int64 `json:"failed"`
	// First is the first value that does not open.
	First *Unopened `json:"first,omitempty"`
	// Deleting counts tenants whose keys are destroyed and whose rows are not
	// all gone yet: nothing of theirs opens, and nothing should.
	Deleting int64 `json:"deleting"`
}

// Unopened says where a value stands that does not open: not by the row's id,
// which may be a tenant's own.
type Unopened struct {
	Tenant string    `json:"tenant_id"`
	Rows   string    `json:"rows"`    // the kind of the row
	MadeAt time.Time `json:"made_at"` // when the row was made, to the microsecond
	Field  string    `json:"field"`
}

func (u *Unopened) String() string {
	return fmt.Sprintf("%s in the row of %s of tenant %s that was made at %s", u.Field, u.Rows, u.Tenant, u.MadeAt.Format(time.RFC3339Nano))
}

// OpenAll opens every value that is sealed under a tenant's data key, of all
// tenants, and forgets it at once: the proof that a restored store is of use.
// It fails with ErrWrongKEK when the KMS does not open a tenant's keysets.
// Short-lived values are not looked at: their keys are in no backup. progress,
// when not nil, is called after every page of rows.
func (r *Ring) OpenAll(ctx context.Context, progress func(Opened)) (total Opened, err error) {
	const page = 100
	for after := ""; ; {
		tenants, err := r.store.AllTenants().Tenants(ctx, after, page)
		if err != nil {
			return total, fmt.Errorf("keyring: list tenants: %w", err)
		}
		for _, t := range tenants {
			if err := r.openTenant(ctx, t, &total, progress); err != nil {
				return total, err
			}
			after = t.ID
		}
		if len(tenants) < page {
			return total, nil
		}
	}
}

func (r *Ring) openTenant(ctx context.Context, tenant store.Tenant, total *Opened, progress func(Opened)) error {
	keys, err := r.For(ctx, tenant.ID)
	switch {
	case errors.Is(err, ErrNoKeys) && tenant.Deleting:
		total.Deleting++
		return nil
	case errors.Is(err, ErrNoKeys):
		total.Failed++
		return nil
	case errors.Is(err, ErrUnwrap):
		return fmt.Errorf("%w: it does not open the keys of a tenant", ErrWrongKEK)
	case err != nil:
		return err
	}
	total.Tenants++
	for _, source := range sources {
		err := r.eachPage(ctx, tenant.ID, source, func(row sealedRow) {
			for _, value := range row.values {
				if len(*value.sealed) == 0 {
					continue
				}
				total.Values++
				plaintext, err := keys.Open(row.record, value.field, *value.sealed)
				if err != nil {
					total.Failed++
				}
				if err != nil && total.First == nil {
					total.First = &Unopened{Tenant: tenant.ID, Rows: source.name, MadeAt: row.at.CreatedAt.Time(), Field: value.field}
				}
				clear(plaintext)
			}
		}, func() {
			if progress != nil {
				progress(*total)
			}
		})
		if err != nil {
			return fmt.Errorf("keyring: look at %s: %w", source.name, err)
		}
	}
	return nil
}

// eachPage calls each with every row of a source, a page in each transaction,
// and then, when it is not nil, done for the page.
func (r *Ring) eachPage(ctx context.Context, tenant string, s source, each func(sealedRow), done func()) error {
	for after := (*store.Position)(nil); ; {
		var rows []sealedRow
		err := r.store.View(ctx, tenant, func(tx store.Tx) (err error) {
			rows, err = s.page(ctx, tx, after, resealBatch)
			return err
		})
		if err != nil {
			return err
		}
		for _, row := range rows {
			each(row)
			after = &row.at
		}
		if done != nil {
			done()
		}
		if len(rows) < resealBatch {
			return nil
		}
	}
}
