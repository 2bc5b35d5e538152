package storetest

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var readTests = []test{
	{"a read appends to the log and writes nothing else", readOnlyLogs},
	{"a read that fails or panics leaves no entries", failedReads},
	{"a read sees what was acknowledged and not its own entries", readSnapshot},
	{"entries of reads are all or none", readEntries},
	{"a tenant that is missing or being deleted gets no entries of reads", readsForNobody},
	{"a read that has ended reaches nothing", endedRead},
	{"reads beside writers keep every entry", manyReads},
	{"reads see each change as a whole, and never go back", readsGoForward},
	{"what a read returns belongs to its caller", readsOwnRows},
	{"a read that met a deletion is not acknowledged", readMeetsDeletion},
}

// read runs a Read that must succeed.
func (f *fixture) read(tenant string, fn func(ctx context.Context, tx store.Tx) error) {
	f.Helper()
	ctx := f.Context()
	if err := f.Read(ctx, tenant, func(tx store.Tx) error { return fn(ctx, tx) }); err != nil {
		f.Fatalf("Read: got %v, want no error", err)
	}
}

// unread runs a Read that must fail with want and leave no entries.
func (f *fixture) unread(doing, tenant string, want error, fn func(ctx context.Context, tx store.Tx) error) {
	f.Helper()
	before, ctx := f.contents(tenant), f.Context()
	if err := f.Read(ctx, tenant, func(tx store.Tx) error { return fn(ctx, tx) }); !errors.Is(err, want) {
		f.Errorf("%s: got error %v, want %v", doing, err, want)
	}
	f.same("contents after "+doing, f.contents(tenant), before)
}

func readOnlyLogs(f *fixture) {
	f.fill(tenantA)
	before := f.contents(tenantA)
	for _, m := range methods {
		if !m.writes || m.name == "AppendLog" {
			continue
		}
		f.unread(m.name+" in a read", tenantA, store.ErrReadOnly, func(ctx context.Context, tx store.Tx) error {
			if err := tx.AppendLog(ctx, entry(50)); err != nil {
				return err
			}
			_, err := m.call(ctx, tx)
			return err
		})
	}
	f.read(tenantA, func(context.Context, store.Tx) error { return nil })
	f.same("contents after a read without entries", f.contents(tenantA), before)
	f.read(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.AppendLog(ctx, entry(51), entry(52)) })
	f.read(tenantA, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.AppendLog(ctx, entry(53)), tx.AppendLog(ctx, entry(54)))
	})
	c := f.contents(tenantA)
	if len(c.Log) != 6 || c.LogCount != 6 || c.UnsealedN != 5 {
		f.Errorf("after four entries of reads: %d entries, %d counted, %d unsealed; want 6, 6 and 5", len(c.Log), c.LogCount, c.UnsealedN)
	}
	f.sound()
	if err := f.Close(); err != nil {
		f.Fatalf("Close: %v", err)
	}
	again := &fixture{T: f.T, Store: f.again()}
	again.same("contents after a restart", again.contents(tenantA), c)
}

func failedReads(f *fixture) {
	f.fill(tenantA)
	f.unread("a read that fails", tenantA, errStop, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.AppendLog(ctx, entry(50)), errStop)
	})
	before := f.contents(tenantA)
	for range 40 { // more often than there may be connections
		func() {
			defer func() {
				if p := recover(); p != errStop {
					f.Errorf("recovered %v from Read, want %v", p, errStop)
				}
			}()
			_ = f.Read(f.Context(), tenantA, func(tx store.Tx) error {
				_, _ = tx.Token(f.Context(), token(1).ID)
				_ = tx.AppendLog(f.Context(), entry(50))
				panic(errStop)
			})
		}()
	}
	f.same("contents after the panics", f.contents(tenantA), before)
	gone, cancel := context.WithCancel(f.Context())
	cancel()
	if err := f.Read(gone, tenantA, func(tx store.Tx) error { return tx.AppendLog(gone, entry(51)) }); !errors.Is(err, context.Canceled) {
		f.Errorf("Read of a caller that has gone: got error %v, want %v", err, context.Canceled)
	}
	f.same("contents after a caller that had gone", f.contents(tenantA), before)
	f.sound()
}

func readSnapshot(f *fixture) {
	f.fill(tenantA)
	for n := range 20 {
		f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, token(100+n)) })
		f.read(tenantA, func(ctx context.Context, tx store.Tx) error {
			if err := tx.AppendLog(ctx, entry(100+n)); err != nil {
				return err
			}
			if _, err := tx.Token(ctx, token(100+n).ID); err != nil {
				f.Errorf("a read does not see a token that was acknowledged: %v", err)
			}
			counted, err := tx.CountLogs(ctx, store.LogFilter{})
			if err != nil {
				return err
			}
			listed, err := tx.Logs(ctx, store.LogFilter{}, large)
			if counted != int64(2+n) || len(listed) != 2+n {
				f.Errorf("a read sees %d entries and counts %d, want the %d of before", len(listed), counted, 2+n)
			}
			return err
		})
	}
	f.sound()
}

func readEntries(f *fixture) {
	f.fill(tenantA)
	f.unread("a read with an entry that is there", tenantA, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.AppendLog(ctx, entry(50), entry(1))
	})
	before := f.contents(tenantA)
	nine := entry(9)
	nine.ID = "nine"
	if err := f.Read(f.Context(), tenantA, func(tx store.Tx) error { return tx.AppendLog(f.Context(), entry(50), nine) }); err == nil {
		f.Error("Read with an entry whose id is no UUID: got no error")
	}
	f.same("contents afterwards", f.contents(tenantA), before)
	f.sound()
}

func readsForNobody(f *fixture) {
	log := func(ctx context.Context, tx store.Tx) error { return tx.AppendLog(ctx, entry(50)) }
	f.unread("a read of a tenant that is not there", tenantD, store.ErrNoTenant, log)
	f.fill(tenantA)
	f.read(tenantA, log)
	f.update(tenantA, mark)
	f.unread("a read of a tenant that is being deleted", tenantA, store.ErrNoTenant, func(ctx context.Context, tx store.Tx) error { return tx.AppendLog(ctx, entry(51)) })
	f.remove(tenantA)
	f.unread("a read of a tenant that is gone", tenantA, store.ErrNoTenant, log)
	f.sound()
}

func endedRead(f *fixture) {
	f.fill(tenantA)
	before := f.contents(tenantA)
	var ended store.Tx
	f.read(tenantA, func(_ context.Context, tx store.Tx) error { ended = tx; return nil })
	for _, m := range methods {
		if seen, err := m.call(f.Context(), ended); seen != 0 || err == nil {
			f.Errorf("%s on a read that has ended: saw %d rows, error %v; want an error", m.name, seen, err)
		}
	}
	f.same("contents afterwards", f.contents(tenantA), before)
}

func manyReads(f *fixture) {
	tenants := []string{tenantA, tenantB, tenantC}
	var wrote, read [3]atomic.Int64
	inParallel(48, func(i int) {
		of, ctx := i%3, f.Context()
		for n := range 6 {
			id := i*100 + n
			if i%2 == 0 {
				err := f.Update(ctx, tenants[of], func(tx store.Tx) error {
					return errors.Join(tx.InsertToken(ctx, token(id)), tx.AppendLog(ctx, entry(id)))
				})
				if err == nil {
					wrote[of].Add(1)
				} else if !retryable(err) {
					f.Errorf("Update: %v", err)
				}
				continue
			}
			least := wrote[of].Load()
			err := f.Read(ctx, tenants[of], func(tx store.Tx) error {
				if seen, err := tx.CountTokens(ctx, all); err != nil || seen < least {
					return errors.Join(err, errStop)
				}
				return tx.AppendLog(ctx, entry(id), entry(id+50))
			})
			if err == nil {
				read[of].Add(1)
			} else if !retryable(err) {
				f.Errorf("Read: %v", err)
			}
		}
	})
	for i, id := range tenants {
		c, tokens, entries := f.contents(id), wrote[i].Load(), wrote[i].Load()+2*read[i].Load()
		if c.TokenCount != tokens || c.LogCount != entries || int64(len(c.Log)) != entries || c.UnsealedN != entries {
			f.Errorf("tenant %d: %d tokens, %d log entries, %d counted, %d unsealed; want %d and %d of each", i, c.TokenCount, len(c.Log), c.LogCount, c.UnsealedN, tokens, entries)
		}
		if tokens == 0 || read[i].Load() == 0 {
			f.Errorf("tenant %d: %d updates and %d reads went through", i, tokens, read[i].Load())
		}
	}
	f.sound()
}

// readMeetsDeletion deletes the tenant between the snapshot of a read and its
// entries.
func readMeetsDeletion(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, token(1)) })
	err := f.Read(f.Context(), tenantA, func(tx store.Tx) error {
		if _, err := tx.Token(f.Context(), token(1).ID); err != nil {
			return err
		}
		for _, change := range []func(store.Tx) error{
			func(tx store.Tx) error { return mark(f.Context(), tx) },
			func(tx store.Tx) error { _, err := tx.DeleteTenantRows(f.Context(), 1000); return err },
		} {
			if err := f.Update(f.Context(), tenantA, change); err != nil {
				return err
			}
		}
		if _, err := tx.Token(f.Context(), token(1).ID); err != nil {
			f.Errorf("the snapshot has changed: %v", err)
		}
		return tx.AppendLog(f.Context(), entry(50))
	})
	if !errors.Is(err, store.ErrNoTenant) {
		f.Errorf("Read: got error %v, want %v", err, store.ErrNoTenant)
	}
	f.remove(tenantA)
	f.same("what is left", f.contents(tenantA), contents{})
	f.sound()
}

// readsGoForward changes two tokens together, again and again, and now and then
// removes and inserts them. Whoever reads both sees one version of them, and none
// that is older than what was acknowledged before.
func readsGoForward(f *fixture) {
	ctx, rounds := f.Context(), 60
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.InsertToken(ctx, token(1)), tx.InsertToken(ctx, token(2)))
	})
	var acknowledged atomic.Int64 // counts the changes; a token says by which it was written
	done := make(chan struct{})
	change := func(n int) error {
		return f.Update(ctx, tenantA, func(tx store.Tx) error {
			for id := 1; id <= 2; id++ {
				t := token(id)
				t.Data = []byte(strconv.Itoa(n))
				old, err := tx.Token(ctx, t.ID)
				if err != nil {
					return err
				}
				if n%7 == 0 {
					err = errors.Join(tx.DeleteToken(ctx, t.ID), tx.InsertToken(ctx, t))
				} else {
					t.Version = old.Version + 1
					err = tx.ReplaceToken(ctx, t)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := change(0); err != nil {
		f.Fatalf("Update: %v", err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		defer close(done)
		for n := 1; n <= rounds; n++ {
			if err := change(n); err == nil {
				acknowledged.Store(int64(n))
			} else if !retryable(err) {
				f.Errorf("Update: %v", err)
				return
			}
		}
	})
	for i, run := range []func(context.Context, string, func(store.Tx) error) error{f.Read, f.View, f.Read, f.View} {
		running.Go(func() {
			last := 0
			for n, ended := 0, false; !ended; n++ {
				select {
				case <-done:
					ended = true // once more
				default:
				}
				least := max(int(acknowledged.Load()), last)
				var versions [2]int
				err := run(ctx, tenantA, func(tx store.Tx) error {
					for j := range versions {
						t, err := tx.Token(ctx, token(1+(i/2+j)%2).ID)
						if err != nil {
							return err
						}
						versions[j], _ = strconv.Atoi(string(t.Data))
					}
					return nil
				})
				if err != nil {
					f.Errorf("a read of two tokens: %v", err)
					return
				}
				if versions[0] != versions[1] || versions[0] < least {
					f.Errorf("a read saw the versions %v, want one of both, and %d at least", versions, least)
					return
				}
				last = versions[0]
			}
		})
	}
	running.Wait()
	f.sound()
}

func readsOwnRows(f *fixture) {
	f.fill(tenantA)
	for range 3 {
		f.read(tenantA, func(ctx context.Context, tx store.Tx) error {
			t, err := tx.Token(ctx, token(1).ID)
			if err != nil {
				return err
			}
			f.same("the token", t, token(1))
			clear(t.Data)
			clear(t.Details)
			clear(t.ShortLived)
			clear(t.Containers)
			clear(t.Terms[0])
			clear(t.Terms)
			return nil
		})
	}
}
