package token_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// start is when the clock of every world stands at first: on a full minute, so
// that an epoch begins with it.
var start = time.Date(2031, 5, 6, 7, 8, 0, 0, time.UTC)

// world is an installation with two tenants.
type world struct {
	t      testing.TB
	dir    string
	store  store.Store
	ring   *keyring.Ring
	clock  *clocktest.Clock
	tokens *token.Service
	tenant string
	other  string
}

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// openStore opens the store that the environment chooses for all tests: a
// database of PostgreSQL, or files in dir.
func openStore(t testing.TB, dir string) (store.Store, error) {
	t.Helper()
	if os.Getenv("KEEPTEST_STORE") == "postgres" {
		return postgres.Open(t.Context(), pgtest.Database(t), postgres.Options{Connections: 8})
	}
	return sqlite.Open(t.Context(), dir, sqlite.Options{})
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), clock: clocktest.New(start)}
	kek := filepath.Join(w.dir, "kek.json")
	if _, err := localkms.Generate(kek); err != nil {
		t.Fatal(err)
	}
	kms, err := localkms.Open(kek)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openStore(t, w.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	w.store = s
	if w.ring, err = keyring.Open(t.Context(), kms, s, keyring.Options{Now: w.clock.Now}); err != nil {
		t.Fatal(err)
	}
	w.tokens = token.New(s, w.ring, token.Options{Now: w.clock.Now})
	w.tenant, w.other = w.newTenant(), w.newTenant()
	return w
}

func (w *world) newTenant() string {
	w.t.Helper()
	id := uuid.NewString()
	sets, err := w.ring.NewTenant(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	w.change(id, func(ctx context.Context, tx store.Tx) error {
		for _, set := range sets {
			if err := tx.PutKeyset(ctx, set); err != nil {
				return err
			}
		}
		return tx.InsertTenant(ctx, store.Tenant{ID: id, Name: "test"})
	})
	return id
}

func (w *world) change(tenant string, fn func(context.Context, store.Tx) error) {
	w.t.Helper()
	ctx := context.WithoutCancel(w.t.Context())
	if err := w.store.Update(ctx, tenant, func(tx store.Tx) error { return fn(ctx, tx) }); err != nil {
		w.t.Fatal(err)
	}
}

// choose changes settings of the tenant.
func (w *world) choose(chosen map[string]string) {
	w.t.Helper()
	w.change(w.tenant, func(ctx context.Context, tx store.Tx) error {
		row, err := tx.TenantRow(ctx)
		if err != nil {
			return err
		}
		row.Settings = chosen
		return tx.ReplaceTenant(ctx, row)
	})
}

// chooseSealed changes settings as the directory does: those that let callers
// see more are sealed too.
func (w *world) chooseSealed(chosen map[string]string) {
	w.t.Helper()
	keys, err := w.ring.For(w.t.Context(), w.tenant)
	if err != nil {
		w.t.Fatal(err)
	}
	on := make(map[string]bool)
	for name, value := range chosen {
		on[name] = value == "true"
	}
	plain, err := json.Marshal(on)
	if err != nil {
		w.t.Fatal(err)
	}
	sealed, err := keys.Seal(w.tenant, keyring.FieldTenantSecrets, plain)
	if err != nil {
		w.t.Fatal(err)
	}
	w.change(w.tenant, func(ctx context.Context, tx store.Tx) error {
		row, err := tx.TenantRow(ctx)
		if err != nil {
			return err
		}
		row.Settings, row.Secrets = chosen, sealed
		return tx.ReplaceTenant(ctx, row)
	})
}

var all = []access.Permission{
	access.TokenCreate, access.TokenRead, access.TokenUpdate, access.TokenDelete, access.TokenSearch, access.TokenUse,
}

const appID = "6b1f1b0e-54c7-4b0e-9a39-3f5f0a6f3f11"

// revealing may do everything and sees everything.
func (w *world) revealing() access.Caller { return w.in(w.tenant, access.Reveal) }

func (w *world) masking() access.Caller { return w.in(w.tenant, access.Mask) }

func (w *world) redacting() access.Caller { return w.in(w.tenant, access.Redact) }

// stranger is the same in another tenant.
func (w *world) stranger() access.Caller { return w.in(w.other, access.Reveal) }

func (w *world) in(tenant string, t access.Transform) access.Caller {
	return accesstest.Application(w.t, tenant, appID, access.Private, []access.Rule{accesstest.Rule("/", t, all...)})
}

// only holds these permissions plainly.
func (w *world) only(permissions ...access.Permission) access.Caller {
	return accesstest.Caller(w.t, w.tenant, appID, permissions...)
}

// within may do everything in these containers, and nothing elsewhere.
func (w *world) within(containers ...string) access.Caller {
	var rules []access.Rule
	for _, path := range containers {
		rules = append(rules, accesstest.Rule(path, access.Reveal, all...))
	}
	return accesstest.Application(w.t, w.tenant, appID, access.Private, rules)
}

func parse(t testing.TB, text string) jsonvalue.Value {
	t.Helper()
	v, err := jsonvalue.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func (w *world) create(c access.Caller, request string) (token.Token, error) {
	w.t.Helper()
	r, err := token.ParseRequest(parse(w.t, request))
	if err != nil {
		return token.Token{}, err
	}
	return w.tokens.Create(context.WithoutCancel(w.t.Context()), c, r)
}

func (w *world) mustCreate(c access.Caller, request string) token.Token {
	w.t.Helper()
	t, err := w.create(c, request)
	if err != nil {
		w.t.Fatalf("Create(%s) = %v", request, says(err))
	}
	return t
}

func (w *world) patch(c access.Caller, id, patch string) (token.Token, error) {
	w.t.Helper()
	return w.tokens.Update(w.t.Context(), c, id, parse(w.t, patch))
}

func (w *world) mustPatch(c access.Caller, id, patch string) token.Token {
	w.t.Helper()
	t, err := w.patch(c, id, patch)
	if err != nil {
		w.t.Fatalf("Update(%s) = %v", patch, says(err))
	}
	return t
}

func (w *world) get(c access.Caller, id string) (token.Token, error) {
	w.t.Helper()
	return w.tokens.Get(w.t.Context(), c, id)
}

func (w *world) mustGet(c access.Caller, id string) token.Token {
	w.t.Helper()
	t, err := w.get(c, id)
	if err != nil {
		w.t.Fatalf("Get(%s) = %v", id, says(err))
	}
	return t
}

// member is a member of the answer's JSON; "" when it is not there.
func member(t token.Token, name string) string {
	v, ok := t.Object().Get(name)
	if !ok {
		return ""
	}
	return string(v.AppendJSON(nil))
}

func text(v jsonvalue.Value) string { return string(v.AppendJSON(nil)) }

// says is an error with all that a caller is told.
func says(err error) string {
	if err == nil {
		return "no error"
	}
	f := fault.Of(err)
	out := f.Kind().Error() + ": " + f.Detail()
	for _, path := range slices.Sorted(maps.Keys(f.Fields())) {
		out += " [" + path + ": " + strings.Join(f.Fields()[path], "; ") + "]"
	}
	if f.Kind() == fault.Internal {
		out += " " + err.Error()
	}
	return out
}

// wantFault fails unless err is of a kind; with a path, of that member.
func wantFault(t testing.TB, call string, err error, kind fault.Kind, path string) {
	t.Helper()
	if !errors.Is(err, kind) || path != "" && fault.Of(err).Fields()[path] == nil {
		t.Errorf("%s = %s, want %v at %q", call, says(err), kind, path)
	}
}

// logs returns the tenant's entries, oldest first, as "operation type id message actor".
func (w *world) logs(tenant string) []string {
	w.t.Helper()
	var out []string
	err := w.store.View(w.t.Context(), tenant, func(tx store.Tx) error {
		list, err := tx.Logs(w.t.Context(), store.LogFilter{}, store.Page{Limit: 10_000})
		for _, e := range slices.Backward(list) {
			out = append(out, e.Operation+" "+e.EntityType+" "+e.EntityID+" "+e.Message+" "+e.ActorType)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func (w *world) count(tenant, prefix string) int {
	w.t.Helper()
	n := 0
	for _, e := range w.logs(tenant) {
		if strings.HasPrefix(e, prefix) {
			n++
		}
	}
	return n
}

func (w *world) row(id string) (row store.Token, err error) {
	err = w.store.View(w.t.Context(), w.tenant, func(tx store.Tx) (err error) {
		row, err = tx.Token(w.t.Context(), id)
		return err
	})
	return row, err
}

// contains searches the rows of a token for plaintext.
func contains(row store.Token, plain string) bool {
	for _, b := range append([][]byte{row.Data, row.Details, row.ShortLived}, row.Terms...) {
		if bytes.Contains(b, []byte(plain)) {
			return true
		}
	}
	return false
}

const visa = "4242424242424242"

func jsonString(s string) jsonvalue.Value { return jsonvalue.NewString(s) }
