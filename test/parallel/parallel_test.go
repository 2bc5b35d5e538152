// Package parallel_test lets many callers do the same at once.
package parallel_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

const mergePatch = "application/merge-patch+json"

func start(t *testing.T) (k *keeptest.Server, key, management string) {
	k = keeptest.Start(t, keeptest.Options{})
	tenant := k.Tenant(t)
	made := k.Application(t, tenant.Tenant.ID, api.CreateApplication{Type: "private", Rules: []api.Rule{
		{Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read", "token:update", "token:delete", "token:search"}},
	}})
	return k, made.Key, tenant.Application.Key
}

// together runs do on so many goroutines that begin at the same moment.
func together(n int, do func(i int)) {
	var begin, done sync.WaitGroup
	begin.Add(1)
	for i := range n {
		done.Go(func() {
			begin.Wait()
			do(i)
		})
	}
	begin.Done()
	done.Wait()
}

// total asks how many tokens a query finds.
func total(t *testing.T, k *keeptest.Server, key, query string) int64 {
	t.Helper()
	body, err := json.Marshal(map[string]string{"query": query})
	if err != nil {
		t.Fatal(err)
	}
	var page api.List[api.Token]
	k.Call(t, "POST", "/tokens/search", key, string(body)).Into(t, 200, &page)
	return page.Pagination.TotalItems
}

// entries counts what the log says was done to a token.
func entries(t *testing.T, k *keeptest.Server, management, id, operation string) (n int) {
	t.Helper()
	for page := 1; ; page++ {
		var list api.List[api.LogEntry]
		k.Call(t, "GET", fmt.Sprintf("/logs?entity_id=%s&size=100&page=%d", id, page), management, "").Into(t, 200, &list)
		for _, e := range list.Data {
			if e.Operation == operation {
				n++
			}
		}
		if len(list.Data) < 100 {
			return n
		}
	}
}

func TestAHundredCreatesOfTheSameCardMakeOneToken(t *testing.T) {
	k, key, management := start(t)
	const callers = 100
	answers := make([]keeptest.Answer, callers)
	together(callers, func(i int) {
		body := fmt.Sprintf(`{"type":"card","data":{"number":"4242424242424242"},"deduplicate_token":true,"metadata":{"caller":"%d"}}`, i)
		answers[i] = k.Call(t, "POST", "/tokens", key, body)
	})
	var ids, metadata []string
	for _, a := range answers {
		var made api.Token
		a.Into(t, 201, &made)
		ids, metadata = append(ids, made.ID), append(metadata, fmt.Sprint(made.Metadata))
	}
	slices.Sort(ids)
	slices.Sort(metadata)
	if got := slices.Compact(ids); len(got) != 1 {
		t.Fatalf("%d creates at once made %d tokens, want 1", callers, len(got))
	}
	if got := slices.Compact(metadata); len(got) != 1 {
		t.Errorf("the answers show the metadata of %d callers, want that of the one who was first: %v", len(got), got)
	}
	if n := total(t, k, key, "type:card"); n != 1 {
		t.Errorf("there are %d cards, want 1", n)
	}
	if made, read := entries(t, k, management, ids[0], "create"), entries(t, k, management, ids[0], "read"); made != 1 || read < callers-1 {
		t.Errorf("the log has %d creates and %d reads, want 1 and at least %d", made, read, callers-1)
	}
}

func TestParallelPatchesOfOneTokenAreAllThereAndNoneInHalf(t *testing.T) {
	k, key, management := start(t)
	var made api.Token
	k.Call(t, "POST", "/tokens", key, `{"type":"token","data":{"last":-1,"again":-1},"metadata":{"last":"-1"},"search_indexes":["{{ data.last }}"]}`).Into(t, 201, &made)
	path := "/tokens/" + made.ID
	callers := 45 // a token has at most 50 keys of metadata
	if k.Nodes() > 1 {
		callers = 20 // two nodes take no turns, and give up after some seconds
	}
	statuses := make([]int, callers)
	together(callers, func(i int) {
		// Each writes something of its own, which must stay, and the same
		// number in four places, which must come from one and the same patch.
		patch := fmt.Sprintf(`{"data":{"by %[1]d":%[1]d,"last":%[1]d,"again":%[1]d},"metadata":{"by_%[1]d":"%[1]d","last":"%[1]d"},"mask":"mask %[1]d"}`, i)
		statuses[i] = k.Call(t, "PATCH", path, key, patch, "Content-Type", mergePatch).Status
	})
	for i, status := range statuses {
		if status != 200 {
			t.Errorf("patch %d = %d, want 200: a change that meets another is worked out again", i, status)
		}
	}
	var got api.Token
	k.Call(t, "GET", path, key, "").Into(t, 200, &got)
	var data map[string]int
	if err := json.Unmarshal(got.Data, &data); err != nil {
		t.Fatal(err)
	}
	for i := range callers {
		if n, ok := data[fmt.Sprintf("by %d", i)]; !ok || n != i || got.Metadata[fmt.Sprintf("by_%d", i)] != fmt.Sprint(i) {
			t.Errorf("the change of patch %d is lost", i)
		}
	}
	last := data["last"]
	if data["again"] != last || got.Metadata["last"] != fmt.Sprint(last) || string(got.Mask) != fmt.Sprintf(`"mask %d"`, last) {
		t.Errorf("the token is made of several patches: data %d and %d, metadata %s, mask %s", last, data["again"], got.Metadata["last"], got.Mask)
	}
	// The indexes must be those of the last patch and of no other.
	for i := -1; i < callers; i++ {
		want := int64(0)
		if i == last {
			want = 1
		}
		for _, query := range []string{fmt.Sprintf(`data:"%d"`, i), fmt.Sprintf(`metadata.last:"%d"`, i)} {
			if n := total(t, k, key, query); n != want {
				t.Errorf("%s finds %d tokens, want %d", query, n, want)
			}
		}
	}
	if n := entries(t, k, management, made.ID, "update"); n != callers {
		t.Errorf("the log has %d updates, want %d", n, callers)
	}
}

func TestPatchesThatMeetADeletionLeaveNothingBehind(t *testing.T) {
	k, key, management := start(t)
	for round := range 5 {
		var made api.Token
		k.Call(t, "POST", "/tokens", key, `{"type":"token","data":{"x":1},"metadata":{"of":"all"}}`).Into(t, 201, &made)
		const callers = 20
		statuses := make([]int, callers)
		together(callers, func(i int) {
			if i == callers/2 {
				statuses[i] = k.Call(t, "DELETE", "/tokens/"+made.ID, key, "").Status
				return
			}
			statuses[i] = k.Call(t, "PATCH", "/tokens/"+made.ID, key, fmt.Sprintf(`{"data":{"x":%d},"metadata":{"by":"%d"}}`, i, i), "Content-Type", mergePatch).Status
		})
		done := 0
		for i, status := range statuses {
			switch {
			case i == callers/2 && status != 204, i != callers/2 && status != 200 && status != 404:
				t.Errorf("round %d: call %d = %d", round, i, status)
			case status == 200:
				done++
			}
		}
		if n := entries(t, k, management, made.ID, "update"); n != done {
			t.Errorf("round %d: %d patches were answered and the log has %d", round, done, n)
		}
		queries := []string{"metadata.of:all"}
		for i := range callers {
			queries = append(queries, fmt.Sprintf("metadata.by:%d", i))
		}
		if n := total(t, k, key, strings.Join(queries, " OR ")); n != 0 {
			t.Errorf("round %d: %d tokens are found after the deletion", round, n)
		}
	}
}
