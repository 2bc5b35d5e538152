package token

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/date"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// The bounds on a query.
const (
	maxQuery       = 4096 // bytes
	maxQueryParts  = 100
	maxQueryNested = 32
	// maxProtected bounds the comparisons with data and fingerprint: each one
	// is a guess at protected data.
	maxProtected = 20
)

// query is a parsed query: a comparison, or queries joined by a word.
type query struct {
	word string // AND, OR, NOT; "" for a comparison
	of   []*query
	comparison
}

// comparison is one field with what it is compared to.
type comparison struct {
	field string
	value string
	below bool // of a container: it, and all that is under it
	// of a time: from and until bound it, where they are not zero
	from, until store.Time // from is included, until is not
}

// queryError says where a query stops making sense. The number is a position
// and nothing of the query.
func queryError(at int, expected string) error {
	var f fault.Fields
	f.Add("query", "is not understood at character "+strconv.Itoa(at)+expected)
	return f.Err()
}

var errManyGuesses = fault.Field("query", "must have at most 20 comparisons with data and fingerprint")

// parseQuery reads the query language of searches:
//
//	type:card AND (metadata.tier:gold OR NOT container:"/pci/*")
//	  AND created_at:[2030-01-01 TO *]
func parseQuery(text string) (*query, error) {
	p := &queryParser{text: text}
	if len(text) > maxQuery || !utf8.ValidString(text) {
		return nil, queryError(1, "")
	}
	q, ok := p.either(0)
	if p.protected > maxProtected {
		return nil, errManyGuesses
	}
	if p.space(); ok && p.at == len(p.text) {
		return q, nil
	}
	expected := ""
	if p.noDate {
		expected = ": this " + date.Wanted
	}
	return nil, queryError(1+utf8.RuneCountInString(text[:p.at]), expected)
}

// queryParser reads from left to right. When a method returns false, at is
// where it gave up.
type queryParser struct {
	text  string
	at    int
	parts int
	// protected counts the comparisons with data and fingerprint.
	protected int
	// noDate is whether it gave up on a value that should be a date.
	noDate bool
}

func (p *queryParser) space() {
	p.at += len(p.text[p.at:]) - len(strings.TrimLeft(p.text[p.at:], " \t\r\n"))
}

// take takes a piece of punctuation.
func (p *queryParser) take(s string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.at:], s) {
		return false
	}
	p.at += len(s)
	return true
}

// word takes AND, OR, NOT or TO, which end where a field or value could not go on.
func (p *queryParser) word(w string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.text[p.at:], w)
	if !ok || rest != "" && !strings.ContainsRune(" \t\r\n(\"", rune(rest[0])) {
		return false
	}
	p.at += len(w)
	return true
}

func (p *queryParser) either(depth int) (*query, bool) { return p.joined("OR", depth, p.both) }
func (p *queryParser) both(depth int) (*query, bool)   { return p.joined("AND", depth, p.one) }

func (p *queryParser) joined(word string, depth int, part func(int) (*query, bool)) (*query, bool) {
	first, ok := part(depth)
	if !ok {
		return nil, false
	}
	q := &query{word: word, of: []*query{first}}
	for p.word(word) {
		next, ok := part(depth)
		if !ok {
			return nil, false
		}
		q.of = append(q.of, next)
	}
	if len(q.of) == 1 {
		return first, true
	}
	return q, true
}

func (p *queryParser) one(depth int) (*query, bool) {
	if p.parts++; p.parts > maxQueryParts || depth > maxQueryNested {
		return nil, false
	}
	if p.word("NOT") {
		q, ok := p.one(depth + 1)
		return &query{word: "NOT", of: []*query{q}}, ok
	}
	if p.take("(") {
		q, ok := p.either(depth + 1)
		return q, ok && p.take(")")
	}
	return p.compare()
}

// compare reads field:value.
func (p *queryParser) compare() (*query, bool) {
	p.space()
	begin := p.at
	length := strings.IndexFunc(p.text[p.at:], func(r rune) bool {
		return !(r == '_' || r == '.' || r == '-' || r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)))
	})
	if length <= 0 || p.text[p.at+length] != ':' {
		return nil, false
	}
	q := &query{}
	q.field = p.text[p.at : p.at+length]
	p.at += length + 1
	if q.field == "fingerprint" || q.field == "data" {
		p.protected++
	}
	value := p.at
	var ok bool
	switch {
	case q.field == "created_at" || q.field == "modified_at":
		ok = p.times(q)
	case q.field == "container":
		ok = p.container(q)
	case q.field == "id", q.field == "type", q.field == "fingerprint", q.field == "data", q.field == "created_by", q.field == "modified_by",
		strings.HasPrefix(q.field, "metadata.") && isMetadataKey(strings.TrimPrefix(q.field, "metadata.")):
		var quoted bool
		q.value, quoted, ok = p.value()
		if ok && !quoted && strings.Contains(q.value, "*") {
			p.at, ok = value, false
		}
	default:
		p.at = begin
	}
	return q, ok
}

// value reads a quoted phrase, in which \ stands before " and \, or a bare word.
func (p *queryParser) value() (value string, quoted, ok bool) {
	if !strings.HasPrefix(p.text[p.at:], `"`) {
		n := strings.IndexFunc(p.text[p.at:], func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`()[]{}"`, r) })
		if n < 0 {
			n = len(p.text) - p.at
		}
		value = p.text[p.at : p.at+n]
		p.at += n
		return value, false, value != ""
	}
	var b strings.Builder
	for i := p.at + 1; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '"':
			p.at = i + 1
			return b.String(), true, true
		case c == '\\' && i+1 < len(p.text) && (p.text[i+1] == '"' || p.text[i+1] == '\\'):
			i++
			b.WriteByte(p.text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", true, false // it is not closed
}

func (p *queryParser) container(q *query) bool {
	begin := p.at
	value, _, ok := p.value()
	if !ok {
		return false
	}
	path, below := strings.CutSuffix(value, "*")
	q.below = below
	if q.value, ok = access.NormalizeContainer(path); !ok {
		p.at = begin
	}
	return ok
}

// times reads one time, or a range of two: [ and ] include the bound, { and }
// do not. A day stands for all of it.
func (p *queryParser) times(q *query) bool {
	rest := p.text[p.at:]
	if rest == "" {
		return false
	}
	if rest[0] != '[' && rest[0] != '{' {
		from, until, open, ok := p.time()
		q.from, q.until = from, until
		return ok && !open
	}
	p.at++
	p.space()
	from, fromEnd, openFrom, ok := p.time()
	if !ok || !p.word("TO") {
		return false
	}
	p.space()
	until, untilEnd, openUntil, ok := p.time()
	if !ok {
		return false
	}
	if q.from = from; rest[0] == '{' {
		q.from = fromEnd
	}
	switch {
	case p.take("]"):
		q.until = untilEnd
	case p.take("}"):
		q.until = until
	default:
		return false
	}
	if openFrom {
		q.from = 0
	}
	if openUntil {
		q.until = 0
	}
	return true
}

// time reads a time, quoted or not, or * for none; from is included, until is not.
func (p *queryParser) time() (from, until store.Time, open, ok bool) {
	begin := p.at
	value, _, ok := p.value()
	if !ok {
		return 0, 0, false, false
	}
	if value == "*" {
		return 0, 0, true, true
	}
	d, ok := date.Parse(value)
	if !ok {
		p.at, p.noDate = begin, true
		return 0, 0, false, false
	}
	lasts := time.Microsecond
	if d.Day {
		lasts = 24 * time.Hour
	}
	from = store.At(d.Time)
	return from, from + store.Time(lasts.Microseconds()), false, true
}
