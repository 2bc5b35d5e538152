package proxy

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

var errXMLValue = fault.New(fault.Invalid, "a token holds a character that XML cannot hold")

const (
	cdataStart = "<![CDATA["
	cdataEnd   = "]]>"
	// cdataSplit stands for cdataEnd inside a section: it ends the section
	// between the brackets and starts another.
	cdataSplit = "]]" + cdataEnd + cdataStart + ">"
)

// xml cuts an XML document. Values in CDATA sections stay as they are; all
// others are escaped, in tags, comments and declarations too. References such
// as &quot; are decoded inside expressions.
func (t *template) xml(body []byte) error {
	sections, ok := cdataSections(body)
	if !ok {
		// It is not certain where an expression ends, and so whether what
		// follows is in a section: everything is escaped.
		sections = nil
	}
	done := 0
	for _, s := range sections {
		if !bytes.Contains(body[s.from:s.to], []byte("{{")) {
			continue
		}
		if err := t.markup(body[done:s.from]); err != nil {
			return err
		}
		if err := t.evaluate(string(body[s.from:s.to]), expression.PlainText); err != nil {
			return err
		}
		t.pieces[len(t.pieces)-1].cdata = true
		done = s.to
	}
	return t.markup(body[done:])
}

// markup cuts what is outside of the CDATA sections that hold expressions.
func (t *template) markup(text []byte) error {
	if !bytes.Contains(text, []byte("{{")) {
		t.keep(text)
		return nil
	}
	return t.evaluate(decodeExpressions(string(text)), expression.XMLText)
}

// decodeExpressions decodes the references of XML inside expressions, from {{
// to the next }}. References to braces stay, so that no expression starts or
// ends where the document does not show it.
func decodeExpressions(text string) string {
	var out strings.Builder
	for {
		start := strings.Index(text, "{{")
		if start < 0 {
			break
		}
		length := strings.Index(text[start:], "}}")
		if length < 0 {
			break
		}
		end := start + length
		out.WriteString(text[:start])
		decodeReferences(&out, text[start:end])
		out.WriteString("}}")
		text = text[end+len("}}"):]
	}
	out.WriteString(text)
	return out.String()
}

// maxReference is the length of the longest reference that is decoded:
// &#x10FFFF; with some zeros.
const maxReference = 16

// decodeReferences writes a text with the references that XML itself defines
// decoded.
func decodeReferences(out *strings.Builder, text string) {
	for {
		at := strings.IndexByte(text, '&')
		if at < 0 {
			out.WriteString(text)
			return
		}
		out.WriteString(text[:at])
		text = text[at:]
		size := strings.IndexByte(text[:min(len(text), maxReference)], ';') + 1
		decoded := reference(text[:size])
		if decoded == "" {
			size, decoded = 1, "&"
		}
		out.WriteString(decoded)
		text = text[size:]
	}
}

// predefined are the entities that every document has.
var predefined = map[string]string{"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": `"`, "&apos;": "'"}

// reference returns the character of a reference, or "" if it is none that is
// decoded here.
func reference(ref string) string {
	number, isNumber := strings.CutPrefix(strings.TrimSuffix(ref, ";"), "&#")
	if !isNumber {
		return predefined[ref]
	}
	base := 10
	if digits, isHex := strings.CutPrefix(number, "x"); isHex {
		number, base = digits, 16
	}
	code, err := strconv.ParseUint(number, base, 21)
	if r := rune(code); err == nil && utf8.ValidRune(r) && isXML(r) && r != '{' && r != '}' {
		return string(r)
	}
	return ""
}

// isXML reports whether XML can hold a character.
func isXML(r rune) bool {
	return r >= ' ' && r != 0xfffe && r != 0xffff || r == '\t' || r == '\n' || r == '\r'
}

// section is the contents of a CDATA section in a document.
type section struct{ from, to int }

// cdataSections finds the CDATA sections of a document as a parser will find
// them once its expressions are replaced by values: what looks like one inside
// a tag, a comment, a processing instruction, the document type or an
// expression is none. It returns false where quotes leave open which }} ends an
// expression.
func cdataSections(body []byte) (list []section, ok bool) {
	d := &document{body: body, ok: true}
	for d.next("<", "{{") {
		switch rest := body[d.at:]; {
		case rest[0] == '{':
			d.expression()
		case bytes.HasPrefix(rest, []byte(cdataStart)):
			from := d.at + len(cdataStart)
			if d.skip(len(cdataStart)); d.until(cdataEnd) {
				list = append(list, section{from, d.at - len(cdataEnd)})
			}
		case d.comment():
		case bytes.HasPrefix(rest, []byte("<!")):
			d.declaration()
		default:
			d.tag()
		}
	}
	return list, d.ok
}

// document is a position in a document. Each method moves it forward, and to
// the end when what it looks for is not there.
type document struct {
	body []byte
	at   int
	ok   bool
}

func (d *document) skip(n int) { d.at = min(d.at+n, len(d.body)) }

// next goes to the first of some texts that begin with different characters.
func (d *document) next(texts ...string) bool {
	var first [8]byte
	firsts := first[:0]
	for _, text := range texts {
		firsts = append(firsts, text[0])
	}
	for d.at < len(d.body) {
		n := bytes.IndexAny(d.body[d.at:], string(firsts))
		if n < 0 {
			break
		}
		d.at += n
		for _, text := range texts {
			if bytes.HasPrefix(d.body[d.at:], []byte(text)) {
				return true
			}
		}
		d.at++
	}
	d.at = len(d.body)
	return false
}

// until goes past the next end that is not inside an expression.
func (d *document) until(end string) bool {
	for d.next(end, "{{") {
		if d.body[d.at] != '{' {
			d.skip(len(end))
			return true
		}
		d.expression()
	}
	return false
}

// expression goes past an expression.
func (d *document) expression() {
	length := bytes.Index(d.body[d.at:], []byte("}}"))
	if length < 0 {
		d.at = len(d.body) // it will be refused
		return
	}
	var text strings.Builder
	decodeReferences(&text, string(d.body[d.at:d.at+length]))
	if isQuoteOpen(text.String()) || isQuoteOpen(string(d.body[d.at:d.at+length])) {
		d.ok = false
	}
	d.skip(length + len("}}"))
}

// isQuoteOpen reports whether a text ends inside quotes.
func isQuoteOpen(text string) bool {
	var open byte
	for i := range len(text) {
		switch c := text[i]; {
		case open == 0 && (c == '\'' || c == '"'):
			open = c
		case c == open:
			open = 0
		}
	}
	return open != 0
}

// comment goes past a comment or a processing instruction, if there is one.
func (d *document) comment() bool {
	switch rest := d.body[d.at:]; {
	case bytes.HasPrefix(rest, []byte("<!--")):
		d.skip(len("<!--"))
		d.until("-->")
	case bytes.HasPrefix(rest, []byte("<?")):
		d.skip(len("<?"))
		d.until("?>")
	default:
		return false
	}
	return true
}

// tag goes past a tag.
func (d *document) tag() {
	for d.next(">", `"`, "'", "{{") {
		switch c := d.body[d.at]; c {
		case '{':
			d.expression()
		case '>':
			d.skip(1)
			return
		default:
			d.skip(1)
			d.until(string(c))
		}
	}
}

// declaration goes past a document type with all that is declared in it.
func (d *document) declaration() {
	d.skip(len("<!"))
	depth := 0
	for d.next("<", ">", "[", "]", `"`, "'", "{{") {
		switch c := d.body[d.at]; {
		case c == '{':
			d.expression()
		case c == '"' || c == '\'':
			d.skip(1)
			d.until(string(c))
		case c == '<' && d.comment():
		default:
			switch c {
			case '[':
				depth++
			case ']':
				depth--
			}
			d.skip(1)
			if c == '>' && depth <= 0 {
				return
			}
		}
	}
}

// cdataSize returns how long the text of a CDATA section is once the section is
// split. The text is that of the document and of values: together they may hold
// an end that neither of them holds.
func cdataSize(text string) (int, error) {
	if strings.ContainsFunc(text, func(r rune) bool { return !isXML(r) }) {
		return 0, errXMLValue
	}
	return len(text) + strings.Count(text, cdataEnd)*(len(cdataSplit)-len(cdataEnd)), nil
}

// splitCDATA splits a section where its text would end it.
func splitCDATA(text string) string { return strings.ReplaceAll(text, cdataEnd, cdataSplit) }
