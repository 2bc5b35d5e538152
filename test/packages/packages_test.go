// Package packages_test packs the npm packages of the card fields, and compiles
// a program of a user against them.
package packages_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

const source = "../../web/packages"

func run(t *testing.T, folder, name string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = folder
	out, err := c.CombinedOutput()
	return string(out), err
}

// user is a folder in which the packages are unpacked as npm does it.
func user(t *testing.T) (folder, tools string) {
	t.Helper()
	tools, err := filepath.Abs(filepath.Join(source, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(tools, "typescript")); err != nil {
		t.Skip("the tools of web/packages are not installed: run 'make packages'")
	}
	folder, packed := t.TempDir(), t.TempDir()
	if out, err := run(t, source, "node", "pack.mjs", packed); err != nil {
		t.Fatalf("pack.mjs: %v\n%s", err, out)
	}
	for _, name := range []string{"elements", "react"} {
		to := filepath.Join(folder, "node_modules", "@tokenkeep", name)
		if err := os.MkdirAll(to, 0o700); err != nil {
			t.Fatal(err)
		}
		if out, err := run(t, packed, "tar", "-xzf", "tokenkeep-"+name+"-0.1.0.tgz", "--strip-components=1", "-C", to); err != nil {
			t.Fatalf("tar: %v\n%s", err, out)
		}
	}
	for _, name := range []string{"@types", "csstype"} {
		if err := os.Symlink(filepath.Join(tools, name), filepath.Join(folder, "node_modules", name)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("testdata/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(f)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder, tools
}

func TestAUserOfThePackagesCompiles(t *testing.T) {
	storetest.CheckOnly(t)
	folder, tools := user(t)
	compile := func(resolution, module string, files ...string) (string, error) {
		return run(t, folder, "node", append([]string{filepath.Join(tools, "typescript/bin/tsc"), "--noEmit", "--strict", "--jsx", "react-jsx", "--target", "es2022",
			"--lib", "es2022,dom", "--moduleResolution", resolution, "--module", module}, files...)...)
	}
	for resolution, module := range map[string]string{"bundler": "esnext", "nodenext": "nodenext"} {
		if out, err := compile(resolution, module, "checkout.ts", "react.tsx"); err != nil {
			t.Errorf("with %s: %v\n%s", resolution, err, out)
		}
	}
	out, err := compile("bundler", "esnext", "wrong.ts")
	text, readErr := os.ReadFile("testdata/wrong.ts")
	if readErr != nil {
		t.Fatal(readErr)
	}
	for i, line := range bytes.Split(text, []byte("\n")) {
		at := "wrong.ts(" + strconv.Itoa(i+1) + ","
		if wrong := bytes.Contains(line, []byte("// wrong")); wrong != strings.Contains(out, at) {
			t.Errorf("line %d of wrong.ts: refused is %t, want %t; tsc: %v\n%s", i+1, !wrong, wrong, err, out)
		}
	}

	// A server that renders a page imports the module, too.
	if out, err := run(t, folder, "node", "--input-type=module", "--eval", "import { elements, TokenkeepError } from '@tokenkeep/elements'; console.log(typeof elements, new TokenkeepError('a', 'b').code)"); err != nil || out != "function a\n" {
		t.Errorf("node prints %q, %v", out, err)
	}
}
