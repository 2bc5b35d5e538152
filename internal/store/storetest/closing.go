package storetest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var installationTests = []test{
	{"settings are kept and replaced", settings},
	{"the clock is the backend's own or there is none", ownClock},
	{"backups are whole, where the store makes them", backups},
}

func ownClock(f *fixture) {
	at, err := f.Now(f.Context())
	if noClock := errors.Is(err, store.ErrNoClock); !noClock && err != nil || noClock != at.IsZero() {
		f.Errorf("Now = %v, %v; want a time or %v", at, err, store.ErrNoClock)
	}
}

func backups(f *fixture) {
	b := f.Backups()
	if b == nil {
		return // the backend has its own tools
	}
	f.people(tenantA)
	path := filepath.Join(f.TempDir(), "copy")
	contents, err := b.Backup(f.Context(), path, nil)
	if err != nil || contents.Schema == 0 || contents.Rows["tenants"] != 1 {
		f.Errorf("Backup = %+v, %v; want one tenant", contents, err)
	}
	if _, err := b.Backup(f.Context(), path, nil); err == nil {
		f.Error("a second Backup wrote over the first")
	}
}

func settings(f *fixture) {
	ctx, a := f.Context(), f.AllTenants()
	if _, err := a.Setting(ctx, "kek"); !errors.Is(err, store.ErrNotFound) {
		f.Errorf("Setting that is not there: got error %v, want %v", err, store.ErrNotFound)
	}
	put := func(name, value string) {
		if err := a.PutSetting(ctx, name, []byte(value)); err != nil {
			f.Errorf("PutSetting(%s): %v", name, err)
		}
	}
	put("kek", "one")
	put("clean_stop", "a name that a backend may use itself")
	put("kek", "two\x00\xff")
	if err := f.Close(); err != nil {
		f.Fatalf("Close: %v", err)
	}
	s := f.again()
	for name, want := range map[string]string{"kek": "two\x00\xff", "clean_stop": "a name that a backend may use itself"} {
		got, err := s.AllTenants().Setting(ctx, name)
		if string(got) != want || err != nil {
			f.Errorf("Setting(%s) after a restart: got %q, error %v; want %q", name, got, err, want)
		}
	}
}

var closingTests = []test{
	{"everything survives a restart", survivesRestart},
	{"a closed store is unavailable", closedStore},
	{"what was acknowledged while the store closed is there afterwards", closeUnderTraffic},
	{"closing waits for a running view", closeWaits},
}

func survivesRestart(f *fixture) {
	f.fill(tenantA)
	f.fill(tenantB)
	wantA, wantB := f.contents(tenantA), f.contents(tenantB)
	if err := f.Close(); err != nil {
		f.Fatalf("Close: %v", err)
	}
	again := &fixture{T: f.T, Store: f.again()}
	again.same("contents after a restart", again.contents(tenantA), wantA)
	again.same("contents of the other after a restart", again.contents(tenantB), wantB)
	again.sound()
}

func closedStore(f *fixture) {
	f.fill(tenantA)
	f.addEpoch(tenantA, 1, "key")
	if err := f.Close(); err != nil {
		f.Fatalf("Close: %v", err)
	}
	ctx, a, keys := f.Context(), f.AllTenants(), f.EpochKeys()
	untouched := func(store.Tx) error { f.Error("the function was run"); return nil }
	for name, call := range map[string]func() error{
		"View":                   func() error { return f.View(ctx, tenantA, untouched) },
		"Read":                   func() error { return f.Read(ctx, tenantA, untouched) },
		"Update":                 func() error { return f.Update(ctx, tenantA, untouched) },
		"Ready":                  func() error { return f.Ready(ctx) },
		"Check":                  func() error { _, err := f.Check(ctx, nil); return err },
		"Tenants":                func() error { _, err := a.Tenants(ctx, "", 10); return err },
		"ExpiredTokens":          func() error { _, err := a.ExpiredTokens(ctx, day, 0, 10); return err },
		"OutdatedTokens":         func() error { _, err := a.OutdatedTokens(ctx, "", 0, 10); return err },
		"ExpiredSessions":        func() error { _, err := a.ExpiredSessions(ctx, day, 0, 10); return err },
		"ExpiredParcels":         func() error { _, err := a.ExpiredParcels(ctx, day, 0, 10); return err },
		"DueParcels":             func() error { _, _, err := a.DueParcels(ctx, store.ParcelJob, day, "", 10, 10); return err },
		"DueKinds":               func() error { _, err := a.DueKinds(ctx); return err },
		"UnsealedTenants":        func() error { _, err := a.UnsealedTenants(ctx, "", 10); return err },
		"Setting":                func() error { _, err := a.Setting(ctx, "x"); return err },
		"PutSetting":             func() error { return a.PutSetting(ctx, "x", []byte("y")) },
		"EpochKey":               func() error { _, err := keys.EpochKey(ctx, tenantA, 1); return err },
		"EpochKey of none":       func() error { _, err := keys.EpochKey(ctx, tenantA, 2); return err },
		"AddEpochKey":            func() error { _, err := keys.AddEpochKey(ctx, tenantA, 2, []byte("w")); return err },
		"AddEpochKey again":      func() error { _, err := keys.AddEpochKey(ctx, tenantA, 1, []byte("w")); return err },
		"ReplaceEpochKey":        func() error { return keys.ReplaceEpochKey(ctx, tenantA, 1, []byte("w")) },
		"EpochKeyList":           func() error { _, err := keys.EpochKeyList(ctx, tenantA); return err },
		"DestroyEpochKeys":       func() error { _, err := keys.DestroyEpochKeys(ctx, 100, 200); return err },
		"DestroyTenantEpochKeys": func() error { return keys.DestroyTenantEpochKeys(ctx, tenantA) },
	} {
		if err := call(); !errors.Is(err, store.ErrUnavailable) {
			f.Errorf("%s after Close: got error %v, want %v", name, err, store.ErrUnavailable)
		}
	}
	if err := f.Close(); err != nil {
		f.Errorf("Close again: got error %v, want none", err)
	}
}

func closeUnderTraffic(f *fixture) {
	f.people(tenantA)
	var writers sync.WaitGroup
	var mu sync.Mutex
	acknowledged := map[int]bool{}
	var begun atomic.Int64
	warm := make(chan struct{})
	var once sync.Once // whatever fails, the test ends
	for i := range 12 {
		writers.Go(func() {
			for n := range 2000 {
				id := i*10_000 + n
				err := f.Update(f.Context(), tenantA, func(tx store.Tx) error {
					return errors.Join(tx.InsertToken(f.Context(), token(id)), tx.AppendLog(f.Context(), entry(id)))
				})
				if err != nil {
					if !errors.Is(err, store.ErrUnavailable) {
						f.Errorf("Update while the store closes: got error %v, want %v", err, store.ErrUnavailable)
						once.Do(func() { close(warm) })
					}
					return
				}
				mu.Lock()
				acknowledged[id] = true
				mu.Unlock()
				if begun.Add(1) == 40 {
					once.Do(func() { close(warm) })
				}
			}
		})
		writers.Go(func() {
			for range 2000 {
				err := f.View(f.Context(), tenantA, func(tx store.Tx) error {
					_, err := tx.CountTokens(f.Context(), all)
					return err
				})
				if err != nil {
					if !errors.Is(err, store.ErrUnavailable) {
						f.Errorf("View while the store closes: got error %v, want %v", err, store.ErrUnavailable)
					}
					return
				}
			}
		})
	}
	<-warm
	inParallel(2, func(int) {
		if err := f.Close(); err != nil {
			f.Errorf("Close: %v", err)
		}
	})
	writers.Wait()
	again := &fixture{T: f.T, Store: f.again()}
	c := again.contents(tenantA)
	there := map[string]bool{}
	for _, t := range c.Tokens {
		there[t.ID] = true
	}
	for id := range acknowledged {
		if !there[token(id).ID] {
			f.Errorf("a token that was acknowledged is gone")
		}
	}
	f.same("tokens and log entries", fmt.Sprint(len(c.Tokens), c.TokenCount, c.LogCount), fmt.Sprint(len(acknowledged), len(acknowledged), len(acknowledged)))
	again.sound()
}

func closeWaits(f *fixture) {
	f.fill(tenantA)
	inside, leave, closed := make(chan struct{}), make(chan struct{}), make(chan error)
	viewed := make(chan error, 1)
	go func() {
		viewed <- f.View(f.Context(), tenantA, func(tx store.Tx) error {
			close(inside)
			<-leave
			_, err := tx.Token(context.Background(), token(1).ID)
			return err
		})
	}()
	<-inside
	go func() { closed <- f.Close() }()
	for refused := false; !refused; { // what comes later is
		err := f.View(f.Context(), tenantA, func(store.Tx) error { return nil })
		refused = errors.Is(err, store.ErrUnavailable)
	}
	for range 1000 {
		runtime.Gosched() // lets it come as far as it can
	}
	select {
	case err := <-closed:
		f.Errorf("Close returned %v while a view was running", err)
		closed = nil
	default:
	}
	close(leave)
	if err := <-viewed; err != nil {
		f.Errorf("a view that was running when the store closed: %v", err)
	}
	if closed != nil {
		if err := <-closed; err != nil {
			f.Errorf("Close: %v", err)
		}
	}
}
