package client_test

import (
	"context"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/test/openapitest"
)

// operations has the method of the client for every operation of the API, by
// its name there.
var operations = map[string]func(context.Context, *client.Client) error{
	"getHealth":    func(ctx context.Context, c *client.Client) error { return c.Health(ctx) },
	"getReadiness": func(ctx context.Context, c *client.Client) error { return c.Ready(ctx) },

	"getTenant": func(ctx context.Context, c *client.Client) error { return only(c.Tenant.Get(ctx)) },
	"replaceTenant": func(ctx context.Context, c *client.Client) error {
		return only(c.Tenant.Replace(ctx, api.ReplaceTenant{}))
	},
	"deleteTenant":         func(ctx context.Context, c *client.Client) error { return c.Tenant.Delete(ctx) },
	"getUsage":             func(ctx context.Context, c *client.Client) error { return only(c.Tenant.Usage(ctx)) },
	"getCallbackSecret":    func(ctx context.Context, c *client.Client) error { return only(c.Tenant.CallbackSecret(ctx)) },
	"rotateCallbackSecret": func(ctx context.Context, c *client.Client) error { return only(c.Tenant.RotateCallbackSecret(ctx)) },

	"createApplication": func(ctx context.Context, c *client.Client) error {
		return only(c.Applications.Create(ctx, api.CreateApplication{}))
	},
	"listApplications": func(ctx context.Context, c *client.Client) error {
		return only(c.Applications.Page(ctx, client.ApplicationFilter{}, 1, 1))
	},
	"getOwnApplication": func(ctx context.Context, c *client.Client) error { return only(c.Applications.Own(ctx)) },
	"getApplication":    func(ctx context.Context, c *client.Client) error { return only(c.Applications.Get(ctx, "a")) },
	"replaceApplication": func(ctx context.Context, c *client.Client) error {
		return only(c.Applications.Replace(ctx, "a", api.ReplaceApplication{}))
	},
	"deleteApplication": func(ctx context.Context, c *client.Client) error { return c.Applications.Delete(ctx, "a") },
	"regenerateKey":     func(ctx context.Context, c *client.Client) error { return only(c.Applications.Regenerate(ctx, "a")) },
	"createKey":         func(ctx context.Context, c *client.Client) error { return only(c.Keys.Create(ctx, "a")) },
	"listKeys":          func(ctx context.Context, c *client.Client) error { return only(c.Keys.List(ctx, "a")) },
	"getKey":            func(ctx context.Context, c *client.Client) error { return only(c.Keys.Get(ctx, "a", "k")) },
	"deleteKey":         func(ctx context.Context, c *client.Client) error { return c.Keys.Delete(ctx, "a", "k") },
	"listPermissions":   func(ctx context.Context, c *client.Client) error { return only(c.Permissions.List(ctx, "")) },

	"createSession": func(ctx context.Context, c *client.Client) error { return only(c.Sessions.Create(ctx)) },
	"listSessions":  func(ctx context.Context, c *client.Client) error { return only(c.Sessions.Page(ctx, 1, 1)) },
	"authorizeSession": func(ctx context.Context, c *client.Client) error {
		return c.Sessions.Authorize(ctx, api.AuthorizeSession{})
	},
	"deleteSession": func(ctx context.Context, c *client.Client) error { return c.Sessions.Delete(ctx, "s") },
	"explainAccess": func(ctx context.Context, c *client.Client) error {
		return only(c.Access.Explain(ctx, api.ExplainAccess{}))
	},
	"whoHasAccess": func(ctx context.Context, c *client.Client) error {
		return only(c.Access.WhoPage(ctx, "log:read", "", 1, 1))
	},

	"tokenize":   func(ctx context.Context, c *client.Client) error { return only(c.Tokenize(ctx, 1)) },
	"detokenize": func(ctx context.Context, c *client.Client) error { return only(c.Detokenize(ctx, 1)) },
	"createToken": func(ctx context.Context, c *client.Client) error {
		return only(c.Tokens.Create(ctx, api.CreateToken{}))
	},
	"listTokens": func(ctx context.Context, c *client.Client) error {
		return only(c.Tokens.Page(ctx, client.TokenFilter{}, 1, 1))
	},
	"getToken":    func(ctx context.Context, c *client.Client) error { return only(c.Tokens.Get(ctx, "t")) },
	"updateToken": func(ctx context.Context, c *client.Client) error { return only(c.Tokens.Update(ctx, "t", nil)) },
	"deleteToken": func(ctx context.Context, c *client.Client) error { return c.Tokens.Delete(ctx, "t") },
	"searchTokens": func(ctx context.Context, c *client.Client) error {
		return only(c.Tokens.SearchPage(ctx, "id:t", 1, 1))
	},
	"listTokensFrom": func(ctx context.Context, c *client.Client) error {
		return only(c.Tokens.PageFrom(ctx, client.TokenFilter{}, "", 1))
	},
	"searchTokensFrom": func(ctx context.Context, c *client.Client) error {
		return only(c.Tokens.SearchPageFrom(ctx, "id:t", "", 1))
	},

	"createExport": func(ctx context.Context, c *client.Client) error {
		return only(c.Exports.Create(ctx, api.CreateExport{}))
	},
	"getExport": func(ctx context.Context, c *client.Client) error { return only(c.Exports.Get(ctx, "x")) },
	"approveExport": func(ctx context.Context, c *client.Client) error {
		return only(c.Exports.Approve(ctx, "x", api.CreateExport{}))
	},
	"getExportContent": func(ctx context.Context, c *client.Client) error { return c.Exports.Content(ctx, "x", io.Discard) },
	"importTokens": func(ctx context.Context, c *client.Client) error {
		return only(c.Tokens.Import(ctx, client.Import{}, client.Lines("{}\n")))
	},

	"createReactor": func(ctx context.Context, c *client.Client) error {
		return only(c.Reactors.Create(ctx, api.WriteReactor{}))
	},
	"listReactors": func(ctx context.Context, c *client.Client) error {
		return only(c.Reactors.Page(ctx, client.ReactorFilter{}, 1, 1))
	},
	"getReactor": func(ctx context.Context, c *client.Client) error { return only(c.Reactors.Get(ctx, "r")) },
	"replaceReactor": func(ctx context.Context, c *client.Client) error {
		return only(c.Reactors.Replace(ctx, "r", api.WriteReactor{}))
	},
	"patchReactor":  func(ctx context.Context, c *client.Client) error { return c.Reactors.Patch(ctx, "r", nil) },
	"deleteReactor": func(ctx context.Context, c *client.Client) error { return c.Reactors.Delete(ctx, "r") },
	"react": func(ctx context.Context, c *client.Client) error {
		return only(c.Reactors.React(ctx, "r", api.React{}))
	},
	"reactAsync": func(ctx context.Context, c *client.Client) error {
		return only(c.Reactors.ReactAsync(ctx, "r", api.React{}))
	},
	"getReactorResult": func(ctx context.Context, c *client.Client) error { return only(c.Reactors.Result(ctx, "r", "q")) },
	"listReactorRuns":  func(ctx context.Context, c *client.Client) error { return only(c.Reactors.RunsPage(ctx, "r", 1, 1)) },

	"createProxy": func(ctx context.Context, c *client.Client) error {
		return only(c.Proxies.Create(ctx, api.WriteProxy{}))
	},
	"listProxies": func(ctx context.Context, c *client.Client) error {
		return only(c.Proxies.Page(ctx, client.ProxyFilter{}, 1, 1))
	},
	"getProxy": func(ctx context.Context, c *client.Client) error { return only(c.Proxies.Get(ctx, "p")) },
	"replaceProxy": func(ctx context.Context, c *client.Client) error {
		return only(c.Proxies.Replace(ctx, "p", api.WriteProxy{}))
	},
	"patchProxy":  func(ctx context.Context, c *client.Client) error { return c.Proxies.Patch(ctx, "p", nil) },
	"deleteProxy": func(ctx context.Context, c *client.Client) error { return c.Proxies.Delete(ctx, "p") },
	"previewProxy": func(ctx context.Context, c *client.Client) error {
		return only(c.Proxies.Preview(ctx, "p", api.PreviewProxy{}))
	},
	"rotateProxyKey": func(ctx context.Context, c *client.Client) error { return only(c.Proxies.RotateKey(ctx, "p")) },
	"invokeProxy": func(ctx context.Context, c *client.Client) error {
		return only(c.Proxies.Invoke(ctx, "k", client.ProxyCall{Method: "POST", Path: "/x"}))
	},

	"createMember": func(ctx context.Context, c *client.Client) error {
		return only(c.Members.Create(ctx, api.CreateMember{}))
	},
	"listMembers": func(ctx context.Context, c *client.Client) error { return only(c.Members.Page(ctx, 1, 1)) },
	"getMember":   func(ctx context.Context, c *client.Client) error { return only(c.Members.Get(ctx, "m")) },
	"updateMember": func(ctx context.Context, c *client.Client) error {
		return only(c.Members.Update(ctx, "m", api.UpdateMember{}))
	},
	"deleteMember":       func(ctx context.Context, c *client.Client) error { return c.Members.Delete(ctx, "m") },
	"listMemberSessions": func(ctx context.Context, c *client.Client) error { return only(c.Members.Sessions(ctx, "m")) },
	"endMemberSession":   func(ctx context.Context, c *client.Client) error { return c.Members.EndSession(ctx, "s") },
	"listRoles":          func(ctx context.Context, c *client.Client) error { return only(c.Roles.List(ctx)) },
	"createRole":         func(ctx context.Context, c *client.Client) error { return only(c.Roles.Create(ctx, api.CreateRole{})) },
	"replaceRole": func(ctx context.Context, c *client.Client) error {
		return only(c.Roles.Replace(ctx, "r", api.CreateRole{}))
	},
	"deleteRole":  func(ctx context.Context, c *client.Client) error { return c.Roles.Delete(ctx, "r") },
	"revealToken": func(ctx context.Context, c *client.Client) error { return only(c.Tokens.Reveal(ctx, "t", "because")) },

	"listLogs": func(ctx context.Context, c *client.Client) error {
		return only(c.Logs.Page(ctx, client.LogFilter{}, 1, 1))
	},
	"listLogsFrom": func(ctx context.Context, c *client.Client) error {
		return only(c.Logs.PageFrom(ctx, client.LogFilter{}, "", 1))
	},
	"tryReactor": func(ctx context.Context, c *client.Client) error {
		return only(c.Reactors.Try(ctx, api.TryReactor{}))
	},
	"listReactorVersions": func(ctx context.Context, c *client.Client) error { return only(c.Reactors.Versions(ctx, "r")) },
	"restoreReactor":      func(ctx context.Context, c *client.Client) error { return only(c.Reactors.Restore(ctx, "r", "1")) },
	"listProxyVersions":   func(ctx context.Context, c *client.Client) error { return only(c.Proxies.Versions(ctx, "p")) },
	"restoreProxy":        func(ctx context.Context, c *client.Client) error { return only(c.Proxies.Restore(ctx, "p", "1")) },
	"getActivity": func(ctx context.Context, c *client.Client) error {
		return only(c.Reports.Activity(ctx, client.ActivityFilter{}))
	},
	"listKeyReport": func(ctx context.Context, c *client.Client) error { return only(c.Reports.KeysPage(ctx, 1, 1)) },
	"listAccessReport": func(ctx context.Context, c *client.Client) error {
		return only(c.Reports.AccessPage(ctx, time.Time{}, 1, 1))
	},
	"getAttention": func(ctx context.Context, c *client.Client) error { return only(c.Reports.Attention(ctx)) },
	"exportLogs": func(ctx context.Context, c *client.Client) error {
		return c.Logs.Export(ctx, client.LogFilter{}, "csv", io.Discard)
	},
	"getLogIntegrity":    func(ctx context.Context, c *client.Client) error { return only(c.Logs.Integrity(ctx)) },
	"verifyLog":          func(ctx context.Context, c *client.Client) error { return only(c.Logs.Verify(ctx)) },
	"getLogVerification": func(ctx context.Context, c *client.Client) error { return only(c.Logs.Verification(ctx, "v")) },
	"listNames":          func(ctx context.Context, c *client.Client) error { return only(c.Logs.Names(ctx, "a")) },
	"listEntityTypes":    func(ctx context.Context, c *client.Client) error { return only(c.Logs.EntityTypes(ctx)) },

	"listEvents": func(ctx context.Context, c *client.Client) error {
		return only(c.Events.Page(ctx, client.EventFilter{}, "", 1, 0))
	},
	"createWebhook": func(ctx context.Context, c *client.Client) error {
		return only(c.Webhooks.Create(ctx, api.SetWebhook{}))
	},
	"listWebhooks": func(ctx context.Context, c *client.Client) error {
		return only(c.Webhooks.Page(ctx, client.WebhookFilter{}, 1, 1))
	},
	"getWebhook": func(ctx context.Context, c *client.Client) error { return only(c.Webhooks.Get(ctx, "w")) },
	"replaceWebhook": func(ctx context.Context, c *client.Client) error {
		return only(c.Webhooks.Replace(ctx, "w", api.SetWebhook{}))
	},
	"deleteWebhook":       func(ctx context.Context, c *client.Client) error { return c.Webhooks.Delete(ctx, "w") },
	"rotateWebhookSecret": func(ctx context.Context, c *client.Client) error { return only(c.Webhooks.RotateSecret(ctx, "w")) },
	"testWebhook":         func(ctx context.Context, c *client.Client) error { return only(c.Webhooks.Test(ctx, "w")) },
	"listDeliveries": func(ctx context.Context, c *client.Client) error {
		return only(c.Webhooks.DeliveriesPage(ctx, "w", 1, 1))
	},
	"resendDelivery": func(ctx context.Context, c *client.Client) error { return only(c.Webhooks.Resend(ctx, "w", "d")) },
}

// lists has the iterator for every operation that answers in pages.
var lists = map[string]func(context.Context, *client.Client) error{
	"listApplications": func(ctx context.Context, c *client.Client) error {
		return drain(c.Applications.List(ctx, client.ApplicationFilter{}))
	},
	"listSessions":  func(ctx context.Context, c *client.Client) error { return drain(c.Sessions.List(ctx)) },
	"listKeyReport": func(ctx context.Context, c *client.Client) error { return drain(c.Reports.Keys(ctx)) },
	"listAccessReport": func(ctx context.Context, c *client.Client) error {
		return drain(c.Reports.Access(ctx, time.Time{}))
	},
	"listMembers":  func(ctx context.Context, c *client.Client) error { return drain(c.Members.List(ctx)) },
	"whoHasAccess": func(ctx context.Context, c *client.Client) error { return drain(c.Access.Who(ctx, "log:read", "")) },
	"listTokens": func(ctx context.Context, c *client.Client) error {
		return drain(c.Tokens.List(ctx, client.TokenFilter{}))
	},
	"searchTokens": func(ctx context.Context, c *client.Client) error { return drain(c.Tokens.Search(ctx, "id:t")) },
	"listTokensFrom": func(ctx context.Context, c *client.Client) error {
		return drain(c.Tokens.ListFrom(ctx, client.TokenFilter{}))
	},
	"searchTokensFrom": func(ctx context.Context, c *client.Client) error { return drain(c.Tokens.SearchFrom(ctx, "id:t")) },
	"listReactors": func(ctx context.Context, c *client.Client) error {
		return drain(c.Reactors.List(ctx, client.ReactorFilter{}))
	},
	"listReactorRuns": func(ctx context.Context, c *client.Client) error { return drain(c.Reactors.Runs(ctx, "r")) },
	"listProxies": func(ctx context.Context, c *client.Client) error {
		return drain(c.Proxies.List(ctx, client.ProxyFilter{}))
	},
	"listLogs": func(ctx context.Context, c *client.Client) error { return drain(c.Logs.List(ctx, client.LogFilter{})) },
	"listLogsFrom": func(ctx context.Context, c *client.Client) error {
		return drain(c.Logs.ListFrom(ctx, client.LogFilter{}))
	},
	"listEvents": func(ctx context.Context, c *client.Client) error {
		return drain(c.Events.List(ctx, client.EventFilter{}))
	},
	"listWebhooks": func(ctx context.Context, c *client.Client) error {
		return drain(c.Webhooks.List(ctx, client.WebhookFilter{}))
	},
	"listDeliveries": func(ctx context.Context, c *client.Client) error {
		return drain(c.Webhooks.Deliveries(ctx, "w"))
	},
}

// left has the operations that no method is for.
var left = map[string]string{
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
	"streamLogs":     "Logs.Stream reads it, and opens it again when it ends: it has tests of its own",
}

func only[T any](_ T, err error) error { return err }

func drain[T any](list iter.Seq2[T, error]) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestEveryOperationHasAMethod asks the description of the API what there is,
// and looks at what each method sends.
func TestEveryOperationHasAMethod(t *testing.T) {
	document := openapitest.Load(t)
	known := make(map[string]bool)
	check := func(o openapitest.Operation, call func(context.Context, *client.Client) error, body string) {
		t.Helper()
		media := api.MediaJSON
		if o.ID == "importTokens" {
			body, media = `{"line":1,"status":"end"}`, api.MediaNDJSON
		}
		f := newFake(t, answer{status: 200, body: body, header: []string{"Content-Type", media}})
		if err := call(t.Context(), f.client(t)); err != nil {
			t.Errorf("%s: %v", o.ID, err)
		}
		requests := f.requests()
		if len(requests) != 1 {
			t.Errorf("%s made %d requests, want one", o.ID, len(requests))
			return
		}
		if got := document.Pattern(requests[0]); got != o.Pattern {
			t.Errorf("%s is %s, and the client calls %q", o.ID, o.Pattern, got)
		}
		key, _, _ := document.Idempotency(o.Pattern)
		if got := requests[0].Header.Get("SVC-IDEMPOTENCY-KEY") != ""; got != key {
			t.Errorf("%s is sent with an idempotency key: %t, want %t", o.ID, got, key)
		}
		open := o.Open && o.ID != "invokeProxy" // which takes one, and some proxies do without
		if got := requests[0].Header.Get("SVC-API-KEY") == ""; got != open {
			t.Errorf("%s is sent without a key: %t, want %t", o.ID, got, open)
		}
	}
	for _, o := range document.Operations() {
		known[o.ID] = true
		call := operations[o.ID]
		if call == nil {
			if left[o.ID] == "" {
				t.Errorf("no method of the client is for %s (%s)", o.ID, o.Pattern)
			}
			continue
		}
		body := `{}`
		if slices.Contains([]string{"listKeys", "listPermissions", "listEntityTypes", "listNames", "listRoles", "listMemberSessions", "getAttention", "listReactorVersions", "listProxyVersions"}, o.ID) {
			body = `[]`
		}
		check(o, call, body)
		if list := lists[o.ID]; list != nil {
			check(o, list, `{"pagination":{},"data":[]}`)
		} else if strings.HasPrefix(o.ID, "list") && body == `{}` || strings.HasPrefix(o.ID, "search") {
			t.Errorf("no iterator is for %s", o.ID)
		}
	}
	for _, table := range []map[string]func(context.Context, *client.Client) error{operations, lists} {
		for id := range maps.Keys(table) {
			if !known[id] {
				t.Errorf("there is no operation %s", id)
			}
		}
	}
}
