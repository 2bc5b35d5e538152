package webhook_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/event"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/webhook"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// fixture is a store with two tenants, a clock, and a receiver.
type fixture struct {
	*testing.T
	store  store.Store
	ring   *keyring.Ring
	clock  *clocktest.Clock
	tenant string
	other  string
	node   *node

	mu       sync.Mutex // guards what follows
	answer   func(m message) int
	messages []message
	log      bytes.Buffer
}

// message is what a receiver got.
type message struct {
	url       string
	id        string
	stamp     string
	signature string
	body      string
	event     api.Event
}

// onBoth runs a test on both stores.
func onBoth(t *testing.T, test func(f *fixture)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(onSQLite(t)) })
	t.Run("postgres", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), pgtest.Database(t), postgres.Options{Connections: 8})
		if err != nil {
			t.Fatal(err)
		}
		test(newFixture(t, s))
	})
}

// onSQLite is for tests of what no store decides.
func onSQLite(t *testing.T) *fixture {
	t.Helper()
	s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return newFixture(t, s)
}

func newFixture(t *testing.T, s store.Store) *fixture {
	t.Helper()
	t.Cleanup(func() { _ = s.Close() })
	f := &fixture{
		T: t, store: s, clock: clocktest.New(time.Date(2031, 5, 6, 7, 8, 0, 0, time.UTC)), tenant: uuid.NewString(), other: uuid.NewString(),
		answer: func(message) int { return http.StatusNoContent },
	}
	kek := filepath.Join(t.TempDir(), "kek.json")
	if _, err := localkms.Generate(kek); err != nil {
		t.Fatal(err)
	}
	kms, err := localkms.Open(kek)
	f.must(err)
	f.ring, err = keyring.Open(t.Context(), kms, s, keyring.Options{Now: f.clock.Now})
	f.must(err)
	for _, tenant := range []string{f.tenant, f.other} {
		sets, err := f.ring.NewTenant(t.Context(), tenant)
		f.must(err)
		f.must(s.Update(t.Context(), tenant, func(tx store.Tx) (err error) {
			for _, set := range sets {
				err = errors.Join(err, tx.PutKeyset(t.Context(), set))
			}
			return errors.Join(err, tx.InsertTenant(t.Context(), store.Tenant{ID: tenant, Name: "test"}))
		}))
	}
	f.node = f.newNode(s)
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// node is one server.
type node struct {
	webhooks *webhook.Service
	events   *event.Service
	jobs     *jobs.Queue
}

func (f *fixture) newNode(s store.Store) *node {
	n := &node{jobs: jobs.New(s, jobs.Options{Now: f.clock.Now})}
	n.webhooks = webhook.New(s, f.ring, webhook.Options{
		Now: f.clock.Now, Jobs: n.jobs, Transport: func(string, time.Duration) http.RoundTripper { return receiver{f} }, Logger: slog.New(slog.NewTextHandler(f, nil)),
		CheckURL: func(address string) error {
			if strings.Contains(address, "inner") {
				return fault.New(fault.Invalid, "is not an address that this service may call")
			}
			return nil
		},
	})
	n.jobs.SetKinds(n.webhooks.Kinds()...)
	n.events = event.New(s, f.ring, event.Options{Now: f.clock.Now, Receivers: n.webhooks.Receivers})
	return n
}

// Write takes what nodes log.
func (f *fixture) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.Write(line)
}

func (f *fixture) logged() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.String()
}

// receiver is a transport that ends at the fixture.
type receiver struct{ f *fixture }

var errHangs = errors.New("the receiver hangs")

func (r receiver) RoundTrip(q *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, err
	}
	m := message{
		url: q.URL.String(), id: q.Header.Get("Webhook-Id"), stamp: q.Header.Get("Webhook-Timestamp"), signature: q.Header.Get("Webhook-Signature"), body: string(body),
	}
	if err := json.Unmarshal(body, &m.event); err != nil {
		return nil, err
	}
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	status := r.f.answer(m)
	r.f.messages = append(r.f.messages, m)
	if status == 0 {
		return nil, errHangs
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("whatever"))}, nil
}

// answers sets what the receiver answers; 0 is no answer.
func (f *fixture) answers(answer func(m message) int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// received returns what came since the last call.
func (f *fixture) received() []message {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.messages
	f.messages = nil
	return list
}

// types are the types of events of messages.
func types(list []message) (out []string) {
	for _, m := range list {
		out = append(out, m.event.Type)
	}
	return out
}

var all = []access.Permission{access.EventRead, access.WebhookCreate, access.WebhookRead, access.WebhookUpdate, access.WebhookDelete}

// manager is a caller that may do everything here.
func (f *fixture) manager(tenant string) access.Caller {
	return accesstest.Caller(f.T, tenant, "application-1", all...)
}

func value(t testing.TB, text string) jsonvalue.Value {
	t.Helper()
	v, err := jsonvalue.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// webhook makes one that takes these types, and drops the events so far.
func (f *fixture) webhook(events string) webhook.Webhook {
	f.Helper()
	w, err := f.node.webhooks.Create(f.Context(), f.manager(f.tenant), value(f.T, `{"name":"w","url":"https://shop.example.com/hooks","events":[`+events+`]}`))
	f.must(err)
	f.settle()
	f.received()
	return w
}

// change appends an entry for each operation on an entity.
func (f *fixture) change(entity string, operations ...audit.Operation) {
	f.Helper()
	for _, op := range operations {
		f.must(f.store.Update(f.Context(), f.tenant, func(tx store.Tx) error {
			return tx.AppendLog(f.Context(), audit.Entry(f.manager(f.tenant), f.clock.Now(), "card", entity, op).In([]string{"/pci/"}))
		}))
	}
}

// settle dispatches and delivers what is due now.
func (f *fixture) settle() {
	f.Helper()
	f.must(f.node.events.Dispatch(f.Context()))
	_, err := f.node.jobs.DoDue(f.Context())
	f.must(err)
}

// mortal is a store of a node that dies after some calls.
type mortal struct {
	store.Store
	left atomic.Int64
}

func (m *mortal) View(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	if m.left.Add(-1) < 0 {
		return store.ErrUnavailable
	}
	return m.Store.View(ctx, tenant, fn)
}

func (m *mortal) Update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	if m.left.Add(-1) < 0 {
		return store.ErrUnavailable
	}
	return m.Store.Update(ctx, tenant, fn)
}

// signed reports whether a message has a signature of a secret.
func signed(t testing.TB, m message, secret string) bool {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(m.id + "." + m.stamp + "." + m.body))
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for one := range strings.SplitSeq(m.signature, " ") {
		if one == want {
			return true
		}
	}
	return false
}
