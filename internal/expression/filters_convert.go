package expression

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // HMAC-SHA1 is what some destinations ask for; the filter names it
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"hash"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

var convertFilters = []filter{
	{
		name:   "json",
		doc:    "The one value that a JSONPath finds; none, or more than one, is an error.",
		params: []param{needs("path")},
		examples: []Example{
			example("data | json: '$.holder.name'", `{"holder":{"name":"Jane"}}`, `"Jane"`),
			example("data | json: '$.accounts[?(@.balance > 100)].name'", `{"accounts":[{"name":"daily","balance":12.50},{"name":"savings","balance":900}]}`, `"savings"`),
			example("data | json: '$[-1]'", `[1,2,3.10]`, `3.10`),
		},
		apply: func(c *call) jsonvalue.Value {
			v, err := findOne(c.in, c.argText(0, ""), c.budget)
			if err != nil {
				return c.fail(err)
			}
			return v
		},
	},
	{
		name: "stringify",
		doc:  "The canonical text of a value: members sorted by name, no spaces, numbers as written, a string as it is.",
		examples: []Example{
			example("data | stringify", `{"b":1.0,"a":["x",null]}`, `"{\"a\":[\"x\",null],\"b\":1.0}"`),
			example("data | stringify", `"x"`, `"x"`),
		},
		apply: func(c *call) jsonvalue.Value { return c.string(c.stringified(c.in)) },
	},
	{
		name: "json_stringify",
		doc:  "The JSON text of a value: members in their order, a string in quotes.",
		examples: []Example{
			example("data | json_stringify", `{"b":1.0,"a":"x"}`, `"{\"b\":1.0,\"a\":\"x\"}"`),
			example("data | json_stringify", `"x"`, `"\"x\""`),
		},
		apply: func(c *call) jsonvalue.Value {
			var b strings.Builder
			if err := c.in.WriteJSON(c.writer(&b)); err != nil {
				return c.fail(err)
			}
			return c.string(b.String())
		},
	},
	{
		name: "to_string",
		doc:  "A number or boolean as text.",
		examples: []Example{
			example("data | to_string", `3.14159`, `"3.14159"`),
			example("data | to_string", `true`, `"true"`),
		},
		apply: func(c *call) jsonvalue.Value { return c.string(c.text()) },
	},
	{
		name: "to_number",
		doc:  "Text as a number, digit for digit; zeros in front are dropped.",
		examples: []Example{
			example("data | to_number", `"3.10"`, `3.10`),
			example("data | to_number", `"007"`, `7`),
		},
		apply: func(c *call) jsonvalue.Value {
			v, err := numberOf(strings.TrimSpace(c.text()))
			if err != nil || c.in.Kind() == jsonvalue.Bool {
				return c.fail(errInput)
			}
			return v
		},
	},
	{
		name: "to_boolean",
		doc:  "The texts true and false, in any case, as booleans.",
		examples: []Example{
			example("data | to_boolean", `"true"`, `true`),
			example("data | to_boolean", `"False"`, `false`),
		},
		apply: func(c *call) jsonvalue.Value {
			b, ok := booleanOf(c.in)
			if !ok {
				return c.fail(errInput)
			}
			return jsonvalue.NewBool(b)
		},
	},
	{
		name:   "hmac",
		doc:    "The HMAC of a text under a key, with `sha-256`, `sha-512` or `sha-1`; to be followed by to_base64 or to_base16, and in base 16 otherwise.",
		params: []param{needs("algorithm"), needs("key")},
		examples: []Example{
			example("data | hmac: 'sha-256', 'a key' | to_base16", `"4242424242424242"`, `"4B86EA5B1202EDF0AC540BFED82ABA5153D5EEB7D6F78161616749D8AA9C4466"`),
			example("data | hmac: 'sha-1', 'a key' | to_base64", `"4242424242424242"`, `"FW16MnUaJ0A5ytE/MWDgoOfyMRo="`),
		},
		apply: func(c *call) jsonvalue.Value {
			algorithm := map[string]func() hash.Hash{"sha-256": sha256.New, "sha-512": sha512.New, "sha-1": sha1.New}[c.argText(0, "")]
			key := c.argText(1, "")
			if algorithm == nil || key == "" {
				return c.fail(errArgument)
			}
			text := c.text()
			if !c.spend(hmacSteps+4*(len(text)+len(key))) || !c.allocate(len(text)+len(key)) {
				return jsonvalue.Value{}
			}
			mac := hmac.New(algorithm, []byte(key))
			mac.Write([]byte(text))
			c.made = mac.Sum(nil)
			return c.string(base16(c.made))
		},
	},
	{
		name:     "to_base64",
		doc:      "The bytes of a hmac, or of a text, in base 64.",
		examples: []Example{example("data | to_base64", `"é"`, `"w6k="`)},
		apply: func(c *call) jsonvalue.Value {
			b := c.bytes()
			if !c.room(base64.StdEncoding.EncodedLen(len(b))) {
				return jsonvalue.Value{}
			}
			return c.string(base64.StdEncoding.EncodeToString(b))
		},
	},
	{
		name:     "to_base16",
		doc:      "The bytes of a hmac, or of a text, in base 16, in upper case.",
		examples: []Example{example("data | to_base16", `"é"`, `"C3A9"`)},
		apply: func(c *call) jsonvalue.Value {
			b := c.bytes()
			if !c.room(2 * len(b)) {
				return jsonvalue.Value{}
			}
			return c.string(base16(b))
		},
	},
}

// bytes are those that the filter before made, or those of the input's text.
// hmacSteps is what a HMAC of nothing costs.
const hmacSteps = 1000

func (c *call) bytes() []byte {
	if c.raw != nil {
		return c.raw
	}
	s := c.text()
	if !c.allocate(len(s)) {
		return nil
	}
	return []byte(s)
}

func base16(b []byte) string { return fmt.Sprintf("%X", b) }

func booleanOf(v jsonvalue.Value) (is, ok bool) {
	switch {
	case v.Kind() != jsonvalue.Bool && v.Kind() != jsonvalue.String:
		return false, false
	case strings.EqualFold(v.Reveal(), "true"):
		return true, true
	}
	return false, strings.EqualFold(v.Reveal(), "false")
}

// numberOf makes a number of a text that may have zeros in front.
func numberOf(text string) (jsonvalue.Value, error) {
	sign := ""
	if rest, ok := strings.CutPrefix(text, "-"); ok {
		sign, text = "-", rest
	}
	for len(text) > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9' {
		text = text[1:]
	}
	return jsonvalue.NewNumber(sign + text)
}
