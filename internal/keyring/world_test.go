package keyring_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

// start is when the clock of every world stands at first: half a minute into
// an epoch.
var start = time.Date(2031, 5, 6, 7, 8, 30, 0, time.UTC)

// world is an installation: a store on disk, a KEK in a file, a clock.
type world struct {
	t       testing.TB
	kekFile string
	local   *localkms.KMS
	kms     *watchedKMS
	store   *watchedStore
	clock   *clocktest.Clock
	ring    *keyring.Ring
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := newBlankWorld(t)
	w.ring = w.open(keyring.Options{})
	return w
}

// newBlankWorld is an installation that was never opened.
func newBlankWorld(t testing.TB) *world {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kek.json")
	if _, err := localkms.Generate(path); err != nil {
		t.Fatal(err)
	}
	local, err := localkms.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	watch := &watch{}
	return &world{
		t: t, kekFile: path, local: local, clock: clocktest.New(start),
		kms:   &watchedKMS{KMS: local, watch: watch},
		store: &watchedStore{Store: s, watch: watch},
	}
}

func (w *world) watch() *watch { return w.store.watch }

// open returns a ring of its own on the same installation, as another node has.
func (w *world) open(o keyring.Options) *keyring.Ring {
	w.t.Helper()
	if o.Now == nil {
		o.Now = w.clock.Now
	}
	if o.Wait == nil {
		o.Wait = func(ctx context.Context, d time.Duration) error {
			w.clock.Advance(d)
			return ctx.Err()
		}
	}
	ring, err := keyring.Open(w.t.Context(), w.kms, w.store, o)
	if err != nil {
		w.t.Fatalf("Open = %v", err)
	}
	return ring
}

// tenant adds a tenant with keys and returns its id.
func (w *world) tenant() string {
	w.t.Helper()
	return w.blankTenant(func(store.Keyset) bool { return true })
}

// blankTenant adds a tenant with those of its keys that are chosen.
func (w *world) blankTenant(chosen func(store.Keyset) bool) string {
	w.t.Helper()
	id := uuid.NewString()
	sets, err := w.ring.NewTenant(w.t.Context(), id)
	if err != nil {
		w.t.Fatalf("NewTenant = %v", err)
	}
	w.update(id, func(tx store.Tx) error {
		for _, set := range sets {
			if !chosen(set) {
				continue
			}
			if err := tx.PutKeyset(w.t.Context(), set); err != nil {
				return err
			}
		}
		return tx.InsertTenant(w.t.Context(), store.Tenant{ID: id, Name: "test"})
	})
	return id
}

// status returns what Status says of one tenant.
func (w *world) status(tenant string) (found keyring.TenantStatus) {
	w.t.Helper()
	err := w.ring.Status(w.t.Context(), func(s keyring.TenantStatus) error {
		if s.Tenant == tenant {
			found = s
		}
		return nil
	})
	if err != nil || found.Tenant == "" {
		w.t.Fatalf("Status = %v, found %q", err, found.Tenant)
	}
	return found
}

func (w *world) update(tenant string, fn func(store.Tx) error) {
	w.t.Helper()
	if err := w.store.Store.Update(w.t.Context(), tenant, fn); err != nil {
		w.t.Fatalf("Update = %v", err)
	}
}

func (w *world) keys(tenant string) *keyring.Keys {
	w.t.Helper()
	keys, err := w.ring.For(w.t.Context(), tenant)
	if err != nil {
		w.t.Fatalf("For = %v", err)
	}
	return keys
}

func (w *world) keysets(tenant string) (sets []store.Keyset) {
	w.t.Helper()
	w.update(tenant, func(tx store.Tx) (err error) {
		sets, err = tx.Keysets(w.t.Context())
		return err
	})
	return sets
}

// fill gives a tenant tokens and applications, some of them with nothing sealed.
func (w *world) fill(tenant string, tokens, applications int) {
	w.t.Helper()
	keys := w.keys(tenant)
	w.update(tenant, func(tx store.Tx) error {
		for i := range tokens {
			id := fmt.Sprintf("token-%03d", i)
			token := store.Token{
				ID: id, Type: "token", Containers: []string{"/general/high/"}, Version: 1, Derived: i%2 == 0,
				CreatedAt: store.At(start.Add(time.Duration(i/3) * time.Second)), // some at the same instant
				Data:      mustSeal(w.t, keys, id, keyring.FieldTokenData, "data of "+id),
				Details:   mustSeal(w.t, keys, id, keyring.FieldTokenDetails, "details of "+id),
			}
			if i%5 == 0 {
				token.Expiry.At = store.At(start.Add(-time.Hour)) // expired and not yet swept
			}
			if err := tx.InsertToken(w.t.Context(), token); err != nil {
				return err
			}
		}
		for i := range applications {
			a := store.Application{ID: uuid.NewString(), Type: "private", Version: 1, CreatedAt: store.At(start)}
			if i%2 == 0 {
				a.Rules = mustSeal(w.t, keys, a.ID, keyring.FieldApplicationRules, "rules of "+a.ID)
			}
			if err := tx.InsertApplication(w.t.Context(), a); err != nil {
				return err
			}
		}
		return nil
	})
}

// readable checks that everything that fill sealed opens, and returns the ids
// of the keys that it is sealed with.
func (w *world) readable(tenant string, keys *keyring.Keys) map[uint32]int {
	w.t.Helper()
	used := make(map[uint32]int)
	check := func(record, field, want string, sealed []byte) {
		if got, err := keys.Open(record, field, sealed); err != nil || string(got) != want {
			w.t.Errorf("Open(%s, %s) = %q, %v, want %q", record, field, got, err, want)
		}
		id, err := keyring.KeyID(sealed)
		if err != nil {
			w.t.Errorf("KeyID = %v", err)
		}
		used[id]++
	}
	w.update(tenant, func(tx store.Tx) error {
		tokens, err := tx.Tokens(w.t.Context(), store.TokenFilter{Now: 1, Groups: store.AllGroups()}, store.Page{Limit: 1000})
		if err != nil {
			return err
		}
		for _, t := range tokens {
			check(t.ID, keyring.FieldTokenData, "data of "+t.ID, t.Data)
			check(t.ID, keyring.FieldTokenDetails, "details of "+t.ID, t.Details)
		}
		applications, err := tx.Applications(w.t.Context(), store.ApplicationFilter{}, store.Page{Limit: 1000})
		if err != nil {
			return err
		}
		for _, a := range applications {
			if a.Rules != nil {
				check(a.ID, keyring.FieldApplicationRules, "rules of "+a.ID, a.Rules)
			}
		}
		return nil
	})
	return used
}

func mustSeal(t testing.TB, keys *keyring.Keys, record, field, plaintext string) []byte {
	t.Helper()
	sealed, err := keys.Seal(record, field, []byte(plaintext))
	if err != nil {
		t.Fatalf("Seal = %v", err)
	}
	if len(plaintext) >= 8 && bytes.Contains(sealed, []byte(plaintext)) {
		t.Fatal("the sealed value shows the plaintext")
	}
	return sealed
}

var errKilled = errors.New("killed")

// watch sees every call of store and KMS, and may let it fail.
type watch struct {
	mu    sync.Mutex // guards what follows
	seen  []string
	judge func(call string, number int) error
}

// from begins to count the calls anew; judge decides about each.
func (w *watch) from(judge func(call string, number int) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.judge = nil, judge
}

// count returns how often a call was made since from; every call when it is empty.
func (w *watch) count(call string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, seen := range w.seen {
		if call == "" || seen == call {
			n++
		}
	}
	return n
}

func (w *watch) call(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, name)
	if w.judge == nil {
		return nil
	}
	return w.judge(name, len(w.seen)-1)
}

// failAt fails the call of that number.
func failAt(n int) func(string, int) error {
	return func(_ string, number int) error {
		if number == n {
			return errKilled
		}
		return nil
	}
}

// dieAt fails the call of that number and all that follow.
func dieAt(n int) func(string, int) error {
	return func(_ string, number int) error {
		if number >= n {
			return errKilled
		}
		return nil
	}
}

// failOn fails every call of that name.
func failOn(name string, err error) func(string, int) error {
	return func(call string, _ int) error {
		if call == name {
			return err
		}
		return nil
	}
}

type watchedKMS struct {
	keyring.KMS
	*watch
	slow func() // when set, called in the next Unwrap; set while no call is made
}

func (k *watchedKMS) Wrap(ctx context.Context, plaintext, associated []byte) ([]byte, string, error) {
	if err := k.call("Wrap"); err != nil {
		return nil, "", err
	}
	return k.KMS.Wrap(ctx, plaintext, associated)
}

func (k *watchedKMS) Unwrap(ctx context.Context, id string, wrapped, associated []byte) ([]byte, error) {
	if err := k.call("Unwrap"); err != nil {
		return nil, err
	}
	if k.slow != nil {
		k.slow()
	}
	return k.KMS.Unwrap(ctx, id, wrapped, associated)
}

type watchedStore struct {
	store.Store
	*watch
	slow, slowAfter func() // when set, called before and after a View
}

func (s *watchedStore) View(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	if err := s.call("View"); err != nil {
		return err
	}
	if s.slow != nil {
		s.slow()
	}
	err := s.Store.View(ctx, tenant, func(tx store.Tx) error { return fn(&watchedTx{tx, s.watch}) })
	if s.slowAfter != nil {
		s.slowAfter()
	}
	return err
}

// Update is killed before it begins, in between, or after it has committed.
func (s *watchedStore) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	if err := s.call("Update"); err != nil {
		return err
	}
	if err := s.Store.Update(ctx, tenant, func(tx store.Tx) error { return fn(&watchedTx{tx, s.watch}) }); err != nil {
		return err
	}
	return s.call("Updated")
}

func (s *watchedStore) AllTenants() store.AllTenants {
	return &watchedTenants{s.Store.AllTenants(), s.watch}
}

func (s *watchedStore) EpochKeys() store.EpochKeys {
	return &watchedEpochs{s.Store.EpochKeys(), s.watch}
}

type watchedTx struct {
	store.Tx
	*watch
}

func (x *watchedTx) Keysets(ctx context.Context) ([]store.Keyset, error) {
	if err := x.call("Keysets"); err != nil {
		return nil, err
	}
	return x.Tx.Keysets(ctx)
}

func (x *watchedTx) PutKeyset(ctx context.Context, k store.Keyset) error {
	return errors.Join(x.call("PutKeyset"), x.Tx.PutKeyset(ctx, k))
}

func (x *watchedTx) Mark(ctx context.Context, name string) ([]byte, error) {
	if err := x.call("Mark"); err != nil {
		return nil, err
	}
	return x.Tx.Mark(ctx, name)
}

func (x *watchedTx) PutMark(ctx context.Context, name string, value []byte) error {
	return errors.Join(x.call("PutMark"), x.Tx.PutMark(ctx, name, value))
}

func (x *watchedTx) TenantRow(ctx context.Context) (store.Tenant, error) {
	if err := x.call("TenantRow"); err != nil {
		return store.Tenant{}, err
	}
	return x.Tx.TenantRow(ctx)
}

func (x *watchedTx) Tokens(ctx context.Context, f store.TokenFilter, p store.Page) ([]store.Token, error) {
	if err := x.call("Tokens"); err != nil {
		return nil, err
	}
	return x.Tx.Tokens(ctx, f, p)
}

func (x *watchedTx) ReplaceToken(ctx context.Context, t store.Token) error {
	return errors.Join(x.call("ReplaceToken"), x.Tx.ReplaceToken(ctx, t))
}

func (x *watchedTx) Applications(ctx context.Context, f store.ApplicationFilter, p store.Page) ([]store.Application, error) {
	if err := x.call("Applications"); err != nil {
		return nil, err
	}
	return x.Tx.Applications(ctx, f, p)
}

func (x *watchedTx) ReplaceSession(ctx context.Context, s store.Session) error {
	return errors.Join(x.call("ReplaceSession"), x.Tx.ReplaceSession(ctx, s))
}

func (x *watchedTx) ReplaceParcel(ctx context.Context, p store.Parcel) error {
	return errors.Join(x.call("ReplaceParcel"), x.Tx.ReplaceParcel(ctx, p))
}

func (x *watchedTx) ReplaceDefinition(ctx context.Context, d store.Definition) error {
	return errors.Join(x.call("ReplaceDefinition"), x.Tx.ReplaceDefinition(ctx, d))
}

type watchedTenants struct {
	store.AllTenants
	*watch
}

func (a *watchedTenants) Tenants(ctx context.Context, after string, limit int) ([]store.Tenant, error) {
	if err := a.call("Tenants"); err != nil {
		return nil, err
	}
	return a.AllTenants.Tenants(ctx, after, limit)
}

func (a *watchedTenants) Current(ctx context.Context) error {
	return errors.Join(a.call("Current"), a.AllTenants.Current(ctx))
}

func (a *watchedTenants) Setting(ctx context.Context, name string) ([]byte, error) {
	if err := a.call("Setting"); err != nil {
		return nil, err
	}
	return a.AllTenants.Setting(ctx, name)
}

func (a *watchedTenants) PutSetting(ctx context.Context, name string, value []byte) error {
	if err := a.call("PutSetting"); err != nil {
		return err
	}
	return a.AllTenants.PutSetting(ctx, name, value)
}

type watchedEpochs struct {
	store.EpochKeys
	*watch
}

func (e *watchedEpochs) EpochKey(ctx context.Context, tenant string, epoch int64) ([]byte, error) {
	if err := e.call("EpochKey"); err != nil {
		return nil, err
	}
	return e.EpochKeys.EpochKey(ctx, tenant, epoch)
}

func (e *watchedEpochs) AddEpochKey(ctx context.Context, tenant string, epoch int64, wrapped []byte) ([]byte, error) {
	if err := e.call("AddEpochKey"); err != nil {
		return nil, err
	}
	return e.EpochKeys.AddEpochKey(ctx, tenant, epoch, wrapped)
}

func (e *watchedEpochs) ReplaceEpochKey(ctx context.Context, tenant string, epoch int64, wrapped []byte) error {
	if err := e.call("ReplaceEpochKey"); err != nil {
		return err
	}
	return e.EpochKeys.ReplaceEpochKey(ctx, tenant, epoch, wrapped)
}

func (e *watchedEpochs) EpochKeyList(ctx context.Context, tenant string) ([]int64, error) {
	if err := e.call("EpochKeyList"); err != nil {
		return nil, err
	}
	return e.EpochKeys.EpochKeyList(ctx, tenant)
}

func (e *watchedEpochs) DestroyEpochKeys(ctx context.Context, first, last int64) (int, error) {
	if err := e.call("DestroyEpochKeys"); err != nil {
		return 0, err
	}
	return e.EpochKeys.DestroyEpochKeys(ctx, first, last)
}
