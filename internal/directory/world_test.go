package directory_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

// start is when the clock of every world stands at first.
var start = time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)

// origin is where the requests of tests come from.
var origin = access.Origin{TraceID: "trace-1", Address: "192.0.2.7"}

// world is an installation: a store on disk, a key-encryption key in a file, a
// clock, and the services on them.
type world struct {
	t       testing.TB
	dir     string
	kekFile string
	clock   *clocktest.Clock
	files   *sqlite.Store
	store   *brittle
	ring    *keyring.Ring
	audit   *audit.Service
	sealer  *audit.Sealer
	*directory.Service
}

func newWorld(t testing.TB) *world {
	t.Helper()
	kek := filepath.Join(t.TempDir(), "kek.json")
	if _, err := localkms.Generate(kek); err != nil {
		t.Fatal(err)
	}
	return openWorld(t, filepath.Join(t.TempDir(), "data"), kek)
}

// openWorld opens what is in a folder.
func openWorld(t testing.TB, dir, kek string) *world {
	t.Helper()
	w := &world{t: t, dir: dir, kekFile: kek, clock: clocktest.New(start)}
	var err error
	if w.files, err = sqlite.Open(t.Context(), dir, sqlite.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.files.Close() })
	w.store = &brittle{Store: w.files}
	kms, err := localkms.Open(kek)
	if err != nil {
		t.Fatal(err)
	}
	if w.ring, err = keyring.Open(t.Context(), kms, w.store, keyring.Options{Now: w.clock.Now}); err != nil {
		t.Fatal(err)
	}
	o := audit.Options{Now: w.clock.Now}
	w.audit, w.sealer = audit.New(w.store, w.ring, o), audit.NewSealer(w.store, w.ring, o)
	w.Service = directory.New(w.store, w.ring, w.clock.Now, "test", func(ctx context.Context, tenant string) error {
		_, err := w.sealer.SealTenant(ctx, tenant)
		return err
	})
	return w
}

// close closes the store, so that its files can be looked at.
func (w *world) close() {
	w.t.Helper()
	if err := w.files.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// tenant makes a tenant with a management application.
func (w *world) tenant() (id string, manager directory.Application) {
	w.t.Helper()
	t, applications, err := w.CreateTenant(w.t.Context(), "Tenant", directory.ManagementApplication())
	if err != nil {
		w.t.Fatalf("CreateTenant = %v", err)
	}
	return t.ID, applications[0]
}

// manager is a caller that may do everything there is to manage in a tenant.
func (w *world) manager(tenant string) access.Caller {
	return caller(w.t, tenant, access.Management.Permissions()...)
}

func caller(t testing.TB, tenant string, permissions ...access.Permission) access.Caller {
	t.Helper()
	return accesstest.Application(t, tenant, "the-caller", access.Management, nil, permissions...).WithOrigin(origin)
}

// application makes an application of a tenant.
func (w *world) application(tenant string, in directory.NewApplication) directory.Application {
	w.t.Helper()
	a, err := w.CreateApplication(w.t.Context(), w.manager(tenant), in)
	if err != nil {
		w.t.Fatalf("CreateApplication = %v %v", err, fault.Of(err).Fields())
	}
	return a
}

// private is an application that may do a little.
func private() directory.NewApplication {
	return directory.NewApplication{
		Name: "server", Type: "private", Permissions: []string{"token:create"},
		Rules: []access.Rule{accesstest.Rule("/pci/", access.Mask, access.TokenRead)},
	}
}

// entries returns the log of a tenant, oldest first.
func (w *world) entries(tenant string) (list []store.LogEntry) {
	w.t.Helper()
	err := w.files.View(w.t.Context(), tenant, func(tx store.Tx) error {
		positions, err := tx.LogPositions(w.t.Context(), nil, 100_000)
		for _, at := range positions {
			e, readErr := tx.LogEntry(w.t.Context(), at)
			list, err = append(list, e), errors.Join(err, readErr)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// since returns what a function put into the log of a tenant.
func (w *world) since(tenant string, do func()) []store.LogEntry {
	w.t.Helper()
	w.clock.Advance(time.Second) // so that what follows comes after
	before := len(w.entries(tenant))
	do()
	return w.entries(tenant)[before:]
}

// authenticate tells whether a key opens anything, and fails on what is
// neither yes nor no.
func (w *world) authenticates(key secret.Text) bool {
	w.t.Helper()
	c, err := w.Authenticate(w.t.Context(), key)
	if err != nil && !errors.Is(err, fault.Unauthenticated) {
		w.t.Fatalf("Authenticate = %v", err)
	}
	if (err == nil) != (c.Tenant() != "") {
		w.t.Fatalf("Authenticate gave a caller of tenant %q with error %v", c.Tenant(), err)
	}
	return err == nil
}

// errBroken is how a brittle store fails.
var errBroken = errors.New("broken by the test")

// brittle is a store that fails when a test wants it to.
type brittle struct {
	store.Store

	mu sync.Mutex // guards all below
	// callsLeft, when not nil, is how many more calls get through.
	callsLeft *int
	// lost says that the call that fails has had its effect.
	lost bool
	// logBroken says that no entry can be appended.
	logBroken bool
	// before, when not nil, runs once ahead of the next update.
	before func()
}

// breakAfter lets n calls through and fails the one behind them, and later
// ones too. lost says whether that one has its effect nevertheless.
func (b *brittle) breakAfter(n int, lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.callsLeft, b.lost = &n, lost
}

// mend makes the store whole and tells whether a call had failed.
func (b *brittle) mend() (failed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	failed = b.callsLeft != nil && *b.callsLeft < 0
	b.callsLeft, b.logBroken = nil, false
	return failed
}

// call runs one call of the store's, or fails it before or behind its effect.
func (b *brittle) call(do func() error) error {
	b.mu.Lock()
	fails, behind := false, false
	if b.callsLeft != nil {
		fails, behind = *b.callsLeft <= 0, *b.callsLeft == 0 && b.lost
		*b.callsLeft--
	}
	b.mu.Unlock()
	if fails && !behind {
		return errBroken
	}
	err := do()
	if fails && err == nil {
		return errBroken
	}
	return err
}

func (b *brittle) View(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return b.call(func() error { return b.Store.View(ctx, tenant, fn) })
}

func (b *brittle) Read(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return b.log(ctx, tenant, b.Store.Read, fn)
}

func (b *brittle) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return b.log(ctx, tenant, b.Store.Update, fn)
}

// log runs what appends to the log.
func (b *brittle) log(ctx context.Context, tenant string, run func(context.Context, string, func(store.Tx) error) error, fn func(store.Tx) error) error {
	b.mu.Lock()
	broken, before := b.logBroken, b.before
	b.before = nil
	b.mu.Unlock()
	if before != nil {
		before()
	}
	return b.call(func() error {
		return run(ctx, tenant, func(tx store.Tx) error {
			if broken {
				tx = mute{tx}
			}
			return fn(tx)
		})
	})
}

func (b *brittle) EpochKeys() store.EpochKeys { return brittleEpochs{b.Store.EpochKeys(), b} }

type brittleEpochs struct {
	store.EpochKeys
	b *brittle
}

func (e brittleEpochs) DestroyTenantEpochKeys(ctx context.Context, tenant string) error {
	return e.b.call(func() error { return e.EpochKeys.DestroyTenantEpochKeys(ctx, tenant) })
}

// mute is a transaction that can append no entry.
type mute struct{ store.Tx }

func (mute) AppendLog(context.Context, ...store.LogEntry) error { return errBroken }
