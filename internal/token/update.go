package token

import (
	"context"
	"errors"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// errChanged says that the token changed between being read and being written.
var errChanged = errors.New("token: changed meanwhile")

// errDataID: a value must not move in behind an id that tells it.
var errDataID = fault.Field("data", "must not be what the token's id already tells")

// hurriedTries is how often a change is worked out ahead of its transaction.
// When others change the same token each time, it is worked out inside.
const (
	hurriedTries = 3
	maxTries     = 20
)

var errContended = fault.New(fault.Conflict, "the token is being changed by others: try again")

// Update changes a token by a merge patch after RFC 7386: data, mask and
// metadata are merged, the rest is replaced, and the whole is checked as a new
// token is. The caller needs token:update on the containers that the token has
// and on those that it gets.
func (s *Service) Update(ctx context.Context, c access.Caller, id string, patch jsonvalue.Value, last ...store.Step[Token]) (t Token, err error) {
	if patch.Kind() != jsonvalue.Object {
		return Token{}, errNotObject
	}
	keys, set, err := s.begin(ctx, c, access.TokenUpdate)
	if err != nil {
		return Token{}, err
	}
	u := update{s: s, c: c, keys: keys, set: set, patch: patch}
	if u.mayStoreShortLived() {
		if u.epoch, err = s.ring.Epoch(ctx, c.Tenant()); err != nil {
			return Token{}, fmt.Errorf("get epoch key: %w", err)
		}
	}
	for try := 0; ; try++ {
		var ahead *updated
		if try < hurriedTries {
			err := s.store.View(ctx, c.Tenant(), func(tx store.Tx) (err error) {
				ahead, err = u.read(ctx, tx, id)
				return err
			})
			if err == nil {
				err = u.work(ahead)
			}
			if err != nil {
				return Token{}, err
			}
		}
		err := s.update(ctx, c, func(tx store.Tx) error {
			now := ahead
			current, err := u.read(ctx, tx, id)
			if err != nil {
				return err
			}
			switch {
			case now == nil:
				now = current
				if err := u.work(now); err != nil {
					return err
				}
			case current.row.Version != now.row.Version:
				return errChanged
			}
			t, err = u.write(ctx, tx, now)
			if err != nil {
				return err
			}
			return store.Finish(tx, t, last)
		})
		switch {
		case err == nil:
			return t, nil
		case !errors.Is(err, errChanged) && !errors.Is(err, store.ErrConflict):
			return Token{}, err
		case try >= maxTries:
			return Token{}, errContended
		}
	}
}

// update is one call of Update.
type update struct {
	s     *Service
	c     access.Caller
	keys  *keyring.Keys
	set   settings
	epoch *keyring.EpochKey // nil when the patch cannot store a short-lived member
	patch jsonvalue.Value
}

// updated is a token on its way: the row as it was read, and what becomes of it.
type updated struct {
	row       store.Token
	transform access.Transform
	next      store.Token
	draft     *draft
	shown     Token
	// changedFingerprint says that the token may now be equal to another.
	changedFingerprint bool
}

// read finds the token and asks whether the caller may update it as it is.
func (u *update) read(ctx context.Context, tx store.Tx, id string) (*updated, error) {
	row, err := u.s.live(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	d := decide(u.c, access.TokenUpdate, row)
	return &updated{row: row, transform: d.Transform}, d.Err()
}

// work applies the patch, checks the whole and seals it. It does no I/O.
func (u *update) work(x *updated) error {
	old, err := open(u.keys, x.row)
	if err != nil {
		return err
	}
	r, err := u.merged(x.row, old)
	if err != nil {
		return err
	}
	d, err := u.s.draft(u.keys, u.set, r)
	if err != nil {
		return err
	}
	if tellsWhole(x.row.ID, d.data, d.kind.private) {
		return errDataID
	}
	if _, touched := u.patch.Get("expires_at"); !touched {
		d.expiry = x.row.Expiry
	}
	moved := u.c.Decide(access.TokenUpdate, access.Target{ID: x.row.ID, Containers: d.containers})
	if err := moved.Err(); err != nil {
		return err
	}
	x.transform = min(x.transform, moved.Transform)
	x.next, x.draft = x.row, d
	x.next.Containers, x.next.Terms, x.next.Expiry = d.containers, d.terms, d.expiry
	x.next.ModifiedBy, x.next.ModifiedAt = u.c.Application(), store.At(u.s.now())
	x.next.Version++
	if u.touchesShortLived(d.kind) {
		x.next.ShortLived = nil
	}
	x.changedFingerprint = d.fingerprint != old.fingerprint
	x.shown = u.s.show(u.c.Tenant(), x.next, d.contents, jsonvalue.Value{}, x.transform)
	return d.sealInto(&x.next, u.keys, u.epoch)
}

// merged applies the patch to the token as it is shown and reads the result as
// a request. What is short-lived is not part of it: a new value comes with the
// patch, and an old one stays sealed where it is.
func (u *update) merged(row store.Token, old contents) (Request, error) {
	var f fault.Fields
	for name, current := range map[string]string{"id": row.ID, "type": row.Type} {
		if v, given := u.patch.Get(name); given && (v.Kind() != jsonvalue.String || v.Reveal() != current) {
			f.Add(name, "cannot be changed")
		}
	}
	if err := f.Err(); err != nil {
		return Request{}, err
	}
	// Sealed before or not, what the patch leaves alone must stay as it is: so
	// the type's own mask stands here only for a patch to be merged into.
	mask := old.mask
	if _, given := u.patch.Get("mask"); given {
		mask = old.shownMask()
	}
	var b jsonvalue.Builder
	b.Add("data", old.data)
	for _, m := range []struct {
		name string
		v    jsonvalue.Value
	}{{"mask", mask}, {"metadata", old.metadata}, {"search_indexes", old.indexes}, {"fingerprint_expression", old.expression}} {
		if !m.v.IsNull() {
			b.Add(m.name, m.v)
		}
	}
	containers := make([]jsonvalue.Value, len(row.Containers))
	for i, path := range row.Containers {
		containers[i] = jsonvalue.NewString(path)
	}
	b.Add("containers", jsonvalue.NewArray(containers))
	whole, err := jsonvalue.MergePatch(b.Value(), u.patch.Without("id").Without("type"))
	if err != nil {
		return Request{}, err
	}
	r := parseRequest(&f, whole)
	r.kind = row.Type
	return r, f.Err()
}

// touchesShortLived reports whether the patch removes or replaces a
// short-lived member of a type.
func (u *update) touchesShortLived(kind *Type) bool {
	data, _ := u.patch.Get("data")
	for _, name := range kind.ShortLived {
		if _, given := data.Get(name); given {
			return true
		}
	}
	return false
}

// mayStoreShortLived reports whether there is a type of which the patch
// touches a short-lived member: the token's own is not known yet.
func (u *update) mayStoreShortLived() bool {
	for i := range types {
		if u.touchesShortLived(&types[i]) {
			return true
		}
	}
	return false
}

// write stores the token and its log entry.
func (u *update) write(ctx context.Context, tx store.Tx, x *updated) (Token, error) {
	if err := tx.ReplaceToken(ctx, x.next); errors.Is(err, store.ErrConflict) {
		return Token{}, errChanged
	} else if err != nil {
		return Token{}, fmt.Errorf("replace token: %w", err)
	}
	if err := tx.AppendLog(ctx, audit.Entry(u.c, u.s.now(), x.row.Type, x.row.ID, audit.Update)); err != nil {
		return Token{}, err
	}
	t := x.shown
	hide, err := u.meetsUnreadable(ctx, tx, x)
	if err != nil {
		return Token{}, err
	}
	if hide {
		t.Data, t.Metadata, t.SearchIndexes, t.Mask = jsonvalue.Value{}, jsonvalue.Value{}, jsonvalue.Value{}, jsonvalue.Value{}
		t.FingerprintExpression, t.side = "", jsonvalue.Value{}
	}
	return t, nil
}

// meetsUnreadable reports whether the update made the token equal to another
// that the caller may not read. A request that wants no deduplication does not
// ask.
func (u *update) meetsUnreadable(ctx context.Context, tx store.Tx, x *updated) (bool, error) {
	if wanted, given := u.patch.Get("deduplicate_token"); given && wanted.Kind() == jsonvalue.Bool && !wanted.IsTrue() {
		return false, nil
	}
	if x.draft.fingerprint == "" || !x.changedFingerprint {
		return false, nil
	}
	term := u.keys.IndexTerm(termFingerprint, x.draft.fingerprint)
	same, err := tx.Tokens(ctx, store.TokenFilter{Now: store.At(u.s.now()), Terms: [][]byte{term}}, store.Page{Limit: equals})
	if err != nil {
		return false, fmt.Errorf("look for the same token: %w", err)
	}
	for _, row := range same {
		if row.ID != x.row.ID && !decide(u.c, access.TokenRead, row).Allowed() {
			return true, nil
		}
	}
	return false, nil
}
