package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/bulkfile"
	"github.com/tokenkeep/tokenkeep/internal/exportfile"
)

// exportedFile is an export of tokens that is imported. What is sent of it is
// its first line and whole segments: the server verifies each of them before it
// imports its tokens.
type exportedFile struct {
	header []byte
	next   func() ([]byte, error)
	check  *exportfile.Verifier
}

// exportIn returns the export that a stream holds; nil when it holds none.
func exportIn(in *bufio.Reader) (*exportedFile, error) {
	const begin = `{"kind":"` + exportfile.KindExport + `"`
	if head, _ := in.Peek(len(begin)); string(head) != begin {
		return nil, nil
	}
	next := linesIn(in)
	header, err := next()
	if err != nil {
		return nil, &usageError{err}
	}
	check, err := exportfile.NewVerifier(header)
	if err != nil {
		return nil, &usageError{err}
	}
	return &exportedFile{header, next, check}, nil
}

// batches sends the segments of the file that are not imported yet, and verifies
// all of them. Records are counted from 1 over the tokens of the file.
func (x *exportedFile) batches(ctx context.Context, skip int64, out chan<- importBatch) error {
	b := importBatch{first: 1, lines: x.begin(), export: true}
	for {
		line, err := x.next()
		if errors.Is(err, io.EOF) {
			return &usageError{exportfile.ErrCutOff}
		}
		if err != nil {
			return &usageError{err}
		}
		switch exportfile.KindOf(line) {
		case exportfile.KindToken:
			x.check.Token(line)
			b.lines = append(b.lines, line...)
			b.records = append(b.records, bulkfile.Record{Line: b.first + int64(len(b.records)), OldID: idOfLine(line)})
		case exportfile.KindSegment:
			if err := x.check.Segment(line, true); err != nil {
				return &usageError{err}
			}
			b.lines = append(b.lines, line...)
			last := b.first + int64(len(b.records)) - 1
			if last > skip {
				select {
				case out <- b:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			b = importBatch{first: last + 1, lines: x.begin(), export: true}
		case exportfile.KindEnd:
			if _, err := x.check.End(line); err != nil {
				return &usageError{err}
			}
			return nil
		default:
			return &usageError{exportfile.ErrChanged}
		}
	}
}

func (x *exportedFile) begin() client.Lines { return bytes.Clone(x.header) }

func idOfLine(line []byte) string {
	var named struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(line, &named) // it was signed
	return named.ID
}
