package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// desk is a user's configuration folder, and no variables.
func desk(t *testing.T) (file string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	for _, v := range []string{"URL", "API_KEY", "PROFILE", "HEADER_PREFIX", "CA_FILE"} {
		t.Setenv("TOKENKEEP_"+v, "")
	}
	return filepath.Join(dir, "tokenkeep", "profiles.json")
}

// listener notes with which keys it is called.
type listener struct {
	*httptest.Server
	mu   sync.Mutex // guards keys
	keys []string
}

func listen(t *testing.T, prefix string) *listener {
	l := &listener{}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.keys = append(l.keys, r.Header.Get(prefix+"-API-KEY"))
		l.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `[]`)
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *listener) heard() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := strings.Join(l.keys, " ")
	l.keys = nil
	return s
}

const (
	shopKey = "key_live_pvt_shopEXAMPLE"
	testKey = "key_test_mgt_testEXAMPLE"
)

func TestProfilesAreKeptForTheirOwnerAlone(t *testing.T) {
	file := desk(t)
	if got := given(t, shopKey+"\n", "profile", "add", "shop", "--url", "https://vault.example"); got.code != 0 || got.out != "The profile is kept; 'shop' is the one in use.\n" {
		t.Fatalf("profile add = %+v", got)
	}
	key := mustWrite(t, filepath.Join(t.TempDir(), "key"), testKey)
	if got := given(t, "", "profile", "add", "test", "--url", "http://vault.test", "--in-clear", "--key-file", key, "--header-prefix", "BT"); got.code != 0 || !strings.Contains(got.out, "'shop'") {
		t.Fatalf("profile add = %+v", got)
	}
	for path, want := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v, want %v", filepath.Base(path), info.Mode(), err, want)
		}
	}
	list := given(t, "", "profile", "list")
	wantLine(t, list.out, `\* +shop +https://vault\.example +private +SVC *`)
	wantLine(t, list.out, ` +test +http://vault\.test +management +BT *`)
	asJSON := given(t, "", "profile", "list", "--json")
	var shown []shownProfile
	if err := json.Unmarshal([]byte(asJSON.out), &shown); err != nil || len(shown) != 2 || !shown[0].InUse || shown[1].InUse {
		t.Errorf("profile list --json = %s, %v", asJSON.out, err)
	}
	if strings.Contains(list.out+asJSON.out, "EXAMPLE") {
		t.Error("profile list prints keys")
	}
	if got := given(t, "", "profile", "use", "test"); got.code != 0 {
		t.Errorf("profile use = %+v", got)
	}
	wantLine(t, given(t, "", "profile", "list").out, `\* +test .*`)
	for name, test := range map[string]struct {
		in   string
		args []string
		want *usageError
	}{
		"a name that is taken": {testKey, []string{"add", "shop", "--url", "https://vault.example"}, errProfileThere},
		"a name of nobody":     {"", []string{"use", planted}, errNoProfile},
		"nobody to remove":     {"", []string{"remove", planted}, errNoProfile},
		"a name with a space":  {testKey, []string{"add", planted + " x", "--url", "https://vault.example"}, errProfileName},
		"no key":               {"\n", []string{"add", "x", "--url", "https://vault.example"}, errNoKey},
		"in clear":             {testKey, []string{"add", "x", "--url", "http://vault.example"}, errInClear},
		"no authority":         {testKey, []string{"add", "x", "--url", "https://vault.example", "--ca-file", key}, errCAFile},
	} {
		if got := given(t, test.in, append([]string{"profile"}, test.args...)...); got.code != 2 || got.err != "tokenkeep: "+test.want.Error()+"\n" || strings.Contains(got.err, "EXAMPLE") {
			t.Errorf("%s: %+v, want %v", name, got, test.want)
		}
	}
	if got := given(t, "key_live_pub_x", "profile", "add", "shop", "--url", "https://vault.example", "--replace", "--use"); got.code != 0 {
		t.Errorf("profile add --replace = %+v", got)
	}
	wantLine(t, given(t, "", "profile", "list").out, `\* +shop +https://vault\.example +public .*`)
	if got := given(t, "", "profile", "remove", "shop"); got.code != 0 || strings.Contains(given(t, "", "profile", "list").out, "shop") {
		t.Errorf("profile remove = %+v", got)
	}
	left, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(left) != 1 {
		t.Errorf("beside the file there are %v, %v", left, err)
	}
}

func TestProfilesThatOthersCouldReadAreRefused(t *testing.T) {
	file := desk(t)
	if got := given(t, shopKey, "profile", "add", "shop", "--url", "https://vault.example"); got.code != 0 {
		t.Fatal(got)
	}
	for _, mode := range []os.FileMode{0o644, 0o640, 0o604, 0o620} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"token", "list"}, {"profile", "list"}, {"profile", "use", "shop"}, {"health", "--profile", "shop"}} {
			if got := given(t, "", args...); got != (result{3, "", "tokenkeep: " + errProfilesOpen.Error() + "\n"}) {
				t.Errorf("mode %v: tokenkeep %s = %+v", mode, strings.Join(args, " "), got)
			}
		}
	}
	for _, text := range []string{"", "[]", `{"profiles":null}`, `{"profiles":{"a":{"urll":"` + planted + `"}}}`} {
		mustWrite(t, file, text)
		if err := os.Chmod(file, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := given(t, "", "token", "list"); got != (result{3, "", "tokenkeep: " + errProfilesForm.Error() + "\n"}) {
			t.Errorf("a file of %q: %+v", text, got)
		}
	}
}

// TestWhatCountsBeforeAProfile: flags, then a profile that a flag names, then
// variables, then the profile in use; and no key goes to another address than
// the one it was kept for.
func TestWhatCountsBeforeAProfile(t *testing.T) {
	desk(t)
	shop, test := listen(t, "SVC"), listen(t, "BT")
	for name, p := range map[string][]string{"shop": {shopKey, shop.URL, "SVC"}, "test": {testKey, test.URL, "BT"}} {
		if got := given(t, p[0], "profile", "add", name, "--url", p[1], "--header-prefix", p[2]); got.code != 0 {
			t.Fatal(got)
		}
	}
	if got := given(t, "", "profile", "use", "shop"); got.code != 0 {
		t.Fatal(got)
	}
	other := mustWrite(t, filepath.Join(t.TempDir(), "key"), "other")
	for name, want := range map[string]struct {
		variables  map[string]string
		flags      []string
		shop, test string // the keys that they heard
		fails      error
	}{
		"the one in use":                   {nil, nil, shopKey, "", nil},
		"one that a variable names":        {map[string]string{"PROFILE": "test"}, nil, "", testKey, nil},
		"one that a flag names":            {map[string]string{"PROFILE": "shop"}, []string{"--profile", "test"}, "", testKey, nil},
		"a flag before all variables":      {map[string]string{"URL": shop.URL, "API_KEY": "variable", "HEADER_PREFIX": "SVC"}, []string{"--profile", "test"}, "", testKey, nil},
		"variables before the one in use":  {map[string]string{"URL": test.URL, "API_KEY": "variable", "HEADER_PREFIX": "BT"}, nil, "", "variable", nil},
		"another key, the same address":    {map[string]string{"API_KEY": "variable"}, nil, "variable", "", nil},
		"a key file before all":            {map[string]string{"API_KEY": "variable"}, []string{"--profile", "shop", "--key-file", other}, "other", "", nil},
		"another address without a key":    {map[string]string{"URL": test.URL}, nil, "", "", errKeyElsewhere},
		"another address by a flag":        {nil, []string{"--url", test.URL}, "", "", errKeyElsewhere},
		"another address of a named one":   {nil, []string{"--profile", "shop", "--url", test.URL}, "", "", errKeyElsewhere},
		"another address with its own key": {nil, []string{"--url", test.URL, "--key-file", other, "--header-prefix", "BT"}, "", "other", nil},
		"its own address once more":        {nil, []string{"--url", shop.URL}, shopKey, "", nil},
		"one that is not there":            {nil, []string{"--profile", planted}, "", "", errNoProfile},
		"a variable of nothing":            {map[string]string{"PROFILE": planted}, nil, "", "", errNoProfile},
		"one that would not count":         {map[string]string{"PROFILE": planted, "URL": shop.URL, "API_KEY": "variable"}, nil, "variable", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			for v, value := range want.variables {
				t.Setenv("TOKENKEEP_"+v, value)
			}
			got := given(t, "", append([]string{"permission", "list"}, want.flags...)...)
			if (got.code == 0) != (want.fails == nil) || want.fails != nil && got.err != "tokenkeep: "+want.fails.Error()+"\n" {
				t.Errorf("= %+v, want %v", got, want.fails)
			}
			if s, h := shop.heard(), test.heard(); s != want.shop || h != want.test {
				t.Errorf("shop heard %q and test %q, want %q and %q", s, h, want.shop, want.test)
			}
			if strings.Contains(got.out+got.err, "EXAMPLE") {
				t.Errorf("printed a key: %+v", got)
			}
		})
	}
}

// TestAServiceWithoutAHomeMayCall, with what flags and variables say.
func TestAServiceWithoutAHomeMayCall(t *testing.T) {
	desk(t)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("HOME", "")
	server := listen(t, "SVC")
	t.Setenv("TOKENKEEP_API_KEY", shopKey)
	if got := given(t, "", "permission", "list", "--url", server.URL); got.code != 0 || server.heard() != shopKey {
		t.Errorf("= %+v", got)
	}
	t.Setenv("TOKENKEEP_API_KEY", "")
	if got := given(t, "", "permission", "list", "--url", server.URL); got.code != 2 || got.err != "tokenkeep: "+errNoKey.Error()+"\n" {
		t.Errorf("without a key = %+v", got)
	}
	if got := given(t, shopKey, "profile", "add", "shop", "--url", server.URL); got.code != 3 || got.err != "tokenkeep: "+errNoConfigFolder.Error()+"\n" {
		t.Errorf("profile add = %+v", got)
	}
}

func TestAProfileMayNameAnAuthority(t *testing.T) {
	desk(t)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `[]`)
	}))
	defer s.Close()
	dir := t.TempDir()
	t.Chdir(dir)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	mustWrite(t, "ca.pem", ca)
	if got := given(t, shopKey, "profile", "add", "shop", "--url", s.URL, "--ca-file", "ca.pem"); got.code != 0 {
		t.Fatal(got)
	}
	t.Chdir(t.TempDir()) // the file is found from anywhere
	if got := given(t, "", "permission", "list"); got.code != 0 {
		t.Errorf("with its authority: %+v", got)
	}
	t.Setenv("TOKENKEEP_CA_FILE", filepath.Join(dir, "none"))
	if got := given(t, "", "permission", "list"); got.code != 2 || got.err != "tokenkeep: "+errCAFile.Error()+"\n" {
		t.Errorf("with another: %+v", got)
	}
}

// TestOtherProcessesSeeNoKey looks at what every process on a machine can see
// of a command while it calls.
func TestOtherProcessesSeeNoKey(t *testing.T) {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("there is no /proc here")
	}
	desk(t)
	called, goOn := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("SVC-API-KEY") != shopKey {
			t.Error("it calls with another key")
		}
		close(called)
		<-goOn
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	}))
	defer s.Close()
	if got := given(t, shopKey, "profile", "add", "shop", "--url", s.URL); got.code != 0 {
		t.Fatal(got)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "token", "create", "--type", "card_number", "--text")
	cmd.Env = append(os.Environ(), asTokenkeep+"=1")
	cmd.Stdin = strings.NewReader(planted)
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-called
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
	close(goOn)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it failed: %v: %s", err, out.String())
	}
	if err != nil || !strings.Contains(string(line), "card_number") || strings.Contains(string(line)+out.String(), "EXAMPLE") || strings.Contains(string(line), planted) {
		t.Errorf("others see %q, %v; it printed %s", line, err, out.String())
	}
}
