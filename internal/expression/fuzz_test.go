package expression_test

import (
	"errors"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

func seeds(f *testing.F, add func(string)) {
	for _, doc := range expression.Filters() {
		for _, e := range doc.Examples {
			add(e.Expression)
		}
	}
	for _, s := range []string{
		"", "text", "{{ data.number, reveal_last: 4 }}", "a {{- data['x'][0] -}} b", "{% x %}", "{{ '}}' }}", "{{ data | append: \"{{\" }}", "{{", "{{ data it's | last4 }}",
		"{{ data | json: '$..[?(@.a==1&&!@.b)].c[-1:]' }}",
	} {
		add(s)
	}
}

func FuzzParse(f *testing.F) {
	seeds(f, func(s string) { f.Add(s) })
	f.Fuzz(func(t *testing.T, text string) {
		tpl, err := expression.Parse(text)
		if err != nil {
			if fault.Of(err).Kind() != fault.Invalid {
				t.Fatalf("Parse fails with %v", err)
			}
			return
		}
		if tpl.IsLiteral() != !expression.Contains(text) {
			t.Fatalf("a template is literal: %v, and contains an expression: %v", tpl.IsLiteral(), expression.Contains(text))
		}
		if _, err := expression.ParseDetokenization(nil, text); err != nil && fault.Of(err).Kind() != fault.Invalid {
			t.Fatalf("ParseDetokenization fails with %v", err)
		}
	})
}

func FuzzEvaluate(f *testing.F) {
	seeds(f, func(s string) {
		f.Add(s, []byte(cardData))
		f.Add(s, []byte(store))
	})
	f.Fuzz(func(t *testing.T, text string, data []byte) {
		tpl, err := expression.Parse(text)
		if err != nil {
			return
		}
		v, err := jsonvalue.Parse(data)
		if err != nil {
			return
		}
		const bound = 1000
		scope := expression.Scope{Data: v, Metadata: v, Hidden: []string{"cvc"}}
		got, err := tpl.Evaluate(scope, expression.Options{Random: chance(), MaxOutput: bound})
		if err != nil {
			if fault.Of(err).Kind() != fault.Invalid {
				t.Fatalf("Evaluate fails with %v", err)
			}
			return
		}
		if n := len(got.Reveal()); n > bound || !utf8.ValidString(got.Reveal()) {
			t.Fatalf("%d bytes came out, of %d allowed, or invalid ones", n, bound)
		}
		if _, err := jsonvalue.Parse(got.AppendJSON(nil)); err != nil && got.Kind() != jsonvalue.Null {
			t.Fatalf("what came out is not JSON: %v", err)
		}
		var evaluated, streamed strings.Builder
		_ = got.Stringify(&evaluated)
		err = tpl.Stream(&streamed, scope, expression.Options{Random: chance()})
		if err != nil || evaluated.String() != streamed.String() {
			t.Fatalf("evaluated %d bytes, streamed %d, %v", evaluated.Len(), streamed.Len(), err)
		}
		if _, err := expression.EvaluateMask(jsonvalue.NewString(text), v, expression.MaskOptions{}); err != nil && fault.Of(err).Kind() != fault.Invalid {
			t.Fatalf("EvaluateMask fails with %v", err)
		}
	})
}

// FuzzMask: what is hidden makes no difference to what a mask shows, and a mask
// keeps its bound.
func FuzzMask(f *testing.F) {
	seeds(f, func(s string) {
		f.Add([]byte(jsonvalue.NewString(s).AppendJSON(nil)))
	})
	for _, s := range []string{
		`{"number":"{{ data.number | reveal_last: 4 }}","month":"{{ data.expiration_month }}"}`, `["{{ data.cvc }}","{{ data | stringify }}"]`, `{"a":{"b":["{{ data['cvc'] }}",1.50,null]}}`,
		`"{{ data | json: '$..cvc' }}"`, `"{{ data | json_stringify | slice: -6, 6 }}"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		mask, err := jsonvalue.Parse(text)
		if err != nil {
			return
		}
		shown := func(cvc string) (string, error) {
			v, err := expression.EvaluateMask(mask, parseJSON(t, `{"number":"4242424242424242","expiration_month":12,"cvc":"`+cvc+`","n":[{"cvc":1}]}`), expression.MaskOptions{Hidden: []string{"cvc"}, MaxOutput: 1000})
			return string(v.AppendJSON(nil)), err
		}
		first, err := shown("123")
		if err != nil && fault.Of(err).Kind() != fault.Invalid {
			t.Fatalf("EvaluateMask fails with %v", err)
		}
		second, other := shown("9876")
		if first != second || (err == nil) != (other == nil) {
			t.Errorf("the mask %s shows %s (%v) with one code and %s (%v) with another", text, first, err, second, other)
		}
		masked := expression.DefaultMask(mask)
		if masked.Kind() != mask.Kind() && masked.Kind() != jsonvalue.String {
			t.Errorf("the default mask of %s is %s", text, masked.AppendJSON(nil))
		}
	})
}

func FuzzDetokenize(f *testing.F) {
	for _, s := range []string{
		"{{tok}}", "a{{ tok }}b{{token: tok | json: '$.data'}}", "{{ tok | upcase | append: '{{tok}}' }}", "{{- tok -}}", "{{{{tok}}}}", "{{ o'brien | last4 }}", "\"{{tok}}\\\u0001",
	} {
		f.Add(s, `"{{ other }}"`, uint8(0))
		f.Add(s, `{"a":["<{{tok}}>",1.0]}`, uint8(2))
	}
	f.Fuzz(func(t *testing.T, text, data string, form uint8) {
		d, err := expression.ParseDetokenization(nil, text)
		if err != nil {
			return
		}
		v, err := jsonvalue.Parse([]byte(data))
		if err != nil {
			return
		}
		asked := map[expression.Reference]bool{}
		lookup := func(r expression.Reference) (jsonvalue.Value, error) {
			asked[r] = true
			if !expression.ValidID(r.ID) {
				t.Fatal("an id was asked for that is none")
			}
			return v, nil
		}
		as := expression.Form(form % 3)
		x, err := d.Resolve(lookup, as, bodyBudget(10_000))
		if err != nil {
			if k := fault.Of(err).Kind(); k != fault.Invalid && k != fault.TooLarge {
				t.Fatalf("Resolve fails with %v", err)
			}
			return
		}
		if len(asked) != len(d.IDs()) {
			t.Fatalf("%d tokens were asked for, %d listed", len(asked), len(d.IDs()))
		}
		before := len(asked)
		got := x.Value()
		size := len(got.Reveal())
		if as == expression.JSONString {
			size = len(got.AppendJSON(nil))
		}
		if x.Size() != size || size > 10_000 {
			t.Fatalf("%d bytes were foretold, %d came", x.Size(), size)
		}
		if len(asked) != before {
			t.Fatal("building asked for tokens")
		}
	})
}

// What a token holds reaches the text unchanged, whatever it looks like: it
// is never taken for an expression.
func TestValuesAreNeverEvaluatedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOfN(rapid.SampledFrom([]string{"{{", "}}", "tok", " ", "|", "{{tok}}", "'", "é", "{%"}), 0, 12).Draw(t, "value")
		value := strings.Join(pieces, "")
		d, err := expression.ParseDetokenization(nil, "<{{tok}}|{{ tok | append: '' }}>")
		if err != nil {
			t.Fatal(err)
		}
		x, err := d.Resolve(func(expression.Reference) (jsonvalue.Value, error) { return jsonvalue.NewString(value), nil }, expression.PlainText, bodyBudget(10_000))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := x.Value().Reveal(), "<"+value+"|"+value+">"; got != want {
			t.Fatalf("%q became %q", want, got)
		}
	})
}

// Calculations agree with rational numbers.
func TestCalculationsAreExact(t *testing.T) {
	number := rapid.StringMatching(`-?[0-9]{1,25}(\.[0-9]{1,10})?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		want := map[string]*big.Rat{"plus": new(big.Rat).Add(x, y), "minus": new(big.Rat).Sub(x, y), "times": new(big.Rat).Mul(x, y)}
		if y.Sign() != 0 && x.IsInt() && y.IsInt() && !strings.Contains(a+b, ".") {
			q, r := new(big.Int).DivMod(x.Num(), y.Num(), new(big.Int))
			if r.Sign() != 0 && y.Sign() < 0 { // DivMod is Euclidean, filters round down
				q, r = q.Sub(q, big.NewInt(1)), r.Add(r, y.Num())
			}
			want["divided_by"], want["modulo"] = new(big.Rat).SetInt(q), new(big.Rat).SetInt(r)
		}
		for filter, want := range want {
			got, err := evaluate("{{ data | "+filter+": "+b+" }}", jsonvalue.NewString(a))
			if err != nil {
				t.Fatalf("%s %s %s: %v", a, filter, b, err)
			}
			if g, ok := new(big.Rat).SetString(got); !ok || g.Cmp(want) != 0 {
				t.Fatalf("%s %s %s = %s, want %s", a, filter, b, got, want.RatString())
			}
		}
	})
}

func TestNumbersOutgrowTheirBounds(t *testing.T) {
	long := strings.Repeat("9", 390)
	if got, err := evaluate("{{ data | times: data }}", jsonvalue.NewString(long)); err != nil || len(got) != 780 {
		t.Errorf("390 digits squared = %d digits, %v", len(got), err)
	}
	if _, err := evaluate("{{ data | times: data | times: 1 }}", jsonvalue.NewString(long)); !errors.Is(err, fault.Invalid) {
		t.Errorf("780 digits calculated with: %v, want an invalid fault", err)
	}
	if got, err := evaluate("{{ data }}", parseJSON(t, strings.Repeat("9", 5000))); err != nil || len(got) != 5000 {
		t.Errorf("a number that passes through: %d digits, %v", len(got), err)
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := expression.Parse("{{ data.number | reveal_last: 4 }}"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEvaluateRevealLast(b *testing.B) {
	tpl, err := expression.Parse("{{ data.number | reveal_last: 4 }}")
	if err != nil {
		b.Fatal(err)
	}
	scope := expression.Scope{Data: parseJSON(b, cardData)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tpl.Evaluate(scope, expression.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCardMaskFromCache(b *testing.B) {
	mask := parseJSON(b, `{"number":"{{ data.number | reveal_last: 4 }}","expiration_month":"{{ data.expiration_month }}","expiration_year":"{{ data.expiration_year }}"}`)
	data, cache := parseJSON(b, cardData), expression.NewCache(100, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := expression.EvaluateMask(mask, data, expression.MaskOptions{Hidden: []string{"cvc"}, Cache: cache}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDetokenizeDocument(b *testing.B) {
	body := parseJSON(b, `{"payment":{"number":"{{ card | json: '$.number' }}","month":"{{ card | json: '$.expiration_month' }}","cvc":"987","name":"Jane {{ tok }}"},"retained":true}`)
	lookup := vault(b)
	b.ReportAllocs()
	for b.Loop() {
		d, err := expression.ParseDocument(nil, body)
		if err != nil {
			b.Fatal(err)
		}
		x, err := d.Resolve(lookup, bodyBudget(5<<20))
		if err != nil {
			b.Fatal(err)
		}
		x.Value()
	}
}
