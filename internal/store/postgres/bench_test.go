package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// measured is how long each side of a comparison runs.
const measured = 3 * time.Second

// BenchmarkInsertToken is a durable token with two search terms and its log
// entry: gathered, each update with a commit of its own, and by pgbench.
func BenchmarkInsertToken(b *testing.B) {
	c := pgtest.Start(b, pgtest.Options{})
	for _, writers := range []int{1, 32, 128} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			for b.Loop() {
				url := c.Database(b)
				var rates [2]float64
				for i, o := range []postgres.Options{{}, {Ungathered: true}} {
					s := open(b, url, o)
					rates[i] = storetest.Rate(b, writers, measured, func(n int64) error { return storetest.InsertToken(b.Context(), s, n) })
					_ = s.Close()
				}
				limit := c.Pgbench(b, url, writers, measured)
				b.ReportMetric(rates[0], "gathered/s")
				b.ReportMetric(rates[1], "single/s")
				b.ReportMetric(limit, "pgbench/s")
				b.ReportMetric(rates[0]/limit, "ratio")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// BenchmarkReadToken is a token by its id: in a view, in a Read with a durable log
// entry, as a request does it, and in an Update with the same entry, as requests did
// it before.
func BenchmarkReadToken(b *testing.B) {
	c := pgtest.Start(b, pgtest.Options{})
	s := open(b, c.Database(b), postgres.Options{})
	const count = 20_000
	ids := storetest.InsertMany(b, s, storetest.BenchTenant(0), count)
	for _, readers := range []int{1, 32, 128} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			for b.Loop() {
				read := func(tx store.Tx, n int64) error {
					_, err := tx.Token(b.Context(), ids[n*7919%count])
					return err
				}
				b.ReportMetric(storetest.Rate(b, readers, measured, func(n int64) error {
					return s.View(b.Context(), storetest.BenchTenant(0), func(tx store.Tx) error { return read(tx, n) })
				}), "views/s")
				var rates [2]float64
				for i, run := range []func(context.Context, string, func(store.Tx) error) error{s.Read, s.Update} {
					rates[i] = storetest.Rate(b, readers, measured, func(n int64) error {
						e := storetest.SomeEntry(ids[n*7919%count])
						return run(b.Context(), storetest.BenchTenant(0), func(tx store.Tx) error {
							if err := read(tx, n); err != nil {
								return err
							}
							return tx.AppendLog(b.Context(), e)
						})
					})
				}
				b.ReportMetric(rates[0], "logged/s")
				b.ReportMetric(rates[1], "updates/s")
				b.ReportMetric(rates[0]/rates[1], "ratio")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}
