package audit_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

const application = "6f1f3a52-6f0e-4a39-8a3c-52a0b7a3f002"

// entries reads the whole log as it is, newest first.
func (w *world) entries(tenant string) (list []store.LogEntry) {
	w.t.Helper()
	if err := w.store.View(w.t.Context(), tenant, func(tx store.Tx) (err error) {
		list, err = tx.Logs(w.t.Context(), store.LogFilter{}, store.Page{Limit: 10000})
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return list
}

func TestListFilters(t *testing.T) {
	// The log has cards 0 to 5, a second apart, then a bank of the id of card 2.
	second := func(i int) store.Time { return store.At(start.Add(time.Duration(1+i) * time.Second)) }
	tests := map[string]struct {
		filter store.LogFilter
		page   store.Page
		want   []int // in the order of writing
		total  int64
	}{
		"all":                 {store.LogFilter{}, store.Page{Limit: 20}, []int{6, 5, 4, 3, 2, 1, 0}, 7},
		"by type":             {store.LogFilter{EntityType: "bank"}, store.Page{Limit: 20}, []int{6}, 1},
		"by entity":           {store.LogFilter{EntityID: "card-2"}, store.Page{Limit: 20}, []int{6, 2}, 2},
		"by type and entity":  {store.LogFilter{EntityType: "card", EntityID: "card-2"}, store.Page{Limit: 20}, []int{2}, 1},
		"from, inclusive":     {store.LogFilter{From: second(4)}, store.Page{Limit: 20}, []int{6, 5, 4}, 3},
		"until, exclusive":    {store.LogFilter{Before: second(1)}, store.Page{Limit: 20}, []int{0}, 1},
		"between":             {store.LogFilter{From: second(1), Before: second(3)}, store.Page{Limit: 20}, []int{2, 1}, 2},
		"by type, from":       {store.LogFilter{EntityType: "card", From: second(4)}, store.Page{Limit: 20}, []int{5, 4}, 2},
		"first page":          {store.LogFilter{}, store.Page{Limit: 3}, []int{6, 5, 4}, 7},
		"last page":           {store.LogFilter{}, store.Page{Offset: 6, Limit: 3}, []int{0}, 7},
		"a page past the end": {store.LogFilter{}, store.Page{Offset: 9, Limit: 3}, nil, 7},
		"unknown type":        {store.LogFilter{EntityType: "nothing"}, store.Page{Limit: 3}, nil, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tenant, other := w.tenant(), w.tenant()
			c := accesstest.Caller(t, tenant, application, access.LogRead)
			entries := w.write(tenant, 6)
			entries = append(entries, audit.Entry(c, w.clock.Advance(time.Second), "bank", "card-2", audit.Create))
			w.update(tenant, func(tx store.Tx) error { return tx.AppendLog(t.Context(), entries[6]) })
			w.write(other, 2)
			var want []store.LogEntry
			for _, i := range test.want {
				want = append(want, entries[i])
			}
			got, total, err := w.service.List(t.Context(), c, test.filter, test.page)
			if err != nil || total != test.total || !slices.Equal(got, want) {
				t.Errorf("List(%+v, %+v) = %v, %d, %v, want %v, %d", test.filter, test.page, got, total, err, want, test.total)
			}
		})
	}
}

func TestReadingTheLogIsLogged(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	c := accesstest.Caller(t, tenant, application, access.LogRead).WithOrigin(access.Origin{TraceID: "t1", Address: "192.0.2.9"})
	for want := range int64(3) {
		list, total, err := w.service.List(t.Context(), c, store.LogFilter{EntityType: audit.Log}, store.Page{Limit: 20})
		if err != nil || total != want || int64(len(list)) != want {
			t.Fatalf("List = %d entries, %d in all, %v, want those of the %d calls before", len(list), total, err, want)
		}
	}
	got := w.entries(tenant)
	if len(got) != 3 {
		t.Fatalf("three calls left %d entries", len(got))
	}
	e := got[0]
	e.ID = ""
	want := store.LogEntry{
		CreatedAt: store.At(start), ActorID: application, ActorType: "application", EntityType: "log", EntityID: "*", Operation: "read",
		Outcome: "allowed", Message: "Logs retrieved", TraceID: "t1", ClientAddress: "192.0.2.9",
	}
	if e != want {
		t.Errorf("the entry is %+v, want %+v", e, want)
	}
}

func TestWhoMayReadTheLog(t *testing.T) {
	w := newWorld(t)
	tenant, other := w.tenant(), w.tenant()
	w.write(tenant, 3)
	tests := map[string]struct {
		caller access.Caller
		total  int64
		want   error
	}{
		"allowed":       {accesstest.Caller(t, tenant, application, access.LogRead), 3, nil},
		"other tenant":  {accesstest.Caller(t, other, application, access.LogRead), 0, nil},
		"no permission": {accesstest.Caller(t, tenant, application, access.TenantRead), 0, fault.Forbidden},
		"nobody":        {access.Caller{}, 0, fault.Forbidden},
	}
	for name, test := range tests {
		list, total, err := w.service.List(t.Context(), test.caller, store.LogFilter{}, store.Page{Limit: 20})
		if !errors.Is(err, test.want) || total != test.total || int64(len(list)) != test.total {
			t.Errorf("%s: List = %d entries, %d in all, %v, want %d, %v", name, len(list), total, err, test.total, test.want)
		}
		types, err := w.service.EntityTypes(t.Context(), test.caller)
		if !errors.Is(err, test.want) || (err == nil) != (len(types) == 17) {
			t.Errorf("%s: EntityTypes = %d, %v, want %v", name, len(types), err, test.want)
		}
	}
}

func TestAListThatCannotBeLoggedShowsNothing(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	w.write(tenant, 3)
	c := accesstest.Caller(t, tenant, application, access.LogRead)
	w.tamper("CREATE TRIGGER full BEFORE INSERT ON log BEGIN SELECT RAISE(ABORT, 'full'); END; UPDATE log_counts SET entries = entries")
	list, total, err := w.service.List(t.Context(), c, store.LogFilter{}, store.Page{Limit: 20})
	if err == nil || list != nil || total != 0 {
		t.Errorf("List = %v, %d, %v, want an error alone", list, total, err)
	}
}

// refusal returns the denial of a permission.
func refusal(p access.Permission) error {
	return fmt.Errorf("wrapped: %w", access.Caller{}.Require(p))
}

func TestEveryPermissionHasAnEntityType(t *testing.T) {
	known := make(map[string]bool)
	for _, e := range audit.EntityTypes() {
		known[e.Value] = true
	}
	w := newWorld(t)
	tenant := w.tenant()
	for i, p := range access.Permissions() {
		w.service.Refused(t.Context(), accesstest.Caller(t, tenant, fmt.Sprint("application-", i)), refusal(p), audit.Attempt{})
	}
	entries := w.entries(tenant)
	if len(entries) != len(access.Permissions()) {
		t.Fatalf("%d refusals made %d entries", len(access.Permissions()), len(entries))
	}
	for _, e := range entries {
		if !known[e.EntityType] {
			t.Errorf("%q is about %q, which is no entity type", e.Message, e.EntityType)
		}
		switch e.Operation {
		case "create", "read", "update", "delete", "use":
		default:
			t.Errorf("%q is of operation %q", e.Message, e.Operation)
		}
	}
}

func TestWhatIsNoDenialIsNotLogged(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	c := accesstest.Caller(t, tenant, application)
	for _, err := range []error{nil, errors.New("other"), fault.New(fault.Forbidden, "no"), fault.New(fault.NotFound, "no")} {
		w.service.Refused(t.Context(), c, err, audit.Attempt{})
	}
	w.service.Refused(t.Context(), access.Caller{}, refusal(access.TokenRead), audit.Attempt{})
	if got := w.entries(tenant); len(got) != 0 {
		t.Errorf("the log has %v", got)
	}
}

// refused reads the metric of refused attempts.
func refused(t *testing.T, r *prometheus.Registry, entry string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 3 {
		t.Fatalf("the metrics are %v, %v, want one with three values: no caller may shape a label", families, err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "tokenkeep_audit_refused_attempts_total" && m.GetLabel()[0].GetValue() == entry {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no metric for %q", entry)
	return 0
}

func TestRefusedAttemptsOfOneCallerAreBounded(t *testing.T) {
	w := newWorld(t)
	r := prometheus.NewRegistry()
	o := w.options()
	o.Metrics = r
	s := audit.New(w.store, w.ring, o)
	tenant, other := w.tenant(), w.tenant()
	attempt := func(c access.Caller, n int) {
		for range n {
			s.Refused(t.Context(), c, refusal(access.TokenRead), audit.Attempt{})
		}
	}
	count := func(tenant string, want int) {
		t.Helper()
		if got := len(w.entries(tenant)); got != want {
			t.Errorf("the log has %d entries, want %d", got, want)
		}
	}
	attempt(accesstest.Caller(t, tenant, application), 3*audit.RefusedBurst)
	count(tenant, audit.RefusedBurst)
	// Sessions come for nothing: they share the bound of their application.
	for i := range 5 {
		attempt(accesstest.Session(t, tenant, application, fmt.Sprint("s", i), nil, access.TokenCreate), 5)
	}
	count(tenant, audit.RefusedBurst)
	attempt(accesstest.Caller(t, tenant, "another application"), 1)
	count(tenant, audit.RefusedBurst+1)
	attempt(accesstest.Caller(t, other, application), 1)
	count(other, 1)
	w.clock.Advance(2 * audit.RefusedEvery)
	attempt(accesstest.Caller(t, tenant, application), 10)
	count(tenant, audit.RefusedBurst+3)

	if got, want := refused(t, r, "suppressed"), float64(2*audit.RefusedBurst+25+8); got != want {
		t.Errorf("suppressed attempts are counted as %v, want %v", got, want)
	}
	if got, want := refused(t, r, "written"), float64(audit.RefusedBurst+4); got != want {
		t.Errorf("written attempts are counted as %v, want %v", got, want)
	}
}

func TestTheTableOfRefusedCallersIsBounded(t *testing.T) {
	w := newWorld(t)
	r := prometheus.NewRegistry()
	s := audit.New(w.store, w.ring, audit.Options{Now: w.clock.Now, Metrics: r})
	tenant := w.tenant()
	// What is tried counts, whether it could be written or not.
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	attempt := func(application string, n int) {
		for range n {
			s.Refused(t.Context(), accesstest.Caller(t, tenant, application), refusal(access.TokenRead), audit.Attempt{})
		}
	}
	attempt(application, audit.RefusedBurst+1)
	if got := refused(t, r, "suppressed"); got != 1 {
		t.Fatalf("%v attempts were suppressed, want 1", got)
	}
	for i := range audit.RefusedCallers {
		attempt(fmt.Sprint(i), 1)
	}
	attempt(application, 1)
	if got := refused(t, r, "suppressed"); got != 1 {
		t.Error("the caller that was quiet longest is still remembered")
	}
	attempt(fmt.Sprint(audit.RefusedCallers-1), audit.RefusedBurst)
	if got := refused(t, r, "suppressed"); got != 2 {
		t.Error("the caller that came last is not remembered any more")
	}
}

func TestARefusalThatCannotBeLoggedIsOnlyCounted(t *testing.T) {
	w := newWorld(t)
	r := prometheus.NewRegistry()
	s := audit.New(w.store, w.ring, audit.Options{Now: w.clock.Now, Metrics: r})
	tenant := w.tenant()
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	s.Refused(t.Context(), accesstest.Caller(t, tenant, application), refusal(access.TokenRead), audit.Attempt{})
	if got := refused(t, r, "failed"); got != 1 {
		t.Errorf("failed entries are counted as %v, want 1", got)
	}
}
