// Package tsclient_test packs the TypeScript client, installs it as its users
// do, and calls a live server with it.
package tsclient_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

const (
	source = "../../client/typescript"
	schema = "../../api/openapi.yaml"
)

func TestMain(m *testing.M) {
	code := keeptest.Run(m)
	remove()
	os.Exit(code)
}

// remove removes what was installed.
var remove = func() {}

// installation is a folder in which the packed client is installed, with the
// tests of the client beside it.
type installation struct {
	folder  string
	tools   string   // node_modules of the client's own folder
	archive []string // the files in the package
}

var installed = sync.OnceValues(func() (in installation, err error) {
	if in.tools, err = filepath.Abs(filepath.Join(source, "node_modules")); err != nil {
		return in, err
	}
	top, err := os.MkdirTemp("", "tsclient-")
	if err != nil {
		return in, err
	}
	remove = func() { _ = os.RemoveAll(top) }
	// Packed from a copy, so that nothing is left behind in the checkout.
	packed := filepath.Join(top, "packed")
	if err := copyTree(packed, source, "package.json", "tsconfig.json", "README.md", "LICENSE", "src", "test"); err != nil {
		return in, err
	}
	if err := os.Symlink(in.tools, filepath.Join(packed, "node_modules")); err != nil {
		return in, err
	}
	// Only the standard output is JSON; the build prints before it.
	out, err := command(packed, "npm", "pack", "--json", "--loglevel=error", "--pack-destination", top)
	if err != nil {
		return in, err
	}
	var list []struct {
		Filename string
		Files    []struct{ Path string }
	}
	if err := json.Unmarshal(out[max(0, bytes.Index(out, []byte("[\n"))):], &list); err != nil || len(list) != 1 {
		return in, fmt.Errorf("npm pack printed %s: %w", out, err)
	}
	for _, f := range list[0].Files {
		in.archive = append(in.archive, f.Path)
	}
	in.folder = filepath.Join(top, "user")
	if err := copyTree(in.folder, filepath.Join(source, "test"), "."); err != nil {
		return in, err
	}
	if err := os.WriteFile(filepath.Join(in.folder, "package.json"), []byte(`{"private":true,"type":"module"}`), 0o600); err != nil {
		return in, err
	}
	if _, err := command(in.folder, "npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", filepath.Join(top, list[0].Filename)); err != nil {
		return in, err
	}
	return in, os.Symlink(filepath.Join(in.tools, "@types"), filepath.Join(in.folder, "node_modules", "@types"))
})

// install returns the installation, which is made once for all tests.
func install(t *testing.T) installation {
	t.Helper()
	if testing.Short() {
		t.Skip("packs and compiles")
	}
	_, err := os.Stat(filepath.Join(source, "node_modules", ".package-lock.json"))
	for _, program := range []string{"node", "npm"} {
		if err == nil {
			_, err = exec.LookPath(program)
		}
	}
	if err != nil {
		if os.Getenv("KEEPTEST_RUNTIME") == "required" {
			t.Fatal(err)
		}
		t.Skip("the tools of the TypeScript client are not installed: 'make tsclient' installs them")
	}
	version, err := command(".", "node", "--print", "process.versions.node.split('.')[0]")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(version))); err != nil || n < 20 {
		t.Skipf("the TypeScript client is for Node.js 20 and newer, and this is %s", version)
	}
	in, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// tsc runs a compiler, by the name under which package.json has it.
func (in installation) tsc(compiler string, arguments ...string) error {
	_, err := command(in.folder, "node", append([]string{filepath.Join(in.tools, compiler, "bin", "tsc")}, arguments...)...)
	return err
}

// command runs a program and returns what it printed. It finds no registry.
func command(folder, program string, arguments ...string) ([]byte, error) {
	cmd := exec.Command(program, arguments...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "npm_config_update_notifier=false", "npm_config_offline=true")
	var words bytes.Buffer
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", program, strings.Join(arguments, " "), err, out, words.String())
	}
	return out, nil
}

// copyTree copies files and folders of one folder into a new one. It reads
// them itself, so that a change of them is not answered from the test cache.
func copyTree(to, from string, names ...string) error {
	for _, name := range names {
		err := filepath.WalkDir(filepath.Join(from, name), func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			inside, err := filepath.Rel(from, p)
			if err != nil || d.IsDir() {
				return errors.Join(err, os.MkdirAll(filepath.Join(to, inside), 0o700))
			}
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			return errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(to, inside)), 0o700), os.WriteFile(filepath.Join(to, inside), text, 0o600))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func TestTheGeneratedTypesAreThoseOfTheDocument(t *testing.T) {
	storetest.Long(t)
	in := install(t)
	text, err := os.ReadFile(filepath.Join(source, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct{ Scripts map[string]string }
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	document, err := filepath.Abs(schema)
	if err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(t.TempDir(), "schema.ts")
	words := strings.NewReplacer("../../api/openapi.yaml", document, "src/schema.ts", fresh).Replace(manifest.Scripts["generate"])
	arguments := strings.Fields(words)
	if len(arguments) < 3 || arguments[0] != "openapi-typescript" {
		t.Fatalf("the script that generates is %q", words)
	}
	if _, err := os.ReadFile(schema); err != nil { // for the test cache
		t.Fatal(err)
	}
	if _, err := command(".", "node", append([]string{filepath.Join(in.tools, "openapi-typescript", "bin", "cli.js")}, arguments[1:]...)...); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(source, "src", "schema.ts"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(fresh)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("src/schema.ts is not what api/openapi.yaml gives: run 'npm run generate' in client/typescript")
	}
}

func TestThePackageHoldsWhatItShould(t *testing.T) {
	storetest.Long(t)
	in := install(t)
	want := []string{"LICENSE", "README.md", "package.json"}
	sources, err := filepath.Glob(filepath.Join(source, "src", "*.ts"))
	if err != nil || len(sources) < 5 {
		t.Fatalf("found %d source files: %v", len(sources), err)
	}
	for _, p := range sources {
		name := strings.TrimSuffix(filepath.Base(p), ".ts")
		want = append(want, "src/"+name+".ts", "dist/"+name+".js", "dist/"+name+".js.map", "dist/"+name+".d.ts", "dist/"+name+".d.ts.map")
	}
	got := slices.Clone(in.archive)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the package holds %q, want %q", got, want)
	}
	ours, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	packed, err := os.ReadFile(filepath.Join(in.folder, "node_modules", "tokenkeep", "LICENSE"))
	if err != nil || !bytes.Equal(packed, ours) {
		t.Errorf("the licence of the package is not ours: %v", err)
	}
	manifest, err := os.ReadFile(filepath.Join(in.folder, "node_modules", "tokenkeep", "package.json"))
	if err != nil || regexp.MustCompile(`"(dependencies|(pre|post)?install)"`).Match(manifest) {
		t.Errorf("the package brings others with it, or runs a script when it is installed: %v", err)
	}
}

// TestTheTypesTakeWhatIsRightAndNothingElse compiles a file of uses, and one in
// which every line is a mistake, as programs for Node.js and for browsers do.
// The older compiler takes seconds, and its turn comes in full runs.
func TestTheTypesTakeWhatIsRightAndNothingElse(t *testing.T) {
	storetest.Long(t)
	in := install(t)
	node := []string{"--module", "nodenext", "--lib", "es2022", "--types", "node"}
	browser := []string{"--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2022,dom", "--types", "null"}
	for name, row := range map[string]struct {
		compiler string
		settings []string
	}{
		"node": {"typescript-7", node}, "browser": {"typescript-7", browser}, "node, older": {"typescript", node},
	} {
		t.Run(name, func(t *testing.T) {
			if row.compiler == "typescript" && !storetest.All() {
				t.Skip("in full runs")
			}
			if err := in.tsc(row.compiler, append(row.settings, "--noEmit", "--strict", "--exactOptionalPropertyTypes", "--target", "es2022", "types/right.ts", "types/wrong.ts")...); err != nil {
				t.Error(err)
			}
		})
	}
}
