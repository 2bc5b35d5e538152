package bench_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

// sizes are how many tokens the lists are taken from: the same in both costs
// the same. A million takes minutes to fill, so it must be asked for.
func sizes() [2]int {
	if os.Getenv("BENCH_MILLION") != "" {
		return [2]int{10_000, 1_000_000}
	}
	return [2]int{10_000, 100_000}
}

// forest is a data folder with many tokens of one tenant.
type forest struct {
	data   string
	tenant string
	tokens int
	keys   *keyring.Keys
	end    store.Position // behind it is the last page
	place  *place
}

const page = 20

// grow fills a folder, in the store and not through the API. A tenth of the
// tokens have one value of metadata, and a hundred have another, all over.
func grow(b *testing.B, tokens int) *forest {
	b.Helper()
	f := &forest{data: filepath.Join(b.TempDir(), "data"), tokens: tokens}
	p := serve(b, f.data, nil)
	p.populate(b)
	p.stop()
	f.tenant, f.place = p.tenant, p
	s := f.open(b)
	ctx := b.Context()
	began := store.At(time.Now().Add(-time.Hour))
	const at, often = 2000, 100
	for from := 0; from < tokens; from += at {
		rows := make([]store.Token, 0, at)
		for i := from; i < min(from+at, tokens); i++ {
			metadata := map[string]string{"number": fmt.Sprint(i)}
			if i%10 == 0 {
				metadata["tenth"] = "1"
			}
			if i%(tokens/often) == 0 {
				metadata["hundred"] = "1"
			}
			rows = append(rows, f.row(b, began+store.Time(i), int64(i), metadata))
			if i == page {
				f.end = store.Position{CreatedAt: rows[i].CreatedAt, ID: rows[i].ID}
			}
		}
		if err := s.Update(ctx, f.tenant, func(tx store.Tx) error {
			for _, row := range rows {
				if err := tx.InsertToken(ctx, row); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return f
}

// start starts a server on the folder.
func (f *forest) start(b *testing.B) {
	b.Helper()
	p := serve(b, f.data, nil)
	p.revealing, p.tenant = f.place.revealing, f.place.tenant
	f.place = p
}

func (f *forest) open(b *testing.B) *sqlite.Store {
	b.Helper()
	s, err := sqlite.Open(b.Context(), f.data, sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	kms, err := localkms.Open(filepath.Join(filepath.Dir(f.data), "kek"))
	if err != nil {
		b.Fatal(err)
	}
	ring, err := keyring.Open(b.Context(), kms, s, keyring.Options{})
	if err != nil {
		b.Fatal(err)
	}
	if f.keys, err = ring.For(b.Context(), f.tenant); err != nil {
		b.Fatal(err)
	}
	return s
}

// row is a token as the service would have sealed it.
func (f *forest) row(b *testing.B, at store.Time, n int64, metadata map[string]string) store.Token {
	b.Helper()
	r := store.Token{
		ID: uuid.NewString(), Type: "card", Containers: []string{"/pci/high/"},
		CreatedBy: "5e2d6b1c-8a1d-4a53-9d5a-0d6a2f6f7a11", CreatedAt: at, Version: 1,
	}
	if n%3 == 0 {
		r.Containers = []string{"/pci/low/"}
	}
	details, err := json.Marshal(map[string]any{"metadata": metadata, "fingerprint": fmt.Sprint("fingerprint ", n)})
	if err != nil {
		b.Fatal(err)
	}
	data := fmt.Appendf(nil, `{"number":"%s","expiration_month":12,"expiration_year":2031}`, cardNumber(n))
	if r.Data, err = f.keys.Seal(r.ID, keyring.FieldTokenData, data); err != nil {
		b.Fatal(err)
	}
	if r.Details, err = f.keys.Seal(r.ID, keyring.FieldTokenDetails, details); err != nil {
		b.Fatal(err)
	}
	r.Terms = append(r.Terms, f.keys.IndexTerm("fingerprint", fmt.Sprint("fingerprint ", n)))
	for key, value := range metadata {
		r.Terms = append(r.Terms, f.keys.IndexTerm("metadata:"+key, value))
	}
	return r
}

func (f *forest) term(key string) [][]byte { return [][]byte{f.keys.IndexTerm("metadata:"+key, "1")} }

// cursor is the place in a list as a caller is given it.
func (f *forest) cursor(b *testing.B) string {
	b.Helper()
	sealed, err := f.keys.Seal("list", keyring.FieldTokenCursor, fmt.Appendf(nil, `{"at":%d,"id":%q}`, int64(f.end.CreatedAt), f.end.ID))
	if err != nil {
		b.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// list is one of the lists that must cost the same whatever there is.
type list struct {
	name   string
	path   func(b *testing.B, f *forest) string
	filter func(f *forest) store.TokenFilter
	page   func(f *forest) store.Page
	count  bool
}

var now = store.At(time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC))

func first(*forest) store.Page { return store.Page{Limit: page} }

var lists = []list{
	{
		"first page", func(*testing.B, *forest) string { return "/tokens" },
		func(*forest) store.TokenFilter { return store.TokenFilter{Now: now, Groups: store.AllGroups()} }, first, true,
	},
	{
		"a hundred match", func(*testing.B, *forest) string { return "/tokens?metadata.hundred=1" },
		func(f *forest) store.TokenFilter {
			return store.TokenFilter{Now: now, Groups: store.AllGroups(), Terms: f.term("hundred")}
		}, first, true,
	},
	{
		"a tenth match", func(*testing.B, *forest) string { return "/tokens?metadata.tenth=1" },
		func(f *forest) store.TokenFilter {
			return store.TokenFilter{Now: now, Groups: store.AllGroups(), Terms: f.term("tenth")}
		}, first, true,
	},
	{
		"last page by cursor", func(b *testing.B, f *forest) string { return "/v2/tokens?start=" + f.cursor(b) },
		func(*forest) store.TokenFilter { return store.TokenFilter{Now: now, Groups: store.AllGroups()} },
		func(f *forest) store.Page { return store.Page{Limit: page + 1, After: &f.end} }, false,
	},
}

// BenchmarkLists takes the same list from few and from many tokens: in the
// store alone, and over HTTP, where each of the twenty tokens shown is logged.
func BenchmarkLists(b *testing.B) {
	var forests [2]*forest
	for i, n := range sizes() {
		started := time.Now()
		forests[i] = grow(b, n)
		b.Logf("%d tokens took %s to fill", n, time.Since(started).Round(time.Second))
	}
	b.Run("store", func(b *testing.B) {
		stores := [2]*sqlite.Store{forests[0].open(b), forests[1].open(b)}
		defer func() { _, _ = stores[0].Close(), stores[1].Close() }()
		for _, l := range lists {
			b.Run(l.name, func(b *testing.B) {
				compareSizes(b, "list of 20: "+l.name+", in the store", 400, forests, func(i int) error {
					f := forests[i]
					return stores[i].View(b.Context(), f.tenant, func(tx store.Tx) error {
						if l.count {
							if n, err := tx.CountTokens(b.Context(), l.filter(f)); err != nil || n < 100 {
								return fmt.Errorf("%d tokens: %w", n, err)
							}
						}
						rows, err := tx.Tokens(b.Context(), l.filter(f), l.page(f))
						if err == nil && len(rows) < page {
							err = fmt.Errorf("%d rows", len(rows))
						}
						return err
					})
				})
			})
		}
	})
	b.Run("http", func(b *testing.B) {
		for _, f := range forests {
			f.start(b)
		}
		many := forests[1]
		atMost(fmt.Sprintf("start to ready, %d tokens, after a clean stop", many.tokens), "aim", "s", many.place.ready.Seconds(), 3, 1)
		defer func() {
			atMost(fmt.Sprintf("memory with %d tokens, after the lists", many.tokens), "aim", "MiB", memoryOf(b, many.place.pid(), "VmRSS"), 200, 1)
		}()
		for _, l := range lists {
			b.Run(l.name, func(b *testing.B) {
				var paths [2]string
				for i, f := range forests {
					paths[i] = l.path(b, f)
				}
				compareSizes(b, "list of 20: "+l.name+", over HTTP", 200, forests, func(i int) error {
					_, err := forests[i].place.ask("GET", paths[i], forests[i].place.revealing, "", 200)
					return err
				})
			})
		}
	})
}

// compareSizes lists in turns from both, and reports the medians.
func compareSizes(b *testing.B, work string, calls int, forests [2]*forest, list func(i int) error) {
	var times [2][]time.Duration
	for b.Loop() {
		for n := range calls {
			for i := range forests {
				started := time.Now()
				if err := list(i); err != nil {
					b.Fatal(err)
				}
				if n >= calls/10 { // what comes first fills the caches
					times[i] = append(times[i], time.Since(started))
				}
			}
		}
	}
	few, many := median(times[0]), median(times[1])
	atMost(work, fmt.Sprintf("from %d instead of %d", forests[0].tokens, forests[1].tokens), "µs", many, few, 1.3)
	b.ReportMetric(many/few, "many/few")
	b.ReportMetric(0, "ns/op")
}
