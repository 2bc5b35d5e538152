package canary_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
)

// noon is on a full minute, so that an epoch begins with it.
var noon = time.Date(2031, 5, 6, 12, 0, 0, 0, time.UTC)

// house is a server whose clock is moved by hand.
type house struct {
	*keeptest.Server
	t      *testing.T
	clock  *clocktest.Clock
	tenant string
	key    string // of an application that may do everything and sees everything
}

func newHouse(t *testing.T) *house {
	h := &house{t: t, clock: clocktest.New(noon)}
	h.Server = keeptest.Start(t, keeptest.Options{Now: h.clock.Now})
	h.tenant = h.Tenant(t).Tenant.ID
	h.key = h.Application(t, h.tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{
		{Container: "/", Transform: "reveal", Permissions: tokenPermissions},
	}}).Key
	return h
}

func (h *house) create(body string) string {
	h.t.Helper()
	var made api.Token
	h.Call(h.t, "POST", "/tokens", h.key, body).Into(h.t, 201, &made)
	return made.ID
}

func (h *house) sweep() (done admin.Swept) {
	h.t.Helper()
	if err := h.Operator().Call(h.t.Context(), "POST", "/sweep", nil, &done); err != nil {
		h.t.Fatal(err)
	}
	return done
}

// reads are all ways to see a token.
func (h *house) reads(id string) map[string]keeptest.Answer {
	h.t.Helper()
	return map[string]keeptest.Answer{
		"get":             h.Call(h.t, "GET", "/tokens/"+id, h.key, ""),
		"list":            h.Call(h.t, "GET", "/tokens", h.key, ""),
		"list by id":      h.Call(h.t, "GET", "/tokens?id="+id, h.key, ""),
		"list by place":   h.Call(h.t, "GET", "/v2/tokens", h.key, ""),
		"search":          h.Call(h.t, "POST", "/tokens/search", h.key, `{"query":"type:card"}`),
		"search by place": h.Call(h.t, "POST", "/v2/tokens/search", h.key, `{"query":"metadata.k:v"}`),
		"detokenize":      h.Call(h.t, "POST", "/detokenize", h.key, `{"a":"{{ `+id+` }}","b":"{{ token: `+id+` | stringify }}"}`),
	}
}

// opened is a folder, opened with its key-encryption key by somebody whose
// clock says what they like.
func opened(t *testing.T, dir string, now func() time.Time) (*sqlite.Store, *keyring.Ring) {
	t.Helper()
	kms, err := localkms.Open(filepath.Join(dir, "dev-kek.json"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ring, err := keyring.Open(t.Context(), kms, s, keyring.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return s, ring
}

// robbed opens the short-lived part of a token in a folder, at a time when the
// server would still have shown it. The number is opened too: the folder must
// be one with all other keys.
func robbed(t *testing.T, dir, tenant, id string) (number, cvc string, err error) {
	t.Helper()
	s, ring := opened(t, dir, func() time.Time { return noon.Add(time.Minute) })
	var row store.Token
	if err := s.View(t.Context(), tenant, func(tx store.Tx) (err error) { row, err = tx.Token(t.Context(), id); return err }); err != nil {
		t.Fatal(err)
	}
	keys, err := ring.For(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	data, err := keys.Open(id, keyring.FieldTokenData, row.Data)
	if err != nil {
		t.Fatalf("the data itself does not open: %v", err)
	}
	short, err := ring.OpenShortLived(t.Context(), tenant, 0, id, keyring.FieldTokenShortLived, row.ShortLived)
	return string(data), string(short), err
}

const slot = 512 // of epoch.keys

func epochSlots(t *testing.T, dir string) (used []int, b []byte) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "epoch.keys"))
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(b); at += slot {
		if !bytes.Equal(b[at:at+slot], make([]byte, slot)) {
			used = append(used, at)
		}
	}
	return used, b
}

const (
	number = "9999990000000006"
	code   = `"cvc":"987"`
)

// tellsCode looks for the code as a whole: its digits stand in ids as well.
func tellsCode(body string) bool {
	return strings.Contains(strings.ReplaceAll(body, `\`, ""), `"987"`)
}

func TestACvcIsGoneAfterAnHourAndNoBackupOpensIt(t *testing.T) {
	h := newHouse(t)
	id := h.create(`{"type":"card","data":{"number":"` + number + `",` + code + `},"metadata":{"k":"v"}}`)
	for name, a := range h.reads(id) {
		if a.Status != 200 || !tellsCode(a.Body) || !strings.Contains(a.Body, number) {
			t.Errorf("%s before the hour is over = %s, want the cvc", name, a)
		}
	}
	backup, whole := copyFolder(t, h.Data, "epoch.keys"), copyFolder(t, h.Data)
	used, _ := epochSlots(t, h.Data)
	if len(used) != 1 {
		t.Fatalf("%d epoch keys are in the file, want 1", len(used))
	}

	h.clock.Advance(time.Hour - time.Microsecond)
	if a := h.reads(id)["get"]; !tellsCode(a.Body) {
		t.Errorf("a moment before the hour is over = %s, want the cvc", a)
	}
	h.clock.Advance(time.Microsecond)
	for name, a := range h.reads(id) {
		if a.Status != 200 || strings.Contains(a.Body, "cvc") || tellsCode(a.Body) || !strings.Contains(a.Body, number) {
			t.Errorf("%s after the hour = %s, want the card without its cvc", name, a)
		}
	}
	if done := h.sweep(); done.Keys != 1 {
		t.Errorf("the sweep destroyed %d keys, want 1", done.Keys)
	}
	if left, b := epochSlots(t, h.Data); len(left) != 0 || len(b) < used[0]+slot {
		t.Errorf("%d keys are left in a file of %d bytes; want zeros where the key stood", len(left), len(b))
	}
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	// The clock of who holds a copy says what they like: a minute past noon.
	for name, dir := range map[string]string{"backup": backup, "live folder": h.Data} {
		data, short, err := robbed(t, dir, h.tenant, id)
		if !errors.Is(err, keyring.ErrGone) || short != "" || !strings.Contains(data, number) {
			t.Errorf("%s: the cvc opens with error %v, want ErrGone; the number is there: %t", name, err, strings.Contains(data, number))
		}
	}
	// The control: with the file that backups leave out, it opens.
	if _, short, err := robbed(t, whole, h.tenant, id); err != nil || !strings.Contains(short, code) {
		t.Errorf("with its key the cvc does not open, so that the above shows nothing: %v", err)
	}
}

func TestAnExpiredTokenIsGoneAtTheInstantAndItsRowAfterTheSweep(t *testing.T) {
	h := newHouse(t)
	at := h.clock.Now().Add(10 * time.Minute)
	body := `{"type":"card","data":{"number":"` + number + `",` + code + `},"metadata":{"k":"v"},"search_indexes":["{{ data.number }}"]%s}`
	id := h.create(fmt.Sprintf(body, `,"expires_at":"`+at.Format(time.RFC3339)+`"`))
	stays := h.create(`{"type":"token","data":"stays"}`)
	totals := func() (n [3]int) {
		for i, a := range []keeptest.Answer{
			h.Call(t, "GET", "/tokens", h.key, ""), h.Call(t, "GET", "/tokens?metadata.k=v", h.key, ""),
			h.Call(t, "POST", "/tokens/search", h.key, `{"query":"data:`+number+`"}`),
		} {
			var page api.List[api.Token]
			a.Into(t, 200, &page)
			if n[i] = int(page.Pagination.TotalItems); n[i] != len(page.Data) {
				t.Errorf("%d tokens in a list of %d", len(page.Data), n[i])
			}
		}
		return n
	}
	h.clock.Advance(10*time.Minute - time.Microsecond)
	if got := totals(); got != [3]int{2, 1, 1} {
		t.Errorf("before the instant the lists hold %v", got)
	}
	h.clock.Advance(time.Microsecond)
	if got := totals(); got != [3]int{1, 0, 0} {
		t.Errorf("at the instant the lists hold %v, want the other token alone", got)
	}
	for name, a := range h.reads(id) {
		if strings.Contains(a.Body, number) || name == "get" && a.Status != 404 || name == "detokenize" && a.Status != 400 {
			t.Errorf("%s at the instant = %s", name, a)
		}
	}
	for _, a := range []keeptest.Answer{
		h.Call(t, "PATCH", "/tokens/"+id, h.key, `{"expires_at":null}`, "Content-Type", mergePatch), h.Call(t, "DELETE", "/tokens/"+id, h.key, ""),
	} {
		if a.Status != 404 {
			t.Errorf("a change of an expired token = %s, want 404", a)
		}
	}
	before := copyFolder(t, h.Data)
	if done := h.sweep(); done.Tokens != 1 {
		t.Errorf("the sweep removed %d tokens, want 1", done.Tokens)
	}
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	if row, terms := h.left(before, id); !row || terms != 2 {
		t.Errorf("before the sweep the row is there %t with %d terms: the folder shows nothing", row, terms)
	}
	if row, terms := h.left(h.Data, id); row || terms != 0 {
		t.Errorf("after the sweep the row is there %t, and %d terms", row, terms)
	}
	if row, _ := h.left(copyFolder(t, h.Data), stays); !row {
		t.Error("the sweep took a token that had not expired")
	}
}

// left looks for the row of a token, expired or not, and how many of the terms
// that this test looks for lead to it.
func (h *house) left(dir, id string) (row bool, terms int) {
	h.t.Helper()
	s, ring := opened(h.t, dir, h.clock.Now)
	defer func() { _ = s.Close() }()
	keys, err := ring.For(h.t.Context(), h.tenant)
	if err != nil {
		h.t.Fatal(err)
	}
	err = s.View(h.t.Context(), h.tenant, func(tx store.Tx) error {
		ctx := context.WithoutCancel(h.t.Context())
		if _, err := tx.Token(ctx, id); err == nil {
			row = true
		} else if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		for _, term := range [][]byte{keys.IndexTerm("metadata:k", "V"), keys.IndexTerm("index", number)} {
			found, err := tx.Tokens(ctx, store.TokenFilter{Now: 1, Groups: store.AllGroups(), Terms: [][]byte{term}}, store.Page{Limit: 10})
			if err != nil {
				return err
			}
			terms += len(found)
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return row, terms
}
