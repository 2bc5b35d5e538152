package token_test

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

func TestAnswersToChangesNeverReveal(t *testing.T) {
	w := newWorld(t)
	for name, test := range map[string]struct {
		caller        access.Caller
		want, updated string
	}{
		"a rule that reveals": {w.revealing(), `"XXXXXXXXXXXX4242"`, `"XXXXXXXXXXXX4242"`},
		"a rule that masks":   {w.masking(), `"XXXXXXXXXXXX4242"`, `"XXXXXXXXXXXX4242"`},
		"a rule that redacts": {w.redacting(), "", ""},
		"plain permissions":   {w.only(access.TokenCreate, access.TokenUpdate), `"XXXXXXXXXXXX4242"`, ""},
	} {
		made := w.mustCreate(test.caller, `{"type":"card_number","data":"`+visa+`"}`)
		if got := member(made, "data"); got != test.want {
			t.Errorf("%s: created data = %s, want %s", name, got, test.want)
		}
		if got := member(w.mustPatch(test.caller, made.ID, `{"metadata":{"a":"b"}}`), "data"); got != test.updated {
			t.Errorf("%s: updated data = %s, want %s", name, got, test.updated)
		}
	}
}

func TestReadsShowWhatAccessAllows(t *testing.T) {
	w := newWorld(t)
	made := w.mustCreate(w.revealing(), `{"type":"card","data":{"number":"`+visa+`","cvc":"123"},"metadata":{"a":"b"}}`)
	bank := w.mustCreate(w.revealing(), `{"type":"bank","data":{"routing_number":"021000021","account_number":"00001234"}}`)
	if got := w.mustGet(w.redacting(), bank.ID); member(got, "bank")+member(got, "data") != "" {
		t.Error("a redacted bank token shows its account")
	}
	for name, test := range map[string]struct {
		caller     access.Caller
		data, card string
		kind       error
	}{
		"revealed":       {w.revealing(), `{"number":"` + visa + `","cvc":"123"}`, `{"bin":"42424242","last4":"4242","brand":"visa"}`, nil},
		"masked":         {w.masking(), `{"number":"XXXXXXXXXXXX4242"}`, `{"bin":"42424242","last4":"4242","brand":"visa"}`, nil},
		"redacted":       {w.redacting(), "", "", nil},
		"plain":          {w.only(access.TokenRead), `{"number":"XXXXXXXXXXXX4242"}`, `{"bin":"42424242","last4":"4242","brand":"visa"}`, nil},
		"no permission":  {w.only(access.TokenCreate), "", "", fault.Forbidden},
		"other place":    {w.within("/general/"), "", "", fault.Forbidden},
		"other tenant":   {w.stranger(), "", "", fault.NotFound},
		"nobody":         {access.Caller{}, "", "", fault.Forbidden},
		"session by id":  {session(w, "id", made.ID), `{"number":"` + visa + `","cvc":"123"}`, `{"bin":"42424242","last4":"4242","brand":"visa"}`, nil},
		"session others": {session(w, "id", "another"), "", "", fault.Forbidden},
	} {
		got, err := w.get(test.caller, made.ID)
		if !errors.Is(err, test.kind) || test.kind == nil && err != nil {
			t.Errorf("%s: Get = %s, want %v", name, says(err), test.kind)
			continue
		}
		if err == nil && (member(got, "data") != test.data || member(got, "card") != test.card || member(got, "metadata") != `{"a":"b"}`) {
			t.Errorf("%s: Get = %s, want data %s and card %s", name, text(got.Object()), test.data, test.card)
		}
	}
	for _, id := range []string{"", "x", "no-such-token", "\x00\xff", strings.Repeat("a", 401)} {
		_, err := w.get(w.revealing(), id)
		wantFault(t, "Get "+strconv.Quote(id), err, fault.NotFound, "")
	}
}

// session may do everything to the tokens of one id.
func session(w *world, attribute, value string) access.Caller {
	return accesstest.Session(w.t, w.tenant, appID, "51e94b2d-19e8-4a9c-9b26-64e1b9d9d6b2", []access.Rule{{
		Transform: "reveal", Permissions: []string{"token:create", "token:read", "token:update", "token:delete", "token:search"},
		Conditions: []access.Condition{{Attribute: attribute, Operator: "starts_with", Value: value}},
	}})
}

func TestIDs(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	if made := w.mustCreate(c, `{"type":"token","data":1}`); uuid.MustParse(made.ID).Version() != 4 {
		t.Errorf("id = %s, want a UUID of version 4", made.ID)
	}
	for _, test := range []struct{ request, want string }{
		{`{"type":"token","data":"x","id":"my-token:1 a"}`, "my-token:1 a"},
		{`{"type":"token","data":{"name":"Jane"},"id":"customer-{{ data.name | downcase }}"}`, "customer-jane"},
		{`{"type":"card","data":{"number":"` + visa + `"},"id":"{{ data.number | last4 }}-a"}`, "4242-a"},
		{`{"type":"token","data":12345,"id":"n{{ data }}"}`, "n12345"},
		{`{"type":"token","data":{"x":"abc"},"id":"abc"}`, "abc"},
		{`{"type":"token","data":"y","id":"order-42424242424242420"}`, "order-42424242424242420"}, // 17 digits are no card number
		{`{"type":"token","data":"y","id":"4242424242424241"}`, "4242424242424241"},               // a wrong check digit
		{`{"type":"token","data":"y","id":"4242--4242-4242-4242"}`, "4242--4242-4242-4242"},       // two runs
		{`{"type":"token","data":"y","id":"9999999999999995"}`, "9999999999999995"},               // of no network
		{`{"type":"token","data":"x","id":null}`, ""},
	} {
		if made := w.mustCreate(c, test.request); made.ID != test.want && test.want != "" {
			t.Errorf("%s: id = %q, want %q", test.request, made.ID, test.want)
		}
	}
	for _, request := range []string{
		`{"type":"token","data":"x","id":""}`,
		`{"type":"token","data":"x","id":"ab"}`,
		`{"type":"token","data":"x","id":5}`,
		`{"type":"token","data":"x","id":"` + strings.Repeat("a", 401) + `"}`,
		`{"type":"token","data":"x","id":"a/b"}`, `{"type":"token","data":"x","id":"a\\b"}`, `{"type":"token","data":"x","id":"a?b"}`,
		`{"type":"token","data":"x","id":"a#b"}`, `{"type":"token","data":"x","id":"a+b"}`, `{"type":"token","data":"x","id":"a%b"}`,
		`{"type":"token","data":"x","id":"a{b"}`, `{"type":"token","data":"x","id":"a^b"}`, `{"type":"token","data":"x","id":"a\u0000b"}`,
		`{"type":"token","data":"x","id":"a\nb"}`, `{"type":"token","data":"x","id":"[ab]"}`, `{"type":"token","data":"x","id":"a|b&c=d"}`,
		`{"type":"token","data":"x","id":"<abc>"}`,
		`{"type":"token","data":"x","id":"{{ nothing }}"}`, `{"type":"token","data":"x","id":"{{ data.nothing }}"}`, `{"type":"token","data":"x","id":"{{ data"}`,
		// Every id can be used as {{<id>}}.
		`{"type":"token","data":"x","id":" abc"}`, `{"type":"token","data":"x","id":"abc\u00a0"}`, `{"type":"token","data":"x","id":"\u3000\u2003 "}`,
		`{"type":"token","data":"x","id":"-abc"}`, `{"type":"token","data":"x","id":"abc-"}`, `{"type":"token","data":"x","id":"token:abc"}`,
		// A card number must not become the id, whatever the data is.
		`{"type":"token","data":"y","id":"` + visa + `"}`, `{"type":"token","data":"y","id":"tok_4242.4242 4242-4242_x"}`,
		`{"type":"token","data":"y","id":"378282246310005"}`, `{"type":"token","data":"y","id":"30569309025904"}`,
		`{"type":"token","data":"y","id":"6011111111111117"}`, `{"type":"token","data":"y","id":"3530111333300000"}`,
		`{"type":"token","data":"y","id":"2223003122003222"}`, `{"type":"token","data":"` + visa + `","id":"{{ '5555555555554444' }}"}`,
		`{"type":"token","data":"number 123456789012","id":"x-123456789012"}`,
		// What is to be protected must not become the id.
		`{"type":"token","data":"secret","id":"secret"}`,
		`{"type":"token","data":"secret","id":"{{ data }}"}`,
		`{"type":"token","data":12345,"id":"12345"}`,
		`{"type":"card","data":{"number":"` + visa + `"},"id":"` + visa + `"}`,
		`{"type":"card","data":{"number":"` + visa + `"},"id":"{{ data.number }}"}`,
		`{"type":"card","data":{"number":"` + visa + `"},"id":"tok-{{ data.number }}-1"}`,
		`{"type":"card","data":{"number":"` + visa + `"},"id":"4242-4242-4242-4242"}`,
		`{"type":"card","data":{"number":"` + visa + `"},"id":"4242 4242 4242 4242"}`,
		`{"type":"token","data":{"a":["card 4242-4242-4242-4242 it is"]},"id":"x` + visa + `"}`,
		`{"type":"card","data":{"number":"` + visa + `"},"id":"{{ data.number }}{{ data.number | alias_card }}"}`,
		`{"type":"bank","data":{"routing_number":"021000021","account_number":"00001234"},"id":"00001234"}`,
		`{"type":"social_security_number","data":"123-45-6789","id":"123456789"}`,
	} {
		_, err := w.create(c, request)
		wantFault(t, request, err, fault.Invalid, "id")
	}
	_, err := w.create(c, `{"type":"token","data":"z","id":"customer-jane"}`)
	wantFault(t, "an id that is taken", err, fault.Conflict, "")
	if _, err := w.create(w.stranger(), `{"type":"token","data":"z","id":"customer-jane"}`); err != nil {
		t.Errorf("the same id in another tenant = %s", says(err))
	}
	_, err = w.create(c, `{"type":"card","data":{"number":"`+visa+`","cvc":"987"},"id":"cvc-{{ data.cvc }}"}`)
	if err == nil {
		if _, err := w.get(c, "cvc-987"); err == nil {
			t.Error("a cvc became an id")
		}
	}
}

func TestAnAliasIsDrawnAgainWhenItIsTaken(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	made := w.mustCreate(c, `{"type":"card","data":{"number":"`+visa+`"},"id":"{{ data.number | alias_card: false, true }}"}`)
	if len(made.ID) != 16 || !strings.HasSuffix(made.ID, "4242") || made.ID == visa {
		t.Errorf("id = %s, want 16 digits that end in 4242", made.ID)
	}
	// A source of chance that says the same thing each time: the second token
	// finds its id taken ten times, and gets a UUID.
	same := &counting{}
	w.tokens = token.New(w.store, w.ring, token.Options{Now: w.clock.Now, Random: same})
	const request = `{"type":"token","data":"abcdef","id":"{{ data | alias_preserve_length }}"}`
	first := w.mustCreate(c, request)
	same.reads = 0
	second := w.mustCreate(c, request)
	if _, err := uuid.Parse(second.ID); err != nil || len(first.ID) != 6 {
		t.Errorf("ids = %s, %s, want an alias and then a UUID", first.ID, second.ID)
	}
	if again := same.reads; again == 0 {
		t.Error("no alias was drawn for the second token")
	}
	if got := w.mustGet(c, second.ID); member(got, "data") != `"abcdef"` {
		t.Errorf("data = %s: it was sealed for another id", member(got, "data"))
	}
	// All aliases of one document are drawn again together.
	body := `[` + strings.Repeat(request+`,`, 20) + request + `]`
	out, err := w.tokens.Tokenize(t.Context(), c, parse(t, body))
	if err != nil || out.Value.Len() != 21 {
		t.Fatalf("Tokenize = %d, %s", out.Value.Len(), says(err))
	}
}

// counting gives the same bytes each time, and counts.
type counting struct {
	mu    sync.Mutex
	reads int
}

func (c *counting) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	return io.ReadFull(bytes.NewReader(bytes.Repeat([]byte{7}, len(b))), b)
}

func TestContainers(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	for request, want := range map[string]string{
		`{"type":"token","data":1,"containers":["/B/x/","/a/","/a/"]}`:   `["/a/","/b/x/"]`,
		`{"type":"token","data":1,"containers":[]}`:                      `["/general/high/"]`,
		`{"type":"card_number","data":"` + visa + `","containers":null}`: `["/pci/high/"]`,
		`{"type":"token","data":1,"containers":["/"]}`:                   `["/"]`,
	} {
		if got := member(w.mustCreate(c, request), "containers"); got != want {
			t.Errorf("%s: containers = %s, want %s", request, got, want)
		}
	}
	eleven := strings.TrimSuffix(strings.Repeat(`"/a/",`, 11), ",")
	for request, path := range map[string]string{
		`{"type":"token","data":1,"containers":["a/"]}`:           "containers.0",
		`{"type":"token","data":1,"containers":["/a/","/a"]}`:     "containers.1",
		`{"type":"token","data":1,"containers":["/a b/"]}`:        "containers.0",
		`{"type":"token","data":1,"containers":["//"]}`:           "containers.0",
		`{"type":"token","data":1,"containers":[5]}`:              "containers.0",
		`{"type":"token","data":1,"containers":"/a/"}`:            "containers",
		`{"type":"token","data":1,"containers":[` + eleven + `]}`: "containers",
	} {
		_, err := w.create(c, request)
		wantFault(t, request, err, fault.Invalid, path)
	}
	some := w.within("/a/")
	w.mustCreate(some, `{"type":"token","data":1,"containers":["/a/","/a/b/"]}`)
	for _, request := range []string{`{"type":"token","data":1}`, `{"type":"token","data":1,"containers":["/a/","/b/"]}`} {
		_, err := w.create(some, request)
		wantFault(t, request, err, fault.Forbidden, "")
	}
	// The least revealing of several containers counts.
	both := w.mustCreate(c, `{"type":"token","data":"secret","containers":["/a/","/b/"]}`)
	mixed := accesstest.Application(t, w.tenant, appID, access.Private, []access.Rule{
		accesstest.Rule("/a/", access.Reveal, access.TokenRead), accesstest.Rule("/b/", access.Mask, access.TokenRead),
	})
	if got := member(w.mustGet(mixed, both.ID), "data"); got != `"XXXret"` {
		t.Errorf("a token in a revealed and a masked container shows %s", got)
	}
	_, err := w.get(some, both.ID)
	wantFault(t, "Get with access to one of two containers", err, fault.Forbidden, "")
}

func TestMetadata(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	made := w.mustCreate(c, `{"type":"token","data":"x","metadata":{"Tier.a_b-c":"Gold","gone":null,"empty":""}}`)
	if got, want := member(made, "metadata"), `{"Tier.a_b-c":"Gold","empty":""}`; got != want {
		t.Errorf("metadata = %s, want %s", got, want)
	}
	if got := member(w.mustCreate(c, `{"type":"token","data":"x","metadata":{}}`), "metadata"); got != "" {
		t.Errorf("empty metadata is shown as %s", got)
	}
	row, err := w.row(made.ID)
	if err != nil || contains(row, "Gold") || contains(row, "Tier") || contains(row, "gold") {
		t.Errorf("the stored row shows metadata: %v", err)
	}
	many := make([]string, 51)
	for i := range many {
		many[i] = `"k` + strconv.Itoa(i) + `":"v"`
	}
	w.mustCreate(c, `{"type":"token","data":"x","metadata":{`+strings.Join(many[:50], ",")+`}}`)
	w.mustCreate(c, `{"type":"token","data":"x","metadata":{"a":"`+strings.Repeat("é", 1000)+`"}}`)
	for _, metadata := range []string{
		`{` + strings.Join(many, ",") + `}`, `{"":"v"}`, `{"` + strings.Repeat("k", 201) + `":"v"}`, `{"a b":"v"}`, `{"é":"v"}`,
		`{"a":1}`, `{"a":{}}`, `{"a":"` + strings.Repeat("é", 1001) + `"}`, `[]`, `"x"`,
	} {
		_, err := w.create(c, `{"type":"token","data":"x","metadata":`+metadata+`}`)
		wantFault(t, "metadata", err, fault.Invalid, "metadata")
	}
}

func TestExpiry(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	for given, want := range map[string]string{
		"8/26/2040 7:23:57 PM -07:00":      "2040-08-26T19:23:57.000000-07:00",
		"08/06/2040 07:03:07 am +05:30":    "2040-08-06T07:03:07.000000+05:30",
		"8/26/2040 12:00:00 AM":            "2040-08-26T00:00:00.000000+00:00",
		"8/26/2040 12:00:00 PM +00:00":     "2040-08-26T12:00:00.000000+00:00",
		"8/26/2040":                        "2040-08-26T00:00:00.000000+00:00",
		"2040-08-26T19:23:57Z":             "2040-08-26T19:23:57.000000+00:00",
		"2040-08-26T19:23:57.123456-03:00": "2040-08-26T19:23:57.123456-03:00",
		"2040-08-26t19:23:57z":             "2040-08-26T19:23:57.000000+00:00",
		"2040-08-26":                       "2040-08-26T00:00:00.000000+00:00",
		"2040-08-26T19:23":                 "2040-08-26T19:23:00.000000+00:00",
		"2040-08-26T19:23:57+0530":         "2040-08-26T19:23:57.000000+05:30",
		"9999-12-31":                       "9999-12-31T00:00:00.000000+00:00",
		"12/31/9999 11:59:59 PM -07:00":    "9999-12-31T16:59:59.999999-07:00",
	} {
		made := w.mustCreate(c, `{"type":"token","data":1,"expires_at":"`+given+`"}`)
		if got := member(w.mustGet(c, made.ID), "expires_at"); got != `"`+want+`"` {
			t.Errorf("expires_at %s came back as %s, want %s", given, got, want)
		}
	}
	for _, given := range []string{
		`""`, `"soon"`, `"26/8/2040"`, `"8/26/40"`, `"2/30/2040"`, `"8/26/2040 13:00:00 PM"`, `"8/26/2040 7:23 PM"`, `"8/26/2040 7:23:57 PM -7"`,
		`"8/26/2040 0:00:00 AM"`, `"2040-08-26 19:23:57"`, `"2040-08-26T19:23:57+24:00"`, `2147483647`, `"` + start.Format(time.RFC3339) + `"`, `"1/1/2020"`, `"0000-01-01T00:00:00Z"`,
	} {
		_, err := w.create(c, `{"type":"token","data":1,"expires_at":`+given+`}`)
		wantFault(t, "expires_at "+given, err, fault.Invalid, "expires_at")
	}
	if got := member(w.mustCreate(c, `{"type":"token","data":1,"expires_at":null}`), "expires_at"); got != "" {
		t.Errorf("expires_at null came back as %s", got)
	}
}

func TestAnExpiredTokenIsNotThere(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	w.mustCreate(c, `{"type":"token","data":"secret","id":"soon","metadata":{"a":"b"},"search_indexes":["{{ data }}"],"expires_at":"`+start.Add(time.Hour).Format(time.RFC3339)+`"}`)
	w.mustCreate(c, `{"type":"token","data":"secret","id":"later"}`)
	w.clock.Advance(time.Hour - time.Microsecond)
	w.mustGet(c, "soon")
	w.clock.Advance(time.Microsecond)
	_, err := w.get(c, "soon")
	wantFault(t, "Get", err, fault.NotFound, "")
	_, err = w.patch(c, "soon", `{"expires_at":null}`)
	wantFault(t, "Update", err, fault.NotFound, "")
	wantFault(t, "Delete", w.tokens.Delete(t.Context(), c, "soon"), fault.NotFound, "")
	_, err = w.tokens.Detokenize(t.Context(), c, parse(t, `"{{ soon }}"`))
	wantFault(t, "Detokenize", err, fault.Invalid, "")
	if list, total, err := w.tokens.List(t.Context(), c, token.Filter{}, store.Page{Limit: 10}); err != nil || total != 1 || len(list) != 1 || list[0].ID != "later" {
		t.Errorf("List = %d of %d, %v, want the other token alone", len(list), total, err)
	}
	if _, total, err := w.tokens.List(t.Context(), c, token.Filter{Metadata: map[string]string{"a": "b"}}, store.Page{Limit: 10}); err != nil || total != 0 {
		t.Errorf("List by metadata finds %d, %v", total, err)
	}
	if _, total, err := w.tokens.Search(t.Context(), c, "data:secret", store.Page{Limit: 10}); err != nil || total != 0 {
		t.Errorf("Search finds %d, %v", total, err)
	}
	// It is no longer what a new token repeats, and its id is free.
	made := w.mustCreate(c, `{"type":"token","data":"other","id":"soon"}`)
	if member(made, "data") != `"XXXer"` || w.count(w.tenant, "delete token soon Token expired system") != 1 {
		t.Errorf("creating over an expired token = %s with logs %v", text(made.Object()), w.logs(w.tenant))
	}
}

func TestTheSweepRemovesWhatHasExpired(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	at := start.Add(time.Minute).Format(time.RFC3339)
	for i := range 130 {
		w.mustCreate(c, `{"type":"token","data":1,"id":"due-`+strconv.Itoa(i)+`","expires_at":"`+at+`"}`)
	}
	w.mustCreate(w.stranger(), `{"type":"card_number","data":"`+visa+`","id":"due","expires_at":"`+at+`"}`)
	w.mustCreate(c, `{"type":"token","data":1,"id":"kept"}`)
	if n, err := w.tokens.Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("Sweep before the time = %d, %v", n, err)
	}
	w.mustPatch(c, "due-0", `{"expires_at":null}`)
	w.clock.Advance(time.Minute)
	var wait sync.WaitGroup
	sums := make([]int, 4)
	for i := range sums { // as many nodes would
		wait.Go(func() {
			n, err := w.tokens.Sweep(t.Context())
			if err != nil {
				t.Errorf("Sweep = %v", err)
			}
			sums[i] = n
		})
	}
	wait.Wait()
	if sum := sums[0] + sums[1] + sums[2] + sums[3]; sum != 130 {
		t.Errorf("the sweeps removed %v, want 130 in all", sums)
	}
	if n := w.count(w.tenant, "delete token due-"); n != 129 {
		t.Errorf("%d entries say that a token expired, want 129", n)
	}
	if n := w.count(w.other, "delete card_number due Token expired system"); n != 1 {
		t.Errorf("the other tenant's log has %d entries, want 1: %v", n, w.logs(w.other))
	}
	for id, want := range map[string]error{"due-0": nil, "kept": nil, "due-1": store.ErrNotFound, "due-129": store.ErrNotFound} {
		if _, err := w.row(id); !errors.Is(err, want) {
			t.Errorf("the row of %s: %v, want %v", id, err, want)
		}
	}
}

func TestDelete(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	w.mustCreate(c, `{"type":"bank","data":{"routing_number":"021000021","account_number":"1"},"id":"bank-1"}`)
	for name, test := range map[string]struct {
		caller access.Caller
		id     string
		want   fault.Kind
	}{
		"no permission": {w.only(access.TokenRead), "bank-1", fault.Forbidden},
		"other place":   {w.within("/pci/"), "bank-1", fault.Forbidden},
		"other tenant":  {w.stranger(), "bank-1", fault.NotFound},
		"missing":       {c, "bank-2", fault.NotFound},
	} {
		wantFault(t, name, w.tokens.Delete(t.Context(), test.caller, test.id), test.want, "")
	}
	if err := w.tokens.Delete(t.Context(), w.only(access.TokenDelete), "bank-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.row("bank-1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the row is still there: %v", err)
	}
	if n := w.count(w.tenant, "delete bank bank-1 Token deleted application"); n != 1 {
		t.Errorf("logs = %v", w.logs(w.tenant))
	}
}

func TestWhatIsStoredIsSealed(t *testing.T) {
	w := newWorld(t)
	made := w.mustCreate(w.revealing(), `{"type":"card","data":{"number":"`+visa+`","expiration_year":2047,"cvc":"9876"},"mask":"canary-mask","search_indexes":["{{ data.number }}"],
		"fingerprint_expression":"canary-{{ data.number }}","metadata":{"k":"canary-value"}}`)
	row, err := w.row(made.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, plain := range []string{visa, "2047", "9876", "canary", "4242", made.Fingerprint} {
		if contains(row, plain) {
			t.Errorf("the stored row holds %s", plain)
		}
	}
	if len(row.ShortLived) == 0 || len(row.Terms) != 4 {
		t.Errorf("the row has %d bytes short-lived and %d terms, want some and 4", len(row.ShortLived), len(row.Terms))
	}
}

func TestRequestsOfTheWrongShapeAreRefused(t *testing.T) {
	w := newWorld(t)
	for request, path := range map[string]string{
		`[]`: "", `"x"`: "", `null`: "", `{}`: "type", `{"type":"token"}`: "data", `{"type":5,"data":1}`: "type",
		`{"type":"token","data":1,"search_indexes":"x"}`: "search_indexes", `{"type":"token","data":1,"search_indexes":[1]}`: "search_indexes",
		`{"type":"token","data":1,"fingerprint_expression":1}`: "fingerprint_expression",
		`{"type":"token","data":1,"deduplicate_token":"yes"}`:  "deduplicate_token",
	} {
		_, err := w.create(w.revealing(), request)
		wantFault(t, request, err, fault.Invalid, path)
	}
	if _, err := w.create(w.revealing(), `{"type":"token","data":1,"unknown":{"x":1}}`); err != nil {
		t.Errorf("an unknown member = %s, want it ignored", says(err))
	}
	_, err := w.create(w.only(access.TokenRead), `{"type":"token","data":1}`)
	wantFault(t, "without token:create", err, fault.Forbidden, "")
}

func TestStepsCommitWithTheToken(t *testing.T) {
	w := newWorld(t)
	r, err := token.ParseRequest(parse(t, `{"type":"token","data":"x","id":"stepped"}`))
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	_, err = w.tokens.Create(t.Context(), w.revealing(), r, func(store.Tx, token.Token) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("Create with a step that fails = %v", err)
	}
	if _, err := w.row("stepped"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the token is there although its step failed: %v", err)
	}
	var got string
	if _, err = w.tokens.Create(t.Context(), w.revealing(), r, func(_ store.Tx, made token.Token) error { got = made.ID; return nil }); err != nil || got != "stepped" {
		t.Errorf("the step got %q, %v", got, err)
	}
}
