package keyring

import (
	"context"
	"math"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// The fields of sealed values. A field names its kind of row, so that a value
// moved to a row of another kind with the same id does not open.
const (
	FieldTokenData        = "token.data"
	FieldTokenDetails     = "token.details"
	FieldTokenShortLived  = "token.short-lived"
	FieldApplicationRules = "application.rules"
	FieldTenantSecrets    = "tenant.secrets"
	FieldSessionGrant     = "session.grant"
	// The records of these are what store.Parcel.Record and
	// store.Definition.Record say.
	FieldParcel     = "parcel.contents"
	FieldDefinition = "definition.contents"
	// FieldParcelShortLived is of what lies in a parcel under an epoch's key.
	FieldParcelShortLived = "parcel.short-lived"
	// FieldTokenCursor is of places in lists, which callers keep and rows never do.
	FieldTokenCursor = "token.cursor"
	// FieldLogCursor is of positions in the log, likewise.
	FieldLogCursor = "log.cursor"
)

// sources lists the rows that hold values under a tenant's data key. Rotation
// re-seals what is listed here, and a key is destroyed when nothing listed
// here needs it: a kind of row that is missing is lost. New ones come last,
// because a rotation under way knows them by their place. Values under epoch
// keys do not belong here.
var sources = []source{
	{"tokens", tokenRows},
	{"applications", applicationRows},
	{"tenant", tenantRow},
	{"sessions", sessionRows},
	{"parcels", parcelRows},
	{"definitions", definitionRows},
}

// source is a kind of row with sealed values.
type source struct {
	name string
	// page returns up to limit rows behind a position, nil meaning from the
	// start, in an order in which rows that come later come earlier: those are
	// sealed with the new key.
	page func(ctx context.Context, tx store.Tx, after *store.Position, limit int) ([]sealedRow, error)
}

// sealedRow is a row with the values in it that are sealed.
type sealedRow struct {
	record string
	at     store.Position
	values []sealedValue
	// put stores the row with its values as they are now.
	put func() error
}

type sealedValue struct {
	field  string
	sealed *[]byte // in the row
}

func tokenRows(ctx context.Context, tx store.Tx, after *store.Position, limit int) ([]sealedRow, error) {
	// Expired tokens are rows too, until they are swept: hence the first of instants.
	tokens, err := tx.Tokens(ctx, store.TokenFilter{Now: 1, Groups: store.AllGroups()}, store.Page{After: after, Limit: limit})
	rows := make([]sealedRow, len(tokens))
	for i := range tokens {
		t := &tokens[i]
		rows[i] = sealedRow{
			record: t.ID,
			at:     store.Position{CreatedAt: t.CreatedAt, ID: t.ID},
			values: []sealedValue{{FieldTokenData, &t.Data}, {FieldTokenDetails, &t.Details}},
			put: func() error {
				t.Version++
				return tx.ReplaceToken(ctx, *t)
			},
		}
	}
	return rows, err
}

func applicationRows(ctx context.Context, tx store.Tx, after *store.Position, limit int) ([]sealedRow, error) {
	applications, err := tx.Applications(ctx, store.ApplicationFilter{}, store.Page{After: after, Limit: limit})
	rows := make([]sealedRow, len(applications))
	for i := range applications {
		a := &applications[i]
		rows[i] = sealedRow{
			record: a.ID,
			at:     store.Position{CreatedAt: a.CreatedAt, ID: a.ID},
			values: []sealedValue{{FieldApplicationRules, &a.Rules}},
			put: func() error {
				a.Version++
				return tx.ReplaceApplication(ctx, *a)
			},
		}
	}
	return rows, err
}

// tenantRow is the tenant's own row: one page of one, behind which nobody asks.
func tenantRow(ctx context.Context, tx store.Tx, _ *store.Position, _ int) ([]sealedRow, error) {
	t, err := tx.TenantRow(ctx)
	if err != nil {
		return nil, err
	}
	return []sealedRow{{
		record: t.ID,
		at:     store.Position{CreatedAt: t.CreatedAt, ID: t.ID},
		values: []sealedValue{{FieldTenantSecrets, &t.Secrets}},
		put:    func() error { return tx.ReplaceTenant(ctx, t) },
	}}, nil
}

func sessionRows(ctx context.Context, tx store.Tx, after *store.Position, limit int) ([]sealedRow, error) {
	// Expired sessions are rows too, as expired tokens are; so is one whose
	// expiry is no time at all.
	sessions, err := tx.Sessions(ctx, store.SessionFilter{Now: math.MinInt64}, store.Page{After: after, Limit: limit})
	rows := make([]sealedRow, len(sessions))
	for i := range sessions {
		s := &sessions[i]
		rows[i] = sealedRow{
			record: s.ID,
			at:     store.Position{CreatedAt: s.CreatedAt, ID: s.ID},
			values: []sealedValue{{FieldSessionGrant, &s.Grant}},
			put: func() error {
				s.Version++
				return tx.ReplaceSession(ctx, *s)
			},
		}
	}
	return rows, err
}

// parcelRows are of all kinds: a place in the list has a kind too, because
// parcels of two kinds may have one id and one instant.
func parcelRows(ctx context.Context, tx store.Tx, after *store.Position, limit int) ([]sealedRow, error) {
	parcels, err := tx.Parcels(ctx, store.ParcelFilter{}, store.Page{After: after, Limit: limit})
	rows := make([]sealedRow, len(parcels))
	for i := range parcels {
		p := &parcels[i]
		rows[i] = sealedRow{
			record: p.Record(),
			at:     store.Position{CreatedAt: p.CreatedAt, ID: p.ID, Kind: p.Kind},
			put: func() error {
				p.Version++
				return tx.ReplaceParcel(ctx, *p)
			},
		}
		if p.Epoch == 0 {
			rows[i].values = []sealedValue{{FieldParcel, &p.Contents}}
		}
	}
	return rows, err
}

func definitionRows(ctx context.Context, tx store.Tx, after *store.Position, limit int) ([]sealedRow, error) {
	definitions, err := tx.Definitions(ctx, store.DefinitionFilter{}, store.Page{After: after, Limit: limit})
	rows := make([]sealedRow, len(definitions))
	for i := range definitions {
		d := &definitions[i]
		rows[i] = sealedRow{
			record: d.Record(),
			at:     store.Position{CreatedAt: d.CreatedAt, ID: d.ID, Kind: d.Kind},
			values: []sealedValue{{FieldDefinition, &d.Contents}},
			put: func() error {
				d.Version++
				return tx.ReplaceDefinition(ctx, *d)
			},
		}
	}
	return rows, err
}
