// Package canary searches bytes for values that were planted on purpose.
//
// It promises to find a planted value as it is, in either case of letters,
// reversed, in base64 and hexadecimal wherever the encoding began, in UTF-16,
// as its plain digest, and all of these inside gzip. It never says what it
// found: a finding names the value by its number.
package canary

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf16"
)

// shortest is the least length of a planted value. Less would be found by chance.
const shortest = 8

// Finding is a planted value that was found.
type Finding struct {
	Value  int    // its number
	Form   string // how it was written
	Offset int    // where, in the outermost bytes
}

func (f Finding) String() string {
	return fmt.Sprintf("value %d as %s at byte %d", f.Value, f.Form, f.Offset)
}

// Scanner searches for values. It is safe for concurrent use.
type Scanner struct {
	// heads finds patterns by their first eight bytes, and seen leaves most
	// places aside before that.
	heads map[uint64][]pattern
	seen  [1 << 16]bool // by the first two bytes
}

type pattern struct {
	value int
	form  string
	bytes []byte
}

// New makes a scanner for some values, which must have eight bytes or more.
func New(values ...string) (*Scanner, error) {
	s := &Scanner{heads: make(map[uint64][]pattern)}
	for i, v := range values {
		if len(v) < shortest {
			return nil, fmt.Errorf("canary: value %d has fewer than %d bytes", i, shortest)
		}
		for _, f := range forms(v) {
			head := binary.LittleEndian.Uint64(f.bytes)
			f.value = i
			s.heads[head] = append(s.heads[head], f)
			s.seen[uint16(head)] = true
		}
	}
	return s, nil
}

// forms are the ways in which a value may have been written.
func forms(v string) (list []pattern) {
	add := func(form string, b []byte) {
		if !slices.ContainsFunc(list, func(p pattern) bool { return bytes.Equal(p.bytes, b) }) {
			list = append(list, pattern{form: form, bytes: b})
		}
	}
	encoded := func(form string, b []byte) {
		add(form, b)
		add(form+" in hexadecimal", []byte(hex.EncodeToString(b)))
		add(form+" in capital hexadecimal", []byte(strings.ToUpper(hex.EncodeToString(b))))
		for offset := range 3 {
			add(fmt.Sprintf("%s in base64 from byte %d", form, offset), inside(base64.RawStdEncoding, b, offset))
			add(fmt.Sprintf("%s in base64 for URLs from byte %d", form, offset), inside(base64.RawURLEncoding, b, offset))
		}
	}
	plain := []byte(v)
	encoded("itself", plain)
	add("itself in small letters", []byte(strings.ToLower(v)))
	add("itself in capital letters", []byte(strings.ToUpper(v)))
	backwards := slices.Clone(plain)
	slices.Reverse(backwards)
	add("itself reversed", backwards)
	var little, big []byte
	for _, unit := range utf16.Encode([]rune(v)) {
		little, big = binary.LittleEndian.AppendUint16(little, unit), binary.BigEndian.AppendUint16(big, unit)
	}
	add("UTF-16, low byte first", little)
	add("UTF-16, high byte first", big)
	// A digest without a key is as good as a number that has few digits.
	sum256, sum1, sum5 := sha256.Sum256(plain), sha1.Sum(plain), md5.Sum(plain)
	encoded("SHA-256", sum256[:])
	encoded("SHA-1", sum1[:])
	encoded("MD5", sum5[:])
	return list
}

// inside returns the characters that hold nothing but b when so many other
// bytes stand before it.
func inside(e *base64.Encoding, b []byte, offset int) []byte {
	text := e.EncodeToString(append(make([]byte, offset), b...))
	first, end := (8*offset+5)/6, 8*(offset+len(b))/6
	return []byte(text[first:end])
}

// deepest bounds gzip inside gzip, and expanded what one member may come to.
const (
	deepest  = 3
	expanded = 64 << 20
)

var gzipMagic = []byte{0x1f, 0x8b, 0x08}

// Search returns every planted value in b.
func (s *Scanner) Search(b []byte) []Finding { return s.search(b, 0) }

func (s *Scanner) search(b []byte, depth int) (found []Finding) {
	for i := 0; i+shortest <= len(b); i++ {
		if b[i] == gzipMagic[0] && depth < deepest && bytes.HasPrefix(b[i:], gzipMagic) {
			for _, f := range s.search(unzip(b[i:]), depth+1) {
				found = append(found, Finding{f.Value, f.Form + ", inside gzip", i})
			}
		}
		if !s.seen[binary.LittleEndian.Uint16(b[i:])] {
			continue
		}
		for _, p := range s.heads[binary.LittleEndian.Uint64(b[i:])] {
			if bytes.HasPrefix(b[i:], p.bytes) {
				found = append(found, Finding{p.value, p.form, i})
			}
		}
	}
	return found
}

// unzip returns as much as can be read of a gzip member: of one that is cut
// short, what was there.
func unzip(b []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil
	}
	r.Multistream(false)
	out, _ := io.ReadAll(io.LimitReader(r, expanded))
	return out
}
