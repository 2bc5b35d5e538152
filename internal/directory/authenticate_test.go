package directory_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// one is an application of each type, with what it may do alone.
var one = map[access.ApplicationType]directory.NewApplication{
	access.Public:     {Name: "web", Type: "public", Permissions: []string{"token:create"}},
	access.Private:    private(),
	access.Management: {Name: "admin", Type: "management", Permissions: []string{"log:read"}},
}

func TestAKeyIsWhoItsApplicationIs(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	for kind, in := range one {
		a := w.application(tenant, in)
		c, err := w.Authenticate(t.Context(), a.Key)
		if err != nil {
			t.Fatalf("Authenticate with a %s key = %v", kind, err)
		}
		if c.Tenant() != tenant || c.Application() != a.ID || c.ApplicationType() != kind || c.Session() != "" {
			t.Errorf("the caller of a %s key is %s %s %s", kind, c.Tenant(), c.Application(), c.ApplicationType())
		}
		for _, p := range access.Permissions() {
			containers := []string{"/pci/high/"}
			if p.Entity() != "token" {
				containers = nil
			}
			want := false
			for _, name := range in.Permissions {
				want = want || name == p.String()
			}
			want = want || kind == access.Private && p == access.TokenRead
			if got := c.Require(p, containers...) == nil; got != want {
				t.Errorf("a %s key may %s: %t, want %t", kind, p, got, want)
			}
		}
	}
}

// refusal is what every key that opens nothing is told.
const refusal = "unknown API key"

func TestKeysThatOpenNothingAreAllToldTheSame(t *testing.T) {
	w := newWorld(t)
	tenant, manager := w.tenant()
	_, otherManager := w.tenant()
	gone, goneManager := w.tenant()
	if err := errors.Join(w.DeleteTenant(t.Context(), w.manager(gone)), w.FinishDeletions(t.Context())); err != nil {
		t.Fatal(err)
	}
	key := manager.Key.Reveal()
	random := key[len(key)-28:]
	tenantPart := key[len(key)-50 : len(key)-28]
	texts := map[string]string{
		"empty": "", "garbage": "garbage", "a card number": "4242424242424242", "long": strings.Repeat("k", 1<<20), "NUL": key[:20] + "\x00" + key[21:],
		"not UTF-8": key[:len(key)-1] + "\xff", "without its end": key[:len(key)-1], "with more": key + "1", "with a space": key + " ", "upper case": strings.ToUpper(key),
		"of a deleted tenant":       goneManager.Key.Reveal(),
		"of no tenant":              "key_test_mgt_" + strings.Repeat("1", 22) + random,
		"another tenant's secret":   strings.Replace(key, random, last28(otherManager.Key), 1),
		"another tenant's name":     strings.Replace(key, tenantPart, otherManager.Key.Reveal()[len(key)-50:len(key)-28], 1),
		"another environment":       strings.Replace(key, "_test_", "_live_", 1),
		"a public one of it":        strings.Replace(key, "_mgt_", "_pub_", 1),
		"a private one of it":       strings.Replace(key, "_mgt_", "_pvt_", 1),
		"a session's of it":         strings.Replace(key, "_mgt_", "_sess_", 1),
		"a proxy's of it":           strings.Replace(key, "_mgt_", "_proxy_", 1),
		"a nonce of it":             "nonce_test_" + key[len("key_test_mgt_"):],
		"its prefix":                manager.Keys[0].Prefix,
		"its id":                    manager.Keys[0].ID,
		"the id of its application": manager.ID,
		"the tenant's id":           tenant,
	}
	const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	for i := range key {
		for _, to := range []byte{alphabet[(strings.IndexByte(alphabet, key[i])+1)%58], '0', '_'} {
			if changed := key[:i] + string(to) + key[i+1:]; changed != key {
				texts[fmt.Sprintf("character %d changed to %c", i, to)] = changed
			}
		}
	}
	for name, text := range texts {
		c, err := w.Authenticate(t.Context(), secret.NewText(text))
		if !errors.Is(err, fault.Unauthenticated) || fault.Of(err).Detail() != refusal || err.Error() != refusal || c.Tenant() != "" {
			t.Errorf("Authenticate with a key that is %s = %v, want %q", name, err, refusal)
		}
	}
	if !w.authenticates(manager.Key) {
		t.Error("the key itself opens nothing")
	}
}

func last28(key secret.Text) string { s := key.Reveal(); return s[len(s)-28:] }

func TestAKeyIsShownOnceAndKeptAsAHash(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	c := w.manager(tenant)
	a := w.application(tenant, private())
	more, err := w.CreateKey(t.Context(), c, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]secret.Text{"first": a.Key, "second": more.Text} {
		if text.IsZero() || !strings.HasPrefix(text.Reveal(), "key_test_pvt_") {
			t.Errorf("the answer that made the %s key does not show it", name)
		}
	}
	read, err := w.Application(t.Context(), c, a.ID)
	own, ownErr := w.Own(t.Context(), access.NewApplication(tenant, a.ID, access.Private, access.Grant{}))
	list, _, listErr := w.Applications(t.Context(), c, store.ApplicationFilter{}, store.Page{Limit: 10})
	changed, changeErr := w.ReplaceApplication(t.Context(), c, a.ID, private())
	if err := errors.Join(err, ownErr, listErr, changeErr); err != nil {
		t.Fatal(err)
	}
	for _, x := range append(list, read, own, changed) {
		if !x.Key.IsZero() {
			t.Error("an application is shown with its key a second time")
		}
		for _, k := range x.Keys {
			if !k.Text.IsZero() {
				t.Error("a key is shown a second time")
			}
		}
	}
	keys, err := w.Keys(t.Context(), c, a.ID)
	if err != nil || len(keys) != 2 || keys[0].Version != 1 || keys[1].Version != 2 || keys[1].ID != more.ID || keys[1].CreatedBy != "the-caller" {
		t.Errorf("Keys = %+v, %v; want both, oldest first", keys, err)
	}
	one, err := w.Key(t.Context(), c, a.ID, more.ID)
	if err != nil || !one.Text.IsZero() || !keys[1].Text.IsZero() {
		t.Errorf("Key = %+v, %v", one, err)
	}
	for _, row := range w.rows(tenant).Keys {
		if row.ApplicationID != a.ID {
			continue
		}
		if len(row.Hash) != 32 {
			t.Errorf("a hash has %d bytes", len(row.Hash))
		}
		for _, text := range []secret.Text{a.Key, more.Text} {
			if bytes.Contains(row.Hash, []byte(text.Reveal())) || strings.Contains(row.Prefix, text.Reveal()) ||
				!strings.HasPrefix(text.Reveal(), "key_test_pvt_") || len(text.Reveal())-len(row.Prefix) != 24 {
				t.Errorf("the row shows too much of a key: prefix of %d characters", len(row.Prefix))
			}
		}
	}
}

func TestAnApplicationMayHaveThreeKeysAndAllOfThemOpen(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	c := w.manager(tenant)
	in := private()
	in.WithoutKey = true
	a := w.application(tenant, in)
	if !a.Key.IsZero() || len(a.Keys) != 0 {
		t.Fatalf("an application that asked for no key has %d", len(a.Keys))
	}
	var texts []secret.Text
	var keys []directory.Key
	for range 3 {
		k, err := w.CreateKey(t.Context(), c, a.ID)
		if err != nil {
			t.Fatal(err)
		}
		texts, keys = append(texts, k.Text), append(keys, k)
	}
	entries := w.since(tenant, func() {
		if _, err := w.CreateKey(t.Context(), c, a.ID); !errors.Is(err, fault.Conflict) {
			t.Errorf("a fourth CreateKey = %v, want a conflict", err)
		}
	})
	if len(entries) != 0 {
		t.Errorf("the fourth key left entries: %+v", entries)
	}
	for i, text := range texts {
		if !w.authenticates(text) {
			t.Errorf("key %d of 3 opens nothing", i+1)
		}
	}
	for range 2 { // the second time it is gone already
		if err := w.DeleteKey(t.Context(), c, a.ID, keys[1].ID); err != nil {
			t.Errorf("DeleteKey = %v", err)
		}
	}
	if w.authenticates(texts[1]) || !w.authenticates(texts[0]) || !w.authenticates(texts[2]) {
		t.Error("after one was revoked, not exactly the two others open")
	}
	if _, err := w.CreateKey(t.Context(), c, a.ID); err != nil {
		t.Errorf("CreateKey in the place of the revoked one = %v", err)
	}
}

func TestRegenerateLeavesOneKeyAndKillsTheOthersAtOnce(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	c := w.manager(tenant)
	a := w.application(tenant, private())
	old := []secret.Text{a.Key}
	for range 2 {
		k, err := w.CreateKey(t.Context(), c, a.ID)
		if err != nil {
			t.Fatal(err)
		}
		old = append(old, k.Text)
	}
	fresh, err := w.Regenerate(t.Context(), c, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(fresh.Keys) != 1 || fresh.Keys[0].Version != 4 || fresh.Key.IsZero() || len(fresh.Rules) != 1 || fresh.Name != a.Name {
		t.Errorf("Regenerate = %+v", fresh)
	}
	for i, text := range old {
		if w.authenticates(text) {
			t.Errorf("old key %d still opens", i+1)
		}
	}
	if !w.authenticates(fresh.Key) {
		t.Error("the new key does not open")
	}
	if keys, err := w.Keys(t.Context(), c, a.ID); err != nil || len(keys) != 1 || keys[0].ID != fresh.Keys[0].ID {
		t.Errorf("Keys = %+v, %v; want the new one", keys, err)
	}
}

func TestAnExpiredApplicationOpensNothingFromThatInstant(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	in := private()
	in.ExpiresAt = start.Add(time.Hour)
	a := w.application(tenant, in)
	if !a.ExpiresAt.Equal(in.ExpiresAt) {
		t.Errorf("expires %s, want %s", a.ExpiresAt, in.ExpiresAt)
	}
	w.clock.Advance(time.Hour - time.Microsecond)
	if !w.authenticates(a.Key) {
		t.Error("a microsecond before it expires the key opens nothing")
	}
	w.clock.Advance(time.Microsecond)
	_, err := w.Authenticate(t.Context(), a.Key)
	if !errors.Is(err, fault.Unauthenticated) || fault.Of(err).Detail() != "the application of this API key has expired" {
		t.Errorf("Authenticate at the instant of expiry = %v", err)
	}
	in.ExpiresAt = time.Time{}
	if _, err := w.ReplaceApplication(t.Context(), w.manager(tenant), a.ID, in); err != nil {
		t.Fatal(err)
	}
	if !w.authenticates(a.Key) {
		t.Error("an application whose expiry was lifted opens nothing")
	}
}

func TestDeletingAnApplicationKillsItsKeys(t *testing.T) {
	w := newWorld(t)
	tenant, manager := w.tenant()
	a := w.application(tenant, private())
	if err := w.DeleteApplication(t.Context(), w.manager(tenant), a.ID); err != nil {
		t.Fatal(err)
	}
	if w.authenticates(a.Key) {
		t.Error("the key of a deleted application opens")
	}
	if !w.authenticates(manager.Key) {
		t.Error("the key of another application is dead too")
	}
	if _, err := w.CreateKey(t.Context(), w.manager(tenant), a.ID); !errors.Is(err, fault.NotFound) {
		t.Errorf("CreateKey of a deleted application = %v", err)
	}
}

func TestWhatAnApplicationMayDoChangesWithTheNextRequest(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	a := w.application(tenant, private())
	in := private()
	in.Permissions, in.Rules = []string{"token:delete"}, nil
	if _, err := w.ReplaceApplication(t.Context(), w.manager(tenant), a.ID, in); err != nil {
		t.Fatal(err)
	}
	c, err := w.Authenticate(t.Context(), a.Key)
	if err != nil {
		t.Fatal(err)
	}
	if c.Require(access.TokenDelete, "/") != nil || c.Require(access.TokenCreate, "/") == nil || c.Require(access.TokenRead, "/pci/") == nil {
		t.Error("the caller has the old permissions or rules")
	}
}

func TestOwnIsTheApplicationOfTheKey(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	for kind, in := range one {
		a := w.application(tenant, in)
		c, err := w.Authenticate(t.Context(), a.Key)
		if err != nil {
			t.Fatal(err)
		}
		entries := w.since(tenant, func() {
			got, err := w.Own(t.Context(), c.WithOrigin(origin))
			if err != nil || got.ID != a.ID || got.TenantID != tenant || got.Type != kind {
				t.Errorf("Own of a %s key = %+v, %v", kind, got, err)
			}
		})
		if len(entries) != 1 || entries[0].EntityID != a.ID || entries[0].ActorID != a.ID || entries[0].Message != "Application retrieved" {
			t.Errorf("Own made the entries %+v", entries)
		}
	}
	for name, c := range map[string]access.Caller{
		"a deleted application": access.NewApplication(tenant, nothing.application, access.Private, access.Grant{}), "the operator": directory.Operator(tenant),
		"nobody": {},
	} {
		if got, err := w.Own(t.Context(), c); !errors.Is(err, fault.NotFound) || got.ID != "" {
			t.Errorf("Own of %s = %+v, %v, want not found", name, got, err)
		}
	}
}

// A session is logged as the application that made it, with its own id.
func TestASessionIsNamedInTheLog(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	a := w.application(tenant, one[access.Public])
	c := access.NewUncappedSession(tenant, a.ID, "the-session", access.Grant{}).WithOrigin(origin)
	entries := w.since(tenant, func() {
		if got, err := w.Own(t.Context(), c); err != nil || got.ID != a.ID {
			t.Errorf("Own of a session = %+v, %v", got, err)
		}
	})
	if len(entries) != 1 || entries[0].SessionID != "the-session" || entries[0].ActorID != a.ID || entries[0].ActorType != "application" {
		t.Errorf("the entries are %+v", entries)
	}
}

func TestParallelKeysAreNeverMoreThanThree(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	c := w.manager(tenant)
	in := private()
	in.WithoutKey = true
	a := w.application(tenant, in)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex // guards both below
		made []directory.Key
		full int
	)
	for range 20 {
		wg.Go(func() {
			k, err := w.CreateKey(t.Context(), c, a.ID)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made = append(made, k)
			case errors.Is(err, fault.Conflict):
				full++
			default:
				t.Errorf("CreateKey = %v", err)
			}
		})
	}
	wg.Wait()
	keys, err := w.Keys(t.Context(), c, a.ID)
	if err != nil || len(keys) != 3 || len(made) != 3 || full != 17 {
		t.Fatalf("%d keys there, %d made, %d refused, %v; want 3, 3, 17", len(keys), len(made), full, err)
	}
	versions := map[int]bool{}
	for _, k := range made {
		versions[k.Version] = true
		if !w.authenticates(k.Text) {
			t.Error("one of the three does not open")
		}
	}
	if len(versions) != 3 {
		t.Errorf("the versions are %v", versions)
	}
}

func TestParallelRegenerationsLeaveOneKey(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	c := w.manager(tenant)
	a := w.application(tenant, private())
	texts := make([]secret.Text, 10)
	var wg sync.WaitGroup
	for i := range texts {
		wg.Go(func() {
			fresh, err := w.Regenerate(t.Context(), c, a.ID)
			if err != nil {
				t.Errorf("Regenerate = %v", err)
			}
			texts[i] = fresh.Key
		})
	}
	wg.Wait()
	open := 0
	for _, text := range append(texts, a.Key) {
		if w.authenticates(text) {
			open++
		}
	}
	if keys, err := w.Keys(t.Context(), c, a.ID); err != nil || len(keys) != 1 || open != 1 {
		t.Errorf("%d keys there, %d open, %v; want one", len(keys), open, err)
	}
}

func TestParallelReplacementsAreWholeAndInOrder(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	c := w.manager(tenant)
	a := w.application(tenant, private())
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			in := private()
			in.Name = fmt.Sprint("n", i)
			in.Rules[0].Description = in.Name
			got, err := w.ReplaceApplication(t.Context(), c, a.ID, in)
			if err != nil || got.Name != in.Name || got.Rules[0].Description != in.Name {
				t.Errorf("ReplaceApplication = %+v, %v", got, err)
			}
			if c, err := w.Authenticate(t.Context(), a.Key); err != nil || c.Application() != a.ID {
				t.Errorf("Authenticate meanwhile = %v", err)
			}
		})
	}
	wg.Wait()
	got, err := w.Application(t.Context(), c, a.ID)
	if err != nil || got.Name != got.Rules[0].Description {
		t.Errorf("after all of them: %+v, %v", got, err)
	}
	if row := w.rows(tenant).Applications; len(row) != 2 {
		t.Errorf("%d applications", len(row))
	}
	if n := len(w.entries(tenant)); n != 2+1+20+1 { // tenant and manager, application, replacements, the look
		t.Errorf("%d entries", n)
	}
}

// plantedForms are the ways in which a value may lie in a file.
func plantedForms(value string) map[string][]byte {
	forms := map[string][]byte{"as it is": []byte(value), "in hexadecimal": fmt.Appendf(nil, "%x", value), "in upper case hexadecimal": fmt.Appendf(nil, "%X", value)}
	reversed := []byte(value)
	for i := range len(reversed) / 2 {
		reversed[i], reversed[len(reversed)-1-i] = reversed[len(reversed)-1-i], reversed[i]
	}
	forms["reversed"] = reversed
	var little, big []byte
	for _, b := range []byte(value) {
		little, big = append(little, b, 0), append(big, 0, b)
	}
	forms["in UTF-16"], forms["in UTF-16, big endian"] = little, big
	for offset := range 3 {
		for name, encoding := range map[string]*base64.Encoding{"": base64.RawStdEncoding, ", for URLs": base64.RawURLEncoding} {
			text := encoding.EncodeToString(append(make([]byte, offset), value...))
			// The characters at both ends also depend on what stands beside.
			forms[fmt.Sprintf("in base64 at offset %d%s", offset, name)] = []byte(text[(offset*8+5)/6 : len(text)-2])
		}
	}
	return forms
}

// The ids of keys come out of a key of the tenant's: one in 80 would hold a
// card number.
func TestTheIDOfAKeyIsNeverTakenForACardNumber(t *testing.T) {
	_, applications, err := newWorld(t).CreateTenant(t.Context(), "Tenant", slices.Repeat([]directory.NewApplication{directory.ManagementApplication()}, 400)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range applications {
		if id := a.Keys[0].ID; !access.FitForID(id) {
			t.Fatalf("a key has the id %q", id)
		}
	}
}
