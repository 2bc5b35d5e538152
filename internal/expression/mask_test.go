package expression_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

func TestMasksOfAnyShape(t *testing.T) {
	cache := expression.NewCache(10, 10_000)
	for mask, want := range map[string]string{
		`"{{ data.number | reveal_last: 4 }}"`: `"XXXXXXXXXXXX4242"`,
		`{"number":"{{ data.number | reveal_last: 4 }}","expiration_month":"{{ data.expiration_month }}","expiration_year":"{{ data.expiration_year }}"}`: `{"number":"XXXXXXXXXXXX4242","expiration_month":12,"expiration_year":2030}`,
		`{"cvc":"{{ data.cvc }}","a":"{{ data.nothing | reveal_last: 4 }}","b":null,"c":"x"}`:                                                             `{"c":"x"}`,
		`["{{ data.cvc }}",1,true,["{{ data.number | last4 }}"],{"deep":{"er":"{{ data.cvc }}"}}]`:                                                        `[null,1,true,["4242"],{"deep":{}}]`,
		`"{{ data.cvc }}"`:                    `null`,
		`"{{ data }}"`:                        `{"number":"4242424242424242","expiration_month":12,"expiration_year":2030}`,
		`"cvc {{ data | stringify }}"`:        `"cvc {\"expiration_month\":12,\"expiration_year\":2030,\"number\":\"4242424242424242\"}"`,
		`"hidden"`:                            `"hidden"`,
		`42.0`:                                `42.0`,
		`"{{ data.number, reveal_last: 4 }}"`: `"XXXXXXXXXXXXXXXX"`,
		`"{{ data.number, x | card_bin }}"`:   `"XXXXXXXX"`,
		`"{{ data.expiration_month foo }}"`:   `"XX"`,
		`"{{ data, x }}"`:                     `{"number":"XXXXXXXXXXXXXXXX","expiration_month":"XX","expiration_year":"XXXX"}`,
		`"no {{ data.number, x }}/{{ data.number | last4 }}"`: `"no XXXXXXXXXXXXXXXX/4242"`,
		`"{{ data.nothing, x }}"`:                             `null`,
		`{"{{ data.number }}":1}`:                             `{"{{ data.number }}":1}`,
	} {
		got, err := expression.EvaluateMask(parseJSON(t, mask), parseJSON(t, cardData), expression.MaskOptions{Hidden: []string{"cvc"}, Cache: cache})
		if err != nil || string(got.AppendJSON(nil)) != want {
			t.Errorf("mask %s = %s, %v, want %s", mask, got.AppendJSON(nil), err, want)
		}
	}
}

func TestMasksThatAreRefused(t *testing.T) {
	big := jsonvalue.NewString(strings.Repeat("x", 40_000))
	for name, mask := range map[string]string{
		"alias": `{"a":"{{ data | alias_preserve_length }}"}`, "metadata": `["{{ metadata.k }}"]`, "tag": `"{% if data %}"`, "unknown filter": `"{{ data | nope }}"`,
		"too large together": `["{{ data }}","{{ data }}"]`, "failing filter": `"{{ data | to_number }}"`,
	} {
		if _, err := expression.EvaluateMask(parseJSON(t, mask), big, expression.MaskOptions{}); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want an invalid fault", name, err)
		}
	}
	if _, err := expression.EvaluateMask(parseJSON(t, `["{{ data }}","{{ data }}"]`), big, expression.MaskOptions{MaxOutput: 100_000}); err != nil {
		t.Errorf("with room for it: %v", err)
	}
}

func TestDefaultMaskOfTokens(t *testing.T) {
	for data, want := range map[string]string{
		`"4242424242424242"`: `"XXXXXXXXXXXX4242"`, `"secret"`: `"XXXret"`, `"abc"`: `"XXc"`, `"ab"`: `"Xb"`, `"a"`: `"X"`, `""`: `""`,
		`"éèêëēėęě"`: `"XXXXēėęě"`, `123456`: `"XXX456"`, `-1.50`: `"XXX50"`, `7`: `"X"`, `true`: `"XXXX"`, `false`: `"XXXX"`, `null`: `null`,
		`{"a":["secret",{"b":12}],"c":true,"d":null,"e":{}}`: `{"a":["XXXret",{"b":"X2"}],"c":"XXXX","d":null,"e":{}}`,
	} {
		if got := string(expression.DefaultMask(parseJSON(t, data)).AppendJSON(nil)); got != want {
			t.Errorf("DefaultMask(%s) = %s, want %s", data, got, want)
		}
	}
}

func TestMasksNeverShowMoreThanAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("0123456789abc-é😀 ")), 0, 30, -1).Draw(t, "text")
		data, n := jsonvalue.NewString(text), utf8.RuneCountInString(text)
		first, last := rapid.IntRange(0, 20).Draw(t, "first"), rapid.IntRange(0, 20).Draw(t, "last")
		check := func(expr string, most int) {
			got, err := evaluate(expr, data)
			if err != nil {
				t.Fatalf("%s = %v", expr, err)
			}
			shown := parseJSON(&testing.T{}, got).Reveal()
			if utf8.RuneCountInString(shown) != n {
				t.Fatalf("%s over %q = %q: another length", expr, text, shown)
			}
			if clear := n - strings.Count(shown, "#"); clear > most || n > 0 && clear == n {
				t.Fatalf("%s over %q = %q: %d characters in the clear", expr, text, shown, clear)
			}
		}
		check("{{ data | reveal_last: "+itoa(last)+", '#' }}", last)
		check("{{ data | reveal: "+itoa(first)+", "+itoa(last)+", '#' }}", first+last)
		check("{{ data | reveal: "+itoa(first)+", "+itoa(last)+", '#', '-' }}", first+last+strings.Count(text, "-"))
		check("{{ data | card_mask: true, true, '#', '-' }}", 12+strings.Count(text, "-"))
		masked := expression.DefaultMask(data).Reveal()
		if clear := n - strings.Count(masked, "X"); clear > 4 || 2*clear > n {
			t.Fatalf("DefaultMask(%q) = %q", text, masked)
		}
	})
}

func itoa(i int) string { return string(jsonvalue.NewInt(int64(i)).AppendJSON(nil)) }
