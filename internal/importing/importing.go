// Package importing makes tokens of many lines.
//
// It promises that memory is bounded whatever the length of an import, that
// the lines of a batch and the note that they were imported commit together, so
// that a line which is sent again makes nothing twice, and that access is
// decided line by line as for a single token. It never repeats in a result what a
// line holds.
package importing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// Lifetime is how long the results of a batch are returned to requests that
// send its lines again.
const Lifetime = 7 * 24 * time.Hour

// Bounds on what is imported in one transaction. A batch has at least one line.
const (
	maxBatchLines = 1000
	maxBatchBytes = 1 << 20
)

// lineWeight is how many bytes of memory are charged for each byte of a batch,
// beside its values: the line, the row that is made from it, and what is stored.
const lineWeight = 4

var (
	errID = fault.Field("id", "must have 1 to 200 printable characters")
	// With the key of a public application, an import is known by its id alone.
	errShortID   = fault.Field("id", "must be random and have 22 characters or more with a key that many clients share")
	errFirstLine = fault.Field("first_line", "must be a whole number from 1 to 1000000000000")
	errLongLine  = fault.New(fault.TooLarge, "the line is too long")
	errCutOff    = fault.New(fault.Invalid, "the body could not be read to its end")
	errGap       = fault.New(fault.Conflict, "lines are missing: the import continues at line").WithCode("import_gap")
	errBusy      = fault.New(fault.Conflict, "another request sends lines of this import").RetryAfter(time.Second)
	errNoTenant  = fault.New(fault.NotFound, "no such tenant")
)

// maxFirstLine bounds line numbers, so that none overflows.
const maxFirstLine = 1_000_000_000_000

// Service imports tokens. Its methods are safe for concurrent use.
type Service struct {
	store   store.Store
	ring    *keyring.Ring
	tokens  *token.Service
	now     func() time.Time
	maxLine int
}

// New returns the service. A line may be a little longer than the body of a
// request that creates one token, of which maxBody is the bound.
func New(s store.Store, ring *keyring.Ring, tokens *token.Service, now func() time.Time, maxBody int) *Service {
	return &Service{store: s, ring: ring, tokens: tokens, now: now, maxLine: maxBody + 64<<10}
}

// Import is a request to import lines.
type Import struct {
	// ID names the import, so that lines that are sent again are known; "" for
	// lines that are never sent again.
	ID string
	// FirstLine is the number of the first line that is sent; lines are counted
	// from there.
	FirstLine int64
	// DryRun checks the lines and stores nothing.
	DryRun bool
	// Export says that the lines are those of an export of tokens.
	Export bool
}

// The states of a line after an import.
const (
	Created  = "created"
	Existing = "existing" // it repeats a token that was there before
	Valid    = "valid"    // of a dry run
	Rejected = "rejected"
)

// Result is what became of one line.
type Result struct {
	Line   int64
	Status string
	ID     string // of the token
	// Refusal says why there is no token.
	Refusal *Refusal
}

// Refusal says what is wrong with a line, in words of ours.
type Refusal struct {
	Detail string              `json:"detail,omitempty"`
	Code   string              `json:"code,omitempty"`
	Fields map[string][]string `json:"fields,omitempty"`
}

// Observer is what a run of an import calls.
type Observer struct {
	// Caller returns the caller as it is now. It is called before each batch: a
	// key that was revoked imports nothing more.
	Caller func() (access.Caller, error)
	// Denied is called for lines that the caller may not import.
	Denied func(c access.Caller, err error)
	// Results is called with the results of lines, in their order, once those
	// are stored. An error ends the import.
	Results func([]Result) error
}

// Run imports the lines of a body until it ends. Each is a request for a token
// as POST /tokens takes it; blank lines are counted and skipped. Lines that were
// imported before under the same id have the result that they had then.
func (s *Service) Run(ctx context.Context, in Import, body io.Reader, o Observer) error {
	c, err := o.Caller()
	if err != nil {
		return err
	}
	if err := in.check(c); err != nil {
		return err
	}
	if err := c.RequireSomewhere(access.TokenCreate); err != nil {
		return err
	}
	keys, err := s.keysOf(ctx, c)
	if err != nil {
		return err
	}
	r := &run{Service: s, in: in, keys: keys, next: in.FirstLine}
	if in.ID != "" && !in.DryRun {
		if err := r.resume(ctx, c); err != nil {
			return err
		}
	}
	lines := newLines(body, in.FirstLine, s.maxLine)
	var from source = lines
	if in.Export {
		from = &segments{in: lines, number: in.FirstLine, trusts: func(keyID string) (bool, error) { return s.trusts(ctx, keys, keyID) }}
	}
	for {
		batch, err := from.take()
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			return nil
		}
		if c, err = o.Caller(); err != nil {
			return err
		}
		if err := r.batch(ctx, c, batch, o); err != nil {
			return err
		}
	}
}

func (in Import) check(c access.Caller) error {
	printable := utf8.ValidString(in.ID) && !strings.ContainsFunc(in.ID, func(r rune) bool { return r <= ' ' || r > '~' })
	switch {
	case len(in.ID) > 200 || !printable:
		return errID
	case in.ID != "" && len(in.ID) < longID && c.ApplicationType() == access.Public:
		return errShortID
	case in.FirstLine < 1 || in.FirstLine > maxFirstLine:
		return errFirstLine
	}
	return nil
}

// longID is the number of characters from which an id counts as unguessable.
const longID = 22

func (s *Service) keysOf(ctx context.Context, c access.Caller) (*keyring.Keys, error) {
	keys, err := s.ring.For(ctx, c.Tenant())
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return nil, errNoTenant
	}
	if err != nil {
		return nil, fmt.Errorf("get keys: %w", err)
	}
	return keys, nil
}

// batch imports some lines: it returns the results of those that were imported
// before, and makes tokens of the others.
func (r *run) batch(ctx context.Context, c access.Caller, lines []line, o Observer) error {
	known := slices.IndexFunc(lines, func(l line) bool { return l.number >= r.next })
	if known < 0 {
		known = len(lines)
	}
	if known > 0 {
		results, err := r.replay(ctx, c, lines[0].number, lines[known-1].number)
		if err != nil {
			return err
		}
		if err := o.Results(results); err != nil {
			return err
		}
	}
	if lines = lines[known:]; len(lines) == 0 {
		return nil
	}
	c, release := c.Holding()
	defer release()
	weight := int64(0)
	for _, l := range lines {
		weight += lineWeight*int64(len(l.text)) + jsonvalue.Weight(l.text)
	}
	if err := c.ChargeMemory(weight); err != nil {
		return err
	}
	results, err := r.store(ctx, c, lines, o.Denied)
	if err != nil {
		return err
	}
	return o.Results(results)
}

// store makes tokens of lines.
func (r *run) store(ctx context.Context, c access.Caller, lines []line, denied func(access.Caller, error)) ([]Result, error) {
	results := make([]Result, 0, len(lines))
	var list []token.Import
	var at []int // in results, of each in list
	for _, l := range lines {
		if l.blank() {
			continue
		}
		in, err := l.request()
		result := Result{Line: l.number}
		if err != nil {
			result.refuse(err)
		} else {
			list, at = append(list, in), append(at, len(results))
		}
		results = append(results, result)
	}
	settle := func(made []token.Imported) []Result {
		out := slices.Clone(results) // a transaction may run again
		for i, m := range made {
			out[at[i]].settle(m, r.in.DryRun)
		}
		return out
	}
	var made []token.Imported
	var err error
	if r.in.DryRun {
		made, err = r.tokens.CheckImport(ctx, c, list)
	} else {
		made, err = r.tokens.Import(ctx, c, list, func(tx store.Tx, made []token.Imported) error {
			return r.note(ctx, tx, lines, settle(made))
		})
	}
	if err != nil {
		return nil, err
	}
	r.advance(lines)
	for _, m := range made {
		if m.IsDenied() {
			denied(c, m.Err)
		}
	}
	return settle(made), nil
}

func (res *Result) settle(m token.Imported, dry bool) {
	switch {
	case m.Err != nil:
		res.refuse(m.Err)
	case dry:
		res.Status = Valid
	case m.Existing:
		res.Status, res.ID = Existing, m.ID
	default:
		res.Status, res.ID = Created, m.ID
	}
}

func (res *Result) refuse(err error) {
	f := fault.Of(err)
	res.Status, res.ID = Rejected, ""
	res.Refusal = &Refusal{Detail: f.Detail(), Code: f.Code(), Fields: f.Fields()}
}
