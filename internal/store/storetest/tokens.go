package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var tokenTests = []test{
	{"a token comes back whole", tokenComesBack},
	{"an id is taken, even by a token that has expired", idTaken},
	{"a token that was deleted frees its id", idFreed},
	{"a replacement changes everything but what never changes", replaceToken},
	{"a replacement needs the next version", replaceVersions},
	{"an expired token is read by its id and never listed", expiredToken},
	{"groups are those that tokens have had", tokenGroups},
	{"expired tokens are found across tenants, longest expired first", expiredTokens},
	{"a token says whether its derived values are in today's form", derivedTokens},
	{"outdated tokens are found across tenants, in the order of tenant and id", outdatedTokens},
}

func tokenComesBack(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, token(1)) })
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		got, err := tx.Token(ctx, token(1).ID)
		f.same("Token", got, token(1))
		if _, err := tx.Token(ctx, "nope"); !errors.Is(err, store.ErrNotFound) {
			f.Errorf("Token that is not there: got error %v, want %v", err, store.ErrNotFound)
		}
		kind, typeErr := tx.TokenType(ctx, token(1).ID)
		f.same("TokenType", kind, token(1).Type)
		if kind, err := tx.TokenType(ctx, "nope"); kind != "" || !errors.Is(err, store.ErrNotFound) {
			f.Errorf("TokenType of one that is not there: got %q, error %v, want %v", kind, err, store.ErrNotFound)
		}
		return errors.Join(err, typeErr)
	})
}

func idTaken(f *fixture) {
	expired := version2(token(1), func(t *store.Token) { t.Expiry.At = day - hour })
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, expired) })
	want := f.contents(tenantA)
	f.refused("InsertToken of an id that an expired token has", tenantA, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.InsertToken(ctx, token(1))
	})
	f.refused("InsertToken twice in one transaction", tenantA, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		if err := tx.InsertToken(ctx, token(2)); err != nil {
			return err
		}
		return tx.InsertToken(ctx, token(2))
	})
	f.same("contents afterwards", f.contents(tenantA), want)
	f.sound()
}

func idFreed(f *fixture) {
	again := token(1)
	again.CreatedAt += hour
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, token(1)) })
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.DeleteToken(ctx, token(1).ID) })
	f.refused("DeleteToken again", tenantA, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error { return tx.DeleteToken(ctx, token(1).ID) })
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, again) })
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.DeleteToken(ctx, again.ID), tx.InsertToken(ctx, again))
	})
	f.same("tokens", f.contents(tenantA).Tokens, []store.Token{again})
	f.sound()
}

func replaceToken(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, token(1)) })
	changed := store.Token{
		ID: token(1).ID, Type: "bank", Containers: []string{"/a/", "/b/"}, Data: []byte("new data"), Details: nil, ShortLived: nil,
		Terms: [][]byte{[]byte("new term")}, Expiry: store.Expiry{}, CreatedBy: "a forger", CreatedAt: day + 99*hour,
		ModifiedBy: "somebody", ModifiedAt: day + hour, Version: 2,
	}
	want := changed
	want.Type, want.CreatedBy, want.CreatedAt = token(1).Type, token(1).CreatedBy, token(1).CreatedAt
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceToken(ctx, changed) })
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		got, err := tx.Token(ctx, changed.ID)
		if err != nil {
			return err
		}
		f.same("Token", got, want)
		for name, c := range map[string]struct {
			terms [][]byte
			want  int64
		}{"old term": {token(1).Terms[:1], 0}, "new term": {changed.Terms, 1}, "both": {[][]byte{changed.Terms[0], token(1).Terms[0]}, 0}} {
			n, err := tx.CountTokens(ctx, store.TokenFilter{Now: day, Groups: every, Terms: c.terms})
			if n != c.want || err != nil {
				f.Errorf("tokens with the %s: got %d, error %v; want %d", name, n, err, c.want)
			}
		}
		return nil
	})
	// Only the sealed bytes: terms, group and expiry stay.
	want.Data, want.Version = []byte("newer data"), 3
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceToken(ctx, want) })
	f.same("tokens", f.contents(tenantA).Tokens, []store.Token{want})
	f.sound()
}

func replaceVersions(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, token(1)) })
	for version, want := range map[int64]error{-1: store.ErrConflict, 0: store.ErrConflict, 1: store.ErrConflict, 3: store.ErrConflict} {
		f.refused(fmt.Sprintf("ReplaceToken with version %d over 1", version), tenantA, want, func(ctx context.Context, tx store.Tx) error {
			return tx.ReplaceToken(ctx, version2(token(1), func(t *store.Token) { t.Version = version }))
		})
	}
	f.refused("ReplaceToken of one that is not there", tenantA, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.ReplaceToken(ctx, token(2))
	})
	f.same("tokens", f.contents(tenantA).Tokens, []store.Token{token(1)})
}

func expiredToken(f *fixture) {
	t := token(1)
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, t) })
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		for name, c := range map[string]struct {
			now  store.Time
			want int64
		}{"a microsecond before": {t.Expiry.At - 1, 1}, "at the instant": {t.Expiry.At, 0}, "a microsecond behind": {t.Expiry.At + 1, 0}} {
			groups, err := tx.TokenGroups(ctx)
			if err != nil {
				return err
			}
			for part, filter := range map[string]store.TokenFilter{
				"all": {Groups: every}, "by id": {Groups: every, IDs: []string{t.ID}}, "by group": {Groups: store.OnlyGroups(groups[0].ID)}, "by term": {Groups: every, Terms: t.Terms[:1]},
				"by terms": {Groups: every, Terms: t.Terms}, "by term and group": {Terms: t.Terms[:1], Groups: store.OnlyGroups(groups[0].ID)},
			} {
				filter.Now = c.now
				n, errCount := tx.CountTokens(ctx, filter)
				list, errList := tx.Tokens(ctx, filter, large)
				if n != c.want || int64(len(list)) != c.want || errCount != nil || errList != nil {
					f.Errorf("%s the expiry, %s: counted %d (%v), listed %d (%v); want %d", name, part, n, errCount, len(list), errList, c.want)
				}
			}
			if _, err := tx.Token(ctx, t.ID); err != nil {
				f.Errorf("Token %s the expiry: got error %v, want none", name, err)
			}
			if kind, err := tx.TokenType(ctx, t.ID); kind != t.Type || err != nil {
				f.Errorf("TokenType %s the expiry: got %q, error %v, want %q", name, kind, err, t.Type)
			}
		}
		return nil
	})
}

func tokenGroups(f *fixture) {
	with := func(n int, kind string, containers ...string) store.Token {
		return version2(token(n), func(t *store.Token) { t.Type, t.Containers = kind, containers })
	}
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(
			tx.InsertToken(ctx, with(1, "card", "/a/")), tx.InsertToken(ctx, with(2, "card", "/a/")), tx.InsertToken(ctx, with(3, "bank", "/a/")),
			tx.InsertToken(ctx, with(4, "card", "/a/", "/b/")), tx.InsertToken(ctx, with(5, "card", "/b/")))
	})
	f.same("groups", f.contents(tenantA).Groups, []string{"bank /a/", "card /a/", "card /a/ /b/", "card /b/"})
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		groups, err := tx.TokenGroups(ctx)
		if err != nil {
			return err
		}
		ids := map[string]bool{}
		for _, g := range groups {
			ids[g.ID] = true
			want := int64(1)
			if g.Type == "card" && len(g.Containers) == 1 && g.Containers[0] == "/a/" {
				want = 2
			}
			n, err := tx.CountTokens(ctx, store.TokenFilter{Now: day, Groups: store.OnlyGroups(g.ID)})
			if n != want || err != nil {
				f.Errorf("tokens in group %s %v: got %d, error %v; want %d", g.Type, g.Containers, n, err, want)
			}
		}
		f.same("different group ids", len(ids), 4)
		return nil
	})
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		moved := with(5, "card", "/c/")
		moved.Version = 2
		return errors.Join(tx.ReplaceToken(ctx, moved), tx.DeleteToken(ctx, token(3).ID))
	})
	c := f.contents(tenantA)
	f.same("token count", c.TokenCount, int64(4))
	for _, want := range []string{"card /a/", "card /a/ /b/", "card /c/"} {
		found := false
		for _, g := range c.Groups {
			found = found || g == want
		}
		if !found {
			f.Errorf("groups %q lack %q", c.Groups, want)
		}
	}
	f.sound()
}

func expiredTokens(f *fixture) {
	tenants := []string{tenantA, tenantB, tenantC}
	var want []store.TokenRef
	for n := range 30 {
		t := version2(token(n), func(t *store.Token) { t.Expiry.At = day - 30*second + store.Time(n)*second }) // the last one before day
		id := tenants[n%3]
		f.update(id, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, t) })
		want = append(want, store.TokenRef{Tenant: id, ID: t.ID})
	}
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		never := version2(token(100), func(t *store.Token) { t.Expiry = store.Expiry{} })
		return errors.Join(tx.InsertToken(ctx, never), tx.InsertToken(ctx, token(101)))
	})
	for name, c := range map[string]struct {
		now         store.Time
		skip, limit int
		want        []store.TokenRef
	}{
		"all":                       {day, 0, 1000, want},
		"a bounded number":          {day, 0, 7, want[:7]},
		"those behind them":         {day, 7, 7, want[7:14]},
		"the last":                  {day, 29, 7, want[29:]},
		"those behind the last":     {day, 30, 7, nil},
		"at the instant of the 5th": {day - 30*second + 4*second, 0, 1000, want[:5]},
		"just before that":          {day - 30*second + 4*second - 1, 0, 1000, want[:4]},
		"before the first":          {day - hour, 0, 1000, nil},
	} {
		got, err := f.AllTenants().ExpiredTokens(f.Context(), c.now, c.skip, c.limit)
		if err != nil {
			f.Errorf("ExpiredTokens, %s: %v", name, err)
		}
		if len(got) == 0 {
			got = nil
		}
		f.same("ExpiredTokens, "+name, got, c.want)
	}
	for swept := 0; ; { // as the sweeper does
		refs, err := f.AllTenants().ExpiredTokens(f.Context(), day, 0, 4)
		if err != nil {
			f.Fatalf("ExpiredTokens: %v", err)
		}
		if len(refs) == 0 {
			f.same("tokens swept", swept, 30)
			break
		}
		for _, ref := range refs {
			f.update(ref.Tenant, func(ctx context.Context, tx store.Tx) error { return tx.DeleteToken(ctx, ref.ID) })
			swept++
		}
		if swept > 30 {
			f.Fatalf("swept more tokens than there are")
		}
	}
	f.same("what is left", f.contents(tenantA).TokenCount, int64(2))
	f.sound()
}

// outdated returns what OutdatedTokens does, and nil when that is nothing.
func (f *fixture) outdated(skip, limit int) []store.TokenRef {
	f.Helper()
	refs, err := f.AllTenants().OutdatedTokens(f.Context(), "", skip, limit)
	if err != nil {
		f.Fatalf("OutdatedTokens: %v", err)
	}
	if len(refs) == 0 {
		return nil
	}
	return refs
}

func derivedTokens(f *fixture) {
	ref := []store.TokenRef{{Tenant: tenantA, ID: token(1).ID}}
	current := token(1)
	check := func(doing string) {
		f.Helper()
		f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
			got, err := tx.Token(ctx, current.ID)
			if err != nil {
				return err
			}
			f.same("Token "+doing, got, current)
			for name, filter := range map[string]store.TokenFilter{"all": {Groups: every}, "by id": {Groups: every, IDs: []string{current.ID}}, "by term": {Groups: every, Terms: current.Terms[:1]}} {
				filter.Now = day
				list, err := tx.Tokens(ctx, filter, large)
				if err != nil {
					return err
				}
				f.same("Tokens, "+name+", "+doing, list, []store.Token{current})
			}
			return nil
		})
		want := ref
		if current.Derived {
			want = nil
		}
		f.same("OutdatedTokens "+doing, f.outdated(0, 10), want)
	}
	for _, inserted := range []bool{true, false} {
		current = version2(token(1), func(t *store.Token) { t.Derived = inserted })
		f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, current) })
		check(fmt.Sprintf("inserted with Derived %t", inserted))
		for _, replaced := range []bool{true, true, false, false, true} {
			current.Version, current.Derived = current.Version+1, replaced
			f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceToken(ctx, current) })
			check(fmt.Sprintf("replaced with Derived %t at version %d", replaced, current.Version))
		}
		// What was read and is put back keeps it.
		f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
			got, err := tx.Token(ctx, current.ID)
			got.Version++
			return errors.Join(err, tx.ReplaceToken(ctx, got))
		})
		current.Version++
		check("put back")
		f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.DeleteToken(ctx, current.ID) })
		f.same("OutdatedTokens when it is deleted", f.outdated(0, 10), []store.TokenRef(nil))
	}
	// Insert and replacement in one transaction, and one that is not kept.
	current = version2(token(1), func(t *store.Token) { t.Version, t.Derived = 2, false })
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.InsertToken(ctx, token(1)), tx.ReplaceToken(ctx, current))
	})
	f.refused("Update that fails", tenantA, errStop, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.ReplaceToken(ctx, version2(token(1), func(t *store.Token) { t.Version = 3 })), errStop)
	})
	check("inserted and replaced at once")
	f.sound()
}

func outdatedTokens(f *fixture) {
	f.same("OutdatedTokens of an empty store", f.outdated(0, 10), []store.TokenRef(nil))
	var want []store.TokenRef
	for i, id := range []string{tenantC, tenantA, tenantB} { // not in their order
		f.update(id, func(ctx context.Context, tx store.Tx) error {
			for n := range 10 {
				t := version2(token(9-n), func(t *store.Token) { t.Version, t.Derived = int64(1+n%3), (n+i)%2 == 0 })
				if n == 9 { // one that has expired is a row too
					t.Expiry.At = day - hour
				}
				if err := tx.InsertToken(ctx, t); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for i, id := range map[int]string{1: tenantA, 2: tenantB, 0: tenantC} {
		for n := range 10 {
			if (9-n+i)%2 != 0 {
				want = append(want, store.TokenRef{Tenant: id, ID: token(n).ID})
			}
		}
	}
	slices.SortFunc(want, byTenant)
	for name, c := range map[string]struct {
		skip, limit int
		want        []store.TokenRef
	}{
		"all":                   {0, 1000, want},
		"a bounded number":      {0, 7, want[:7]},
		"those behind them":     {7, 7, want[7:14]},
		"the last":              {14, 7, want[14:]},
		"those behind the last": {15, 7, nil},
		"none":                  {0, 0, nil},
	} {
		f.same("OutdatedTokens, "+name, f.outdated(c.skip, c.limit), c.want)
	}
	for after, tenants := range map[string][]string{tenantA: {tenantB, tenantC}, tenantB: {tenantC}, tenantC: nil} {
		refs, err := f.AllTenants().OutdatedTokens(f.Context(), after, 0, 1000)
		rest := slices.DeleteFunc(slices.Clone(want), func(r store.TokenRef) bool { return !slices.Contains(tenants, r.Tenant) })
		if err != nil || !slices.Equal(refs, rest) {
			f.Errorf("OutdatedTokens after tenant %s: got %v, error %v; want %v", after, refs, err, rest)
		}
	}
	f.update(tenantB, mark)
	f.same("OutdatedTokens while a tenant is being deleted", f.outdated(0, 1000), want)
	f.remove(tenantB)
	want = slices.DeleteFunc(want, func(r store.TokenRef) bool { return r.Tenant == tenantB })
	f.same("OutdatedTokens when it is gone", f.outdated(0, 1000), want)
	for done := 0; ; { // as the job does that recomputes them
		refs := f.outdated(0, 4)
		if len(refs) == 0 {
			f.same("tokens recomputed", done, len(want))
			break
		}
		for _, ref := range refs {
			f.update(ref.Tenant, func(ctx context.Context, tx store.Tx) error {
				t, err := tx.Token(ctx, ref.ID)
				t.Version, t.Derived, t.Terms = t.Version+1, true, [][]byte{[]byte("recomputed")}
				return errors.Join(err, tx.ReplaceToken(ctx, t))
			})
			done++
		}
		if done > len(want) {
			f.Fatalf("recomputed more tokens than there are")
		}
	}
	f.sound()
}

func byTenant(a, b store.TokenRef) int {
	return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.ID, b.ID))
}
