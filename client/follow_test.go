package client_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/luhn"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// logServer has a log and a clock. Like the real one it logs that its log is
// read.
type logServer struct {
	*httptest.Server
	mu      sync.Mutex // guards the rest once it is asked
	now     time.Time
	entries []api.LogEntry
	looks   int
	refuse  []answer // for the next requests
}

func newLogServer(t *testing.T) *logServer {
	s := &logServer{now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// add adds an entry that was stamped some time ago and comes to light now.
func (s *logServer) add(id string, ago time.Duration) {
	s.now = s.now.Add(time.Microsecond)
	s.insert(api.LogEntry{ID: id, CreatedAt: api.Time{Time: s.now.Add(-ago)}, Message: "Token created"})
}

func oldestFirst(a, b api.LogEntry) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt.Time), strings.Compare(a.ID, b.ID))
}

// insert keeps the entries oldest first.
func (s *logServer) insert(e api.LogEntry) {
	at, _ := slices.BinarySearchFunc(s.entries, e, oldestFirst)
	s.entries = slices.Insert(s.entries, at, e)
}

func (s *logServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	w.Header().Set("Content-Type", "application/json")
	if len(s.refuse) > 0 {
		a := s.refuse[0]
		s.refuse = s.refuse[1:]
		if a.broken {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(a.status)
		return
	}
	q := r.URL.Query()
	from, _ := time.Parse(time.RFC3339Nano, q.Get("start_date"))
	before, err := time.Parse(time.RFC3339Nano, q.Get("end_date"))
	if err != nil {
		before = s.now.Add(time.Hour)
	}
	number, _ := strconv.Atoi(q.Get("page"))
	size, _ := strconv.Atoi(q.Get("size"))
	list := []api.LogEntry{}
	for _, e := range slices.Backward(s.entries) {
		if !e.CreatedAt.Before(from) && e.CreatedAt.Before(before) {
			list = append(list, e)
		}
	}
	total := len(list)
	list = list[min(total, (number-1)*size):min(total, number*size)]
	_ = json.NewEncoder(w).Encode(api.List[api.LogEntry]{
		Pagination: api.Pagination{TotalItems: int64(total), TotalPages: int64((total + size - 1) / size)}, Data: list,
	})
	s.now = s.now.Add(time.Microsecond)
	s.insert(api.LogEntry{ID: fmt.Sprint("look-", s.looks), TraceID: r.Header.Get("SVC-TRACE-ID"), CreatedAt: api.Time{Time: s.now}})
}

// follow follows the log while things happen, one between each two looks, and
// ends when the last has been looked for.
func (s *logServer) follow(t *testing.T, f client.LogFilter, o client.Following, happens ...func()) (got []string, ended error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, err := client.New(s.URL, client.WithRetries(0), client.WithSleep(func(ctx context.Context, d time.Duration) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now = s.now.Add(d)
		if len(happens) == 0 {
			cancel()
			return ctx.Err()
		}
		happens[0]()
		happens = happens[1:]
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range c.Logs.Follow(ctx, f, o) {
		if err != nil {
			ended = err
			continue // there must be nothing more
		}
		got = append(got, e.ID)
	}
	return got, ended
}

func TestALogIsFollowed(t *testing.T) {
	nothing := func() {}
	cases := map[string]struct {
		from    bool // from the beginning on
		past    int
		before  []string
		happens func(s *logServer) []func()
		want    []string
		fails   error
	}{
		"from now on":        {false, 0, []string{"a", "b"}, func(s *logServer) []func() { return []func(){func() { s.add("c", 0) }} }, []string{"c"}, nil},
		"with some past":     {false, 2, []string{"a", "b", "c"}, func(s *logServer) []func() { return []func(){func() { s.add("d", 0) }} }, []string{"b", "c", "d"}, nil},
		"from a time on":     {true, 0, []string{"a", "b"}, func(s *logServer) []func() { return []func(){func() { s.add("c", 0) }} }, []string{"a", "b", "c"}, nil},
		"an empty log":       {false, 5, nil, func(s *logServer) []func() { return []func(){func() { s.add("a", 0) }, nothing} }, []string{"a"}, nil},
		"nothing new":        {true, 0, []string{"a"}, func(*logServer) []func() { return []func(){nothing, nothing, nothing} }, []string{"a"}, nil},
		"two at one instant": {true, 0, []string{"a"}, func(s *logServer) []func() { return []func(){func() { s.add("b", time.Microsecond) }} }, []string{"a", "b"}, nil},
		"one that is late": {true, 0, []string{"a"}, func(s *logServer) []func() {
			return []func(){func() { s.add("b", 0) }, func() { s.now = s.now.Add(40 * time.Second); s.add("c", 0) }, func() { s.add("late", 40*time.Second) }}
		}, []string{"a", "b", "c", "late"}, nil},
		"one that is late, before many": {true, 0, []string{"a"}, func(s *logServer) []func() {
			return []func(){func() {
				for i := range 250 {
					s.add(fmt.Sprintf("%03d", i), 0)
				}
			}, func() { s.add("late", 3*time.Second) }}
		}, append([]string{"a"}, append(numbers(250), "late")...), nil},
		"through a silence": {true, 0, []string{"a"}, func(s *logServer) []func() {
			return []func(){
				func() {
					s.add("b", 0)
					s.refuse = []answer{broken, {status: 503}, {status: 429}, {status: 500}, broken}
				},
				func() { s.add("c", 0) }, nothing, nothing, nothing, nothing, func() { s.add("d", 0) },
			}
		}, []string{"a", "b", "c", "d"}, nil},
		"a silence at first": {false, 0, []string{"a"}, func(s *logServer) []func() {
			s.refuse = []answer{broken, {status: 502}}
			return []func(){nothing, nothing, func() { s.add("b", 0) }}
		}, []string{"b"}, nil},
		"until the key is gone": {true, 0, []string{"a"}, func(s *logServer) []func() {
			return []func(){func() { s.add("b", 0) }, func() { s.refuse = []answer{{status: 401}} }, nothing}
		}, []string{"a", "b"}, client.ErrUnauthenticated},
		"by nobody": {false, 0, nil, func(s *logServer) []func() { s.refuse = []answer{{status: 403}}; return []func(){nothing} }, nil, client.ErrForbidden},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			s := newLogServer(t)
			f := client.LogFilter{}
			if test.from {
				f.From = s.now
			}
			for _, id := range test.before {
				s.add(id, 0)
			}
			var troubles int
			got, err := s.follow(t, f, client.Following{Past: test.past, Trouble: func(error) { troubles++ }}, test.happens(s)...)
			if !slices.Equal(got, test.want) || !errors.Is(err, test.fails) {
				t.Errorf("Follow = %q, %v, want %q, %v", got, err, test.want, test.fails)
			}
			if strings.Contains(name, "silence") != (troubles > 0) {
				t.Errorf("told of %d troubles", troubles)
			}
		})
	}
}

func numbers(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%03d", i))
	}
	return list
}

// TestALongPastIsFollowedInParts, oldest first, however unevenly it is spread.
func TestALongPastIsFollowedInParts(t *testing.T) {
	s := newLogServer(t)
	from := s.now
	s.add("first", 0)
	s.now = s.now.Add(24 * time.Hour)
	for i := range 8_000 {
		s.add(fmt.Sprintf("%05d", i), 0)
		s.now = s.now.Add(time.Millisecond)
	}
	s.now = s.now.Add(50 * time.Second)
	s.add("last", 0)
	got, err := s.follow(t, client.LogFilter{From: from}, client.Following{})
	if err != nil || len(got) != 8_002 || got[0] != "first" || got[8_001] != "last" || !slices.IsSorted(got[1:8_001]) {
		t.Errorf("Follow = %d entries, %v, or in another order", len(got), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looks > 150 {
		t.Errorf("it took %d looks: pages are read more than once", s.looks)
	}
}

func TestPausesGrowWhileThereIsNoAnswer(t *testing.T) {
	s := newLogServer(t)
	s.refuse = slices.Repeat([]answer{broken}, 7)
	var at []time.Time
	note := func() { at = append(at, s.now) }
	_, _ = s.follow(t, client.LogFilter{}, client.Following{Every: time.Second}, slices.Repeat([]func(){note}, 8)...)
	var got []time.Duration
	for i := range at[1:] {
		got = append(got, at[i+1].Sub(at[i]).Round(time.Second))
	}
	want := []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second, time.Second}
	if !slices.Equal(got, want) {
		t.Errorf("pauses %v, want %v", got, want)
	}
}

func TestFollowingTakesNoEnd(t *testing.T) {
	s := newLogServer(t)
	if got, err := s.follow(t, client.LogFilter{Before: s.now}, client.Following{}); len(got) > 0 || !errors.Is(err, client.ErrInvalid) {
		t.Errorf("Follow = %q, %v", got, err)
	}
}

// TestTheLogOfAServerIsFollowed has the real server make the entries, those of
// the looks among them.
func TestTheLogOfAServerIsFollowed(t *testing.T) {
	storetest.Long(t)
	k := keeptest.Start(t, keeptest.Options{})
	keys, _, err := k.Demo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(k.URL, client.WithKey(keys.ManagementKey), client.WithHTTPClient(k.Client))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	happen := func(n int) error {
		for range n {
			if _, err := c.Tenant.Get(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	if err := happen(1); err != nil {
		t.Fatal(err)
	}
	const writers, each = 4, 60
	failed := make(chan error, writers)
	var got int
	seen := make(map[string]bool)
	for e, err := range c.Logs.Follow(ctx, client.LogFilter{}, client.Following{Past: 1, Every: time.Millisecond}) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[e.ID] || e.Message != "Tenant retrieved" {
			t.Errorf("entry %s, %s", e.ID, e.Message)
		}
		seen[e.ID] = true
		switch got++; got {
		case 1:
			for range writers {
				go func() { failed <- happen(each) }()
			}
		case 1 + writers*each:
			for range writers {
				if err := <-failed; err != nil {
					t.Error(err)
				}
			}
			cancel()
		}
	}
	if got != 1+writers*each {
		t.Errorf("followed %d entries, want %d", got, 1+writers*each)
	}
}

// A server takes no trace id that could be a card number, and what it makes in
// its place is not known to be the follower's own.
func TestTheTraceIDOfAFollowerIsTaken(t *testing.T) {
	for range 30_000 {
		if id := client.NewUUID(); luhn.HasCard(id) {
			t.Fatalf("a follower's trace id is %s", id)
		}
	}
}
