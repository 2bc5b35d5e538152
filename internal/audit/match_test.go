package audit_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// readers makes n entries about one card, by turns by two actors who see the
// mask and, every third time, the value.
func (w *world) readers(tenant string, n int) (entries []store.LogEntry) {
	w.t.Helper()
	actors := []access.Caller{
		accesstest.Caller(w.t, tenant, "6f1f3a52-6f0e-4a39-8a3c-52a0b7a3f001", access.TokenRead).WithActorName("Shop"),
		accesstest.Caller(w.t, tenant, "6f1f3a52-6f0e-4a39-8a3c-52a0b7a3f009", access.TokenRead).WithActorName("Support"),
	}
	for i := range n {
		shown := access.Mask
		if i%3 == 0 {
			shown = access.Reveal
		}
		c := actors[i%2].WithOrigin(access.Origin{TraceID: "trace-1", Address: "192.0.2.7"})
		entries = append(entries, audit.Showing(audit.Entry(c, w.clock.Advance(time.Millisecond), "card", "card-1", audit.Read), shown))
	}
	for part := range slices.Chunk(entries, 500) {
		w.update(tenant, func(tx store.Tx) error { return tx.AppendLog(w.t.Context(), part...) })
	}
	return entries
}

// matching returns the entries that match, newest first.
func matching(entries []store.LogEntry, has func(store.LogEntry) bool) (list []store.LogEntry) {
	for _, e := range slices.Backward(entries) {
		if has(e) {
			list = append(list, e)
		}
	}
	return list
}

func TestAMatchNarrowsListsAndDownloads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant := w.tenant()
	c := accesstest.Caller(t, tenant, application, access.LogRead)
	entries := w.readers(tenant, 60)
	for name, test := range map[string]struct {
		match audit.Match
		has   func(store.LogEntry) bool
	}{
		"transform":          {audit.Match{Transform: "reveal"}, func(e store.LogEntry) bool { return e.Transform == "reveal" }},
		"actor":              {audit.Match{ActorID: entries[1].ActorID}, func(e store.LogEntry) bool { return e.ActorName == "Support" }},
		"actor, transform":   {audit.Match{ActorID: entries[1].ActorID, Transform: "mask"}, func(e store.LogEntry) bool { return e.ActorName == "Support" && e.Transform == "mask" }},
		"operation, outcome": {audit.Match{Operation: "read", Outcome: "allowed"}, func(store.LogEntry) bool { return true }},
		"outcome":            {audit.Match{Outcome: "denied"}, func(store.LogEntry) bool { return false }},
		"trace":              {audit.Match{TraceID: "trace-1"}, func(store.LogEntry) bool { return true }},
		"another trace":      {audit.Match{TraceID: "trace-2"}, func(store.LogEntry) bool { return false }},
	} {
		want := matching(entries, test.has)
		list, total, err := w.service.List(t.Context(), c, store.LogFilter{EntityID: "card-1"}, store.Page{Limit: 100}, test.match)
		if err != nil || total != int64(len(want)) || !slices.Equal(list, want) {
			t.Errorf("%s: List = %d of %d, %v, want %d", name, len(list), total, err, len(want))
		}
		var parts []store.LogEntry
		for start := ""; ; {
			part, next, err := w.service.ListFrom(t.Context(), c, store.LogFilter{EntityType: "card"}, start, 7, test.match)
			if err != nil {
				t.Fatalf("%s: ListFrom = %v", name, err)
			}
			if parts = append(parts, part...); next == "" {
				break
			}
			start = next
		}
		if !slices.Equal(parts, want) {
			t.Errorf("%s: ListFrom has %d entries, want %d", name, len(parts), len(want))
		}
		var all []store.LogEntry
		err = w.service.Download(t.Context(), c, store.LogFilter{}, test.match, func(piece []store.LogEntry) error {
			all = append(all, piece...)
			return nil
		})
		if err != nil || !slices.Equal(all, want) {
			t.Errorf("%s: Download = %d entries, %v, want %d", name, len(all), err, len(want))
		}
	}
	for _, m := range []audit.Match{{Operation: "look"}, {Outcome: "maybe"}, {Transform: "all"}} {
		if err := m.Check(); !errors.Is(err, fault.Invalid) {
			t.Errorf("%+v.Check() = %v, want a fault", m, err)
		}
	}
}

// TestAMatchReadsABoundedNumberOfEntries has more entries than one call reads.
func TestAMatchReadsABoundedNumberOfEntries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant := w.tenant()
	c := accesstest.Caller(t, tenant, application, access.LogRead)
	w.clock.Advance(time.Second)
	first := w.readers(tenant, 1)
	w.write(tenant, audit.MaxScanned+1)
	m := audit.Match{Transform: "reveal"}
	if _, _, err := w.service.List(t.Context(), c, store.LogFilter{}, store.Page{Limit: 10}, m); !errors.Is(err, fault.Invalid) {
		t.Errorf("List = %v, want a fault", err)
	}
	list, next, err := w.service.ListFrom(t.Context(), c, store.LogFilter{}, "", 10, m)
	if err != nil || len(list) != 0 || next == "" {
		t.Fatalf("ListFrom = %d entries, next %q, %v, want none and a cursor", len(list), next, err)
	}
	if list, next, err = w.service.ListFrom(t.Context(), c, store.LogFilter{}, next, 10, m); err != nil || !slices.Equal(list, first) || next != "" {
		t.Errorf("ListFrom of the cursor = %d entries, next %q, %v, want the first entry", len(list), next, err)
	}
}

// follow reads a stream until nothing is left.
func follow(t *testing.T, s *audit.Stream) (list []store.LogEntry, last string) {
	t.Helper()
	for {
		events, more, err := s.Next(t.Context())
		if err != nil {
			t.Fatalf("Next = %v", err)
		}
		for _, e := range events {
			list, last = append(list, e.Entry), e.ID
		}
		if !more {
			return list, last
		}
	}
}

func TestAStreamHasEveryEntryOnceWhereverItIsCutOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant := w.tenant()
	c := accesstest.Caller(t, tenant, application, access.LogRead)
	old := w.write(tenant, 4)
	w.seal(tenant, 1)
	waiting := w.write(tenant, 2)
	open := func(o audit.StreamOptions, f store.LogFilter, m audit.Match) *audit.Stream {
		t.Helper()
		s, err := w.service.OpenStream(t.Context(), c, f, m, o)
		if err != nil {
			t.Fatalf("OpenStream(%+v) = %v", o, err)
		}
		t.Cleanup(s.Close)
		return s
	}
	past, from := open(audit.StreamOptions{Past: 3}, store.LogFilter{}, audit.Match{}), open(audit.StreamOptions{}, store.LogFilter{From: old[2].CreatedAt}, audit.Match{})
	fresh, none := open(audit.StreamOptions{}, store.LogFilter{}, audit.Match{}), open(audit.StreamOptions{}, store.LogFilter{}, audit.Match{Outcome: "denied"})
	begun, _ := follow(t, past)
	if want := []store.LogEntry{old[3], waiting[0], waiting[1]}; !slices.Equal(begun, want) {
		t.Errorf("the past is %v, want %v", begun, want)
	}
	w.seal(tenant, 1)
	more := w.write(tenant, 3)
	w.seal(tenant, 1)
	for name, test := range map[string]struct {
		stream *audit.Stream
		want   []store.LogEntry
	}{
		"after the past":  {past, more},
		"from an instant": {from, slices.Concat(old[2:], waiting, more)},
		"from now on":     {fresh, slices.Concat(waiting, more)},
		"that matches":    {none, nil},
	} {
		if got, _ := follow(t, test.stream); !slices.Equal(got, test.want) {
			t.Errorf("the stream %s has %d entries, want %d", name, len(got), len(test.want))
		}
	}
	// Cut off after each event, it continues with the next.
	whole := open(audit.StreamOptions{}, store.LogFilter{From: 1}, audit.Match{})
	all := slices.Concat(old, waiting, more)
	events, _, err := whole.Next(t.Context())
	if err != nil || len(events) != len(all) {
		t.Fatalf("Next = %d events, %v, want %d", len(events), err, len(all))
	}
	for i, e := range events {
		if rest, _ := follow(t, open(audit.StreamOptions{LastEventID: e.ID}, store.LogFilter{}, audit.Match{})); !slices.Equal(rest, all[i+1:]) {
			t.Errorf("after event %d come %d entries, want %d", i, len(rest), len(all)-i-1)
		}
		if i > 5 {
			break // the number of streams is bounded
		}
	}
}

func TestAStreamIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant, other := w.tenant(), w.tenant()
	c := accesstest.Caller(t, tenant, application, access.LogRead)
	w.write(tenant, 1)
	w.seal(tenant, 1)
	s, err := w.service.OpenStream(t.Context(), c, store.LogFilter{From: 1}, audit.Match{}, audit.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, id := follow(t, s)
	s.Close()
	stranger := accesstest.Caller(t, other, application, access.LogRead)
	for name, test := range map[string]struct {
		c      access.Caller
		filter store.LogFilter
		o      audit.StreamOptions
		want   error
	}{
		"without log:read":       {accesstest.Caller(t, tenant, application, access.TenantRead), store.LogFilter{}, audit.StreamOptions{}, fault.Forbidden},
		"with an end":            {c, store.LogFilter{Before: 5}, audit.StreamOptions{}, fault.Invalid},
		"with too much past":     {c, store.LogFilter{}, audit.StreamOptions{Past: 101}, fault.Invalid},
		"with another's event":   {stranger, store.LogFilter{}, audit.StreamOptions{LastEventID: id}, fault.Invalid},
		"with an invented event": {c, store.LogFilter{}, audit.StreamOptions{LastEventID: "x"}, fault.Invalid},
	} {
		if s, err := w.service.OpenStream(t.Context(), test.c, test.filter, audit.Match{}, test.o); !errors.Is(err, test.want) {
			t.Errorf("%s: OpenStream = %v, %v, want %v", name, s, err, test.want)
		}
	}
	var open []*audit.Stream
	for range audit.MaxStreams {
		s, err := w.service.OpenStream(t.Context(), c, store.LogFilter{}, audit.Match{}, audit.StreamOptions{})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, s)
	}
	if _, err := w.service.OpenStream(t.Context(), c, store.LogFilter{}, audit.Match{}, audit.StreamOptions{}); !errors.Is(err, audit.ErrStreams) {
		t.Errorf("one stream too many = %v", err)
	}
	if s, err := w.service.OpenStream(t.Context(), stranger, store.LogFilter{}, audit.Match{}, audit.StreamOptions{}); err != nil {
		t.Errorf("a stream of another tenant = %v", err)
	} else {
		s.Close()
	}
	for _, s := range open {
		s.Close()
	}
	if s, err = w.service.OpenStream(t.Context(), c, store.LogFilter{}, audit.Match{}, audit.StreamOptions{}); err != nil {
		t.Errorf("a stream after the others were closed = %v", err)
	} else {
		s.Close()
	}
}

func TestAVerificationRunsAsAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant, _ := w.sealedLog()
	other := w.tenant()
	c := accesstest.Caller(t, tenant, application, access.LogRead).WithActorName("Auditor")
	q := jobs.New(w.store, jobs.Options{Now: w.clock.Now})
	v := audit.NewVerifications(w.service, q)
	q.SetKinds(v.Kinds()...)
	before, err := w.service.Integrity(t.Context(), c)
	if err != nil || before.Last != nil || before.Head == nil || before.Head.Number != 3 || before.Unsealed != 0 {
		t.Fatalf("Integrity = %+v, %v", before, err)
	}
	first, err := v.Start(t.Context(), c)
	if err != nil || first.State != audit.StateQueued || first.ActorName != "Auditor" {
		t.Fatalf("Start = %+v, %v", first, err)
	}
	if again, err := v.Start(t.Context(), c); err != nil || again.ID != first.ID {
		t.Errorf("Start while one is under way = %+v, %v, want the same one", again, err)
	}
	if n, err := q.DoDue(t.Context()); err != nil || n != 1 {
		t.Fatalf("DoDue = %d, %v, want one job", n, err)
	}
	if j, err := v.Get(t.Context(), c, first.ID); err != nil || j.State != audit.StateDone || !j.Result.Clean() || j.Result.Entries != 15 || j.FinishedAt == nil {
		t.Errorf("Get = %+v, %v, want a clean result of 15 entries", j, err)
	}
	in, err := w.service.Integrity(t.Context(), c)
	if err != nil || in.Last == nil || in.Last.ID != first.ID || in.Last.ActorName != "Auditor" || in.Last.Found != 0 || in.Last.Head != 3 || in.Unsealed == 0 || in.Oldest == nil {
		t.Errorf("Integrity = %+v (%+v), %v", in, in.Last, err)
	}
	stranger := accesstest.Caller(t, other, application, access.LogRead)
	if _, err := v.Get(t.Context(), stranger, first.ID); !errors.Is(err, fault.NotFound) {
		t.Errorf("Get of another tenant = %v", err)
	}
	if _, err := v.Get(t.Context(), accesstest.Caller(t, tenant, application, access.TenantRead), first.ID); !errors.Is(err, fault.Forbidden) {
		t.Errorf("Get without log:read = %v", err)
	}
	if _, err := v.Start(t.Context(), accesstest.Caller(t, tenant, application, access.TenantRead)); !errors.Is(err, fault.Forbidden) {
		t.Errorf("Start without log:read = %v", err)
	}
}
