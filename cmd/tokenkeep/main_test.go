package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// planted is a card number that somebody typed in the wrong place.
const planted = "4242424242424242"

// result is what a command left behind.
type result struct {
	code     int
	out, err string
}

// call runs a command inside the test.
func call(t *testing.T, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(""), &out, &errOut)
	return result{code, out.String(), errOut.String()}
}

func mustWrite(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// keyFile makes a key-encryption key.
func keyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kek")
	if _, err := localkms.Generate(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// tree tells names, modes and contents of everything under a folder.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(&b, "%s %s", strings.TrimPrefix(path, dir), info.Mode())
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(&b, " %x", sha256.Sum256(text))
		}
		_ = b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// usedData returns a folder that a server has used and left.
func usedData(t *testing.T) string {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	p := start(t, "dev", "--addr", "127.0.0.1:0", "--data", data)
	if code := p.end(); code != 0 {
		t.Fatalf("dev ended with %d: %s", code, p.errOut)
	}
	return data
}

// spoil changes bytes of a file.
func spoil(t *testing.T, path string, at int, with ...byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt(with, int64(at)); err != nil {
		t.Fatal(err)
	}
}

func TestEveryExitHasItsCodeAndOneSentence(t *testing.T) {
	storetest.Long(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	kek := keyFile(t)
	open := mustWrite(t, path("open"), "akey\n")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	running := start(t, "dev", "--addr", "127.0.0.1:0", "--data", path("running"))
	if err := os.Mkdir(path("empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	newer, damaged, foreign, sealed := usedData(t), usedData(t), usedData(t), usedData(t)
	spoil(t, filepath.Join(newer, "tokenkeep.db"), 60, 0, 0, 0x7f, 0xff) // PRAGMA user_version
	spoil(t, filepath.Join(damaged, "tokenkeep.db"), 0, []byte("no database")...)
	spoil(t, filepath.Join(foreign, "tokenkeep.db"), 68, 1, 2, 3, 4) // PRAGMA application_id
	serve := func(data string, more ...string) []string {
		return append([]string{"serve", "--addr", "127.0.0.1:0", "--data", data, "--kek-file", kek}, more...)
	}

	covered := map[int]bool{}
	files := func() (all string) {
		for _, folder := range []string{dir, newer, damaged, foreign} {
			for line := range strings.Lines(tree(t, folder)) {
				if !strings.HasPrefix(line, "/running/") { // whose server has work of its own
					all += line
				}
			}
		}
		return all
	}
	for name, test := range map[string]struct {
		args []string
		code int
		want string // in the sentence
	}{
		"a flag that is none":      {[]string{"serve", "--nope"}, 2, `unknown flag "--nope"`},
		"a flag without its value": {[]string{"serve", "--data"}, 2, "the value of --data is missing"},
		"a flag with a bad value":  {[]string{"status", "--json=perhaps"}, 2, "the value of --json is missing"},
		"a command that is none":   {[]string{"sevre"}, 2, `did you mean "serve"?`},
		"a command of a group":     {[]string{"store", "chekc"}, 2, `did you mean "check"?`},
		"help on none":             {[]string{"help", "sevre"}, 2, `did you mean "serve"?`},
		"an argument too many":     {[]string{"version", "please"}, 2, "unexpected argument"},

		"no such file":              {[]string{"serve", "--config", path("none.yaml")}, 3, "no file at the path given with --config"},
		"an unknown setting":        {[]string{"serve", "--config", mustWrite(t, path("unknown.yaml"), "adr: x\n")}, 3, "unknown setting adr"},
		"no key":                    {[]string{"serve", "--addr", "127.0.0.1:0", "--data", path("new")}, 3, "kek.file is not set"},
		"a key that others read":    {serve(path("new"), "--kek-file", open), 3, "kek.file has mode 0644"},
		"in clear on every address": {serve(path("new"), "--addr", "0.0.0.0:0"), 3, "addr is not a loopback address"},
		"dev on every address":      {[]string{"dev", "--addr", "0.0.0.0:0", "--data", path("new")}, 3, "addr is not a loopback address"},
		"a broken certificate":      {serve(path("new"), "--tls-cert-file", kek, "--tls-key-file", kek), 3, "tls.cert_file and tls.key_file do not hold"},
		"a check of one":            {[]string{"config", "check", "--kek-file", kek, "--data", path("new"), "--tls-cert-file", kek, "--tls-key-file", kek}, 3, "tls.cert_file"},

		"dev on a folder in use":   {[]string{"dev", "--addr", "127.0.0.1:0", "--data", path("running")}, 4, "in use by another process"},
		"serve on a folder in use": {serve(path("running")), 4, "in use by another process"},

		"data of a newer release":            {serve(newer), 5, "written by a newer release"},
		"damaged data":                       {serve(damaged), 6, "damaged"},
		"data of another program":            {serve(foreign), 6, "a database of another program"},
		"an address that is taken":           {serve(path("taken"), "--addr", taken.Addr().String()), 7, "address in addr: address already in use"},
		"an address for metrics that is too": {serve(path("taken"), "--metrics-addr", taken.Addr().String()), 7, "address in metrics_addr: address already in use"},

		"a key that is none":          {serve(path("new"), "--kek-file", mustWrite(t, filepath.Join(t.TempDir(), "none"), "a key\n")), 3, "does not hold a key-encryption key"},
		"a check of one that is none": {[]string{"config", "check", "--data", path("new"), "--kek-file", mustWrite(t, filepath.Join(t.TempDir(), "none"), "a key\n")}, 3, "does not hold a key-encryption key"},
		"the key of other data":       {serve(sealed), 8, "not the key-encryption key of this installation"},
		"status of no server":         {[]string{"status", "--data", path("new")}, 9, "no server is running"},
		"a key of nobody":             {[]string{"token", "get", "x", "--url", running.url, "--key-file", mustWrite(t, filepath.Join(t.TempDir(), "key"), "nobody\n")}, 11, "unknown API key"},
		"nobody at the address":       {[]string{"token", "create", "--type", "token", "--text", "--url", "http://127.0.0.1:1", "--key-file", open}, 12, "nothing listens"},
		"a check of an empty one":     {[]string{"store", "check", "--data", path("empty")}, 1, "no such file or directory"},
		"a check of no folder":        {[]string{"store", "check", "--data", path("new")}, 1, "no such file or directory"},
		"no runtime for code":         {serve(path("new"), "--sandbox-level", "full"), 3, "there is no runtime beside the program or in sandbox.runtime"},
		"a folder for the config":     {[]string{"serve", "--config", dir}, 3, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			before := files()
			got := call(t, test.args...)
			covered[test.code] = true
			if got.code != test.code || !strings.Contains(got.err, test.want) {
				t.Errorf("%v = %d %q, want %d with %q", test.args[:1], got.code, got.err, test.code, test.want)
			}
			if !strings.HasPrefix(got.err, "tokenkeep: ") || strings.Count(got.err, "\n") != 1 || got.out != "" {
				t.Errorf("printed %q and %q, want one sentence and nothing else", got.out, got.err)
			}
			if strings.Contains(got.err, dir) {
				t.Errorf("the sentence repeats a path: %q", got.err)
			}
			if test.code == 7 || test.code == 8 {
				return // the store was opened by then, and closed again
			}
			if after := files(); after != before {
				t.Errorf("files changed from\n%s\nto\n%s", before, after)
			}
		})
	}
	covered[10] = true // TestAChangedLogIsFound
	covered[13] = true // TestCodeRunsWithoutAServer
	covered[14] = true // TestARestoreOfWhatIsNotRightRestoresNothing
	covered[15] = true // TestARestoreTakesAnEmptyFolderAlone
	covered[16] = true // TestTheDoctorFindsWhatMustBePutRight
	covered[17] = true // TestACopyThatDiffersIsNotServed
	covered[18] = true // TestAKilledMigrationGoesOnWhereItWas
	for _, e := range exits {
		if !covered[e.code] {
			t.Errorf("no case ends with %d: %s", e.code, e.means)
		}
	}
	if got := call(t, "status", "--data", path("running")); got.code != 0 || !strings.Contains(got.out, running.url) {
		t.Errorf("the server beside all this: status = %+v", got)
	}
}

func TestNothingThatWasTypedIsRepeated(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{
		{planted}, {"--" + planted}, {"-" + planted}, {"--=" + planted}, {"help", planted}, {"completion", planted}, {"completion", "bash", planted},
		{"serve", planted}, {"serve", "--" + planted}, {"serve", "--kek-value", planted}, {"serve", "--kek-value=" + planted}, {"serve", "-c" + planted},
		{"serve", "--config", filepath.Join(dir, planted)}, {"serve", "--addr", planted}, {"serve", "--addr", planted + ":1"}, {"serve", "--max-body", planted},
		{"serve", "--log-level", planted}, {"serve", "--trusted-proxies", planted}, {"serve", "--cors-origins", planted}, {"serve", "--timeout-read", planted},
		{"serve", "--kek-file", filepath.Join(dir, planted)}, {"serve", "--tls-cert-file", planted, "--tls-key-file", planted},
		{"serve", "--addr", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--kek-file", keyFile(t), "--metrics-addr", planted + "..:1"},
		{"serve", "--addr", "127.0.0.1:0", "--data", filepath.Join("/proc", planted), "--kek-file", keyFile(t)},
		{"serve", "--addr", "127.0.0.1:0", "--data", filepath.Join(mustWrite(t, filepath.Join(dir, "file"), ""), planted), "--kek-file", keyFile(t)},
		{"dev", "--addr", planted}, {"dev", "--addr", planted + ":1"}, {"dev", "--header-prefix", planted + " "}, {"dev", "--data", filepath.Join("/proc", planted)},
		{"config", planted}, {"config", "check", planted}, {"config", "check", "--header-prefix", planted}, {"config", "settings", planted},
		{"status", planted}, {"status", "--json=" + planted}, {"status", "--data", filepath.Join(dir, planted)}, {"status", "--data", dir + strings.Repeat("/"+planted, 20)},
		{"store", planted}, {"store", "check", planted}, {"store", "check", "--data", filepath.Join(dir, planted)}, {"version", planted},
		{"key", "create", filepath.Join(dir, planted, planted)}, {"key", "drop-kek", planted, "--data", dir}, {"key", "rotate-tenant", planted, "--data", dir},
		{"backup", planted, "--data", dir}, {"doctor", planted}, {"doctor", "--config", filepath.Join(dir, planted)}, {"doctor", "--data", filepath.Join(dir, planted), "--tls-cert-file", planted, "--tls-key-file", planted},
		{"restore", planted}, {"restore", filepath.Join(dir, planted), "--data", filepath.Join(dir, planted), "--kek-file", keyFile(t)},
		{"tenant", "create", planted, "--data", dir}, {"tenant", "delete", planted, "--data", dir}, {"tenant", "delete", planted, "--yes", "--data", dir},
		{"application", "list", planted}, {"application", "list", "--tenant", planted, "--data", dir}, {"application", "create", planted},
		{"application", "create", "a", "--tenant", planted, "--rules", filepath.Join(dir, planted), "--data", dir},
		{"audit", "verify", planted, "--data", dir}, {"audit", "verify", planted, "--checkpoint", filepath.Join(dir, planted), "--data", dir},
		{"audit", "check-export", filepath.Join(dir, planted)}, {"audit", "export", "a", "--from", planted, "--data", dir}, {"audit", "retain", planted, "--keep", planted, "--data", dir},
		{"token", planted}, {"token", "create", planted}, {"token", "create", "--type", planted, "--data", dir}, {"token", "create", "--type", "token", "--metadata", planted, "--data", dir},
		{"token", "get", planted, "--data", filepath.Join(dir, planted)}, {"token", "get", planted, "--url", planted}, {"token", "list", "--url", "http://" + planted},
		{"token", "list", "--limit", planted + "x"}, {"token", "search", "data:" + planted}, {"token", "search", planted, "--url", "ftp://" + planted},
		{"token", "update", planted, "--data-file", filepath.Join(dir, planted)}, {"tokenize", planted}, {"tokenize", "--data-file", filepath.Join(dir, planted)},
		{"profile", planted}, {"profile", "add", planted}, {"profile", "add", planted, "--url", planted}, {"profile", "use", planted}, {"profile", "remove", planted},
		{"health", "--url", planted}, {"health", "--profile", planted}, {"health", "--url", "https://" + planted, "--ca-file", filepath.Join(dir, planted)},
		{"log", planted}, {"log", "--from", planted}, {"log", "-f", "--interval", planted}, {"log", "-f", "--url", "http://" + planted},
		{"session", "authorize", planted}, {"session", "authorize", "--expires-at", planted, "--url", "http://127.0.0.1:1"}, {"session", "revoke", planted},
		{"proxy", "call", planted}, {"proxy", "call", "--proxy-key-file", filepath.Join(dir, planted)}, {"proxy", "call", "--destination", planted, "--header", planted},
		{"proxy", "call", "--destination", planted, "--path", planted, "--url", "http://127.0.0.1:1"}, {"proxy", "replace", planted, "--name", planted},
		{"reactor", "react", planted, "--args", filepath.Join(dir, planted)}, {"reactor", "result", planted, planted, "--wait", planted}, {"reactor", "update", planted},
		{"tenant", "update", "--set", planted}, {"tenant", "delete", "self", planted}, {"permission", "list", planted}, {"permission", "list", "--type", planted},
		{"detokenize", "--key-file", filepath.Join(dir, planted), "--url", "http://127.0.0.1:1"}, {"detokenize", "--header-prefix", planted + " ", "--url", "http://127.0.0.1:1"},
	} {
		got := call(t, args...)
		if strings.Contains(got.out+got.err, planted[:8]) {
			t.Errorf("%s … = %d %q %q: it repeats what was typed", args[0], got.code, got.out, got.err)
		}
		if got.code == 0 && args[0] != "completion" {
			t.Errorf("%s … = 0, want a refusal", args[0])
		}
	}
}

func TestASettingMayComeFromAVariable(t *testing.T) {
	t.Setenv("TOKENKEEP_ADDR", planted)
	if got := call(t, "dev", "--data", filepath.Join(t.TempDir(), "data")); got.code != 3 || !strings.Contains(got.err, "addr (from the environment)") {
		t.Errorf("dev = %d %q, want it to refuse the variable's address", got.code, got.err)
	}
}

func TestConfigCheckPrintsEverySettingAndItsSource(t *testing.T) {
	dir := t.TempDir()
	file := mustWrite(t, filepath.Join(dir, "tokenkeep.yaml"), "log:\n  level: warn\ndata: "+filepath.Join(dir, "data")+"\n")
	kek, err := os.ReadFile(keyFile(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TOKENKEEP_KEK_VALUE", string(kek))
	t.Setenv("TOKENKEEP_TIMEOUT_IDLE", "30s")
	got := call(t, "config", "check", "--config", file, "--max-body", "2048")
	if got.code != 0 || got.err != "" || !strings.HasSuffix(got.out, "The configuration is good.\n") {
		t.Fatalf("config check = %+v", got)
	}
	for _, want := range []string{`log\.level +warn +\(file\)`, `timeout\.idle +30s +\(environment\)`, `max_body +2048 +\(flag\)`, `kek\.value +\(set\) +\(environment\)`, `addr +127\.0\.0\.1:8420 +\(default\)`} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(got.out) {
			t.Errorf("config check has no line %s:\n%s", want, got.out)
		}
	}
	for _, s := range config.Settings() {
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(s.Name) + ` `).MatchString(got.out) {
			t.Errorf("config check leaves %s out", s.Name)
		}
	}
	if strings.Contains(got.out, string(kek[:20])) || strings.Contains(got.out, string(kek[len(kek)/2:])) {
		t.Error("config check prints the key")
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); !os.IsNotExist(err) {
		t.Errorf("config check made the data folder: %v", err)
	}
}

func TestConfigSettingsListsEveryRow(t *testing.T) {
	got := call(t, "config", "settings")
	for _, s := range config.Settings() {
		if !strings.Contains(got.out, s.Name+" ("+s.Env()+", ") || !strings.Contains(got.out, s.Doc) {
			t.Errorf("config settings leaves %s out", s.Name)
		}
		if strings.Contains(got.out, "--"+s.Flag()+")") == s.Secret {
			t.Errorf("config settings is wrong about the flag of %s", s.Name)
		}
	}
}

func TestSmallCommands(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"version"}, "tokenkeep " + release() + "\n"},
		{[]string{"completion", "bash"}, "__start_tokenkeep"},
		{[]string{"completion", "zsh"}, "#compdef tokenkeep"},
		{[]string{"completion", "fish"}, "complete -c tokenkeep"},
		{nil, "tokenkeep dev "},
		{[]string{"--help"}, "tokenkeep serve "},
		{[]string{"help", "serve"}, "SIGHUP"},
		{[]string{"help", "store", "check"}, "Reads every page"},
		{[]string{"store"}, "check"},
		{[]string{"config"}, "settings"},
		{[]string{"token"}, "search"},
		{[]string{"token", "create", "--help"}, "seen by every process"},
	} {
		if got := call(t, test.args...); got.code != 0 || got.err != "" || !strings.Contains(got.out, test.want) {
			t.Errorf("%v = %d %q, printed %.300q; want 0 and %q", test.args, got.code, got.err, got.out, test.want)
		}
	}
}

func TestTwoInheritedSocketsAreRefused(t *testing.T) {
	t.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	t.Setenv("LISTEN_FDS", "2")
	got := call(t, "serve", "--data", filepath.Join(t.TempDir(), "data"), "--kek-file", keyFile(t))
	if got.code != 2 || !strings.Contains(got.err, "more than one socket") {
		t.Errorf("serve = %d %q, want 2", got.code, got.err)
	}
}

func TestEveryCommandTellsWhatItDoes(t *testing.T) {
	commands := rootCommand().Commands()
	if len(commands) < 5 {
		t.Fatalf("found %d commands", len(commands))
	}
	for len(commands) > 0 {
		c := commands[0]
		commands = slices.Concat(commands[1:], c.Commands())
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: the short text is %q, want one without a full stop", c.CommandPath(), c.Short)
		}
		if !c.Runnable() {
			t.Errorf("%s does nothing, not even tell what belongs to it", c.CommandPath())
		}
	}
}
