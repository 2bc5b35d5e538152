package token_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

func (w *world) tokenize(c access.Caller, body string) (jsonvalue.Value, error) {
	w.t.Helper()
	out, err := w.tokens.Tokenize(w.t.Context(), c, parse(w.t, body))
	return out.Value, err
}

func (w *world) mustTokenize(c access.Caller, body string) jsonvalue.Value {
	w.t.Helper()
	v, err := w.tokenize(c, body)
	if err != nil {
		w.t.Fatalf("Tokenize(%s) = %s", body, says(err))
	}
	return v
}

// at follows names and positions into a value.
func at(v jsonvalue.Value, path ...any) jsonvalue.Value {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			v, _ = v.Get(step)
		case int:
			v, _ = v.At(step)
		}
	}
	return v
}

func (w *world) total(c access.Caller) int64 {
	w.t.Helper()
	_, total, err := w.tokens.List(w.t.Context(), c, token.Filter{}, store.Page{Limit: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	return total
}

func TestTokenizeKeepsTheStructure(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	out := w.mustTokenize(c, `{"name":"Jane","n":[1.10,null,{},[],true],"card":{"type":"card","data":{"number":"`+visa+`","cvc":"123"},"metadata":{"a":"b"}},
		"deep":[[{"type":"token","data":{"type":"x","data":"y"},"id":"nested"}]],"":{"type":"only"}}`)
	if got := text(at(out, "n")); !strings.Contains(got, `,null,{},[],`) || at(out, "n").Len() != 5 {
		t.Errorf("n = %s, want null and what is empty as they were", got)
	}
	for want, id := range map[string]jsonvalue.Value{
		`"Jane"`: at(out, "name"), `1.10`: at(out, "n", 0), `true`: at(out, "n", 4), `"only"`: at(out, "", "type"),
		`{"number":"` + visa + `","cvc":"123"}`: at(out, "card", "id"), `{"type":"x","data":"y"}`: at(out, "deep", 0, 0, "id"),
	} {
		got := w.mustGet(c, id.Reveal())
		if member(got, "data") != want {
			t.Errorf("the token in place of %s holds %s", want, member(got, "data"))
		}
	}
	if got := text(at(out, "card", "data")) + text(at(out, "card", "metadata")); got != `{"number":"XXXXXXXXXXXX4242"}{"a":"b"}` {
		t.Errorf("the nested card shows %s", got)
	}
	if _, there := at(out, "card").Get("mask"); there {
		t.Error("a nested card has a mask member")
	}
	if n := w.total(c); n != 6 {
		t.Errorf("%d tokens were made, want 6", n)
	}
	if n := w.count(w.tenant, "create "); n != 6 {
		t.Errorf("%d entries of creation, want 6", n)
	}
}

func TestASingleRequestIsAnsweredWithASingleToken(t *testing.T) {
	w := newWorld(t)
	for body, want := range map[string][2]string{
		`{"type":"card","data":{"number":"` + visa + `","expiration_month":12,"expiration_year":2030,"cvc":"123"}}`: {
			`{"number":"XXXXXXXXXXXX4242","expiration_month":12,"expiration_year":2030}`, `{"number":"XXXXXXXXXXXX4242","expiration_month":12,"expiration_year":2030}`},
		`{"type":"bank","data":{"routing_number":"021000021","account_number":"00001234"}}`: {
			`{"routing_number":"021000021","account_number":"XXXX1234"}`, `{"routing_number":"021000021","account_number":"XXXX1234"}`},
		`{"type":"card","data":{"number":"` + visa + `"},"mask":"{{ data.number | last4 }}"}`: {`"4242"`, `"{{ data.number | last4 }}"`},
		`{"type":"card_number","data":"` + visa + `"}`:                                        {`"XXXXXXXXXXXX4242"`, `"{{ data | reveal_last: 4 }}"`},
		`{"type":"token","data":"secret"}`:                                                    {`"XXXret"`, "null"},
	} {
		out := w.mustTokenize(w.revealing(), body)
		if got := [2]string{text(at(out, "data")), text(at(out, "mask"))}; got != want {
			t.Errorf("%s: data and mask = %s, want %s", body, got, want)
		}
		for _, name := range []string{"id", "tenant_id", "type", "fingerprint_expression", "created_by", "created_at"} {
			if at(out, name).IsNull() {
				t.Errorf("%s: the answer has no %s", body, name)
			}
		}
	}
	list := w.mustTokenize(w.revealing(), `[{"type":"card","data":{"number":"`+visa+`"}},"x"]`)
	if text(at(list, 0, "data")) != `{"number":"XXXXXXXXXXXX4242"}` || !at(list, 0, "mask").IsNull() || at(list, 1).Kind() != jsonvalue.String || list.Len() != 2 {
		t.Errorf("a list = %s", text(list))
	}
	one := w.mustTokenize(w.revealing(), `[{"type":"card","data":{"number":"`+visa+`"}}]`)
	if !at(one, 0, "mask").IsNull() {
		t.Errorf("a list of one card = %s, want no mask", text(one))
	}
	red := w.mustTokenize(w.redacting(), `{"type":"card","data":{"number":"`+visa+`"}}`)
	if strings.Contains(text(red), visa) || strings.Contains(text(red), `"data":`) || strings.Contains(text(red), `"last4"`) {
		t.Errorf("under a rule that redacts, tokenize shows %s", text(red))
	}
	if plain := w.mustTokenize(w.revealing(), `"x"`); plain.Kind() != jsonvalue.String {
		t.Errorf("a plain value = %s, want an id", text(plain))
	}
	for _, empty := range []string{`null`, `{}`, `[]`} {
		if got := text(w.mustTokenize(w.revealing(), empty)); got != empty {
			t.Errorf("%s came back as %s", empty, got)
		}
	}
}

func TestTokenizeIsAllOrNothing(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	w.mustCreate(c, `{"type":"token","data":1,"id":"taken"}`)
	bad := `{"type":"card","data":{"number":"1"}}`
	for _, test := range []struct {
		caller access.Caller
		body   string
		want   fault.Kind
		path   string
	}{
		{c, bad, fault.Invalid, "data.number"},
		{c, `["x",[` + bad + `]]`, fault.Invalid, "1.0.data.number"},
		{c, `{"` + visa + `":["x",` + bad + `]}`, fault.Invalid, "*.1.data.number"},
		{c, `["x",{"type":"nonsense","data":"x"}]`, fault.Invalid, "1.type"},
		{c, `["x",{"type":5,"data":"x"}]`, fault.Invalid, "1.type"},
		{c, `["x",{"type":"card","data":null}]`, fault.Invalid, "1.data"},
		{c, `["x",{"type":"token","data":"x","id":"taken"}]`, fault.Conflict, ""},
		{c, `[{"type":"token","data":"x","id":"twice"},{"type":"token","data":"x","id":"twice"}]`, fault.Conflict, ""},
		{c, `["x"` + strings.Repeat(`,"x"`, 1000) + `]`, fault.Invalid, ""},
		{w.within("/general/"), `["x",{"type":"card_number","data":"` + visa + `"}]`, fault.Forbidden, ""},
		{w.only(access.TokenRead), `["x"]`, fault.Forbidden, ""},
		{w.only(access.TokenRead), `{}`, fault.Forbidden, ""},
	} {
		_, err := w.tokenize(test.caller, test.body)
		wantFault(t, "Tokenize", err, test.want, test.path)
		if strings.Contains(says(err), "4242") {
			t.Errorf("the fault repeats a name: %s", says(err))
		}
	}
	if n := w.total(c); n != 1 {
		t.Errorf("%d tokens are there, want the one from before", n)
	}
	out := w.mustTokenize(c, `["x"`+strings.Repeat(`,"x"`, 999)+`]`)
	if out.Len() != 1000 || w.total(c) != 1001 {
		t.Errorf("a thousand values became %d tokens", w.total(c)-1)
	}
	stop := errors.New("stop")
	_, err := w.tokens.Tokenize(t.Context(), c, parse(t, `"y"`), func(store.Tx, token.Tokenized) error { return stop })
	if !errors.Is(err, stop) || w.total(c) != 1001 {
		t.Errorf("a step that fails leaves %d tokens, %v", w.total(c), err)
	}
}

// TestErrorsOfTokenizeSayWhere: the path has array positions and the caller's
// own names; a name that could be a value is *.
func TestErrorsOfTokenizeSayWhere(t *testing.T) {
	w := newWorld(t)
	bad := `{"type":"card","data":{"number":"1"}}`
	for body, path := range map[string]string{
		bad:                                                                       "data.number",
		`["a","b","c",` + bad + `]`:                                               "3.data.number",
		`{"items":["a","b","c",` + bad + `]}`:                                     "items.3.data.number",
		`{"a":{"b":{"c":` + bad + `}}}`:                                           "a.b.c.data.number",
		`[[{"line-1":[` + bad + `]}]]`:                                            "0.0.line-1.0.data.number",
		`{"` + visa + `":` + bad + `}`:                                            "*.data.number",
		`{"a":{"Jane Doe":[` + bad + `]}}`:                                        "a.*.0.data.number",
		`{"":` + bad + `}`:                                                        "*.data.number",
		`{"key_test_x":` + bad + `}`:                                              "*.data.number",
		`{"4242-ok":` + bad + `}`:                                                 "*.data.number",
		`{"items":[{"type":"nonsense","data":1}]}`:                                "items.0.type",
		`{"items":[{"type":5,"data":1}]}`:                                         "items.0.type",
		`{"a":{"type":"token","data":1,"id":"x"}}`:                                "a.id", // an id is made last
		`{"a":{"type":"token","data":1,"containers":["/a/","b c"]}}`:              "a.containers.1",
		`{"a":{"type":"token","data":1,"search_indexes":["{{ data.x }}"]}}`:       "a.search_indexes.0",
		`{"a":{"type":"token","data":1,"expires_at":"nonsense"}}`:                 "a.expires_at",
		`{"a":{"type":"token","data":1,"metadata":{"` + visa + `":"x"}}}`:         "a.metadata",
		`{"a":{"type":"card","data":{"number":"` + visa + `","` + visa + `":1}}}`: "a.data",
	} {
		_, err := w.tokenize(w.revealing(), body)
		wantFault(t, body, err, fault.Invalid, path)
		if got := says(err); strings.Contains(got, visa) || strings.Contains(got, "Jane") {
			t.Errorf("Tokenize(%s): the fault repeats a value: %s", body, got)
		}
	}
	if n := w.total(w.revealing()); n != 0 {
		t.Errorf("%d tokens are there, want none", n)
	}
}

func TestTokenizeDeduplicates(t *testing.T) {
	w := newWorld(t)
	w.choose(map[string]string{"deduplicate_tokens": "true"})
	out := w.mustTokenize(w.revealing(), `["x","y","x",{"type":"card_number","data":"`+visa+`"},{"type":"card_number","data":"`+visa+`"}]`)
	if text(at(out, 0)) != text(at(out, 2)) || text(at(out, 0)) == text(at(out, 1)) || text(at(out, 3, "id")) != text(at(out, 4, "id")) {
		t.Errorf("equal values in one document = %s", text(out))
	}
	if n := w.total(w.revealing()); n != 3 {
		t.Errorf("%d tokens, want 3", n)
	}
}

func TestDetokenize(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	w.mustCreate(c, `{"type":"card","id":"card","data":{"number":"`+visa+`","expiration_month":7,"cvc":"123"},"metadata":{"a":"b"}}`)
	w.mustCreate(c, `{"type":"token","id":"num","data":1.10,"containers":["/a/"]}`)
	w.mustCreate(c, `{"type":"token","id":"tricky","data":"{{ card }}"}`)
	for _, test := range []struct {
		caller     access.Caller
		body, want string
	}{
		{c, `{"a":"{{ num }}","b":["x {{num}} y","{{ tricky }}",null,5]}`, `{"a":1.10,"b":["x 1.10 y","{{ card }}",null,5]}`},
		{c, `"{{ card | json: '$.number' | last4 }}"`, `"4242"`},
		{c, `"{{ card }}"`, `{"number":"` + visa + `","expiration_month":7,"cvc":"123"}`},
		{c, `"{{ token: card | json: '$.data.number' }}"`, `"` + visa + `"`},
		{c, `"{{ token: card | json: '$.enrichments' }}"`, `{"bin_details":{"bin":"42424242","brand":"visa","last4":"4242"}}`},
		{c, `"{{ token: card | json: '$.metadata.a' }}-{{ token: num | json: '$.containers[0]' }}"`, `"b-/a/"`},
		{w.masking(), `"{{ card }}"`, `{"number":"XXXXXXXXXXXX4242","expiration_month":7}`},
		{w.redacting(), `{"a":"{{ card }}","b":"x{{ card }}"}`, `{"a":null,"b":"x"}`},
		{w.only(access.TokenRead), `"{{ card | json: '$.number' }}"`, `"XXXXXXXXXXXX4242"`},
		{c, `{"no":"expressions"}`, `{"no":"expressions"}`},
	} {
		got, err := w.tokens.Detokenize(t.Context(), test.caller, parse(t, test.body))
		if err != nil || text(got) != test.want {
			t.Errorf("%s = %s, %s, want %s", test.body, text(got), says(err), test.want)
		}
	}
	redacted, err := w.tokens.Detokenize(t.Context(), w.redacting(), parse(t, `"{{ token: card }}"`))
	if err != nil || strings.Contains(text(redacted), visa) || strings.Contains(text(redacted), `"data":`) || strings.Contains(text(redacted), `"card":{`) {
		t.Errorf("a redacted token as a whole = %s, %v", text(redacted), err)
	}
	for _, test := range []struct {
		caller access.Caller
		body   string
		kind   fault.Kind
		detail string
	}{
		{c, `["{{ gone-1 }}","{{ num }}","{{ gone-2 }}","{{ ` + visa + ` }}","{{ 4242 4242 4242 4242 }}"]`, fault.Invalid, "Failed to detokenize some tokens: gone-1, gone-2"},
		{c, `"{{ ` + visa + ` }}"`, fault.Invalid, "Failed to detokenize some tokens"},
		{w.stranger(), `"{{ num }}"`, fault.Invalid, "Failed to detokenize some tokens: num"},
		{w.within("/b/"), `"{{ num }}"`, fault.Forbidden, ""},
		{w.only(access.TokenUse), `"{{ num }}"`, fault.Forbidden, ""},
		{c, `"{{ num"`, fault.Invalid, ""},
		{c, `"{{ card | json: '$.nothing' }}"`, fault.Invalid, ""},
	} {
		_, err := w.tokens.Detokenize(t.Context(), test.caller, parse(t, test.body))
		wantFault(t, test.body, err, test.kind, "")
		if got := fault.Of(err).Detail(); test.detail != "" && got != test.detail {
			t.Errorf("%s: %q, want %q", test.body, got, test.detail)
		}
	}
	before := w.count(w.tenant, "read ")
	if _, err := w.tokens.Detokenize(t.Context(), c, parse(t, `["{{ num }}","{{ token: num }}","{{ num }}","{{ card }}"]`)); err != nil {
		t.Fatal(err)
	}
	if n := w.count(w.tenant, "read ") - before; n != 2 {
		t.Errorf("two tokens in four expressions made %d entries, want 2", n)
	}
}

func TestDetokenizationIsBounded(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	w.tokens = token.New(w.store, w.ring, token.Options{Now: w.clock.Now, MaxBody: 10_000})
	var hundred, more []string
	for i := range 101 {
		id := "tok-" + strconv.Itoa(i)
		w.mustCreate(c, `{"type":"token","id":"`+id+`","data":"x"}`)
		more = append(more, `"{{ `+id+` }}"`)
	}
	hundred = more[:100]
	if _, err := w.tokens.Detokenize(t.Context(), c, parse(t, `[`+strings.Join(hundred, ",")+`]`)); err != nil {
		t.Errorf("a hundred tokens = %s", says(err))
	}
	_, err := w.tokens.Detokenize(t.Context(), c, parse(t, `[`+strings.Join(more, ",")+`]`))
	wantFault(t, "a hundred and one tokens", err, fault.Invalid, "")
	w.mustCreate(c, `{"type":"token","id":"long","data":"`+strings.Repeat("x", 4000)+`"}`)
	_, err = w.tokens.Detokenize(t.Context(), c, parse(t, `["{{ long }}","{{ long }}","{{ long }}"]`))
	wantFault(t, "too large once expanded", err, fault.TooLarge, "")
}

func TestEveryTokenShownIsInTheLog(t *testing.T) {
	w := newWorld(t)
	c := w.revealing()
	for i := range 3 {
		w.mustCreate(c, `{"type":"card_number","id":"card-`+strconv.Itoa(i)+`","data":"`+visa+`","metadata":{"n":"`+strconv.Itoa(i)+`"}}`)
	}
	shown := func(fn func() error) int {
		t.Helper()
		before := w.count(w.tenant, "read card_number card-")
		if err := fn(); err != nil {
			t.Fatal(err)
		}
		return w.count(w.tenant, "read card_number card-") - before
	}
	for name, test := range map[string]struct {
		do   func() error
		want int
	}{
		"get": {func() error { _, err := w.get(c, "card-1"); return err }, 1},
		"list": {func() error {
			_, _, err := w.tokens.List(t.Context(), c, token.Filter{}, store.Page{Limit: 2})
			return err
		}, 2},
		"list from": {func() error { _, _, err := w.tokens.ListFrom(t.Context(), c, token.Filter{}, "", 2); return err }, 2},
		"search": {func() error {
			_, _, err := w.tokens.Search(t.Context(), c, "metadata.n:1", store.Page{Limit: 9})
			return err
		}, 1},
		"search from": {func() error { _, _, err := w.tokens.SearchFrom(t.Context(), c, "type:card_number", "", 9); return err }, 3},
		"past the end": {func() error {
			_, _, err := w.tokens.List(t.Context(), c, token.Filter{}, store.Page{Offset: 50, Limit: 2})
			return err
		}, 0},
	} {
		if n := shown(test.do); n != test.want {
			t.Errorf("%s made %d entries, want %d", name, n, test.want)
		}
	}
}
