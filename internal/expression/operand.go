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
		if p.detokenizing {
			return operand{}, false, errTokenName
		}
		return operand{from: fromData, path: p.path()}, true, nil
	case "metadata":
		if p.detokenizing {
			return operand{}, false, errTokenName
		}
		p.metadata = true
		return operand{from: fromMetadata, path: p.path()}, true, nil
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

func (p *parser) bracket() (member, bool) {
	p.space()
	key, ok, err := p.operand()
	p.space()
	if err != nil || !ok || key.from != fromLiteral || !p.take(']') {
		return member{}, false
	}
	switch key.literal.Kind() {
	case jsonvalue.String:
		return member{name: key.literal.Reveal()}, true
	case jsonvalue.Number:
		i, err := strconv.Atoi(key.literal.Reveal())
		return member{index: i, indexed: true}, err == nil
	}
	return member{}, false
}
