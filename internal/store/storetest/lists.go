package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var listTests = []test{
	{"tokens come newest first, ties by id descending", listOrder},
	{"every filter agrees with the rows, by offset and by position", listFilters},
	{"ids come in the order asked", listByIDs},
	{"no group, which is also the zero value, means no token", noGroup},
	{"a filter by more than a hundred groups", manyGroups},
	{"terms that thousands of tokens have are counted rightly", commonTerm},
	{"pages past the end and of no size are empty", oddPages},
	{"a page ends where a row is not admitted", admittedRows},
	{"a walk by position meets every row that stays exactly once", walkUnderChange},
}

func ids(list []store.Token) []string {
	out := make([]string, 0, len(list))
	for _, t := range list {
		out = append(out, t.ID)
	}
	return out
}

// walk reads a list by position, a few rows at a time, each page in a view of
// its own.
func (f *fixture) walk(tenant string, filter store.TokenFilter, size int) (list []store.Token) {
	f.Helper()
	page := store.Page{Limit: size}
	for range 1000 {
		var part []store.Token
		f.view(tenant, func(ctx context.Context, tx store.Tx) (err error) {
			part, err = tx.Tokens(ctx, filter, page)
			return err
		})
		list = append(list, part...)
		if len(part) < size {
			return list
		}
		last := part[len(part)-1]
		page.After = &store.Position{CreatedAt: last.CreatedAt, ID: last.ID}
	}
	f.Fatalf("the walk does not end: %d rows so far", len(list))
	return nil
}

// leaf reads a list by offset.
func (f *fixture) leaf(tenant string, filter store.TokenFilter, size int) (list []store.Token) {
	f.Helper()
	for range 1000 {
		var part []store.Token
		f.view(tenant, func(ctx context.Context, tx store.Tx) (err error) {
			part, err = tx.Tokens(ctx, filter, store.Page{Offset: len(list), Limit: size})
			return err
		})
		list = append(list, part...)
		if len(part) < size {
			return list
		}
	}
	f.Fatalf("the pages do not end: %d rows so far", len(list))
	return nil
}

func listOrder(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		for i, id := range []string{"b", "a", "c", "B", "é", "d"} {
			created := day
			if i == 5 {
				created = day - 1
			}
			if err := tx.InsertToken(ctx, version2(token(i), func(t *store.Token) { t.ID, t.CreatedAt = id, created })); err != nil {
				return err
			}
		}
		return nil
	})
	want := []string{"é", "c", "b", "a", "B", "d"}
	for size := 1; size <= 7; size++ {
		f.same(fmt.Sprintf("walk by %d", size), ids(f.walk(tenantA, all, size)), want)
		f.same(fmt.Sprintf("pages of %d", size), ids(f.leaf(tenantA, all, size)), want)
		f.same(fmt.Sprintf("walk by %d with a term", size), ids(f.walk(tenantA, store.TokenFilter{Now: day, Groups: every, Terms: [][]byte{[]byte("term of all")}}, size)), want)
	}
}

// varied makes tokens whose groups, terms and expiries overlap in many ways.
func varied(n int) store.Token {
	t := token(n)
	t.CreatedAt = day + store.Time(n/3) // three share an instant
	t.Type = []string{"card", "bank"}[n%2]
	t.Containers = []string{fmt.Sprintf("/%02d/", n%12)}
	t.Terms = [][]byte{[]byte("all"), fmt.Appendf(nil, "mod 2 is %d", n%2), fmt.Appendf(nil, "mod 5 is %d", n%5), fmt.Appendf(nil, "mod 7 is %d", n%7)}
	switch n % 4 {
	case 0:
		t.Expiry = store.Expiry{}
	case 1:
		t.Expiry.At = day + store.Time(n)
	}
	return t
}

// matches says what a filter means, in the plainest way.
func matches(t store.Token, filter store.TokenFilter, groups map[string]string) bool {
	if !t.Expiry.At.IsZero() && t.Expiry.At <= filter.Now {
		return false
	}
	if len(filter.IDs) > 0 && !slices.Contains(filter.IDs, t.ID) {
		return false
	}
	if !filter.Groups.Has(groups[groupName(t)]) {
		return false
	}
	for _, term := range filter.Terms {
		if !slices.ContainsFunc(t.Terms, func(have []byte) bool { return string(have) == string(term) }) {
			return false
		}
	}
	return true
}

func groupName(t store.Token) string { return fmt.Sprint(t.Type, t.Containers) }

// groupIDs maps the groups of a tenant to their ids.
func groupIDs(ctx context.Context, tx store.Tx) (map[string]string, error) {
	groups, err := tx.TokenGroups(ctx)
	out := map[string]string{}
	for _, g := range groups {
		out[fmt.Sprint(g.Type, g.Containers)] = g.ID
	}
	return out, err
}

func newestFirst(a, b store.Token) int {
	switch {
	case a.CreatedAt != b.CreatedAt && a.CreatedAt > b.CreatedAt, a.CreatedAt == b.CreatedAt && a.ID > b.ID:
		return -1
	case a.ID == b.ID:
		return 0
	}
	return 1
}

// choose is what a list must hold, from all rows.
func choose(rows []store.Token, filter store.TokenFilter, groups map[string]string) []store.Token {
	var out []store.Token
	for _, t := range rows {
		if matches(t, filter, groups) {
			out = append(out, t)
		}
	}
	if len(filter.IDs) > 0 {
		slices.SortFunc(out, func(a, b store.Token) int { return slices.Index(filter.IDs, a.ID) - slices.Index(filter.IDs, b.ID) })
	} else {
		slices.SortFunc(out, newestFirst)
	}
	return out
}

func listFilters(f *fixture) {
	Long(f.T)
	const n = 120
	var rows []store.Token
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		rows = nil
		for i := range n {
			rows = append(rows, varied(i))
			if err := tx.InsertToken(ctx, varied(i)); err != nil {
				return err
			}
		}
		return nil
	})
	var groups map[string]string
	f.view(tenantA, func(ctx context.Context, tx store.Tx) (err error) { groups, err = groupIDs(ctx, tx); return err })
	var groupList []string
	for _, id := range groups {
		groupList = append(groupList, id)
	}
	slices.Sort(groupList)
	term := func(words ...string) (out [][]byte) {
		for _, w := range words {
			out = append(out, []byte(w))
		}
		return out
	}
	for name, filter := range map[string]store.TokenFilter{
		"nothing":                {Groups: every},
		"one group":              {Groups: store.OnlyGroups(groupList[:1]...)},
		"a group twice":          {Groups: store.OnlyGroups(groupList[0], groupList[0])},
		"three groups":           {Groups: store.OnlyGroups(groupList[:3]...)},
		"eight groups":           {Groups: store.OnlyGroups(groupList[:8]...)},
		"nine groups":            {Groups: store.OnlyGroups(groupList[:9]...)},
		"all groups":             {Groups: store.OnlyGroups(groupList...)},
		"one term":               {Groups: every, Terms: term("mod 5 is 2")},
		"the term of all":        {Groups: every, Terms: term("all")},
		"two terms":              {Groups: every, Terms: term("all", "mod 5 is 2")},
		"two terms, rare first":  {Groups: every, Terms: term("mod 7 is 3", "mod 2 is 1")},
		"three terms":            {Groups: every, Terms: term("mod 2 is 1", "mod 5 is 2", "mod 7 is 3")},
		"three terms, one wrong": {Groups: every, Terms: term("mod 2 is 1", "mod 5 is 2", "mod 7 is 9")},
		"a term twice":           {Groups: every, Terms: term("mod 5 is 2", "mod 5 is 2")},
		"terms that exclude":     {Groups: every, Terms: term("mod 2 is 1", "mod 2 is 0")},
		"an unknown term":        {Groups: every, Terms: term("nope")},
		"a term and a group":     {Terms: term("mod 5 is 2"), Groups: store.OnlyGroups(groupList[:1]...)},
		"a term and nine groups": {Terms: term("mod 5 is 2"), Groups: store.OnlyGroups(groupList[:9]...)},
		"two terms and a group":  {Terms: term("mod 5 is 2", "mod 2 is 1"), Groups: store.OnlyGroups(groupList[:2]...)},
		"ids":                    {Groups: every, IDs: []string{varied(7).ID, varied(99).ID, varied(3).ID, varied(50).ID, "nope", varied(51).ID, varied(7).ID}},
		"ids and a term":         {Groups: every, IDs: []string{varied(7).ID, varied(99).ID, varied(3).ID, varied(51).ID}, Terms: term("mod 2 is 1", "all")},
		"ids and groups":         {IDs: []string{varied(7).ID, varied(99).ID, varied(3).ID, varied(50).ID}, Groups: store.OnlyGroups(groupList[:6]...)},
	} {
		for _, now := range []store.Time{day, day + 61, day + 62, day + 2000*hour} {
			filter.Now = now
			want := choose(rows, filter, groups)
			var count int64
			f.view(tenantA, func(ctx context.Context, tx store.Tx) (err error) {
				count, err = tx.CountTokens(ctx, filter)
				return err
			})
			f.same(fmt.Sprintf("count by %s at %d", name, now-day), count, int64(len(want)))
			for _, size := range []int{7, 1000} {
				if got := ids(f.walk(tenantA, filter, size)); !slices.Equal(got, ids(want)) {
					f.Errorf("walk by %s at %d, %d at a time:\n got %v\nwant %v", name, now-day, size, got, ids(want))
				}
			}
			if got := ids(f.leaf(tenantA, filter, 7)); !slices.Equal(got, ids(want)) {
				f.Errorf("pages by %s at %d:\n got %v\nwant %v", name, now-day, got, ids(want))
			}
		}
	}
}

func listByIDs(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		for n := range 5 {
			if err := tx.InsertToken(ctx, token(n)); err != nil {
				return err
			}
		}
		return nil
	})
	asked := []string{token(2).ID, token(4).ID, "nope", token(0).ID, token(2).ID, token(3).ID}
	want := []string{token(2).ID, token(4).ID, token(0).ID, token(3).ID}
	filter := store.TokenFilter{Now: day, Groups: every, IDs: asked}
	for size := 1; size < 6; size++ {
		f.same("walk", ids(f.walk(tenantA, filter, size)), want)
		f.same("pages", ids(f.leaf(tenantA, filter, size)), want)
	}
	// The row of the position may go meanwhile.
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.DeleteToken(ctx, token(4).ID) })
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		list, err := tx.Tokens(ctx, filter, store.Page{After: &store.Position{CreatedAt: token(4).CreatedAt, ID: token(4).ID}, Limit: 9})
		f.same("behind a row that is gone", ids(list), want[2:])
		return err
	})
}

func noGroup(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, token(1)) })
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		for name, filter := range map[string]store.TokenFilter{
			"unset": {}, "none": {Groups: store.OnlyGroups()}, "unset, with an id": {IDs: []string{token(1).ID}},
			"unset, with a term": {Terms: token(1).Terms}, "none, with an id and a term": {Groups: store.OnlyGroups(), IDs: []string{token(1).ID}, Terms: token(1).Terms},
		} {
			filter.Now = day
			list, errList := tx.Tokens(ctx, filter, large)
			n, errCount := tx.CountTokens(ctx, filter)
			if len(list) != 0 || n != 0 || errList != nil || errCount != nil {
				f.Errorf("groups %s: listed %d (%v), counted %d (%v); want none", name, len(list), errList, n, errCount)
			}
		}
		groups, err := groupIDs(ctx, tx)
		if err != nil {
			return err
		}
		for name, chosen := range map[string]store.Groups{"all": every, "the one": store.OnlyGroups(groups[groupName(token(1))])} {
			n, err := tx.CountTokens(ctx, store.TokenFilter{Now: day, Groups: chosen})
			if n != 1 || err != nil {
				f.Errorf("groups %s: counted %d (%v), want 1", name, n, err)
			}
		}
		return nil
	})
}

func manyGroups(f *fixture) {
	const n = 130
	var rows []store.Token
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		rows = nil
		for i := range n {
			t := version2(token(i), func(t *store.Token) { t.Containers = []string{fmt.Sprintf("/%03d/", i)} })
			rows = append(rows, t)
			if err := tx.InsertToken(ctx, t); err != nil {
				return err
			}
		}
		return nil
	})
	var groups map[string]string
	f.view(tenantA, func(ctx context.Context, tx store.Tx) (err error) { groups, err = groupIDs(ctx, tx); return err })
	var chosen []string
	for _, t := range rows[5:120] {
		chosen = append(chosen, groups[groupName(t)])
	}
	filter := store.TokenFilter{Now: day, Groups: store.OnlyGroups(chosen...)}
	want := ids(choose(rows, filter, groups))
	f.same("rows in 115 groups", len(want), 115)
	f.same("walk", ids(f.walk(tenantA, filter, 20)), want)
	f.same("pages", ids(f.leaf(tenantA, filter, 20)), want)
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		count, err := tx.CountTokens(ctx, filter)
		f.same("count", count, int64(115))
		return err
	})
}

func admittedRows(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) (err error) {
		for n := range 5 {
			err = errors.Join(err, tx.InsertToken(ctx, token(n)))
		}
		return err
	})
	enough := errors.New("enough")
	for part, filter := range map[string]store.TokenFilter{
		"all": {Groups: every}, "by id": {Groups: every, IDs: []string{token(0).ID, token(1).ID, token(2).ID, token(3).ID}}, "by term": {Groups: every, Terms: [][]byte{[]byte("term of all")}},
	} {
		filter.Now = day
		var sizes []int64
		f.refused("list "+part, tenantA, enough, func(ctx context.Context, tx store.Tx) error {
			sizes = nil
			_, err := tx.Tokens(ctx, filter, store.Page{Limit: 4, Admit: func(bytes int64) error {
				if sizes = append(sizes, bytes); len(sizes) == 3 {
					return enough
				}
				return nil
			}})
			return err
		})
		f.same("the sizes of rows that were read, "+part, sizes, []int64{token(0).Size(), token(0).Size(), token(0).Size()})
	}
}

func oddPages(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.InsertToken(ctx, token(1)), tx.InsertApplication(ctx, application(1)), tx.AppendLog(ctx, entry(1)))
	})
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		groups, err := groupIDs(ctx, tx)
		if err != nil {
			return err
		}
		for name, p := range map[string]store.Page{
			"past the end": {Offset: 1, Limit: 10}, "far past the end": {Offset: 1 << 60, Limit: 100}, "no size": {Limit: 0},
			"behind the last": {After: &store.Position{CreatedAt: day - hour, ID: uuid(0)}, Limit: 10},
		} {
			for part, filter := range map[string]store.TokenFilter{
				"all": {Groups: every}, "by id": {Groups: every, IDs: []string{token(1).ID}}, "by term": {Groups: every, Terms: token(1).Terms}, "by group": {Groups: store.OnlyGroups(groups[groupName(token(1))])},
			} {
				filter.Now = day
				if list, err := tx.Tokens(ctx, filter, p); len(list) != 0 || err != nil {
					f.Errorf("tokens %s, page %s: got %d, error %v; want none", part, name, len(list), err)
				}
			}
			if list, err := tx.Applications(ctx, store.ApplicationFilter{}, p); len(list) != 0 || err != nil {
				f.Errorf("applications, page %s: got %d, error %v; want none", name, len(list), err)
			}
			if list, err := tx.Logs(ctx, store.LogFilter{}, p); len(list) != 0 || err != nil {
				f.Errorf("logs, page %s: got %d, error %v; want none", name, len(list), err)
			}
		}
		return nil
	})
}

func walkUnderChange(f *fixture) {
	const n = 90
	stays := func(i int) bool { return i%3 == 0 }
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		for i := range n {
			if err := tx.InsertToken(ctx, varied(i)); err != nil {
				return err
			}
		}
		return nil
	})
	var groups map[string]string
	f.view(tenantA, func(ctx context.Context, tx store.Tx) (err error) { groups, err = groupIDs(ctx, tx); return err })
	var few, many []string
	for name, id := range groups {
		many = append(many, id)
		if name == groupName(varied(0)) || name == groupName(varied(3)) || name == groupName(varied(6)) {
			few = append(few, id)
		}
	}
	stop := make(chan struct{})
	var churn sync.WaitGroup
	churn.Go(func() {
		for round := 0; ; round++ {
			for i := range n {
				select {
				case <-stop:
					return
				default:
				}
				if stays(i) {
					continue
				}
				err := f.Update(f.Context(), tenantA, func(tx store.Tx) error {
					if round%2 == 0 {
						return tx.DeleteToken(f.Context(), varied(i).ID)
					}
					return tx.InsertToken(f.Context(), varied(i))
				})
				if err != nil && !retryable(err) {
					f.Errorf("Update: %v", err)
					return
				}
			}
		}
	})
	for name, filter := range map[string]store.TokenFilter{
		"all": {Groups: every}, "few groups": {Groups: store.OnlyGroups(few...)}, "many groups": {Groups: store.OnlyGroups(many...)}, "one term": {Groups: every, Terms: [][]byte{[]byte("all")}},
		"two terms": {Groups: every, Terms: [][]byte{[]byte("all"), []byte("mod 2 is 0")}},
	} {
		filter.Now = day
		for range 3 {
			met := map[string]int{}
			for _, t := range f.walk(tenantA, filter, 4) {
				met[t.ID]++
			}
			for i := range n {
				t := varied(i)
				switch times := met[t.ID]; {
				case stays(i) && matches(t, filter, groups) && times != 1:
					f.Errorf("walk by %s: met a row that was there all along %d times", name, times)
				case times > 1:
					f.Errorf("walk by %s: met a row %d times", name, times)
				}
			}
		}
	}
	close(stop)
	churn.Wait()
	f.sound()
}
