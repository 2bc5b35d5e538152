package contract_test

import (
	"fmt"
	"strings"
	"testing"
)

// applications makes some and names them a0, a1, …, oldest first.
func (w *walk) applications(types ...string) {
	w.t.Helper()
	for i, kind := range types {
		w.walk(step{call: "POST /applications", status: 201, body: fmt.Sprintf(`{"name":"a%d","type":%q,"permissions":["token:create"],"create_key":false}`, i, kind),
			want: fmt.Sprintf(`{"id":"<uuid>","tenant_id":"{tenant}","name":"a%d","type":%q,"permissions":["token:create"],"rules":[],"keys":[],`+
				`"created_by":"{manager}","created_at":"<time>"}`, i, kind),
			keep: map[string]string{"id": fmt.Sprint("a", i)}, location: fmt.Sprintf("/applications/{a%d}", i)})
	}
}

func TestListsOfApplications(t *testing.T) {
	w := newWalk(t)
	w.applications("public", "private", "public", "private", "public")
	item := func(names ...string) string {
		var items []string
		for _, name := range names {
			kind := map[string]string{"a0": "public", "a1": "private", "a2": "public", "a3": "private", "a4": "public"}[name]
			items = append(items, fmt.Sprintf(`{"id":"{%s}","tenant_id":"{tenant}","name":%[1]q,"type":%[2]q,"permissions":["token:create"],"rules":[],"keys":[],`+
				`"created_by":"{manager}","created_at":"<time>"}`, name, kind))
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	page := func(total, number, size, pages int) string {
		return fmt.Sprintf(`{"pagination":{"total_items":%d,"page_number":%d,"page_size":%d,"total_pages":%d},"data":`, total, number, size, pages)
	}
	const ours = "type=public&type=private"
	for _, s := range []step{
		{name: "newest first", call: "GET /applications?" + ours, want: page(5, 1, 20, 1) + item("a4", "a3", "a2", "a1", "a0") + `}`},
		{name: "the first page", call: "GET /applications?size=2&" + ours, want: page(5, 1, 2, 3) + item("a4", "a3") + `}`},
		{name: "the last page", call: "GET /applications?size=2&page=3&" + ours, want: page(5, 3, 2, 3) + item("a0") + `}`},
		{name: "past the end", call: "GET /applications?size=2&page=4&" + ours, want: page(5, 4, 2, 3) + `[]}`},
		{name: "far past the end", call: "GET /applications?size=100&page=9999999999&" + ours, want: page(5, 9999999999, 100, 1) + `[]}`},
		{name: "the last page that there can be", call: "GET /applications?size=100&page=99999999999&" + ours, want: page(5, 99999999999, 100, 1) + `[]}`},
		{name: "one type", call: "GET /applications?type=private", want: page(2, 1, 20, 1) + item("a3", "a1") + `}`},
		{name: "no type", call: "GET /applications?type=other", want: page(0, 1, 20, 0) + `[]}`},
		{name: "one id", call: "GET /applications?id={a2}", want: page(1, 1, 20, 1) + item("a2") + `}`},
		{name: "ids, one unknown, one twice", call: "GET /applications?id={a0}&id={a3}&id={nothing}&id={a0}", want: page(2, 1, 20, 1) + item("a3", "a0") + `}`},
		{name: "ids and a type", call: "GET /applications?id={a0}&id={a1}&type=public", want: page(1, 1, 20, 1) + item("a0") + `}`},
		{name: "an id of nothing", call: "GET /applications?id=4242424242424242", want: page(0, 1, 20, 0) + `[]}`},
		{name: "unknown parameters", call: "GET /applications?size=1&page=5&name=x&" + ours, want: page(5, 5, 1, 5) + item("a0") + `}`},
	} {
		s.status = 200
		w.step(s)
	}
}

func TestPagesThatDoNotExist(t *testing.T) {
	w := newWalk(t)
	const number, size = "must be a whole number from 1", "must be a whole number from 1 to 100"
	for _, path := range []string{"/applications", "/logs"} {
		for query, want := range map[string]string{
			"page=0": refused("page", number), "page=-1": refused("page", number), "page=x": refused("page", number), "page=": refused("page", number),
			"page=1.5": refused("page", number), "page=9007199254740992": refused("page", number), "page=99999999999999999999": refused("page", number),
			"size=0": refused("size", size), "size=101": refused("size", size), "size=x": refused("size", size), "size=-5": refused("size", size),
			"size=%00": problem(400, "the query is not valid"), "size=%zz": problem(400, "the query is not valid"),
			"size=0&page=0": strings.Replace(refused("page", number), `]}`, `],"size":["`+size+`"]}`, 1),
		} {
			w.step(step{call: "GET " + path + "?" + query, status: 400, want: want})
		}
	}
}
