package token_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

func TestMasks(t *testing.T) {
	w := newWorld(t)
	card := `"type":"card","data":{"number":"` + visa + `","expiration_month":1,"cvc":"987"}`
	for _, test := range []struct{ request, shown string }{
		{`{"type":"token","data":"secret","mask":"{{ data | reveal_last: 2 }}"}`, `"XXXXet"`},
		{`{"type":"token","data":"secret","mask":"hidden"}`, `"hidden"`},
		{`{"type":"token","data":{"a":1,"b":"secret"},"mask":{"a":"{{ data.a }}","c":["{{ data.b | last4 }}",7],"n":"{{ data.nothing }}"}}`, `{"a":1,"c":["cret",7]}`},
		{`{"type":"token","data":"secret","mask":null}`, `"XXXret"`},
		{`{"type":"token","data":"secret","mask":"{{ data.nothing }}"}`, ""},
		// Malformed but tolerated: the value is hidden whole.
		{`{` + card + `,"mask":"{{ data.number, reveal_last: 4 }}"}`, `"XXXXXXXXXXXXXXXX"`},
		// No mask yields a cvc.
		{`{` + card + `,"mask":{"cvc":"{{ data.cvc }}","number":"{{ data.number | last4 }}"}}`, `{"number":"4242"}`},
		{`{` + card + `,"mask":"{{ data | json_stringify }}"}`, `"{\"number\":\"` + visa + `\",\"expiration_month\":1}"`},
		{`{` + card + `,"mask":"{{ data }}"}`, `{"number":"` + visa + `","expiration_month":1}`},
	} {
		made := w.mustCreate(w.revealing(), test.request)
		if got := member(made, "data"); got != test.shown {
			t.Errorf("%s: data = %s, want %s", test.request, got, test.shown)
		}
		given, _ := parse(t, test.request).Get("mask")
		want := text(given)
		if given.IsNull() {
			want = ""
		}
		if got := member(w.mustGet(w.masking(), made.ID), "mask"); got != want {
			t.Errorf("%s: mask = %s, want it as given", test.request, got)
		}
	}
	for _, mask := range []string{
		`"{{ data | nonsense }}"`, `"{{ data"`, `"{% if %}"`, `{"a":["{{ data | alias_card }}"]}`, `"{{ metadata.a }}"`, `"{{ data.number | reveal_last }}"`,
	} {
		_, err := w.create(w.revealing(), `{`+card+`,"mask":`+mask+`}`)
		wantFault(t, "mask "+mask, err, fault.Invalid, "mask")
	}
}

func TestFingerprints(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	of := func(request string) string { return w.mustCreate(c, request).Fingerprint }
	card := of(`{"type":"card","data":{"number":"` + visa + `","cvc":"123"}}`)
	for name, test := range map[string]struct {
		request string
		equal   bool
	}{
		"the same number":              {`{"type":"card","data":{"number":"` + visa + `","expiration_month":3,"cvc":"999"}}`, true},
		"another number":               {`{"type":"card","data":{"number":"4111111111111111"}}`, false},
		"another type":                 {`{"type":"card_number","data":"` + visa + `"}`, false},
		"the expression spelled out":   {`{"type":"card","data":{"number":"` + visa + `"},"fingerprint_expression":"{{data.number}}"}`, true},
		"another one of equal outcome": {`{"type":"card","data":{"number":"` + visa + `"},"fingerprint_expression":"4242{{ data.number | slice: 4, 12 }}"}`, false},
		"a literal of equal outcome":   {`{"type":"card","data":{"number":"4111111111111111"},"fingerprint_expression":"` + visa + `{{ data.nothing }}"}`, false},
		"an expression over more":      {`{"type":"card","data":{"number":"` + visa + `"},"fingerprint_expression":"{{ data.number }}{{ metadata.a }}","metadata":{"a":"b"}}`, false},
	} {
		if got := of(test.request); (got == card) != test.equal {
			t.Errorf("%s: equal fingerprints = %t, want %t", name, got == card, test.equal)
		}
	}
	if w.mustCreate(w.stranger(), `{"type":"card","data":{"number":"`+visa+`"}}`).Fingerprint == card {
		t.Error("two tenants have the same fingerprint")
	}
	if of(`{"type":"token","data":{"b":[1.0],"a":"x"}}`) != of(`{"type":"token","data":{"a":"x","b":[1.0]}}`) {
		t.Error("the order of members counts")
	}
	if of(`{"type":"token","data":"1"}`) == of(`{"type":"token","data":1}`) {
		t.Error("a text and a number are the same data")
	}
	if of(`{"type":"token","data":1.0}`) == of(`{"type":"token","data":1.00}`) {
		t.Error("numbers count as values, want them as written")
	}
	with := `{"type":"card","data":{"number":"` + visa + `","cvc":"1%d3"},"fingerprint_expression":"{{ data.number }}{{ data.cvc }}"}`
	if of(strings.Replace(with, "%d", "2", 1)) != of(strings.Replace(with, "%d", "3", 1)) {
		t.Error("the cvc counts in a fingerprint")
	}
	for _, expression := range []string{"{{ data | nonsense }}", "{{ data | alias_card }}", "{{ data.nothing }}", "", "4242", "{{ metadata.a }}", "{{ 'data' }}"} {
		_, err := w.create(c, `{"type":"token","data":"x","fingerprint_expression":"`+expression+`"}`)
		wantFault(t, "fingerprint_expression "+expression, err, fault.Invalid, "fingerprint_expression")
	}
	w.choose(map[string]string{"fingerprint_tokens": "false"})
	if of(`{"type":"card","data":{"number":"`+visa+`"}}`) != "" {
		t.Error("there is a fingerprint although the tenant wants none")
	}
	if of(`{"type":"card","data":{"number":"`+visa+`"},"fingerprint_expression":"{{ data.number }}"}`) != card {
		t.Error("a request that gives an expression gets no fingerprint, or another one")
	}
}

func TestDeduplication(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	request := func(more string) string {
		return `{"type":"card","data":{"number":"` + visa + `","cvc":"123"}` + more + `}`
	}
	w.mustCreate(c, request(`,"id":"first","metadata":{"a":"b"}`))
	w.clock.Advance(time.Second) // so that it is the oldest
	if w.mustCreate(c, request(`,"id":"second"`)).ID != "second" {
		t.Error("tokens are deduplicated although nobody asked")
	}
	if w.mustCreate(c, request(`,"id":"third","deduplicate_token":true`)).ID != "third" {
		t.Error("a request that names an id is deduplicated onto another token")
	}
	again := w.mustCreate(c, request(`,"deduplicate_token":true,"metadata":{"c":"d"}`))
	if again.ID != "first" || member(again, "metadata") != `{"a":"b"}` || member(again, "data") != `{"number":"XXXXXXXXXXXX4242"}` {
		t.Errorf("a repeated create = %s, want the oldest token, masked", text(again.Object()))
	}
	if w.mustCreate(c, request(`,"id":"first","deduplicate_token":true`)).ID != "first" {
		t.Error("a request that names the id of the duplicate is not deduplicated")
	}
	if n := w.count(w.tenant, "read card first"); n != 2 {
		t.Errorf("showing the first token twice made %d entries", n)
	}
	w.choose(map[string]string{"deduplicate_tokens": "true"})
	if w.mustCreate(c, request("")).ID != "first" || w.mustCreate(c, request(`,"deduplicate_token":false,"id":"fourth"`)).ID != "fourth" {
		t.Error("want the tenant's setting to count, and the request to win over it")
	}
	if w.mustCreate(w.stranger(), request("")).ID == "first" {
		t.Error("a token of another tenant came back")
	}
	if other := w.mustCreate(c, `{"type":"card_number","data":"`+visa+`"}`); other.Type != "card_number" {
		t.Error("a token of another type came back")
	}
	for name, more := range map[string]string{
		"another container":      `,"containers":["/other/"]`,
		"one more container":     `,"containers":["/pci/high/","/other/"]`,
		"another mask":           `,"mask":"hidden"`,
		"another index":          `,"search_indexes":["{{ data.number | last4 }}"]`,
		"another expression":     `,"fingerprint_expression":"{{ data.number }}{{ data.expiration_year }}"`,
		"another number":         `,"data":{"number":"4111111111111111"}`,
		"no wish to deduplicate": `,"deduplicate_token":false`,
	} {
		if made := w.mustCreate(c, strings.Replace(request(more), `"data":{"number":"`+visa+`","cvc":"123"},"data"`, `"data"`, 1)); made.ID == "first" {
			t.Errorf("%s: the existing token came back", name)
		}
	}
	if w.mustCreate(c, request(`,"mask":{"number":"{{ data.number | reveal_last: 4 }}","expiration_month":"{{ data.expiration_month }}","expiration_year":"{{ data.expiration_year }}"}`)).ID != "first" {
		t.Error("the mask of the type, written out, makes another token")
	}
}

func TestADuplicateLivesAtLeastAsLongAsWasAskedFor(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	request := func(expires string) string {
		return `{"type":"card","data":{"number":"` + visa + `"},"deduplicate_token":true` + expires + `}`
	}
	first := w.mustCreate(c, request(`,"expires_at":"1/1/2040"`)).ID
	for expires, same := range map[string]bool{`,"expires_at":"1/1/2039"`: true, `,"expires_at":"1/1/2040"`: true, `,"expires_at":"1/2/2040"`: false, "": false} {
		made := w.mustCreate(c, request(expires))
		if (made.ID == first) != same {
			t.Errorf("a create with %q got the token that expires on 1/1/2040: %t, want %t", expires, made.ID == first, same)
		}
		if !same {
			if err := w.tokens.Delete(t.Context(), c, made.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestDeduplicationTakesFingerprints(t *testing.T) {
	w := newWorld(t)
	w.choose(map[string]string{"fingerprint_tokens": "false", "deduplicate_tokens": "true"})
	w.mustCreate(w.revealing(), `{"type":"token","data":"x"}`)
	_, err := w.create(w.revealing(), `{"type":"token","data":"x","deduplicate_token":true}`)
	wantFault(t, "deduplicate_token without fingerprints", err, fault.Invalid, "deduplicate_token")
	first := w.mustCreate(w.revealing(), `{"type":"token","data":"x","fingerprint_expression":"{{ data }}","deduplicate_token":true}`)
	if again := w.mustCreate(w.revealing(), `{"type":"token","data":"x","fingerprint_expression":"{{ data }}"}`); again.ID != first.ID {
		t.Error("a token with an expression of its own is not deduplicated")
	}
}

func TestAHundredCreatesAtOnceMakeOneToken(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	ids := make([]string, 100)
	var wait sync.WaitGroup
	for i := range ids {
		wait.Go(func() {
			made, err := w.create(c, `{"type":"card","data":{"number":"`+visa+`"},"deduplicate_token":true}`)
			if err != nil {
				t.Errorf("Create = %s", says(err))
			}
			ids[i] = made.ID
		})
	}
	wait.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("two tokens were made: %s and %s", ids[0], id)
		}
	}
	if _, total, err := w.tokens.List(t.Context(), c, token.Filter{}, store.Page{Limit: 10}); err != nil || total != 1 {
		t.Errorf("there are %d tokens, %v, want 1", total, err)
	}
}

func TestSearchIndexes(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	w.mustCreate(c, `{"type":"token","id":"jane","data":{"name":"Jané","n":12.50,"yes":true},"search_indexes":["{{ data.name }}","{{ data.n }}","{{ data.yes }}","{{ data.name }}"]}`)
	w.mustCreate(c, `{"type":"social_security_number","id":"ssn","data":"123-45-6789"}`)
	w.mustCreate(c, `{"type":"social_security_number","id":"none","data":"223-45-6789","search_indexes":[]}`)
	for value, want := range map[string]string{
		"JANÉ": "jane", "12.50": "jane", "12.5": "", "true": "jane", "123-45-6789": "ssn", "123456789": "ssn", "6789": "ssn", "5678": "",
	} {
		list, total, err := w.tokens.Search(t.Context(), c, `data:"`+value+`"`, store.Page{Limit: 10})
		got := ""
		for _, found := range list {
			got += found.ID
		}
		if err != nil || got != want || int(total) != len(list) {
			t.Errorf("data:%s finds %q of %d, %v, want %q", value, got, total, err, want)
		}
	}
	eleven := strings.TrimSuffix(strings.Repeat(`"{{ data }}",`, 11), ",")
	for indexes, path := range map[string]string{
		`["{{ data }}","{{ data.nothing }}"]`: "search_indexes.1", `["{{ data | nonsense }}"]`: "search_indexes.0", `["{{ data | split: '' }}"]`: "search_indexes.0",
		`["{{ data | alias_card }}"]`: "search_indexes.0", `[""]`: "search_indexes.0", `[` + eleven + `]`: "search_indexes",
		`["` + strings.Repeat("x", 401) + `"]`: "search_indexes.0", `["{{ metadata.a }}"]`: "search_indexes.0",
	} {
		_, err := w.create(c, `{"type":"token","data":"4242424242424242","search_indexes":`+indexes+`}`)
		wantFault(t, "search_indexes "+indexes, err, fault.Invalid, path)
	}
	_, err := w.create(c, `{"type":"card","data":{"number":"`+visa+`","cvc":"123"},"search_indexes":["{{ data.cvc }}"]}`)
	wantFault(t, "an index of a cvc", err, fault.Invalid, "search_indexes.0")
}

func TestACVCIsGoneAfterAnHour(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	cvc := func() string {
		data := w.mustGet(c, "card").Data
		v, _ := data.Get("cvc")
		return v.Reveal()
	}
	w.mustCreate(c, `{"type":"card","id":"card","data":{"number":"`+visa+`","cvc":"123"}}`)
	w.clock.Advance(59*time.Minute + 59*time.Second)
	if cvc() != "123" {
		t.Error("the cvc is gone too early")
	}
	// A patch that does not touch it leaves it its hour.
	w.mustPatch(c, "card", `{"data":{"expiration_month":3},"metadata":{"a":"b"}}`)
	if cvc() != "123" {
		t.Error("a patch of something else took the cvc away")
	}
	w.clock.Advance(time.Second)
	if cvc() != "" {
		t.Error("the cvc is there after an hour")
	}
	// One that stores it anew starts a new hour, whatever minute it is.
	w.clock.Advance(30 * time.Second)
	w.mustPatch(c, "card", `{"data":{"cvc":456}}`)
	w.clock.Advance(59 * time.Minute)
	if cvc() != "456" {
		t.Error("a new cvc did not get an hour")
	}
	w.clock.Advance(time.Minute)
	if cvc() != "" {
		t.Error("the new cvc is there after an hour")
	}
	w.mustPatch(c, "card", `{"data":{"cvc":"789"}}`)
	w.mustPatch(c, "card", `{"data":{"cvc":null}}`)
	if row, err := w.row("card"); err != nil || len(row.ShortLived) != 0 || cvc() != "" {
		t.Errorf("a removed cvc is still stored: %v", err)
	}
	// The key itself is destroyed: what is left opens for nobody.
	w.mustPatch(c, "card", `{"data":{"cvc":"789"}}`)
	w.clock.Advance(time.Hour)
	if n, err := w.ring.DestroyDue(context.WithoutCancel(t.Context()), 0); n == 0 || err != nil {
		t.Errorf("DestroyDue = %d, %v", n, err)
	}
	w.clock.Advance(-30 * time.Minute)
	if cvc() != "" {
		t.Error("the cvc opens again when the clock is set back")
	}
}

func TestATenantMayKeepACVCShorter(t *testing.T) {
	w := newWorld(t)
	w.choose(map[string]string{"cvc_retention": "5m"})
	w.mustCreate(w.revealing(), `{"type":"card","id":"card","data":{"number":"`+visa+`","cvc":"123"}}`)
	w.clock.Advance(5*time.Minute - time.Second)
	if _, there := w.mustGet(w.revealing(), "card").Data.Get("cvc"); !there {
		t.Error("the cvc is gone too early")
	}
	w.clock.Advance(time.Second)
	if _, there := w.mustGet(w.revealing(), "card").Data.Get("cvc"); there {
		t.Error("the cvc outlives the tenant's retention")
	}
}

func TestUpdate(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	w.mustCreate(c, `{"type":"token","id":"tok","data":{"a":1.0,"b":{"c":"x","d":"y"}},"mask":{"a":"{{ data.a }}"},"metadata":{"k":"v","l":"w"},
		"search_indexes":["{{ data.a }}"],"expires_at":"1/1/2040","containers":["/a/"]}`)
	before := w.mustGet(c, "tok")
	for _, test := range []struct{ patch, member, want string }{
		{`{}`, "data", `{"a":1.0,"b":{"c":"x","d":"y"}}`},
		{`{"data":{"b":{"c":null,"e":2}}}`, "data", `{"a":1.0,"b":{"d":"y","e":2}}`},
		{`{"unknown":1}`, "data", `{"a":1.0,"b":{"d":"y","e":2}}`},
		{`{"mask":{"b":"{{ data.b.d }}"}}`, "mask", `{"a":"{{ data.a }}","b":"{{ data.b.d }}"}`},
		{`{"mask":{"a":null}}`, "mask", `{"b":"{{ data.b.d }}"}`},
		{`{"mask":null}`, "mask", ""},
		{`{"metadata":{"k":null,"m":"n"}}`, "metadata", `{"l":"w","m":"n"}`},
		{`{"metadata":null}`, "metadata", ""},
		{`{"containers":["/B/"]}`, "containers", `["/b/"]`},
		{`{"containers":[]}`, "containers", `["/general/high/"]`},
		{`{"search_indexes":["{{ data.b.d }}","x"]}`, "search_indexes", `["{{ data.b.d }}","x"]`},
		{`{"search_indexes":null}`, "search_indexes", ""},
		{`{"fingerprint_expression":"{{ data.a }}"}`, "fingerprint_expression", `"{{ data.a }}"`},
		{`{"fingerprint_expression":null}`, "fingerprint_expression", `"{{ data | stringify }}"`},
		{`{"metadata":{"z":"z"}}`, "expires_at", `"2040-01-01T00:00:00.000000+00:00"`},
		{`{"expires_at":"2/1/2040 1:00:00 AM +02:00"}`, "expires_at", `"2040-02-01T01:00:00.000000+02:00"`},
		{`{"expires_at":null}`, "expires_at", ""},
		{`{"id":"tok","type":"token","deduplicate_token":true}`, "id", `"tok"`},
		{`{"data":[1,2]}`, "data", `[1,2]`},
		{`{"data":{"n":{"m":null}}}`, "data", `{"n":{}}`},
	} {
		w.clock.Advance(time.Second)
		answer := w.mustPatch(c, "tok", test.patch)
		got := w.mustGet(c, "tok")
		if member(got, test.member) != test.want {
			t.Errorf("%s: %s = %s, want %s", test.patch, test.member, member(got, test.member), test.want)
		}
		if test.member != "data" && member(answer, test.member) != test.want {
			t.Errorf("%s: the answer's %s = %s, want %s", test.patch, test.member, member(answer, test.member), test.want)
		}
	}
	after := w.mustGet(c, "tok")
	if after.CreatedAt != before.CreatedAt || after.ModifiedBy != appID || after.ModifiedAt != store.At(w.clock.Now()) || before.ModifiedBy != "" || member(before, "modified_at") != "" {
		t.Errorf("made and changed: %s, before %s", text(after.Object()), text(before.Object()))
	}
	for message, want := range map[string]int{
		"Token updated": 11, "Token mask changed": 3, "Token search indexes changed": 2, "Token fingerprint expression changed": 2, "Token moved to other containers": 2,
	} {
		if n := w.count(w.tenant, "update token tok "+message+" application"); n != want {
			t.Errorf("%d entries %q, want %d", n, message, want)
		}
	}
}

func TestAnUpdateFollowsTheRulesOfTheType(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	w.mustCreate(c, `{"type":"card","id":"card","data":{"number":"`+visa+`","expiration_month":1},"search_indexes":["{{ data.expiration_month }}"],"metadata":{"a":"b"}}`)
	before := text(w.mustGet(c, "card").Object())
	for patch, path := range map[string]string{
		`{"data":{"number":null}}`: "data.number", `{"data":{"expiration_year":30}}`: "data.expiration_year", `{"data":{"pan2":"x"}}`: "data",
		`{"data":null}`: "data", `{"data":"x"}`: "data", `{"type":"bank"}`: "type", `{"id":"other"}`: "id", `{"type":null}`: "type",
		`{"containers":["x"]}`: "containers.0", `{"metadata":{"a":1}}`: "metadata", `{"expires_at":"1/1/2020"}`: "expires_at",
		`{"mask":"{{ data"}`: "mask", `{"data":{"expiration_month":null}}`: "search_indexes.0", `{"fingerprint_expression":"{{ data.nothing }}"}`: "fingerprint_expression",
		`{"data":{"expiration_month":2},"metadata":{"x y":"z"}}`: "metadata", `[]`: "",
	} {
		_, err := w.patch(c, "card", patch)
		wantFault(t, patch, err, fault.Invalid, path)
	}
	if after := text(w.mustGet(c, "card").Object()); after != before {
		t.Errorf("a refused update changed something: %s, before %s", after, before)
	}
	w.choose(map[string]string{"numeric_ids": "true"})
	w.mustCreate(c, `{"type":"token","id":"4111111111111111","data":"x"}`)
	for _, data := range []string{`"4111111111111111"`, `{"a":["it is 4111-1111-1111-1111"]}`} {
		_, err := w.patch(c, "4111111111111111", `{"data":`+data+`}`)
		wantFault(t, "a value that the id tells", err, fault.Invalid, "data")
	}
	// A mask that is patched is merged into the one that is shown.
	if got := member(w.mustPatch(c, "card", `{"mask":{"number":"{{ data.number | last4 }}"}}`), "data"); got != `{"number":"4242","expiration_month":1}` {
		t.Errorf("data under a patched mask = %s", got)
	}
	// What is found by is worked out anew.
	old := w.mustGet(c, "card").Fingerprint
	w.mustPatch(c, "card", `{"data":{"number":"4111111111111111","expiration_month":2}}`)
	if w.mustGet(c, "card").Fingerprint == old {
		t.Error("the fingerprint is that of the old number")
	}
	for query, want := range map[string]int64{"data:1": 0, "data:2": 1, "fingerprint:" + old: 0, "metadata.a:B": 1} {
		if _, total, err := w.tokens.Search(t.Context(), c, query, store.Page{Limit: 1}); err != nil || total != want {
			t.Errorf("%s finds %d, %v, want %d", query, total, err, want)
		}
	}
}

func TestWhoMayUpdate(t *testing.T) {
	w := newWorld(t)
	w.mustCreate(w.revealing(), `{"type":"token","id":"tok","data":"x","containers":["/a/"]}`)
	for name, test := range map[string]struct {
		caller access.Caller
		id     string
		patch  string
		want   fault.Kind
	}{
		"no permission":    {w.only(access.TokenRead), "tok", `{"metadata":{"a":"b"}}`, fault.Forbidden},
		"other place":      {w.within("/b/"), "tok", `{"metadata":{"a":"b"}}`, fault.Forbidden},
		"to another place": {w.within("/a/"), "tok", `{"containers":["/b/"]}`, fault.Forbidden},
		"to some other":    {w.within("/a/"), "tok", `{"containers":["/a/","/b/"]}`, fault.Forbidden},
		"from another":     {w.within("/b/"), "tok", `{"containers":["/b/"]}`, fault.Forbidden},
		"to the default":   {w.within("/a/"), "tok", `{"containers":null}`, fault.Forbidden},
		"other tenant":     {w.stranger(), "tok", `{"metadata":{"a":"b"}}`, fault.NotFound},
		"missing":          {w.revealing(), "kot", `{}`, fault.NotFound},
	} {
		_, err := w.patch(test.caller, test.id, test.patch)
		wantFault(t, name, err, test.want, "")
	}
	if got := member(w.mustPatch(w.within("/a/", "/b/"), "tok", `{"containers":["/b/"]}`), "containers"); got != `["/b/"]` {
		t.Errorf("containers = %s", got)
	}
}

func TestUpdatesAtOnceAllCount(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	w.mustCreate(c, `{"type":"token","id":"tok","data":{}}`)
	var wait sync.WaitGroup
	for i := range 40 {
		wait.Go(func() {
			if _, err := w.tokens.Update(t.Context(), c, "tok", parse(t, `{"data":{"k`+strconv.Itoa(i)+`":1}}`)); err != nil {
				t.Errorf("Update = %s", says(err))
			}
		})
	}
	wait.Wait()
	if n := w.mustGet(c, "tok").Data.Len(); n != 40 {
		t.Errorf("%d of 40 updates are left", n)
	}
}
