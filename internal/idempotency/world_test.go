package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// start is when the clock of every world stands at first: on a full minute, so
// that an epoch begins with it.
var start = time.Date(2031, 5, 6, 7, 8, 0, 0, time.UTC)

// world is an installation with one tenant and any number of nodes.
type world struct {
	t      *testing.T
	kms    keyring.KMS
	clock  *clocktest.Clock
	tenant string
	// open opens the store as a node does: the same for all that are in one
	// process with an embedded store, a connection of its own otherwise.
	open func() store.Store
	*node
}

// node is one server.
type node struct {
	*idempotency.Service
	store  *brittle
	ring   *keyring.Ring
	tokens *token.Service
}

// onBoth runs a test on either store.
func onBoth(t *testing.T, test func(t *testing.T, w *world)) {
	t.Run("sqlite", func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		test(t, newWorld(t, func() store.Store { return s }))
	})
	t.Run("postgres", func(t *testing.T) {
		url := pgtest.Database(t)
		test(t, newWorld(t, func() store.Store {
			s, err := postgres.Open(t.Context(), url, postgres.Options{Connections: 8})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		}))
	})
}

func newWorld(t *testing.T, open func() store.Store) *world {
	t.Helper()
	w := &world{t: t, clock: clocktest.New(start), open: open}
	kek := filepath.Join(t.TempDir(), "kek.json")
	_, err := localkms.Generate(kek)
	if err != nil {
		t.Fatal(err)
	}
	if w.kms, err = localkms.Open(kek); err != nil {
		t.Fatal(err)
	}
	w.node = w.newNode()
	w.moveToNewTenant()
	return w
}

// moveToNewTenant makes a tenant, which all else is about from then on.
func (w *world) moveToNewTenant() {
	w.t.Helper()
	w.tenant = uuid.NewString()
	sets, err := w.ring.NewTenant(w.t.Context(), w.tenant)
	if err != nil {
		w.t.Fatal(err)
	}
	w.change(func(tx store.Tx) error {
		for _, set := range sets {
			err = errors.Join(err, tx.PutKeyset(w.t.Context(), set))
		}
		return errors.Join(err, tx.InsertTenant(w.t.Context(), store.Tenant{ID: w.tenant, Name: "test"}))
	})
}

func (w *world) newNode() *node {
	w.t.Helper()
	n := &node{store: &brittle{Store: w.open()}}
	var err error
	n.ring, err = keyring.Open(w.t.Context(), w.kms, n.store, keyring.Options{
		Now: w.clock.Now, CacheFor: time.Nanosecond, Wait: func(context.Context, time.Duration) error { return nil },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	n.tokens = token.New(n.store, n.ring, token.Options{Now: w.clock.Now})
	n.Service = idempotency.New(n.store, n.ring, w.clock.Now, n.tokens.Replay)
	return n
}

func (w *world) change(fn func(store.Tx) error) {
	w.t.Helper()
	if err := w.store.Store.Update(w.t.Context(), w.tenant, fn); err != nil {
		w.t.Fatal(err)
	}
}

// caller is a private application that may make tokens.
func (w *world) caller(application string) access.Caller {
	return accesstest.Caller(w.t, w.tenant, application, access.TokenCreate, access.TokenRead)
}

// parcels returns the rows that are kept.
func (w *world) parcels() (list []store.Parcel) {
	w.t.Helper()
	err := w.store.Store.View(w.t.Context(), w.tenant, func(tx store.Tx) (err error) {
		list, err = tx.Parcels(w.t.Context(), store.ParcelFilter{}, store.Page{Limit: 1000})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// replays returns the log entries of stored answers that were given out, each
// as its outcome, operation, entity and message.
func (w *world) replays() (list []string) {
	w.t.Helper()
	err := w.store.Store.View(w.t.Context(), w.tenant, func(tx store.Tx) error {
		entries, err := tx.Logs(w.t.Context(), store.LogFilter{}, store.Page{Limit: 1000})
		for _, e := range entries {
			if strings.HasSuffix(e.Message, "replayed") {
				list = append(list, strings.Join([]string{e.Outcome, e.Operation, e.EntityType, e.EntityID, e.Message, "by", e.ActorID, "from", e.ClientAddress}, " "))
			}
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// made counts the tokens that there are.
func (w *world) made() (n int64) {
	w.t.Helper()
	err := w.store.Store.View(w.t.Context(), w.tenant, func(tx store.Tx) (err error) {
		n, err = tx.CountTokens(w.t.Context(), store.TokenFilter{Now: 1, Groups: store.AllGroups()})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// app is the application that calls, by a name that no random text holds.
const app = "Planted-Application-3X"

// creating is a request to make a token under a key.
func creating(key string) idempotency.Request {
	return idempotency.Request{
		Method: "POST", Path: "/tokens", Key: key, Entity: "token",
		Require: func(c access.Caller) error { return c.RequireSomewhere(access.TokenCreate) },
	}
}

// begin starts a request that must be a new one.
func (w *world) begin(n *node, key string) *idempotency.Attempt {
	w.t.Helper()
	answer, a, err := n.Begin(w.t.Context(), w.caller(app), creating(key))
	if answer != nil || err != nil {
		w.t.Fatalf("Begin = %v, %v; want an attempt", answer, err)
	}
	return a
}

// keep keeps an answer in a transaction of its own.
func (n *node) keep(ctx context.Context, a *idempotency.Attempt, tenant string, answer response.Response, epoch *keyring.EpochKey) error {
	return n.store.Update(ctx, tenant, func(tx store.Tx) error { return a.Keep(ctx, tx, answer, epoch) })
}

// mustKeep goes through a whole request.
func (w *world) mustKeep(n *node, key string, answer response.Response) {
	w.t.Helper()
	a := w.begin(n, key)
	if err := n.keep(w.t.Context(), a, w.tenant, answer, nil); err != nil {
		w.t.Fatalf("Keep = %v", err)
	}
	w.release(a)
}

func (w *world) release(a *idempotency.Attempt) {
	w.t.Helper()
	if err := a.Release(w.t.Context()); err != nil {
		w.t.Fatalf("Release = %v", err)
	}
}

// find asks for an answer as a later request does.
func (w *world) find(n *node, key string) (*response.Response, error) {
	w.t.Helper()
	answer, a, err := n.Begin(w.t.Context(), w.caller(app), creating(key))
	if a != nil {
		w.release(a)
	}
	return answer, err
}

// create makes a token under a key, through the service that makes tokens, and
// returns the body that its caller gets.
func (n *node) create(ctx context.Context, c access.Caller, key string, note string) (string, error) {
	earlier, a, err := n.Begin(ctx, c, creating(key))
	if err != nil {
		return "", err
	}
	if earlier != nil {
		return string(earlier.Body), nil
	}
	defer func() { _ = a.Release(ctx) }()
	body, err := jsonvalue.Parse(fmt.Appendf(nil, `{"type":"token","data":"x","metadata":{"by":%q}}`, note))
	if err != nil {
		return "", err
	}
	in, err := token.ParseRequest(body)
	if err != nil {
		return "", err
	}
	var out string
	_, err = n.tokens.Create(ctx, c, in, func(tx store.Tx, made token.Token) error {
		out = string(made.Object().AppendJSON(nil))
		return a.Keep(ctx, tx, response.Response{Status: 201, Body: []byte(out), Tokens: made.Shown()}, nil)
	})
	if err != nil {
		earlier, lookErr := a.Find(ctx)
		if earlier != nil {
			return string(earlier.Body), lookErr
		}
		return "", err
	}
	return out, nil
}

// errBroken is how a brittle store fails.
var errBroken = errors.New("broken by the test")

// brittle is a store that fails when a test wants it to, in one part of a
// transaction.
type brittle struct {
	store.Store

	mu     sync.Mutex // guards what follows
	broken string     // the name of what fails
	err    error      // how it fails
}

func (b *brittle) breaks(name string) { b.breaksWith(name, errBroken) }

func (b *brittle) breaksWith(name string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken, b.err = name, err
}

func (b *brittle) View(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return b.Store.View(ctx, tenant, func(tx store.Tx) error { return fn(brittleTx{tx, b}) })
}

func (b *brittle) Read(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return b.Store.Read(ctx, tenant, func(tx store.Tx) error { return fn(brittleTx{tx, b}) })
}

func (b *brittle) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	return b.Store.Update(ctx, tenant, func(tx store.Tx) error { return fn(brittleTx{tx, b}) })
}

type brittleTx struct {
	store.Tx
	b *brittle
}

func (t brittleTx) fails(name string) error {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if t.b.broken == name {
		return t.b.err
	}
	return nil
}

func (t brittleTx) Token(ctx context.Context, id string) (store.Token, error) {
	if err := t.fails("Token"); err != nil {
		return store.Token{}, err
	}
	return t.Tx.Token(ctx, id)
}

func (t brittleTx) AppendLog(ctx context.Context, entries ...store.LogEntry) error {
	if err := t.fails("AppendLog"); err != nil {
		return err
	}
	return t.Tx.AppendLog(ctx, entries...)
}

func (t brittleTx) Parcel(ctx context.Context, kind, id string) (store.Parcel, error) {
	if err := t.fails("Parcel"); err != nil {
		return store.Parcel{}, err
	}
	return t.Tx.Parcel(ctx, kind, id)
}

func (t brittleTx) DeleteParcel(ctx context.Context, kind, id string) error {
	if err := t.fails("DeleteParcel"); err != nil {
		return err
	}
	return t.Tx.DeleteParcel(ctx, kind, id)
}

func (t brittleTx) InsertParcel(ctx context.Context, p store.Parcel) error {
	if err := t.fails("InsertParcel"); err != nil {
		return err
	}
	return t.Tx.InsertParcel(ctx, p)
}

func (t brittleTx) Keysets(ctx context.Context) ([]store.Keyset, error) {
	if err := t.fails("Keysets"); err != nil {
		return nil, err
	}
	return t.Tx.Keysets(ctx)
}
