package expression

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// expression is what stands between {{ and }}.
type expression struct {
	head      operand
	filters   []application
	tolerated bool
}

// withoutStringify leaves out a last stringify, which changes nothing where
// the string form is written anyway.
func (x *expression) withoutStringify() *expression {
	if n := len(x.filters); n > 0 && x.filters[n-1].filter.name == "stringify" {
		return &expression{head: x.head, filters: x.filters[:n-1], tolerated: x.tolerated}
	}
	return x
}

// application is one use of a filter.
type application struct {
	filter *filter
	args   []operand
}

// parser reads one text from left to right, each character a bounded number
// of times.
type parser struct {
	text          string
	at            int
	detokenizing  bool // heads are token ids, and tags are plain text
	operations    int  // in this template, or in this detokenization expression
	total         int
	alias         bool
	data          bool
	metadata      bool
	tolerated     bool
	trimFollowing bool // the last expression ended in -}}
}

func (p *parser) parts() ([]part, error) {
	if !utf8.ValidString(p.text) {
		return nil, errNotText
	}
	var parts []part
	for {
		rest := p.text[p.at:]
		open := strings.Index(rest, "{{")
		literal := rest
		if open >= 0 {
			literal = rest[:open]
		}
		if !p.detokenizing && strings.Contains(literal, "{%") {
			return nil, errTag
		}
		if p.trimFollowing {
			literal = strings.TrimLeftFunc(literal, unicode.IsSpace)
		}
		if open < 0 {
			if literal != "" {
				parts = append(parts, part{text: literal})
			}
			return parts, nil
		}
		p.at += open + len("{{")
		if p.trimsPreceding() {
			literal = strings.TrimRightFunc(literal, unicode.IsSpace)
		}
		if literal != "" {
			parts = append(parts, part{text: literal})
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		p.tolerated = p.tolerated || x.tolerated
		parts = append(parts, part{expr: x})
	}
}

// trimsPreceding takes the dash of {{-. Ids may begin with a dash, so there it
// counts only before a space.
func (p *parser) trimsPreceding() bool {
	rest := p.text[p.at:]
	if !strings.HasPrefix(rest, "-") || p.detokenizing && strings.TrimLeftFunc(rest[1:], unicode.IsSpace) == rest[1:] {
		return false
	}
	p.at++
	return true
}

func (p *parser) expression() (*expression, error) {
	if p.detokenizing {
		p.operations = 0
	}
	if err := p.count(); err != nil {
		return nil, err
	}
	x := &expression{}
	p.space()
	var err error
	if p.detokenizing {
		x.head, err = p.reference()
	} else {
		var ok bool
		if x.head, ok, err = p.operand(); err == nil && !ok {
			err = errNoValue
		}
	}
	if err != nil {
		return nil, err
	}
	for {
		p.space()
		switch {
		case p.at == len(p.text):
			return nil, errUnclosed
		case p.closes():
			return x, nil
		case p.take('|'):
			if err := p.filter(x); err != nil {
				return nil, err
			}
		default:
			x.tolerated = true
			if err := p.skip(); err != nil {
				return nil, err
			}
		}
	}
}

func (p *parser) filter(x *expression) error {
	if err := p.count(); err != nil {
		return err
	}
	p.space()
	name := p.word(func(r rune) bool { return r == '_' || r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) })
	if name == "" {
		x.tolerated = true // a stroke with no filter after it
		return nil
	}
	f := filterNamed(name)
	if f == nil {
		return fault.Unknown(fault.Invalid, "filter_unknown", name, filterNames())
	}
	use := application{filter: f}
	p.space()
	if p.take(':') {
		if err := p.arguments(x, &use); err != nil {
			return err
		}
	}
	if len(use.args) < f.required() {
		return errMissing
	}
	if n := len(f.params); len(use.args) > n {
		use.args = use.args[:n]
		x.tolerated = true
	}
	p.alias = p.alias || f.alias
	x.filters = append(x.filters, use)
	return nil
}

// arguments reads what stands between the colon and the next stroke. What is
// not an argument is left for the caller to pass over.
func (p *parser) arguments(x *expression, use *application) error {
	for {
		if err := p.count(); err != nil {
			return err
		}
		p.space()
		if p.named() {
			return nil
		}
		arg, ok, err := p.operand()
		if err != nil {
			return err
		}
		if !ok {
			x.tolerated = true
			return nil
		}
		use.args = append(use.args, arg)
		p.space()
		if !p.take(',') {
			return nil
		}
	}
}

// named reports whether a named argument follows, of which there are none in
// the language.
func (p *parser) named() bool {
	rest := strings.TrimLeftFunc(p.text[p.at:], isName)
	return len(rest) < len(p.text)-p.at && strings.HasPrefix(strings.TrimLeftFunc(rest, unicode.IsSpace), ":")
}

// skip passes over what is not part of the language, up to the next filter or
// the end. Quotes are minded where they close, so that '|' in one is no filter.
func (p *parser) skip() error {
	end := strings.Index(p.text[p.at:], "}}")
	if end < 0 {
		return errUnclosed
	}
	end += p.at
	for p.at < end && p.text[p.at] != '|' {
		c := p.text[p.at]
		if strings.HasPrefix(p.text[p.at:], "{{") || !p.detokenizing && strings.HasPrefix(p.text[p.at:], "{%") {
			return errUnclosed
		}
		p.at++
		if c == '\'' || c == '"' {
			if close := strings.IndexByte(p.text[p.at:end], c); close >= 0 {
				p.at += close + 1
			}
		}
	}
	return nil
}

// closes takes the end of an expression: }} or -}}.
func (p *parser) closes() bool {
	rest := p.text[p.at:]
	p.trimFollowing = strings.HasPrefix(rest, "-}}")
	if !p.trimFollowing && !strings.HasPrefix(rest, "}}") {
		return false
	}
	p.at += strings.Index(rest, "}}") + len("}}")
	return true
}

// word takes the run of characters that belong to it. A dash before }} is
// never part of one.
func (p *parser) word(belongs func(rune) bool) string {
	start := p.at
	for p.at < len(p.text) {
		r, size := utf8.DecodeRuneInString(p.text[p.at:])
		if !belongs(r) || r == '-' && strings.HasPrefix(p.text[p.at+1:], "}}") {
			break
		}
		p.at += size
	}
	return p.text[start:p.at]
}

func isName(r rune) bool {
	return r == '_' || r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

func (p *parser) space() {
	p.at = len(p.text) - len(strings.TrimLeftFunc(p.text[p.at:], unicode.IsSpace))
}

func (p *parser) take(c byte) bool {
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *parser) count() error {
	if p.operations++; p.operations > maxOperations {
		return errMany
	}
	if p.total++; p.total > MaxOperations {
		return errOperations
	}
	return nil
}
