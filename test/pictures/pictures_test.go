// Package pictures_test draws the pictures of the pages with the library with
// which forges show them.
package pictures_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

var picture = regexp.MustCompile("(?ms)^ *```mermaid\n(.*?)^ *```$")

// broken are pictures that must not come out, or nothing would be proven.
var broken = map[string]string{
	"an arrow to nowhere": "sequenceDiagram\n  a->>\n", "a box that does not end": "flowchart LR\n  a[one --> b\n", "no kind of picture": "drawing\n  a --> b\n",
}

func TestThePicturesCanBeDrawn(t *testing.T) {
	storetest.CheckOnly(t)
	pictures := picturesOfThePages(t)
	if len(pictures) < 4 {
		t.Fatalf("the pages have %d pictures: the search is wrong", len(pictures))
	}
	maps.Copy(pictures, broken)
	for name, cause := range draw(t, pictures) {
		switch _, bad := broken[name]; {
		case bad && cause == "":
			t.Errorf("%s was drawn", name)
		case !bad && cause != "":
			t.Errorf("%s: %s", name, cause)
		}
	}
}

// draw returns for each picture what was wrong with it.
func draw(t *testing.T, pictures map[string]string) (causes map[string]string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join("node_modules", "mermaid"))
	}
	if err != nil {
		if os.Getenv("KEEPTEST_RUNTIME") == "required" {
			t.Fatal(err)
		}
		t.Skip("the library is not installed: 'make pictures' installs it")
	}
	if _, err := os.ReadFile("draw.mjs"); err != nil { // so that a change of it is not answered from the test cache
		t.Fatal(err)
	}
	in, err := json.Marshal(pictures)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, "draw.mjs")
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if err := json.Unmarshal(out, &causes); err != nil || len(causes) != len(pictures) {
		t.Fatalf("%v: %s", err, out)
	}
	return causes
}

func picturesOfThePages(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	found := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"bin", "data", "node_modules"}, d.Name())) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(p, ".md") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		for i, m := range picture.FindAllStringSubmatch(string(text), -1) {
			found[fmt.Sprintf("picture %d of %s", i+1, p)] = m[1]
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
