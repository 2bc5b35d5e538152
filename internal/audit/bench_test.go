package audit_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// BenchmarkEntry measures what an entry adds to an update that 32 writers make
// at once: one that does nothing, one that writes a small row, one that
// appends an entry, and that one while a sealer is at work.
func BenchmarkEntry(b *testing.B) {
	const writers = 32
	for _, bench := range []struct {
		name   string
		update func(tx store.Tx, c access.Caller) error
		seal   bool
	}{
		{"nothing", func(store.Tx, access.Caller) error { return nil }, false},
		{"row", func(tx store.Tx, _ access.Caller) error { return tx.PutMark(b.Context(), "m", []byte("value")) }, false},
		{"entry", appendOne(b), false},
		{"entry, sealing", appendOne(b), true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			w := newWorld(b)
			tenant := w.tenant()
			c := accesstest.Caller(b, tenant, application, access.TokenRead)
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				tick := time.NewTicker(100 * time.Millisecond)
				defer tick.Stop()
				for bench.seal {
					select {
					case <-stop:
						return
					case <-tick.C:
						if _, err := w.sealer.SealAll(b.Context()); err != nil {
							b.Error(err)
						}
					}
				}
			}()
			b.ResetTimer()
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			for range writers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if err := w.store.Update(b.Context(), tenant, func(tx store.Tx) error { return bench.update(tx, c) }); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
			close(stop)
			<-stopped
		})
	}
}

func appendOne(b *testing.B) func(store.Tx, access.Caller) error {
	return func(tx store.Tx, c access.Caller) error {
		return tx.AppendLog(b.Context(), audit.Entry(c, time.Now(), "card", "3f1f3a52-6f0e-4a39-8a3c-52a0b7a3f0aa", audit.Read))
	}
}

// BenchmarkLog measures sealing, verifying and exporting a log, by the entry.
func BenchmarkLog(b *testing.B) {
	const entries = 20_000
	w := newWorld(b)
	tenant := w.tenant()
	for range entries / 1000 {
		w.write(tenant, 1000)
	}
	perSecond := func(b *testing.B, n int) {
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "entries/s")
	}
	b.Run("seal", func(b *testing.B) {
		if b.N > 1 {
			b.Skip("there is one log to seal: run with -benchtime 1x")
		}
		sealed, err := w.sealer.SealTenant(b.Context(), tenant)
		if err != nil || sealed.Entries != entries {
			b.Fatalf("SealTenant = %+v, %v", sealed, err)
		}
		perSecond(b, entries)
	})
	if _, err := w.sealer.SealAll(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Run("verify", func(b *testing.B) {
		for range b.N {
			w.clean(tenant, nil, entries, 0)
		}
		perSecond(b, entries*b.N)
	})
	b.Run("export", func(b *testing.B) {
		for range b.N {
			if _, err := w.service.Export(b.Context(), tenant, audit.Range{}, io.Discard, nil); err != nil {
				b.Fatal(err)
			}
		}
		perSecond(b, entries*b.N)
	})
	text, _ := w.export(tenant, audit.Range{})
	b.Run("verify export", func(b *testing.B) {
		for range b.N {
			if v, err := audit.VerifyExport(strings.NewReader(text), nil, nil); err != nil || !v.Clean() {
				b.Fatal(fmt.Sprint(v, err))
			}
		}
		perSecond(b, entries*b.N)
	})
}
