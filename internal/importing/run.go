package importing

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/base58"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// run is one request of an import.
type run struct {
	*Service
	in   Import
	keys *keyring.Keys

	// All below is of an import that has an id.
	id      string  // of the parcel of its head
	name    string  // begins the ids of the parcels of its batches
	version int64   // of the head; 0 while there is none
	next    int64   // the first line that is not imported
	firsts  []int64 // the first lines of the stored batches from the one with the first line of the request, descending
	last    int64   // the first line of the newest batch; 0 while there is none
}

// head is how far an import has come. It is sealed.
type head struct {
	Name string `json:"name"`
	Next int64  `json:"next"`
	Last int64  `json:"last"` // the first line of the newest batch
}

// batch is what became of the lines of one batch. It is sealed.
type batch struct {
	Previous int64          `json:"previous,omitempty"` // the first line of the batch before; 0 for the first
	Results  []storedResult `json:"results"`
}

type storedResult struct {
	Line    int64    `json:"l"`
	Status  string   `json:"s"`
	ID      string   `json:"i,omitempty"`
	Refusal *Refusal `json:"r,omitempty"`
}

// headID names an import without telling its id: a keyed hash over who imports
// and the id, each with its length before it.
func headID(keys *keyring.Keys, c access.Caller, id string) string {
	who := c.Application()
	if c.Session() != "" {
		who = c.Session()
	}
	var b []byte
	for _, part := range []string{who, id} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return base58.Encode(keys.IndexTerm("import", string(b)))
}

func (r *run) batchID(first int64) string { return r.name + "/" + strconv.FormatInt(first, 10) }

// resume finds out how far the import has come.
func (r *run) resume(ctx context.Context, c access.Caller) error {
	r.id, r.name = headID(r.keys, c, r.in.ID), access.NewID()
	var h head
	p, err := r.open(ctx, r.id, &h)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	r.version = p.Version
	if p.ExpiresAt <= store.At(r.now()) {
		return nil // it is over, and this is another one
	}
	r.name, r.next, r.last = h.Name, h.Next, h.Last
	if r.in.FirstLine > h.Next {
		return errGap.Counting(h.Next)
	}
	for first := h.Last; first > 0 && h.Next > r.in.FirstLine; {
		r.firsts = append(r.firsts, first)
		if first <= r.in.FirstLine {
			break
		}
		var b batch
		if _, err := r.open(ctx, r.batchID(first), &b); errors.Is(err, store.ErrNotFound) {
			break // its time is over
		} else if err != nil {
			return err
		}
		first = b.Previous
	}
	return nil
}

// open reads a parcel of the import. An expired one is returned too.
func (r *run) open(ctx context.Context, id string, into any) (p store.Parcel, err error) {
	err = r.Service.store.View(ctx, r.keys.Tenant(), func(tx store.Tx) (err error) {
		p, err = tx.Parcel(ctx, store.ParcelImport, id)
		return err
	})
	if errors.Is(err, store.ErrNoTenant) {
		return p, errNoTenant
	}
	if err != nil {
		return p, fmt.Errorf("read an import: %w", err)
	}
	b, err := r.ring.OpenParcel(ctx, r.keys, p)
	if err != nil {
		return p, fmt.Errorf("open an import: %w", err)
	}
	if json.Unmarshal(b, into) != nil {
		return p, errors.New("decode an import")
	}
	return p, nil
}

// note stores what became of lines, in the transaction that imports them.
func (r *run) note(ctx context.Context, tx store.Tx, lines []line, results []Result) error {
	if r.id == "" {
		return nil
	}
	switch old, err := tx.Parcel(ctx, store.ParcelImport, r.id); {
	case errors.Is(err, store.ErrNotFound):
		if r.last > 0 {
			return errBusy // it was removed meanwhile
		}
		r.version = 0
	case err != nil:
		return fmt.Errorf("read an import: %w", err)
	case old.Version != r.version:
		return errBusy
	}
	first := lines[0].number
	b := batch{Previous: r.last, Results: make([]storedResult, len(results))}
	for i, res := range results {
		b.Results[i] = storedResult(res)
	}
	if err := r.put(ctx, tx, r.batchID(first), 0, b); err != nil {
		return err
	}
	return r.put(ctx, tx, r.id, r.version, head{Name: r.name, Next: lines[len(lines)-1].number + 1, Last: first})
}

// put stores a parcel of the import, in place of the one of a version.
func (r *run) put(ctx context.Context, tx store.Tx, id string, version int64, contents any) error {
	b, err := json.Marshal(contents)
	if err != nil {
		return errors.New("encode an import")
	}
	now := r.now()
	p := store.Parcel{
		Kind: store.ParcelImport, ID: id, Owner: r.name, CreatedAt: store.At(now), ExpiresAt: store.At(now.Add(Lifetime)), Version: version + 1,
	}
	if err := r.keys.SealParcel(&p, nil, b); err != nil {
		return fmt.Errorf("seal an import: %w", err)
	}
	if version == 0 {
		return tx.InsertParcel(ctx, p)
	}
	return tx.ReplaceParcel(ctx, p)
}

// advance notes that lines are imported.
func (r *run) advance(lines []line) {
	if r.id != "" {
		r.version, r.last = r.version+1, lines[0].number
	}
	r.next = lines[len(lines)-1].number + 1
}

// replay returns the results of lines that were imported before. The log says
// that they were read again.
func (r *run) replay(ctx context.Context, c access.Caller, from, to int64) ([]Result, error) {
	var out []Result
	for i := len(r.firsts) - 1; i >= 0; i-- {
		first := r.firsts[i]
		if first > to || i > 0 && r.firsts[i-1] <= from {
			continue
		}
		var b batch
		if _, err := r.open(ctx, r.batchID(first), &b); errors.Is(err, store.ErrNotFound) {
			continue
		} else if err != nil {
			return nil, err
		}
		for _, res := range b.Results {
			if res.Line >= from && res.Line <= to {
				out = append(out, Result(res))
			}
		}
	}
	err := r.Service.store.Update(ctx, c.Tenant(), func(tx store.Tx) error {
		return tx.AppendLog(ctx, audit.Replayed(c, r.now(), audit.Token, audit.Many))
	})
	if errors.Is(err, store.ErrNoTenant) {
		return nil, errNoTenant
	}
	if err != nil {
		return nil, fmt.Errorf("log a replay: %w", err)
	}
	return out, nil
}
