package token

import (
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// changes are what an update changes beside data and metadata, and so what it
// makes visible of stored data in another way than before.
type changes struct {
	mask, expression, indexes bool
	// added and removed are about containers, of which containers are those
	// that the token gets.
	added, removed bool
	containers     []string
	// whole says that nothing of the stored data remains: the patch alone makes
	// all of the new data, short-lived fields aside.
	whole bool
}

// changes compares a token with what the patch makes of it. A field that equals
// what the caller can read is no change. For a caller who cannot read the token
// every field that is given is one: otherwise the refusal would tell whether a
// guess of it is right.
func (u *update) changes(row store.Token, old contents, r Request) changes {
	reads := decide(u.c, access.TokenRead, row).Allowed()
	next := contents{kind: old.kind, details: details{mask: r.mask, indexes: r.indexes, expression: r.expression}}
	differs := func(name string, same bool) bool {
		_, given := u.patch.Get(name)
		return given && (!reads || !same)
	}
	c := changes{
		mask:       differs("mask", next.shownMask().Equal(old.shownMask())),
		expression: differs("fingerprint_expression", next.shownExpression() == old.shownExpression()),
		indexes:    differs("search_indexes", next.shownIndexes().Equal(old.shownIndexes())),
		containers: r.containers,
	}
	if len(c.containers) == 0 {
		c.containers = []string{old.kind.Container}
	}
	c.added = slices.ContainsFunc(c.containers, func(path string) bool { return !slices.Contains(row.Containers, path) })
	c.removed = slices.ContainsFunc(row.Containers, func(path string) bool { return !slices.Contains(c.containers, path) })
	if data, given := u.patch.Get("data"); given {
		alone, err := jsonvalue.MergePatch(jsonvalue.Value{}, data)
		c.whole = err == nil && alone.Equal(r.data)
	}
	return c
}

// message is what the log says of the changes; "" when there are none.
func (c changes) message() string {
	var list []string
	for _, m := range []struct {
		is    bool
		words string
	}{
		{c.mask, "mask changed"}, {c.expression, "fingerprint expression changed"}, {c.indexes, "search indexes changed"},
		{c.removed, "moved to other containers"}, {c.added && !c.removed, "added to containers"},
	} {
		if m.is {
			list = append(list, m.words)
		}
	}
	return strings.Join(list, ", ")
}

const fieldNotAllowed = "field_not_allowed"

// publicFields are the fields of a stored token that a public application
// cannot change: anyone has its key.
var publicFields = []struct {
	name    string
	refusal *fault.Fault
}{
	{"containers", fault.New(fault.Forbidden, "a public application cannot change containers").WithCode(fieldNotAllowed)},
	{"expires_at", fault.New(fault.Forbidden, "a public application cannot change expires_at").WithCode(fieldNotAllowed)},
	{"fingerprint_expression", fault.New(fault.Forbidden, "a public application cannot change fingerprint_expression").WithCode(fieldNotAllowed)},
	{"mask", fault.New(fault.Forbidden, "a public application cannot change mask").WithCode(fieldNotAllowed)},
	{"search_indexes", fault.New(fault.Forbidden, "a public application cannot change search_indexes").WithCode(fieldNotAllowed)},
}

var (
	refuseDerive = fault.New(fault.Forbidden,
		"changing mask, fingerprint_expression or search_indexes takes token:read with transform reveal on every container of the token, or a patch that replaces data as a whole").
		WithCode("reveal_required")
	refuseMove = fault.New(fault.Forbidden,
		"removing a token from a container takes token:read with transform reveal on every container of the token").
		WithCode("reveal_required")
)

// permit decides whether the caller may make the changes. Whatever makes
// something new visible out of stored data is a read of it.
func (u *update) permit(row store.Token, c changes) error {
	token := access.Entity{Type: row.Type, ID: row.ID}
	if u.c.ApplicationType() == access.Public {
		for _, field := range publicFields {
			if _, given := u.patch.Get(field.name); given {
				return access.About(access.Refuse(access.TokenUpdate, field.refusal), token)
			}
		}
		return nil
	}
	if mayReveal(u.c, row) {
		return nil
	}
	if (c.mask || c.expression || c.indexes) && !c.whole {
		return access.About(access.Refuse(access.TokenRead, refuseDerive), token)
	}
	if c.removed {
		return access.About(access.Refuse(access.TokenRead, refuseMove), token)
	}
	return nil
}

// checkGiven checks what a new token would be checked for, of the parts that
// the patch gives: a token of an older release may have others.
func (u *update) checkGiven(row store.Token, old contents, r Request, c changes) error {
	if c.expression {
		if err := u.s.checkExpression(u.budget, r.expression); err != nil {
			return err
		}
	}
	added := slices.DeleteFunc(slices.Clone(c.containers), func(path string) bool { return slices.Contains(row.Containers, path) })
	metadata := r.metadata
	for key := range old.metadata.Members() {
		metadata = metadata.Without(key)
	}
	var f fault.Fields
	checkNames(&f, u.set, added, metadata)
	return f.Err()
}
