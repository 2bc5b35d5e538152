package bulkfile

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
)

// jsonReader reads lines of JSON.
type jsonReader struct {
	in      *bufio.Reader
	mapping *Mapping
	line    int64
	end     bool
}

func (r *jsonReader) Next() (Record, error) {
	for !r.end {
		text, err := r.readLine()
		if err != nil {
			return Record{}, err
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			return r.record(text), nil
		}
	}
	return Record{}, io.EOF
}

func (r *jsonReader) readLine() (text []byte, err error) {
	r.line++
	for {
		piece, err := r.in.ReadSlice('\n')
		if text = append(text, piece...); len(text) > maxRecord {
			return nil, errTooLong
		}
		switch {
		case err == nil:
			return text, nil
		case errors.Is(err, io.EOF):
			r.end = true
			return text, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, readError(err)
		}
	}
}

func (r *jsonReader) record(text []byte) Record {
	out := Record{Line: r.line}
	var object map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&object) != nil || d.More() {
		out.Err = &RecordError{Message: "is not a JSON object"}
		return out
	}
	if r.mapping == nil {
		var named struct {
			ID string `json:"id"`
		}
		_ = json.Unmarshal(text, &named) // the server says what is wrong with it
		out.Request, out.OldID = text, shownID(named.ID)
		return out
	}
	out.Request, out.OldID, out.Err = r.mapping.apply(func(column string) string { return member(object, column) })
	return out
}

// member finds the text or number of a column: a field of that name, or a
// dotted path. Case does not count.
func member(object map[string]any, column string) string {
	for name, v := range object {
		lower := strings.ToLower(name)
		if lower == column {
			switch v := v.(type) {
			case string:
				return v
			case json.Number:
				return v.String()
			}
			return ""
		}
		if inner, isObject := v.(map[string]any); isObject && strings.HasPrefix(column, lower+".") {
			return member(inner, column[len(lower)+1:])
		}
	}
	return ""
}

// csvReader reads CSV with a header.
type csvReader struct {
	in      *csv.Reader
	bound   *bounded
	mapping *Mapping
	at      map[string]int // the position of each column
}

// bounded ends a file whose records do not end.
type bounded struct {
	in   io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.in.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

var errColumns = errors.New("the file does not have the columns that the mapping names; missing")

// newCSV reads the header. The separator is the comma, the semicolon or the tab,
// whichever the header has most of.
func newCSV(in *bufio.Reader, m *Mapping) (*csvReader, error) {
	seen, _ := in.Peek(4096)
	header, _, _ := bytes.Cut(seen, []byte("\n"))
	r := &csvReader{bound: &bounded{in: in, left: maxRecord}, mapping: m, at: make(map[string]int)}
	r.in = csv.NewReader(r.bound)
	r.in.Comma = slices.MaxFunc([]rune{',', ';', '\t'}, func(a, b rune) int {
		return bytes.Count(header, []byte(string(a))) - bytes.Count(header, []byte(string(b)))
	})
	r.in.ReuseRecord = true
	names, err := r.in.Read()
	if errors.Is(err, io.EOF) {
		return nil, errEmptyFile
	}
	if err != nil {
		return nil, readError(err)
	}
	for i, name := range names {
		r.at[strings.ToLower(strings.TrimSpace(name))] = i
	}
	var missing []string
	for _, name := range m.columns() {
		if _, found := r.at[name]; !found {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return nil, errors.New(errColumns.Error() + ": " + strings.Join(missing, ", "))
	}
	return r, nil
}

func (r *csvReader) Next() (Record, error) {
	r.bound.left = maxRecord
	fields, err := r.in.Read()
	if errors.Is(err, io.EOF) {
		return Record{}, io.EOF
	}
	var parse *csv.ParseError
	switch {
	case errors.As(err, &parse) && errors.Is(err, csv.ErrFieldCount):
		return Record{Line: int64(parse.StartLine), Err: &RecordError{Message: "has another number of fields than the header"}}, nil
	case errors.As(err, &parse):
		return Record{}, lineError(int64(parse.StartLine), "is not CSV: a quote is missing or in the wrong place")
	case err != nil:
		return Record{}, readError(err)
	}
	line, _ := r.in.FieldPos(0)
	out := Record{Line: int64(line)}
	out.Request, out.OldID, out.Err = r.mapping.apply(func(column string) string {
		return fields[r.at[column]]
	})
	return out, nil
}
