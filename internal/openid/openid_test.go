package openid_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/openid"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProvidersThatCannotBeMeantAreRefused(t *testing.T) {
	const good = "- {id: a, name: A, issuer: 'https://login.example', client_id: c, tenant: t}\n"
	if list, err := openid.Load(write(t, good)); err != nil || len(openid.New(list, time.Now).List()) != 1 {
		t.Fatalf("Load = %v, %v", list, err)
	}
	for name, text := range map[string]string{
		"no list":                "id: a",
		"an unknown field":       strings.Replace(good, "tenant", "tennant", 1),
		"the same id twice":      good + good,
		"an id with capitals":    strings.Replace(good, "id: a", "id: A", 1),
		"an id that is a path":   strings.Replace(good, "id: a", "id: link", 1),
		"no name":                strings.Replace(good, "name: A", "name: ''", 1),
		"plain http":             strings.Replace(good, "https:", "http:", 1),
		"no issuer":              strings.Replace(good, "https://login.example", "", 1),
		"no tenant":              strings.Replace(good, ", tenant: t", "", 1),
		"a map without a role":   strings.Replace(good, "tenant: t", "tenant: t, map: [{emails: [a@b]}]", 1),
		"a map of nothing":       strings.Replace(good, "tenant: t", "tenant: t, map: [{role: r}]", 1),
		"a map of both":          strings.Replace(good, "tenant: t", "tenant: t, claim: x, map: [{role: r, value: v, emails: [a@b]}]", 1),
		"a map without a claim":  strings.Replace(good, "tenant: t", "tenant: t, map: [{role: r, value: v}]", 1),
		"a map without a tenant": strings.Replace(good, "tenant: t", "map: [{role: r, emails: [a@b]}]", 1),
		"no secret":              strings.Replace(good, "tenant: t", "tenant: t, client_secret_file: /does/not/exist", 1),
	} {
		if _, err := openid.Load(write(t, text)); err == nil || strings.Contains(err.Error(), "login.example") || strings.Contains(err.Error(), "/does/not") {
			t.Errorf("%s: Load = %v, want an error that repeats nothing", name, err)
		}
	}
	if _, err := openid.Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there is read")
	}
}

func TestOnlyPagesOfTheConsoleAreReturnedTo(t *testing.T) {
	for path, want := range map[string]string{
		"/console/tokens?x=1#y": "/console/tokens?x=1#y", "/console/": "/console/", "": "/console/", "https://evil.example": "/console/", "//evil.example": "/console/",
		"/console/../x": "/console/", "/console//x": "/console/", "/console/\\x": "/console/", "/console/\r\nx": "/console/", "/other": "/console/",
		"/console/" + strings.Repeat("x", 1000): "/console/",
	} {
		if got := openid.SafeReturn(path); got != want {
			t.Errorf("SafeReturn(%q) = %q, want %q", path, got, want)
		}
	}
}

func FuzzParseFlow(f *testing.F) {
	f.Add("corporate.L2NvbnNvbGUv." + strings.Repeat("a", 43))
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, text string) {
		flow, ok := openid.ParseFlow(secret.NewText(text))
		if ok && !strings.HasPrefix(flow.ReturnTo, "/console/") {
			t.Errorf("a flow returns to %q", flow.ReturnTo)
		}
	})
}
