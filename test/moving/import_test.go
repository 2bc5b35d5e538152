package moving_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// world is a server with a tenant.
type world struct {
	*keeptest.Server
	t      *testing.T
	tenant string
	keys   map[string]string // of applications, by their name
	ids    map[string]string
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{Server: keeptest.Start(t, keeptest.Options{}), t: t, keys: map[string]string{}, ids: map[string]string{}}
	w.tenant = w.Tenant(t).Tenant.ID
	w.application("manager", "management", "tenant:read", "tenant:update", "log:read", "application:read", "application:update", "application:delete")
	w.application("maker", "private", "token:create", "token:read", "token:search")
	w.application("all", "private", "token:create", "token:search")
	return w
}

func (w *world) application(name, kind string, permissions ...string) {
	w.t.Helper()
	in := api.CreateApplication{Name: name, Type: kind, Permissions: permissions}
	if name == "all" {
		in.Rules = []api.Rule{{Container: "/", Transform: "reveal", Permissions: []string{"token:read"}}}
	}
	made := w.Application(w.t, w.tenant, in)
	w.keys[name], w.ids[name] = made.Key, made.ID
}

// send imports lines and returns the results.
func (w *world) send(as, query string, lines ...string) []api.ImportResult {
	w.t.Helper()
	got := w.Call(w.t, "POST", "/imports"+query, w.keys[as], strings.Join(lines, "\n"))
	if got.Status != 200 {
		w.t.Fatalf("POST /imports%s = %s, want 200", query, got)
	}
	return resultsOf(w.t, got.Body)
}

func resultsOf(t *testing.T, body string) (list []api.ImportResult) {
	t.Helper()
	for line := range strings.Lines(body) {
		var r api.ImportResult
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("a result %q: %v", line, err)
		}
		list = append(list, r)
	}
	return list
}

// states are the lines and their states, as text.
func states(list []api.ImportResult) string {
	var b strings.Builder
	for _, r := range list {
		_, _ = fmt.Fprintf(&b, "%d %s;", r.Line, r.Status)
	}
	return b.String()
}

// count is how many tokens the tenant has.
func (w *world) count() int64 {
	w.t.Helper()
	var list api.List[api.Token]
	w.Call(w.t, "GET", "/tokens?size=1", w.keys["all"], "").Into(w.t, 200, &list)
	return list.Pagination.TotalItems
}

const card = `{"type":"card","data":{"number":"4242424242424242","expiration_month":12,"expiration_year":2030}}`

func TestEachLineBecomesATokenOrIsRejected(t *testing.T) {
	w := start(t)
	w.send("all", "", `{"id":"taken-one","type":"token","data":"x"}`)
	got := w.send("maker", "?first_line=7",
		card,
		`{"id":"own-id","type":"token","data":"secret-value","metadata":{"old":"17"},"containers":["/a/b/"]}`,
		``,
		`{"type":"card","data":{"number":"4242424242424241"}}`,
		`{"type":"token"}`,
		`{"id":"taken-one","type":"token","data":"x"}`,
		`not json 4242424242424242`,
		`[1]`,
		`{"type":"card","data":{"number":"4242424242424242","cvc":"123"}}`,
		`{"id":"4242424242424242","type":"token","data":"y"}`,
		`{"type":"token","data":"last"}`)
	want := "7 created;8 created;10 rejected;11 rejected;12 rejected;13 rejected;14 rejected;15 rejected;16 rejected;17 created;18 end;"
	if states(got) != want {
		t.Errorf("results = %s\nwant %s", states(got), want)
	}
	for line, field := range map[int]string{2: "data.number", 3: "data", 6: "", 7: "data.cvc", 8: "id"} {
		if r := got[line]; field != "" && len(r.Errors[field]) == 0 {
			t.Errorf("line %d: errors = %v, want one of %s", r.Line, r.Errors, field)
		}
	}
	if got[1].ID != "own-id" {
		t.Errorf("the id of line 8 = %q, want the one that was sent", got[1].ID)
	}
	raw, _ := json.Marshal(got)
	for _, value := range []string{"424242424242424", "secret-value", `"x"`, "last"} {
		if strings.Contains(string(raw), value) {
			t.Errorf("the results repeat %s", value)
		}
	}
	var tok api.Token
	w.Call(t, "GET", "/tokens/own-id", w.keys["all"], "").Into(t, 200, &tok)
	if string(tok.Data) != `"secret-value"` || tok.Metadata["old"] != "17" || tok.Containers[0] != "/a/b/" || tok.CreatedBy != w.ids["maker"] {
		t.Errorf("the token of line 8 = %+v", tok)
	}
	if n := w.count(); n != 4 {
		t.Errorf("there are %d tokens, want 4", n)
	}
}

func TestLinesThatAreSentAgainMakeNothingTwice(t *testing.T) {
	w := start(t)
	line := func(n int) string { return `{"type":"token","data":"value-` + strconv.Itoa(n) + `"}` }
	var lines []string
	for n := range 2500 {
		lines = append(lines, line(n))
	}
	lines[1200] = `{"type":"token"}`
	first := w.send("maker", "?id=one", lines[:1500]...)
	again := w.send("maker", "?id=one&first_line=901", lines[900:]...)
	if len(first) != 1501 || len(again) != 1601 {
		t.Fatalf("results: %d and %d, want 1501 and 1601", len(first), len(again))
	}
	for i := range 600 {
		if a, b := first[900+i], again[i]; a.Line != b.Line || a.ID != b.ID || a.Status != b.Status || fmt.Sprint(a.Errors) != fmt.Sprint(b.Errors) {
			t.Fatalf("line %d: %+v, and when it was sent again %+v", a.Line, a, b)
		}
	}
	if n := w.count(); n != 2499 {
		t.Errorf("there are %d tokens, want 2499", n)
	}
	w.send("maker", "?id=one", lines[:10]...)
	w.send("maker", "?id=one&first_line=2501", "", "")
	if n := w.count(); n != 2499 {
		t.Errorf("there are %d tokens after the first lines were sent again, want 2499", n)
	}
	if got := w.Call(t, "POST", "/imports?id=one&first_line=2503", w.keys["maker"], card); got.Status != 409 || !strings.Contains(got.Body, "import_gap") {
		t.Errorf("lines after a gap = %s, want 409 import_gap", got)
	}
	// Another application, and another tenant, have their own imports.
	w.application("other", "private", "token:create")
	if got := w.send("other", "?id=one", card); got[0].Status != api.ImportCreated {
		t.Errorf("the same id of another application = %s, want a new import", states(got))
	}
}

func TestAccessIsDecidedLineByLine(t *testing.T) {
	w := start(t)
	in := api.CreateApplication{Name: "narrow", Type: "private", Rules: []api.Rule{{Container: "/mine/", Transform: "mask", Permissions: []string{"token:create"}}}}
	made := w.Application(t, w.tenant, in)
	w.keys["narrow"] = made.Key
	got := w.send("narrow", "", `{"type":"token","data":1,"containers":["/mine/"]}`, `{"type":"token","data":2,"containers":["/other/"]}`,
		`{"type":"token","data":3,"containers":["/mine/","/other/"]}`)
	if states(got) != "1 created;2 rejected;3 rejected;4 end;" {
		t.Errorf("results = %s", states(got))
	}
	if n := w.count(); n != 1 {
		t.Errorf("there are %d tokens, want 1", n)
	}
	var log api.List[api.LogEntry]
	w.Call(t, "GET", "/logs?entity_type=token", w.keys["manager"], "").Into(t, 200, &log)
	denied, created := 0, 0
	for _, e := range log.Data {
		switch e.Message {
		case "Token create denied":
			denied++
		case "Token created":
			created++
		}
	}
	if denied != 2 || created != 1 {
		t.Errorf("the log has %d created and %d denied, want 1 and 2", created, denied)
	}
	if got := w.Call(t, "POST", "/imports", w.keys["manager"], card); got.Status != 403 {
		t.Errorf("without token:create = %s, want 403", got)
	}
}

func TestADryRunStoresNothing(t *testing.T) {
	w := start(t)
	got := w.send("maker", "?dry_run=true&id=dry", card, `{"type":"nothing","data":1}`)
	if states(got) != "1 valid;2 rejected;3 end;" || w.count() != 0 {
		t.Errorf("a dry run = %s, and %d tokens", states(got), w.count())
	}
	if got := w.send("maker", "?id=dry", card); states(got) != "1 created;2 end;" {
		t.Errorf("after a dry run = %s", states(got))
	}
}

func TestWhatIsWrongWithAnImportIsSaid(t *testing.T) {
	w := start(t)
	for query, want := range map[string]string{
		"?first_line=0": "first_line", "?first_line=x": "first_line", "?first_line=2000000000000": "first_line", "?dry_run=maybe": "dry_run",
		"?id=" + strings.Repeat("a", 201): "id", "?id=%20": "id",
	} {
		var problem api.Problem
		got := w.Call(t, "POST", "/imports"+query, w.keys["maker"], card)
		_ = json.Unmarshal([]byte(got.Body), &problem)
		if got.Status != 400 || len(problem.Errors[want]) == 0 {
			t.Errorf("%s = %s, want a 400 about %s", query, got, want)
		}
	}
	if got := w.Call(t, "POST", "/imports", w.keys["maker"], card, "Content-Type", "application/json"); got.Status != 415 {
		t.Errorf("as JSON = %s, want 415", got)
	}
	w.application("shop", "public", "token:create")
	if got := w.Call(t, "POST", "/imports?id=short", w.keys["shop"], card); got.Status != 400 {
		t.Errorf("a short id with a public key = %s, want 400", got)
	}
	if got := w.send("shop", "?id=3f6a0c1e5b7d49d8a1b2c3", card); got[0].Status != api.ImportCreated {
		t.Errorf("a public key = %s", states(got))
	}
}

// TestALineThatIsTooLongIsRejectedAlone: its length is bounded, and the rest of
// it is not taken for a line.
func TestALineThatIsTooLongIsRejectedAlone(t *testing.T) {
	w := start(t)
	long := `{"type":"token","data":"` + strings.Repeat("x", 6<<20) + `"}`
	got := w.send("maker", "", card, long, card)
	if states(got) != "1 created;2 rejected;3 created;4 end;" {
		t.Errorf("results = %s", states(got))
	}
}

// TestABodyThatIsCutOffImportsNoHalfLine: what was complete is imported once.
func TestABodyThatIsCutOffImportsNoHalfLine(t *testing.T) {
	w := start(t)
	read, write := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), "POST", w.URL+"/imports?id=cut", read)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", api.MediaNDJSON)
	request.Header.Set("SVC-API-KEY", w.keys["maker"])
	lines := strings.Repeat(`{"type":"token","data":1}`+"\n", 1000)
	go func() {
		_, _ = io.WriteString(write, lines+`{"type":"token","data":12345`)
		_ = write.CloseWithError(io.ErrUnexpectedEOF)
	}()
	response, err := http.DefaultTransport.RoundTrip(request)
	if err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	var again keeptest.Answer
	waittest.Until(t, "the server notices that the body was cut off", func() bool {
		again = w.Call(t, "POST", "/imports?id=cut", w.keys["maker"], lines+`{"type":"token","data":12345}`)
		return again.Status != 409 // the first request still runs
	})
	got := resultsOf(t, again.Body)
	if len(got) != 1002 || got[1001].Status != api.ImportEnd {
		t.Errorf("sent again: %d results, the last of them %+v, want 1001 and the end", len(got), got[len(got)-1])
	}
	if n := w.count(); n != 1001 {
		t.Errorf("there are %d tokens, want 1001", n)
	}
}

// TestARevokedKeyImportsNothingMore: the key is looked at before each batch.
func TestARevokedKeyImportsNothingMore(t *testing.T) {
	w := start(t)
	read, write := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), "POST", w.URL+"/imports", read)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", api.MediaNDJSON)
	request.Header.Set("SVC-API-KEY", w.keys["maker"])
	more := make(chan struct{})
	lines := strings.Repeat(`{"type":"token","data":1}`+"\n", 1000)
	go func() {
		_, _ = io.WriteString(write, lines)
		<-more
		_, _ = io.WriteString(write, lines)
		_ = write.Close()
	}()
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	// The response begins when the first batch is stored.
	if got := w.Call(t, "DELETE", "/applications/"+w.ids["maker"], w.keys["manager"], ""); got.Status != 204 {
		t.Fatalf("delete the application = %s", got)
	}
	close(more)
	body, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	got := resultsOf(t, string(body))
	last := got[len(got)-1]
	if len(got) != 1001 || last.Status != api.ImportStopped || last.Line != 1001 || last.Problem == nil || last.Problem.Status != 401 {
		t.Errorf("%d results, the last of them %+v, want 1000 and stopped by a 401", len(got), last)
	}
	if n := w.count(); n != 1000 {
		t.Errorf("there are %d tokens, want 1000", n)
	}
}
