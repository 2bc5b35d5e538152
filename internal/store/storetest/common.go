package storetest

import (
	"context"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// commonTerm changes thousands of tokens that share terms, and counts them
// after each step: a backend may keep the number of what many tokens have.
func commonTerm(f *fixture) {
	Long(f.T)
	const n, step = 2400, 400
	rows := make(map[string]store.Token, n)
	insert := func(from, to int) {
		f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
			for i := from; i < to; i++ {
				rows[varied(i).ID] = varied(i)
				if err := tx.InsertToken(ctx, varied(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	compare := func(doing string) {
		f.Helper()
		f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
			groups, err := groupIDs(ctx, tx)
			if err != nil {
				return err
			}
			list := make([]store.Token, 0, len(rows))
			for _, t := range rows {
				list = append(list, t)
			}
			one := groups[groupName(varied(0))]
			two := []string{one, groups[groupName(varied(3))]}
			for _, term := range []string{"all", "mod 2 is 1", "mod 7 is 3", "nope"} {
				for _, filter := range []store.TokenFilter{{Groups: every}, {Groups: store.OnlyGroups(one)}, {Groups: store.OnlyGroups(two...)}, {}} {
					for _, now := range []store.Time{1, day, day + n/2, day + 2000*hour} {
						filter.Now, filter.Terms = now, [][]byte{[]byte(term)}
						got, err := tx.CountTokens(ctx, filter)
						if err != nil {
							return err
						}
						if want := len(choose(list, filter, groups)); got != int64(want) {
							f.Errorf("%s: CountTokens(%q, only %d groups, at %d): got %d, want %d", doing, term, filter.Groups.Len(), now-day, got, want)
						}
					}
				}
			}
			return nil
		})
		f.sound()
	}
	for from := 0; from < n; from += step {
		insert(from, from+step)
	}
	compare("inserted")
	f.update(tenantB, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, varied(0)) })
	compare("another tenant has the term too")
	f.refused("a transaction that stops", tenantA, errStop, func(ctx context.Context, tx store.Tx) error {
		for i := range 50 {
			if err := tx.DeleteToken(ctx, varied(i).ID); err != nil {
				return err
			}
		}
		return errStop
	})
	compare("rolled back")
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		for i := range step {
			t := varied(i)
			t.Version = 2
			switch i % 5 {
			case 0: // to another group
				t.Containers = varied(i + 1).Containers
			case 1: // away from a term, and to another
				t.Terms = [][]byte{[]byte("all"), []byte("mod 7 is 3")}
			case 2: // it expires, or no longer
				t.Expiry = varied(i + 1).Expiry
			case 3:
				t.Data = []byte("other data")
			case 4:
				delete(rows, t.ID)
				if err := tx.DeleteToken(ctx, t.ID); err != nil {
					return err
				}
				continue
			}
			rows[t.ID] = t
			if err := tx.ReplaceToken(ctx, t); err != nil {
				return err
			}
		}
		// What a transaction has changed, it counts.
		count, err := tx.CountTokens(ctx, store.TokenFilter{Now: 1, Groups: every, Terms: [][]byte{[]byte("all")}})
		if err == nil && count != int64(len(rows)) {
			err = fmt.Errorf("CountTokens in the transaction: got %d, want %d", count, len(rows))
		}
		return err
	})
	compare("replaced and deleted")
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		for i := step; i < n; i++ {
			delete(rows, varied(i).ID)
			if err := tx.DeleteToken(ctx, varied(i).ID); err != nil {
				return err
			}
		}
		return nil
	})
	compare("few are left")
	insert(step, 2*step)
	compare("many again")
}
