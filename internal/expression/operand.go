package expression

import (
	"strconv"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

type source uint8

const (
	fromLiteral source = iota
	fromData
	fromMetadata
	fromToken
)

// operand is a literal, a path into data or metadata, or a token.
type operand struct {
	from    source
	literal jsonvalue.Value
	path    []member
	token   Reference
}

// member is one step of a path: a name, or an index counted from the end when
// it is negative.
type member struct {
	name    string
	index   int
	indexed bool
}

// operand reads a literal or a path; false when neither stands here.
func (p *parser) operand() (operand, bool, error) {
	if p.at == len(p.text) {
		return operand{}, false, nil
	}
	switch c := p.text[p.at]; {
	case c == '\'' || c == '"':
		s, err := p.quoted()
		return operand{literal: jsonvalue.NewString(s)}, true, err
	case c >= '0' && c <= '9' || c == '-':
		v, ok := p.number()
		return operand{literal: v}, ok, nil
	}
	switch p.word(isName) {
	case "":
		return operand{}, false, nil
	case "nil", "null":
		return operand{}, true, nil
	case "true":
		return operand{literal: jsonvalue.NewBool(true)}, true, nil
	case "false":
		return operand{literal: jsonvalue.NewBool(false)}, true, nil
	case "data":
		if !p.detokenizing {
			p.data = true
			return operand{from: fromData, path: p.path()}, true, nil
		}
	case "metadata":
		if !p.detokenizing {
			p.metadata = true
			return operand{from: fromMetadata, path: p.path()}, true, nil
		}
	}
	if p.detokenizing {
		return operand{}, false, errTokenName
	}
	return operand{}, false, errName
}

func (p *parser) quoted() (string, error) {
	quote := p.text[p.at]
	end := strings.IndexByte(p.text[p.at+1:], quote)
	if end < 0 {
		return "", errUnclosed
	}
	s := p.text[p.at+1 : p.at+1+end]
	p.at += end + 2
	return s, nil
}

func (p *parser) number() (jsonvalue.Value, bool) {
	rest := p.text[p.at:]
	digits := func(from int) int {
		for from < len(rest) && rest[from] >= '0' && rest[from] <= '9' {
			from++
		}
		return from
	}
	start := 0
	if rest[0] == '-' {
		start = 1
	}
	end := digits(start)
	if end == start {
		return jsonvalue.Value{}, false
	}
	if end < len(rest) && rest[end] == '.' && digits(end+1) > end+1 {
		end = digits(end + 1)
	}
	v, err := numberOf(rest[:end])
	if err != nil {
		return jsonvalue.Value{}, false
	}
	p.at += end
	return v, true
}

func (p *parser) path() []member {
	var path []member
	for p.at < len(p.text) {
		before := p.at
		switch {
		case p.take('.'):
			name := p.word(isName)
			if name == "" {
				p.at = before
				return path
			}
			path = append(path, member{name: name})
		case p.take('['):
			m, ok := p.bracket()
			if !ok {
				p.at = before
				return path
			}
			path = append(path, m)
		default:
			return path
		}
		p.operations++
	}
	return path
}

// bracket reads what follows a [: a text or an integer, and the ].
func (p *parser) bracket() (member, bool) {
	p.space()
	if p.at == len(p.text) {
		return member{}, false
	}
	var m member
	if c := p.text[p.at]; c == '\'' || c == '"' {
		name, err := p.quoted()
		if err != nil {
			return member{}, false
		}
		m.name = name
	} else {
		n := len(p.text[p.at:]) - len(strings.TrimLeft(p.text[p.at:], "-0123456789"))
		i, err := strconv.Atoi(p.text[p.at : p.at+n])
		if err != nil {
			return member{}, false
		}
		m.index, m.indexed = i, true
		p.at += n
	}
	p.space()
	return m, p.take(']')
}
