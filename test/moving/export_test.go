package moving_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/exportfile"
)

// identity makes the key of somebody who receives exports.
func identity(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func exportBody(id *age.X25519Identity, filter string) string {
	return `{"recipient":"` + id.Recipient().String() + `","filter":` + filter + `}`
}

// export requests an export and fetches it.
func (w *world) export(as string, id *age.X25519Identity, filter string) []byte {
	w.t.Helper()
	var made api.Export
	w.Call(w.t, "POST", "/exports", w.keys[as], exportBody(id, filter)).Into(w.t, 201, &made)
	got := w.Call(w.t, "GET", "/exports/"+made.ID+"/content", w.keys[as], "")
	if got.Status != 200 {
		w.t.Fatalf("GET /exports/{id}/content = %s, want 200", got)
	}
	return []byte(got.Body)
}

// opened decrypts a file, verifies it, and returns its lines.
func opened(t *testing.T, id *age.X25519Identity, file []byte) (lines []string, header exportfile.Header) {
	t.Helper()
	plain, err := age.Decrypt(bytes.NewReader(file), id)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		lines = append(lines, line)
	}
	header, end, err := exportfile.Verify(reader(lines))
	if err != nil || end.KeyID != exportfile.KeyID(header.PublicKey) {
		t.Fatalf("Verify = %+v, %v", end, err)
	}
	return lines, header
}

func reader(lines []string) func() ([]byte, error) {
	i := 0
	return func() ([]byte, error) {
		if i == len(lines) {
			return nil, io.EOF
		}
		i++
		return []byte(lines[i-1]), nil
	}
}

// setting changes one setting of the tenant.
func (w *world) setting(name, value string) {
	w.t.Helper()
	var tenant api.Tenant
	w.Call(w.t, "PUT", "/tenants/self", w.keys["manager"], `{"name":"Shop","settings":{"`+name+`":"`+value+`"}}`).Into(w.t, 200, &tenant)
}

// fill makes tokens of several kinds, and returns their ids.
func (w *world) fill(n int) (ids []string) {
	w.t.Helper()
	var lines []string
	for i := range n {
		lines = append(lines, `{"type":"token","data":{"n":`+strconv.Itoa(i%10)+`.50},"containers":["/a/`+strconv.Itoa(i%3)+`/"],"metadata":{"order":"`+strconv.Itoa(i)+`"}}`)
	}
	lines = append(lines,
		`{"type":"card","id":"{{ data.number | alias_card }}","data":{"number":"4242424242424242","expiration_month":12,"expiration_year":2030}}`,
		`{"type":"token","data":"masked-own","mask":"{{ data | slice: 0, 2 }}","search_indexes":["{{ data }}"],"fingerprint_expression":"{{ data | slice: 0, 6 }}","expires_at":"2099-01-02T03:04:05+02:00"}`,
	)
	for _, r := range w.send("maker", "", lines...) {
		if r.Status == api.ImportCreated {
			ids = append(ids, r.ID)
		} else if r.Status != api.ImportEnd {
			w.t.Fatalf("a line that should be imported: %+v", r)
		}
	}
	var withCode api.Token
	w.Call(w.t, "POST", "/tokens", w.keys["maker"], `{"type":"card","data":{"number":"5555555555554444","cvc":"987"}}`).Into(w.t, 201, &withCode)
	return append(ids, withCode.ID)
}

// comparable is a token as its reader sees it, but for what the vault gave it.
func (w *world) comparable(as, id string) string {
	w.t.Helper()
	got := w.Call(w.t, "GET", "/tokens/"+id, w.keys[as], "")
	var members map[string]json.RawMessage
	got.Into(w.t, 200, &members)
	for _, own := range []string{"tenant_id", "created_by", "created_at", "fingerprint"} {
		delete(members, own)
	}
	text, err := json.Marshal(members)
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Replace(string(text), `,"cvc":"987"`, "", 1)
}

func TestAnExportIsImportedElsewhereAsItWas(t *testing.T) {
	w := start(t)
	// An id that looks like a card number, as an alias may.
	w.setting("numeric_ids", "true")
	ids := append([]string{w.send("maker", "", `{"id":"4111111111111111","type":"token","data":{"n":0.50}}`)[0].ID}, w.fill(450)...)
	key := identity(t)
	file := w.export("all", key, `{}`)
	for _, value := range []string{"4242424242424242", "masked-own"} {
		if bytes.Contains(file, []byte(value)) {
			t.Errorf("the file holds %s in clear", value)
		}
	}
	lines, header := opened(t, key, file)
	text := strings.Join(lines, "")
	if strings.Contains(text, `"987"`) || strings.Contains(text, "cvc") {
		t.Error("the export holds a security code")
	}
	if n := strings.Count(text, `"kind":"token"`); n != len(ids) {
		t.Errorf("the export has %d tokens, want %d", n, len(ids))
	}

	other := start(t)
	// A key that the tenant does not trust: the alias looks like a card number.
	got := other.send("maker", "?format=export&id=first&dry_run=true", strings.Split(strings.TrimSuffix(text, "\n"), "\n")...)
	refused := 0
	for _, r := range got {
		if r.Status == api.ImportRejected {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("without trust, %d lines are rejected, want the one whose id looks like a card number", refused)
	}
	other.setting("trusted_export_keys", exportfile.KeyID(header.PublicKey))
	got = other.send("maker", "?format=export&id=first", strings.Split(strings.TrimSuffix(text, "\n"), "\n")...)
	for _, r := range got[:len(got)-1] {
		if r.Status != api.ImportCreated {
			t.Fatalf("a line of the export = %+v", r)
		}
	}
	if n := other.count(); n != int64(len(ids)) {
		t.Errorf("there are %d tokens, want %d", n, len(ids))
	}
	for _, id := range append(ids[430:], ids[0]) {
		if before, after := w.comparable("all", id), other.comparable("all", id); before != after {
			t.Errorf("a token was\n%s\nand is\n%s", before, after)
		}
	}
	if a, b := other.fingerprint(ids[1]), other.fingerprint(ids[11]); a == "" || a != b {
		t.Errorf("tokens that shared a fingerprint have %q and %q", a, b)
	}
	if a, b := other.fingerprint(ids[1]), other.fingerprint(ids[2]); a == b {
		t.Error("tokens of different values share a fingerprint")
	}
}

func (w *world) fingerprint(id string) string {
	w.t.Helper()
	var tok api.Token
	w.Call(w.t, "GET", "/tokens/"+id, w.keys["all"], "").Into(w.t, 200, &tok)
	return tok.Fingerprint
}

func TestAnExportThatWasChangedIsNotImported(t *testing.T) {
	w := start(t)
	w.fill(450)
	key := identity(t)
	lines, _ := opened(t, key, w.export("all", key, `{}`))
	join := func(list []string) string { return strings.TrimSuffix(strings.Join(list, ""), "\n") }
	change := func(i int, from, to string) []string {
		out := append([]string(nil), lines...)
		if out[i] = strings.Replace(out[i], from, to, 1); out[i] == lines[i] {
			t.Fatalf("line %d does not hold what is to be changed", i)
		}
		return out
	}
	for name, list := range map[string][]string{
		"another value":      change(5, `"n":`, `"n":1`),
		"another container":  change(5, `/a/`, `/b/`),
		"a line less":        append(append([]string(nil), lines[:5]...), lines[6:]...),
		"a line twice":       append(append([]string(nil), lines[:6]...), lines[5:]...),
		"lines exchanged":    append(append([]string(nil), lines[0], lines[2], lines[1]), lines[3:]...),
		"another header":     change(0, `"export_id":"`, `"export_id":"0`),
		"half a segment":     lines[:50],
		"without its header": lines[1:],
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := exportfile.Verify(reader(list)); err == nil {
				t.Error("it verifies")
			}
			got := w.Call(t, "POST", "/imports?format=export&dry_run=true", w.keys["maker"], join(list))
			if got.Status != 400 || !strings.Contains(got.Body, "export_invalid") {
				t.Errorf("= %s, want 400 export_invalid", got)
			}
		})
	}
	for name, list := range map[string][]string{"without its end": lines[:len(lines)-1], "without its last segment": append(append([]string(nil), lines[:1]...), lines[len(lines)-1])} {
		if _, _, err := exportfile.Verify(reader(list)); err == nil {
			t.Errorf("an export %s verifies", name)
		}
	}
}

func TestWhoMayFetchAnExport(t *testing.T) {
	w := start(t)
	w.fill(3)
	key := identity(t)
	body := exportBody(key, `{"types":["token"]}`)
	var made api.Export
	w.Call(t, "POST", "/exports", w.keys["all"], body).Into(t, 201, &made)
	for name, want := range map[string]int{"all": 200, "maker": 404, "manager": 403} {
		if got := w.Call(t, "GET", "/exports/"+made.ID+"/content", w.keys[name], ""); got.Status != want {
			t.Errorf("%s fetches it: %d, want %d", name, got.Status, want)
		}
	}
	for name, want := range map[string]int{"all": 200, "maker": 404, "manager": 200} {
		if got := w.Call(t, "GET", "/exports/"+made.ID, w.keys[name], ""); got.Status != want {
			t.Errorf("%s reads it: %d, want %d", name, got.Status, want)
		}
	}
	// Another tenant has none.
	other := start(t)
	for _, path := range []string{"/exports/" + made.ID, "/exports/" + made.ID + "/content"} {
		if got := other.Call(t, "GET", path, other.keys["all"], ""); got.Status != 404 {
			t.Errorf("%s of another tenant = %s, want 404", path, got)
		}
	}
	// token:read that only masks does not export. That shows with the first part.
	var masked api.Export
	w.Call(t, "POST", "/exports", w.keys["maker"], body).Into(t, 201, &masked)
	if got := w.Call(t, "GET", "/exports/"+masked.ID+"/content", w.keys["maker"], ""); got.Status != 403 || !strings.Contains(got.Body, "reveal_required") {
		t.Errorf("a key that sees masks = %s, want 403 reveal_required", got)
	}
	for _, bad := range []string{`{"recipient":"age1nothing"}`, `{"recipient":"` + key.Recipient().String() + `","filter":{"types":["nothing"]}}`, `{"recipient":"` + key.Recipient().String() + `","filter":{"container":"a b"}}`} {
		if got := w.Call(t, "POST", "/exports", w.keys["all"], bad); got.Status != 400 {
			t.Errorf("%s = %s, want 400", bad, got)
		}
	}
	lines, _ := opened(t, key, w.export("all", key, `{"container":"/a/0/"}`))
	if n := strings.Count(strings.Join(lines, ""), `"kind":"token"`); n != 1 {
		t.Errorf("by container, %d tokens, want 1", n)
	}
}

func TestAnExportIsApprovedByAnotherApplication(t *testing.T) {
	w := start(t)
	w.fill(3)
	w.setting("export_approval", "true")
	key := identity(t)
	body := exportBody(key, `{"types":["token"]}`)
	var made api.Export
	w.Call(t, "POST", "/exports", w.keys["all"], body).Into(t, 201, &made)
	if made.Status != api.ExportWaiting {
		t.Errorf("its status is %q, want %q", made.Status, api.ExportWaiting)
	}
	content, approve := "/exports/"+made.ID+"/content", "/exports/"+made.ID+"/approve"
	if got := w.Call(t, "GET", content, w.keys["all"], ""); got.Status != 403 || !strings.Contains(got.Body, "approval_required") {
		t.Errorf("before it is approved = %s, want 403 approval_required", got)
	}
	if got := w.Call(t, "POST", approve, w.keys["all"], body); got.Status != 403 {
		t.Errorf("the requester approves = %s, want 403", got)
	}
	for name, other := range map[string]string{"another recipient": exportBody(identity(t), `{"types":["token"]}`), "another filter": exportBody(key, `{}`)} {
		if got := w.Call(t, "POST", approve, w.keys["manager"], other); got.Status != 409 || !strings.Contains(got.Body, "export_mismatch") {
			t.Errorf("%s = %s, want 409 export_mismatch", name, got)
		}
	}
	if got := w.Call(t, "POST", "/exports/00000000-0000-4000-8000-000000000000/approve", w.keys["manager"], body); got.Status != 404 {
		t.Errorf("an export that is none = %s, want 404", got)
	}
	for range 2 {
		var approved api.Export
		w.Call(t, "POST", approve, w.keys["manager"], body).Into(t, 200, &approved)
		if approved.Status != api.ExportReady || approved.ApprovedBy != w.ids["manager"] {
			t.Errorf("approved = %+v", approved)
		}
	}
	if got := w.Call(t, "GET", content, w.keys["all"], ""); got.Status != 200 {
		t.Errorf("when it is approved = %s, want 200", got)
	}
}

func TestEveryExportedTokenIsInTheLog(t *testing.T) {
	w := start(t)
	ids := w.fill(210)
	w.export("all", identity(t), `{}`)
	seen := map[string]int{}
	steps := 0
	for page := 1; ; page++ {
		var list api.List[api.LogEntry]
		w.Call(t, "GET", fmt.Sprintf("/logs?size=100&page=%d", page), w.keys["manager"], "").Into(t, 200, &list)
		for _, e := range list.Data {
			if e.Message == "Token exported" && e.ActorID == w.ids["all"] {
				seen[e.EntityID]++
			}
			if strings.HasPrefix(e.Message, "Tenant export ") {
				steps++
			}
		}
		if int64(page) >= list.Pagination.TotalPages {
			break
		}
	}
	for _, id := range ids {
		if seen[id] != 1 {
			t.Fatalf("the log has %d entries for one of the tokens, want 1", seen[id])
		}
	}
	if steps != 3 {
		t.Errorf("the log has %d entries about the export, want that it was requested, begun and finished", steps)
	}
}
