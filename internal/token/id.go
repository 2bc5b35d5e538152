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
	errID = fault.Field("id", "must have 3 to 400 characters, none of them a control character or one of # / \\ + ? [ ] | & = % < > { } ^, "+
		"no white space or - at its ends, and must not begin with token:")
	errIDData = fault.FieldCode("id", "id_looks_like_card_number", "must not be the protected value, hold 12 or more digits of it, or look like a card number")
)

// namer makes the ids of one token.
type namer struct {
	template *expression.Template // nil: ids are UUIDs, or literal
	literal  string               // the id of a token that was exported
	scope    expression.Scope
	private  []string // fields of the data that must not become an id
	numeric  bool     // ids may look like card numbers
	// random is set when each id is another one, so that one which is taken can
	// be replaced; chosen, when somebody chose it, so that it can be taken.
	random, chosen bool
}

func newNamer(b *expression.Budget, text string, kind *Type, data jsonvalue.Value, numeric bool) (namer, error) {
	n := namer{scope: expression.Scope{Data: data, Hidden: kind.ShortLived}, private: kind.private, numeric: numeric, random: true}
	if text == "" {
		return n, nil
	}
	t, err := expression.ParseWithin(b, text)
	if err != nil {
		return n, asField("id", err)
	}
	n.template, n.chosen, n.random = t, true, t.UsesAlias()
	return n, nil
}

// id makes an id. It is another one each time when n.random.
func (n namer) id(b *expression.Budget, random io.Reader) (string, error) {
	if n.literal != "" {
		return n.exportedID()
	}
	if n.template == nil {
		return access.NewID(), nil
	}
	v, err := n.template.Evaluate(n.scope, expression.Options{Random: random, Budget: b})
	if err != nil {
		return "", asField("id", err)
	}
	id := v.Reveal()
	if !namesItself(id) {
		return "", errID
	}
	if n.tells(id) {
		return "", errIDData
	}
	return id, nil
}

// exportedID is an id that a vault of ours has given out. It may be an alias, so
// only whole numbers count against it.
func (n namer) exportedID() (string, error) {
	if !namesItself(n.literal) {
		return "", errID
	}
	if tellsWhole(n.literal, n.scope.Data, n.private) {
		return "", errIDData
	}
	return n.literal, nil
}

// namesItself reports whether {{<id>}} is an expression for the token of that
// id. Ids of older releases that are not still work everywhere else.
func namesItself(id string) bool {
	return expression.ValidID(id) && strings.TrimSpace(id) == id && strings.Trim(id, "-") == id && !strings.HasPrefix(id, "token:")
}

// separators are what people put between the digits of a number.
var separators = strings.NewReplacer(" ", "", "-", "")

// tells reports whether an id gives protected values away. An alias may keep a
// part of a number, so of an alias only whole ones count.
func (n namer) tells(id string) bool {
	switch {
	case n.random:
		return tellsWhole(id, n.scope.Data, n.private)
	case isData(id, n.scope.Data, n.private):
		return true
	case n.numeric:
		return false
	}
	return looksLikeCardNumber(id) || sharesDigits(separators.Replace(id), n.scope.Data)
}

// tellsWhole reports whether an id, whoever made it, is the data or holds a
// whole card number of it.
func tellsWhole(id string, data jsonvalue.Value, private []string) bool {
	return isData(id, data, private) || luhn.HasCard(separators.Replace(id)) && holdsWholeNumber(separators.Replace(id), data)
}

// isData reports whether an id is the data, or one of its private members, be
// it with other separators.
func isData(id string, data jsonvalue.Value, private []string) bool {
	same := func(s string) bool { return s != "" && (s == id || separators.Replace(s) == separators.Replace(id)) }
	for _, name := range private {
		if v, ok := data.Get(name); ok && v.Matches(same) {
			return true
		}
	}
	return data.Matches(same)
}

// minShared is how many digits of the data an id may not repeat.
const minShared = 12

// holdsWholeNumber reports whether a card number that stands alone in the data
// stands in the text.
func holdsWholeNumber(text string, data jsonvalue.Value) bool {
	return anyDigits(data, func(run string) bool { return isCardNumber(run) && strings.Contains(text, run) })
}

// anyDigits reports whether is holds for some digits that stand together in a
// leaf of the data.
func anyDigits(data jsonvalue.Value, is func(run string) bool) bool {
	for leaf := range data.Leaves() {
		if leaf.Matches(func(text string) bool {
			for run := range strings.FieldsFuncSeq(separators.Replace(text), notDigit) {
				if is(run) {
					return true
				}
			}
			return false
		}) {
			return true
		}
	}
	return false
}

// sharesDigits reports whether 12 digits that stand together in the text stand
// together in the data too. It reads each character of the data once, however
// long both are.
func sharesDigits(text string, data jsonvalue.Value) bool {
	shared := make(map[string]bool)
	for run := range strings.FieldsFuncSeq(text, notDigit) {
		for from := 0; from+minShared <= len(run); from++ {
			shared[run[from:from+minShared]] = true
		}
	}
	if len(shared) == 0 {
		return false
	}
	return anyDigits(data, func(run string) bool {
		for from := 0; from+minShared <= len(run); from++ {
			if shared[run[from:from+minShared]] {
				return true
			}
		}
		return false
	})
}

func notDigit(r rune) bool { return r < '0' || r > '9' }

// asField puts the words of an expression's fault under a member's name. What
// is no fault of the caller's stays what it is.
func asField(path string, err error) error {
	if f := fault.Of(err); f.Kind() == fault.Invalid {
		var fields fault.Fields
		fields.AddCode(path, f.Code(), f.Detail())
		return fields.Err()
	}
	return err
}
