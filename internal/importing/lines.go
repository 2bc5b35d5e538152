package importing

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// line is one line of a body, without its end.
type line struct {
	number int64
	text   []byte
	long   bool // longer than a line may be; it has no text
	// exported says that it comes from an export that a trusted key has signed.
	exported bool
}

func (l line) blank() bool { return !l.long && len(bytes.TrimSpace(l.text)) == 0 }

// request parses a line.
func (l line) request() (token.Import, error) {
	if l.long {
		return token.Import{}, errLongLine
	}
	v, err := jsonvalue.Parse(l.text)
	if err != nil {
		return token.Import{}, err
	}
	r, err := token.ParseRequest(v)
	return token.Import{Request: r, Exported: l.exported}, err
}

// lines reads a body line by line. A line that is too long is read to its end
// and not kept.
type lines struct {
	in   *bufio.Reader
	next int64
	max  int // bytes of a line
	end  bool
}

func newLines(body io.Reader, first int64, longest int) *lines {
	return &lines{in: bufio.NewReaderSize(body, 64<<10), next: first, max: longest}
}

// batch reads lines until there are so many, or so many bytes. It returns none
// at the end of the body. A body that breaks off is an error: its last line may
// be half a line.
func (l *lines) batch(most, size int) (list []line, err error) {
	bytes := 0
	for !l.end && len(list) < most && bytes < size {
		next, err := l.read()
		if err != nil {
			return nil, err
		}
		if next == nil {
			break
		}
		list = append(list, *next)
		bytes += len(next.text)
	}
	return list, nil
}

// read returns the next line, or nil at the end.
func (l *lines) read() (*line, error) {
	out := line{number: l.next}
	empty := true
	for {
		piece, err := l.in.ReadSlice('\n')
		empty = empty && len(piece) == 0
		if !out.long {
			out.text = append(out.text, piece...)
		}
		if len(out.text) > l.max {
			clear(out.text)
			out.text, out.long = nil, true
		}
		switch {
		case err == nil:
			l.next++
			return &out, nil
		case errors.Is(err, io.EOF):
			l.end = true
			if empty {
				return nil, nil
			}
			l.next++
			return &out, nil
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			return nil, readFault(err)
		}
	}
}

// readFault is the fault of a body that cannot be read; the error itself may
// name addresses.
func readFault(err error) error {
	var known *fault.Fault
	if errors.As(err, &known) {
		return known
	}
	return errCutOff
}
