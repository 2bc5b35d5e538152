package proxy

import (
	"bytes"
	"mime"
	"net/textproto"
	"slices"
	"strings"
)

// scanner looks for the beginning of an expression in a body that passes by,
// piece after piece, in constant memory.
type scanner interface{ found(piece []byte) bool }

func newScanner(kind media, params map[string]string) scanner {
	switch kind {
	case jsonMedia:
		return &braces{escape: '\\'}
	case formMedia:
		return &braces{escape: '%'}
	case multipartMedia:
		return newPartScanner(params["boundary"])
	case untypedMedia:
		return &textScanner{}
	default:
		return &braces{}
	}
}

// braces finds two braces in a row, also those written as \u007b or %7B.
type braces struct {
	escape byte // the character that begins an escape; 0 for none
	open   bool // the character before was a brace
	state  int  // inside an escape: how many of its characters are there
	value  int  // of its hexadecimal digits
}

func (b *braces) found(piece []byte) bool {
	if b.state == 0 && (b.escape == 0 || bytes.IndexByte(piece, b.escape) < 0) {
		if len(piece) == 0 {
			return false
		}
		hit := b.open && piece[0] == '{' || bytes.Contains(piece, []byte("{{"))
		b.open = piece[len(piece)-1] == '{'
		return hit
	}
	for _, c := range piece {
		if b.next(c) {
			return true
		}
	}
	return false
}

// next takes one character in.
func (b *braces) next(c byte) bool {
	digits := 2 // %7B
	if b.escape == '\\' {
		digits = 5 // \u007b
	}
	switch {
	case b.state == 0 && c == b.escape && c != 0:
		b.state, b.value = 1, 0
		return false
	case b.state == 0:
		return b.take(c)
	case b.state == 1 && b.escape == '\\':
		if c == 'u' {
			b.state++
			return false
		}
		b.state = 0
		return b.take(0) // \n, \\ and their like
	}
	digit := strings.IndexByte("0123456789abcdefABCDEF", c)
	if digit < 0 {
		b.state, b.open = 0, false // no escape at all
		return b.next(c)
	}
	if digit > 15 {
		digit -= 6
	}
	b.value = b.value<<4 | digit
	if b.state++; b.state <= digits {
		return false
	}
	b.state = 0
	if b.value == '{' {
		return b.take('{')
	}
	return b.take(0)
}

func (b *braces) take(c byte) bool {
	hit := b.open && c == '{'
	b.open = c == '{'
	return hit
}

// partScanner finds expressions in the text parts of a multipart body.
type partScanner struct {
	delimiter []byte // with the line end in front of it
	buffer    []byte // what was seen and not yet decided on, before a piece
	kept      []byte // and during one
	header    bool   // inside the headers of a part
	over      bool   // behind the last part
	scan      scanner
}

// maxPartHeader bounds the headers of one part.
const maxPartHeader = 16 << 10

func newPartScanner(boundary string) *partScanner {
	// The first delimiter has no line before it.
	return &partScanner{delimiter: []byte("\n--" + boundary), buffer: []byte("\n")}
}

func (p *partScanner) found(body []byte) bool {
	for piece := range slices.Chunk(body, 32<<10) {
		p.buffer = append(p.buffer, piece...)
		p.kept = p.buffer
		if p.over || p.step() {
			return !p.over
		}
		p.buffer = append(p.buffer[:0], p.kept...)
	}
	return false
}

// step goes on with what was kept.
func (p *partScanner) step() bool {
	for {
		if p.header {
			if bytes.HasPrefix(p.kept, []byte("--")) {
				p.over = true
				return true
			}
			end, size := headerEnd(p.kept)
			if end < 0 {
				return len(p.kept) >= maxPartHeader // nobody's headers: refuse rather than guess
			}
			kind, params := partMedia(p.kept[:end])
			p.header, p.scan = false, nil
			if kind != binaryMedia {
				p.scan = newScanner(kind, params)
			}
			// The line end before the next delimiter may be that of the headers.
			p.kept = p.kept[end+size-1:]
		}
		at := bytes.Index(p.kept, p.delimiter)
		if at < 0 {
			break
		}
		if p.scan != nil && p.scan.found(p.kept[:at]) {
			return true
		}
		p.kept, p.header, p.scan = p.kept[at+len(p.delimiter):], true, nil
	}
	if n := len(p.kept) - len(p.delimiter); n > 0 {
		if p.scan != nil && p.scan.found(p.kept[:n]) {
			return true
		}
		p.kept = p.kept[n:]
	}
	return false
}

// headerEnd finds the empty line after the headers of a part: where the line
// before it ends, and how far from there the content begins. It looks no
// further than headers may go.
func headerEnd(b []byte) (at, size int) {
	b = b[:min(len(b), maxPartHeader)]
	for i := 0; ; {
		end := bytes.IndexByte(b[i:], '\n')
		if end < 0 {
			return -1, 0
		}
		i += end + 1
		switch rest := b[i:]; {
		case bytes.HasPrefix(rest, []byte("\n")):
			return i - 1, 2
		case bytes.HasPrefix(rest, []byte("\r\n")):
			return i - 1, 3
		}
	}
}

// partMedia says how the part under these headers is looked into: as its type
// says, as text without one, and not at all when it is a file or encoded.
func partMedia(headers []byte) (media, map[string]string) {
	_, lines, _ := strings.Cut(string(headers), "\n") // behind the delimiter's own line
	h := make(map[string]string)
	for line := range strings.SplitSeq(lines, "\n") {
		name, value, ok := strings.Cut(line, ":")
		if !ok || line[0] == ' ' || line[0] == '\t' {
			continue
		}
		h[textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}
	encoding := strings.ToLower(h["Content-Transfer-Encoding"])
	_, disposition, err := mime.ParseMediaType(h["Content-Disposition"])
	_, isFile := disposition["filename"]
	if isFile || err != nil && h["Content-Disposition"] != "" || encoding == "base64" || encoding == "quoted-printable" {
		return binaryMedia, nil
	}
	if h["Content-Type"] == "" {
		return textMedia, nil
	}
	kind, params := mediaOf(h["Content-Type"])
	if kind == multipartMedia {
		kind = binaryMedia
	}
	return kind, params
}
