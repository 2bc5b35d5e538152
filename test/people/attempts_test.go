package people_test

import (
	"bytes"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

// TestOtherPagesCannotUseASession: what a browser sends for another page is
// refused, for reads too.
func TestOtherPagesCannotUseASession(t *testing.T) {
	f := start(t)
	own := strings.TrimPrefix(f.URL, "http://")
	for name, test := range map[string]struct {
		method, path, body string
		headers            []string
		want               int
	}{
		"a page of ours":                   {"GET", "/members/self", "", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		"an address that was typed":        {"GET", "/members/self", "", []string{"Sec-Fetch-Site", "none"}, 200},
		"a program":                        {"GET", "/members/self", "", nil, 200},
		"our own origin":                   {"POST", "/tokens/card/reveal", `{"reason":"x"}`, []string{"Origin", f.URL}, 200},
		"another site reads":               {"GET", "/members/self", "", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"another site sends":               {"POST", "/tokens/card/reveal", `{"reason":"x"}`, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"another origin of the site reads": {"GET", "/tokens/card", "", []string{"Sec-Fetch-Site", "same-site"}, 403},
		"another origin of the site sends": {"DELETE", "/tokens/card", "", []string{"Sec-Fetch-Site", "same-site"}, 403},
		"a form that was typed":            {"POST", "/tokens/card/reveal", `{"reason":"x"}`, []string{"Sec-Fetch-Site", "none"}, 403},
		"an old browser, another origin":   {"POST", "/tokens/card/reveal", `{"reason":"x"}`, []string{"Origin", "https://evil.example"}, 403},
		"an old browser reads":             {"GET", "/tokens/card", "", []string{"Origin", "https://evil.example"}, 403},
		"an old browser, another port":     {"GET", "/tokens/card", "", []string{"Origin", "http://127.0.0.1:1"}, 403},
		"an origin that is none":           {"GET", "/tokens/card", "", []string{"Origin", "null"}, 403},
		"a word that browsers do not say":  {"GET", "/tokens/card", "", []string{"Sec-Fetch-Site", "friendly"}, 403},
		"another site signs out":           {"POST", "/auth/sign-out", "", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"another site uses a link":         {"POST", "/auth/link", `{"code":"x"}`, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"another site begins a sign-in":    {"GET", "/auth/corporate/start", "", []string{"Sec-Fetch-Site", "cross-site"}, 403},
	} {
		got := f.Call(t, test.method, test.path, "", test.body, append([]string{"Cookie", f.owner.Cookie}, test.headers...)...)
		if got.Status != test.want || got.Status == 403 && !strings.Contains(got.Body, "cross_origin") {
			t.Errorf("%s: %s %s = %s, want %d", name, test.method, test.path, got, test.want)
		}
		if got.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s may read with credentials", name)
		}
	}
	// Over plain http the host must be this machine's: a name of others that
	// resolves to it is refused.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL+"/members/self", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "vault.example:" + own[strings.LastIndex(own, ":")+1:]
	r.Header.Set("Cookie", f.owner.Cookie)
	response, err := f.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != 403 {
		t.Errorf("plain http at another name = %d, want 403", response.StatusCode)
	}
	f.self(f.owner) // nothing of this has ended the session
}

// TestForgedSessionsAndLinksAreRefused: cookies and codes that are not what
// they claim to be.
func TestForgedSessionsAndLinksAreRefused(t *testing.T) {
	f := start(t)
	other := f.Tenant(t)
	stranger := f.Person(t, other.Tenant.ID, "owner", "owner@other.example")
	value := func(p keeptest.Person) string { return strings.TrimPrefix(p.Cookie, "tokenkeep=") }
	own := value(f.owner)
	flip := func(s string, i int) string {
		c := byte('1')
		if s[i] == '1' {
			c = '2'
		}
		return s[:i] + string(c) + s[i+1:]
	}
	code := f.LinkCode(t, f.tenant, "owner", "owner@shop.example")
	for name, cookie := range map[string]string{
		"garbage": "garbage", "another secret": flip(own, len(own)-1), "a shorter one": own[:len(own)-1],
		"the tenant of another": own[:strings.LastIndex(own, "_")+1] + value(stranger)[strings.LastIndex(own, "_")+1:][:22] + own[len(own)-28:],
		"a link's code":         code, "a key of the API": f.key, "the id of the session": f.self(f.owner).Session.ID,
		"two of them": own + "; tokenkeep=" + value(stranger), "the name of the secure one": "x; __Host-tokenkeep=" + own,
	} {
		if got := f.Call(t, "GET", "/members/self", "", "", "Cookie", "tokenkeep="+cookie); got.Status != 401 {
			t.Errorf("a cookie with %s = %s, want 401", name, got)
		}
	}
	for name, code := range map[string]string{
		"garbage": "garbage", "nothing": "", "another secret": flip(code, len(code)-1), "a cookie": own, "a key of the API": f.key,
	} {
		if got := f.Redeem(t, code); got.Status != 401 {
			t.Errorf("a link with %s = %s, want 401", name, got)
		}
	}
	for _, path := range []string{"/members/" + stranger.ID, "/members/" + stranger.ID + "/sessions"} {
		f.as(f.owner, "GET", path, "", 404)
	}
	f.as(f.owner, "PATCH", "/members/"+stranger.ID, `{"role":"auditor"}`, 404)
	f.as(f.owner, "DELETE", "/members/"+stranger.ID, "", 404)
	f.as(f.owner, "DELETE", "/members/sessions/"+f.self(stranger).Session.ID, "", 404)
	f.self(stranger)
	f.clock.Advance(10 * time.Minute)
	if got := f.Redeem(t, code); got.Status != 401 {
		t.Errorf("a link after ten minutes = %s, want 401", got)
	}
}

func TestALinkWorksOnceHoweverManyUseItAtOnce(t *testing.T) {
	f := start(t)
	code := f.LinkCode(t, f.tenant, "support", "jane@shop.example")
	const users = 8
	statuses := make([]int, users)
	var all sync.WaitGroup
	for i := range users {
		all.Go(func() { statuses[i] = f.Redeem(t, code).Status })
	}
	all.Wait()
	worked := 0
	for _, status := range statuses {
		switch status {
		case 200:
			worked++
		case 401:
		default:
			t.Errorf("a link used at once = %d, want 200 or 401", status)
		}
	}
	if worked != 1 {
		t.Errorf("%d of %d signed in with one link", worked, users)
	}
}

// TestSecretsOfPeopleAreNotStored: neither the secrets nor who the people are
// stand in the files of the store or in the server's own log.
func TestSecretsOfPeopleAreNotStored(t *testing.T) {
	keeptest.OnFiles(t)
	f := start(t)
	code := f.LinkCode(t, f.tenant, "support", "canary-of-jane@shop.example")
	f.as(f.owner, "GET", "/members", "", 200)
	secrets := []string{strings.TrimPrefix(f.owner.Cookie, "tokenkeep="), code, "canary-of-jane"}
	files := 0
	err := filepath.WalkDir(f.Data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		files++
		for _, secret := range secrets {
			if bytes.Contains(b, []byte(secret)) {
				t.Errorf("%s has what is not to be stored", d.Name())
			}
		}
		return err
	})
	if err != nil || files < 2 {
		t.Fatalf("%d files were read: %v", files, err)
	}
	for _, secret := range secrets {
		if strings.Contains(f.Log.String(), secret) {
			t.Error("the log of the server has a secret")
		}
	}
	var page api.List[api.Member]
	f.as(f.owner, "GET", "/members", "", 200).Into(t, 200, &page)
	if len(page.Data) != 2 {
		t.Errorf("there are %d members, want 2", len(page.Data))
	}
}
