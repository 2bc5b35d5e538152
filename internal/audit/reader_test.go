package audit_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func (w *world) export(tenant string, r audit.Range) (string, audit.Exported) {
	w.t.Helper()
	var b strings.Builder
	done, err := w.service.Export(w.t.Context(), tenant, r, &b, nil)
	if err != nil {
		w.t.Fatalf("Export = %v", err)
	}
	return b.String(), done
}

func readExport(t testing.TB, text string, public []byte) *audit.ExportVerification {
	t.Helper()
	v, err := audit.VerifyExport(strings.NewReader(text), public, nil)
	if err != nil {
		t.Fatalf("VerifyExport = %v", err)
	}
	return v
}

func TestAnExportIsVerifiedWithoutTheStore(t *testing.T) {
	w := newWorld(t)
	tenant, entries := w.sealedLog()
	for range 2 {
		w.write(tenant, audit.MaxBatch-3)
		w.seal(tenant, 1)
	}
	w.write(tenant, 2) // not sealed, so not exported
	c := w.checkpoint(tenant)
	from, before := entries[3].CreatedAt.Time(), entries[12].CreatedAt.Time()
	all := int64(15 + 2*(audit.MaxBatch-3))
	tests := map[string]struct {
		r                audit.Range
		batches, entries int64
	}{
		"everything":           {audit.Range{}, 5, all},
		"from a time":          {audit.Range{From: &from}, 5, all - 3},
		"before a time":        {audit.Range{Before: &before}, 5, 12},
		"between":              {audit.Range{From: &from, Before: &before}, 5, 9},
		"behind a batch":       {audit.Range{After: 2}, 3, all - 10},
		"behind the last":      {audit.Range{After: 5}, 0, 0},
		"behind and from then": {audit.Range{After: 1, From: &from}, 4, all - 5},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text, done := w.export(tenant, test.r)
			if want := (audit.Exported{Batches: test.batches, Entries: test.entries, Last: 5}); done != want {
				t.Errorf("Export(%+v) = %+v, want %+v", test.r, done, want)
			}
			v := readExport(t, text, []byte(c.PublicKey))
			if !v.Clean() || v.Batches != test.batches || v.Entries != test.entries || v.Tenant != tenant || v.KeySource != audit.KeyGiven {
				t.Errorf("VerifyExport = %+v, finding %v", v, v.Finding)
			}
			if test.batches > 0 && v.Head.Link != c.Link {
				t.Errorf("the export ends with link %v, the checkpoint has %v", v.Head.Link, c.Link)
			}
		})
	}
	if v := readExport(t, first(w.export(tenant, audit.Range{})), nil); !v.Clean() || v.KeySource != audit.KeyFromExport || v.PublicKey != c.PublicKey {
		t.Errorf("VerifyExport without a key = %+v", v)
	}
}

func first(text string, _ audit.Exported) string { return text }

func TestWhateverIsChangedInAnExportIsFound(t *testing.T) {
	w := newWorld(t)
	tenant, entries := w.sealedLog()
	c := w.checkpoint(tenant)
	text, _ := w.export(tenant, audit.Range{})
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	lines[len(lines)-1] += "\n"
	// Line 1 is the head, 2 the first batch, 3 to 7 its entries, 8 the second batch.
	replace := func(line int, old, new string) func([]string) []string {
		return func(lines []string) []string {
			if changed := strings.Replace(lines[line-1], old, new, 1); changed != lines[line-1] {
				lines[line-1] = changed
				return lines
			}
			t.Fatalf("line %d has no %q: %s", line, old, lines[line-1])
			return nil
		}
	}
	remove := func(from, to int) func([]string) []string {
		return func(lines []string) []string { return append(lines[:from-1], lines[to:]...) }
	}
	tests := map[string]struct {
		change func([]string) []string
		kind   audit.Kind
		line   int64
	}{
		"an operation":              {replace(4, `"operation":"read"`, `"operation":"use"`), audit.Changed, 4},
		"an outcome":                {replace(4, `"outcome":"allowed"`, `"outcome":"denied"`), audit.Changed, 4},
		"a time":                    {replace(4, `"created_at":"2031`, `"created_at":"2030`), audit.Changed, 4},
		"a finer time":              {replace(4, `Z","id"`, `.0000001Z","id"`), audit.Changed, 4},
		"an index":                  {replace(4, `"index":1`, `"index":2`), audit.Changed, 4},
		"a member twice":            {replace(4, `"operation":"read"`, `"operation":"use","operation":"read"`), audit.Changed, 4},
		"a member of no meaning":    {replace(4, `"operation"`, `"note":"reviewed","operation"`), audit.Changed, 4},
		"a space":                   {replace(4, `,"index"`, `, "index"`), audit.Changed, 4},
		"an entry removed":          {remove(4, 4), audit.Removed, 4},
		"the last of a batch":       {remove(7, 7), audit.Removed, 7},
		"a batch without its own":   {remove(8, 8), audit.Inserted, 8},
		"a whole batch":             {remove(8, 13), audit.BatchRemoved, 8},
		"the first batch":           {remove(2, 7), audit.BatchRemoved, 2},
		"the last batch":            {remove(14, 19), audit.Removed, 14},
		"the end":                   {remove(20, 20), audit.Truncated, 20},
		"the head":                  {remove(1, 1), audit.Changed, 1},
		"everything":                {remove(1, 20), audit.Truncated, 1},
		"an entry twice":            {func(l []string) []string { return append(l[:4:4], l[3:]...) }, audit.Inserted, 5},
		"entries exchanged":         {func(l []string) []string { l[3], l[4] = l[4], l[3]; return l }, audit.Removed, 4},
		"an entry of another batch": {func(l []string) []string { l[3] = l[9]; return l }, audit.Inserted, 4},
		"more behind the end":       {func(l []string) []string { return append(l, l[3]) }, audit.Changed, 21},
		"a line that is no JSON":    {func(l []string) []string { l[3] = "{\n"; return l }, audit.Changed, 4},
		"a line of no kind":         {func(l []string) []string { l[3] = "{\"kind\":\"note\"}\n"; return l }, audit.Changed, 4},
		"a line without end":        {func(l []string) []string { l[3] = strings.Repeat("x", 2<<20); return l }, audit.Changed, 4},
		"a root":                    {replace(8, `"root":"`+hexOf(text, 8)[:1], `"root":"`+other(hexOf(text, 8)[:1])), audit.BatchChanged, 8},
		"a number":                  {replace(8, `"number":2`, `"number":3`), audit.BatchRemoved, 8},
		"a count":                   {replace(8, `"entries":5`, `"entries":4`), audit.BatchChanged, 8},
		"a tenant":                  {replace(1, tenant, uuid.NewString()), audit.BatchChanged, 2},
		"the format":                {replace(1, "export 1", "export 9"), audit.Changed, 1},
		"a count at the end":        {replace(20, `"entries":15`, `"entries":16`), audit.Removed, 20},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			changed := strings.Join(test.change(append([]string(nil), lines...)), "")
			v := readExport(t, changed, []byte(c.PublicKey))
			if v.Clean() || v.Finding.Kind != test.kind || v.Finding.Line != test.line {
				t.Errorf("VerifyExport found %v, want %s at line %d", v.Finding, test.kind, test.line)
			}
			if test.line == 4 && strings.HasPrefix(name, "an o") && v.Finding.ID != entries[1].ID {
				t.Errorf("VerifyExport names entry %q, want %q", v.Finding.ID, entries[1].ID)
			}
		})
	}
	if v := readExport(t, text, []byte(w.checkpoint(first2(w.sealedLog())).PublicKey)); v.Clean() || v.Finding.Kind != audit.BatchChanged {
		t.Errorf("VerifyExport with the key of another tenant found %v", v.Finding)
	}
	if _, err := audit.VerifyExport(strings.NewReader(text), []byte("no key"), nil); err == nil {
		t.Error("VerifyExport took what is no key")
	}
	failed := errors.New("failed")
	if _, err := audit.VerifyExport(io.MultiReader(strings.NewReader(lines[0]), failing{failed}), nil, nil); !errors.Is(err, failed) {
		t.Errorf("VerifyExport of what cannot be read = %v, want %v", err, failed)
	}
}

func first2(tenant string, _ []store.LogEntry) string { return tenant }

// hexOf returns the root that a line has.
func hexOf(text string, line int) string {
	_, root, _ := strings.Cut(strings.Split(text, "\n")[line-1], `"root":"`)
	return root[:64]
}

// other returns another hexadecimal digit.
func other(digit string) string {
	if digit == "0" {
		return "1"
	}
	return "0"
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestAnExportShowsWhatWasTamperedWith(t *testing.T) {
	w := newWorld(t)
	tenant, entries := w.sealedLog()
	w.tamper("UPDATE log SET message = 'Token used'"+row, rowOf(tenant, entries[7])...)
	v := readExport(t, first(w.export(tenant, audit.Range{})), nil)
	if v.Clean() || v.Finding.Kind != audit.Changed || v.Finding.ID != entries[7].ID {
		t.Errorf("VerifyExport found %v, want entry %s changed", v.Finding, entries[7].ID)
	}
	w.tamper("DELETE FROM log"+row, rowOf(tenant, entries[7])...)
	text, done := w.export(tenant, audit.Range{})
	if v := readExport(t, text, nil); done.Missing != 1 || v.Clean() || v.Finding.Kind != audit.Removed || v.Finding.Batch != 2 {
		t.Errorf("Export = %+v, VerifyExport found %v, want one entry of batch 2 removed", done, v.Finding)
	}
	w.tamper("UPDATE log_batches SET leaves = x'' WHERE tenant_id = ? AND number = 2", id(tenant))
	if done, err := w.service.Export(t.Context(), tenant, audit.Range{}, io.Discard, nil); !errors.Is(err, store.ErrDamaged) || done.Last != 1 {
		t.Errorf("Export of a batch without its list = %+v, %v, want %v behind batch 1", done, err, store.ErrDamaged)
	}
}

func TestAnExportOfDroppedBatches(t *testing.T) {
	w := newWorld(t)
	tenant, entries := w.sealedLog()
	w.retain(tenant, w.clock.Now().Sub(entries[5].CreatedAt.Time()))
	text, _ := w.export(tenant, audit.Range{})
	if v := readExport(t, text, nil); !v.Clean() || v.Dropped != 1 || v.Entries != 10 || v.Batches != 3 {
		t.Errorf("VerifyExport = %+v, finding %v", v, v.Finding)
	}
	w.delete(tenant)
	text, _ = w.export(tenant, audit.Range{})
	if v := readExport(t, text, nil); !v.Clean() || v.Dropped != 3 || v.Entries != 0 {
		t.Errorf("VerifyExport of a deleted tenant = %+v, finding %v", v, v.Finding)
	}
}

// short is a writer that fails behind so many writes.
type short struct {
	bytes.Buffer
	left int
}

func (s *short) Write(b []byte) (int, error) {
	if s.left--; s.left < 0 {
		return 0, io.ErrShortWrite
	}
	return s.Buffer.Write(b)
}

func TestAnExportThatBrokeOffGoesOn(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.sealedLog()
	whole, _ := w.export(tenant, audit.Range{})
	broken := &short{left: 3} // the head and two batches
	done, err := w.service.Export(t.Context(), tenant, audit.Range{}, broken, nil)
	if !errors.Is(err, io.ErrShortWrite) || done.Last != 2 {
		t.Fatalf("Export = %+v, %v, want %v behind batch 2", done, err, io.ErrShortWrite)
	}
	if v := readExport(t, broken.String(), nil); v.Clean() || v.Finding.Kind != audit.Truncated {
		t.Errorf("VerifyExport of a part found %v, want %s", v.Finding, audit.Truncated)
	}
	rest, done := w.export(tenant, audit.Range{After: done.Last})
	if v := readExport(t, rest, nil); !v.Clean() || done.Batches != 1 || done.Entries != 5 {
		t.Errorf("the rest: Export = %+v, VerifyExport found %v", done, v.Finding)
	}
	if batch := strings.SplitN(rest, "\n", 2)[1]; !strings.Contains(whole, strings.TrimSuffix(batch[:strings.Index(batch, `{"kind":"end"`)], "\n")) {
		t.Error("the rest is not the end of the whole")
	}
	if _, err := w.service.Export(t.Context(), uuid.NewString(), audit.Range{}, io.Discard, nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Export of an unknown tenant = %v, want %v", err, store.ErrNotFound)
	}
	if _, err := w.service.Export(t.Context(), "tenant", audit.Range{}, io.Discard, nil); !errors.Is(err, store.ErrNoTenant) {
		t.Errorf("Export of what is no id = %v, want %v", err, store.ErrNoTenant)
	}
	if _, err := w.service.Export(t.Context(), tenant, audit.Range{}, failing{io.ErrClosedPipe}, nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Export to a closed pipe = %v, want %v", err, io.ErrClosedPipe)
	}
}

func FuzzVerifyExport(f *testing.F) {
	text, err := os.ReadFile(exportFile)
	if err != nil {
		f.Fatal(err)
	}
	whole, err := audit.VerifyExport(bytes.NewReader(text), nil, nil)
	if err != nil || !whole.Clean() {
		f.Fatalf("VerifyExport = %+v, %v", whole, err)
	}
	public := []byte(whole.PublicKey)
	f.Add(text)
	for i := range 20 {
		changed := bytes.Clone(text)
		changed[i*len(text)/20] ^= 1
		f.Add(changed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := audit.ParseCheckpoint(b); err == nil && c == nil {
			t.Error("ParseCheckpoint gives neither a checkpoint nor an error")
		}
		v, err := audit.VerifyExport(bytes.NewReader(b), public, nil)
		if err != nil {
			t.Fatalf("VerifyExport = %v", err)
		}
		// Whoever lacks the key cannot make an entry.
		if v.Entries > whole.Entries || v.Batches > whole.Batches {
			t.Errorf("VerifyExport counts %d entries in %d batches, more than were signed", v.Entries, v.Batches)
		}
	})
}

func TestAFindingReadsWell(t *testing.T) {
	at := time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)
	for want, f := range map[string]audit.Finding{
		"removed, batch 2, entry e, of 2031-05-06T07:08:09.123456Z: gone": {Kind: audit.Removed, Batch: 2, ID: "e", CreatedAt: &at, Detail: "gone"},
		"batch removed, batch 3": {Kind: audit.BatchRemoved, Batch: 3},
		"changed, line 7: words": {Kind: audit.Changed, Line: 7, Detail: "words"},
	} {
		if got := fmt.Sprint(f); got != want {
			t.Errorf("String = %q, want %q", got, want)
		}
	}
}
