package storetest

import (
	"context"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// pages reads a list in pages of several sizes, by offset and by position, and
// compares what comes with want. name and place tell what a row is called and
// where it stands.
func pages[T any](f *fixture, what string, want []string, list func(ctx context.Context, tx store.Tx, p store.Page) ([]T, error),
	name func(T) string, place func(T) store.Position) {
	f.Helper()
	f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
		for size := 1; size < len(want)+4; size += 3 {
			for _, way := range []string{"offset", "position"} {
				var got []string
				for page := (store.Page{Limit: size}); len(got) < 100; {
					rows, err := list(ctx, tx, page)
					if err != nil {
						return err
					}
					for _, row := range rows {
						got = append(got, name(row))
					}
					if len(rows) < size {
						break
					}
					if way == "offset" {
						page.Offset += size
					} else {
						last := place(rows[len(rows)-1])
						page.After = &last
					}
				}
				f.same(fmt.Sprintf("%s in pages of %d by %s", what, size, way), got, want)
			}
		}
		return nil
	})
}
