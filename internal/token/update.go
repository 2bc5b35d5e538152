package token

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// errChanged says that the token changed between being read and being written.
var errChanged = errors.New("token: changed meanwhile")

// errDataID: a value must not move in behind an id that tells it.
var errDataID = fault.Field("data", "must not be what the token's id already tells")

// maxUpdateConflicts is how often an update that conflicts with one of another
// node is computed again. On one node, updates of a token take turns.
const maxUpdateConflicts = 10

var errContended = fault.New(fault.Conflict, "the token is being changed by others: try again").RetryAfter(time.Second)

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
	if err := c.ChargeTokens(1); err != nil {
		return Token{}, err
	}
	u := update{s: s, c: c, keys: keys, set: set, patch: patch}
	if u.mayStoreShortLived() {
		if u.epoch, err = s.ring.Epoch(ctx, c.Tenant()); err != nil {
			return Token{}, fmt.Errorf("get epoch key: %w", err)
		}
	}
	done, err := s.changing.take(ctx, c.Tenant()+"/"+id)
	if err != nil {
		return Token{}, err
	}
	defer done()
	for conflicts := 0; ; {
		t, err := u.try(ctx, id, last)
		if !errors.Is(err, errChanged) && !errors.Is(err, store.ErrConflict) {
			return t, err
		}
		if conflicts++; conflicts > maxUpdateConflicts {
			return Token{}, errContended
		}
	}
}

// try reads the token, computes the change, and writes it if the token is still
// the same. Expressions are evaluated between the two transactions: others wait
// for a transaction, and must not wait for an expression.
func (u *update) try(ctx context.Context, id string, last []store.Step[Token]) (t Token, err error) {
	var x *updated
	err = u.s.store.View(ctx, u.c.Tenant(), func(tx store.Tx) (err error) {
		x, err = u.read(ctx, tx, id)
		return err
	})
	if err != nil {
		return Token{}, err
	}
	u.budget = u.s.limitsOf(u.c.Tenant()).Budget(ctx)
	if err := u.work(x); err != nil {
		return Token{}, err
	}
	err = u.s.update(ctx, u.c, func(tx store.Tx) error {
		current, err := u.read(ctx, tx, id)
		if err != nil {
			return err
		}
		if current.row.Version != x.row.Version {
			return errChanged
		}
		if t, err = u.write(ctx, tx, x); err != nil {
			return err
		}
		return store.Finish(tx, t, last)
	})
	return t, err
}

// update is one call of Update.
type update struct {
	s     *Service
	c     access.Caller
	keys  *keyring.Keys
	set   settings
	epoch *keyring.EpochKey // nil when the patch cannot store a short-lived member
	patch jsonvalue.Value
	// budget is that of one try: a conflict with another node must not make an
	// update too expensive.
	budget *expression.Budget
}

// updated is a token on its way: the row as it was read, and what becomes of it.
type updated struct {
	row       store.Token
	transform access.Transform // of token:update
	next      store.Token
	shown     Token
	message   string // what the log says was done; "" for an update like any other
}

// read finds the token and decides whether the caller may update it as it is.
func (u *update) read(ctx context.Context, tx store.Tx, id string) (*updated, error) {
	row, err := u.s.live(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	d := decide(u.c, access.TokenUpdate, row)
	return &updated{row: row, transform: d.Transform}, d.Err()
}

// work applies the patch, decides whether the caller may make that change,
// checks the whole and seals it. It does no I/O.
func (u *update) work(x *updated) error {
	old, err := openRow(u.c, u.keys, x.row)
	if err != nil {
		return err
	}
	r, err := u.merged(x.row, old)
	if err != nil {
		return err
	}
	// Before anything is evaluated: an error of a mask tells of the data too.
	changed := u.changes(x.row, old, r)
	if err := u.permit(x.row, changed); err != nil {
		return err
	}
	moved := u.c.Decide(access.TokenUpdate, access.Target{ID: x.row.ID, Containers: changed.containers, Type: x.row.Type})
	if err := moved.Err(); err != nil {
		return err
	}
	if err := u.checkGiven(x.row, old, r, changed); err != nil {
		return err
	}
	_, fills := u.patch.Get("data")
	d, err := u.s.draft(u.budget, u.keys, u.set, r, old.writers.andThen(through(u.c), fills, changed.whole))
	if err != nil {
		return err
	}
	if tellsWhole(x.row.ID, d.data, d.kind.private) {
		return errDataID
	}
	if _, touched := u.patch.Get("expires_at"); !touched {
		d.expiry = x.row.Expiry
	}
	x.next = x.row
	x.next.Containers, x.next.Terms, x.next.Expiry, x.next.Derived = d.containers, d.terms, d.expiry, true
	x.next.ModifiedBy, x.next.ModifiedAt = u.c.Application(), store.At(u.s.now())
	x.next.Version++
	if u.touchesShortLived(d.kind) {
		x.next.ShortLived = nil
	}
	x.message = changed.message()
	if err := u.show(x, d, changed); err != nil {
		return err
	}
	return d.sealInto(&x.next, u.keys, u.epoch)
}

// show makes the response: what a read by the same caller would show, never
// plaintext, and beside it what the caller sent itself.
func (u *update) show(x *updated, d *draft, changed changes) (err error) {
	update := min(x.transform, decide(u.c, access.TokenUpdate, x.next).Transform)
	seen := sightOfUpdated(u.c, u.set, x.next, update, changed.whole)
	if x.shown, err = u.s.show(u.budget, u.c.Tenant(), x.next, d.contents, jsonvalue.Value{}, seen); err != nil || seen.details {
		return err
	}
	if mask, given := u.patch.Get("mask"); given {
		x.shown.Mask, _ = jsonvalue.MergePatch(jsonvalue.Value{}, mask) // it was merged once without an error
	}
	if _, given := u.patch.Get("fingerprint_expression"); given {
		x.shown.FingerprintExpression = d.expression.PublicText()
	}
	if _, given := u.patch.Get("search_indexes"); given {
		x.shown.SearchIndexes = d.indexes
	}
	var sent jsonvalue.Builder
	metadata, _ := u.patch.Get("metadata")
	for key, value := range metadata.Members() {
		if !value.IsNull() {
			sent.Add(key, value)
		}
	}
	if v := sent.Value(); v.Len() > 0 {
		x.shown.Metadata = v
	}
	return nil
}

// merged applies the patch to the token as it is shown and reads the result as
// a request. What is short-lived is not part of it: a new value comes with the
// patch, and an old one stays sealed where it is.
func (u *update) merged(row store.Token, old contents) (Request, error) {
	var f fault.Fields
	for name, current := range map[string]string{"id": row.ID, "type": row.Type} {
		if v, given := u.patch.Get(name); given && (v.Kind() != jsonvalue.String || v.PublicText() != current) {
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
	r.kind, r.deduplicate = row.Type, nil // an update always applies
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
	entry := audit.Entry(u.c, u.s.now(), x.row.Type, x.row.ID, audit.Update)
	if x.message != "" {
		entry = audit.EntryThat(u.c, u.s.now(), x.row.Type, x.row.ID, audit.Update, x.message)
	}
	return x.shown, tx.AppendLog(ctx, entry)
}
