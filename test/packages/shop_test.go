package packages_test

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }

var fileBlock = regexp.MustCompile("(?ms)^```[a-z]+ ([a-z]+\\.[a-z]+)\n(.*?)^```$")

// shop is a folder with the files of docs/elements.md.
func shop(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/elements.md")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	found := fileBlock.FindAllStringSubmatch(string(page), -1)
	if len(found) != 4 {
		t.Fatalf("the page has %d files, want 4", len(found))
	}
	for _, m := range found {
		if err := os.WriteFile(filepath.Join(folder, m[1]), []byte(m[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// open starts a shop and returns its address. It ends with the test.
func open(t *testing.T, folder string, environment []string, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir, c.Env = folder, append(os.Environ(), environment...)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "http://127.0.0.1:") {
		t.Fatalf("the shop prints %q, %v", line, err)
	}
	return strings.TrimSpace(line)
}

// TestTheShopsOfThePageAuthorizeSessions runs the shops of docs/elements.md. A
// client does what the frame and the page do.
func TestTheShopsOfThePageAuthorizeSessions(t *testing.T) {
	storetest.Long(t)
	s := keeptest.Start(t, keeptest.Options{})
	keys, _, err := s.Demo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	folder := shop(t)
	environment := []string{"PORT=0", "TOKENKEEP_URL=" + s.URL, "TOKENKEEP_API_KEY=" + keys.PrivateKey, "TOKENKEEP_PUBLIC_KEY=" + keys.PublicKey}
	programs := map[string][]string{}
	if _, err := exec.LookPath("node"); err == nil {
		programs["Node.js"] = []string{"node", "shop.mjs"}
	}
	if _, err := exec.LookPath("go"); err == nil {
		if out, err := run(t, folder, "go", "build", "-o", "shop", "shop.go"); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		programs["Go"] = []string{filepath.Join(folder, "shop")}
	}
	if len(programs) == 0 {
		t.Skip("neither node nor go is installed")
	}
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			at := open(t, folder, environment, program[0], program[1:]...)
			post := func(path, kind, body string) int {
				t.Helper()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", kind)
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
				return answer.StatusCode
			}
			for _, path := range []string{"", "page.js"} {
				answer, err := http.Get(at + path)
				if err != nil {
					t.Fatal(err)
				}
				policy := answer.Header.Get("Content-Security-Policy")
				_ = answer.Body.Close()
				if answer.StatusCode != 200 || !strings.Contains(policy, "frame-src "+s.URL+"/elements/v1/"+keys.PublicKey+"/;") {
					t.Errorf("GET /%s = %d with the policy %s", path, answer.StatusCode, policy)
				}
			}
			var session struct {
				Key   string `json:"session_key"`
				Nonce string
			}
			s.Call(t, http.MethodPost, "/sessions", keys.PublicKey, "").Into(t, http.StatusCreated, &session)
			nonce := `{"nonce":"` + session.Nonce + `"}`
			if got := post("authorize", "text/plain", nonce); got != http.StatusUnsupportedMediaType {
				t.Errorf("what another page can send = %d, want %d", got, http.StatusUnsupportedMediaType)
			}
			if got := post("authorize", "application/json", nonce); got != http.StatusOK {
				t.Fatalf("POST /authorize = %d", got)
			}
			if got := post("authorize", "application/json", nonce); got != http.StatusInternalServerError {
				t.Errorf("the same nonce again = %d, want %d", got, http.StatusInternalServerError)
			}
			var token struct{ ID string }
			s.Call(t, http.MethodPost, "/tokens", session.Key, `{"type":"card","data":{"number":"4242424242424242"}}`, "SVC-PUBLIC-KEY", keys.PublicKey).Into(t, http.StatusCreated, &token)
			if got := post("orders", "application/json", `{"token":"`+token.ID+`"}`); got != http.StatusOK {
				t.Errorf("POST /orders = %d", got)
			}
		})
	}
}
