package expression

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// pathParser reads a path; text is what is left of it.
type pathParser struct {
	text  string
	depth int
}

func (p *pathParser) take(prefix string) bool {
	rest, ok := strings.CutPrefix(p.text, prefix)
	p.text = rest
	return ok
}

func (p *pathParser) space() { p.text = strings.TrimLeft(p.text, " \t") }

func (p *pathParser) segments() ([]segment, error) {
	var segments []segment
	for {
		var seg segment
		var err error
		switch {
		case p.take(".."):
			if strings.HasPrefix(p.text, "[") {
				p.take("[")
				seg, err = p.bracket()
			} else {
				seg, err = p.dotted()
			}
			seg.descends = true
		case p.take("."):
			seg, err = p.dotted()
		case p.take("["):
			seg, err = p.bracket()
		default:
			return segments, nil
		}
		if err != nil {
			return nil, err
		}
		if segments = append(segments, seg); len(segments) > 64 {
			return nil, errPath
		}
	}
}

func (p *pathParser) dotted() (segment, error) {
	if p.take("*") {
		return selectWhere(always), nil
	}
	n := 0
	for n < len(p.text) {
		r, size := utf8.DecodeRuneInString(p.text[n:])
		if !isName(r) {
			break
		}
		n += size
	}
	name := p.text[:n]
	p.text = p.text[n:]
	if name == "" {
		return segment{}, errPath
	}
	return selectName(name), nil
}

// bracket reads what follows a [.
func (p *pathParser) bracket() (segment, error) {
	p.space()
	var seg segment
	switch {
	case p.take("*"):
		seg = selectWhere(always)
	case p.take("?"):
		holds, err := p.or()
		if err != nil {
			return segment{}, err
		}
		seg = selectWhere(holds)
	default:
		if name, ok := p.quoted(); ok {
			seg = selectName(name)
			break
		}
		from := p.integer()
		p.space()
		if p.take(":") {
			p.space()
			seg = selectSlice(from, p.integer())
		} else if from != nil {
			seg = selectIndex(*from)
		} else {
			return segment{}, errPath
		}
	}
	if p.space(); !p.take("]") {
		return segment{}, errPath
	}
	return seg, nil
}

// quoted reads a string in either quotes, with a backslash before a quote or a
// backslash that belongs to it.
func (p *pathParser) quoted() (string, bool) {
	if p.text == "" || p.text[0] != '\'' && p.text[0] != '"' {
		return "", false
	}
	var s strings.Builder
	for i := 1; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == p.text[0]:
			p.text = p.text[i+1:]
			return s.String(), true
		case c == '\\' && i+1 < len(p.text):
			i++
			s.WriteByte(p.text[i])
		default:
			s.WriteByte(c)
		}
	}
	return "", false
}

func (p *pathParser) integer() *int {
	n := 0
	for n < len(p.text) && (p.text[n] >= '0' && p.text[n] <= '9' || n == 0 && p.text[n] == '-') {
		n++
	}
	i, err := strconv.Atoi(p.text[:n])
	if err != nil {
		return nil
	}
	p.text = p.text[n:]
	return &i
}

func (p *pathParser) or() (condition, error) { return p.joined("||", p.and, true) }

func (p *pathParser) and() (condition, error) { return p.joined("&&", p.unary, false) }

// joined reads conditions with an operator between them; the first that is
// decisive decides.
func (p *pathParser) joined(operator string, next func() (condition, error), decisive bool) (condition, error) {
	var all []condition
	for {
		c, err := next()
		if err != nil {
			return nil, err
		}
		all = append(all, c)
		if p.space(); !p.take(operator) {
			break
		}
	}
	return func(s *search, v jsonvalue.Value) (bool, error) {
		for _, c := range all {
			if ok, err := c(s, v); err != nil || ok == decisive {
				return ok, err
			}
		}
		return !decisive, nil
	}, nil
}

func (p *pathParser) unary() (condition, error) {
	if p.depth++; p.depth > 16 {
		return nil, errPath
	}
	defer func() { p.depth-- }()
	p.space()
	switch {
	case p.take("!"):
		c, err := p.unary()
		return func(s *search, v jsonvalue.Value) (bool, error) {
			ok, err := c(s, v)
			return !ok, err
		}, err
	case p.take("("):
		c, err := p.or()
		if p.space(); err == nil && !p.take(")") {
			err = errPath
		}
		return c, err
	}
	return p.comparison()
}

// term gives the value of one side of a comparison, false when there is none.
type term func(s *search, v jsonvalue.Value) (jsonvalue.Value, bool, error)

func (p *pathParser) comparison() (condition, error) {
	left, err := p.term()
	if err != nil {
		return nil, err
	}
	p.space()
	for _, op := range []string{"==", "!=", "<=", ">=", "<", ">"} {
		if !p.take(op) {
			continue
		}
		p.space()
		right, err := p.term()
		if err != nil {
			return nil, err
		}
		return func(s *search, v jsonvalue.Value) (bool, error) {
			a, inA, err := left(s, v)
			if err != nil {
				return false, err
			}
			b, inB, err := right(s, v)
			if err != nil {
				return false, err
			}
			if err := comparing(s.budget, a, b); err != nil {
				return false, err
			}
			if !inA || !inB {
				return (op == "!=") != (inA == inB), nil
			}
			return compares(a, op, b), nil
		}, nil
	}
	return func(s *search, v jsonvalue.Value) (bool, error) {
		_, ok, err := left(s, v)
		return ok, err
	}, nil
}

// term reads a literal, or a path from the child (@) or from the value ($).
func (p *pathParser) term() (term, error) {
	fromRoot := strings.HasPrefix(p.text, "$")
	if p.take("@") || p.take("$") {
		segments, err := p.segments()
		if err != nil {
			return nil, err
		}
		return func(s *search, v jsonvalue.Value) (jsonvalue.Value, bool, error) {
			if fromRoot {
				v = s.root
			}
			found, err := s.run([]jsonvalue.Value{v}, segments)
			if err != nil || len(found) == 0 {
				return jsonvalue.Value{}, false, err
			}
			return found[0], true, nil
		}, nil
	}
	literal, ok := p.literal()
	if !ok {
		return nil, errPath
	}
	return func(*search, jsonvalue.Value) (jsonvalue.Value, bool, error) { return literal, true, nil }, nil
}

func (p *pathParser) literal() (jsonvalue.Value, bool) {
	if s, ok := p.quoted(); ok {
		return jsonvalue.NewString(s), true
	}
	for word, v := range map[string]jsonvalue.Value{"true": jsonvalue.NewBool(true), "false": jsonvalue.NewBool(false), "null": {}} {
		if p.take(word) {
			return v, true
		}
	}
	n := 0
	for n < len(p.text) && strings.IndexByte("0123456789+-.eE", p.text[n]) >= 0 {
		n++
	}
	v, err := jsonvalue.NewNumber(p.text[:n])
	if err != nil {
		return jsonvalue.Value{}, false
	}
	p.text = p.text[n:]
	return v, true
}
