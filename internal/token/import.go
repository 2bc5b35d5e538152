package token

import (
	"context"
	"errors"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// errImportedCode refuses a security code: who keeps one in a file keeps it for
// too long, and the tokens of an import are made for later.
var errImportedCode = fault.Field("data.cvc", "must not be imported: leave it out")

// Import is one token of many that are imported together.
type Import struct {
	Request Request
	// Exported says that the request comes from an export of ours whose
	// signature was verified. Its id is then taken as it is, because it may be
	// an alias that looks like a card number.
	Exported bool
}

// Imported is what became of one Import.
type Imported struct {
	ID string // of the token; "" when there is none
	// Existing says that the token was there before: the request repeats it.
	Existing bool
	// Err is the fault of a request that made no token.
	Err error
}

// Import makes a token of each request that can become one, all of them in one
// transaction. A request that is not valid, that the caller may not make, or
// whose id is taken is refused, and the others are made. The error is of what
// concerns all: then nothing was made. The caller needs token:create on the
// containers of each token. No data is shown.
func (s *Service) Import(ctx context.Context, c access.Caller, list []Import, last ...store.Step[[]Imported]) (out []Imported, err error) {
	keys, set, waiting, results, err := s.prepareImport(ctx, c, list)
	if err != nil {
		return nil, err
	}
	err = s.insertPending(ctx, s.limits.Budget(ctx), author{Caller: c}, keys, set, nil, waiting, func(tx store.Tx, _ []Token) error {
		out = importResults(results, waiting, func(p *pending) bool { return p.showsDuplicates(author{Caller: c}, set) })
		return store.Finish(tx, out, last)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// CheckImport returns what Import would refuse, except for ids that are taken,
// and stores nothing.
func (s *Service) CheckImport(ctx context.Context, c access.Caller, list []Import) ([]Imported, error) {
	_, _, _, results, err := s.prepareImport(ctx, c, list)
	return results, err
}

// prepareImport checks and seals the requests outside the transaction. Those
// that can be made are waiting, in order; results has the faults of the others.
func (s *Service) prepareImport(ctx context.Context, c access.Caller, list []Import) (*keyring.Keys, settings, []*pending, []Imported, error) {
	keys, set, err := s.begin(ctx, c, access.TokenCreate)
	if err != nil {
		return nil, set, nil, nil, err
	}
	if err := c.ChargeTokens(len(list)); err != nil {
		return nil, set, nil, nil, err
	}
	var waiting []*pending
	results := make([]Imported, len(list))
	for i, in := range list {
		// One request cannot use up what the others need.
		b := s.limits.Budget(ctx)
		if err := ctx.Err(); err != nil {
			return nil, set, nil, nil, fmt.Errorf("import tokens: %w", err)
		}
		p, err := s.pendingImport(b, c, keys, set, in)
		switch {
		case err == nil:
			waiting = append(waiting, p)
		case fault.Of(err).Kind() == fault.Internal:
			return nil, set, nil, nil, err
		}
		results[i].Err = err
	}
	return keys, set, waiting, results, nil
}

// pendingImport is one request, checked and sealed.
func (s *Service) pendingImport(b *expression.Budget, c access.Caller, keys *keyring.Keys, set settings, in Import) (*pending, error) {
	id := in.Request.id
	if in.Exported {
		in.Request.id = ""
	}
	d, err := s.draftNew(b, c, keys, set, in.Request)
	if err != nil {
		return nil, err
	}
	if !d.shortLived.IsNull() {
		return nil, errImportedCode
	}
	if in.Exported && id != "" {
		d.namer.literal, d.namer.chosen, d.namer.random = id, true, false
	}
	p := &pending{draft: d, separate: true}
	return p, s.identify(b, c, keys, nil, p)
}

// importResults are the results with what became of those that were waiting.
// Only callers for which tells reports true learn that a token was there before.
func importResults(results []Imported, waiting []*pending, tells func(*pending) bool) []Imported {
	out := make([]Imported, len(results)) // a transaction may run again
	next := 0
	for i, r := range results {
		if r.Err != nil {
			out[i] = r
			continue
		}
		p := waiting[next]
		next++
		switch {
		case p.refused != nil:
			out[i] = Imported{Err: p.refused}
		case p.duplicate != nil:
			out[i] = Imported{ID: p.duplicate.ID, Existing: tells(p)}
		default:
			out[i] = Imported{ID: p.row.ID}
		}
	}
	return out
}

// IsDenied reports whether an import was refused for want of access.
func (i Imported) IsDenied() bool {
	var denial *access.Denial
	return errors.As(i.Err, &denial)
}
