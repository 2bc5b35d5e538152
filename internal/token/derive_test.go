package token_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// The callers of these tests, by what they hold beside token:create, update
// and search.
func (w *world) publicApp() access.Caller {
	return accesstest.Application(w.t, w.tenant, publicID, access.Public, nil, access.TokenCreate, access.TokenUpdate)
}

func (w *world) sessionOf(id string, rules ...access.Rule) access.Caller {
	return accesstest.Session(w.t, w.tenant, publicID, id, rules)
}

const (
	publicID  = "0d1b6a3a-9a45-4a51-8f0b-6c2f3e1d7a10"
	sessionID = "51e94b2d-19e8-4a9c-9b26-64e1b9d9d6b2"
	other     = "4111111111111111"
)

func TestAChangeThatShowsStoredDataTakesReveal(t *testing.T) {
	w := newWorld(t)
	everything := []access.Permission{access.TokenRead, access.TokenUpdate, access.TokenSearch, access.TokenUse, access.TokenCreate}
	callers := map[string]access.Caller{
		"a public application":        w.publicApp(),
		"a session under a mask":      w.sessionOf(sessionID, accesstest.Rule("/", access.Mask, everything...)),
		"a session under redact":      w.sessionOf(sessionID, accesstest.Rule("/", access.Redact, everything...)),
		"a private one with a mask":   w.masking(),
		"a private one with redact":   w.redacting(),
		"one that may only update":    w.only(access.TokenUpdate),
		"one that may use and change": w.only(access.TokenUpdate, access.TokenUse),
		"one that reveals elsewhere": accesstest.Application(t, w.tenant, appID, access.Private, []access.Rule{
			accesstest.Rule("/theirs/", access.Reveal, everything...), accesstest.Rule("/", access.Mask, everything...)}),
	}
	patches := []string{
		`{"mask":{"number":"{{ data.number }}"}}`,
		`{"mask":"{{ data.number }}"}`,
		`{"mask":null,"metadata":{"a":"b"}}`,
		`{"fingerprint_expression":"{{ data.number | slice: 3 }}"}`,
		`{"search_indexes":["{{ data.number | slice: 3 }}"]}`,
		`{"data":{"expiration_month":3},"mask":"{{ data.number }}"}`,
		`{"containers":["/theirs/"]}`,
		`{"containers":["/theirs/","/pci/high/"],"mask":"{{ data.number }}"}`,
		`{"mask":"{{ data.number | nonsense }}"}`,
		`{"mask":"{{ data.number | json: '$.nothing' }}"}`,
	}
	for name, c := range callers {
		for _, patch := range patches {
			w.mustCreate(w.revealing(), `{"type":"card","id":"card","data":{"number":"`+visa+`","expiration_month":1},"mask":{"number":"{{ data.number | last4 }}"}}`)
			before := text(w.mustGet(w.revealing(), "card").Object())
			got, err := w.patch(c, "card", patch)
			if err == nil {
				t.Errorf("%s: PATCH %s = %s, want a refusal", name, patch, text(got.Object()))
			} else {
				wantFault(t, name+": PATCH "+patch, err, fault.Forbidden, "")
			}
			if after := text(w.mustGet(w.revealing(), "card").Object()); after != before {
				t.Errorf("%s: PATCH %s changed the token: %s, before %s", name, patch, after, before)
			}
			if err := w.tokens.Delete(t.Context(), w.revealing(), "card"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, patch := range patches[:8] {
		w.mustCreate(w.revealing(), `{"type":"card","id":"card","data":{"number":"`+visa+`","expiration_month":1},"mask":{"number":"{{ data.number | last4 }}"}}`)
		w.mustPatch(w.revealing(), "card", patch)
		if err := w.tokens.Delete(t.Context(), w.revealing(), "card"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFieldThatTheCallerCanReadIsNoChange(t *testing.T) {
	w := newWorld(t)
	w.mustCreate(w.revealing(), `{"type":"card","id":"card","data":{"number":"`+visa+`"},"mask":{"number":"{{ data.number | last4 }}"},"search_indexes":["{{ data.number }}"]}`)
	same := `{"mask":{"number":"{{ data.number | last4 }}"},"fingerprint_expression":"{{ data.number }}","search_indexes":["{{ data.number }}"],"containers":["/PCI/high/"],"metadata":{"a":"b"}}`
	for name, c := range map[string]access.Caller{"masked": w.masking(), "redacted": w.redacting()} {
		if got := member(w.mustPatch(c, "card", same), "metadata"); got != `{"a":"b"}` {
			t.Errorf("%s: metadata = %s", name, got)
		}
	}
	// A caller who cannot read would learn from the refusal whether a guess is right.
	_, err := w.patch(w.only(access.TokenUpdate), "card", `{"mask":{"number":"{{ data.number | last4 }}"}}`)
	wantFault(t, "the mask that is there, by one who cannot read it", err, fault.Forbidden, "")
}

func TestAPatchThatReplacesAllDataMayChangeTheMask(t *testing.T) {
	w := newWorld(t)
	for name, test := range map[string]struct {
		caller access.Caller
		patch  string
		want   fault.Kind
	}{
		"all fields, by one who may update": {w.only(access.TokenUpdate), `{"data":{"number":"` + other + `","expiration_month":3},"mask":"{{ data.number }}"}`, fault.Internal},
		"one field is left":                 {w.only(access.TokenUpdate), `{"data":{"number":"` + other + `"},"mask":"{{ data.expiration_month }}"}`, fault.Forbidden},
		"a public application":              {w.publicApp(), `{"data":{"number":"` + other + `","expiration_month":3},"mask":"{{ data.number }}"}`, fault.Forbidden},
	} {
		w.mustCreate(w.revealing(), `{"type":"card","id":"card","data":{"number":"`+visa+`","expiration_month":1,"cvc":"987"},"metadata":{"k":"v"}}`)
		got, err := w.patch(test.caller, "card", test.patch)
		switch {
		case test.want != fault.Internal:
			wantFault(t, name, err, test.want, "")
		case err != nil:
			t.Errorf("%s: %s", name, says(err))
		case member(got, "data") != `"`+other+`"` || member(got, "mask") != `"{{ data.number }}"` || member(got, "metadata") != "" || member(got, "fingerprint_expression") != "":
			t.Errorf("%s: the response is %s, want what was sent and nothing else", name, text(got.Object()))
		}
		if err := w.tokens.Delete(t.Context(), w.revealing(), "card"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAPublicApplicationChangesOnlyDataAndMetadata(t *testing.T) {
	w := newWorld(t)
	w.mustCreate(w.revealing(), `{"type":"card","id":"card","data":{"number":"`+visa+`"},"metadata":{"k":"v"}}`)
	for field, value := range map[string]string{
		"mask": `"x"`, "containers": `["/pci/high/"]`, "search_indexes": `[]`, "fingerprint_expression": `null`, "expires_at": `"1/1/2040"`,
	} {
		_, err := w.patch(w.publicApp(), "card", `{"`+field+`":`+value+`}`)
		if f := fault.Of(err); f.Kind() != fault.Forbidden || f.Code() != "field_not_allowed" || !strings.Contains(f.Detail(), field) {
			t.Errorf("PATCH %s by a public application = %s, code %q; want field_not_allowed naming it", field, says(err), f.Code())
		}
	}
	got := w.mustPatch(w.publicApp(), "card", `{"data":{"number":"`+other+`"},"metadata":{"a":"b"}}`)
	if member(got, "metadata") != `{"a":"b"}` || member(got, "mask") != "" || member(got, "fingerprint") != "" || member(got, "data") != `{"number":"XXXXXXXXXXXX1111"}` {
		t.Errorf("the response to a public application is %s", text(got.Object()))
	}
	if member(w.mustGet(w.revealing(), "card"), "metadata") != `{"k":"v","a":"b"}` {
		t.Error("the change did not apply")
	}
}

// fingerprintCallers are callers with whether they may see fingerprints.
func (w *world) fingerprintCallers() map[string]struct {
	caller access.Caller
	sees   bool
} {
	type row = struct {
		caller access.Caller
		sees   bool
	}
	rules := func(list ...access.Rule) access.Caller {
		return accesstest.Application(w.t, w.tenant, appID, access.Private, list)
	}
	others := []access.Permission{access.TokenCreate, access.TokenUpdate, access.TokenSearch}
	return map[string]row{
		"read with reveal":                {rules(accesstest.Rule("/", access.Reveal, append(others, access.TokenRead)...)), true},
		"use with reveal, read with mask": {rules(accesstest.Rule("/", access.Reveal, access.TokenUse), accesstest.Rule("/", access.Mask, append(others, access.TokenRead)...)), true},
		"plain use":                       {w.only(access.TokenUse, access.TokenRead, access.TokenCreate, access.TokenUpdate, access.TokenSearch), true},
		"read with mask":                  {w.masking(), false},
		"plain read":                      {w.only(access.TokenRead, access.TokenCreate, access.TokenUpdate, access.TokenSearch), false},
		"read with redact":                {w.redacting(), false},
		"search with reveal":              {rules(accesstest.Rule("/", access.Reveal, access.TokenSearch), accesstest.Rule("/", access.Mask, access.TokenRead, access.TokenCreate, access.TokenUpdate)), false},
		"reveal on another container":     {rules(accesstest.Rule("/other/", access.Reveal, access.TokenRead, access.TokenUse), accesstest.Rule("/", access.Mask, append(others, access.TokenRead)...)), false},
		"a session with a mask":           {w.sessionOf(sessionID, accesstest.Rule("/", access.Mask, append(others, access.TokenRead)...)), false},
	}
}

func TestFingerprintsAreForCallersWhoMayReveal(t *testing.T) {
	w := newWorld(t)
	existing := w.mustCreate(w.revealing(), `{"type":"card","id":"card","data":{"number":"`+visa+`"}}`)
	w.mustCreate(w.revealing(), `{"type":"card","id":"another","data":{"number":"`+other+`"}}`)
	for name, test := range w.fingerprintCallers() {
		if got := w.mustGet(test.caller, "card").Fingerprint != ""; got != test.sees {
			t.Errorf("%s: Get shows the fingerprint: %t, want %t", name, got, test.sees)
		}
		if got := w.mustCreate(test.caller, `{"type":"card","data":{"number":"`+other+`"}}`).Fingerprint != ""; got != test.sees {
			t.Errorf("%s: Create shows the fingerprint: %t, want %t", name, got, test.sees)
		}
		if got := w.mustPatch(test.caller, "another", `{"metadata":{"a":"b"}}`).Fingerprint != ""; got != test.sees {
			t.Errorf("%s: Update shows the fingerprint: %t, want %t", name, got, test.sees)
		}
		list, total, err := w.tokens.List(t.Context(), test.caller, token.Filter{Fingerprint: existing.Fingerprint}, store.Page{Limit: 10})
		if found := len(list) == 1; err != nil || found != test.sees || (total == 1) != test.sees {
			t.Errorf("%s: List by fingerprint finds %d of %d, %v; want it found: %t", name, len(list), total, err, test.sees)
		}
		for query, finds := range map[string]bool{
			"fingerprint:" + existing.Fingerprint:                            test.sees,
			"id:card AND fingerprint:" + existing.Fingerprint:                test.sees,
			"id:card AND NOT fingerprint:" + existing.Fingerprint:            !test.sees,
			"id:card AND (fingerprint:x OR NOT fingerprint:y)":               true,
			"fingerprint:" + existing.Fingerprint + " OR metadata.none:none": test.sees,
		} {
			found, total, err := w.tokens.Search(t.Context(), test.caller, query, store.Page{Limit: 10})
			if err != nil || (len(found) == 1) != finds || (total == 1) != finds {
				t.Errorf("%s: %s finds %d of %d, %v; want it found: %t", name, query, len(found), total, err, finds)
			}
			if len(found) == 1 && (found[0].Fingerprint != "") != test.sees {
				t.Errorf("%s: a search shows the fingerprint: %t, want %t", name, found[0].Fingerprint != "", test.sees)
			}
		}
		made := w.mustCreate(test.caller, `{"type":"card","data":{"number":"`+visa+`"},"deduplicate_token":true}`)
		if (made.ID == "card") != test.sees {
			t.Errorf("%s: a create is deduplicated: %t, want %t", name, made.ID == "card", test.sees)
		}
		if made.ID != "card" {
			if err := w.tokens.Delete(t.Context(), w.revealing(), made.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestMaskedFingerprintsAreForTenantsWhoChooseThem(t *testing.T) {
	w := newWorld(t)
	w.mustCreate(w.revealing(), `{"type":"card","id":"card","data":{"number":"`+visa+`"}}`)
	w.chooseSealed(map[string]string{"masked_fingerprints": "true"})
	for name, want := range map[string]bool{"read with mask": true, "plain read": true, "a session with a mask": true, "read with redact": false} {
		if got := w.mustGet(w.fingerprintCallers()[name].caller, "card").Fingerprint != ""; got != want {
			t.Errorf("%s: Get shows the fingerprint: %t, want %t", name, got, want)
		}
	}
	// Someone who can write to the database does not turn it on.
	w.chooseSealed(map[string]string{})
	w.choose(map[string]string{"masked_fingerprints": "true", "blind_deduplication": "true"})
	if w.mustGet(w.masking(), "card").Fingerprint != "" {
		t.Error("a setting that is not sealed shows fingerprints")
	}
	if w.mustCreate(w.publicApp(), `{"type":"card","data":{"number":"`+visa+`"},"deduplicate_token":true}`).ID == "card" {
		t.Error("a setting that is not sealed deduplicates for a public application")
	}
}

// TestNoCreateFindsANumber: a caller with a mask, who creates every candidate,
// learns nothing from the responses.
func TestNoCreateFindsANumber(t *testing.T) {
	w := newWorld(t)
	victim := w.mustCreate(w.revealing(), `{"type":"card","id":"card","data":{"number":"`+visa+`"}}`)
	var items []string
	for _, candidate := range []string{visa, other} {
		for _, expression := range []string{"{{ data.number }}", candidate + "{{ data.nothing }}"} {
			items = append(items, fmt.Sprintf(`{"type":"card","data":{"number":%q},"fingerprint_expression":%q,"deduplicate_token":true}`, candidate, expression))
		}
	}
	for name, c := range map[string]access.Caller{"a public application": w.publicApp(), "a masked reader": w.masking(), "a creator": w.only(access.TokenCreate)} {
		out, err := w.tokens.Tokenize(t.Context(), c, parse(t, "["+strings.Join(items, ",")+"]"))
		if err != nil {
			t.Fatalf("%s: %s", name, says(err))
		}
		if got := text(out.Value); strings.Contains(got, "fingerprint\":") || strings.Contains(got, `"card"}`) || strings.Contains(got, `"id":"card"`) || strings.Contains(got, victim.Fingerprint) {
			t.Errorf("%s: /tokenize shows %s", name, got)
		}
	}
}

func TestWhatAPublicCallerPlantsIsNoDuplicateForOthers(t *testing.T) {
	w := newWorld(t)
	bank := `{"type":"bank","data":{"routing_number":"021000021","account_number":"11112222"}`
	_, err := w.create(w.publicApp(), bank+`,"fingerprint_expression":"11112222|011000015"}`)
	wantFault(t, "an expression without data", err, fault.Invalid, "fingerprint_expression")
	mine := func(id string) access.Caller {
		return w.sessionOf(id, accesstest.Rule("/", access.Reveal, access.TokenCreate, access.TokenRead, access.TokenUpdate))
	}
	planters := map[string]func(id string){
		"a public application creates": func(id string) { w.mustCreate(w.publicApp(), bank+`,"id":"`+id+`"}`) },
		"a session creates":            func(id string) { w.mustCreate(mine(sessionID), bank+`,"id":"`+id+`"}`) },
		"a public application changes": func(id string) {
			w.mustCreate(w.revealing(), `{"type":"bank","data":{"routing_number":"021000021","account_number":"3"},"id":"`+id+`"}`)
			w.mustPatch(w.publicApp(), id, `{"data":{"account_number":"11112222"}}`)
		},
		"a public application adds metadata": func(id string) {
			w.mustCreate(w.revealing(), bank+`,"id":"`+id+`"}`)
			w.mustPatch(w.publicApp(), id, `{"metadata":{"a":"b"}}`)
		},
		"a session changes, a server adds metadata": func(id string) {
			w.mustCreate(w.revealing(), `{"type":"bank","data":{"routing_number":"021000021","account_number":"3"},"id":"`+id+`"}`)
			w.mustPatch(mine(sessionID), id, `{"data":{"account_number":"11112222"}}`)
			w.mustPatch(w.revealing(), id, `{"metadata":{"a":"b"}}`)
		},
	}
	for name, plant := range planters {
		plant("planted")
		for who, c := range map[string]access.Caller{"a server": w.revealing(), "another session": mine("7a53a1f2-7a3c-4b52-8a68-0a3c9d2f6f01")} {
			made := w.mustCreate(c, bank+`,"deduplicate_token":true}`)
			if made.ID == "planted" {
				t.Errorf("%s: %s gets the planted token", name, who)
			}
			if err := w.tokens.Delete(t.Context(), w.revealing(), made.ID); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.tokens.Delete(t.Context(), w.revealing(), "planted"); err != nil {
			t.Fatal(err)
		}
	}
	first := w.mustCreate(mine(sessionID), bank+`,"deduplicate_token":true}`)
	if again := w.mustCreate(mine(sessionID), bank+`,"deduplicate_token":true}`); again.ID != first.ID {
		t.Error("a session does not find its own duplicate")
	}
	w.mustPatch(w.revealing(), first.ID, `{"data":{"routing_number":"021000021","account_number":"11112222"}}`)
	if w.mustCreate(w.revealing(), bank+`,"deduplicate_token":true}`).ID == first.ID {
		t.Error("a token that a session created is a duplicate for a server")
	}
}

func TestBlindDeduplicationShowsWhatAFreshCreateShows(t *testing.T) {
	w := newWorld(t)
	w.chooseSealed(map[string]string{"blind_deduplication": "true"})
	w.mustCreate(w.revealing(), `{"type":"card","id":"card","data":{"number":"`+visa+`","expiration_year":2040},"metadata":{"k":"v"}}`)
	w.clock.Advance(time.Second)
	made := w.mustCreate(w.publicApp(), `{"type":"card","data":{"number":"`+visa+`"},"deduplicate_token":true,"metadata":{"a":"b"}}`)
	if made.ID != "card" {
		t.Fatalf("id = %s, want that of the existing token", made.ID)
	}
	if member(made, "metadata") != `{"a":"b"}` || member(made, "card") != `{"bin":"42424242","last4":"4242","brand":"visa"}` || made.Fingerprint != "" ||
		made.CreatedAt != store.At(w.clock.Now()) || made.CreatedBy != publicID {
		t.Errorf("a blind duplicate = %s, want what a fresh create shows", text(made.Object()))
	}
	if n := w.count(w.tenant, "read card card"); n != 1 {
		t.Errorf("a blind duplicate made %d entries about the existing token, want 1", n)
	}
}

func TestASearchOfDataTakesAMask(t *testing.T) {
	w := newWorld(t)
	w.mustCreate(w.revealing(), `{"type":"social_security_number","id":"ssn","data":"123-45-6789"}`)
	for name, test := range map[string]struct {
		caller access.Caller
		want   int64
	}{"revealing": {w.revealing(), 1}, "masking": {w.masking(), 1}, "redacting": {w.redacting(), 0}} {
		if _, total, err := w.tokens.Search(t.Context(), test.caller, "data:123456789", store.Page{Limit: 1}); err != nil || total != test.want {
			t.Errorf("%s: data:123456789 finds %d, %v, want %d", name, total, err, test.want)
		}
		if _, total, err := w.tokens.Search(t.Context(), test.caller, "id:ssn AND NOT data:987654321", store.Page{Limit: 1}); err != nil || total != 1 {
			t.Errorf("%s: a search that compares nothing equal finds %d, %v, want 1", name, total, err)
		}
	}
	_, _, err := w.tokens.Search(t.Context(), w.revealing(), strings.TrimSuffix(strings.Repeat("data:1 OR ", 21), " OR "), store.Page{Limit: 1})
	wantFault(t, "a query of 21 guesses", err, fault.Invalid, "query")
	if _, _, err := w.tokens.Search(t.Context(), w.revealing(), strings.TrimSuffix(strings.Repeat("data:1 OR ", 20), " OR "), store.Page{Limit: 1}); err != nil {
		t.Errorf("a query of 20 = %s", says(err))
	}
}

func TestNamesThatLookLikeCardNumbersAreRefused(t *testing.T) {
	w := newWorld(t)
	for request, path := range map[string]string{
		`{"type":"token","data":"x","containers":["/` + visa + `/"]}`:                  "containers",
		`{"type":"token","data":"x","containers":["/a/","/b/4242-4242-4242-4242/c/"]}`: "containers",
		`{"type":"token","data":"x","metadata":{"` + visa + `":"x"}}`:                  "metadata",
		`{"type":"token","data":"x","metadata":{"card.4242.4242.4242.4242_of":"x"}}`:   "metadata",
	} {
		_, err := w.create(w.revealing(), request)
		wantFault(t, request, err, fault.Invalid, path)
	}
	w.mustCreate(w.revealing(), `{"type":"token","id":"tok","data":"x"}`)
	for patch, path := range map[string]string{
		`{"containers":["/general/high/","/` + visa + `/"]}`: "containers", `{"metadata":{"` + visa + `":"x"}}`: "metadata",
	} {
		_, err := w.patch(w.revealing(), "tok", patch)
		wantFault(t, patch, err, fault.Invalid, path)
	}
	w.choose(map[string]string{"numeric_ids": "true"})
	w.mustCreate(w.revealing(), `{"type":"token","id":"`+visa+`","data":"x","containers":["/`+visa+`/"],"metadata":{"`+visa+`":"x"}}`)
	_, err := w.create(w.revealing(), `{"type":"card_number","id":"`+visa+`","data":"`+visa+`"}`)
	wantFault(t, "an id that is the data", err, fault.Invalid, "id")
	w.choose(map[string]string{})
	w.mustPatch(w.revealing(), visa, `{"metadata":{"a":"b"}}`) // what is there stays
}
