package token

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// maxCandidates bounds how many duplicates are looked at. Only tokens that the
// caller could be given are counted, so that nobody else decides what is found.
const maxCandidates = 100

// findDuplicate returns the token that a create repeats; nil when there is none
// or the create is not to be deduplicated. It is the oldest token with the same
// fingerprint and the same containers, mask and search indexes that
//   - lives at least as long as was asked for,
//   - no other public application or session created, changed or filled: what
//     anyone can plant must not be handed to anyone else,
//   - has the id that was asked for, when one was.
//
// There is none for a caller who may not see the fingerprints of all tokens in
// these containers, so that a create tells nothing to callers who could not
// read the same. The tenant setting blind_deduplication lifts this.
func (s *Service) findDuplicate(ctx context.Context, tx store.Tx, c author, keys *keyring.Keys, set settings, p *pending) (*store.Token, error) {
	if !p.deduplicate || p.fingerprint == "" || !p.showsDuplicates(c, set) && !set.BlindDeduplication {
		return nil, nil
	}
	return s.oldestDuplicate(ctx, tx, c.Caller, keys, p)
}

// showsDuplicates reports whether the caller may see the fingerprints of all
// tokens in the containers of a create.
func (p *pending) showsDuplicates(c author, set settings) bool {
	return set.sees(mostRevealing(c.Caller, store.Token{Containers: p.containers})) // no id: the least that any id is allowed
}

// errUnseen says that a transaction found a duplicate of which the response is
// not made yet.
var errUnseen = errors.New("token: a duplicate was found")

// findDuplicates finds the tokens that creates repeat, before the transaction
// that inserts the others.
func (s *Service) findDuplicates(ctx context.Context, c author, keys *keyring.Keys, set settings, list []*pending) error {
	if !slices.ContainsFunc(list, func(p *pending) bool { return p.deduplicate && p.fingerprint != "" }) {
		return nil
	}
	return s.store.View(ctx, c.Tenant(), func(tx store.Tx) (err error) {
		for _, p := range list {
			if p.duplicate, err = s.findDuplicate(ctx, tx, c, keys, set, p); err != nil {
				return err
			}
		}
		return nil
	})
}

// showDuplicates makes the responses for the duplicates that were found. Masks
// are evaluated here, so it never runs inside a transaction.
func (s *Service) showDuplicates(b *expression.Budget, c author, keys *keyring.Keys, set settings, list []*pending) error {
	for _, p := range list {
		if p.duplicate == nil || p.repeats(*p.duplicate) {
			continue
		}
		shown, err := s.showDuplicate(b, c, keys, set, p, *p.duplicate)
		if err != nil {
			return err
		}
		p.repeated, p.repeatedVersion = &shown, p.duplicate.Version
	}
	return nil
}

// repeats reports whether the response for this duplicate is made.
func (p *pending) repeats(row store.Token) bool {
	return p.repeated != nil && p.repeated.ID == row.ID && p.repeatedVersion == row.Version
}

// showDuplicate is a duplicate as the response to the create shows it.
func (s *Service) showDuplicate(b *expression.Budget, c author, keys *keyring.Keys, set settings, p *pending, row store.Token) (Token, error) {
	seen := c.seesDuplicate(set, row, p.decision)
	if !p.showsDuplicates(c, set) {
		blind := p.shown // as after a fresh create, except for the id
		blind.ID, blind.rests = row.ID, seen.rests
		return blind, nil
	}
	existing, err := openRow(c.Caller, keys, row)
	if err != nil {
		return Token{}, err
	}
	return s.show(b, c.Tenant(), row, existing, jsonvalue.Value{}, seen)
}

// oldestDuplicate finds the oldest row that a create repeats: among those that
// no public caller wrote, and among the caller's own.
func (s *Service) oldestDuplicate(ctx context.Context, tx store.Tx, c access.Caller, keys *keyring.Keys, p *pending) (*store.Token, error) {
	var oldest *store.Token
	for _, writer := range slices.Compact([]string{"", through(c)}) {
		same := store.TokenFilter{Now: store.At(s.now()), Groups: store.AllGroups(), Terms: [][]byte{p.duplicateTerm(keys, writer)}}
		rows, err := tx.Tokens(ctx, same, store.Page{Limit: maxCandidates})
		if err != nil {
			return nil, fmt.Errorf("look for a duplicate: %w", err)
		}
		for i := range rows {
			if p.fits(rows[i]) && (oldest == nil || newestFirst(*oldest, rows[i]) < 0) {
				oldest = &rows[i]
			}
		}
	}
	return oldest, nil
}

// duplicateTerm is the term that a token shares with its duplicates: it binds
// everything that makes two tokens the same, and who wrote them.
func (d *draft) duplicateTerm(keys *keyring.Keys, writer string) []byte {
	same := jsonvalue.NewArray([]jsonvalue.Value{
		jsonvalue.NewString(d.fingerprint), jsonvalue.NewString(store.EncodeStrings(d.containers)),
		d.shownMask(), d.shownIndexes(), jsonvalue.NewString(writer),
	})
	var b bytes.Buffer
	_ = same.Stringify(&b) // a buffer takes everything
	return keys.IndexTerm(termDuplicate, b.String())
}

// fits reports whether a duplicate lives long enough, and has the id that was
// asked for.
func (p *pending) fits(row store.Token) bool {
	lives := row.Expiry.At.IsZero() || !p.expiry.At.IsZero() && row.Expiry.At >= p.expiry.At
	named := !p.namer.chosen || p.namer.random || row.ID == p.row.ID
	return lives && named
}

// writers name the public applications and sessions that wrote a token, whose
// keys are in browsers: "" where it was a private application. What such a
// caller planted is no duplicate for others.
type writers struct {
	created string // who created it
	changed string // who changed it last
	filled  string // who wrote a part of its data, until a private application replaces all of it
}

// through names a caller as a writer.
func through(c access.Caller) string {
	switch {
	case c.Session() != "":
		return "session:" + c.Session()
	case c.ApplicationType() == access.Public:
		return "application:" + c.Application()
	}
	return ""
}

// andThen adds a change by a writer that fills in data, or replaces all of it.
func (w writers) andThen(by string, fills, whole bool) writers {
	w.changed = by
	if fills && by != "" || whole {
		w.filled = by
	}
	return w
}

// only returns the one public application or session that wrote the token, ""
// when none did, and false when there were several.
func (w writers) only() (writer string, one bool) {
	for _, by := range []string{w.created, w.changed, w.filled} {
		switch {
		case by == "" || by == writer:
		case writer == "":
			writer = by
		default:
			return "", false
		}
	}
	return writer, true
}
