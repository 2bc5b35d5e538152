package expression_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

var errNoToken = errors.New("no such token")

// vault answers for a few tokens.
func vault(t testing.TB) expression.Lookup {
	tokens := map[string]string{
		"tok": `"secret"`, "card": cardData, "num": `12.50`, "o'brien-token": `"quoted"`, "a id: with, dots.": `"spaced"`, "-dash-": `"dashed"`,
		"again": `"{{ card }}"`, "markup": `"<&\"é"`, "none": `null`, "johndoe@example.com": `"mail"`, "token:odd": `"odd"`,
	}
	values := map[string]jsonvalue.Value{}
	for id, data := range tokens {
		values[id] = parseJSON(t, data)
	}
	return func(r expression.Reference) (jsonvalue.Value, error) {
		v, ok := values[r.ID]
		if !ok {
			return jsonvalue.Value{}, errNoToken
		}
		if r.Token {
			return jsonvalue.Value{}.With("id", jsonvalue.NewString(r.ID)).With("data", v), nil
		}
		return v, nil
	}
}

func TestDetokenizationExpressions(t *testing.T) {
	lookup := vault(t)
	for text, want := range map[string]string{
		"nothing":                       `"nothing"`,
		"{{tok}}":                       `"secret"`,
		"{{ tok }}":                     `"secret"`,
		"{{num}}":                       `12.50`,
		"{{none}}":                      `null`,
		"{{card}}":                      cardData,
		"x{{num}}y{{ tok }}z":           `"x12.50ysecretz"`,
		"{{tok}}{{tok}}":                `"secretsecret"`,
		"{{ card | json: '$.number' }}": `"4242424242424242"`,
		"{{card | json: '$.number'}}":   `"4242424242424242"`,
		"{{ card | json: '$.expiration_month' }}":   `12`,
		"{{ token: card | json: '$.data.number' }}": `"4242424242424242"`,
		"{{token:card | json: \"$.id\"}}":           `"card"`,
		"{{ token: num }}":                          `{"id":"num","data":12.50}`,
		"{{ token: token:odd | json: '$.data' }}":   `"odd"`,
		"{{ o'brien-token }}":                       `"quoted"`,
		"{{ a id: with, dots. }}":                   `"spaced"`,
		"{{-dash-}}":                                `"dashed"`,
		"{{ -dash- | upcase }}":                     `"DASHED"`,
		"a {{- -dash- -}} b":                        `"adashedb"`,
		"a {{- tok | upcase -}} b":                  `"aSECRETb"`,
		"{{ johndoe@example.com }}":                 `"mail"`,
		"{{ tok | upcase junk }}":                   `"SECRET"`,
		"{% raw %}{{tok}}":                          `"{% raw %}secret"`,
		"{{again}}":                                 `"{{ card }}"`,
		"{{again}}{{tok}}":                          `"{{ card }}secret"`,
		"{{ again | append: '{{tok}}' }}":           `"{{ card }}{{tok}}"`,
		"card={{card}}":                             `"card={\"cvc\":\"123\",\"expiration_month\":12,\"expiration_year\":2030,\"number\":\"4242424242424242\"}"`,
		"say \"{{markup}}\"\n":                      `"say \"<&\"é\"\n"`,
	} {
		d, err := expression.ParseDetokenization(nil, text)
		if err != nil {
			t.Errorf("ParseDetokenization(%q) = %v", text, err)
			continue
		}
		x, err := d.Resolve(lookup, expression.JSONString, bodyBudget(10_000))
		if err != nil {
			t.Errorf("%q: Resolve = %v", text, err)
			continue
		}
		if text == "say \"{{markup}}\"\n" {
			want = string(jsonvalue.NewString("say \"<&\"é\"\n").AppendJSON(nil))
		}
		if got := string(x.Value().AppendJSON(nil)); got != want || x.Size() != len(got) {
			t.Errorf("%q = %s of %d bytes, want %s of %d", text, got, x.Size(), want, len(want))
		}
	}
}

func TestDetokenizationExpressionsThatAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"not closed": "{{tok", "one brace": "{{tok}", "too short": "{{ab}}", "empty": "{{ }}", "only a kind": "{{ token: }}", "forbidden": "{{ a/b }}", "brace": "{{ a{b }}",
		"handlebars": "{{#if x}}", "control character": "{{ ab\x00c }}", "too long": "{{" + strings.Repeat("a", 401) + "}}", "unknown filter": "{{ tok | nope }}",
		"alias": "{{ tok | alias_preserve_length }}", "a path as argument": "{{ tok | append: data }}", "a name as argument": "{{ tok | append: tok }}",
		"invalid UTF-8": "{{ tok }}\xff", "three braces": "{{{tok}}}",
	} {
		if _, err := expression.ParseDetokenization(nil, text); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: ParseDetokenization = %v, want an invalid fault", name, err)
		}
	}
}

func TestIDsAreListedOnceWithWhatIsWanted(t *testing.T) {
	d, err := expression.ParseDetokenization(nil, "{{ b-b }}{{ aaa }}{{ token: b-b | json: '$.id' }}{{ aaa | upcase }}")
	if err != nil {
		t.Fatal(err)
	}
	want := []expression.Reference{{ID: "b-b"}, {ID: "aaa"}, {ID: "b-b", Token: true}}
	if got := d.IDs(); !slices.Equal(got, want) {
		t.Errorf("IDs = %v, want %v", got, want)
	}
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "{{ tok%d }}{{ token: tok%d }}", i, i)
		}
		return b.String()
	}
	if d, err := expression.ParseDetokenization(nil, many(100)); err != nil || len(d.IDs()) != 200 {
		t.Errorf("a hundred tokens: %v", err)
	}
	if _, err := expression.ParseDetokenization(nil, many(101)); !errors.Is(err, fault.Invalid) {
		t.Errorf("a hundred and one tokens: %v, want an invalid fault", err)
	}
	half := jsonvalue.NewArray([]jsonvalue.Value{jsonvalue.NewString(many(60)), jsonvalue.NewString(strings.ReplaceAll(many(60), "tok", "other"))})
	if _, err := expression.ParseDocument(nil, half); !errors.Is(err, fault.Invalid) {
		t.Errorf("twice sixty tokens in a document: %v, want an invalid fault", err)
	}
}

func TestExpressionsAndTheirFiltersAreCounted(t *testing.T) {
	many := strings.Repeat("{{tok}}", expression.MaxOperations-3) + "{{tok|append:'x'}}"
	if _, err := expression.ParseDetokenization(nil, many); err != nil {
		t.Errorf("as many as may be: %v", err)
	}
	if _, err := expression.ParseDetokenization(nil, many+"{{tok}}"); !errors.Is(err, fault.Invalid) {
		t.Errorf("one more: %v, want an invalid fault", err)
	}
	both := jsonvalue.NewArray([]jsonvalue.Value{jsonvalue.NewString(many), jsonvalue.NewString("{{tok}}")})
	if _, err := expression.ParseDocument(nil, both); !errors.Is(err, fault.Invalid) {
		t.Errorf("one more in another string: %v, want an invalid fault", err)
	}
}

func TestFormsOfText(t *testing.T) {
	for form, want := range map[expression.Form]string{
		expression.PlainText: `<a>"<&"é"</a>`,
		expression.XMLText:   `<a>"&lt;&amp;&#34;é"</a>`,
		expression.FormText:  `%3Ca%3E%22%3C%26%22%C3%A9%22%3C%2Fa%3E`,
	} {
		d, err := expression.ParseDetokenization(nil, `<a>"{{ markup }}"</a>`)
		if err != nil {
			t.Fatal(err)
		}
		x, err := d.Resolve(vault(t), form, bodyBudget(1000))
		if err != nil || x.Value().Reveal() != want || x.Size() != len(want) {
			t.Errorf("form %d = %q of %d bytes, %v, want %q", form, x.Value().Reveal(), x.Size(), err, want)
		}
	}
	d, _ := expression.ParseDetokenization(nil, "{{num}}")
	if x, err := d.Resolve(vault(t), expression.PlainText, bodyBudget(100)); err != nil || x.Value().Kind() != jsonvalue.String || x.Size() != 5 {
		t.Errorf("a whole expression in plain text: kind %v, %v", x.Value().Kind(), err)
	}
}

// TestWhatXMLCannotHoldIsRefused: it would arrive as something else.
func TestWhatXMLCannotHoldIsRefused(t *testing.T) {
	for value, fits := range map[string]bool{"a\tb\r\nc": true, "é\u007f\ufffd": true, "a\x00": false, "a\x07b": false, "\x1f": false, "\ufffe": false} {
		d, err := expression.ParseDetokenization(nil, "<a>{{ tok }}</a>")
		if err != nil {
			t.Fatal(err)
		}
		lookup := func(expression.Reference) (jsonvalue.Value, error) { return jsonvalue.NewString(value), nil }
		_, err = d.Resolve(lookup, expression.XMLText, bodyBudget(1000))
		if fits && err != nil || !fits && !errors.Is(err, fault.Invalid) {
			t.Errorf("%q in XML: %v, want it to fit %t", value, err, fits)
		}
	}
}

func TestSeveralTextsShareTheBoundsOfOne(t *testing.T) {
	var all expression.Texts
	for i := range expression.MaxTokens {
		if _, err := all.Parse(fmt.Sprintf("{{tok-%d}} {{tok-0}}", i)); err != nil {
			t.Fatalf("text %d: %v", i, err)
		}
	}
	if got := all.IDs(); len(got) != expression.MaxTokens || got[1].ID != "tok-1" {
		t.Errorf("IDs = %d, want %d in order", len(got), expression.MaxTokens)
	}
	if _, err := all.Parse("{{one-more}}"); !errors.Is(err, fault.Invalid) {
		t.Errorf("one token more = %v, want an invalid fault", err)
	}
	var busy expression.Texts
	if _, err := busy.Parse(strings.Repeat("{{tok}}", expression.MaxOperations)); err != nil {
		t.Fatal(err)
	}
	if _, err := busy.Parse("{{tok}}"); !errors.Is(err, fault.Invalid) {
		t.Errorf("one expression more = %v, want an invalid fault", err)
	}
}

func TestDocuments(t *testing.T) {
	body := parseJSON(t, `{"args":{"card":"{{card}}","who":"Dear {{ tok }}","n":1.0},"list":["{{num}}",null,"plain","{{ again }}"],"{{tok}}":true}`)
	d, err := expression.ParseDocument(nil, body)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.IDs(); !slices.Equal(got, []expression.Reference{{ID: "card"}, {ID: "tok"}, {ID: "num"}, {ID: "again"}}) {
		t.Errorf("IDs = %v", got)
	}
	x, err := d.Resolve(vault(t), bodyBudget(1000))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"args":{"card":` + cardData + `,"who":"Dear secret","n":1.0},"list":[12.50,null,"plain","{{ card }}"],"{{tok}}":true}`
	if got := string(x.Value().AppendJSON(nil)); got != want || x.Size() != len(want) {
		t.Errorf("expanded %s of %d bytes, want %s of %d", got, x.Size(), want, len(want))
	}
	if _, err := d.Resolve(vault(t), bodyBudget(len(want)-1)); !errors.Is(err, fault.TooLarge) {
		t.Errorf("one byte short: %v, want a too large fault", err)
	}
	if _, err := d.Resolve(vault(t), bodyBudget(len(want))); err != nil {
		t.Errorf("just enough: %v", err)
	}
	missing, _ := expression.ParseDocument(nil, jsonvalue.NewString("{{ unknown }}"))
	if _, err := missing.Resolve(vault(t), bodyBudget(1000)); !errors.Is(err, errNoToken) {
		t.Errorf("a missing token: %v", err)
	}
}

func TestExpansionIsBoundedBeforeItIsBuilt(t *testing.T) {
	big := jsonvalue.NewString(strings.Repeat("x", 1<<20))
	lookup := func(expression.Reference) (jsonvalue.Value, error) { return big, nil }
	for name, c := range map[string]struct {
		text string
		kind error
	}{
		"many copies": {strings.Repeat("{{tok}}", 10_000), fault.TooLarge}, "grown by a filter": {"{{ tok | replace: 'x', 'yyyyyyyyyy' }}", fault.TooLarge},
		"many looks": {strings.Repeat("{{tok|last4}}", 10_000), fault.Invalid},
	} {
		d, err := expression.ParseDetokenization(nil, c.text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := d.Resolve(lookup, expression.PlainText, bodyBudget(5<<20)); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v, want %v", name, err, c.kind)
		}
	}
}

func TestOneBudgetBoundsAllTextsOfARequest(t *testing.T) {
	d, _ := expression.ParseDetokenization(nil, "{{tok}}")
	b := bodyBudget(20)
	for i := range 3 {
		if _, err := d.Resolve(vault(t), expression.PlainText, b); err != nil {
			t.Fatalf("text %d: %v", i, err)
		}
	}
	if _, err := d.Resolve(vault(t), expression.PlainText, b); !errors.Is(err, fault.TooLarge) {
		t.Errorf("the fourth of six bytes in twenty: %v, want a too large fault", err)
	}
}

func TestValidIDs(t *testing.T) {
	for id, want := range map[string]bool{
		"abc": true, "ab": false, "": false, strings.Repeat("é", 400): true, strings.Repeat("a", 401): false, "a b:c.d-e'f\"g": true, "a,b": true,
		"a\nb": false, "abc\x7f": false, "ab\xff": false, "a#b": false, "a/b": false, `a\b`: false, "a+b": false, "a?b": false, "a[b": false, "a]b": false,
		"a|b": false, "a&b": false, "a=b": false, "a%b": false, "a<b": false, "a>b": false, "a{b": false, "a}b": false, "a^b": false,
	} {
		if got := expression.ValidID(id); got != want {
			t.Errorf("ValidID(%q) = %v, want %v", id, got, want)
		}
	}
}

func TestContains(t *testing.T) {
	for text, want := range map[string]bool{"": false, "{ {": false, "a{{": true, "}}": false, "{{x}}": true} {
		if got := expression.Contains(text); got != want {
			t.Errorf("Contains(%q) = %v, want %v", text, got, want)
		}
	}
}

// TestAWithheldValueIsAPlaceholderWhateverTheFilters: no filter runs, so none
// can tell anything, not even by failing.
func TestAWithheldValueIsAPlaceholderWhateverTheFilters(t *testing.T) {
	lookup := func(ref expression.Reference) (jsonvalue.Value, error) {
		if ref.ID == "known" {
			return jsonvalue.NewString("XX42"), nil
		}
		return jsonvalue.Value{}, fmt.Errorf("look up: %w", expression.Withheld{Placeholder: "[<card>]"})
	}
	for _, c := range []struct {
		form       expression.Form
		text, want string
	}{
		{expression.JSONString, "{{ one }}", `"[<card>]"`},
		{expression.JSONString, "{{ one | size }}", `"[<card>]"`},
		{expression.JSONString, "{{ token: one | json: '$.data.number' | last4 }}", `"[<card>]"`},
		{expression.JSONString, "{{ one | json: '$$' }}", `"[<card>]"`},
		{expression.JSONString, "{{ one | plus: 'x' | default: 1 }} {{ known }}", `"[<card>] XX42"`},
		{expression.PlainText, "a {{ one | stringify }} b", `"a [<card>] b"`},
		{expression.XMLText, "<a>{{ one }}</a>", `"<a>[&lt;card&gt;]</a>"`},
		{expression.FormText, "a {{ one }}", `"a+%5B%3Ccard%3E%5D"`},
	} {
		d, err := expression.ParseDetokenization(nil, c.text)
		if err != nil {
			t.Fatal(err)
		}
		x, err := d.ResolveMasked(lookup, c.form, bodyBudget(100))
		if err != nil {
			t.Errorf("ResolveMasked(%s) = %v", c.text, err)
			continue
		}
		got := string(x.Value().AppendJSON(nil))
		if size := len(got) - len(`""`); got != c.want || c.form != expression.JSONString && x.Size() != size || c.form == expression.JSONString && x.Size() != len(got) {
			t.Errorf("ResolveMasked(%s) = %s of size %d, want %s", c.text, got, x.Size(), c.want)
		}
		// Where values are due, one that is withheld is an error, and no value.
		if _, err := d.Resolve(lookup, c.form, bodyBudget(100)); !errors.As(err, new(expression.Withheld)) {
			t.Errorf("Resolve(%s) = %v, want that it is withheld", c.text, err)
		}
	}
}
