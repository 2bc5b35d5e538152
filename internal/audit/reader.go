package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
)

// ExportVerification is what VerifyExport found.
type ExportVerification struct {
	Tenant string `json:"tenant_id"`
	Range
	Batches int64 `json:"batches"`
	Entries int64 `json:"entries"`
	// Dropped batches had no entries any more when they were exported.
	Dropped int64 `json:"dropped"`
	// KeySource is "given", or "export" when no key was given: that proves
	// only that one key signed all of it.
	KeySource string `json:"key_source"`
	PublicKey string `json:"public_key"`
	// Head is the last batch, to compare with a checkpoint.
	Head *Checkpoint `json:"head,omitempty"`
	// Finding is the first thing that is wrong; nil when nothing is.
	Finding *Finding `json:"finding,omitempty"`
}

// Clean reports whether nothing was found.
func (v *ExportVerification) Clean() bool { return v.Finding == nil }

// maxLine bounds a line of an export.
const maxLine = 1 << 20

// exportReader is the verification of an export under way.
type exportReader struct {
	result   *ExportVerification
	verifier *keyring.Verifier
	batch    *exportBatch // the one whose entries are read
	next     int          // index behind its last entry
	entries  int          // of the batch
	ended    bool
}

// VerifyExport reads what Export wrote and finds the first line that is not as
// it was written, and batches or entries that are not there. It needs no
// store. public is the tenant's key in PEM as it is known from elsewhere, a
// checkpoint for example; nil takes the one in the export. Of an export with a
// range it cannot tell that entries are missing.
func VerifyExport(r io.Reader, public []byte, progress func(Progress)) (*ExportVerification, error) {
	x := &exportReader{result: &ExportVerification{KeySource: KeyFromExport}}
	if public != nil {
		verifier, err := keyring.ParseVerifier(public)
		if err != nil {
			return nil, err
		}
		x.use(verifier, KeyGiven)
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	number := int64(0)
	for lines.Scan() {
		number++
		if x.result.Finding = x.line(lines.Bytes(), number == 1); x.result.Finding != nil {
			x.result.Finding.Line = number
			return x.result, nil
		}
		if number%pageSize == 0 {
			report(progress, "verifying lines", number, 0)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		x.result.Finding = &Finding{Kind: Changed, Line: number + 1, Detail: "the line is too long"}
	} else if err != nil {
		return nil, fmt.Errorf("audit: read an export: %w", err)
	} else if !x.ended {
		x.result.Finding = &Finding{Kind: Truncated, Line: number + 1, Detail: "the export has no end"}
	}
	return x.result, nil
}

func (x *exportReader) use(v *keyring.Verifier, source string) {
	x.verifier, x.result.KeySource, x.result.PublicKey = v, source, string(v.PEM())
}

// line checks one line.
func (x *exportReader) line(line []byte, first bool) *Finding {
	var kind struct {
		Kind string `json:"kind"`
	}
	if json.Unmarshal(line, &kind) != nil || first != (kind.Kind == lineExport) || x.ended {
		return &Finding{Kind: Changed, Detail: "no such line belongs here"}
	}
	switch kind.Kind {
	case lineExport:
		return x.head(line)
	case lineBatch:
		return x.nextBatch(line)
	case lineEntry:
		return x.nextEntry(line)
	case lineEnd:
		return x.end(line)
	}
	return &Finding{Kind: Changed, Detail: "no such line belongs here"}
}

// decode reads a line that is written exactly as Export writes it: nothing can
// hide in members that a reader sees and a program does not.
func decode[T any](line []byte) (*T, *Finding) {
	v := new(T)
	if json.Unmarshal(line, v) == nil {
		again, err := json.Marshal(v)
		if err == nil && bytes.Equal(again, line) {
			return v, nil
		}
	}
	return nil, &Finding{Kind: Changed, Detail: "the line is not as it was written"}
}

func (x *exportReader) head(line []byte) *Finding {
	h, bad := decode[exportHead](line)
	if bad != nil {
		return bad
	}
	if h.Format != exportFormat {
		return &Finding{Kind: Changed, Detail: "not an export of a version that is known here"}
	}
	x.result.Tenant, x.result.Range = h.Tenant, h.Range
	return nil
}

// nextBatch checks that a batch is signed and follows the one before.
func (x *exportReader) nextBatch(line []byte) *Finding {
	if bad := x.complete(); bad != nil {
		return bad
	}
	b, bad := decode[exportBatch](line)
	if bad != nil {
		return bad
	}
	if x.verifier == nil {
		verifier, err := keyring.ParseVerifier([]byte(b.PublicKey))
		if err != nil {
			return &Finding{Kind: BatchChanged, Batch: b.Number, Detail: "it holds no public key"}
		}
		x.use(verifier, KeyFromExport)
	}
	before := x.result.After
	if x.result.Head != nil {
		before = x.result.Head.Number
	}
	chained := x.result.Head == nil && (before > 0 || b.Previous == Hash{}) || x.result.Head != nil && b.Previous == x.result.Head.Link
	switch {
	case b.Tenant != x.result.Tenant:
		return &Finding{Kind: BatchChanged, Batch: b.Number, Detail: "it is that of another tenant"}
	case b.Number > before+1:
		return &Finding{Kind: BatchRemoved, Batch: before + 1, Detail: "no batch of this number is there"}
	case b.Number != before+1:
		return &Finding{Kind: BatchChanged, Batch: b.Number, Detail: "its number was there before"}
	case b.Entries < 1 || !b.verify(x.verifier):
		return &Finding{Kind: BatchChanged, Batch: b.Number, Detail: "it is not what was signed with the tenant's key"}
	case !chained:
		return &Finding{Kind: BatchChanged, Batch: b.Number, Detail: "it is not chained to the batch before it"}
	}
	x.batch, x.next, x.entries = b, 0, 0
	x.result.Head = &b.Checkpoint
	x.result.Batches++
	if b.Dropped {
		x.result.Dropped++
	}
	return nil
}

// nextEntry checks that an entry is in its batch, behind the one before.
func (x *exportReader) nextEntry(line []byte) *Finding {
	e, bad := decode[exportEntry](line)
	if bad != nil {
		return bad
	}
	at, err := placeOf(e.entry().CreatedAt, e.ID)
	if err != nil || !exact(e.CreatedAt) {
		return &Finding{Kind: Changed, Batch: e.Batch, Detail: "its id or its time is none"}
	}
	finding := func(kind Kind, detail string) *Finding {
		f := about(kind, e.Batch, at, detail)
		return &f
	}
	if x.batch == nil || e.Batch != x.batch.Number || e.Index < x.next {
		return finding(Inserted, "it does not belong here")
	}
	l := leaf{at, hashEntry(x.result.Tenant, e.entry())}
	if !included(x.batch.Root, l.hash(), e.Index, x.batch.Entries, e.Path) {
		return finding(Changed, "it is not what was sealed")
	}
	if x.result.whole() && e.Index != x.next {
		return finding(Removed, "entries before this one are not there")
	}
	x.next = e.Index + 1
	x.entries++
	x.result.Entries++
	return nil
}

// complete checks that no entry of the batch that ends here is missing.
func (x *exportReader) complete() *Finding {
	b := x.batch
	if b != nil && x.result.whole() && !b.Dropped && x.entries != b.Entries {
		return &Finding{Kind: Removed, Batch: b.Number, Detail: "entries at the end of this batch are not there"}
	}
	return nil
}

// end checks the counts of the last line.
func (x *exportReader) end(line []byte) *Finding {
	if bad := x.complete(); bad != nil {
		return bad
	}
	e, bad := decode[exportEnd](line)
	if bad != nil {
		return bad
	}
	last := x.result.After
	if x.result.Head != nil {
		last = x.result.Head.Number
	}
	if e.Batches != x.result.Batches || e.Entries != x.result.Entries || e.Last != last {
		return &Finding{Kind: Removed, Detail: "more was exported than is here"}
	}
	x.ended = true
	return nil
}
