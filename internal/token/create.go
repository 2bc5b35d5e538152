package token

import (
	"context"
	"errors"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Create makes a token. The caller needs token:create on each of its
// containers. When the token is to be deduplicated and findDuplicate finds one,
// that one is returned and nothing is stored.
func (s *Service) Create(ctx context.Context, c access.Caller, r Request, last ...store.Step[Token]) (t Token, err error) {
	keys, set, err := s.begin(ctx, c, access.TokenCreate)
	if err != nil {
		return Token{}, err
	}
	if err := c.ChargeTokens(1); err != nil {
		return Token{}, err
	}
	b := s.limitsOf(c.Tenant()).Budget(ctx)
	d, err := s.draftNew(b, c, keys, set, r)
	if err != nil {
		return Token{}, err
	}
	made, err := s.insert(ctx, b, author{Caller: c}, keys, set, []*draft{d}, func(tx store.Tx, made []Token) error {
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

// maxInsertConflicts is how often a create that conflicts with another is
// tried again.
const maxInsertConflicts = 5

var errDrawAgain = errors.New("token: a drawn id is taken")

// pending is a draft with its id, its sealed row, and the response to it.
type pending struct {
	*draft
	row      store.Token
	shown    Token
	decision access.Decision // about token:create
	tries    int

	// separate says that it is stored with others and does not depend on them:
	// a fault of its own refuses it, and nothing else.
	separate bool
	refused  error // why it is not stored

	duplicate       *store.Token // that it repeats; nil while none is found
	repeated        *Token       // the response for a duplicate, and the version of that
	repeatedVersion int64
}

// author creates tokens and is in the log with them.
type author struct {
	access.Caller
	// viewer sees the response; nil when it is the author.
	viewer *access.Caller
}

// sees decides what the response shows of a new token.
func (a author) sees(set settings, row store.Token, create access.Decision) sight {
	if a.viewer != nil {
		return sightOfMade(*a.viewer, set, row)
	}
	return sightOfCreated(a.Caller, set, row, create)
}

// seesDuplicate decides what the response shows of a token that exists.
func (a author) seesDuplicate(set settings, row store.Token, create access.Decision) sight {
	if a.viewer != nil {
		return sightOfMade(*a.viewer, set, row)
	}
	return sightOfDuplicate(a.Caller, set, row, create)
}

// insert stores drafts in one transaction, all or none, and returns them, or
// the tokens that they repeat, as the response shows them. finish runs last in
// the transaction.
func (s *Service) insert(ctx context.Context, b *expression.Budget, c author, keys *keyring.Keys, set settings, drafts []*draft, finish func(store.Tx, []Token) error) (made []Token, err error) {
	var epoch *keyring.EpochKey
	for _, d := range drafts {
		if !d.shortLived.IsNull() && epoch == nil {
			if epoch, err = s.ring.Epoch(ctx, c.Tenant()); err != nil {
				return nil, fmt.Errorf("get epoch key: %w", err)
			}
		}
	}
	list, err := s.nameAll(b, c, keys, set, epoch, drafts)
	if err != nil {
		return nil, err
	}
	err = s.insertPending(ctx, b, c, keys, set, epoch, list, func(tx store.Tx, list []Token) error {
		made = list
		return finish(tx, list)
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// insertPending stores what has its id and its row, in one transaction.
func (s *Service) insertPending(ctx context.Context, b *expression.Budget, c author, keys *keyring.Keys, set settings, epoch *keyring.EpochKey, list []*pending, finish func(store.Tx, []Token) error) error {
	if err := s.findDuplicates(ctx, c, keys, set, list); err != nil {
		return err
	}
	for conflicts := 0; ; {
		if err := s.showDuplicates(b, c, keys, set, list); err != nil {
			return err
		}
		taken := make(map[*pending]bool)
		err := s.update(ctx, c.Caller, func(tx store.Tx) error {
			made := make([]Token, 0, len(list)) // a transaction may run again
			clear(taken)
			if err := s.insertAll(ctx, tx, c, keys, set, list, &made, taken); err != nil {
				return err
			}
			if len(taken) > 0 {
				return errDrawAgain
			}
			return finish(tx, made)
		})
		if err == nil {
			return nil
		}
		if errors.Is(err, errUnseen) {
			// Another call, or this one, inserted it just now.
			if conflicts++; conflicts > maxInsertConflicts {
				return errContended
			}
			continue
		}
		if errors.Is(err, store.ErrExists) {
			// Another node inserted at the same time: looked for again, it is found.
			if conflicts++; conflicts > maxInsertConflicts {
				return errTaken
			}
			continue
		}
		if !errors.Is(err, errDrawAgain) {
			return err
		}
		// Only ids that were drawn are drawn again, each a bounded number of times.
		for p := range taken {
			if p.tries++; p.tries >= aliasTries {
				p.namer.template = nil
			}
			if err := s.name(b, c, keys, set, epoch, p); err != nil {
				return p.placed(err)
			}
		}
	}
}

// nameAll names drafts. Those of a large document take turns with other
// requests.
func (s *Service) nameAll(b *expression.Budget, c author, keys *keyring.Keys, set settings, epoch *keyring.EpochKey, drafts []*draft) ([]*pending, error) {
	defer b.End()
	if err := b.Begin(); err != nil {
		return nil, err
	}
	list := make([]*pending, len(drafts))
	for i, d := range drafts {
		list[i] = &pending{draft: d}
		if err := s.name(b, c, keys, set, epoch, list[i]); err != nil {
			return nil, d.placed(err)
		}
		if err := b.Worked(preparationSteps); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// name gives a draft an id, decides whether the caller may create it, seals it
// and makes the response.
func (s *Service) name(b *expression.Budget, c author, keys *keyring.Keys, set settings, epoch *keyring.EpochKey, p *pending) error {
	if err := s.identify(b, c.Caller, keys, epoch, p); err != nil || p.separate {
		return err
	}
	var err error
	p.shown, err = s.show(b, c.Tenant(), p.row, p.contents, jsonvalue.Value{}, c.sees(set, p.row, p.decision))
	return err
}

// identify is name without the response.
func (s *Service) identify(b *expression.Budget, c access.Caller, keys *keyring.Keys, epoch *keyring.EpochKey, p *pending) error {
	id, err := p.namer.id(b, s.random)
	if err != nil {
		return err
	}
	p.decision = c.Decide(access.TokenCreate, access.Target{ID: id, Containers: p.containers})
	if err := p.decision.Err(); err != nil {
		return err
	}
	p.row, err = p.draft.row(keys, epoch, id, c.Application(), s.now())
	return err
}

// insertAll stores what is new, notes which drawn ids are taken, and appends
// the log entries. An id that somebody chose and that is taken is a fault.
func (s *Service) insertAll(ctx context.Context, tx store.Tx, c author, keys *keyring.Keys, set settings, list []*pending, made *[]Token, taken map[*pending]bool) error {
	var entries []store.LogEntry
	now := s.now()
	unseen := false
	for _, p := range list {
		p.refused = nil
		// Updates are serializable: of two that look here at the same time and
		// then insert, one finds what the other inserted.
		existing, err := s.findDuplicate(ctx, tx, c, keys, set, p)
		if err != nil {
			return err
		}
		if p.duplicate = existing; existing != nil {
			if unseen = unseen || !p.repeats(*existing); unseen {
				continue
			}
			*made = append(*made, *p.repeated)
			entries = append(entries, audit.Showing(
				audit.Entry(c.Caller, now, existing.Type, existing.ID, audit.Read), c.seesDuplicate(set, *existing, p.decision).data))
			continue
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
				entries = append(entries, audit.Expired(c.Tenant(), now, old.Type, old.ID).In(old.Containers))
			case p.namer.random:
				taken[p] = true
				continue
			case p.separate:
				p.refused = errTaken
				continue
			default:
				return errTaken
			}
		}
		if err := tx.InsertToken(ctx, p.row); err != nil {
			return fmt.Errorf("insert token: %w", err)
		}
		*made = append(*made, p.shown)
		entries = append(entries, audit.Entry(c.Caller, now, p.row.Type, p.row.ID, audit.Create).In(p.row.Containers))
	}
	if unseen {
		return errUnseen
	}
	return tx.AppendLog(ctx, entries...)
}
