package token_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

func TestEveryTypeHasItsDefaults(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	tests := map[string]struct{ data, containers, expression, mask, shown, indexes, side string }{
		"token": {`{"a":"secret","b":[12345,true,"ab"]}`, `["/general/high/"]`, `{{ data | stringify }}`, "",
			`{"a":"XXXret","b":["XXX45","XXXX","Xb"]}`, "", ""},
		"card": {`{"number":"` + visa + `","expiration_month":"12","expiration_year":"2030","cvc":123}`, `["/pci/high/"]`, `{{ data.number }}`,
			`{"number":"{{ data.number | reveal_last: 4 }}","expiration_month":"{{ data.expiration_month }}","expiration_year":"{{ data.expiration_year }}"}`,
			`{"number":"XXXXXXXXXXXX4242","expiration_month":12,"expiration_year":2030}`, "",
			`{"bin":"42424242","last4":"4242","brand":"visa","expiration_month":12,"expiration_year":2030}`},
		"bank": {`{"routing_number":"021000021","account_number":"00001234"}`, `["/bank/high/"]`, `{{ data.account_number }}|{{ data.routing_number }}`,
			`{"routing_number":"{{ data.routing_number }}","account_number":"{{ data.account_number | reveal_last: 4 }}"}`,
			`{"routing_number":"021000021","account_number":"XXXX1234"}`, "", `{"routing_number":"021000021","account_number_last4":"1234"}`},
		"card_number":            {`"` + visa + `"`, `["/pci/high/"]`, `{{ data }}`, `"{{ data | reveal_last: 4 }}"`, `"XXXXXXXXXXXX4242"`, "", ""},
		"us_bank_account_number": {`"12345"`, `["/bank/high/"]`, `{{ data }}`, `"{{ data | reveal_last: 4 }}"`, `"X2345"`, "", ""},
		"us_bank_routing_number": {`"021000021"`, `["/bank/low/"]`, `{{ data }}`, `"{{ data | reveal_last: 4 }}"`, `"XXXXX0021"`, "", ""},
		"social_security_number": {`"123-45-6789"`, `["/pii/high/"]`, `{{ data | remove: '-' }}`, `"{{ data | reveal: 0, 4, 'X', '-' }}"`, `"XXX-XX-6789"`,
			`["{{ data }}","{{ data | remove: '-' }}","{{ data | last4 }}"]`, ""},
		"employer_id_number": {`"12-3456789"`, `["/pii/high/"]`, `{{ data | remove: '-' }}`, `"{{ data | reveal: 0, 4, 'X', '-' }}"`, `"XX-XXX6789"`,
			`["{{ data }}","{{ data | remove: '-' }}","{{ data | last4 }}"]`, ""},
	}
	if len(tests) != len(token.Types()) {
		t.Errorf("%d types are tested, want all %d", len(tests), len(token.Types()))
	}
	for kind, want := range tests {
		t.Run(kind, func(t *testing.T) {
			made := w.mustCreate(c, `{"type":"`+kind+`","data":`+want.data+`}`)
			for name, w := range map[string]string{
				"type": `"` + kind + `"`, "containers": want.containers, "fingerprint_expression": text(jsonString(want.expression)), "mask": want.mask,
				"data": want.shown, "search_indexes": want.indexes, "enrichments": "",
			} {
				if got := member(made, name); got != w {
					t.Errorf("%s = %s, want %s", name, got, w)
				}
			}
			if got := member(made, "card") + member(made, "bank"); got != want.side {
				t.Errorf("card or bank = %s, want %s", got, want.side)
			}
			if made.Fingerprint == "" || strings.Trim(made.Fingerprint, "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz") != "" {
				t.Errorf("fingerprint = %q, want base58", made.Fingerprint)
			}
			if again := w.mustGet(w.masking(), made.ID); member(again, "data") != want.shown {
				t.Errorf("read under a mask = %s, want %s", member(again, "data"), want.shown)
			}
		})
	}
}

func TestTheExamplesOfTypesAreAccepted(t *testing.T) {
	w := newWorld(t)
	for _, kind := range token.Types() {
		if _, err := w.create(w.revealing(), `{"type":"`+kind.Name+`","data":`+kind.Example+`}`); err != nil {
			t.Errorf("%s: %s", kind.Name, says(err))
		}
	}
}

func TestTheTypesAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "tokens.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range token.Types() {
		found := false
		for line := range strings.Lines(string(page)) {
			found = found || strings.HasPrefix(line, "| `") && strings.Contains(line, "`"+kind.Name+"`") && strings.Contains(line, "`"+kind.Container+"`")
		}
		if !found {
			t.Errorf("docs/tokens.md has no row for %s in %s", kind.Name, kind.Container)
		}
	}
}

func TestDataIsKeptExactly(t *testing.T) {
	w := newWorld(t)
	for kind, tests := range map[string]map[string]string{
		"token": {
			`1.10`: `1.10`, `12345678901234567890.123456789`: `12345678901234567890.123456789`, `1E2`: `1E2`, `true`: `true`, `""`: `""`,
			`{"b":1.0,"a":[null,{"x":"{{ data }}"}]}`: `{"b":1.0,"a":[null,{"x":"{{ data }}"}]}`, `[]`: `[]`, `{}`: `{}`, `"é😀"`: `"é😀"`,
		},
		"card": {
			`{"cvc":999,"expiration_year":"2024","expiration_month":1,"number":"` + visa + `"}`: `{"number":"` + visa + `","expiration_month":1,"expiration_year":2024,"cvc":"999"}`,
			`{"number":"` + visa + `","expiration_month":"07","cvc":null}`:                      `{"number":"` + visa + `","expiration_month":7}`,
			`{"number":"` + visa + `","cvc":"0123"}`:                                            `{"number":"` + visa + `","cvc":"0123"}`,
		},
		"bank":                   {`{"account_number":"1","routing_number":"021000021"}`: `{"routing_number":"021000021","account_number":"1"}`},
		"social_security_number": {`"123456789"`: `"123456789"`, `"12-3456789"`: `"12-3456789"`},
	} {
		for data, want := range tests {
			made := w.mustCreate(w.revealing(), `{"type":"`+kind+`","data":`+data+`}`)
			if got := member(w.mustGet(w.revealing(), made.ID), "data"); got != want {
				t.Errorf("%s %s came back as %s, want %s", kind, data, got, want)
			}
		}
	}
}

func TestWrongDataIsRefusedUnderItsOwnPath(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct{ kind, data, path string }{
		{"token", `null`, "data"},
		{"card", `null`, "data"},
		{"card", `"` + visa + `"`, "data"},
		{"card", `{}`, "data.number"},
		{"card", `{"number":null}`, "data.number"},
		{"card", `{"number":4242424242424242}`, "data.number"},
		{"card", `{"number":"4242 4242 4242 4242"}`, "data.number"},
		{"card", `{"number":"4242424242424241"}`, "data.number"},
		{"card", `{"number":"42424242424"}`, "data.number"},
		{"card", `{"number":"` + visa + `","expiration_month":0}`, "data.expiration_month"},
		{"card", `{"number":"` + visa + `","expiration_month":13}`, "data.expiration_month"},
		{"card", `{"number":"` + visa + `","expiration_month":1.0}`, "data.expiration_month"},
		{"card", `{"number":"` + visa + `","expiration_month":"x"}`, "data.expiration_month"},
		{"card", `{"number":"` + visa + `","expiration_month":true}`, "data.expiration_month"},
		{"card", `{"number":"` + visa + `","expiration_year":30}`, "data.expiration_year"},
		{"card", `{"number":"` + visa + `","expiration_year":"20300"}`, "data.expiration_year"},
		{"card", `{"number":"` + visa + `","expiration_year":"0030"}`, "data.expiration_year"},
		{"card", `{"number":"` + visa + `","cvc":"12"}`, "data.cvc"},
		{"card", `{"number":"` + visa + `","cvc":"12345"}`, "data.cvc"},
		{"card", `{"number":"` + visa + `","cvc":"12a"}`, "data.cvc"},
		{"card", `{"number":"` + visa + `","cvc":true}`, "data.cvc"},
		{"card", `{"number":"` + visa + `","pan2":"` + visa + `"}`, "data"},
		{"bank", `{}`, "data.routing_number"},
		{"bank", `{"routing_number":"021000021"}`, "data.account_number"},
		{"bank", `{"routing_number":"021000022","account_number":"1"}`, "data.routing_number"},
		{"bank", `{"routing_number":"021000021","account_number":"123456789012345678"}`, "data.account_number"},
		{"bank", `{"routing_number":"021000021","account_number":""}`, "data.account_number"},
		{"bank", `{"routing_number":"021000021","account_number":"1","iban":"x"}`, "data"},
		{"card_number", `"4242424242424241"`, "data"},
		{"card_number", `{"number":"` + visa + `"}`, "data"},
		{"us_bank_account_number", `"12"`, "data"},
		{"us_bank_account_number", `123`, "data"},
		{"us_bank_routing_number", `"021000022"`, "data"},
		{"social_security_number", `"123-45-678"`, "data"},
		{"employer_id_number", `"12-34567890"`, "data"},
		{"nonsense", `"x"`, "type"},
		{"", `"x"`, "type"},
	} {
		_, err := w.create(w.revealing(), `{"type":"`+test.kind+`","data":`+test.data+`}`)
		wantFault(t, test.kind+" "+test.data, err, fault.Invalid, test.path)
		if strings.Contains(says(err), "4242") {
			t.Errorf("%s %s: the fault repeats what was sent: %s", test.kind, test.data, says(err))
		}
	}
	_, err := w.create(w.revealing(), `{"type":"card","data":{"number":"1","expiration_month":0,"cvc":"x"}}`)
	for _, path := range []string{"data.number", "data.expiration_month", "data.cvc"} {
		wantFault(t, "several faults", err, fault.Invalid, path)
	}
}

// TestBrandsAreToldByTheNumber uses the test numbers that payment companies
// publish.
func TestBrandsAreToldByTheNumber(t *testing.T) {
	w := newWorld(t)
	for number, want := range map[string]string{
		visa: "visa", "4000056655665556": "visa", "4111111111111111": "visa", "4222222222222": "visa",
		"5555555555554444": "mastercard", "2223003122003222": "mastercard", "5200828282828210": "mastercard", "5105105105105100": "mastercard",
		"378282246310005": "american-express", "371449635398431": "american-express",
		"6011111111111117": "discover", "6011000990139424": "discover", "6011981111111113": "discover",
		"3056930009020004": "diners-club", "36227206271667": "diners-club", "38520000023237": "diners-club",
		"3566002020360505": "jcb", "3530111333300000": "jcb",
		"6200000000000005": "unionpay", "6205500000000000004": "unionpay",
		"6759649826438453": "maestro", "5018000000000009": "maestro",
		"2200000000000004": "mir", "6362970000457013": "elo", "6062826786276634": "hipercard", "6370950000000005": "hiper",
		"9999999999999995": "",
	} {
		made := w.mustCreate(w.masking(), `{"type":"card","data":{"number":"`+number+`"}}`)
		bin := number[:8]
		if len(number) < 16 {
			bin = number[:6]
		}
		want := `{"bin":"` + bin + `","last4":"` + number[len(number)-4:] + `","brand":"` + want + `"}`
		want = strings.Replace(want, `,"brand":""`, "", 1)
		if got := member(made, "card"); got != want {
			t.Errorf("card of %s = %s, want %s", number, got, want)
		}
	}
}

func TestAShortAccountNumberIsNotShownAsItsLastDigits(t *testing.T) {
	w := newWorld(t)
	made := w.mustCreate(w.masking(), `{"type":"bank","data":{"routing_number":"021000021","account_number":"1234"}}`)
	if got, want := member(made, "bank"), `{"routing_number":"021000021"}`; got != want {
		t.Errorf("bank = %s, want %s", got, want)
	}
	if got, want := member(made, "data"), `{"routing_number":"021000021","account_number":"XXXX"}`; got != want {
		t.Errorf("data = %s, want %s", got, want)
	}
}
