package proxy

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"unicode"
	"unicode/utf8"
)

// A body without a content type is text when it is valid UTF-8 without control
// characters other than tab, carriage return and line feed.

var errNotText = errors.New("proxy: the body is not text")

// isText reports whether a whole body is text.
func isText(body []byte) bool {
	var c textCheck
	c.take(body)
	return c.whole()
}

// textCheck decides whether a body that comes in pieces is text.
type textCheck struct {
	binary  bool
	partial []byte // the beginning of a character that the last piece cut
}

// take checks one more piece and returns how many of its bytes come before the
// first one that is not text.
func (c *textCheck) take(piece []byte) int {
	if c.binary {
		return 0
	}
	at := 0
	for len(c.partial) > 0 && at < len(piece) {
		c.partial = append(c.partial, piece[at])
		at++
		if utf8.FullRune(c.partial) {
			if r, size := utf8.DecodeRune(c.partial); !isTextRune(r, size) || size != len(c.partial) {
				c.binary = true
				return 0
			}
			c.partial = c.partial[:0]
		}
	}
	for at < len(piece) {
		rest := piece[at:]
		if rest[0] < utf8.RuneSelf {
			if !isTextRune(rune(rest[0]), 1) {
				c.binary = true
				return at
			}
			at++
			continue
		}
		if !utf8.FullRune(rest) {
			c.partial = append(c.partial[:0], rest...)
			return len(piece)
		}
		r, size := utf8.DecodeRune(rest)
		if !isTextRune(r, size) {
			c.binary = true
			return at
		}
		at += size
	}
	return at
}

// whole reports whether all that was taken is text, and its end cuts no character.
func (c *textCheck) whole() bool { return !c.binary && len(c.partial) == 0 }

func isTextRune(r rune, size int) bool {
	return (r != utf8.RuneError || size > 1) && (!unicode.IsControl(r) || r == '\t' || r == '\r' || r == '\n')
}

// textScanner finds expressions in a body for as long as the body is text.
type textScanner struct {
	check textCheck
	scan  braces
}

func (s *textScanner) found(piece []byte) bool {
	return s.scan.found(piece[:s.check.take(piece)])
}

// textWriter buffers a body. It fails with errNotText after the first piece
// that is not text, which is in the buffer too.
type textWriter struct {
	buffer *bytes.Buffer
	check  textCheck
}

func (w *textWriter) Write(p []byte) (int, error) {
	n, _ := w.buffer.Write(p) // does not fail
	if w.check.take(p); w.check.binary {
		return n, errNotText
	}
	return n, nil
}

// maybeGzippedText reports whether a compressed body without a content type, or
// the beginning of one, may be text: what of it fits into the limit is.
func maybeGzippedText(body []byte, limit int) bool {
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return false
	}
	plain, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	var c textCheck
	c.take(plain)
	// A body beyond the limit is cut off here, in its compressed form or not.
	return !c.binary && (err == nil || errors.Is(err, io.ErrUnexpectedEOF))
}
