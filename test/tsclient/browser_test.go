package tsclient_test

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// driver is a customer: it fills in the form, pays, and orders once more with
// what the page says, so that the shop prints it.
const driver = `
new MutationObserver(() => tell('orders', { token: output.textContent })).observe(output, { childList: true });
const card = { number: '4242424242424242', expiration_month: '12', expiration_year: '2030', cvc: '123' };
for (const [name, value] of Object.entries(card)) form.elements[name].value = value;
form.querySelector('button').click();
`

// TestTheShopOfThePageTakesACard runs the shop of docs/browser.md. A client
// that does what a browser does pays in it, and a browser does where there is one.
func TestTheShopOfThePageTakesACard(t *testing.T) {
	storetest.Long(t)
	in := install(t)
	s := keeptest.Start(t, keeptest.Options{})
	keys, _, err := s.Demo(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	t.Run("as a browser does", func(t *testing.T) {
		shop, orders := openShop(t, in, s, keys, "")
		header, body := fetch(t, http.MethodGet, shop, "")
		if !strings.Contains(body, "<form") || !strings.Contains(header.Get("Content-Security-Policy"), "connect-src 'self' "+s.URL+";") {
			t.Errorf("the page is %s with %v", body, header)
		}
		if _, script := fetch(t, http.MethodGet, shop+"tokenkeep/index.js", ""); !strings.Contains(script, "export") {
			t.Errorf("the client is %s", script)
		}
		if _, settings := fetch(t, http.MethodGet, shop+"settings", ""); strings.Contains(settings, keys.PrivateKey) || !strings.Contains(settings, keys.PublicKey) {
			t.Errorf("the settings of the page are %s", settings)
		}
		origin := []string{"Origin", strings.TrimSuffix(shop, "/")}
		asked := s.Call(t, http.MethodOptions, "/tokens", "", "", append(origin, "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "content-type,svc-api-key,svc-idempotency-key")...)
		if allowed := asked.Header.Get("Access-Control-Allow-Headers"); asked.Status != http.StatusNoContent || asked.Header.Get("Access-Control-Allow-Origin") != "*" ||
			!strings.Contains(allowed, "SVC-API-KEY") || !strings.Contains(allowed, "SVC-IDEMPOTENCY-KEY") || !strings.Contains(allowed, "Content-Type") {
			t.Errorf("the preflight is answered with %s %v", asked, asked.Header)
		}
		plain, err := http.Post(shop+"authorize", "text/plain", strings.NewReader("{}"))
		if err != nil || plain.StatusCode != http.StatusUnsupportedMediaType || plain.Body.Close() != nil {
			t.Errorf("what another page can send is answered with %v, %v", plain, err)
		}
		var made struct {
			Key   string `json:"session_key"`
			Nonce string
		}
		s.Call(t, http.MethodPost, "/sessions", keys.PublicKey, "", origin...).Into(t, http.StatusCreated, &made)
		fetch(t, http.MethodPost, shop+"authorize", `{"nonce":"`+made.Nonce+`"}`)
		var token struct{ ID string }
		answer := s.Call(t, http.MethodPost, "/tokens", made.Key, `{"type":"card","data":{"number":"4242424242424242"}}`, origin...)
		answer.Into(t, http.StatusCreated, &token)
		if answer.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("the page may not read its token: %v", answer.Header)
		}
		if got := s.Call(t, http.MethodPost, "/tokens", made.Key, `{"type":"token","data":"x"}`, origin...); got.Status != http.StatusForbidden {
			t.Errorf("a token outside of /pci/ = %s, want 403", got)
		}
		fetch(t, http.MethodPost, shop+"orders", `{"token":"`+token.ID+`"}`)
		if got := next(t, orders); got != "ordered with "+token.ID {
			t.Errorf("the shop printed %q", got)
		}
	})

	t.Run("in a browser", func(t *testing.T) {
		shop, orders := openShop(t, in, s, keys, driver)
		browse(t, shop, filepath.Join(in.folder, "profile"))
		id, ok := strings.CutPrefix(next(t, orders), "ordered with ")
		if !ok || strings.Contains(id, " ") {
			t.Fatalf("the page says: %s", id)
		}
		if got := next(t, orders); got != "ordered with Paid with the card that ends in 4242." {
			t.Errorf("the page says: %s", got)
		}
		var token struct {
			Data struct{ Number, CVC string }
		}
		s.Call(t, http.MethodGet, "/tokens/"+id, keys.PrivateKey, "").Into(t, http.StatusOK, &token)
		if token.Data.Number != "4242424242424242" || token.Data.CVC != "123" {
			t.Error("the card of the form is not the one that was kept")
		}
	})
}

var files = regexp.MustCompile("(?s)```(?:js|html) (\\S+)\n(.*?)```\n")

// openShop starts the shop and returns its address and what it prints from then
// on. more goes behind the script of its page.
func openShop(t *testing.T, in installation, s *keeptest.Server, keys server.DevKeys, more string) (address string, orders <-chan string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/browser.md")
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp(in.folder, "shop-")
	if err != nil {
		t.Fatal(err)
	}
	found := files.FindAllStringSubmatch(string(page), -1)
	if len(found) != 3 {
		t.Fatalf("the page has %d files, want three", len(found))
	}
	for _, f := range found {
		if f[1] == "page.js" {
			f[2] += more
		}
		if err := os.WriteFile(filepath.Join(folder, f[1]), []byte(f[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("node", "server.mjs")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "TOKENKEEP_URL="+s.URL, "TOKENKEEP_API_KEY="+keys.PrivateKey, "TOKENKEEP_PUBLIC_KEY="+keys.PublicKey, "PORT=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 16)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range lines { // to its end, before Wait closes the pipe
		}
		_ = cmd.Wait()
	})
	return next(t, lines), lines
}

// next waits for what the shop prints.
func next(t *testing.T, lines <-chan string) string {
	t.Helper()
	line := waittest.Receive(t, "a line of the shop", lines)
	if line == "" {
		t.Fatal("the shop has ended")
	}
	return line
}

func fetch(t *testing.T, method, url, body string) (http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s = %d %s, %v", method, url, resp.StatusCode, text, err)
	}
	return resp.Header, string(text)
}

// browse opens an address in a browser, which goes with the test and finds
// nothing but this machine.
func browse(t *testing.T, address, profile string) {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no browser: Debian has it as chromium")
	}
	cmd := exec.Command(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-crash-reporter", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
		"--remote-debugging-port=0", "--user-data-dir="+profile, address)
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(profile)) // what it leaves there goes with the installation
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
}
