package token_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/date"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

func ids(list []token.Token) string {
	var out []string
	for _, t := range list {
		out = append(out, t.ID)
	}
	return strings.Join(out, " ")
}

// five makes tokens a second apart: t-0 at start, t-4 last.
func five(w *world) {
	w.t.Helper()
	for i, request := range []string{
		`"type":"card_number","data":"` + visa + `","metadata":{"tier":"gold","n":"0"}`,
		`"type":"token","data":"Jane Doe","metadata":{"tier":"Gold","n":"1"},"search_indexes":["{{ data }}"],"containers":["/a/"]`,
		`"type":"token","data":"a \"quoted\" \\","search_indexes":["{{ data }}"],"containers":["/a/b/","/c/"]`,
		`"type":"bank","data":{"routing_number":"021000021","account_number":"1"},"metadata":{"tier":"lead"}`,
		`"type":"token","data":"other","containers":["/c/"]`,
	} {
		w.mustCreate(w.revealing(), `{"id":"t-`+strconv.Itoa(i)+`",`+request+`}`)
		w.clock.Advance(time.Second)
	}
	w.mustPatch(w.revealing(), "t-1", `{"metadata":{"n":"one"}}`)
}

func TestList(t *testing.T) {
	w := newWorld(t)
	five(w)
	c := w.revealing()
	fingerprint := w.mustGet(c, "t-4").Fingerprint
	for name, test := range map[string]struct {
		caller access.Caller
		filter token.Filter
		page   store.Page
		want   string
		total  int64
	}{
		"newest first":            {c, token.Filter{}, store.Page{Limit: 9}, "t-4 t-3 t-2 t-1 t-0", 5},
		"a page":                  {c, token.Filter{}, store.Page{Offset: 2, Limit: 2}, "t-2 t-1", 5},
		"past the end":            {c, token.Filter{}, store.Page{Offset: 9, Limit: 2}, "", 5},
		"by ids, in their order":  {c, token.Filter{IDs: []string{"t-1", "t-4", "none", "t-1", "t-0"}}, store.Page{Limit: 9}, "t-1 t-4 t-0", 3},
		"a page of ids":           {c, token.Filter{IDs: []string{"t-1", "t-4", "t-0"}}, store.Page{Offset: 1, Limit: 1}, "t-4", 3},
		"by type":                 {c, token.Filter{Types: []string{"bank", "card_number"}}, store.Page{Limit: 9}, "t-3 t-0", 2},
		"by no known type":        {c, token.Filter{Types: []string{"nonsense"}}, store.Page{Limit: 9}, "", 0},
		"by metadata":             {c, token.Filter{Metadata: map[string]string{"tier": "GOLD"}}, store.Page{Limit: 9}, "t-1 t-0", 2},
		"by keys as written":      {c, token.Filter{Metadata: map[string]string{"Tier": "gold"}}, store.Page{Limit: 9}, "", 0},
		"by two keys":             {c, token.Filter{Metadata: map[string]string{"tier": "gold", "n": "ONE"}}, store.Page{Limit: 9}, "t-1", 1},
		"by all at once":          {c, token.Filter{IDs: []string{"t-0", "t-1"}, Types: []string{"token"}, Metadata: map[string]string{"tier": "gold"}}, store.Page{Limit: 9}, "t-1", 1},
		"by container":            {c, token.Filter{Container: "/A/"}, store.Page{Limit: 9}, "t-1", 1},
		"by container and below":  {c, token.Filter{Container: "/a/*"}, store.Page{Limit: 9}, "t-2 t-1", 2},
		"by every container":      {c, token.Filter{Container: "/*"}, store.Page{Limit: 9}, "t-4 t-3 t-2 t-1 t-0", 5},
		"by no container at all":  {c, token.Filter{Container: "a"}, store.Page{Limit: 9}, "", 0},
		"by a container not mine": {w.within("/c/"), token.Filter{Container: "/a/"}, store.Page{Limit: 9}, "", 0},
		"by fingerprint":          {c, token.Filter{Fingerprint: fingerprint}, store.Page{Limit: 9}, "t-4", 1},
		"by both":                 {c, token.Filter{Fingerprint: fingerprint, Container: "/a/*"}, store.Page{Limit: 9}, "", 0},
		"by part of one":          {c, token.Filter{Fingerprint: fingerprint[1:]}, store.Page{Limit: 9}, "", 0},
		"in some containers":      {w.within("/a/"), token.Filter{}, store.Page{Limit: 9}, "t-1", 1},
		"in two of them":          {w.within("/a/", "/c/"), token.Filter{}, store.Page{Limit: 2}, "t-4 t-2", 3},
		"ids, in some":            {w.within("/a/"), token.Filter{IDs: []string{"t-4", "t-1"}}, store.Page{Limit: 9}, "t-1", 1},
		"in none that is used":    {w.within("/z/"), token.Filter{}, store.Page{Limit: 9}, "", 0},
		"session by id":           {session(w, "id", "t-"), token.Filter{}, store.Page{Offset: 1, Limit: 2}, "t-3 t-2", 5},
		"session by one id":       {session(w, "id", "t-2"), token.Filter{}, store.Page{Limit: 9}, "t-2", 1},
		"session by id, by ids":   {session(w, "id", "t-2"), token.Filter{IDs: []string{"t-1", "t-2"}}, store.Page{Limit: 9}, "t-2", 1},
		"session by container":    {session(w, "container", "/c/"), token.Filter{}, store.Page{Limit: 9}, "t-4", 1},
		"other tenant":            {w.stranger(), token.Filter{}, store.Page{Limit: 9}, "", 0},
	} {
		list, total, err := w.tokens.List(t.Context(), test.caller, test.filter, test.page)
		if err != nil || ids(list) != test.want || total != test.total {
			t.Errorf("%s: List = %q of %d, %s, want %q of %d", name, ids(list), total, says(err), test.want, test.total)
		}
	}
	_, _, err := w.tokens.List(t.Context(), w.only(access.TokenCreate), token.Filter{}, store.Page{Limit: 9})
	wantFault(t, "List without token:read", err, fault.Forbidden, "")
}

func TestListFromPlaceToPlace(t *testing.T) {
	w := newWorld(t)
	five(w)
	for name, test := range map[string]struct {
		caller access.Caller
		filter token.Filter
		want   string
	}{
		"all":           {w.revealing(), token.Filter{}, "t-4 t-3 t-2 t-1 t-0"},
		"by ids":        {w.revealing(), token.Filter{IDs: []string{"t-1", "t-4", "t-1", "t-0"}}, "t-1 t-4 t-0"},
		"by metadata":   {w.revealing(), token.Filter{Metadata: map[string]string{"tier": "gold"}}, "t-1 t-0"},
		"session by id": {session(w, "id", "t-"), token.Filter{}, "t-4 t-3 t-2 t-1 t-0"},
	} {
		for size := 1; size <= 6; size++ {
			var seen []string
			for start := ""; ; {
				list, next, err := w.tokens.ListFrom(t.Context(), test.caller, test.filter, start, size)
				if err != nil || len(seen) > 10 {
					t.Fatalf("%s: %s after %v", name, says(err), seen)
				}
				for _, found := range list {
					seen = append(seen, found.ID)
				}
				if start = next; next == "" {
					break
				}
			}
			if got := strings.Join(seen, " "); got != test.want {
				t.Errorf("%s by %d = %s, want %s", name, size, got, test.want)
			}
		}
	}
	// Rows that come and go elsewhere do not move a place.
	_, next, err := w.tokens.ListFrom(t.Context(), w.revealing(), token.Filter{}, "", 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.tokens.Delete(t.Context(), w.revealing(), "t-3"); err != nil {
		t.Fatal(err)
	}
	w.mustCreate(w.revealing(), `{"type":"token","data":1}`)
	if list, _, err := w.tokens.ListFrom(t.Context(), w.revealing(), token.Filter{}, next, 2); err != nil || ids(list) != "t-2 t-1" {
		t.Errorf("behind a deleted token: %s, %v", ids(list), err)
	}
	for name, start := range map[string]string{"made up": "bm9uc2Vuc2U", "not base64": "?", "cut": next[:len(next)-4], "changed": "A" + next[1:]} {
		_, _, err := w.tokens.ListFrom(t.Context(), w.revealing(), token.Filter{}, start, 2)
		wantFault(t, name, err, fault.Invalid, "start")
	}
	_, _, err = w.tokens.ListFrom(t.Context(), w.stranger(), token.Filter{}, next, 2)
	wantFault(t, "another tenant's place", err, fault.Invalid, "start")
	if raw, err := base64.RawURLEncoding.DecodeString(next); err != nil || bytes.Contains(raw, []byte(`"t-3"`)) || strings.HasPrefix(string(raw), "t-3") {
		t.Error("a place shows an id")
	}
}

func TestSearch(t *testing.T) {
	w := newWorld(t)
	five(w)
	c := w.revealing()
	fingerprint := w.mustGet(c, "t-4").Fingerprint
	for query, want := range map[string]string{
		`id:t-3`: "t-3", `id:"t-3" OR id:t-0`: "t-3 t-0", `id:none`: "", `id:t-3 AND type:token`: "",
		`type:token`: "t-4 t-2 t-1", `NOT type:token`: "t-3 t-0", `type:nonsense`: "",
		`container:/a/`: "t-1", `container:"/a/*"`: "t-2 t-1", `container:/A/*`: "t-2 t-1", `container:"/*"`: "t-4 t-3 t-2 t-1 t-0", `container:/`: "",
		`container:"/c/" AND NOT container:"/a/*"`: "t-4",
		`fingerprint:` + fingerprint:               "t-4",
		`data:"jane doe"`:                          "t-1", `data:jane`: "", `data:"a \"quoted\" \\"`: "t-2",
		`metadata.tier:gold`: "t-1 t-0", `metadata.tier:GOLD AND metadata.n:one`: "t-1", `metadata.tier:gold AND NOT metadata.n:one`: "t-0",
		`metadata.tier:gold OR metadata.tier:lead`:                                 "t-3 t-1 t-0",
		`metadata.tier:gold OR metadata.n:0 OR id:t-4`:                             "t-4 t-1 t-0",
		`(metadata.tier:gold OR metadata.tier:lead) AND (type:bank OR type:token)`: "t-3 t-1",
		`metadata.tier:gold AND type:token`:                                        "t-1",
		`type:token OR type:bank AND id:t-3`:                                       "t-4 t-3 t-2 t-1",
		`NOT (type:token OR type:bank)`:                                            "t-0", `NOT NOT type:bank`: "t-3",
		`created_by:` + appID: "t-4 t-3 t-2 t-1 t-0", `created_by:nobody`: "", `modified_by:` + appID: "t-1",
		`created_at:[2031-05-06T07:08:01Z TO 2031-05-06T07:08:03Z]`: "t-3 t-2 t-1",
		`created_at:{2031-05-06T07:08:01Z TO 2031-05-06T07:08:03Z}`: "t-2",
		`created_at:[2031-05-06T07:08:01Z TO 2031-05-06T07:08:03Z}`: "t-2 t-1",
		`created_at:[* TO "2031-05-06T07:08:01Z"]`:                  "t-1 t-0",
		`created_at:{2031-05-06T07:08:03Z TO *}`:                    "t-4",
		`created_at:[2031-05-06 TO 2031-05-06]`:                     "t-4 t-3 t-2 t-1 t-0",
		`created_at:2031-05-06`:                                     "t-4 t-3 t-2 t-1 t-0", `created_at:2031-05-06T09:08:02+02:00`: "t-2", `created_at:[2031-05-07 TO *]`: "",
		`created_at:{2031-05-06 TO *}`: "", `created_at:{* TO 2031-05-06}`: "", `created_at:[* TO *]`: "t-4 t-3 t-2 t-1 t-0",
		`modified_at:[* TO *]`: "t-1", `NOT modified_at:[* TO *] AND type:token`: "t-4 t-2",
		"  type:bank\t": "t-3", `(type:bank)`: "t-3",
	} {
		list, total, err := w.tokens.Search(t.Context(), c, query, store.Page{Limit: 9})
		if err != nil || ids(list) != want || int(total) != len(list) {
			t.Errorf("Search(%s) = %q of %d, %s, want %q", query, ids(list), total, says(err), want)
			continue
		}
		// Pages and places find the same.
		var paged, placed []string
		for i := range 6 {
			list, _, err := w.tokens.Search(t.Context(), c, query, store.Page{Offset: i, Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			paged = append(paged, strings.Fields(ids(list))...)
		}
		for start, i := "", 0; i < 6; i++ {
			list, next, err := w.tokens.SearchFrom(t.Context(), c, query, start, 1)
			if err != nil {
				t.Fatal(err)
			}
			placed = append(placed, strings.Fields(ids(list))...)
			if start = next; next == "" {
				break
			}
		}
		if !slices.Equal(paged, strings.Fields(want)) || !slices.Equal(placed, strings.Fields(want)) {
			t.Errorf("Search(%s) page by page = %v, place by place = %v, want %s", query, paged, placed, want)
		}
	}
	for name, test := range map[string]struct {
		caller access.Caller
		query  string
		want   string
	}{
		"in some containers": {w.within("/a/"), `metadata.tier:gold`, "t-1"},
		"session by id":      {session(w, "id", "t-0"), `metadata.tier:gold OR type:bank`, "t-0"},
		"other tenant":       {w.stranger(), `type:token`, ""},
	} {
		if list, total, err := w.tokens.Search(t.Context(), test.caller, test.query, store.Page{Limit: 9}); err != nil || ids(list) != test.want || int(total) != len(list) {
			t.Errorf("%s: %q of %d, %s, want %q", name, ids(list), total, says(err), test.want)
		}
	}
	if list, _, err := w.tokens.Search(t.Context(), w.only(access.TokenSearch), `id:t-1`, store.Page{Limit: 9}); err != nil || member(list[0], "data") != `"XXXX Doe"` {
		t.Errorf("a plain token:search shows %s, %v", text(list[0].Object()), err)
	}
	_, _, err := w.tokens.Search(t.Context(), w.only(access.TokenRead), `id:t-1`, store.Page{Limit: 9})
	wantFault(t, "Search without token:search", err, fault.Forbidden, "")
}

func TestAQueryThatIsNotUnderstoodSaysWhere(t *testing.T) {
	w := newWorld(t)
	for query, at := range map[string]int{
		"": 1, "jane": 1, "type:": 6, "type:token AND": 15, "type:token type:bank": 12, "type:token and id:x": 12, "(type:token": 12, "type:token)": 11,
		"nonsense:x": 1, "é:x": 1, "type:tok*": 6, `data:"x`: 6, "metadata.:x": 1, "metadata.a b:x": 1, "container:a": 11, `container:"/a*"`: 11,
		"created_at:soon": 12, "created_at:[2031-01-01 TO": 26, "created_at:[2031-01-01 2031-01-02]": 24, "created_at:*": 13, "AND": 1, "NOT": 4, "id:a OR OR": 9,
		"type:é AND x": 12, "type:\"a\" AND )": 14, "[id:a]": 1,
	} {
		_, _, err := w.tokens.Search(t.Context(), w.revealing(), query, store.Page{Limit: 9})
		want := "is not understood at character " + strconv.Itoa(at)
		if query == "created_at:soon" {
			want += ": this " + date.Wanted
		}
		if got := fault.Of(err).Fields()["query"]; len(got) != 1 || got[0] != want {
			t.Errorf("Search(%s) = %v, want %s", query, got, want)
		}
	}
	for _, query := range []string{strings.Repeat("(", 100), strings.Repeat("NOT ", 100) + "id:a", strings.Repeat("id:aaa OR ", 100) + "id:a", strings.Repeat("x", 5000)} {
		_, _, err := w.tokens.Search(t.Context(), w.revealing(), query, store.Page{Limit: 9})
		wantFault(t, "a query beyond the bounds", err, fault.Invalid, "query")
	}
}

// TestWalksGoOnBeyondOneBatch lists and searches more tokens than a walk takes
// at a time, where no counter has the answer.
func TestWalksGoOnBeyondOneBatch(t *testing.T) {
	w := newWorld(t)
	var want []string
	for i := range 70 {
		id := fmt.Sprintf("t-%02d", i)
		w.mustCreate(w.revealing(), `{"type":"token","data":1,"id":"`+id+`","metadata":{"half":"`+strconv.Itoa(i%2)+`","third":"`+strconv.Itoa(i%3)+`"}}`)
		w.clock.Advance(time.Duration(i%3) * time.Second) // some at the same instant
		want = append(want, id)
	}
	slices.Reverse(want)
	third := slices.DeleteFunc(slices.Clone(want), func(id string) bool {
		i, _ := strconv.Atoi(strings.TrimPrefix(id, "t-"))
		return i%2 != 0 && i%3 != 0
	})
	c := session(w, "id", "t-")
	for name, test := range map[string]struct {
		page func(store.Page) ([]token.Token, int64, error)
		from func(string) ([]token.Token, string, error)
		want []string
	}{
		"a list by id": {
			func(p store.Page) ([]token.Token, int64, error) {
				return w.tokens.List(t.Context(), c, token.Filter{}, p)
			},
			func(start string) ([]token.Token, string, error) {
				return w.tokens.ListFrom(t.Context(), c, token.Filter{}, start, 9)
			}, want},
		"a search in two indexes": {
			func(p store.Page) ([]token.Token, int64, error) {
				return w.tokens.Search(t.Context(), w.revealing(), "metadata.half:0 OR metadata.third:0", p)
			},
			func(start string) ([]token.Token, string, error) {
				return w.tokens.SearchFrom(t.Context(), w.revealing(), "metadata.half:0 OR metadata.third:0", start, 9)
			}, third},
		"a search without an index": {
			func(p store.Page) ([]token.Token, int64, error) {
				return w.tokens.Search(t.Context(), w.revealing(), "created_by:"+appID, p)
			},
			func(start string) ([]token.Token, string, error) {
				return w.tokens.SearchFrom(t.Context(), w.revealing(), "created_by:"+appID, start, 9)
			}, want},
	} {
		list, total, err := test.page(store.Page{Offset: 20, Limit: 20})
		if err != nil || int(total) != len(test.want) || ids(list) != strings.Join(test.want[20:min(40, len(test.want))], " ") {
			t.Errorf("%s: the second page = %s of %d, %s, want %v", name, ids(list), total, says(err), test.want[20:])
		}
		var seen []string
		for start, i := "", 0; i < 20; i++ {
			list, next, err := test.from(start)
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, strings.Fields(ids(list))...)
			if start = next; next == "" {
				break
			}
		}
		if !slices.Equal(seen, test.want) {
			t.Errorf("%s from place to place = %v, want %v", name, seen, test.want)
		}
	}
}
