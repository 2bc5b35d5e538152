package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tokenkeep/tokenkeep/test/openapitest"
)

// covered has for every operation of the API the command that does it.
var covered = map[string]string{
	"getHealth": "health", "getReadiness": "health",

	"getTenant": "tenant get", "replaceTenant": "tenant update --name n", "deleteTenant": "tenant delete self --yes", "getUsage": "tenant usage",
	"getCallbackSecret": "tenant callback-secret", "rotateCallbackSecret": "tenant callback-secret --rotate",

	"createApplication": "application create a --permission token:create", "listApplications": "application list", "getOwnApplication": "application get",
	"getApplication": "application get a", "replaceApplication": "application update a --name b", "deleteApplication": "application delete a",
	"regenerateKey": "application rotate-key a", "createKey": "application rotate-key a --keep-old", "listKeys": "application keys a", "getKey": "application keys a k",
	"deleteKey": "application revoke-key a k", "listPermissions": "permission list",

	"createSession": "session create", "listSessions": "session list", "authorizeSession": "session authorize --permission token:read", "deleteSession": "session revoke s",
	"explainAccess": "access explain --application a --token t", "whoHasAccess": "access who --container /",

	"tokenize": "tokenize", "detokenize": "detokenize", "createToken": "token create --type token", "getToken": "token get t", "updateToken": "token update t",
	"deleteToken": "token delete t", "listTokensFrom": "token list", "searchTokensFrom": "token search id:t",

	"importTokens": "import -", "createExport": "export --recipient r --out NEW", "getExport": "export get x", "getExportContent": "export --id x --out NEW",
	"approveExport": "export approve x --recipient r",

	"createReactor": "reactor deploy FILE --name r", "replaceReactor": "reactor deploy FILE --id r", "listReactors": "reactor list", "getReactor": "reactor get r",
	"patchReactor": "reactor update r", "deleteReactor": "reactor delete r", "react": "reactor react r", "reactAsync": "reactor react r --async",
	"getReactorResult": "reactor result r q", "listReactorRuns": "reactor logs r",

	"createProxy": "proxy create --name p --destination https://psp.example", "listProxies": "proxy list", "getProxy": "proxy get p",
	"replaceProxy": "proxy replace p --name p --destination https://psp.example", "patchProxy": "proxy update p", "deleteProxy": "proxy delete p",
	"previewProxy": "proxy try p", "rotateProxyKey": "proxy rotate-key p", "invokeProxy": "proxy call --method POST --path /x --proxy-key-file FILE",

	"listEvents": "events", "createWebhook": "webhook create --name w --to https://shop.example --event *", "listWebhooks": "webhook list", "getWebhook": "webhook get w",
	"replaceWebhook": "webhook update w", "deleteWebhook": "webhook delete w", "rotateWebhookSecret": "webhook rotate-secret w", "testWebhook": "webhook test w",
	"listDeliveries": "webhook deliveries w", "resendDelivery": "webhook resend w d",

	"createMember": "member create a@shop.example --role support", "listMembers": "member list", "getMember": "member get m", "updateMember": "member update m --role admin",
	"deleteMember": "member remove m", "listMemberSessions": "member sessions m", "endMemberSession": "member sign-out s",
	"listRoles": "role list", "createRole": "role create r --permission token:read", "replaceRole": "role replace r --permission token:read", "deleteRole": "role delete r",
	"revealToken": "token reveal t --reason because",

	"tryReactor": "reactor try FILE", "listReactorVersions": "reactor versions r", "restoreReactor": "reactor restore r 1",
	"listProxyVersions": "proxy versions p", "restoreProxy": "proxy restore p 1",
	"getActivity": "report activity", "listKeyReport": "report keys", "listAccessReport": "report access", "getAttention": "report attention",
	"listLogsFrom": "log list", "exportLogs": "log export", "getLogIntegrity": "log integrity", "verifyLog": "log verify --no-wait", "getLogVerification": "log verify --no-wait --id v",
	"listEntityTypes": "log types", "listNames": "log names a",
}

// uncovered has the operations that no command is for, and why.
var uncovered = map[string]string{
	"getMetrics":            "for Prometheus, in its own form",
	"getRoot":               "for browsers",
	"getConsole":            "for browsers",
	"getDocs":               "a page for people",
	"getDocsFile":           "a page for people",
	"getElementsFile":       "for browsers",
	"getElementsPage":       "for browsers",
	"getElementsPlayground": "for browsers",

	"getSelf":             "for people, who have a browser",
	"listSignInProviders": "for people, who have a browser",
	"redeemLink":          "for people, who have a browser",
	"signOut":             "for people, who have a browser",
	"startSignIn":         "for people, who have a browser",
	"finishSignIn":        "for people, who have a browser",
	"providerLogout":      "for identity providers",

	"getOpenAPI":     "for tools that read it themselves",
	"getOpenAPIYAML": "for tools that read it themselves",
	"listTokens":     "GET /v2/tokens has the same without numbers of pages",
	"listLogs":       "GET /v2/logs has the same without numbers of pages",
	"searchTokens":   "POST /v2/tokens/search has the same without numbers of pages",
	"streamLogs":     "log -f reads it until it is interrupted",
}

// TestEveryOperationHasACommand asks the description of the API what there is,
// runs the command that is named for it, and looks at what that sends.
func TestEveryOperationHasACommand(t *testing.T) {
	document := openapitest.Load(t)
	file := mustWrite(t, filepath.Join(t.TempDir(), "file"), "module.exports=1")
	var mu sync.Mutex // guards seen
	var seen []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pattern := document.Pattern(r)
		mu.Lock()
		seen = append(seen, pattern)
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		body := `{"id":"x","pagination":{},"data":[],"settings":{}}`
		if slices.Contains([]string{"GET /applications/{id}/keys", "GET /permissions", "GET /logs/entity-types", "GET /names", "GET /roles", "GET /members/{id}/sessions", "GET /reports/attention", "GET /reactors/{id}/versions", "GET /proxies/{id}/versions"}, pattern) {
			body = `[]`
		}
		if pattern == "POST /imports" {
			w.Header().Set("Content-Type", "application/x-ndjson")
			body = `{"line":1,"status":"created","id":"x"}` + "\n" + `{"line":2,"status":"end"}`
		}
		_, _ = w.Write([]byte(body))
	}))
	defer s.Close()
	t.Setenv("TOKENKEEP_URL", s.URL)
	t.Setenv("TOKENKEEP_API_KEY", "key_test_mgt_EXAMPLE")
	known := make(map[string]bool)
	for _, o := range document.Operations() {
		known[o.ID] = true
		line, ok := covered[o.ID]
		if !ok {
			if uncovered[o.ID] == "" {
				t.Errorf("no command is for %s (%s)", o.ID, o.Pattern)
			}
			continue
		}
		seen = nil
		for _, more := range [][]string{nil, {"--json"}} {
			args := append(strings.Fields(strings.NewReplacer("FILE", file, "NEW", filepath.Join(t.TempDir(), "new")).Replace(line)), more...)
			got := given(t, `{"nonce":"n"}`, args...)
			if got.code != 0 {
				t.Errorf("tokenkeep %s = %d %s", line, got.code, got.err)
			}
			if strings.Contains(got.out+got.err, "\x1b") {
				t.Errorf("tokenkeep %s paints", line)
			}
			if !slices.Contains(seen, o.Pattern) {
				t.Errorf("tokenkeep %s calls %q, and %s is %s", line, seen, o.ID, o.Pattern)
			}
		}
	}
	for _, table := range []map[string]string{covered, uncovered} {
		for id := range table {
			if !known[id] {
				t.Errorf("there is no operation %s", id)
			}
		}
	}
}
