package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/config"
)

var update = flag.Bool("update", false, "write the generated pages of docs/ anew")

func page(name string) string { return filepath.Join("..", "..", "docs", name) }

const configurationIntro = `# Configuration

Settings come from a file, then from the environment, then from flags: the later one wins. The file is YAML, is named with ` + "`--config`" + ` or
the variable ` + "`TOKENKEEP_CONFIG`" + `, and may nest names or join them by dots:

` + "```yaml" + `
addr: 0.0.0.0:8420
data: /var/lib/tokenkeep
tls:
  cert_file: /etc/tokenkeep/cert.pem
  key_file: /etc/tokenkeep/key.pem
kek.file: /etc/tokenkeep/kek
` + "```" + `

A server does not start while a setting is unknown, wrong or unsafe, and says which one. ` + "`tokenkeep config check`" + ` says so beforehand and
prints every setting with where its value came from. Errors name settings and never repeat values. Lists are separated by commas in
variables and flags. Durations are written like ` + "`90s`" + ` or ` + "`5m`" + `.

`

// configuration returns the page that follows from the table of settings.
func configuration() string {
	var b strings.Builder
	b.WriteString(configurationIntro)
	b.WriteString("| name | variable | flag | default | meaning |\n|---|---|---|---|---|\n")
	for _, s := range config.Settings() {
		flag, fallback := "`--"+s.Flag()+"`", ""
		if s.Secret {
			flag = "none"
		}
		if s.Default != "" {
			fallback = "`" + s.Default + "`"
		}
		_, _ = fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", s.Name, s.Env(), flag, fallback, strings.NewReplacer("|", `\|`, "*", `\*`).Replace(s.Doc))
	}
	return b.String()
}

func TestTheSettingsAreDocumented(t *testing.T) {
	if *update {
		if err := os.WriteFile(page("configuration.md"), []byte(configuration()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page("configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != configuration() {
		t.Error("docs/configuration.md is not what follows from the settings: run 'go test ./cmd/tokenkeep -run Documented -update'")
	}
}

func TestTheExampleOfTheConfigurationIsUnderstood(t *testing.T) {
	_, example, _ := strings.Cut(configurationIntro, "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	c, err := config.Load(mustWrite(t, filepath.Join(t.TempDir(), "tokenkeep.yaml"), example), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Source("tls.key_file") != "file" || c.Source("kek.file") != "file" {
		t.Error("the example's settings did not arrive")
	}
}

// documented matches a command in a line of its own, or inside one.
var documented = regexp.MustCompile("(?m)^ *(?:sudo -u tokenkeep )?tokenkeep ([a-z].*)$|`tokenkeep ([a-z][^`]*)`")

// TestEveryCommandInTheDocsExists parses the commands of all pages, without
// running them.
func TestEveryCommandInTheDocsExists(t *testing.T) {
	pages, err := filepath.Glob(page("*.md"))
	if err != nil {
		t.Fatal(err)
	}
	parsed := 0
	for _, name := range pages {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range documented.FindAllStringSubmatch(string(text), -1) {
			line, _, _ := strings.Cut(m[1]+m[2], "#")
			line = regexp.MustCompile(`[<>|].*`).ReplaceAllString(line, "")
			c, rest, err := rootCommand().Find(strings.Fields(line))
			if err == nil {
				err = c.ParseFlags(rest)
			}
			if err == nil && len(c.Flags().Args()) > 0 && c.HasSubCommands() {
				err = unknownCommand(c, c.Flags().Arg(0))
			}
			if err != nil {
				t.Errorf("%s has 'tokenkeep %s': %v", filepath.Base(name), strings.TrimSpace(line), err)
			}
			parsed++
		}
	}
	if parsed < 40 {
		t.Errorf("found %d commands: the search is wrong", parsed)
	}
}

// TestTheFirstServerOfThePageStarts runs the first commands of docs/operations.md
// with the configuration that follows them, in folders of its own.
func TestTheFirstServerOfThePageStarts(t *testing.T) {
	text, err := os.ReadFile(page("operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```sh first\n")
	commands, rest, _ := strings.Cut(rest, "```")
	_, rest, found := strings.Cut(rest, "```yaml\n")
	if !ok || !found {
		t.Fatal("docs/operations.md has no first server")
	}
	settings, _, _ := strings.Cut(rest, "```")
	dir := t.TempDir()
	places := strings.NewReplacer("/etc/tokenkeep", dir, "/var/lib/tokenkeep", filepath.Join(dir, "data"), "0.0.0.0:8420", "127.0.0.1:0",
		" tokenkeep.yaml", " "+filepath.Join(dir, "tokenkeep.yaml"))
	mustWrite(t, filepath.Join(dir, "tokenkeep.yaml"), places.Replace(settings))
	issue(t, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), 1)
	ran := 0
	for line := range strings.Lines(commands) {
		line, _, _ = strings.Cut(places.Replace(line), "#")
		args := strings.Fields(line)[1:]
		if args[0] == "serve" {
			start(t, args...)
		} else if got := call(t, args...); got.code != 0 {
			t.Fatalf("tokenkeep %s = %+v", args, got)
		}
		ran++
	}
	if ran != 4 {
		t.Errorf("ran %d commands, want four", ran)
	}
}

func TestTheExitCodesAreDocumented(t *testing.T) {
	text, err := os.ReadFile(page("operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## Exit codes\n")
	if !ok {
		t.Fatal("docs/operations.md has no section on exit codes")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var got []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| ") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := []string{"| code | meaning |", "| 1 | anything else; the sentence says what |"}
	for _, e := range exits {
		want = append(want, fmt.Sprintf("| %d | %s |", e.code, e.means))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("docs/operations.md has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
