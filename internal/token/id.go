package token

import (
	"io"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/luhn"
)

var (
	errID     = fault.Field("id", "must have 3 to 400 characters, none of them a control character or one of # / \\ + ? [ ] | & = % < > { } ^")
	errIDData = fault.Field("id", "must not be the value that is to be protected, nor hold a card number of it")
)

// namer makes the ids of one token.
type namer struct {
	template *expression.Template // nil: ids are UUIDs
	scope    expression.Scope
	private  []string // members of the data that must not become an id
	// random says that each id is another one, so that one which is taken can
	// be replaced; chosen, that somebody chose it, so that it can be taken.
	random, chosen bool
}

func newNamer(text string, kind *Type, data jsonvalue.Value) (namer, error) {
	n := namer{scope: expression.Scope{Data: data, Hidden: kind.ShortLived}, private: kind.private, random: true}
	if text == "" {
		return n, nil
	}
	t, err := expression.Parse(text)
	if err != nil {
		return n, asField("id", err)
	}
	n.template, n.chosen, n.random = t, true, t.UsesAlias()
	return n, nil
}

// id makes an id. It is another one each time when n.random.
func (n namer) id(random io.Reader) (string, error) {
	if n.template == nil {
		return access.NewID(), nil
	}
	v, err := n.template.Evaluate(n.scope, expression.Options{Random: random})
	if err != nil {
		return "", asField("id", err)
	}
	id := v.Reveal()
	if !expression.ValidID(id) {
		return "", errID
	}
	if n.tells(id) {
		return "", errIDData
	}
	return id, nil
}

// separators are what people put between the digits of a number.
var separators = strings.NewReplacer(" ", "", "-", "")

// tells reports whether an id gives protected values away. An alias may keep a
// part of a number, so of an alias only whole ones count.
func (n namer) tells(id string) bool {
	if n.random {
		return tellsWhole(id, n.scope.Data, n.private)
	}
	return isData(id, n.scope.Data, n.private) || luhn.HasCard(separators.Replace(id)) && sharesNumber(separators.Replace(id), n.scope.Data)
}

// tellsWhole reports whether an id, whoever made it, is the data or holds a
// whole card number of it.
func tellsWhole(id string, data jsonvalue.Value, private []string) bool {
	return isData(id, data, private) || luhn.HasCard(separators.Replace(id)) && holdsWholeNumber(separators.Replace(id), data)
}

// isData reports whether an id is the data, or one of its private members, be
// it with other separators.
func isData(id string, data jsonvalue.Value, private []string) bool {
	is := func(v jsonvalue.Value) bool {
		s := v.Reveal()
		return s != "" && (s == id || separators.Replace(s) == separators.Replace(id))
	}
	for _, name := range private {
		if v, ok := data.Get(name); ok && is(v) {
			return true
		}
	}
	return is(data)
}

const minCard, maxCard = 12, 19 // digits

// holdsWholeNumber reports whether a card number that stands alone in the data
// stands in the text.
func holdsWholeNumber(text string, data jsonvalue.Value) bool {
	for leaf := range data.Leaves() {
		for run := range strings.FieldsFuncSeq(separators.Replace(leaf.Reveal()), notDigit) {
			if isCardNumber(run) && strings.Contains(text, run) {
				return true
			}
		}
	}
	return false
}

// sharesNumber reports whether some 12 to 19 digits of the text are a card
// number and stand in the data too. It looks at each character of the data
// once, however long both are.
func sharesNumber(text string, data jsonvalue.Value) bool {
	numbers := make(map[string][]string) // by their first digits
	for run := range strings.FieldsFuncSeq(text, notDigit) {
		for from := 0; from+minCard <= len(run); from++ {
			for to := from + minCard; to <= min(from+maxCard, len(run)); to++ {
				if number := run[from:to]; luhn.Valid(number) {
					numbers[number[:minCard]] = append(numbers[number[:minCard]], number)
				}
			}
		}
	}
	for leaf := range data.Leaves() {
		for run := range strings.FieldsFuncSeq(separators.Replace(leaf.Reveal()), notDigit) {
			for from := 0; from+minCard <= len(run); from++ {
				for _, number := range numbers[run[from:from+minCard]] {
					if strings.HasPrefix(run[from:], number) {
						return true
					}
				}
			}
		}
	}
	return false
}

func notDigit(r rune) bool { return r < '0' || r > '9' }

// asField puts the words of an expression's fault under a member's name. What
// is no fault of the caller's stays what it is.
func asField(path string, err error) error {
	if f := fault.Of(err); f.Kind() == fault.Invalid {
		var fields fault.Fields
		fields.Add(path, f.Detail())
		return fields.Err()
	}
	return err
}
