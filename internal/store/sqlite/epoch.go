package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// epochKeys keeps wrapped epoch keys in a file of fixed slots. A database
// would copy them into its log and its free pages; here a destroyed key is
// overwritten where it stands, and there is no second place where it stood.
//
// A slot holds: CRC-32 of the rest, length of the key, tenant, epoch, key.
// A slot whose sum does not match is free: it was never acknowledged, or it
// was destroyed.
type epochKeys struct {
	mu     sync.Mutex // guards everything below
	file   *os.File
	slots  map[epochID]int64 // where each key stands
	free   []int64           // slots to use again
	size   int64             // slots in the file
	closed bool
}

type epochID struct {
	tenant tenantKey
	epoch  int64
}

const (
	slotSize      = 512 // a sector: a slot is written whole or not at all
	slotHeader    = 4 + 2 + 16 + 8
	maxWrappedKey = slotSize - slotHeader
)

func openEpochKeys(path string) (_ *epochKeys, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("sqlite: open epoch keys: %w", err)
	}
	e := &epochKeys{file: f, slots: make(map[epochID]int64)}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	r := io.NewSectionReader(f, 0, 1<<62)
	buf := make([]byte, slotSize)
	for ; ; e.size++ {
		if _, err := io.ReadFull(r, buf); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return e, nil
		} else if err != nil {
			return nil, fmt.Errorf("sqlite: read epoch keys: %w", err)
		}
		if id, _, ok := decodeSlot(buf); ok {
			e.slots[id] = e.size
		} else {
			e.free = append(e.free, e.size)
		}
	}
}

func (e *epochKeys) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return e.file.Close()
}

// lock takes the lock unless the call comes too late.
func (e *epochKeys) lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, fmt.Errorf("sqlite: closed: %w", store.ErrUnavailable)
	}
	return e.mu.Unlock, nil
}

func encodeSlot(id epochID, wrapped []byte) []byte {
	b := make([]byte, slotSize)
	binary.BigEndian.PutUint16(b[4:], uint16(len(wrapped)))
	copy(b[6:], id.tenant[:])
	binary.BigEndian.PutUint64(b[22:], uint64(id.epoch))
	copy(b[slotHeader:], wrapped)
	binary.BigEndian.PutUint32(b, crc32.ChecksumIEEE(b[4:]))
	return b
}

func decodeSlot(b []byte) (id epochID, wrapped []byte, ok bool) {
	n := int(binary.BigEndian.Uint16(b[4:]))
	if n == 0 || n > maxWrappedKey || binary.BigEndian.Uint32(b) != crc32.ChecksumIEEE(b[4:]) {
		return epochID{}, nil, false
	}
	id.tenant = tenantKey(b[6:22])
	id.epoch = int64(binary.BigEndian.Uint64(b[22:]))
	return id, b[slotHeader : slotHeader+n], true
}

// write puts a slot's bytes on disk before it returns.
func (e *epochKeys) write(slot int64, b []byte) error {
	if _, err := e.file.WriteAt(b, slot*slotSize); err != nil {
		return fmt.Errorf("sqlite: write epoch key: %w: %w", store.ErrUnavailable, err)
	}
	if err := e.file.Sync(); err != nil {
		return fmt.Errorf("sqlite: sync epoch keys: %w: %w", store.ErrUnavailable, err)
	}
	return nil
}

func (e *epochKeys) read(id epochID) ([]byte, error) {
	slot, ok := e.slots[id]
	if !ok {
		return nil, store.ErrNotFound
	}
	b := make([]byte, slotSize)
	if _, err := e.file.ReadAt(b, slot*slotSize); err != nil {
		return nil, fmt.Errorf("sqlite: read epoch key: %w", err)
	}
	found, wrapped, ok := decodeSlot(b)
	if !ok || found != id {
		return nil, fmt.Errorf("sqlite: read epoch key: %w", store.ErrDamaged)
	}
	return wrapped, nil
}

func (e *epochKeys) EpochKey(ctx context.Context, tenant string, epoch int64) ([]byte, error) {
	key, err := parseTenant(tenant)
	if err != nil {
		return nil, err
	}
	unlock, err := e.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return e.read(epochID{key, epoch})
}

func (e *epochKeys) AddEpochKey(ctx context.Context, tenant string, epoch int64, wrapped []byte) ([]byte, error) {
	key, err := parseTenant(tenant)
	if err != nil {
		return nil, err
	}
	if len(wrapped) == 0 || len(wrapped) > maxWrappedKey {
		return nil, fmt.Errorf("sqlite: a wrapped epoch key must have 1 to %d bytes", maxWrappedKey)
	}
	id := epochID{key, epoch}
	unlock, err := e.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, there := e.slots[id]; there {
		return e.read(id)
	}
	slot := e.size
	if n := len(e.free); n > 0 {
		slot, e.free = e.free[n-1], e.free[:n-1]
	} else {
		e.size++
	}
	if err := e.write(slot, encodeSlot(id, wrapped)); err != nil {
		e.free = append(e.free, slot)
		return nil, err
	}
	e.slots[id] = slot
	return wrapped, nil
}

func (e *epochKeys) ReplaceEpochKey(ctx context.Context, tenant string, epoch int64, wrapped []byte) error {
	key, err := parseTenant(tenant)
	if err != nil {
		return err
	}
	if len(wrapped) == 0 || len(wrapped) > maxWrappedKey {
		return fmt.Errorf("sqlite: a wrapped epoch key must have 1 to %d bytes", maxWrappedKey)
	}
	id := epochID{key, epoch}
	unlock, err := e.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	slot, there := e.slots[id]
	if !there {
		return store.ErrNotFound
	}
	return e.write(slot, encodeSlot(id, wrapped))
}

func (e *epochKeys) EpochKeyList(ctx context.Context, tenant string) ([]int64, error) {
	key, err := parseTenant(tenant)
	if err != nil {
		return nil, err
	}
	unlock, err := e.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var list []int64
	for id := range e.slots {
		if id.tenant == key {
			list = append(list, id.epoch)
		}
	}
	slices.Sort(list)
	return list, nil
}

func (e *epochKeys) DestroyEpochKeys(ctx context.Context, first, last int64) (int, error) {
	return e.destroy(ctx, func(id epochID) bool { return id.epoch < first || id.epoch > last })
}

func (e *epochKeys) DestroyTenantEpochKeys(ctx context.Context, tenant string) error {
	key, err := parseTenant(tenant)
	if err != nil {
		return err
	}
	_, err = e.destroy(ctx, func(id epochID) bool { return id.tenant == key })
	return err
}

// destroy overwrites the chosen keys and syncs once. A key counts as gone only
// when its zeros are on disk; until then it stays listed and is tried again.
func (e *epochKeys) destroy(ctx context.Context, chosen func(epochID) bool) (int, error) {
	unlock, err := e.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	var gone []epochID
	zeros := make([]byte, slotSize)
	for id, slot := range e.slots {
		if !chosen(id) {
			continue
		}
		if _, err := e.file.WriteAt(zeros, slot*slotSize); err != nil {
			return 0, fmt.Errorf("sqlite: overwrite epoch key: %w: %w", store.ErrUnavailable, err)
		}
		gone = append(gone, id)
	}
	if len(gone) == 0 {
		return 0, nil
	}
	if err := e.file.Sync(); err != nil {
		return 0, fmt.Errorf("sqlite: sync epoch keys: %w: %w", store.ErrUnavailable, err)
	}
	for _, id := range gone {
		e.free = append(e.free, e.slots[id])
		delete(e.slots, id)
	}
	return len(gone), nil
}
