// Package bulkfile reads files of values that become tokens: CSV or lines of
// JSON, in plaintext or encrypted with age or OpenPGP.
//
// It promises that a file is read as a stream, in bounded memory, and that what
// is wrong with a record is told by its line and field. It never repeats a
// value in an error, and it never writes anything.
package bulkfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Record is one record of a file.
type Record struct {
	Line  int64  // of the file, from 1
	OldID string // how the file names it; "" when it does not
	// Request is the request for a token, in JSON; nil for a record that has an
	// error.
	Request []byte
	Err     *RecordError
}

// RecordError is what is wrong with one record.
type RecordError struct {
	Field   string // of the token; "" when it is the record as a whole
	Message string // words of ours
}

func (e *RecordError) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + " " + e.Message
}

// maxRecord bounds the bytes of a record.
const maxRecord = 8 << 20

// Reader reads records.
type Reader interface {
	// Next returns the next record, or io.EOF. Other errors end the file: they
	// are words of ours.
	Next() (Record, error)
}

var errNeedsMapping = errors.New("a CSV file needs --mapping or --preset, which say what its columns are")

// NewReader reads a file that is decrypted. What begins with { is lines of JSON,
// anything else CSV. Without a mapping, each line of JSON is a request for a
// token as it stands.
func NewReader(in io.Reader, m *Mapping) (Reader, error) {
	b := bufio.NewReaderSize(in, 64<<10)
	if bom, _ := b.Peek(3); bytes.Equal(bom, []byte("\xef\xbb\xbf")) {
		_, _ = b.Discard(3) // it was peeked at
	}
	first, err := firstByte(b)
	if err != nil {
		return nil, err
	}
	if first == '{' {
		return &jsonReader{in: b, mapping: m}, nil
	}
	if m == nil {
		return nil, errNeedsMapping
	}
	return newCSV(b, m)
}

// firstByte looks at the first byte that is no white space; 0 when there is none.
func firstByte(b *bufio.Reader) (byte, error) {
	for n := 1; n <= b.Size(); n++ {
		seen, err := b.Peek(n)
		if errors.Is(err, io.EOF) && len(seen) < n {
			return 0, nil
		}
		if err != nil {
			return 0, readError(err)
		}
		if c := seen[n-1]; c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c, nil
		}
	}
	return 0, nil
}

var (
	errRead      = errors.New("the file cannot be read to its end, or is not what it was encrypted as")
	errTooLong   = errors.New("a record is longer than 8 MiB: the file is not what it seems, or a quote is not closed")
	errEmptyFile = errors.New("the file has no header")
)

// readError drops the words of others, which may repeat what was read.
func readError(err error) error {
	if errors.Is(err, errTooLong) {
		return errTooLong
	}
	return errRead
}

func lineError(line int64, message string) error { return fmt.Errorf("line %d %s", line, message) }
