package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/url"
	"strconv"

	"github.com/tokenkeep/tokenkeep/api"
)

// An import is known by its id and the numbers of its lines: it may be repeated.
var importTokens = row{method: "POST", path: "/imports", media: api.MediaNDJSON, reads: true}

// Lines are JSON values with a line end after each.
type Lines []byte

// LinesOf writes values as lines.
func LinesOf[T any](values ...T) (Lines, error) {
	var b bytes.Buffer
	for _, v := range values {
		line, err := json.Marshal(v)
		if err != nil {
			// The error of the library may quote the value.
			return nil, fmt.Errorf("client: a line cannot be written as JSON: %w", ErrInvalid)
		}
		_, _ = b.Write(append(line, '\n')) // a buffer takes everything
	}
	return b.Bytes(), nil
}

// Import says which lines of an import are sent.
type Import struct {
	// ID names the import: lines that are sent again under it are not imported
	// again. Default: a fresh one for each call, which covers its own retries.
	ID        string
	FirstLine int64 // the number of the first line that is sent; default 1
	DryRun    bool  // only check the lines
	Export    bool  // the lines are those of an export: its first line, and whole segments
}

// Import makes a token of each line, which is an api.CreateToken in JSON. It
// returns a result for each line that is not blank. The last result has the
// status api.ImportEnd, or api.ImportStopped: then the lines from its Line on
// were not imported, and the error says why. Send a few thousand lines with a
// call. It takes token:create.
func (t Tokens) Import(ctx context.Context, in Import, lines Lines, options ...CallOption) ([]api.ImportResult, error) {
	q := url.Values{"id": {cmp.Or(in.ID, newUUID())}}
	if in.FirstLine != 0 {
		q.Set("first_line", strconv.FormatInt(in.FirstLine, 10))
	}
	if in.Export {
		q.Set("format", "export")
	}
	if in.DryRun {
		q.Set("dry_run", "true")
	}
	results, err := get[[]api.ImportResult](ctx, t.caller, request{row: importTokens, query: q, in: lines}, options...)
	if err != nil || len(results) == 0 {
		return results, err
	}
	if last := results[len(results)-1]; last.Problem != nil {
		return results, &Error{Operation: importTokens.String(), Status: last.Problem.Status, Problem: *last.Problem}
	}
	return results, nil
}

var errCutShort = errors.New("the response ended before the import did")

// results reads the response to an import. One without a last line was cut
// off, which the next try finds out about.
func (c *caller) results(r request, got received, into *[]api.ImportResult) error {
	media, _, _ := mime.ParseMediaType(got.header.Get("Content-Type"))
	d := json.NewDecoder(bytes.NewReader(got.text))
	var list []api.ImportResult
	for media == api.MediaNDJSON {
		var next api.ImportResult
		err := d.Decode(&next)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return &brokenError{row: r.row, cause: errCutShort}
		}
		list = append(list, next)
	}
	if len(list) == 0 {
		return fmt.Errorf("client: %s: the answer is not understood", r)
	}
	if last := list[len(list)-1].Status; last != api.ImportEnd && last != api.ImportStopped {
		return &brokenError{row: r.row, cause: errCutShort}
	}
	*into = list
	return nil
}
