package directory_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Whoever can write to the database and has a key of little worth must not
// make it worth more.
func TestAnApplicationChangedByHandOpensNothing(t *testing.T) {
	strong := directory.NewApplication{
		Name: "strong", Type: "private", Permissions: []string{"token:read"}, ExpiresAt: start.Add(48 * time.Hour),
		Rules: []access.Rule{accesstest.Rule("/", access.Reveal, access.TokenRead)},
	}
	weak := directory.NewApplication{
		Name: "weak", Type: "private", Permissions: []string{"token:read"}, ExpiresAt: start.Add(24 * time.Hour),
		Rules: []access.Rule{accesstest.Rule("/", access.Redact, access.TokenRead)},
	}
	const change = "UPDATE applications SET %s WHERE tenant_id = ?1 AND id = ?2"
	type ids struct{ tenant, weak, strong, other, otherStrong string }
	for name, test := range map[string]struct {
		text string
		args func(ids) []any
		want error // nil: the key opens as before
	}{
		"nothing changed": {fmt.Sprintf(change, "name = 'x'"), nil, nil},
		"rules of another application": {fmt.Sprintf(change, "rules = (SELECT rules FROM applications WHERE tenant_id = ?1 AND id = ?3)"),
			func(i ids) []any { return []any{i.strong} }, keyring.ErrDamaged},
		"rules of another tenant": {fmt.Sprintf(change, "rules = (SELECT rules FROM applications WHERE tenant_id = ?3 AND id = ?4)"),
			func(i ids) []any { return []any{blob(i.other), i.otherStrong} }, keyring.ErrDamaged},
		"the tenant's secrets as rules": {fmt.Sprintf(change, "rules = (SELECT secrets FROM tenants WHERE tenant_id = ?1)"), nil, keyring.ErrDamaged},
		"a byte of the rules":           {fmt.Sprintf(change, "rules = "+flipped("rules")), nil, keyring.ErrDamaged},
		"no rules":                      {fmt.Sprintf(change, "rules = NULL"), nil, keyring.ErrDamaged},
		"empty rules":                   {fmt.Sprintf(change, "rules = x''"), nil, keyring.ErrDamaged},
		"more permissions":              {fmt.Sprintf(change, `permissions = '["token:read","token:use"]'`), nil, keyring.ErrDamaged},
		"fewer permissions":             {fmt.Sprintf(change, `permissions = '[]'`), nil, keyring.ErrDamaged},
		"a later expiry":                {fmt.Sprintf(change, "expires_at = expires_at + 1"), nil, keyring.ErrDamaged},
		"no expiry":                     {fmt.Sprintf(change, "expires_at = 0"), nil, keyring.ErrDamaged},
		"its key at a stronger application": {"UPDATE application_keys SET application_id = ?3 WHERE tenant_id = ?1 AND application_id = ?2",
			func(i ids) []any { return []any{i.strong} }, fault.Unauthenticated},
		"another type": {fmt.Sprintf(change, "type = 'management'"), nil, fault.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var i ids
			i.tenant, _ = w.tenant()
			i.other, _ = w.tenant()
			victim := w.application(i.tenant, weak)
			bystander := w.application(i.tenant, strong)
			i.weak, i.strong, i.otherStrong = victim.ID, bystander.ID, w.application(i.other, strong).ID
			w.close()
			args := []any{blob(i.tenant), i.weak}
			if test.args != nil {
				args = append(args, test.args(i)...)
			}
			statement(t, w.dir, 1, test.text, args...)

			again := openWorld(t, w.dir, w.kekFile)
			c, err := again.Authenticate(t.Context(), victim.Key)
			if test.want == nil {
				if d := c.Decide(access.TokenRead, access.Target{ID: "x", Containers: []string{"/"}}); err != nil || d.Transform != access.Redact {
					t.Errorf("Authenticate = %v, reads with %s; want redact", err, d.Transform)
				}
				return
			}
			if !errors.Is(err, test.want) || c.Tenant() != "" || c.RequireSomewhere(access.TokenRead) == nil {
				t.Errorf("Authenticate = %v with a caller of %q, want %v and nobody", err, c.Tenant(), test.want)
			}
			if test.want == keyring.ErrDamaged && fault.Of(err).Kind() != fault.Internal {
				t.Errorf("it is told as %v, want our failure", fault.Of(err).Kind())
			}
			if !again.authenticates(bystander.Key) {
				t.Error("another application's key opens nothing")
			}
			if test.want != keyring.ErrDamaged {
				return
			}

			manager := again.manager(i.tenant)
			if _, err := again.Application(t.Context(), manager, i.weak); !errors.Is(err, keyring.ErrDamaged) {
				t.Errorf("Application = %v, want %v", err, keyring.ErrDamaged)
			}
			if _, _, err := again.Applications(t.Context(), manager, store.ApplicationFilter{}, store.Page{Limit: 10}); !errors.Is(err, keyring.ErrDamaged) {
				t.Errorf("Applications = %v, want %v", err, keyring.ErrDamaged)
			}
			// It can still be repaired, and its keys revoked.
			if _, err := again.ReplaceApplication(t.Context(), manager, i.weak, weak); err != nil {
				t.Errorf("ReplaceApplication = %v", err)
			}
			if !again.authenticates(victim.Key) {
				t.Error("after it was replaced, the key opens nothing")
			}
		})
	}
}

func TestKeysOfADamagedApplicationCanBeRevoked(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	a := w.application(tenant, private())
	w.close()
	statement(t, w.dir, 1, "UPDATE applications SET rules = x'11' WHERE id = ?", a.ID)
	again := openWorld(t, w.dir, w.kekFile)
	c := again.manager(tenant)
	keys, err := again.Keys(t.Context(), c, a.ID)
	if err != nil || len(keys) != 1 {
		t.Fatalf("Keys = %v, %v", keys, err)
	}
	if _, err := again.Key(t.Context(), c, a.ID, keys[0].ID); err != nil {
		t.Errorf("Key = %v", err)
	}
	if err := again.DeleteKey(t.Context(), c, a.ID, keys[0].ID); err != nil {
		t.Errorf("DeleteKey = %v", err)
	}
	if again.authenticates(a.Key) {
		t.Error("the revoked key opens")
	}
	if err := again.DeleteApplication(t.Context(), c, a.ID); err != nil {
		t.Errorf("DeleteApplication = %v", err)
	}
}

func TestATenantsSecretsMovedByHandDoNotOpen(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	other, _ := w.tenant()
	w.close()
	statement(t, w.dir, 1, "UPDATE tenants SET secrets = (SELECT secrets FROM tenants WHERE tenant_id = ?2) WHERE tenant_id = ?1", blob(tenant), blob(other))
	again := openWorld(t, w.dir, w.kekFile)
	entries := again.since(tenant, func() {
		if s, err := again.CallbackSecret(t.Context(), again.manager(tenant)); !errors.Is(err, keyring.ErrDamaged) || !s.Secret.IsZero() {
			t.Errorf("CallbackSecret = %v, want %v", err, keyring.ErrDamaged)
		}
	})
	if len(entries) != 0 {
		t.Errorf("it made entries: %+v", entries)
	}
}

// What lies in the files is found by a search that is known to find: names may
// be there, and nothing else that was sent.
func TestNamesAreInTheFilesAndNothingElseThatWasSent(t *testing.T) {
	const name, protected = "Planted-Name-7Q", "Planted-Secret-9Z"
	w := newWorld(t)
	in := private()
	in.Name = name
	in.Rules = append(in.Rules, accesstest.Rule("/"+strings.ToLower(protected)+"/", access.Mask, access.TokenRead))
	in.Rules[0].Description = protected
	made, applications, err := w.CreateTenant(t.Context(), name, directory.ManagementApplication(), in)
	if err != nil {
		t.Fatal(err)
	}
	c := w.manager(made.ID)
	values := map[string]string{
		"a rule's description": protected, "a rule's container": strings.ToLower(protected),
		"a management key": applications[0].Key.Reveal(), "a private key": applications[1].Key.Reveal(),
	}
	key, err := w.CreateKey(t.Context(), c, applications[1].ID)
	rotated, rotateErr := w.RotateCallbackSecret(t.Context(), c)
	fresh, freshErr := w.Regenerate(t.Context(), c, applications[1].ID)
	_, replaceErr := w.ReplaceApplication(t.Context(), c, applications[1].ID, in)
	_, badErr := w.ReplaceTenant(t.Context(), c, name, map[string]string{protected: protected})
	if err := errors.Join(err, rotateErr, freshErr, replaceErr); err != nil || badErr == nil {
		t.Fatal(err, badErr)
	}
	values["another key"], values["a new key"] = key.Text.Reveal(), fresh.Key.Reveal()
	values["a callback secret"], values["the one before"] = rotated.Secret.Reveal(), rotated.Previous.Reveal()
	for what, text := range values {
		if strings.Contains(what, "key") {
			values["the hidden part of "+what] = text[len(text)-24:]
		}
		if strings.Contains(what, "callback") {
			values["the bytes of "+what] = text[len("whsec_"):]
		}
	}
	// Ids that do not exist and keys that are unknown were sent too.
	for what, call := range map[string]func(string){
		"an id": func(s string) { _, _ = w.Application(t.Context(), c, s) },
		"a key": func(s string) { _ = w.DeleteKey(t.Context(), c, applications[1].ID, s) },
		"a type": func(s string) {
			_, _, _ = w.Applications(t.Context(), c, store.ApplicationFilter{Types: []string{s}}, store.Page{Limit: 1})
		},
	} {
		values[what] = "Planted-Sent-" + strings.ReplaceAll(what, " ", "-")
		call(values[what])
	}

	for _, when := range []string{"while the store is open", "after it was closed"} {
		if when == "after it was closed" {
			w.close()
		}
		all := bytes.Join(slices.Collect(maps.Values(folder(t, w.dir))), nil)
		if !bytes.Contains(all, []byte(name)) {
			t.Fatalf("%s: the name is not found: the search is no good", when)
		}
		for what, value := range values {
			for form, b := range plantedForms(value) {
				if bytes.Contains(all, b) {
					t.Errorf("%s: %s lies in a file %s", when, what, form)
				}
			}
		}
	}
	if _, ok := folder(t, w.dir)["epoch.keys"]; !ok {
		t.Error("the file of epoch keys was not searched")
	}
	// The search finds a value in whatever company it is encoded.
	for offset := range 3 {
		around := make([]byte, offset)
		_, _ = rand.Read(around)
		text := slices.Concat(around, []byte(protected), []byte("behind"))
		for encoding, encoded := range map[string]string{
			"base64": base64.StdEncoding.EncodeToString(text), "base64 for URLs": base64.URLEncoding.EncodeToString(text),
			"hexadecimal": hex.EncodeToString(text), "nothing": string(text),
		} {
			found := false
			for _, b := range plantedForms(protected) {
				found = found || strings.Contains(encoded, string(b))
			}
			if !found {
				t.Errorf("behind %d bytes, encoded with %s, the value is not found", offset, encoding)
			}
		}
	}
}
