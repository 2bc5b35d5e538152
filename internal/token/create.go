package token

import (
	"context"
	"errors"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Create makes a token. The caller needs token:create on each of its
// containers. When the token is to be deduplicated and one with the same
// fingerprint exists, that one is returned and nothing is stored.
func (s *Service) Create(ctx context.Context, c access.Caller, r Request, last ...store.Step[Token]) (t Token, err error) {
	keys, set, err := s.begin(ctx, c, access.TokenCreate)
	if err != nil {
		return Token{}, err
	}
	d, err := s.draft(keys, set, r)
	if err != nil {
		return Token{}, err
	}
	made, err := s.insert(ctx, c, keys, []*draft{d}, func(tx store.Tx, made []Token) error {
		return store.Finish(tx, made[0], last)
	})
	if err != nil {
		return Token{}, err
	}
	return made[0], nil
}

// aliasTries is how often an alias that is taken is drawn again, before the
// token gets a UUID instead.
const aliasTries = 10

// maxMeetings is how often a create that met another is tried again.
const maxMeetings = 5

var errDrawAgain = errors.New("token: a drawn id is taken")

// pending is a draft that has an id, is sealed, and is known as the answer
// will show it.
type pending struct {
	*draft
	row       store.Token
	shown     Token
	transform access.Transform
	tries     int
}

// insert stores drafts in one transaction, all or none, and returns them, or
// the tokens that they repeat, as the caller sees them. finish runs last in
// the transaction.
func (s *Service) insert(ctx context.Context, c access.Caller, keys *keyring.Keys, drafts []*draft, finish func(store.Tx, []Token) error) (made []Token, err error) {
	var epoch *keyring.EpochKey
	for _, d := range drafts {
		if !d.shortLived.IsNull() && epoch == nil {
			if epoch, err = s.ring.Epoch(ctx, c.Tenant()); err != nil {
				return nil, fmt.Errorf("get epoch key: %w", err)
			}
		}
	}
	list := make([]*pending, len(drafts))
	for i, d := range drafts {
		list[i] = &pending{draft: d}
		if err := s.name(c, keys, epoch, list[i]); err != nil {
			return nil, err
		}
	}
	for meetings := 0; ; {
		taken := make(map[*pending]bool)
		err := s.update(ctx, c, func(tx store.Tx) error {
			made = make([]Token, 0, len(list)) // a transaction may run again
			clear(taken)
			if err := s.insertAll(ctx, tx, c, keys, list, &made, taken); err != nil {
				return err
			}
			if len(taken) > 0 {
				return errDrawAgain
			}
			return finish(tx, made)
		})
		if err == nil {
			return made, nil
		}
		if errors.Is(err, store.ErrExists) {
			// Another node inserted at the same time: looked for again, it is found.
			if meetings++; meetings > maxMeetings {
				return nil, errTaken
			}
			continue
		}
		if !errors.Is(err, errDrawAgain) {
			return nil, err
		}
		// Only ids that were drawn are drawn again, each a bounded number of times.
		for p := range taken {
			if p.tries++; p.tries >= aliasTries {
				p.namer.template = nil
			}
			if err := s.name(c, keys, epoch, p); err != nil {
				return nil, err
			}
		}
	}
}

// name gives a draft an id, asks whether the caller may create it, seals it and
// works out its answer.
func (s *Service) name(c access.Caller, keys *keyring.Keys, epoch *keyring.EpochKey, p *pending) error {
	id, err := p.namer.id(s.random)
	if err != nil {
		return err
	}
	decision := c.Decide(access.TokenCreate, access.Target{ID: id, Containers: p.containers})
	if err := decision.Err(); err != nil {
		return err
	}
	p.transform = decision.Transform
	if p.row, err = p.draft.row(keys, epoch, id, c.Application(), s.now()); err != nil {
		return err
	}
	p.shown = s.show(c.Tenant(), p.row, p.contents, jsonvalue.Value{}, p.transform)
	return nil
}

// insertAll stores what is new, notes which drawn ids are taken, and appends
// the log entries. An id that somebody chose and that is taken is a fault.
func (s *Service) insertAll(ctx context.Context, tx store.Tx, c access.Caller, keys *keyring.Keys, list []*pending, made *[]Token, taken map[*pending]bool) error {
	var entries []store.LogEntry
	now := s.now()
	for _, p := range list {
		if p.deduplicate && p.fingerprint != "" {
			// Updates are serializable: of two that look here at the same time
			// and then insert, one finds what the other inserted.
			same, found, err := s.equal(ctx, tx, c, keys.IndexTerm(termFingerprint, p.fingerprint))
			if err != nil {
				return err
			}
			if found {
				existing, err := s.showExisting(c, keys, same, p.transform)
				if err != nil {
					return err
				}
				*made = append(*made, existing)
				entries = append(entries, audit.Entry(c, now, same.Type, same.ID, audit.Read))
				continue
			}
		}
		if p.namer.chosen {
			old, err := tx.Token(ctx, p.row.ID)
			switch {
			case errors.Is(err, store.ErrNotFound):
			case err != nil:
				return fmt.Errorf("look for token: %w", err)
			case expired(old, now):
				if err := tx.DeleteToken(ctx, old.ID); err != nil {
					return fmt.Errorf("delete expired token: %w", err)
				}
				entries = append(entries, audit.Expired(c.Tenant(), now, old.Type, old.ID))
			case p.namer.random:
				taken[p] = true
				continue
			default:
				return errTaken
			}
		}
		if err := tx.InsertToken(ctx, p.row); err != nil {
			return fmt.Errorf("insert token: %w", err)
		}
		*made = append(*made, p.shown)
		entries = append(entries, audit.Entry(c, now, p.row.Type, p.row.ID, audit.Create))
	}
	return tx.AppendLog(ctx, entries...)
}

// equals bounds how many tokens of one fingerprint are looked at.
const equals = 100

// equal finds a token with that fingerprint: one that the caller may read, if
// there is one.
func (s *Service) equal(ctx context.Context, tx store.Tx, c access.Caller, term []byte) (store.Token, bool, error) {
	same, err := tx.Tokens(ctx, store.TokenFilter{Now: store.At(s.now()), Terms: [][]byte{term}}, store.Page{Limit: equals})
	if err != nil {
		return store.Token{}, false, fmt.Errorf("look for the same token: %w", err)
	}
	for _, row := range same {
		if decide(c, access.TokenRead, row).Allowed() {
			return row, true, nil
		}
	}
	if len(same) > 0 {
		return same[0], true, nil
	}
	return store.Token{}, false, nil
}

// showExisting is the answer to a create that repeats a token: no more than
// the caller may read, and never revealed.
func (s *Service) showExisting(c access.Caller, keys *keyring.Keys, row store.Token, t access.Transform) (Token, error) {
	x, err := open(keys, row)
	if err != nil {
		return Token{}, err
	}
	read := decide(c, access.TokenRead, row)
	existing := s.show(c.Tenant(), row, x, jsonvalue.Value{}, min(t, read.Transform))
	if !read.Allowed() {
		return existing.withoutContents(), nil
	}
	return existing, nil
}
