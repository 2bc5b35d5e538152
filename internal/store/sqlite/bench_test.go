package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// measured is how long each side of a comparison runs.
const measured = time.Second

func appendEntry(ctx context.Context, s store.Store, n int64) error {
	e := storetest.SomeEntry("5e2d6b1c-8a1d-4a53-9d5a-0d6a2f6f7a11")
	return s.Update(ctx, storetest.BenchTenant(n), func(tx store.Tx) error { return tx.AppendLog(ctx, e) })
}

// compareGrouping measures the same writes with and without group commit.
func compareGrouping(b *testing.B, write func(ctx context.Context, s store.Store, n int64) error) {
	for _, writers := range []int{1, 32, 128} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			for b.Loop() {
				var rates [2]float64
				for i, o := range []sqlite.Options{{}, {Ungrouped: true}} {
					s := open(b, b.TempDir(), o)
					rates[i] = storetest.Rate(b, writers, measured, func(n int64) error { return write(b.Context(), s, n) })
				}
				b.ReportMetric(rates[0], "grouped/s")
				b.ReportMetric(rates[1], "ungrouped/s")
				b.ReportMetric(rates[0]/rates[1], "ratio")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// BenchmarkInsertToken is a durable token with two search terms and its log entry.
func BenchmarkInsertToken(b *testing.B) { compareGrouping(b, storetest.InsertToken) }

// BenchmarkAppendLog is a durable log entry alone, as for a read.
func BenchmarkAppendLog(b *testing.B) { compareGrouping(b, appendEntry) }

func BenchmarkReadToken(b *testing.B) {
	s := open(b, b.TempDir(), sqlite.Options{})
	const rows = 20_000
	ids := storetest.InsertMany(b, s, storetest.BenchTenant(0), rows)
	for _, readers := range []int{1, 32} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(storetest.Rate(b, readers, measured, func(n int64) error {
					return s.View(b.Context(), storetest.BenchTenant(0), func(tx store.Tx) error {
						_, err := tx.Token(b.Context(), ids[n*7919%rows])
						return err
					})
				}), "reads/s")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// BenchmarkBackup is a backup of a store of 100,000 tokens beside a copy of its
// file, and what is left of the rate of 32 writers while one is under way.
func BenchmarkBackup(b *testing.B) {
	dir := b.TempDir()
	s := open(b, dir, sqlite.Options{})
	storetest.InsertMany(b, s, storetest.BenchTenant(0), 100_000)
	for b.Loop() {
		folder := b.TempDir()
		plain := timed(b, func() error {
			return copyAndSync(filepath.Join(dir, sqlite.BackupFile), filepath.Join(folder, "plain"))
		})
		var bytes int64
		alone := timed(b, func() error {
			_, err := s.Backup(b.Context(), filepath.Join(folder, "alone"), func(written, _ int64) { bytes = written })
			return err
		})
		before := storetest.Rate(b, 32, measured, func(n int64) error { return storetest.InsertToken(b.Context(), s, n) })
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan int)
		go func() {
			n := 0
			for ; ctx.Err() == nil; n++ {
				_, _ = s.Backup(ctx, filepath.Join(folder, fmt.Sprint("busy", n)), nil)
			}
			ended <- n
		}()
		during := storetest.Rate(b, 32, 3*measured, func(n int64) error { return storetest.InsertToken(b.Context(), s, n) })
		cancel()
		<-ended
		b.ReportMetric(float64(bytes)/1e6/alone.Seconds(), "MB/s")
		b.ReportMetric(plain.Seconds()/alone.Seconds(), "copy/backup")
		b.ReportMetric(before, "writes/s")
		b.ReportMetric(during/before, "during/before")
		b.ReportMetric(0, "ns/op")
	}
}

func timed(b *testing.B, do func() error) time.Duration {
	b.Helper()
	began := time.Now()
	if err := do(); err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

func copyAndSync(from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	w, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Sync(), w.Close())
}

// BenchmarkLoggedRead is a token that is read and logged, in a Read beside an
// Update, which is how reads were made before. Turns alternate.
func BenchmarkLoggedRead(b *testing.B) {
	s := open(b, b.TempDir(), sqlite.Options{})
	const rows, turns = 20_000, 6
	tenant := storetest.BenchTenant(0)
	ids := storetest.InsertMany(b, s, tenant, rows)
	for _, readers := range []int{1, 32} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			for b.Loop() {
				var rates, cpu [2]float64
				for turn := range turns {
					side := turn % 2
					run := s.Read
					if side == 1 {
						run = s.Update
					}
					before := processorTime(b)
					rate := storetest.Rate(b, readers, measured/2, func(n int64) error {
						id := ids[n*7919%rows]
						return run(b.Context(), tenant, func(tx store.Tx) error {
							if _, err := tx.Token(b.Context(), id); err != nil {
								return err
							}
							return tx.AppendLog(b.Context(), storetest.SomeEntry(id))
						})
					})
					rates[side] += rate / (turns / 2)
					cpu[side] += (processorTime(b) - before).Seconds() * 1e6 / (rate * (measured / 2).Seconds()) / (turns / 2)
				}
				b.ReportMetric(rates[0], "reads/s")
				b.ReportMetric(rates[0]/rates[1], "ratio")
				b.ReportMetric(cpu[0], "µs-cpu")
				b.ReportMetric(cpu[1], "µs-cpu-update")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// processorTime is what this process has used so far.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
