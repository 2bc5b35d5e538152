package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
)

// importState is how far an import has come. It holds no values.
type importState struct {
	ImportID string `json:"import_id"`
	Size     int64  `json:"size"`    // of the file
	Mapping  string `json:"mapping"` // a digest
	Records  int64  `json:"records"` // that were sent
	Created  int64  `json:"created"`
	Existing int64  `json:"existing"`
	Valid    int64  `json:"-"`
	Rejected int64  `json:"rejected"`
	// How many bytes of the other two files belong to these records.
	ResultBytes int64 `json:"result_bytes"`
	RejectBytes int64 `json:"reject_bytes"`
	Done        bool  `json:"done"`
}

func (s importState) summary(o importOptions) importSummary {
	out := importSummary{Records: s.Records, Created: s.Created, Existing: s.Existing, Valid: s.Valid, Rejected: s.Rejected, RejectsFile: o.rejected}
	if !o.dryRun {
		out.ResultFile = o.results
	}
	return out
}

// importBooks are the files that an import writes. What is noted is written in
// this order: results, rejects, state. A state that is behind the others cuts
// them back, and the records are sent again.
type importBooks struct {
	state            importState
	path             string // of the state; "" for standard input and dry runs
	results, rejects *importBook
}

var (
	errState    = &usageError{errors.New("the state of the import cannot be read: remove the file, or name another with --state")}
	errOtherRun = &usageError{errors.New("the file or the mapping has changed since the import began: remove its state, or name another file with --state")}
	errBooks    = errors.New("the files beside the imported one cannot be written")
)

// openBooks opens the files of an import that was begun, or begins one.
func openBooks(o importOptions, begin importState) (*importBooks, error) {
	b := &importBooks{state: begin}
	if !o.dryRun {
		b.path = o.state
	}
	if b.path != "" {
		text, err := os.ReadFile(b.path)
		var found importState
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil || json.Unmarshal(text, &found) != nil || found.ImportID == "":
			return nil, errState
		case found.Size != begin.Size || found.Mapping != begin.Mapping:
			return nil, errOtherRun
		default:
			b.state = found
		}
	}
	var err error
	results := o.results
	if o.dryRun {
		results = ""
	}
	if b.results, err = openBook(results, b.state.ResultBytes, "line", "old_id", "token_id", "status"); err != nil {
		return nil, err
	}
	b.rejects, err = openBook(o.rejected, b.state.RejectBytes, "line", "old_id", "field", "message", "code")
	if err != nil {
		return nil, errors.Join(err, b.results.close())
	}
	return b, nil
}

// save writes what was noted, and then the state.
func (b *importBooks) save() error {
	var err error
	if b.state.ResultBytes, err = b.results.save(); err != nil {
		return err
	}
	if b.state.RejectBytes, err = b.rejects.save(); err != nil {
		return err
	}
	if b.path == "" {
		return nil
	}
	text, err := json.Marshal(b.state)
	if err != nil {
		return errBooks
	}
	return replaceFile(b.path, append(text, '\n'))
}

// replaceFile writes a file so that a kill leaves the old one or the new one.
func replaceFile(path string, text []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return errBooks
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return errBooks
	}
	return nil
}

func (b *importBooks) close() {
	_, _ = b.results.close(), b.rejects.close() // all that counts is on disk
}

// importBook is a CSV file that grows.
type importBook struct {
	file    *os.File // nil writes nothing
	pending bytes.Buffer
	rows    *csv.Writer
	size    int64
}

// openBook opens a file, cut back to the size that counts.
func openBook(path string, size int64, header ...string) (*importBook, error) {
	b := &importBook{size: size}
	b.rows = csv.NewWriter(&b.pending)
	if path == "" {
		return b, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, errBooks
	}
	if _, seekErr := f.Seek(size, io.SeekStart); errors.Join(f.Truncate(size), seekErr) != nil {
		_ = f.Close()
		return nil, errBooks
	}
	b.file = f
	if size == 0 {
		b.add(header...)
	}
	return b, nil
}

func (b *importBook) add(fields ...string) { _ = b.rows.Write(fields) } // a buffer takes everything

// save writes what was added, and returns the size of the file.
func (b *importBook) save() (int64, error) {
	b.rows.Flush()
	n := int64(b.pending.Len())
	if b.file == nil || n == 0 {
		b.pending.Reset()
		return b.size, nil
	}
	_, err := b.file.Write(b.pending.Bytes())
	b.pending.Reset()
	if errors.Join(err, b.file.Sync()) != nil {
		return b.size, errBooks
	}
	b.size += n
	return b.size, nil
}

func (b *importBook) close() error {
	if b.file == nil {
		return nil
	}
	return b.file.Close()
}
