package tsclient_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// world is what the tests of the client read from TOKENKEEP_WORLD.
type world struct {
	URL                string      `json:"url"`
	Destination        string      `json:"destination"`
	Tenant             string      `json:"tenant"`
	Management         string      `json:"management"`
	Private            string      `json:"private"`
	PrivateApplication string      `json:"privateApplication"`
	Public             string      `json:"public"`
	Doomed             string      `json:"doomed"` // manages a tenant that a test deletes
	Operations         []operation `json:"operations"`
}

// operation is one of api/openapi.yaml.
type operation struct {
	ID     string `json:"id"`
	Method string `json:"method"`
	Path   string `json:"path"`
	Keyed  bool   `json:"keyed"` // takes an idempotency key
	Media  string `json:"media"` // of the body; "" without one
}

func TestTheClientAgainstALiveServer(t *testing.T) {
	storetest.Long(t)
	in := install(t)
	built := runtimetest.Find(t)
	s := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"sandbox.level": "reduced", "sandbox.runtime": built.Folder}})
	destination := httptest.NewServer(http.HandlerFunc(echo))
	defer destination.Close()
	tenant := s.Tenant(t)
	private := s.Application(t, tenant.Tenant.ID, api.CreateApplication{Type: "private", Rules: []api.Rule{{
		Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read", "token:update", "token:delete", "token:search", "token:use"},
	}}})
	public := s.Application(t, tenant.Tenant.ID, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}})
	w := world{
		URL: s.URL, Destination: destination.URL, Tenant: tenant.Tenant.ID, Management: tenant.Application.Key,
		Private: private.Key, PrivateApplication: private.ID, Public: public.Key, Doomed: s.Tenant(t).Application.Key,
		Operations: operations(t),
	}
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	for name, least := range map[string]int{"live.test.mjs": 14, "edge.test.mjs": 36} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "node", "--test-reporter=tap", name)
			cmd.Dir = in.folder
			cmd.Env = append(os.Environ(), "TOKENKEEP_WORLD="+string(text))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if passed := figure(out, "pass"); passed < least || figure(out, "skipped") != 0 || figure(out, "todo") != 0 {
				t.Errorf("%d tests passed, want at least %d and none left out\n%s", passed, least, out)
			}
		})
	}
	for _, value := range []string{"4242424242424242", "key_test_"} {
		if strings.Contains(s.Log.String(), value) {
			t.Errorf("the server's log holds %s", value)
		}
	}
}

// figure reads one of the figures at the end of what node prints; -1 without it.
func figure(out []byte, name string) int {
	m := regexp.MustCompile(`(?m)^# ` + name + ` (\d+)$`).FindSubmatch(out)
	if m == nil {
		return -1
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return -1
	}
	return n
}

// operations reads them from the document.
func operations(t *testing.T) (list []operation) {
	t.Helper()
	text, err := os.ReadFile(schema)
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths yaml.Node
	}
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(document.Paths.Content); i += 2 {
		path, item := document.Paths.Content[i].Value, document.Paths.Content[i+1]
		if path == "/" || path == "/members/self" || strings.HasPrefix(path, "/auth/") || strings.HasPrefix(path, "/console/") { // for browsers
			continue
		}
		for j := 0; j < len(item.Content); j += 2 {
			method := item.Content[j].Value
			if method == "parameters" || strings.HasPrefix(path, "/docs") || strings.HasPrefix(path, "/elements") || strings.HasPrefix(path, "/openapi.") { // which are no calls of a program
				continue
			}
			var o struct {
				OperationID string `yaml:"operationId"`
				Parameters  []map[string]any
				RequestBody struct{ Content map[string]any } `yaml:"requestBody"`
			}
			if err := item.Content[j+1].Decode(&o); err != nil {
				t.Fatal(err)
			}
			one := operation{ID: o.OperationID, Method: strings.ToUpper(method), Path: path}
			for _, p := range o.Parameters {
				one.Keyed = one.Keyed || p["$ref"] == "#/components/parameters/IdempotencyKey"
			}
			for media := range o.RequestBody.Content {
				one.Media = media
			}
			list = append(list, one)
		}
	}
	if len(list) < 50 {
		t.Fatalf("found %d operations: the test looks in the wrong place", len(list))
	}
	return list
}

// echo is a destination that says what it was sent; /status/503 answers with
// that status.
func echo(w http.ResponseWriter, r *http.Request) {
	if _, status, ok := strings.Cut(r.URL.Path, "/status/"); ok {
		n, err := strconv.Atoi(status)
		if err != nil {
			n = http.StatusBadRequest
		}
		w.WriteHeader(n)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "no body", http.StatusBadRequest)
		return
	}
	text, err := json.Marshal(map[string]string{
		"method": r.Method, "path": r.URL.RequestURI(), "authorization": r.Header.Get("Authorization"), "key": r.Header.Get("SVC-API-KEY"), "body": string(body),
	})
	if err != nil {
		http.Error(w, "no answer", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, "%s", text)
}
