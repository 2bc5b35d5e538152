package expression_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

const cardData = `{"number":"4242424242424242","expiration_month":12,"expiration_year":2030,"cvc":"123"}`

func TestTemplatesOverData(t *testing.T) {
	data := `{"number":"4242424242424242","month":12,"big":12345678901234567890.10,"yes":true,"gone":null,` +
		`"list":[1,"two",{"three":3}],"a b":"spaced","3ds":"x","a-b":"dashed","größe":"ü","obj":{"z":1.0,"a":[]}}`
	for text, want := range map[string]string{
		"":                                  `""`,
		"plain text":                        `"plain text"`,
		"}} alone {":                        `"}} alone {"`,
		"{{ data.number }}":                 `"4242424242424242"`,
		"{{data.number}}":                   `"4242424242424242"`,
		"{{ data.month }}":                  `12`,
		"{{ data.big }}":                    `12345678901234567890.10`,
		"{{ data.yes }}":                    `true`,
		"{{ data.gone }}":                   `null`,
		"{{ data.nowhere.at.all }}":         `null`,
		"{{ data.list }}":                   `[1,"two",{"three":3}]`,
		"{{ data.list[0] }}":                `1`,
		"{{ data.list[-1].three }}":         `3`,
		"{{ data.list[9] }}":                `null`,
		"{{ data.list.first }}":             `1`,
		"{{ data.list.last.three }}":        `3`,
		"{{ data.list.size }}":              `3`,
		"{{ data.number.size }}":            `16`,
		`{{ data["a b"] }}`:                 `"spaced"`,
		`{{ data['a b'] }}`:                 `"spaced"`,
		`{{ data[ 'a b' ] }}`:               `"spaced"`,
		"{{ data.3ds }}":                    `"x"`,
		"{{ data.a-b }}":                    `"dashed"`,
		"{{ data.größe }}":                  `"ü"`,
		" {{ data.month }}":                 `" 12"`,
		"{{ data.month }}/{{ data.month }}": `"12/12"`,
		"a{{ data.gone }}b":                 `"ab"`,
		"x{{ data.obj }}":                   `"x{\"a\":[],\"z\":1.0}"`,
		"x{{ data.yes }}":                   `"xtrue"`,
		"x{{ data.big }}":                   `"x12345678901234567890.10"`,
		"a {{- data.month -}} b":            `"a12b"`,
		" {{- data.month -}} ":              `12`,
		"{{-data.a-b-}}":                    `"dashed"`,
		"{{ 'text' }}":                      `"text"`,
		`{{ "it's" }}`:                      `"it's"`,
		"{{ '}}' }}":                        `"}}"`,
		"{{ '{{ data.number }}' }}":         `"{{ data.number }}"`,
		"{{ 007.50 }}":                      `7.50`,
		"{{ -1 }}":                          `-1`,
		"{{ true }}":                        `true`,
		"{{ nil }}":                         `null`,
		"{{ data.number | slice: 0, 4 | append: data.month }}":   `"424212"`,
		"{{ data.number|reveal_last:4 }}":                        `"XXXXXXXXXXXX4242"`,
		"{{ data.gone | upcase | append: 'x' }}":                 `null`,
		"{{ data.gone | default: 'none' | upcase }}":             `"NONE"`,
		"{{ data.number | append: '|' | append: data.nowhere }}": `"4242424242424242|"`,
	} {
		got, err := evaluate(text, parseJSON(t, data))
		if err != nil || got != want {
			t.Errorf("%q = %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestWhatFollowsAValueIsPassedOver(t *testing.T) {
	for text, want := range map[string]string{
		"{{ data.number, reveal_last: 4 }}":                `"4242424242424242"`,
		"{{ data.number reveal_last }}":                    `"4242424242424242"`,
		"{{ data.number) }}":                               `"4242424242424242"`,
		"{{ data.number, sep: '|' }}":                      `"4242424242424242"`,
		"{{ data.number it's }}":                           `"4242424242424242"`,
		"{{ data.number. }}":                               `"4242424242424242"`,
		"{{ data.number[ }}":                               `"4242424242424242"`,
		"{{ data.number[data] }}":                          `"4242424242424242"`,
		"{{ data.number | }}":                              `"4242424242424242"`,
		"{{ data.number || last4 }}":                       `"4242"`,
		"{{ data.number, x | last4 }}":                     `"4242"`,
		"{{ data.number | last4: 3 }}":                     `"4242"`,
		"{{ data.number | last4 foo bar }}":                `"4242"`,
		"{{ data.number | reveal_last: 4, '#', 9 }}":       `"############4242"`,
		"{{ data.number | reveal_last: 4, char: '#' }}":    `"XXXXXXXXXXXX4242"`,
		"{{ data.number | reveal_last: 4, }}":              `"XXXXXXXXXXXX4242"`,
		"{{ data.cvc | default: 'x', allow_false: true }}": `"123"`,
	} {
		tpl, err := expression.Parse(text)
		if err != nil {
			t.Errorf("Parse(%q) = %v", text, err)
			continue
		}
		if !tpl.Tolerated() {
			t.Errorf("%q is not marked as tolerated", text)
		}
		if got, err := evaluate(text, parseJSON(t, cardData)); err != nil || got != want {
			t.Errorf("%q = %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a", "{{ data }}", "{{ data.number | reveal_last: 4, '#' | upcase }} {{- data -}}"} {
		if tpl, err := expression.Parse(text); err != nil || tpl.Tolerated() {
			t.Errorf("Parse(%q) = %v, or it is marked as tolerated", text, err)
		}
	}
}

func TestWhatDoesNotParse(t *testing.T) {
	for name, text := range map[string]string{
		"a tag": "{% for i in data %}x{% endfor %}", "a lone tag opening": "a {% b", "a tag in what is passed over": "{{ data {% x }}",
		"not closed": "{{ data.number", "closed by one brace": "{{ data.number }", "nothing inside": "{{ }}", "only a filter": "{{ | upcase }}",
		"only junk": "{{ , }}", "another name": "{{ card.number }}", "a bare word": "{{ number }}", "another name as argument": "{{ data | append: foo }}",
		"an unknown filter": "{{ data | nope }}", "an unknown filter after junk": "{{ data, x | nope }}", "a missing argument": "{{ data | reveal_last }}",
		"a missing argument after junk": "{{ data | reveal_last 4 }}", "an open string": "{{ data | append: 'x }}", "nested": "{{ data {{ data }} }}",
		"three braces": "{{{ data }}}", "a range": "{{ (1..3) }}", "invalid UTF-8": "{{ data }}\xff", "too long": strings.Repeat("x", expression.MaxText+1),
		"too many expressions": strings.Repeat("{{ data }}", 257), "too many filters": "{{ data" + strings.Repeat(" | upcase", 256) + "}}",
		"too many arguments": "{{ data | append: 'x'" + strings.Repeat(",1", 300) + "}}",
	} {
		if _, err := expression.Parse(text); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: Parse = %v, want an invalid fault", name, err)
		}
	}
}

func TestWhatCannotBeEvaluated(t *testing.T) {
	data := `{"n":1,"s":"4242424242424242","o":{},"l":[1,"a"],"b":true,"huge":1e999999999,"dashes":"----"}`
	for name, text := range map[string]string{
		"text of an object": "{{ data.o | reveal_last: 4 }}", "text of a list": "{{ data.l | last4 }}", "to_string of an object": "{{ data.o | to_string }}",
		"negative count": "{{ data.s | reveal_last: -1 }}", "count that is no number": "{{ data.s | reveal_last: 'x' }}",
		"two mask characters": "{{ data.s | reveal_last: 4, 'XX' }}", "no mask character": "{{ data.s | reveal_last: 4, '' }}", "a boolean that is none": "{{ data.s | card_mask: 'yes' }}",
		"division by zero": "{{ data.n | divided_by: 0 }}",
		"modulo zero":      "{{ data.n | modulo: 0.0 }}", "a number beyond bounds": "{{ data.huge | plus: 1 }}", "bin of a text": "{{ data.dashes | card_bin }}",
		"expiry of a text": "{{ data.s | card_exp }}", "bad path": "{{ data | json: 'x' }}", "path to nothing": "{{ data | json: '$.nope' }}",
		"path to several": "{{ data | json: '$.l[*]' }}", "now": "{{ 'now' | date: '%Y' }}", "today": "{{ ' Today' | date: '%Y' }}",
		"bad boolean": "{{ data.s | to_boolean }}", "bad number": "{{ data.dashes | to_number }}",
		"number of true": "{{ data.b | to_number }}", "not UTF-8": "{{ '%ff' | url_decode }}",
		"hmac without a key": "{{ data.s | hmac: 'sha-256', '' }}", "unknown hash": "{{ data.s | hmac: 'md5', 'k' }}", "mixed sort": "{{ data.l | sort }}",
		"concat of a text": "{{ data.l | concat: 'x' }}", "alias of nothing": "{{ data.dashes | alias_preserve_format }}", "alias all shown": "{{ data.s | alias_preserve_length: 8, 8 }}",
		"alias of no card": "{{ data.dashes | alias_card }}", "padding beyond bounds": "{{ data.s | pad_left: 1000000, ' ' }}", "count beyond bounds": "{{ data.s | pad_left: 99999999999 }}",
		"shown card in an alias": "{{ data.s | append: '.abc' | alias_preserve_format: 16 }}",
	} {
		got, err := evaluate(text, parseJSON(t, data))
		if !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %q = %s, %v, want an invalid fault", name, text, got, err)
		}
	}
}

func TestFaultsRepeatNeitherExpressionsNorValues(t *testing.T) {
	canaries := []string{"canary", "4242"}
	for _, text := range []string{
		"{{ canary }}", "{{ data | canary4242 }}", "{{ data.canary", "{% canary %}", "{{ data | reveal_last: 'canary' }}", "{{ data | reveal_last: 1 }}",
		"{{ data | json: '$.canary' }}", "{{ data.number | to_boolean }}", "{{ data.number | alias_card: 'canary' }}",
	} {
		_, err := evaluate(text, parseJSON(t, `{"number":"canary 4242424242424242"}`))
		if err == nil {
			t.Errorf("%q gives no fault", text)
			continue
		}
		if got := fault.Of(err); got.Kind() != fault.Invalid {
			t.Errorf("%q is of kind %v", text, got.Kind())
		}
		for _, canary := range canaries {
			if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), canary) {
				t.Errorf("%q: the fault repeats %s", text, canary)
			}
		}
	}
}

func TestPlacesDecideWhatMayBeUsed(t *testing.T) {
	data := parseJSON(t, cardData)
	metadata := parseJSON(t, `{"k":"v"}`)
	for _, c := range []struct {
		name, text string
		scope      expression.Scope
		options    expression.Options
		want       string
		kind       error
	}{
		{"metadata where it is", "{{ metadata.k }}", expression.Scope{Data: data, Metadata: metadata}, expression.Options{}, `"v"`, nil},
		{"metadata where it is not", "{{ metadata.k }}", expression.Scope{Data: data}, expression.Options{}, "", fault.Invalid},
		{"metadata as an argument", "{{ data.number | append: metadata.k }}", expression.Scope{Data: data}, expression.Options{}, "", fault.Invalid},
		{"alias where it may be", "{{ data.number | alias_card | size }}", expression.Scope{Data: data}, expression.Options{Random: chance()}, `16`, nil},
		{"alias where it may not", "{{ data.number | alias_card }}", expression.Scope{Data: data}, expression.Options{}, "", fault.Invalid},
		{"alias of nothing where it may not", "{{ data.gone | alias_card }}", expression.Scope{Data: data}, expression.Options{}, "", fault.Invalid},
		{"hidden member", "{{ data.cvc }}", expression.Scope{Data: data, Hidden: []string{"cvc"}}, expression.Options{}, `null`, nil},
		{"hidden in the whole", "{{ data | stringify }}", expression.Scope{Data: data, Hidden: []string{"cvc", "number"}}, expression.Options{}, `"{\"expiration_month\":12,\"expiration_year\":2030}"`, nil},
		{"hidden from a path", "{{ data | json: '$.cvc' }}", expression.Scope{Data: data, Hidden: []string{"cvc"}}, expression.Options{}, "", fault.Invalid},
	} {
		tpl, err := expression.Parse(c.text)
		if err != nil {
			t.Errorf("%s: Parse = %v", c.name, err)
			continue
		}
		v, err := tpl.Evaluate(c.scope, c.options)
		if !errors.Is(err, c.kind) || c.kind == nil && string(v.AppendJSON(nil)) != c.want {
			t.Errorf("%s: Evaluate = %s, %v, want %s, %v", c.name, v.AppendJSON(nil), err, c.want, c.kind)
		}
	}
	tpl, _ := expression.Parse("a{{ data | alias_preserve_length }}{{ metadata.x }}")
	if !tpl.UsesAlias() || !tpl.UsesMetadata() || tpl.IsLiteral() {
		t.Error("a template does not say what it uses")
	}
	if tpl, _ := expression.Parse("abc"); !tpl.IsLiteral() || tpl.UsesAlias() || tpl.UsesMetadata() {
		t.Error("a literal says that it uses something")
	}
}

func TestOutputIsBounded(t *testing.T) {
	big := jsonvalue.NewString(strings.Repeat("x", 60_000))
	for name, text := range map[string]string{
		"twice": "{{ data }}{{ data }}", "replace": "{{ data | replace: 'x', 'xxxxxxxxxx' }}", "append": "{{ data | append: data }}",
		"base 16": "{{ data | to_base16 }}", "escape": "{{ data | replace: 'x', '<' | escape }}", "split and join": "{{ data | split: '' | join: 'yyyyy' }}",
		"quotes": "{{ data | replace: 'x', '\"' | json_stringify }}",
	} {
		if _, err := evaluate(text, big); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want an invalid fault", name, err)
		}
	}
	tpl, _ := expression.Parse("{{ data }}{{ data }}")
	v, err := tpl.Evaluate(expression.Scope{Data: big}, expression.Options{MaxOutput: 120_000})
	if err != nil || len(v.Reveal()) != 120_000 {
		t.Errorf("with room for it: %d bytes, %v", len(v.Reveal()), err)
	}
	list := jsonvalue.NewArray([]jsonvalue.Value{big, big})
	if _, err := evaluate("{{ data }}", list); !errors.Is(err, fault.Invalid) {
		t.Errorf("a large list, whole: %v, want an invalid fault", err)
	}
	if got, err := evaluate("{{ data[0] | last4 }}", list); err != nil || got != `"xxxx"` {
		t.Errorf("little of much = %s, %v", got, err)
	}
}

func TestStepsAreBounded(t *testing.T) {
	big := jsonvalue.NewString(strings.Repeat("x", 5<<20))
	list := parseJSON(t, "["+strings.Repeat("[1,2],", 100_000)+"1]")
	deep := parseJSON(t, strings.Repeat("[1,2,3,4,", 60)+"1"+strings.Repeat("]", 60))
	for _, c := range []struct {
		text string
		data jsonvalue.Value
	}{
		{strings.Repeat("{{ data | last4 }}", 100), big},
		{strings.Repeat("{{ data | size }}", 100), big},
		{"{{ data | json: '$..*..*..*..*..*..*' }}", deep},
		{"{{ data | json: '$[?(@ == $..*)]' }}", list},
		{strings.Repeat("{{ data | where: 'a' | size }}", 50), list},
		{strings.Repeat("{{ data | first }}", 100), list},
	} {
		if _, err := evaluate(c.text, c.data); !beyondBudget(err) {
			t.Errorf("%.60q over much: %v, want a budget to be used up", c.text, err)
		}
	}
}

func TestStreamWritesTheStringFormWhateverItsSize(t *testing.T) {
	large := jsonvalue.NewString(strings.Repeat("é\"", 1<<20))
	var b jsonvalue.Builder
	b.Add("z", large)
	b.Add("a", jsonvalue.NewInt(1))
	data := b.Value()
	var want bytes.Buffer
	want.WriteString("id:")
	if err := data.Stringify(&want); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"id:{{ data | stringify }}", "id:{{ data }}"} {
		tpl, err := expression.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		grown := expression.Limits{}.Budget(t.Context())
		grown.Grow(data.JSONSize())
		if err := tpl.Stream(&got, expression.Scope{Data: data}, expression.Options{Budget: grown}); err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("Stream of %q: %v, %d bytes, want %d", text, err, got.Len(), want.Len())
		}
		if err := tpl.Stream(io.Discard, expression.Scope{Data: data}, expression.Options{MaxOutput: 1 << 20}); !errors.Is(err, fault.Invalid) {
			t.Errorf("Stream of %q with less room: %v, want an invalid fault", text, err)
		}
		broken := errors.New("broken")
		if err := tpl.Stream(failing{broken}, expression.Scope{Data: data}, expression.Options{}); !errors.Is(err, broken) {
			t.Errorf("Stream of %q to a broken writer: %v", text, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestEvaluateAndStreamAgree(t *testing.T) {
	data := parseJSON(t, `{"b":[1.0,{"z":null,"a":"x"}],"a":"é"}`)
	for _, text := range []string{"{{ data }}", "{{ data | stringify }}", "x{{ data.b | stringify }}y", "{{ data.a | upcase | stringify }}", "{{ data.gone | stringify }}", "{{ data.gone }}"} {
		tpl, _ := expression.Parse(text)
		v, err := tpl.Evaluate(expression.Scope{Data: data}, expression.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var evaluated, streamed strings.Builder
		_ = v.Stringify(&evaluated)
		if err := tpl.Stream(&streamed, expression.Scope{Data: data}, expression.Options{}); err != nil || evaluated.String() != streamed.String() {
			t.Errorf("%q: evaluated %s, streamed %s, %v", text, evaluated.String(), streamed.String(), err)
		}
	}
}

func TestAliasesAreNeitherTheirInputNorCardNumbers(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	for _, c := range []struct{ text, data string }{
		{"{{ data | alias_card }}", "4242424242424242"}, {"{{ data | alias_card: true, true }}", "4242 4242 4242 4242"},
		{"{{ data | alias_card: true, true }}", "411111111111"}, {"{{ data | alias_preserve_format }}", "4242-4242-4242-4242"},
		{"{{ data | alias_preserve_format: 8, 7 }}", "4242424242424242"}, {"{{ data | alias_preserve_format }}", "x"},
		{"{{ data | alias_preserve_length }}", "x"}, {"{{ data | alias_preserve_format }}", "4242424242424242 is Jane's"},
	} {
		tpl, err := expression.Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		for range 500 {
			v, err := tpl.Evaluate(expression.Scope{Data: jsonvalue.NewString(c.data)}, expression.Options{Random: random})
			if err != nil {
				t.Fatalf("%s over %s: %v", c.text, c.data, err)
			}
			got := v.Reveal()
			if got == c.data || len(got) != len(c.data) {
				t.Fatalf("%s over %s = %s", c.text, c.data, got)
			}
			var digits []byte
			for _, r := range got {
				if r >= '0' && r <= '9' {
					digits = append(digits, byte(r))
				}
			}
			if len(digits) >= 12 && luhn(digits) {
				t.Fatalf("%s over %s = %s, which passes for a card", c.text, c.data, got)
			}
		}
	}
}

func luhn(digits []byte) bool {
	sum, double := 0, false
	for i := len(digits) - 1; i >= 0; i-- {
		d := int(digits[i] - '0')
		if double {
			d = d*2/10 + d*2%10
		}
		sum, double = sum+d, !double
	}
	return sum%10 == 0
}

func TestAliasesFailWithTheirSource(t *testing.T) {
	tpl, _ := expression.Parse("{{ data | alias_preserve_length }}")
	broken := errors.New("broken")
	for name, random := range map[string]io.Reader{"error": iotest.ErrReader(broken), "never fair": endless{0xFF}, "ever the same": endless{0}} {
		data := jsonvalue.NewString("aaaa")
		_, err := tpl.Evaluate(expression.Scope{Data: data}, expression.Options{Random: random})
		if err == nil {
			t.Errorf("%s: an alias was made", name)
		}
		if name == "error" && (!errors.Is(err, broken) || fault.Of(err).Kind() != fault.Internal) {
			t.Errorf("%s: %v, want our own failure", name, err)
		}
	}
}

type endless struct{ b byte }

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.b
	}
	return len(p), nil
}

func TestNoPrinterShowsAnExpression(t *testing.T) {
	const canary = "4242424242424242"
	tpl, err := expression.Parse("{{ data | append: '" + canary + "' }} " + canary)
	if err != nil {
		t.Fatal(err)
	}
	detok, err := expression.ParseDetokenization(nil, canary+"{{ "+canary+" }}")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := expression.ParseDocument(nil, jsonvalue.NewString(canary+"{{ "+canary+" }}"))
	if err != nil {
		t.Fatal(err)
	}
	expansion, err := detok.Resolve(func(expression.Reference) (jsonvalue.Value, error) { return jsonvalue.NewString(canary), nil }, expression.PlainText, bodyBudget(1000))
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]any{
		"template": tpl, "detokenization": detok, "document": doc, "expansion": expansion,
		"scope": expression.Scope{Data: jsonvalue.NewString(canary)},
	} {
		if shown := fmt.Sprintf("%v %+v %#v %s", x, x, x, x); strings.Contains(shown, canary) {
			t.Errorf("%s prints %s", name, shown)
		}
		if reachable(reflect.ValueOf(x), canary) {
			t.Errorf("%s: reflection reaches the text", name)
		}
	}
}

// reachable follows everything that reflection can follow.
func reachable(v reflect.Value, canary string) bool {
	switch v.Kind() {
	case reflect.String:
		return strings.Contains(v.String(), canary)
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil() && reachable(v.Elem(), canary)
	case reflect.Struct:
		for i := range v.NumField() {
			if reachable(v.Field(i), canary) {
				return true
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if reachable(v.Index(i), canary) {
				return true
			}
		}
	}
	return false
}
