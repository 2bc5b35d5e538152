package contract_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// readers are applications that read cards, with how much each of them sees.
func readers(t *testing.T, k *keeptest.Server, tenant string) map[string]api.Application {
	made := make(map[string]api.Application)
	for _, transform := range []string{"reveal", "mask", "redact"} {
		made[transform] = k.Application(t, tenant, api.CreateApplication{
			Name: "=" + transform, Type: "private",
			Rules: []api.Rule{{Container: "/", Transform: transform, Permissions: []string{"token:read", "token:search"}}},
		})
	}
	return made
}

// TestWhoSawThisCardIsOneRequest makes many accesses to many cards, in every way
// that there is, and knows who saw what.
func TestWhoSawThisCardIsOneRequest(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	tenant := k.Tenant(t)
	manager := tenant.Application.Key
	maker := k.Application(t, tenant.Tenant.ID, api.CreateApplication{Type: "private", Permissions: []string{"token:create"}})
	nobody := k.Application(t, tenant.Tenant.ID, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}})
	by := readers(t, k, tenant.Tenant.ID)
	const cards = 10
	for i := range cards {
		k.Call(t, "POST", "/tokens", maker.Key, fmt.Sprintf(`{"id":"card-%d","type":"card","data":{"number":"4242424242424242"}}`, i)).Into(t, 201, &struct{}{})
	}
	// What everybody sees of card-3: the actor's id and the transform, counted.
	truth := make(map[string]int)
	transforms := []string{"reveal", "mask", "redact"}
	accesses := 120
	if storetest.All() {
		accesses = 10_000
	}
	for n := range accesses {
		transform, card := transforms[n%3], fmt.Sprint("card-", n/3%cards)
		reader := by[transform]
		var status int
		switch n % 4 {
		case 0:
			status = k.Call(t, "GET", "/tokens/"+card, reader.Key, "").Status
		case 1:
			status = k.Call(t, "GET", "/tokens?id="+card, reader.Key, "").Status
		case 2:
			status = k.Call(t, "POST", "/detokenize", reader.Key, `["{{ `+card+` }}"]`).Status
		default:
			status = k.Call(t, "POST", "/v2/tokens/search", reader.Key, `{"query":"id:`+card+`"}`).Status
		}
		if status != http.StatusOK {
			t.Fatalf("access %d = %d", n, status)
		}
		if card == "card-3" {
			truth[reader.ID+" "+reader.Name+" "+transform]++
		}
	}
	k.Call(t, "GET", "/tokens/card-3", nobody.Key, "") // refused: it saw nothing
	got := make(map[string]int)
	for _, e := range exported(t, k, manager, "entity_id=card-3&operation=read&outcome=allowed") {
		got[e.ActorID+" "+e.ActorName+" "+e.Transform]++
	}
	if fmt.Sprint(got) != fmt.Sprint(truth) || len(truth) != 3 {
		t.Errorf("who saw the card: got %v, want %v", got, truth)
	}
	for _, transform := range transforms {
		want := truth[by[transform].ID+" "+by[transform].Name+" "+transform]
		if list := exported(t, k, manager, "entity_id=card-3&transform="+transform+"&actor_id="+by[transform].ID); len(list) != want {
			t.Errorf("transform=%s has %d entries, want %d", transform, len(list), want)
		}
	}
	denied := exported(t, k, manager, "entity_id=card-3&outcome=denied")
	if len(denied) != 1 || denied[0].Transform != "" || denied[0].ActorID != nobody.ID {
		t.Errorf("what was denied: %+v, want the one refusal", denied)
	}
}

// exported returns the entries of an export.
func exported(t *testing.T, k *keeptest.Server, key, query string) (list []api.LogEntry) {
	t.Helper()
	got := k.Call(t, "GET", "/logs/export?"+query, key, "")
	if got.Status != http.StatusOK {
		t.Fatalf("export = %s", got)
	}
	for line := range strings.Lines(got.Body) {
		var e api.LogEntry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("the line %q: %v", line, err)
		}
		list = append(list, e)
	}
	return list
}

func TestAnExportAsCSVHasNoFormulas(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	tenant := k.Tenant(t)
	by := readers(t, k, tenant.Tenant.ID)
	maker := k.Application(t, tenant.Tenant.ID, api.CreateApplication{Type: "private", Permissions: []string{"token:create"}})
	k.Call(t, "POST", "/tokens", maker.Key, `{"id":"@card","type":"token","data":"x"}`).Into(t, 201, &struct{}{})
	k.Call(t, "GET", "/tokens/@card", by["mask"].Key, "", "SVC-TRACE-ID", "-2-3").Into(t, 200, &struct{}{})
	got := k.Call(t, "GET", "/logs/export?format=csv&entity_id=%40card&operation=read", tenant.Application.Key, "")
	records, err := csv.NewReader(strings.NewReader(got.Body)).ReadAll()
	if err != nil || len(records) != 2 || got.Header.Get("Content-Type") != "text/csv; charset=utf-8" {
		t.Fatalf("the export = %s, %v, want a header and an entry", got, err)
	}
	row := make(map[string]string)
	for i, name := range records[0] {
		row[name] = records[1][i]
	}
	if row["actor_name"] != "'=mask" || row["entity_id"] != "'@card" || row["trace_id"] != "'-2-3" || row["transform"] != "mask" || row["operation"] != "read" {
		t.Errorf("the entry is %v", row)
	}
}

func TestTheLogIsStreamed(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	tenant := k.Tenant(t)
	manager := tenant.Application.Key
	maker := k.Application(t, tenant.Tenant.ID, api.CreateApplication{Type: "private", Permissions: []string{"token:create"}})
	stream := func(query, last string) (ids, entities []string) {
		t.Helper()
		got := k.Call(t, "GET", "/v2/logs/stream?follow=false&entity_type=token&"+query, manager, "", "Last-Event-ID", last)
		if got.Status != http.StatusOK || got.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("the stream = %s", got)
		}
		for line := range strings.Lines(got.Body) {
			if id, ok := strings.CutPrefix(line, "id: "); ok {
				ids = append(ids, strings.TrimSpace(id))
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				var e api.LogEntry
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					t.Fatal(err)
				}
				entities = append(entities, e.EntityID)
			}
		}
		return ids, entities
	}
	for i := range 4 {
		k.Call(t, "POST", "/tokens", maker.Key, fmt.Sprintf(`{"id":"t-%d","type":"token","data":"x"}`, i)).Into(t, 201, &struct{}{})
	}
	var ids []string
	waittest.Until(t, "four entries are sealed", func() bool {
		var entities []string
		ids, entities = stream("start_date=2020-01-01", "")
		return strings.Join(entities, " ") == "t-0 t-1 t-2 t-3"
	})
	if _, rest := stream("", ids[1]); strings.Join(rest, " ") != "t-2 t-3" {
		t.Errorf("after the second event come %v", rest)
	}
	if _, past := stream("past=2", ""); strings.Join(past, " ") != "t-2 t-3" {
		t.Errorf("the past is %v", past)
	}
	for _, query := range []string{"end_date=2020-01-01", "past=x", "past=101", "follow=maybe", "transform=all"} {
		if got := k.Call(t, "GET", "/v2/logs/stream?"+query, manager, ""); got.Status != http.StatusBadRequest {
			t.Errorf("%s = %s, want 400", query, got)
		}
	}
	if got := k.Call(t, "GET", "/v2/logs/stream", maker.Key, ""); got.Status != http.StatusForbidden {
		t.Errorf("without log:read = %s", got)
	}
}

func TestReportsSayWhoMaySeeWhatAndWhatDeservesAttention(t *testing.T) {
	clock := clocktest.New(time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC))
	k := keeptest.Start(t, keeptest.Options{Now: clock.Now})
	tenant := k.Tenant(t)
	manager := tenant.Application.Key
	private := func(in api.CreateApplication) api.Application {
		in.Type = "private"
		return k.Application(t, tenant.Tenant.ID, in)
	}
	rule := func(container, transform string) []api.Rule {
		return []api.Rule{{Container: container, Transform: transform, Permissions: []string{"token:read"}}}
	}
	all, some := private(api.CreateApplication{Name: "All", Rules: rule("/", "reveal")}), private(api.CreateApplication{Name: "Some", Rules: rule("/pci/", "reveal")})
	private(api.CreateApplication{Name: "Masks", Rules: rule("/", "mask")})
	maker := private(api.CreateApplication{Name: "Maker", Permissions: []string{"token:create"}, ExpiresAt: api.Time{Time: clock.Now().Add(400 * 24 * time.Hour)}})
	k.Call(t, "POST", "/tokens", maker.Key, `{"id":"card-1","type":"card","data":{"number":"4242424242424242"},"containers":["/pci/high/"]}`).Into(t, 201, &struct{}{})
	var open, closed api.Proxy
	k.Call(t, "POST", "/proxies", manager, `{"name":"Open","destination_url":"https://psp.example.com","require_auth":false}`).Into(t, 201, &open)
	k.Call(t, "POST", "/proxies", manager, `{"name":"Closed","destination_url":"https://psp.example.com"}`).Into(t, 201, &closed)

	var access api.List[api.AccessReport]
	k.Call(t, "GET", "/reports/access?changed_since=2031-05-06", manager, "").Into(t, 200, &access)
	var rows []string
	for _, a := range access.Data {
		rows = append(rows, fmt.Sprint(a.Name, " ", a.Permission, " ", a.Container, " ", a.Changed))
	}
	if got := strings.Join(rows, ", "); got != "All token:read / true, Some token:read /pci/ true" {
		t.Errorf("who may see values: %s", got)
	}
	var who api.List[api.AccessHolder]
	k.Call(t, "GET", "/access/who?token_id=card-1", manager, "").Into(t, 200, &who)
	seen := make(map[string]string)
	for _, h := range who.Data {
		seen[h.Name] = h.Transform
	}
	if fmt.Sprint(seen) != fmt.Sprint(map[string]string{"All": "reveal", "Some": "reveal", "Masks": "mask"}) {
		t.Errorf("who may read the card: %v", seen)
	}
	for call, want := range map[string]int{
		"/access/who?token_id=none": 404, "/access/who?token_id=card-1&container=/": 400, "/access/who?token_id=card-1&permission=log:read": 400,
		"/access/who?token_id=card-1&permission=token:use": 200, "/reports/access?changed_since=x": 400, "/reports/activity": 400, "/reports/activity?bucket=day&by=x": 400,
	} {
		if got := k.Call(t, "GET", call, manager, ""); got.Status != want {
			t.Errorf("GET %s = %s, want %d", call, got, want)
		}
	}
	attention := func(key string) (found []string) {
		t.Helper()
		var list []api.AttentionItem
		k.Call(t, "GET", "/reports/attention", key, "").Into(t, 200, &list)
		for _, i := range list {
			found = append(found, i.Severity+" "+i.Kind+" "+i.Name)
		}
		return found
	}
	want := []string{"high open_proxy Open", "medium log_unverified ", "medium broad_rule All"}
	if got := attention(manager); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("attention: %q, want %q", got, want)
	}
	// Who may read less learns less.
	reporter := k.Application(t, tenant.Tenant.ID, api.CreateApplication{Type: "management", Permissions: []string{"report:read"}})
	if got := attention(reporter.Key); len(got) != 0 {
		t.Errorf("attention with report:read alone: %q", got)
	}
	clock.Advance(380 * 24 * time.Hour)
	k.Call(t, "GET", "/tokens/card-1", all.Key, "").Into(t, 200, &struct{}{})
	found := strings.Join(attention(manager), "\n")
	for _, part := range []string{"high expiring_application Maker", "medium old_key Some", "medium old_key All"} {
		if !strings.Contains(found, part) {
			t.Errorf("attention after a year:\n%s\nwant %s", found, part)
		}
	}
	var activity api.ActivityReport
	k.Call(t, "GET", "/reports/activity?bucket=minute&application_id="+all.ID, manager, "").Into(t, 200, &activity)
	if activity.Total.Reads.Revealed != 1 || len(activity.Data) != 1 || activity.Data[0].ApplicationID != all.ID {
		t.Errorf("the activity: %+v", activity)
	}
	var keys api.List[api.KeyReport]
	k.Call(t, "GET", "/reports/keys?size=100", manager, "").Into(t, 200, &keys)
	for _, key := range keys.Data {
		if key.ApplicationID == some.ID && (key.AgeDays != 380 || key.LastUsedOn != "" || key.ID != some.Keys[0].ID) {
			t.Errorf("the key of Some: %+v", key)
		}
	}
	if keys.Pagination.TotalItems != 6 {
		t.Errorf("the report has %d keys, want 6", keys.Pagination.TotalItems)
	}
}

func TestTheLastVersionsOfCodeAreKept(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	tenant := k.Tenant(t)
	manager := tenant.Application.Key
	var made api.Reactor
	k.Call(t, "POST", "/reactors", manager, `{"name":"r","code":"module.exports = 1","configuration":{"secret":"x"}}`).Into(t, 201, &made)
	patch := func(body string) {
		t.Helper()
		if got := k.Call(t, "PATCH", "/reactors/"+made.ID, manager, body, "Content-Type", api.MediaMergePatch); got.Status != 204 {
			t.Fatalf("PATCH = %s", got)
		}
	}
	versions := func() (list []api.CodeVersion) {
		t.Helper()
		k.Call(t, "GET", "/reactors/"+made.ID+"/versions", manager, "").Into(t, 200, &list)
		return list
	}
	patch(`{"name":"other","configuration":{"secret":"y"}}`) // the code stays
	if list := versions(); len(list) != 1 || list[0].Number != 1 || list[0].Code["code"] != "module.exports = 1" || list[0].CreatedBy != tenant.Application.ID || list[0].ActorName == "" {
		t.Errorf("the versions: %+v", list)
	}
	for i := 2; i <= 25; i++ {
		patch(fmt.Sprintf(`{"code":"module.exports = %d"}`, i))
	}
	list := versions()
	if len(list) != 20 || list[0].Code["code"] != "module.exports = 25" || list[19].Code["code"] != "module.exports = 6" {
		t.Fatalf("%d versions are kept, from %+v to %+v", len(list), list[0], list[len(list)-1])
	}
	var restored api.Reactor
	k.Call(t, "POST", fmt.Sprintf("/reactors/%s/versions/%d/restore", made.ID, list[19].Number), manager, "").Into(t, 200, &restored)
	if restored.Code != "module.exports = 6" || restored.Configuration["secret"] != "y" || restored.Name != "other" {
		t.Errorf("restored: %+v", restored)
	}
	if list := versions(); len(list) != 20 || list[0].Code["code"] != "module.exports = 6" {
		t.Errorf("after the restoring: %d versions, first %+v", len(list), list[0])
	}
	for _, n := range []string{"1", "99", "x", "01", "-1"} {
		if got := k.Call(t, "POST", "/reactors/"+made.ID+"/versions/"+n+"/restore", manager, ""); got.Status != 404 {
			t.Errorf("restoring version %s = %s, want 404", n, got)
		}
	}
	stranger := k.Tenant(t).Application.Key
	if got := k.Call(t, "GET", "/reactors/"+made.ID+"/versions", stranger, ""); got.Status != 404 {
		t.Errorf("the versions for another tenant = %s", got)
	}
	if got := k.Call(t, "DELETE", "/reactors/"+made.ID, manager, ""); got.Status != 204 {
		t.Fatalf("DELETE = %s", got)
	}
	var proxy api.Proxy
	k.Call(t, "POST", "/proxies", manager, `{"name":"p","destination_url":"https://psp.example.com","request_transform":{"code":"module.exports = 1"}}`).Into(t, 201, &proxy)
	if got := k.Call(t, "PATCH", "/proxies/"+proxy.ID, manager, `{"request_transform":null,"response_transform":{"code":"module.exports = 2"}}`, "Content-Type", api.MediaMergePatch); got.Status != 204 {
		t.Fatalf("PATCH = %s", got)
	}
	var back api.Proxy
	k.Call(t, "POST", "/proxies/"+proxy.ID+"/versions/1/restore", manager, "").Into(t, 200, &back)
	if back.RequestTransform == nil || back.RequestTransform.Code != "module.exports = 1" || back.ResponseTransform != nil || back.Key != proxy.Key {
		t.Errorf("the proxy restored: %+v", back)
	}
}
