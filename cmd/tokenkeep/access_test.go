package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
)

// session makes a session of the till's tenant and returns its key. It is
// authorized when rules are given.
func (x *till) session(rules ...api.Rule) string {
	x.t.Helper()
	with := func(key string) *client.Client {
		c, err := client.New(x.keys.BaseURL, client.WithKey(key))
		if err != nil {
			x.t.Fatal(err)
		}
		return c
	}
	made, err := with(x.keys.PublicKey).Sessions.Create(x.t.Context())
	if err == nil && rules != nil {
		err = with(x.keys.PrivateKey).Sessions.Authorize(x.t.Context(), api.AuthorizeSession{Nonce: made.Nonce, Rules: rules})
	}
	if err != nil {
		x.t.Fatal(err)
	}
	return made.SessionKey
}

var anySessionKey = regexp.MustCompile(`(key_dev_sess|nonce_dev)_[1-9A-HJ-NP-Za-km-z]{50}`)

var maskingRule = api.Rule{Container: "/pci/", Transform: "mask", Permissions: []string{"token:read"}}

func TestSessionsFromTheCommandLine(t *testing.T) {
	x := openTill(t)
	x.done(cardJSON, "token", "create", "--type", "card", "--id", "my-card")
	key := x.session(maskingRule)
	x.session()
	operator := []string{"--tenant", x.keys.TenantID, "--data", x.data}

	table := x.done("", append([]string{"session", "list"}, operator...)...)
	if lines := strings.Split(strings.TrimSpace(table), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "SESSION") ||
		!strings.Contains(lines[1], "nobody yet") || strings.Contains(lines[2], "nobody yet") || anySessionKey.MatchString(table) {
		t.Errorf("session list printed\n%s", anySessionKey.ReplaceAllString(table, "(a key)"))
	}
	var list []api.Session
	x.read(&list, "", append([]string{"session", "list"}, operator...)...)
	if len(list) != 2 || !strings.HasPrefix(key, list[1].Prefix) || len(list[1].Rules) != 1 {
		t.Fatalf("session list --json gave %d sessions", len(list))
	}

	t.Setenv("TOKENKEEP_API_KEY", key)
	x.done("", "token", "get", "my-card")
	if out := x.done("", append([]string{"session", "revoke", list[1].ID}, operator...)...); out != "The session is ended.\n" {
		t.Errorf("session revoke printed %q", out)
	}
	if got := given(t, "", "token", "get", "my-card"); got != (result{11, "", "tokenkeep: unknown API key\n"}) {
		t.Errorf("token get in a session that was ended = %+v", got)
	}
	if got := given(t, "", append([]string{"session", "revoke", list[1].ID}, operator...)...); got.code == 0 || got.err != "tokenkeep: no such session\n" {
		t.Errorf("session revoke of one that is gone = %+v", got)
	}
	for _, args := range [][]string{{"session", "list", "--tenant", "", "--data", x.data}, {"session", "revoke", "--tenant", x.keys.TenantID, "--data", x.data}} {
		if got := given(t, "", args...); got.code != 2 {
			t.Errorf("tokenkeep %s = %+v, want a usage error", strings.Join(args, " "), got)
		}
	}
}

func TestExplanationsFromTheCommandLine(t *testing.T) {
	x := openTill(t)
	x.done(cardJSON, "token", "create", "--type", "card", "--id", "my-card")
	x.session(maskingRule)
	var sessions []api.Session
	x.read(&sessions, "", "session", "list", "--tenant", x.keys.TenantID, "--data", x.data)
	x.session()
	t.Setenv("TOKENKEEP_API_KEY", x.keys.ManagementKey)

	out := x.done("", "access", "explain", "--session", sessions[0].ID, "--token", "my-card")
	wantLine(t, out, `token:read +allowed, mask`)
	wantLine(t, out, `CONTAINER +WHOSE +RULE +PRIORITY +SHOWS +WHY`)
	wantLine(t, out, `/pci/high/ +own +0 +1 +mask +the rule matches and decides`)
	wantLine(t, out, `/pci/high/ +maker's +0 +1 +reveal +the rule matches and decides`)
	if strings.Contains(out, planted) || strings.Contains(out, "4242") {
		t.Errorf("access explain printed\n%s", out)
	}
	out = x.done("", "access", "explain", "--session", sessions[0].ID, "--permission", "token:delete", "--container", "/pci/", "--container", "/bank/")
	wantLine(t, out, `token:delete +refused`)
	wantLine(t, out, `/bank/ +own +- +- +no rule matches and the plain permission is missing`)

	grant := mustWrite(t, filepath.Join(t.TempDir(), "grant.json"), `{"type":"session","rules":[{"conditions":[{"attribute":"id","operator":"equals","value":"x"}],"transform":"reveal","permissions":["token:read"]}]}`)
	out = x.done("", "access", "explain", "--proposed", grant, "--container", "/pci/")
	wantLine(t, out, `token:read +refused`)
	wantLine(t, out, `note +for some ids the answer is kinder: name the token`)
	var e api.Explanation
	x.read(&e, "", "access", "explain", "--proposed", grant, "--container", "/pci/")
	if e.Allowed || !e.DependsOnID || len(e.Steps) != 2 {
		t.Errorf("access explain --json gave %+v", e)
	}

	x.read(&sessions, "", "session", "list", "--tenant", x.keys.TenantID, "--data", x.data)
	out = x.done("", "access", "explain", "--session", sessions[0].ID, "--token", "my-card")
	wantLine(t, out, `but +it is not authorized yet`)
	if strings.Contains(out, "CONTAINER") {
		t.Errorf("access explain of a session that waits printed\n%s", out)
	}

	bad := mustWrite(t, filepath.Join(t.TempDir(), "bad.json"), `{"type":"4242424242424242"`)
	for name, test := range map[string]struct {
		args []string
		want result
	}{
		"no such token":   {[]string{"--session", sessions[1].ID, "--token", "none"}, result{11, "", "tokenkeep: no such token\n"}},
		"no such session": {[]string{"--session", "none", "--container", "/"}, result{11, "", "tokenkeep: no such session\n"}},
		"no JSON":         {[]string{"--proposed", bad, "--container", "/"}, result{2, "", "tokenkeep: the file given with --proposed cannot be read, or is not a JSON object with type, permissions and rules\n"}},
		"no file":         {[]string{"--proposed", bad + ".none", "--container", "/"}, result{2, "", "tokenkeep: the file given with --proposed cannot be read, or is not a JSON object with type, permissions and rules\n"}},
		"nobody":          {[]string{"--container", "/"}, result{11, "", "tokenkeep: application_id is required, or session_id, or proposed, and only one of them\n"}},
	} {
		if got := given(t, "", append([]string{"access", "explain"}, test.args...)...); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestAReviewFromTheCommandLine(t *testing.T) {
	x := openTill(t)
	x.session(maskingRule)
	if got := given(t, "", "access", "who", "--container", "/pci/"); got.code != 11 || got.err != "tokenkeep: missing permission application:read\n" {
		t.Errorf("access who with a private key = %+v", got)
	}
	t.Setenv("TOKENKEEP_API_KEY", x.keys.ManagementKey)
	out := x.done("", "access", "who", "--container", "/pci/")
	wantLine(t, out, `KIND +ID +NAME +TYPE +SHOWS +WHERE`)
	wantLine(t, out, `application +[0-9a-f-]{36} +private +private +reveal +/pci/`)
	wantLine(t, out, `session +[0-9a-f-]{36} +public +mask +/pci/`)
	var list []api.AccessHolder
	x.read(&list, "", "access", "who", "--permission", "log:read")
	if len(list) != 1 || list[0].ApplicationType != "management" {
		b, _ := json.Marshal(list)
		t.Errorf("access who --permission log:read --json gave %s", b)
	}
}
