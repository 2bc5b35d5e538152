package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var applicationTests = []test{
	{"an application comes back whole", applicationComesBack},
	{"a replacement needs the next version", applicationVersions},
	{"a list by id and type, newest first, in pages", applicationList},
	{"keys belong to their application", applicationKeys},
	{"deleting an application deletes its keys", applicationDeletion},
}

func applicationComesBack(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertApplication(ctx, application(1)) })
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		got, err := tx.Application(ctx, application(1).ID)
		f.same("Application", got, application(1))
		return err
	})
	f.refused("InsertApplication of an id that is taken", tenantA, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.InsertApplication(ctx, application(1))
	})
}

func applicationVersions(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertApplication(ctx, application(1)) })
	for _, version := range []int64{-1, 0, 1, 3} {
		f.refused(fmt.Sprintf("ReplaceApplication with version %d over 1", version), tenantA, store.ErrConflict, func(ctx context.Context, tx store.Tx) error {
			return tx.ReplaceApplication(ctx, version2(application(1), func(a *store.Application) { a.Version = version }))
		})
	}
	f.refused("ReplaceApplication of one that is not there", tenantA, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.ReplaceApplication(ctx, application(2))
	})
	changed := store.Application{
		ID: application(1).ID, Name: "New name", Type: application(1).Type, Permissions: []string{"token:use"}, Rules: nil, ExpiresAt: 0,
		CreatedBy: application(1).CreatedBy, CreatedAt: application(1).CreatedAt, ModifiedBy: "changer", ModifiedAt: day + hour, Version: 2,
	}
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceApplication(ctx, changed) })
	f.same("applications", f.contents(tenantA).Applications, []store.Application{changed})
}

func applicationList(f *fixture) {
	types := []string{"public", "private", "management"}
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		for n := range 12 {
			a := version2(application(n), func(a *store.Application) { a.Type, a.CreatedAt = types[n%3], day+store.Time(n/2) }) // two at an instant
			if err := tx.InsertApplication(ctx, a); err != nil {
				return err
			}
		}
		return nil
	})
	id := func(n int) string { return application(n).ID }
	for name, c := range map[string]struct {
		filter store.ApplicationFilter
		want   []int
	}{
		"all":         {store.ApplicationFilter{}, []int{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
		"a type":      {store.ApplicationFilter{Types: []string{"private"}}, []int{10, 7, 4, 1}},
		"two types":   {store.ApplicationFilter{Types: []string{"private", "public"}}, []int{10, 9, 7, 6, 4, 3, 1, 0}},
		"ids":         {store.ApplicationFilter{IDs: []string{id(3), id(9), "nope"}}, []int{9, 3}},
		"id and type": {store.ApplicationFilter{IDs: []string{id(3), id(4)}, Types: []string{"private"}}, []int{4}},
		"no such":     {store.ApplicationFilter{Types: []string{"robot"}}, nil},
	} {
		var want []string
		for _, n := range c.want {
			want = append(want, id(n))
		}
		f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
			count, err := tx.CountApplications(ctx, c.filter)
			if err != nil {
				return err
			}
			f.same("count by "+name, count, int64(len(want)))
			for size := 1; size < 14; size += 3 {
				var byOffset, byPosition []string
				for page := (store.Page{Limit: size}); ; page.Offset += size {
					list, err := tx.Applications(ctx, c.filter, page)
					if err != nil {
						return err
					}
					for _, a := range list {
						byOffset = append(byOffset, a.ID)
					}
					if len(list) < size {
						break
					}
				}
				for page := (store.Page{Limit: size}); len(byPosition) < 100; {
					list, err := tx.Applications(ctx, c.filter, page)
					if err != nil {
						return err
					}
					for _, a := range list {
						byPosition = append(byPosition, a.ID)
						page.After = &store.Position{CreatedAt: a.CreatedAt, ID: a.ID}
					}
					if len(list) < size {
						break
					}
				}
				f.same(fmt.Sprintf("pages by %s, size %d", name, size), byOffset, want)
				f.same(fmt.Sprintf("walk by %s, size %d", name, size), byPosition, want)
			}
			return nil
		})
	}
}

func applicationKeys(f *fixture) {
	one, two := application(1).ID, application(2).ID
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(
			tx.InsertApplication(ctx, application(1)), tx.InsertApplication(ctx, application(2)),
			tx.InsertKey(ctx, key(one, 3)), tx.InsertKey(ctx, key(one, 1)), tx.InsertKey(ctx, key(two, 2)))
	})
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		keys, err := tx.Keys(ctx, one)
		if err != nil {
			return err
		}
		f.same("keys of the first, oldest first", keys, []store.Key{key(one, 1), key(one, 3)})
		k, a, err := tx.KeyByHash(ctx, key(two, 2).Hash)
		f.same("key by hash", k, key(two, 2))
		f.same("its application", a, application(2))
		for _, hash := range [][]byte{nil, {}, []byte("hash"), []byte("hash 2 "), []byte("HASH 2")} {
			if _, _, err := tx.KeyByHash(ctx, hash); !errors.Is(err, store.ErrNotFound) {
				f.Errorf("KeyByHash(%q): got error %v, want %v", hash, err, store.ErrNotFound)
			}
		}
		return err
	})
	f.refused("InsertKey with an id that is taken", tenantA, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.InsertKey(ctx, version2(key(one, 1), func(k *store.Key) { k.Hash = []byte("new") }))
	})
	f.refused("InsertKey with a hash that is taken", tenantA, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.InsertKey(ctx, version2(key(two, 1), func(k *store.Key) { k.ID = "new" }))
	})
	f.refused("InsertKey for an application that is not there", tenantA, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.InsertKey(ctx, key("nope", 9))
	})
	f.refused("DeleteKey of another application's", tenantA, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.DeleteKey(ctx, two, key(one, 1).ID)
	})
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.DeleteKey(ctx, one, key(one, 1).ID) })
	f.refused("DeleteKey again", tenantA, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.DeleteKey(ctx, one, key(one, 1).ID)
	})
	f.same("keys in the end", f.contents(tenantA).Keys, []store.Key{key(two, 2), key(one, 3)})
}

func applicationDeletion(f *fixture) {
	one, two := application(1).ID, application(2).ID
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(
			tx.InsertApplication(ctx, application(1)), tx.InsertApplication(ctx, application(2)),
			tx.InsertKey(ctx, key(one, 1)), tx.InsertKey(ctx, key(one, 2)), tx.InsertKey(ctx, key(two, 3)))
	})
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.DeleteApplication(ctx, one) })
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		for n := 1; n <= 2; n++ {
			if _, _, err := tx.KeyByHash(ctx, key(one, n).Hash); !errors.Is(err, store.ErrNotFound) {
				f.Errorf("KeyByHash of a key whose application is gone: got error %v, want %v", err, store.ErrNotFound)
			}
		}
		keys, err := tx.Keys(ctx, one)
		f.same("keys of an application that is gone", len(keys), 0)
		return err
	})
	c := f.contents(tenantA)
	f.same("applications", c.Applications, []store.Application{application(2)})
	f.same("keys", c.Keys, []store.Key{key(two, 3)})
	f.sound()
}
