package storetest

import (
	"context"
	"errors"
	"fmt"

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
}

func tokenComesBack(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, token(1)) })
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		got, err := tx.Token(ctx, token(1).ID)
		f.same("Token", got, token(1))
		if _, err := tx.Token(ctx, "nope"); !errors.Is(err, store.ErrNotFound) {
			f.Errorf("Token that is not there: got error %v, want %v", err, store.ErrNotFound)
		}
		return err
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
			n, err := tx.CountTokens(ctx, store.TokenFilter{Now: day, Terms: c.terms})
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
				"all": {}, "by id": {IDs: []string{t.ID}}, "by group": {Groups: []string{groups[0].ID}}, "by term": {Terms: t.Terms[:1]},
				"by terms": {Terms: t.Terms}, "by term and group": {Terms: t.Terms[:1], Groups: []string{groups[0].ID}},
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
			n, err := tx.CountTokens(ctx, store.TokenFilter{Now: day, Groups: []string{g.ID}})
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
