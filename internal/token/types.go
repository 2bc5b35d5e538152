package token

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/luhn"
)

// Type is a kind of token: what its data may be, and what holds for a token
// that does not say otherwise.
type Type struct {
	Name string
	// Container is where tokens of this type are unless they name containers.
	Container string
	// Fingerprint is the expression of what makes two tokens equal.
	Fingerprint string
	// Mask is what a masked token shows, as expressions; null for the mask that
	// hides the leaves of whatever it is given.
	Mask jsonvalue.Value
	// Indexes are the expressions by which tokens are found.
	Indexes []string
	// ShortLived are members of the data that are gone within the hour. They
	// are sealed apart, and no expression sees them.
	ShortLived []string
	// Example is data that the type takes.
	Example string

	// normalize checks data and returns it in the form that is kept.
	normalize func(f *fault.Fields, data jsonvalue.Value) jsonvalue.Value
	// side is the object that stands beside the data, and its name.
	side func(data jsonvalue.Value) (name string, object jsonvalue.Value)
	// private are members that must not become an id, beside the data itself.
	private []string
}

var (
	maskLast4 = jsonOf(`"{{ data | reveal_last: 4 }}"`)
	maskKept  = jsonOf(`"{{ data | reveal: 0, 4, 'X', '-' }}"`)

	indexesOfNumber = []string{"{{ data }}", "{{ data | remove: '-' }}", "{{ data | last4 }}"}
)

// types are all that there are.
var types = []Type{
	{
		Name: "token", Container: "/general/high/", Fingerprint: "{{ data | stringify }}",
		Example: `{"name":"Jane"}`, normalize: anything,
	},
	{
		Name: "card", Container: "/pci/high/", Fingerprint: "{{ data.number }}",
		Mask:       jsonOf(`{"number":"{{ data.number | reveal_last: 4 }}","expiration_month":"{{ data.expiration_month }}","expiration_year":"{{ data.expiration_year }}"}`),
		ShortLived: []string{"cvc"},
		Example:    `{"number":"4242424242424242","expiration_month":12,"expiration_year":2030,"cvc":"123"}`,
		normalize:  card, side: cardSide, private: []string{"number"},
	},
	{
		Name: "bank", Container: "/bank/high/", Fingerprint: "{{ data.account_number }}|{{ data.routing_number }}",
		Mask:    jsonOf(`{"routing_number":"{{ data.routing_number }}","account_number":"{{ data.account_number | reveal_last: 4 }}"}`),
		Example: `{"routing_number":"021000021","account_number":"00001"}`, normalize: bank, side: bankSide, private: []string{"account_number"},
	},
	{
		Name: "card_number", Container: "/pci/high/", Fingerprint: "{{ data }}", Mask: maskLast4,
		Example: `"4242424242424242"`, normalize: cardNumber,
	},
	{
		Name: "us_bank_account_number", Container: "/bank/high/", Fingerprint: "{{ data }}", Mask: maskLast4,
		Example: `"000123456789"`, normalize: text(func(s string) bool { return isDigits(s, 3, 17) }, "must be a string of 3 to 17 digits"),
	},
	{
		Name: "us_bank_routing_number", Container: "/bank/low/", Fingerprint: "{{ data }}", Mask: maskLast4,
		Example: `"021000021"`, normalize: text(isRoutingNumber, wantRoutingNumber),
	},
	{
		Name: "social_security_number", Container: "/pii/high/", Fingerprint: "{{ data | remove: '-' }}", Mask: maskKept, Indexes: indexesOfNumber,
		Example: `"123-45-6789"`, normalize: text(isNineDigits, wantNineDigits),
	},
	{
		Name: "employer_id_number", Container: "/pii/high/", Fingerprint: "{{ data | remove: '-' }}", Mask: maskKept, Indexes: indexesOfNumber,
		Example: `"12-3456789"`, normalize: text(isNineDigits, wantNineDigits),
	},
}

// Types returns the rows, for the documentation.
func Types() []Type { return slices.Clone(types) }

// typeNames lists the names of all rows, for messages.
func typeNames() fault.Names {
	names := make([]string, len(types))
	for i := range types {
		names[i] = types[i].Name
	}
	return fault.Names{What: "token type", Known: names, List: "the types are"}
}

func typeNamed(name string) *Type {
	for i := range types {
		if types[i].Name == name {
			return &types[i]
		}
	}
	return nil
}

// jsonOf is for literals of the program.
func jsonOf(text string) jsonvalue.Value {
	v, err := jsonvalue.Parse([]byte(text))
	if err != nil {
		panic("token: a literal is not JSON")
	}
	return v
}

// split takes the short-lived members out of normalized data. The second value
// is an object of them, or null when there are none.
func (t *Type) split(data jsonvalue.Value) (kept, shortLived jsonvalue.Value) {
	var b jsonvalue.Builder
	found := false
	for _, name := range t.ShortLived {
		if v, ok := data.Get(name); ok {
			b.Add(name, v)
			data, found = data.Without(name), true
		}
	}
	if !found {
		return data, jsonvalue.Value{}
	}
	return data, b.Value()
}

// join is the reverse of split.
func join(kept, shortLived jsonvalue.Value) jsonvalue.Value {
	for name, v := range shortLived.Members() {
		kept = kept.With(name, v)
	}
	return kept
}

const (
	wantRoutingNumber = "must be a string of nine digits with a valid checksum"
	wantNineDigits    = "must be a string of nine digits, dashes allowed"
)

func anything(_ *fault.Fields, data jsonvalue.Value) jsonvalue.Value { return data }

// text takes a string that is of some form, and keeps it as it is.
func text(is func(string) bool, want string) func(*fault.Fields, jsonvalue.Value) jsonvalue.Value {
	return func(f *fault.Fields, data jsonvalue.Value) jsonvalue.Value {
		if data.Kind() != jsonvalue.String || !data.Matches(is) {
			f.Add("data", want)
		}
		return data
	}
}

func isDigits(s string, least, most int) bool {
	return len(s) >= least && len(s) <= most && strings.Trim(s, "0123456789") == ""
}

func isCardNumber(s string) bool { return isDigits(s, 12, 19) && luhn.Valid(s) }

// cardNumberFaults are what can be wrong with a card number, in the order in
// which it is checked. A person at a checkout can be shown the messages.
var cardNumberFaults = []struct {
	code, message string
	found         func(string) bool
}{
	{"card_number_characters", "a card number has digits only, without spaces or dashes", func(s string) bool { return strings.Trim(s, "0123456789") != "" }},
	{"card_number_length", "a card number has 12 to 19 digits", func(s string) bool { return !isDigits(s, 12, 19) }},
	{"card_number_invalid", "the card number is not valid: check it for a mistyped digit", func(s string) bool { return !luhn.Valid(s) }},
}

// checkCardNumber notes what is wrong with a card number, and reports whether
// it is valid.
func checkCardNumber(f *fault.Fields, path string, number jsonvalue.Value) bool {
	if number.Kind() != jsonvalue.String {
		f.AddCode(path, "card_number_type", "must be a string of digits")
		return false
	}
	for _, c := range cardNumberFaults {
		if number.Matches(c.found) {
			f.AddCode(path, c.code, c.message)
			return false
		}
	}
	return true
}

// cardNumber takes a card number that is all of the data.
func cardNumber(f *fault.Fields, data jsonvalue.Value) jsonvalue.Value {
	checkCardNumber(f, "data", data)
	return data
}

// isRoutingNumber checks the checksum of the American Bankers Association. Nine
// zeros have a valid checksum and belong to no bank.
func isRoutingNumber(s string) bool {
	if !isDigits(s, 9, 9) || s == "000000000" {
		return false
	}
	sum := 0
	for i, weight := range [...]int{3, 7, 1, 3, 7, 1, 3, 7, 1} {
		sum += weight * int(s[i]-'0')
	}
	return sum%10 == 0
}

// isNineDigits allows the dashes of both ways to write such numbers.
func isNineDigits(s string) bool {
	return len(s) <= 11 && isDigits(strings.ReplaceAll(s, "-", ""), 9, 9)
}

// members checks that data is an object of known members, and returns a
// function that finds one: null is absent.
func members(f *fault.Fields, data jsonvalue.Value, having string, known ...string) func(name string) (jsonvalue.Value, bool) {
	if data.Kind() != jsonvalue.Object {
		f.Add("data", "must be an object")
		return nil
	}
	for name := range data.Members() {
		if !slices.Contains(known, name) {
			f.AddUnknown("data", "data_field_unknown", name, fault.Names{What: "field", Known: known, List: having})
		}
	}
	return func(name string) (jsonvalue.Value, bool) {
		v, ok := data.Get(name)
		return v, ok && !v.IsNull()
	}
}

func card(f *fault.Fields, data jsonvalue.Value) jsonvalue.Value {
	get := members(f, data, "card data has", "number", "expiration_month", "expiration_year", "cvc")
	if get == nil {
		return data
	}
	var b jsonvalue.Builder
	if number, ok := get("number"); !ok {
		f.Add("data.number", "is required")
	} else if checkCardNumber(f, "data.number", number) {
		b.Add("number", number)
	}
	for _, m := range []struct {
		name           string
		digits         int
		least, most    int
		wanted         string
		fewerDigitsToo bool
	}{
		{"expiration_month", 2, 1, 12, "must be a month from 1 to 12", true},
		{"expiration_year", 4, 1000, 9999, "must be a year of four digits", false},
	} {
		v, ok := get(m.name)
		if !ok {
			continue
		}
		n, ok := wholeNumber(v, m.digits)
		if !ok || n < m.least || n > m.most || !m.fewerDigitsToo && v.Characters() != m.digits {
			f.Add("data."+m.name, m.wanted)
			continue
		}
		b.Add(m.name, jsonvalue.NewInt(int64(n)))
	}
	if cvc, ok := get("cvc"); ok {
		if k := cvc.Kind(); k != jsonvalue.String && k != jsonvalue.Number || !cvc.Matches(func(s string) bool { return isDigits(s, 3, 4) }) {
			f.Add("data.cvc", "must be three or four digits")
		} else {
			b.Add("cvc", cvc.AsString())
		}
	}
	return b.Value()
}

// wholeNumber reads an integer of at most so many digits, be it text.
func wholeNumber(v jsonvalue.Value, digits int) (int, bool) {
	if k := v.Kind(); k != jsonvalue.Number && k != jsonvalue.String || !v.Matches(func(s string) bool { return isDigits(s, 1, digits) }) {
		return 0, false
	}
	n, err := strconv.Atoi(v.Reveal())
	return n, err == nil
}

func bank(f *fault.Fields, data jsonvalue.Value) jsonvalue.Value {
	get := members(f, data, "bank data has", "routing_number", "account_number")
	if get == nil {
		return data
	}
	var b jsonvalue.Builder
	for _, m := range []struct {
		name   string
		is     func(string) bool
		wanted string
	}{
		{"routing_number", isRoutingNumber, wantRoutingNumber},
		{"account_number", func(s string) bool { return isDigits(s, 1, 17) }, "must be a string of 1 to 17 digits"},
	} {
		v, ok := get(m.name)
		switch {
		case !ok:
			f.Add("data."+m.name, "is required")
		case v.Kind() != jsonvalue.String || !v.Matches(m.is):
			f.Add("data."+m.name, m.wanted)
		default:
			b.Add(m.name, v)
		}
	}
	return b.Value()
}

// binDetails are what the number of a card tells of its issuer.
func binDetails(number string) jsonvalue.Value {
	var b jsonvalue.Builder
	bin := 8
	if len(number) < 16 {
		bin = 6
	}
	b.Add("bin", jsonvalue.NewString(number[:bin]))
	b.Add("last4", jsonvalue.NewString(number[len(number)-4:]))
	if brand := brandOf(number); brand != "" {
		b.Add("brand", jsonvalue.NewString(brand))
	}
	return b.Value()
}

func cardSide(data jsonvalue.Value) (string, jsonvalue.Value) {
	number, _ := data.Get("number")
	object := binDetails(number.Reveal())
	for _, name := range []string{"expiration_month", "expiration_year"} {
		if v, ok := data.Get(name); ok {
			object = object.With(name, v)
		}
	}
	return "card", object
}

// bankSide leaves out the last digits of a number that has no others.
func bankSide(data jsonvalue.Value) (string, jsonvalue.Value) {
	routing, _ := data.Get("routing_number")
	account, _ := data.Get("account_number")
	var b jsonvalue.Builder
	b.Add("routing_number", routing)
	if s := account.Reveal(); len(s) > 4 {
		b.Add("account_number_last4", jsonvalue.NewString(s[len(s)-4:]))
	}
	return "bank", b.Value()
}
