package people_test

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"

	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

// TestPeopleSignInWithARealProvider goes through the pages of the example
// provider of zitadel/oidc, as a browser does.
func TestPeopleSignInWithARealProvider(t *testing.T) {
	var provider http.Handler
	op := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { provider.ServeHTTP(w, r) }))
	defer op.Close()
	users := storage.NewUserStore(op.URL)
	provider = exampleop.SetupServer(op.URL, storage.NewStorage(users), slog.New(slog.DiscardHandler), false)
	dir := t.TempDir()
	settings := write(t, filepath.Join(dir, "providers.yaml"), fmt.Sprintf(`
- {id: corporate, name: Example Corp, issuer: %q, client_id: vault, client_secret_file: %q, tenant: TENANT}
`, op.URL, write(t, filepath.Join(dir, "secret"), "not-a-secret")))
	// The tenant is made first, on the same folder.
	data := filepath.Join(dir, "data")
	first := keeptest.Start(t, keeptest.Options{Data: data, Alone: true})
	tenant := first.Tenant(t).Tenant.ID
	first.Person(t, tenant, "auditor", "test-user@zitadel.ch")
	if os.Getenv("KEEPTEST_STORE") != "" {
		t.Skip("a database goes with its server")
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(settings)
	if err != nil {
		t.Fatal(err)
	}
	write(t, settings, strings.ReplaceAll(string(text), "TENANT", tenant))
	k := keeptest.Start(t, keeptest.Options{Data: data, Alone: true, Settings: map[string]string{"sign_in.providers_file": settings}})
	storage.RegisterClients(storage.WebClient("vault", "not-a-secret", k.URL+"/auth/corporate/callback"))

	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), k.URL+"/console/") {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	page := browse(t, browser, http.MethodGet, k.URL+"/auth/corporate/start?return_to=/console/logs", nil)
	id := regexp.MustCompile(`name="id" value="([^"]*)"`).FindStringSubmatch(page.body)
	if id == nil {
		t.Fatalf("the provider shows no form: %d %s", page.status, page.body)
	}
	page = browse(t, browser, http.MethodPost, op.URL+"/login/username", url.Values{"id": {id[1]}, "username": {"test-user@127.0.0.1"}, "password": {"verysecure"}})
	if page.status != http.StatusSeeOther || page.location != "/console/logs" {
		t.Fatalf("the sign-in ends with %d %s to %q, want the console", page.status, page.body, page.location)
	}
	self := browse(t, browser, http.MethodGet, k.URL+"/members/self", nil)
	if !strings.Contains(self.body, `"email":"test-user@zitadel.ch"`) || !strings.Contains(self.body, `"provider":"corporate"`) {
		t.Errorf("GET /members/self = %d %s", self.status, self.body)
	}
	op.Close()
	if got := k.Call(t, http.MethodGet, "/auth/corporate/callback?state=x&code=y", "", ""); got.Status != 403 {
		t.Errorf("a callback that nobody began = %s, want 403", got)
	}
	if again := browse(t, browser, http.MethodGet, k.URL+"/members/self", nil); again.status != 200 {
		t.Errorf("a session while the provider is down = %d %s, want 200", again.status, again.body)
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type page struct {
	status         int
	body, location string
}

func browse(t *testing.T, browser *http.Client, method, address string, form url.Values) page {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := browser.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return page{resp.StatusCode, string(b), resp.Header.Get("Location")}
}

// forger is a provider whose answers a test chooses.
type forger struct {
	*httptest.Server
	key, other *rsa.PrivateKey
	clock      *clocktest.Clock

	mu     sync.Mutex // guards all below
	answer func(w http.ResponseWriter, form url.Values)
}

func newForger(t *testing.T, clock *clocktest.Clock) *forger {
	t.Helper()
	f := &forger{clock: clock}
	for _, key := range []**rsa.PrivateKey{&f.key, &f.other} {
		made, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		*key = made
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": f.URL, "authorization_endpoint": f.URL + "/authorize", "token_endpoint": f.URL + "/token", "jwks_uri": f.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{
			"kty": "RSA", "kid": "k", "alg": "RS256", "use": "sig", "n": raw(f.key.N.Bytes()), "e": raw(big.NewInt(int64(f.key.E)).Bytes()),
		}}})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.answer(w, r.PostForm)
	})
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

func raw(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// sign makes a token. how is RS256, other (a key that is not the provider's),
// HS256 (with the client's secret) or none.
func (f *forger) sign(how string, claims map[string]any) string {
	header := map[string]string{"alg": "RS256", "kid": "k"}
	if how == "HS256" || how == "none" {
		header["alg"] = how
	}
	h, _ := json.Marshal(header)
	c, _ := json.Marshal(claims)
	text := raw(h) + "." + raw(c)
	sum := sha256.Sum256([]byte(text))
	switch how {
	case "none":
		return text + "."
	case "HS256":
		mac := hmac.New(sha256.New, []byte(clientSecret))
		mac.Write([]byte(text))
		return text + "." + raw(mac.Sum(nil))
	}
	key := f.key
	if how == "other" {
		key = f.other
	}
	signature, _ := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	return text + "." + raw(signature)
}

const clientSecret = "the-secret-of-the-client"

// offices is a tenant whose people sign in with a forger, by three providers:
// corporate, strict, which requires a second factor, and other.
type offices struct {
	*fixture
	forger *forger
}

func startOffices(t *testing.T) *offices {
	t.Helper()
	clock := clocktest.New(time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC))
	o := &offices{forger: newForger(t, clock)}
	dir := t.TempDir()
	secretFile := write(t, filepath.Join(dir, "secret"), clientSecret)
	// The tenant is not known before the server runs: people are mapped to it by
	// a second server below, so its id is put into the file once it is.
	settings := filepath.Join(dir, "providers.yaml")
	entry := func(id, more string) string {
		return fmt.Sprintf("- {id: %s, name: %s, issuer: %q, client_id: vault, client_secret_file: %q, tenant: TENANT%s}\n", id, id, o.forger.URL, secretFile, more)
	}
	text := entry("corporate", ", claim: groups, map: [{value: vault-auditors, role: auditor}, {emails: [mapped@shop.example], role: support}]") +
		entry("strict", ", required_amr: [mfa, hwk], required_acr: [high]") + entry("other", "")
	write(t, settings, strings.ReplaceAll(text, "TENANT", "00000000-0000-4000-8000-000000000000"))
	data := filepath.Join(dir, "data")
	first := keeptest.Start(t, keeptest.Options{Data: data, Alone: true, Now: clock.Now})
	made := first.Tenant(t)
	if os.Getenv("KEEPTEST_STORE") != "" {
		t.Skip("a database goes with its server")
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	write(t, settings, strings.ReplaceAll(text, "TENANT", made.Tenant.ID))
	k := keeptest.Start(t, keeptest.Options{Data: data, Alone: true, Now: clock.Now, Settings: map[string]string{"sign_in.providers_file": settings}})
	k.Client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	o.fixture = &fixture{Server: k, t: t, clock: clock, tenant: made.Tenant.ID, key: made.Application.Key}
	o.owner = k.Person(t, o.tenant, "owner", "owner@shop.example")
	o.byKey("POST", "/members", `{"email":"jane@shop.example","name":"Jane","role":"support"}`, 201)
	return o
}

// flow is a sign-in that a browser has begun.
type flow struct {
	provider string
	cookie   string
	state    string
	nonce    string
	verifier string // the challenge, that is
}

func (o *offices) begin(provider string) flow {
	o.t.Helper()
	got := o.Call(o.t, "GET", "/auth/"+provider+"/start?return_to=/console/tokens", "", "")
	location, err := url.Parse(got.Header.Get("Location"))
	if got.Status != 303 || err != nil {
		o.t.Fatalf("the start of a sign-in = %s", got)
	}
	cookie, _, _ := strings.Cut(got.Header.Get("Set-Cookie"), ";")
	q := location.Query()
	if q.Get("code_challenge_method") != "S256" || q.Get("response_type") != "code" || q.Get("client_id") != "vault" {
		o.t.Errorf("the browser is sent to %s", location)
	}
	return flow{provider, cookie, q.Get("state"), q.Get("nonce"), q.Get("code_challenge")}
}

// claims are those of a token that is valid for a flow.
func (o *offices) claims(f flow) map[string]any {
	now := o.clock.Now()
	return map[string]any{
		"iss": o.forger.URL, "aud": "vault", "sub": "subject-of-jane", "exp": now.Add(time.Minute).Unix(), "iat": now.Unix(), "nonce": f.nonce,
		"email": "jane@shop.example", "email_verified": true, "name": "Jane Doe", "sid": "session-1",
	}
}

// finish lets the provider answer with a token, and sends the browser back.
func (o *offices) finish(f flow, token string, query ...string) keeptest.Answer {
	o.t.Helper()
	used := false
	o.forger.mu.Lock()
	o.forger.answer = func(w http.ResponseWriter, form url.Values) {
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		if used || form.Get("code") != "the-code" || raw(sum[:]) != f.verifier {
			http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
			return
		}
		used = true
		answer := map[string]any{"access_token": "access", "token_type": "Bearer", "expires_in": 60}
		if token != "" {
			answer["id_token"] = token
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}
	o.forger.mu.Unlock()
	q := url.Values{"state": {f.state}, "code": {"the-code"}}
	for i := 0; i < len(query); i += 2 {
		q.Del(query[i])
		if query[i+1] != "" {
			q.Set(query[i], query[i+1])
		}
	}
	return o.Call(o.t, "GET", "/auth/"+f.provider+"/callback?"+q.Encode(), "", "", "Cookie", f.cookie, "Sec-Fetch-Site", "cross-site")
}

func (o *offices) signIn(change func(map[string]any)) keeptest.Answer {
	o.t.Helper()
	f := o.begin("corporate")
	c := o.claims(f)
	change(c)
	return o.finish(f, o.forger.sign("RS256", c))
}

// sessionOf returns the person that an answer has signed in.
func sessionOf(a keeptest.Answer) (p keeptest.Person) {
	for _, c := range a.Header.Values("Set-Cookie") {
		if strings.HasPrefix(c, "tokenkeep=") {
			p.Cookie, _, _ = strings.Cut(c, ";")
		}
	}
	return p
}

func TestPeopleAreMappedToTenantAndRole(t *testing.T) {
	o := startOffices(t)
	for name, test := range map[string]struct {
		change func(map[string]any)
		status int
		role   string
	}{
		"a member":             {func(map[string]any) {}, 303, "support"},
		"a member, by a claim": {func(c map[string]any) { c["groups"] = []string{"vault-auditors"} }, 303, "support"}, // the vault's role counts
		"a group": {func(c map[string]any) {
			c["email"], c["sub"], c["groups"] = "g@shop.example", "g", []string{"x", "vault-auditors"}
		}, 303, "auditor"},
		"a claim that is a text": {func(c map[string]any) { c["email"], c["sub"], c["groups"] = "t@shop.example", "t", "vault-auditors" }, 303, "auditor"},
		"an email":               {func(c map[string]any) { c["email"], c["sub"] = "Mapped@shop.example", "m" }, 303, "support"},
		"nobody":                 {func(c map[string]any) { c["email"], c["sub"] = "n@shop.example", "n" }, 403, ""},
	} {
		got := o.signIn(test.change)
		if got.Status != test.status {
			t.Errorf("%s: the sign-in = %s, want %d", name, got, test.status)
			continue
		}
		if test.status == 303 {
			if self := o.self(sessionOf(got)); self.Role.Name != test.role || got.Header.Get("Location") != "/console/tokens" {
				t.Errorf("%s is signed in as %s and goes to %q, want %s", name, self.Role.Name, got.Header.Get("Location"), test.role)
			}
		}
	}
}

// TestForgedAndReplayedSignInsAreRefused: none of these signs anybody in.
func TestForgedAndReplayedSignInsAreRefused(t *testing.T) {
	o := startOffices(t)
	if got := o.signIn(func(map[string]any) {}); got.Status != 303 {
		t.Fatalf("a sign-in as it should be = %s", got)
	}
	byClaims := map[string]func(map[string]any){
		"another issuer":                 func(c map[string]any) { c["iss"] = "https://evil.example" },
		"another client":                 func(c map[string]any) { c["aud"] = "other" },
		"two clients, unnamed party":     func(c map[string]any) { c["aud"] = []string{"vault", "other"} },
		"two clients, the other party":   func(c map[string]any) { c["aud"], c["azp"] = []string{"vault", "other"}, "other" },
		"another party":                  func(c map[string]any) { c["azp"] = "other" },
		"an expired token":               func(c map[string]any) { c["exp"] = o.clock.Now().Add(-time.Minute).Unix() },
		"no expiry":                      func(c map[string]any) { delete(c, "exp") },
		"the nonce of another":           func(c map[string]any) { c["nonce"] = "x" },
		"no nonce":                       func(c map[string]any) { delete(c, "nonce") },
		"no subject":                     func(c map[string]any) { delete(c, "sub") },
		"no email":                       func(c map[string]any) { delete(c, "email") },
		"an email that is not verified":  func(c map[string]any) { c["email_verified"] = false },
		"an email that nobody verified":  func(c map[string]any) { delete(c, "email_verified") },
		"an email verified by a text":    func(c map[string]any) { c["email_verified"] = "true" },
		"an email that went to somebody": func(c map[string]any) { c["sub"] = "somebody else" },
		"an access token of another":     func(c map[string]any) { c["at_hash"] = raw(make([]byte, 16)) },
		"a token that is not valid yet":  func(c map[string]any) { c["nbf"] = o.clock.Now().Add(time.Hour).Unix() },
	}
	for name, change := range byClaims {
		if got := o.signIn(change); got.Status != 403 || sessionOf(got).Cookie != "" {
			t.Errorf("%s = %s, want 403", name, got)
		}
	}
	for _, how := range []string{"other", "HS256", "none"} {
		f := o.begin("corporate")
		if got := o.finish(f, o.forger.sign(how, o.claims(f))); got.Status != 403 {
			t.Errorf("a token signed with %s = %s, want 403", how, got)
		}
	}
	fresh := func() (flow, string) {
		f := o.begin("corporate")
		return f, o.forger.sign("RS256", o.claims(f))
	}
	byRequest := map[string]func() keeptest.Answer{
		"no token":                  func() keeptest.Answer { return o.finish(o.begin("corporate"), "") },
		"a token that is none":      func() keeptest.Answer { return o.finish(o.begin("corporate"), "a.b.c") },
		"no state":                  func() keeptest.Answer { f, x := fresh(); return o.finish(f, x, "state", "") },
		"another state":             func() keeptest.Answer { f, x := fresh(); return o.finish(f, x, "state", o.begin("corporate").state) },
		"no code":                   func() keeptest.Answer { f, x := fresh(); return o.finish(f, x, "code", "") },
		"another code":              func() keeptest.Answer { f, x := fresh(); return o.finish(f, x, "code", "another") },
		"the provider's refusal":    func() keeptest.Answer { f, x := fresh(); return o.finish(f, x, "error", "access_denied") },
		"another issuer's answer":   func() keeptest.Answer { f, x := fresh(); return o.finish(f, x, "iss", "https://evil.example") },
		"no cookie":                 func() keeptest.Answer { f, x := fresh(); f.cookie = ""; return o.finish(f, x) },
		"the cookie of another":     func() keeptest.Answer { f, x := fresh(); f.cookie = o.begin("corporate").cookie; return o.finish(f, x) },
		"a cookie twice":            func() keeptest.Answer { f, x := fresh(); f.cookie += "; " + f.cookie; return o.finish(f, x) },
		"another provider's cookie": func() keeptest.Answer { f, x := fresh(); f.provider = "other"; return o.finish(f, x) },
		"a code that was used": func() keeptest.Answer {
			f, x := fresh()
			o.finish(f, x)
			return o.Call(t, "GET", "/auth/corporate/callback?code=the-code&state="+f.state, "", "", "Cookie", f.cookie)
		},
		"a token of another sign-in": func() keeptest.Answer { _, x := fresh(); return o.finish(o.begin("corporate"), x) },
		"a weak sign-in": func() keeptest.Answer {
			f := o.begin("strict")
			return o.finish(f, o.forger.sign("RS256", o.claims(f)))
		},
		"the wrong second factor": func() keeptest.Answer {
			f := o.begin("strict")
			c := o.claims(f)
			c["acr"], c["amr"] = "high", []string{"pwd"}
			return o.finish(f, o.forger.sign("RS256", c))
		},
		"the wrong level": func() keeptest.Answer {
			f := o.begin("strict")
			c := o.claims(f)
			c["acr"], c["amr"] = "low", []string{"mfa"}
			return o.finish(f, o.forger.sign("RS256", c))
		},
	}
	for name, call := range byRequest {
		if got := call(); got.Status != 403 || sessionOf(got).Cookie != "" {
			t.Errorf("%s = %s, want 403", name, got)
		}
	}
	if n := len(byClaims) + 3 + len(byRequest); n < 30 {
		t.Errorf("the table has %d attempts", n)
	}
	f := o.begin("strict")
	c := o.claims(f)
	c["acr"], c["amr"], c["sub"] = "high", []string{"pwd", "mfa"}, "subject-of-jane"
	if got := o.finish(f, o.forger.sign("RS256", c)); got.Status != 303 {
		t.Errorf("a strong sign-in = %s, want 303", got)
	}
	if got := o.Call(t, "GET", "/auth/unknown/start", "", ""); got.Status != 404 {
		t.Errorf("an unknown provider = %s, want 404", got)
	}
	var id string
	for _, m := range o.log() {
		if m.ActorName == "Jane" {
			id = m.ActorID
		}
	}
	o.as(o.owner, "PATCH", "/members/"+id, `{"state":"disabled"}`, 200)
	if got := o.signIn(func(map[string]any) {}); got.Status != 403 || !strings.Contains(got.Body, "member_disabled") {
		t.Errorf("a disabled member = %s, want 403", got)
	}
}

func TestAProviderThatIsDownIsToldSo(t *testing.T) {
	o := startOffices(t)
	f := o.begin("corporate")
	token := o.forger.sign("RS256", o.claims(f))
	got := o.finish(f, token)
	if got.Status != 303 {
		t.Fatalf("a sign-in = %s", got)
	}
	jane := sessionOf(got)
	f = o.begin("corporate")
	o.forger.Close()
	if got := o.finish(f, token); got.Status != 503 || got.Header.Get("Retry-After") == "" {
		t.Errorf("a callback while the provider is down = %s, want 503", got)
	}
	o.self(jane) // who is signed in stays so
	if got := o.Call(t, "GET", "/auth/other/start", "", ""); got.Status != 503 {
		t.Errorf("a start while the provider is down = %s, want 503", got)
	}
	o.person("auditor") // by a link
}

func TestNobodyIsSentElsewhere(t *testing.T) {
	o := startOffices(t)
	for _, to := range []string{"https://evil.example/", "//evil.example", "/\\evil.example", "/console//evil.example", "/console/../x", "/consolex", "/console/%0d", "javascript:alert(1)", ""} {
		got := o.Call(t, "GET", "/auth/corporate/start?return_to="+url.QueryEscape(to), "", "")
		location, err := url.Parse(got.Header.Get("Location"))
		if err != nil {
			t.Fatal(err)
		}
		cookie, _, _ := strings.Cut(got.Header.Get("Set-Cookie"), ";")
		f := flow{"corporate", cookie, location.Query().Get("state"), location.Query().Get("nonce"), location.Query().Get("code_challenge")}
		if end := o.finish(f, o.forger.sign("RS256", o.claims(f))); end.Status != 303 || end.Header.Get("Location") != "/console/" && to != "/console/%0d" {
			t.Errorf("return_to %q leads to %q", to, end.Header.Get("Location"))
		}
	}
}

func TestAProviderSignsOut(t *testing.T) {
	o := startOffices(t)
	event := map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}
	valid := func() map[string]any {
		now := o.clock.Now()
		return map[string]any{"iss": o.forger.URL, "aud": "vault", "iat": now.Unix(), "exp": now.Add(time.Minute).Unix(), "jti": "1", "events": event, "sub": "subject-of-jane", "sid": "session-1"}
	}
	send := func(token string) keeptest.Answer {
		return o.Call(t, "POST", "/auth/corporate/logout-token", "", "logout_token="+token, "Content-Type", "application/x-www-form-urlencoded")
	}
	jane := sessionOf(o.signIn(func(map[string]any) {}))
	for name, change := range map[string]func(map[string]any){
		"another client": func(c map[string]any) { c["aud"] = "other" },
		"another issuer": func(c map[string]any) { c["iss"] = "https://evil.example" },
		"no event":       func(c map[string]any) { delete(c, "events") },
		"a nonce":        func(c map[string]any) { c["nonce"] = "x" },
		"nobody":         func(c map[string]any) { delete(c, "sub"); delete(c, "sid") },
		"an old token":   func(c map[string]any) { c["iat"] = o.clock.Now().Add(-time.Hour).Unix() },
		"one from later": func(c map[string]any) { c["iat"] = o.clock.Now().Add(time.Hour).Unix() },
		"an expired one": func(c map[string]any) { c["exp"] = o.clock.Now().Add(-time.Minute).Unix() },
		"an ID token":    func(c map[string]any) { maps.Copy(c, o.claims(o.begin("corporate"))); delete(c, "events") },
	} {
		c := valid()
		change(c)
		if got := send(o.forger.sign("RS256", c)); got.Status != 400 {
			t.Errorf("a logout token with %s = %s, want 400", name, got)
		}
	}
	for _, how := range []string{"other", "HS256", "none"} {
		if got := send(o.forger.sign(how, valid())); got.Status != 400 {
			t.Errorf("a logout token signed with %s = %s, want 400", how, got)
		}
	}
	o.self(jane)
	other := valid()
	other["sid"] = "session-2"
	if got := send(o.forger.sign("RS256", other)); got.Status != 200 {
		t.Errorf("a logout of another session = %s, want 200", got)
	}
	o.self(jane)
	if got := send(o.forger.sign("RS256", valid())); got.Status != 200 {
		t.Errorf("a logout = %s, want 200", got)
	}
	o.as(jane, "GET", "/members/self", "", 401)
	o.self(o.owner)
}
