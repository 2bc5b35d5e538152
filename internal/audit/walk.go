package audit

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// An entry in the log that is in no batch and does not wait for one was
// inserted. To find it without holding the log in memory, the log is read in
// pages, and for each page the sealed entries are added up as keyed hashes of
// their places; then every batch takes its places away again. A page that does
// not come to nothing is looked at place by place. The key is made for each
// verification, so nobody can choose places that cancel out.

// page is a stretch of the log as it was when it was read.
type page struct {
	after, end *place // behind the one, up to the other; nil is the end of the log
	// An entry of a batch was in this page, sealed, when it was read if its
	// batch was there and not dropped: dropped < number <= head.
	head, dropped int64
	rest          sum
}

// sum adds up keyed hashes of places.
type sum [2]uint64

func (s *sum) add(k sum)  { s[0] += k[0]; s[1] += k[1] }
func (s *sum) take(k sum) { s[0] -= k[0]; s[1] -= k[1] }

// keyed returns the hash of a place.
func (v *examiner) keyed(p place) sum {
	var b [len(v.key) + placeSize]byte
	copy(b[:], v.key[:])
	binary.BigEndian.PutUint64(b[len(v.key):], uint64(p.at))
	copy(b[len(v.key)+8:], p.id[:])
	h := sha256.Sum256(b[:])
	return sum{binary.BigEndian.Uint64(h[:]), binary.BigEndian.Uint64(h[8:])}
}

// The bounds of reading the log: places in a page, and pages that are looked
// at place by place at once.
const (
	pageSize   = 4096
	closeLooks = 16
)

// stretch is what one look at a page saw.
type stretch struct {
	page
	sealed  []place // in the log, and not waiting
	waiting []place // in the log, and waiting
	missing []place // waiting, and not in the log
}

// walk reads the places of the whole log.
func (v *examiner) walk(ctx context.Context) error {
	for p := (page{}); ; {
		s, err := v.look(ctx, page{after: p.end, dropped: p.dropped}, pageSize)
		if err != nil {
			return err
		}
		p = s.page
		for _, at := range s.sealed {
			p.rest.add(v.keyed(at))
		}
		for _, at := range s.missing {
			v.found(about(Removed, 0, at, "it waited to be sealed and is not in the log"))
		}
		if len(s.waiting) > 0 && v.result.OldestUnsealed == nil {
			at := s.waiting[0].at.Time()
			v.result.OldestUnsealed = &at
		}
		v.result.Unsealed += int64(len(s.waiting))
		v.pages = append(v.pages, p)
		if p.end == nil {
			return nil
		}
		report(v.progress, "reading the log", int64(len(v.pages))*pageSize, 0)
	}
}

// look reads a page as it is now. With a size, the page ends where so many
// places are read.
func (v *examiner) look(ctx context.Context, p page, size int) (s stretch, err error) {
	err = v.store.View(ctx, v.tenant, func(tx store.Tx) error {
		s = stretch{page: page{after: p.after, end: p.end}}
		last, err := tx.LastLogBatch(ctx)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		s.head = last.Number
		if s.dropped, err = droppedThrough(ctx, tx, p.dropped); err != nil {
			return err
		}
		rows, err := readPlaces(ctx, tx.LogPositions, s.after, s.end, size)
		if err != nil {
			return err
		}
		if size > 0 && len(rows) == size {
			s.end = &rows[size-1]
		}
		queue, err := readPlaces(ctx, tx.UnsealedLogPositions, s.after, s.end, 0)
		if err != nil {
			return err
		}
		s.split(rows, queue)
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("audit: read the log: %w", err)
	}
	return s, nil
}

// readPlaces reads places behind one and up to another: so many of them, or
// all when most is 0.
func readPlaces(ctx context.Context, read func(context.Context, *store.Position, int) ([]store.Position, error),
	after, end *place, most int) (list []place, err error) {
	var from *store.Position
	if after != nil {
		at := after.position()
		from = &at
	}
	for {
		positions, err := read(ctx, from, pageSize)
		if err != nil {
			return nil, err
		}
		for _, at := range positions {
			p, err := placeOf(at.CreatedAt, at.ID)
			if err != nil {
				return nil, err
			}
			if end != nil && p.compare(*end) > 0 {
				return list, nil
			}
			if list = append(list, p); len(list) == most {
				return list, nil
			}
		}
		if len(positions) < pageSize {
			return list, nil
		}
		from = &positions[len(positions)-1]
	}
}

// split tells the rows that wait from those that are sealed. Both lists are in
// order.
func (s *stretch) split(rows, queue []place) {
	for len(rows) > 0 || len(queue) > 0 {
		switch {
		case len(queue) == 0 || len(rows) > 0 && rows[0].compare(queue[0]) < 0:
			s.sealed, rows = append(s.sealed, rows[0]), rows[1:]
		case len(rows) == 0 || queue[0].compare(rows[0]) < 0:
			s.missing, queue = append(s.missing, queue[0]), queue[1:]
		default:
			s.waiting, rows, queue = append(s.waiting, rows[0]), rows[1:], queue[1:]
		}
	}
}

// match takes an entry of a batch out of the page in which it was seen.
func (v *examiner) match(number int64, at place) {
	i, _ := slices.BinarySearchFunc(v.pages, at, func(p page, at place) int {
		if p.end == nil || p.end.compare(at) >= 0 {
			return 1
		}
		return -1
	})
	if i < len(v.pages) && v.pages[i].dropped < number && number <= v.pages[i].head {
		v.pages[i].rest.take(v.keyed(at))
	}
}

// nameInserted looks closely at the pages that did not come to nothing.
func (v *examiner) nameInserted(ctx context.Context) error {
	var odd []page
	for _, p := range v.pages {
		if p.rest != (sum{}) {
			odd = append(odd, p)
		}
	}
	before := v.result.Found
	for some := range slices.Chunk(odd, closeLooks) {
		if err := v.lookClosely(ctx, some); err != nil || v.result.Found > before {
			return err
		}
	}
	return nil
}

// lookClosely holds the places of some pages against those of all batches.
func (v *examiner) lookClosely(ctx context.Context, pages []page) error {
	batchesOf := make(map[place][]int64)
	for _, p := range pages {
		s, err := v.look(ctx, p, 0)
		if err != nil {
			return err
		}
		for _, at := range s.sealed {
			batchesOf[at] = nil
		}
	}
	for number := int64(0); ; {
		batches, total, err := v.readBatches(ctx, v.tenant, number, false)
		if err != nil {
			return err
		}
		if len(batches) == 0 {
			break
		}
		for _, b := range batches {
			number = b.head.Number
			for _, l := range b.leaves {
				if numbers, there := batchesOf[l.place]; there {
					batchesOf[l.place] = append(numbers, number)
				}
			}
		}
		report(v.progress, "looking for inserted entries", number, total)
	}
	for _, at := range slices.SortedFunc(maps.Keys(batchesOf), place.compare) {
		switch numbers := batchesOf[at]; {
		case len(numbers) == 0:
			v.found(about(Inserted, 0, at, "it is in the log, and no batch has it"))
		case len(numbers) > 1:
			v.found(about(Doubled, numbers[1], at, "an earlier batch has it already"))
		}
	}
	return nil
}
