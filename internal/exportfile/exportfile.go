// Package exportfile has the form of an export of tokens: lines of JSON, in
// segments that are signed one by one, so that each can be verified and imported
// before the next is read.
//
// It promises that a line which was changed, removed, added or moved is found,
// and so is a file that was cut off. It encrypts nothing: callers write into,
// and read from, an encrypted stream. It never repeats a line in an error.
package exportfile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
)

// Format names the form and its version.
const Format = "tokenkeep token export 1"

// The kinds of lines, in the order in which they first come.
const (
	KindExport  = "export"  // a Header
	KindToken   = "token"   // a request for a token
	KindSegment = "segment" // a Segment; signs the tokens before it
	KindEnd     = "end"     // an End; without it the file was cut off
)

// Bounds on a segment.
const (
	MaxTokens = 500
	MaxBytes  = 1 << 20 // reached by the last token of a segment at the latest
)

// The labels keep what is signed here apart from what else the key signs.
const (
	linkLabel    = "tokenkeep token export link 1"
	segmentLabel = "tokenkeep token export segment 1"
	endLabel     = "tokenkeep token export end 1"
)

// Header is the first line.
type Header struct {
	Kind      string    `json:"kind"`
	Format    string    `json:"format"`
	ExportID  string    `json:"export_id"`
	TenantID  string    `json:"tenant_id"`
	Recipient string    `json:"recipient"`
	Container string    `json:"container,omitempty"`
	Types     []string  `json:"types,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	PublicKey string    `json:"public_key"` // that verifies the file, in PEM
}

// Segment is the line after the tokens of a segment.
type Segment struct {
	Kind      string `json:"kind"`
	Number    int64  `json:"number"` // from 1
	Tokens    int64  `json:"tokens"`
	Hash      string `json:"hash"`     // SHA-256 of their lines, with the line ends
	Previous  string `json:"previous"` // what chains it to all before it
	Signature []byte `json:"signature"`
}

// End is the last line.
type End struct {
	Kind      string `json:"kind"`
	Segments  int64  `json:"segments"`
	Tokens    int64  `json:"tokens"`
	Hash      string `json:"hash"` // chains all segments
	KeyID     string `json:"key_id"`
	Signature []byte `json:"signature"`
}

// KeyID names a public key: the SHA-256 of its PEM.
func KeyID(publicKey string) string { return hexOf([]byte(publicKey)) }

func hexOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// bind joins parts so that no two lists of parts are the same bytes.
func bind(label string, parts ...string) []byte {
	var b []byte
	for _, p := range append([]string{label}, parts...) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return b
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func (s Segment) message(h Header) []byte {
	return bind(segmentLabel, h.TenantID, h.ExportID, h.PublicKey, decimal(s.Number), decimal(s.Tokens), s.Hash, s.Previous)
}

// link chains a segment to those before it.
func (s Segment) link() string {
	return hexOf(bind(linkLabel, s.Previous, decimal(s.Number), decimal(s.Tokens), s.Hash))
}

func (e End) message(h Header) []byte {
	return bind(endLabel, h.TenantID, h.ExportID, h.PublicKey, decimal(e.Segments), decimal(e.Tokens), e.Hash)
}

// Writer writes an export.
type Writer struct {
	out    io.Writer
	header Header
	sign   func(message []byte) ([]byte, error)
	link   string
	end    End
}

// NewWriter begins an export with its header.
func NewWriter(out io.Writer, h Header, sign func(message []byte) ([]byte, error)) (*Writer, error) {
	h.Kind, h.Format = KindExport, Format
	w := &Writer{out: out, header: h, sign: sign, end: End{Kind: KindEnd, KeyID: KeyID(h.PublicKey)}}
	line, err := w.write(h)
	w.link = hexOf(line)
	return w, err
}

// WriteSegment writes lines of tokens, each with its line end, and signs them.
func (w *Writer) WriteSegment(lines []byte, tokens int64) (err error) {
	s := Segment{Kind: KindSegment, Number: w.end.Segments + 1, Tokens: tokens, Hash: hexOf(lines), Previous: w.link}
	if s.Signature, err = w.sign(s.message(w.header)); err != nil {
		return err
	}
	if _, err := w.out.Write(lines); err != nil {
		return err
	}
	w.link = s.link()
	w.end.Segments, w.end.Tokens = s.Number, w.end.Tokens+tokens
	_, err = w.write(s)
	return err
}

// Close writes the end, and returns it.
func (w *Writer) Close() (_ End, err error) {
	w.end.Hash = w.link
	if w.end.Signature, err = w.sign(w.end.message(w.header)); err != nil {
		return End{}, err
	}
	_, err = w.write(w.end)
	return w.end, err
}

func (w *Writer) write(v any) ([]byte, error) {
	line, err := json.Marshal(v)
	if err != nil {
		return nil, errors.New("exportfile: encode a line")
	}
	line = append(line, '\n')
	_, err = w.out.Write(line)
	return line, err
}

// What is wrong with a file.
var (
	ErrNotExport = errors.New("the file is not an export of tokens")
	ErrChanged   = errors.New("the export was changed after it was signed")
	ErrCutOff    = errors.New("the export was cut off")
)

// KindOf returns the kind of a line; "" for a line that has none.
func KindOf(line []byte) string {
	var v struct {
		Kind string `json:"kind"`
	}
	if json.Unmarshal(line, &v) != nil {
		return ""
	}
	return v.Kind
}

// Verifier verifies an export line by line. All lines are with their line ends.
type Verifier struct {
	header   Header
	key      *keyring.Verifier
	link     string
	segments int64
	tokens   int64
	sum      hash.Hash // of the lines of the segment that is being read
	count    int64
}

// NewVerifier reads the header, and trusts the key in it: whose key that is, is
// for the caller to decide, by Header().PublicKey.
func NewVerifier(line []byte) (*Verifier, error) {
	v := &Verifier{sum: sha256.New(), link: hexOf(line)}
	if json.Unmarshal(line, &v.header) != nil || v.header.Kind != KindExport || v.header.Format != Format {
		return nil, ErrNotExport
	}
	var err error
	if v.key, err = keyring.ParseVerifier([]byte(v.header.PublicKey)); err != nil {
		return nil, ErrNotExport
	}
	return v, nil
}

// Header returns the first line.
func (v *Verifier) Header() Header { return v.header }

// Token adds the line of a token.
func (v *Verifier) Token(line []byte) {
	_, _ = v.sum.Write(line) // a hash takes everything
	v.count++
}

// Segment verifies the tokens since the last segment by the line after them.
// inOrder also checks that no segment was left out, which only a reader that
// began with the first can tell.
func (v *Verifier) Segment(line []byte, inOrder bool) error {
	var s Segment
	if json.Unmarshal(line, &s) != nil {
		return ErrChanged
	}
	got := hex.EncodeToString(v.sum.Sum(nil))
	if s.Hash != got || s.Tokens != v.count || v.key.Verify(s.Signature, s.message(v.header)) != nil {
		return ErrChanged
	}
	if inOrder && (s.Previous != v.link || s.Number != v.segments+1) {
		return ErrChanged
	}
	v.link, v.segments, v.tokens = s.link(), s.Number, v.tokens+s.Tokens
	v.sum.Reset()
	v.count = 0
	return nil
}

// End verifies the last line of a file that was read as a whole.
func (v *Verifier) End(line []byte) (End, error) {
	var e End
	if json.Unmarshal(line, &e) != nil || v.count > 0 || e.Segments != v.segments || e.Tokens != v.tokens || e.Hash != v.link ||
		e.KeyID != KeyID(v.header.PublicKey) || v.key.Verify(e.Signature, e.message(v.header)) != nil {
		return End{}, ErrChanged
	}
	return e, nil
}

// Verify verifies an export that is read line by line with next, which returns
// io.EOF at its end.
func Verify(next func() ([]byte, error)) (Header, End, error) {
	line, err := next()
	if err != nil {
		return Header{}, End{}, orEmpty(err)
	}
	v, err := NewVerifier(line)
	if err != nil {
		return Header{}, End{}, err
	}
	for {
		line, err := next()
		if errors.Is(err, io.EOF) {
			return v.header, End{}, ErrCutOff
		}
		if err != nil {
			return v.header, End{}, err
		}
		switch KindOf(line) {
		case KindToken:
			v.Token(line)
		case KindSegment:
			if err := v.Segment(line, true); err != nil {
				return v.header, End{}, err
			}
		case KindEnd:
			end, err := v.End(line)
			if err != nil {
				return v.header, End{}, err
			}
			if _, err := next(); !errors.Is(err, io.EOF) {
				return v.header, End{}, ErrChanged
			}
			return v.header, end, nil
		default:
			return v.header, End{}, ErrChanged
		}
	}
}

func orEmpty(err error) error {
	if errors.Is(err, io.EOF) {
		return ErrNotExport
	}
	return err
}

// Line returns a line with its end, as the methods of Verifier take it.
func Line(text []byte) []byte { return append(slices.Clone(text), '\n') }
