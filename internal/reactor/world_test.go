package reactor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/egress"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/reactor"
	"github.com/tokenkeep/tokenkeep/internal/sandbox"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/token"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// start is when the clock of every world stands at first: on a full minute, so
// that an epoch begins with it.
var start = time.Date(2031, 5, 6, 7, 8, 0, 0, time.UTC)

const visa = "4242424242424242"

// The sandbox that all tests share: programs are told apart by their ids.
var (
	boxOnce sync.Once
	box     *sandbox.Sandbox
	boxErr  error
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return // this process starts others for code
	}
	code := pgtest.Run(m)
	if box != nil {
		_ = box.Close()
	}
	os.Exit(code)
}

func sharedBox(t testing.TB) *sandbox.Sandbox {
	t.Helper()
	built := runtimetest.Find(t)
	boxOnce.Do(func() {
		box, boxErr = sandbox.New(context.Background(), sandbox.Settings{
			Runtime: built.Folder, Level: sandbox.Reduced,
			Dial: func(ctx context.Context, _, host string, port int) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
			},
		})
	})
	if boxErr != nil {
		t.Fatal(boxErr)
	}
	return box
}

// world is an installation with one tenant, its applications, and a node.
type world struct {
	t         *testing.T
	store     store.Store
	ring      *keyring.Ring
	kms       *localkms.KMS
	clock     *clocktest.Clock
	directory *directory.Service
	tokens    *token.Service
	egress    *egress.Egress
	node      *node

	tenant  string
	manager access.Caller
	user    access.Caller // may make, use and reveal tokens
	since   store.Time    // from when on entries are looked at
}

// onBoth runs a test on both stores.
func onBoth(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		test(t, newWorld(t, s))
	})
	t.Run("postgres", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), pgtest.Database(t), postgres.Options{Connections: 8})
		if err != nil {
			t.Fatal(err)
		}
		test(t, newWorld(t, s))
	})
}

// onOne runs a test of what no store decides.
func onOne(t *testing.T) *world {
	t.Helper()
	s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return newWorld(t, s)
}

func newWorld(t *testing.T, s store.Store) *world {
	t.Helper()
	t.Cleanup(func() { _ = s.Close() })
	w := &world{t: t, store: s, clock: clocktest.New(start)}
	path := filepath.Join(t.TempDir(), "kek.json")
	_, err := localkms.Generate(path)
	w.must(err)
	w.kms, err = localkms.Open(path)
	w.must(err)
	w.ring = w.newRing()
	w.directory = directory.New(s, w.ring, w.clock.Now, "test", func(context.Context, string) error { return nil })
	w.tokens = token.New(s, w.ring, token.Options{Now: w.clock.Now})
	w.egress, err = egress.New(egress.Settings{Dev: true})
	w.must(err)
	t.Cleanup(w.egress.Close)
	made, applications, err := w.directory.CreateTenant(t.Context(), "Tenant", directory.DemoApplications()...)
	w.must(err)
	w.tenant = made.ID
	w.manager = w.acting(applications[0].ID)
	w.user = w.acting(applications[1].ID)
	w.node = w.newNode()
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// newRing is a ring as another node has it.
func (w *world) newRing() *keyring.Ring {
	w.t.Helper()
	r, err := keyring.Open(w.t.Context(), w.kms, w.store, keyring.Options{Now: w.clock.Now, CacheFor: 5 * time.Millisecond})
	w.must(err)
	return r
}

func (w *world) acting(application string) access.Caller {
	w.t.Helper()
	c, err := w.directory.Acting(w.t.Context(), w.tenant, application, "")
	w.must(err)
	return c.WithOrigin(access.Origin{TraceID: "trace-1"})
}

// parts are those of a node over the world's store. Code calls nothing here.
func (w *world) parts() reactor.Parts {
	return reactor.Parts{
		Store: w.store, Ring: w.ring, Tokens: w.tokens, Acting: w.directory.Acting, Secrets: w.directory.CallbackSecrets, Problem: httpapi.ProblemOf,
		Scripts: script.New(sharedBox(w.t), func(ctx context.Context, tenant, application string) (access.Caller, error) {
			return w.directory.Acting(ctx, tenant, application, "")
		}, func(access.Caller) http.Handler { return http.NotFoundHandler() }),
		CheckURL:  func(address string) error { _, err := w.egress.Check(address); return err },
		Transport: w.egress.Transport,
	}
}

// node is a service with the queue that does its jobs.
type node struct {
	*reactor.Service
	*jobs.Queue
}

func newNode(p reactor.Parts, o reactor.Options) *node {
	p.Jobs = jobs.New(p.Store, jobs.Options{Now: o.Now})
	s := reactor.New(p, o)
	p.Jobs.SetKinds(s.Kinds()...)
	return &node{s, p.Jobs}
}

func (w *world) newNode() *node {
	return newNode(w.parts(), reactor.Options{Now: w.clock.Now})
}

func value(t testing.TB, text string) jsonvalue.Value {
	t.Helper()
	v, err := jsonvalue.Parse([]byte(text))
	if err != nil {
		t.Fatalf("parse %s: %v", text, err)
	}
	return v
}

// define makes a reactor and returns its id.
func (w *world) define(code string) string {
	w.t.Helper()
	body, err := json.Marshal(map[string]any{"name": "r", "code": code, "configuration": map[string]string{}})
	w.must(err)
	r, err := w.node.Create(w.t.Context(), w.manager, value(w.t, string(body)))
	w.must(err)
	return r.ID
}

// echo is code that returns its arguments.
const echo = `module.exports = async (req) => ({ raw: req.args })`

// token makes a token and returns its id.
func (w *world) token(request string) string {
	w.t.Helper()
	r, err := token.ParseRequest(value(w.t, request))
	w.must(err)
	made, err := w.tokens.Create(w.t.Context(), w.user, r)
	w.must(err)
	return made.ID
}

// ask asks for a run that nobody waits for.
func (w *world) ask(id, args, callback string) string {
	w.t.Helper()
	return w.askAs(w.user, id, args, callback)
}

func (w *world) askAs(c access.Caller, id, args, callback string) string {
	w.t.Helper()
	request, err := w.node.Start(w.t.Context(), c, id, reactor.Invocation{Args: value(w.t, args), Callback: callback, Timeout: time.Minute})
	w.must(err)
	return request
}

// do lets a node do what is due, which must be this much.
func (w *world) do(node *node, want int) {
	w.t.Helper()
	if n, err := node.DoDue(w.t.Context()); err != nil || n != want {
		w.t.Fatalf("DoDue = %d, %v, want %d", n, err, want)
	}
}

// parcels returns the rows of a kind.
func (w *world) parcels(kind string) (list []store.Parcel) {
	w.t.Helper()
	w.must(w.store.View(w.t.Context(), w.tenant, func(tx store.Tx) (err error) {
		list, err = tx.Parcels(w.t.Context(), store.ParcelFilter{Kind: kind}, store.Page{Limit: 1000})
		return err
	}))
	return list
}

// die does to a row what a node does that claims it and is killed.
func (w *world) die(kind, id string) {
	w.t.Helper()
	w.must(w.store.Update(w.t.Context(), w.tenant, func(tx store.Tx) error {
		p, err := tx.Parcel(w.t.Context(), kind, id)
		if err != nil {
			return err
		}
		p.DueAt, p.Attempts, p.Version = store.At(w.clock.Now().Add(15*time.Second)), p.Attempts+1, p.Version+1
		return tx.ReplaceParcel(w.t.Context(), p)
	}))
}

// secrets are the callback secrets of the tenant, as receivers know them.
func (w *world) secrets() []secret.Text {
	w.t.Helper()
	list, err := w.directory.CallbackSecrets(w.t.Context(), w.tenant)
	w.must(err)
	return list
}

// delivery is what a receiver was sent.
type delivery struct {
	header http.Header
	body   string
}

// receiver takes deliveries, on loopback.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex // guards what follows
	got    []delivery
	answer func(http.ResponseWriter, *http.Request) // nil: 204
}

func newReceiver(t testing.TB) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		r.mu.Lock()
		r.got = append(r.got, delivery{q.Header.Clone(), string(b)})
		answer := r.answer
		r.mu.Unlock()
		if answer != nil {
			answer(w, q)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answers(with func(http.ResponseWriter, *http.Request)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = with
}

func refuse(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }

// take returns what came since the last time.
func (r *receiver) take() []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := r.got
	r.got = nil
	return got
}

// one returns the one delivery that came.
func (r *receiver) one(t testing.TB) delivery {
	t.Helper()
	got := r.take()
	if len(got) != 1 {
		t.Fatalf("the receiver got %d deliveries, want 1", len(got))
	}
	return got[0]
}

// problem fails unless a body is an error of that status with those words.
func problem(t testing.TB, body string, status int, words string) {
	t.Helper()
	var p struct {
		Title, Detail string
		Status        int
	}
	if err := json.Unmarshal([]byte(body), &p); err != nil || p.Status != status || !strings.Contains(p.Detail, words) || p.Title == "" {
		t.Errorf("the body is %s (%v), want an error of status %d with %q", body, err, status, words)
	}
}

// gate is a place that code goes to, and where it waits until it is opened.
type gate struct {
	*httptest.Server
	came chan struct{}
	open chan struct{}
}

func newGate(t testing.TB) *gate {
	t.Helper()
	g := &gate{came: make(chan struct{}, 1000), open: make(chan struct{})}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		g.came <- struct{}{}
		select {
		case <-g.open:
		case <-q.Context().Done():
		}
	}))
	t.Cleanup(func() {
		g.CloseClientConnections() // of a test that failed before it opened the gate
		g.Close()
	})
	return g
}

// code goes through the gate and returns its arguments.
func (g *gate) code() string {
	return `const http = require('http');
module.exports = async (req) => {
  await new Promise((done, failed) => http.get('` + g.URL + `', (r) => { r.resume(); r.on('end', done) }).on('error', failed));
  return { raw: req.args };
}`
}

// absent fails when a value stands in a row.
func (w *world) absent(what string, values ...string) {
	w.t.Helper()
	for _, p := range w.parcels("") {
		for _, v := range values {
			if bytes.Contains(p.Contents, []byte(v)) {
				w.t.Errorf("%s: a parcel of kind %s holds %q in clear", what, p.Kind, v)
			}
		}
	}
}

func (w *world) application(class access.ApplicationType, permissions ...string) directory.Application {
	w.t.Helper()
	a, err := w.directory.CreateApplication(w.t.Context(), w.manager, directory.NewApplication{Name: "a", Type: string(class), Permissions: permissions})
	w.must(err)
	return a
}

// stranger is an application of another tenant.
func (w *world) stranger() access.Caller {
	w.t.Helper()
	made, _, err := w.directory.CreateTenant(w.t.Context(), "Other")
	w.must(err)
	return accesstest.Caller(w.t, made.ID, access.NewID(), access.TokenUse)
}

func is(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}
