package rules_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// edit puts a text before another one that a file has once. Where before is
// empty, the text is a file of its own.
type edit struct{ file, text, before string }

// recipes are paragraphs of docs/extending.md, and edits that follow them.
var recipes = map[string]struct {
	edits    []edit
	pkg, run string // the test that shows that the addition works
	more     []edit // files that the recipe leaves to whoever follows it: packages of their own, and tests
}{
	"A route.": {
		[]edit{
			{"internal/endpoint/endpoint.go", "\t\t{httpapi.Route{Pattern: \"GET /greeting\", Auth: httpapi.APIKey, Permission: access.LogRead}, s.greet},\n",
				"\t\t{httpapi.Route{Pattern: \"POST /tokenize\","},
			{"internal/endpoint/endpoint.go", `func (s Services) greet(*http.Request, access.Caller, *idempotency.Attempt) (*response.Response, error) {
	return &response.Response{Status: http.StatusOK, Body: []byte("\"hello\"")}, nil
}

`, "var errBusy = "},
		},
		"./internal/endpoint", "^TestTheGreeting$",
		[]edit{{"internal/endpoint/greeting_test.go", `package endpoint_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/endpoint"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

func TestTheGreeting(t *testing.T) {
	for permission, want := range map[access.Permission]int{access.LogRead: 200, access.TokenRead: 500} {
		h := httpapi.New(httpapi.Options{Authenticate: func(context.Context, secret.Text) (access.Caller, error) {
			return accesstest.Caller(t, "tenant", "application", permission), nil
		}}, endpoint.Routes(endpoint.Services{}))
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/greeting", nil)
		r.Header.Set("SVC-API-KEY", "any")
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("GET /greeting = %d %s, want %d", w.Code, w.Body, want)
		}
	}
}
`, ""}},
	},
	"A job kind.": {
		[]edit{
			{"internal/store/parcel.go", "\tParcelGreeting = \"greeting\" // a greeting that is still to be sent\n", ")\n\n// Parcel is something sealed"},
			{"internal/server/code.go", "\t\tgreetings(),\n", "\t\ts.reactors.Kinds(),\n"},
		},
		"./internal/server", "^TestAGreetingIsAKindOfWork$",
		[]edit{
			{"internal/server/greeting.go", `package server

import (
	"context"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func greetings() []jobs.Kind {
	return []jobs.Kind{{
		Name: store.ParcelGreeting, Life: time.Hour, Lease: time.Minute, AtOnce: 1, PerTenant: 1, Retry: jobs.Schedule{Attempts: 3, First: time.Second, Most: time.Minute},
		Handle: func(context.Context, jobs.Job) (jobs.Verdict, error) { return jobs.Done, nil },
	}}
}
`, ""},
			{"internal/server/greeting_test.go", `package server_test

import (
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

func TestAGreetingIsAKindOfWork(t *testing.T) {
	var kept store.Store
	s := keeptest.Start(t, keeptest.Options{Store: func(inner store.Store) store.Store {
		kept = inner
		return inner
	}})
	tenant := s.Tenant(t).Tenant.ID
	now := store.At(s.Now())
	greeting := store.Parcel{Kind: store.ParcelGreeting, ID: "first", CreatedAt: now, DueAt: now, ExpiresAt: now + 1_000_000, Version: 1}
	if err := kept.Update(t.Context(), tenant, func(tx store.Tx) error { return tx.InsertParcel(t.Context(), greeting) }); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the greeting is done", func() bool {
		var left []store.Parcel
		if err := kept.View(t.Context(), tenant, func(tx store.Tx) (err error) {
			left, err = tx.Parcels(t.Context(), store.ParcelFilter{Kind: store.ParcelGreeting}, store.Page{Limit: 1})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return len(left) == 0
	})
}
`, ""},
		},
	},
	"A KMS.": {
		[]edit{
			{"internal/keyring/providers/providers.go", "\t\"github.com/tokenkeep/tokenkeep/internal/keyring/boxkms\"\n", "\t\"github.com/tokenkeep/tokenkeep/internal/keyring/envelope\"\n"},
			{"internal/keyring/providers/providers.go", `	{Scheme: "box", Name: "a box", Example: "box:mine", Experimental: true,
		open: func(_ context.Context, uri string, o Options) (keyring.KMS, error) { return boxkms.Open(uri, o.envelope()) }},
`, "\t{Scheme: \"gcpkms\","},
		},
		"./internal/keyring/providers", "^TestTheBoxIsAKMS$",
		[]edit{
			{"internal/keyring/boxkms/boxkms.go", `// Package boxkms is a KMS without a service.
package boxkms

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/envelope"
)

type box struct{ key cipher.AEAD }

func Open(uri string, o envelope.Options) (*envelope.KMS, error) {
	raw := sha256.Sum256([]byte(uri))
	block, err := aes.NewCipher(raw[:])
	if err != nil {
		return nil, err
	}
	key, err := cipher.NewGCMWithRandomNonce(block)
	return envelope.New(uri, box{key}, o), err
}

func (b box) Encrypt(ctx context.Context, key []byte) ([]byte, error) {
	return b.key.Seal(nil, nil, key, nil), ctx.Err()
}

func (b box) Decrypt(ctx context.Context, encrypted []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key, err := b.key.Open(nil, nil, encrypted, nil)
	if err != nil {
		return nil, keyring.ErrUnwrap
	}
	return key, nil
}
`, ""},
			{"internal/keyring/providers/box_test.go", `package providers_test

import (
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/kmstest"
	"github.com/tokenkeep/tokenkeep/internal/keyring/providers"
)

func TestTheBoxIsAKMS(t *testing.T) {
	open := func(t *testing.T, uri string) keyring.KMS {
		all, err := providers.Open(t.Context(), []string{uri}, providers.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return all[0]
	}
	kmstest.Run(t, func(t *testing.T) kmstest.Fixture {
		return kmstest.Fixture{KMS: open(t, "box:mine"), Other: open(t, "box:other")}
	})
}
`, ""},
		},
	},
	"A type of tokens.": {
		[]edit{
			{"internal/token/types.go", `	{
		Name: "passport_number", Container: "/pii/high/", Fingerprint: "{{ data }}", Mask: maskLast4,
		Example: ` + "`\"X1234567\"`" + `, normalize: text(func(s string) bool { return len(s) == 8 }, "must be a string of eight characters"),
	},
`, "}\n\n// Types returns the rows, for the documentation."},
			{"internal/token/types_test.go", "\t\t\"passport_number\": {`\"X1234567\"`, `[\"/pii/high/\"]`, `{{ data }}`, `\"{{ data | reveal_last: 4 }}\"`, `\"XXXX4567\"`, \"\", \"\"},\n",
				"\t}\n\tif len(tests) != len(token.Types()) {"},
			{"internal/audit/entry.go", "\t{\"passport_number\", \"Passport Number\", \"Token\"},\n", "\t{Proxy, \"Proxy\", \"Proxy\"},"},
		},
		"./internal/token", "^TestEveryTypeHasItsDefaults$/^passport_number$", nil,
	},
	"A filter of expressions.": {
		[]edit{{"internal/expression/filters_other.go", `	{
		name: "exclaim", doc: "A text with a mark.",
		examples: []Example{example("data | exclaim", ` + "`\"a\"`, `\"a!\"`" + `)},
		apply:    func(c *call) jsonvalue.Value { return c.string(c.text() + "!") },
	},
`, "\t{\n\t\tname: \"default\", doc:"}},
		"./internal/expression", "^TestExamplesOfFiltersComeOutAsPrinted$", nil,
	},
	"A setting of tenants.": {
		[]edit{
			{"internal/directory/settings.go", "\tQuietTokens bool\n", "\tCVCRetention                   time.Duration\n"},
			{"internal/directory/settings.go", "\tchoice(\"quiet_tokens\", \"Whether tokens are quiet.\", \"true\", func(s *Settings) *bool { return &s.QuietTokens }),\n",
				"\t{\n\t\tName: \"cvc_retention\","},
			{"internal/directory/checks_test.go", "\t\t\"quiet_tokens\": \"true\",\n", "\t\t\"fingerprint_tokens\": \"true\", \"deduplicate_tokens\": \"false\", \"disable_ephemeral_proxy\": \"false\",\n"},
		},
		"./internal/directory", "^TestSettings$", nil,
	},
}

// TestRecipesCanBeFollowed makes the edits on copies of the files, which an
// overlay puts in place of them, and runs the test that each brings along.
func TestRecipesCanBeFollowed(t *testing.T) {
	storetest.CheckOnly(t)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, filepath.Join(root, "docs", "extending.md"))
	for name, r := range recipes {
		t.Run(name, func(t *testing.T) {
			_, rest, found := strings.Cut(page, "**"+name+"**")
			paragraph, _, _ := strings.Cut(rest, "\n\n")
			if !found {
				t.Fatalf("docs/extending.md has no recipe %q", name)
			}
			contents := make(map[string]string)
			for _, e := range r.more {
				contents[e.file] = e.text
			}
			for _, e := range r.edits {
				if !mentions(paragraph, e.file) {
					t.Errorf("the recipe does not name %s, which must be changed", e.file)
				}
				if contents[e.file] == "" {
					contents[e.file] = read(t, filepath.Join(root, e.file))
				}
				if n := strings.Count(contents[e.file], e.before); n != 1 {
					t.Fatalf("%s has %q %d times, want once: change the edit of this test", e.file, e.before, n)
				}
				contents[e.file] = strings.Replace(contents[e.file], e.before, e.text+e.before, 1)
			}
			dir, replace := t.TempDir(), make(map[string]string)
			for file, text := range contents {
				copied := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
				write(t, copied, []byte(text))
				replace[filepath.Join(root, file)] = copied
			}
			overlay, err := json.Marshal(map[string]any{"Replace": replace})
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "overlay.json"), overlay)
			run := exec.CommandContext(t.Context(), "go", "test", "-overlay", filepath.Join(dir, "overlay.json"), "-vet=off", "-count=1", "-v", "-run", r.run, r.pkg)
			run.Dir = root
			if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
				t.Errorf("%v: %v\n%s", run.Args, err, out)
			}
		})
	}
}

// mentions reports whether a paragraph names a file, be it by its last element
// or by a pattern.
func mentions(paragraph, file string) bool {
	for word := range strings.FieldsSeq(paragraph) {
		word = strings.Trim(word, "`,.:;()")
		if matched, err := path.Match(path.Base(word), path.Base(file)); err == nil && matched { // most words are no pattern
			return true
		}
	}
	return false
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, file string, b []byte) {
	t.Helper()
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
