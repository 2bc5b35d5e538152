package contract_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/date"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

// entry is one entry of the log as the API writes it. What an operator did has
// no actor and no address.
func entry(entity, id, operation, outcome, message string, second int) string {
	return fmt.Sprintf(`{"id":"<id>","tenant_id":"{tenant}","actor_id":"{manager}","actor_type":"application","entity_type":%q,"entity_id":%q,`+
		`"operation":%q,"outcome":%q,"message":%q,"trace_id":"<trace>","client_address":"127.0.0.1","actor_name":"<any>","created_at":"2031-05-06T07:08:%02d.123456+00:00"}`,
		entity, id, operation, outcome, message, second)
}

func page(total int, entries ...string) string {
	pages := 0
	if total > 0 {
		pages = 1
	}
	return fmt.Sprintf(`{"pagination":{"total_items":%d,"page_number":1,"page_size":20,"total_pages":%d},"data":[%s]}`, total, pages, strings.Join(entries, ","))
}

func TestTheLog(t *testing.T) {
	w := newWalk(t)
	w.applications("private") // 10
	w.walk(
		step{name: "read", call: "GET /applications/{a0}/keys", status: 200, want: `[]`},                                                                                                                                             // 11
		step{name: "refused", call: "GET /applications/{nothing}", status: 404, want: problem(404, "no such application")},                                                                                                           // 12: no entry
		step{name: "refused", call: "PUT /applications/{a0}", status: 400, body: `{}`, want: strings.Replace(refused("name", "must have 1 to 200 characters"), `"]}`, `"],"permissions":["permissions or rules are required"]}`, 1)}, // 13: no entry
		step{call: "DELETE /applications/{a0}", status: 204},                                                                                                                                                                         // 14
	)
	const system = `{"id":"<id>","tenant_id":"{tenant}","actor_type":"system","entity_type":%q,"entity_id":%q,"operation":"create","outcome":"allowed","message":%q,"created_at":"2031-05-06T07:08:09.123456+00:00"}`
	var (
		created = entry("application", "{a0}", "create", "allowed", "Application created", 10)
		keys    = entry("key", "*", "read", "allowed", "Key retrieved", 11)
		deleted = entry("application", "{a0}", "delete", "allowed", "Application deleted", 14)
		tenant  = fmt.Sprintf(system, "tenant", "{tenant}", "Tenant created")
		manager = fmt.Sprintf(system, "application", "{manager}", "Application created")
	)
	w.clock.Advance(time.Minute) // the looks that follow are entries too
	const between = "start_date=2031-05-06T07:08:10.123456Z&end_date=2031-05-06T07:08:15Z"
	for _, s := range []step{
		{name: "between two instants, newest first", call: "GET /logs?" + between, want: page(3, deleted, keys, created)},
		{name: "of one kind", call: "GET /logs?entity_type=application&" + between, want: page(2, deleted, created)},
		{name: "of one entity", call: "GET /logs?entity_id={a0}", want: page(2, deleted, created)},
		{name: "of one entity and kind", call: "GET /logs?entity_id={a0}&entity_type=key", want: page(0)},
		{name: "of no kind", call: "GET /logs?entity_type=other", want: page(0)},
		{name: "of nothing", call: "GET /logs?entity_id=4242424242424242", want: page(0)},
		{name: "the start is inclusive", call: "GET /logs?start_date=2031-05-06T07:08:14.123456Z&end_date=2031-05-06T07:08:15Z", want: page(1, deleted)},
		{name: "a microsecond later it is not", call: "GET /logs?start_date=2031-05-06T07:08:14.123457Z&end_date=2031-05-06T07:08:15Z", want: page(0)},
		{name: "the end is exclusive", call: "GET /logs?start_date=2031-05-06T07:08:10Z&end_date=2031-05-06T07:08:14.123456Z", want: page(2, keys, created)},
		{name: "a microsecond later it is in", call: "GET /logs?start_date=2031-05-06T07:08:14Z&end_date=2031-05-06T07:08:14.123457Z", want: page(1, deleted)},
		{name: "with an offset", call: "GET /logs?start_date=2031-05-06T09:08:14%2B02:00&end_date=2031-05-06T00:08:15-07:00", want: page(1, deleted)},
		{name: "without an offset", call: "GET /logs?start_date=2031-05-06T07:08:14&end_date=2031-05-06T07:08:15", want: page(1, deleted)},
		{name: "the making of the tenant is the system's", call: "GET /logs?entity_id={tenant}&end_date=2031-05-06T07:08:10Z", want: page(1, tenant)},
		{name: "so is that of its first application", call: "GET /logs?entity_id={manager}&end_date=2031-05-06T07:08:10Z", want: page(1, manager)},
		{name: "a day is its first instant", call: "GET /logs?end_date=2031-05-06", want: page(0)},
		{name: "the next day is far", call: "GET /logs?entity_id={a0}&start_date=2031-05-06&end_date=2031-05-07", want: page(2, deleted, created)},
		{name: "nothing is as old as the epoch", call: "GET /logs?end_date=1970-01-01", want: page(0)},
		{name: "nothing is as old as the year 1", call: "GET /logs?end_date=0001-01-01T00:00:00Z", want: page(0)},
		{name: "everything is younger than that", call: "GET /logs?entity_id={a0}&start_date=0001-01-01T00:00:00Z", want: page(2, deleted, created)},
		{name: "an empty parameter is none", call: "GET /logs?entity_id={a0}&start_date=&end_date=", want: page(2, deleted, created)},
		{name: "a page", call: "GET /logs?size=1&page=2&" + between,
			want: `{"pagination":{"total_items":3,"page_number":2,"page_size":1,"total_pages":3},"data":[` + keys + `]}`},
	} {
		s.status = 200
		w.step(s)
	}
	for query, path := range map[string]string{
		"start_date=yesterday": "start_date", "end_date=4242424242424242": "end_date", "start_date=2031-13-01": "start_date", "end_date=05/06/2031": "end_date",
	} {
		w.step(step{call: "GET /logs?" + query, status: 400, want: refused(path, date.Wanted)})
	}
}

func TestReadingTheLogIsInTheLog(t *testing.T) {
	w := newWalk(t)
	w.walk(
		step{name: "the first look", call: "GET /logs?entity_type=log", status: 200, want: page(0)},
		step{name: "the second sees the first", call: "GET /logs?entity_type=log", status: 200, want: page(1, entry("log", "*", "read", "allowed", "Logs retrieved", 10))},
		step{name: "the kinds of entities are the same for all", call: "GET /logs/entity-types", status: 200, want: entityTypes},
		step{name: "and looking at them is no entry", call: "GET /logs?entity_type=log", status: 200, want: page(2,
			entry("log", "*", "read", "allowed", "Logs retrieved", 11), entry("log", "*", "read", "allowed", "Logs retrieved", 10))},
	)
}

func TestRefusedAttemptsAreInTheLog(t *testing.T) {
	w := newWalk(t)
	w.walk(step{call: "POST /applications", status: 201, body: `{"name":"x","type":"management","permissions":["log:read"]}`,
		want: `{"id":"<uuid>","tenant_id":"{tenant}","name":"x","type":"management","permissions":["log:read"],"rules":[],"key":"<manage>",` +
			`"keys":[{"id":"<uuid>","version":"1","prefix":"<prefix>","created_by":"{manager}","created_at":"<time>"}],"created_by":"{manager}","created_at":"<time>"}`,
		keep: map[string]string{"id": "clerk", "key": "clerk_key"}, location: "/applications/{clerk}"})
	denied := func(entity, id, operation, message string, second int) string {
		return strings.Replace(entry(entity, id, operation, "denied", message, second), "{manager}", "{clerk}", 1)
	}
	forbidden := func(permission string) string {
		return problem(403, "missing permission "+permission)
	}
	w.walk(
		step{call: "DELETE /tenants/self", key: "clerk_key", status: 403, want: forbidden("tenant:delete")},                  // 11
		step{call: "GET /applications/4242424242424242", key: "clerk_key", status: 403, want: forbidden("application:read")}, // 12
		step{call: "POST /applications/{clerk}/keys", key: "clerk_key", status: 403, want: forbidden("application:update")},  // 13
		step{call: "GET /tenants/self/reports/usage", key: "clerk_key", status: 403, want: forbidden("report:read")},         // 14
		step{call: "GET /logs?start_date=2031-05-06T07:08:11Z", key: "clerk_key", status: 200, want: page(4,
			denied("tenant", "{tenant}", "read", "Tenant read denied", 14), denied("application", "{clerk}", "update", "Application update denied", 13),
			denied("application", "*", "read", "Application read denied", 12), denied("tenant", "{tenant}", "delete", "Tenant delete denied", 11))},
	)
}

// The attempts of one caller do not fill the log. Each node counts its own.
func TestRefusedAttemptsAreBounded(t *testing.T) {
	w := newWalkWith(t, keeptest.Options{Alone: true})
	w.applications("private")
	a := w.server.Call(t, "POST", "/applications/"+w.names["a0"]+"/keys", w.names["manager_key"], "")
	key := fmt.Sprint(member(decode(t, a.Body), "key"))
	for range 60 {
		if got := w.server.Call(t, "GET", "/tenants/self", key, ""); got.Status != 403 {
			t.Fatalf("GET /tenants/self = %s", got)
		}
	}
	got := w.server.Call(t, "GET", "/logs?entity_type=tenant&start_date=2031-05-06T07:08:10Z", w.names["manager_key"], "")
	if total := fmt.Sprint(member(decode(t, got.Body), "pagination.total_items")); total != "20" {
		t.Errorf("60 attempts made %s entries, want 20", total)
	}
}

const entityTypes = `[{"display_name":"Application","value":"application"},{"display_name":"Bank","value":"bank"},{"display_name":"Card","value":"card"},` +
	`{"display_name":"Card Number","value":"card_number"},{"display_name":"Employer ID Number","value":"employer_id_number"},{"display_name":"Event","value":"event"},{"display_name":"Key","value":"key"},` +
	`{"display_name":"Log","value":"log"},{"display_name":"Member","value":"member"},{"display_name":"Proxy","value":"proxy"},{"display_name":"Reactor","value":"reactor"},{"display_name":"Role","value":"role"},{"display_name":"Session","value":"session"},` +
	`{"display_name":"Social Security Number","value":"social_security_number"},{"display_name":"Tenant","value":"tenant"},{"display_name":"Token","value":"token"},` +
	`{"display_name":"US Bank Account Number","value":"us_bank_account_number"},{"display_name":"US Bank Routing Number","value":"us_bank_routing_number"},` +
	`{"display_name":"Webhook","value":"webhook"}]`

func TestATraceIdLeadsToTheLog(t *testing.T) {
	w := newWalk(t)
	w.clock.Advance(time.Second)
	for trace, kept := range map[string]bool{"order-17": true, "4242424242424242": false, "a b": false, strings.Repeat("x", 129): false} {
		got := w.server.Call(t, "GET", "/tenants/self", w.names["manager_key"], "", "SVC-TRACE-ID", trace)
		back := got.Header.Get("SVC-TRACE-ID")
		if (back == trace) != kept || back == "" {
			t.Errorf("the trace id %s came back as %s", trace, back)
		}
		all := w.server.Call(t, "GET", "/logs?entity_type=tenant&size=100", w.names["manager_key"], "")
		found := false
		for i := range 10 {
			found = found || member(decode(t, all.Body), fmt.Sprintf("data.%d.trace_id", i)) == any(back)
		}
		if !found {
			t.Errorf("no entry has the trace id %s: %s", back, all)
		}
	}
}
