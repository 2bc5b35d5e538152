package limit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/internal/limit"
)

func TestTheLastHourIsCountedAndForgotten(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	registry := prometheus.NewRegistry()
	r := limit.NewRecorder(func() time.Time { return now }, registry)
	if got := r.LastHour(); len(got) != 0 {
		t.Errorf("LastHour() at the start = %v, want none", got)
	}
	r.Reached(limit.QueuedJobs)
	now = now.Add(30 * time.Minute)
	r.Reached(limit.QueuedJobs)
	r.Reached(limit.Connections)
	got := r.LastHour()
	want := []limit.Reached{{Name: limit.Connections, Count: 1, Last: now}, {Name: limit.QueuedJobs, Count: 2, Last: now}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("LastHour() = %v, want %v", got, want)
	}
	now = now.Add(40 * time.Minute)
	if got := r.LastHour(); len(got) != 2 || got[1].Count != 1 {
		t.Errorf("LastHour() after 70 minutes = %v, want one of each", got)
	}
	now = now.Add(time.Hour)
	if got := r.LastHour(); len(got) != 0 {
		t.Errorf("LastHour() an hour later = %v, want none", got)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].Metric) != len(limit.All) {
		t.Errorf("the metrics are %v, %v, want one with a series for each limit", families, err)
	}
	(*limit.Recorder)(nil).Reached(limit.Connections) // counts nothing
}

func TestTheLimitsPageHasEveryLimit(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "limits.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]int)
	for line := range strings.Lines(string(page)) {
		if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` | "); ok && strings.HasPrefix(line, "| `") && strings.Count(rest, " | ") == 3 {
			rows[name]++
		}
	}
	for _, row := range limit.All {
		if rows[string(row.Name)] != 1 {
			t.Errorf("docs/limits.md has %d rows for %s, want 1 with what, default, setting and what is beyond it", rows[string(row.Name)], row.Name)
		}
	}
	if len(rows) != len(limit.All) {
		t.Errorf("docs/limits.md has rows %v, want those of limit.All", rows)
	}
}

func TestEveryLimitTellsAnOperatorWhatToDo(t *testing.T) {
	for _, row := range limit.All {
		if found, ok := limit.Find(row.Name); !ok || found != row || row.Reached == "" || row.Do == "" {
			t.Errorf("limit %q = %+v, %v", row.Name, found, ok)
		}
	}
}
