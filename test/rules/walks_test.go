package rules_test

import (
	"go/ast"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Walks are the numbered lists of docs/data-flow.md under a heading that begins
// with these words. They name functions as `package.Name`, `package.Type.Name`
// or `package.(*Type).Name`.
const walkHeading = "### Function by function"

var (
	walkStep     = regexp.MustCompile(`^\d+\. `)
	walkFunction = regexp.MustCompile("`([a-z][a-z0-9]*)\\.((?:\\(\\*\\w+\\)\\.|[A-Z]\\w*\\.)?\\w+)`")
)

// tables are functions that say what is called for which row, or start what runs
// beside the requests, so that no function of a walk does.
var tables = []string{"endpoint.Routes", "endpoint.Services.routes", "reactor.(*Service).Kinds", "server.(*Server).connectCode", "server.(*Server).Run"}

// function is a function with the names that stand in its body.
type function map[string]bool

// functions returns the functions of the module, by package and name.
func functions(t *testing.T) map[string]function {
	t.Helper()
	_, files := sources(t)
	all := make(map[string]function)
	for _, f := range files {
		for _, decl := range f.file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			names := make(function)
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					names[id.Name] = true
				}
				return true
			})
			all[path.Base(f.pkg)+"."+receiverOf(fn)+fn.Name.Name] = names
		}
	}
	return all
}

// receiverOf is the receiver of a method as walks write it, without the
// parameters of its type: "(*Type)." or "Type."; "" for a plain function.
func receiverOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	text := types.ExprString(fn.Recv.List[0].Type)
	text, _, _ = strings.Cut(text, "[")
	if strings.HasPrefix(text, "*") {
		text = "(" + text + ")"
	}
	return text + "."
}

// walksIn returns the functions of each walk, in order, by the heading above it.
func walksIn(text string) map[string][]string {
	walks := make(map[string][]string)
	section, inWalk := "", false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "## "):
			section, inWalk = strings.TrimSpace(line[3:]), false
		case strings.HasPrefix(line, "#"):
			inWalk = strings.HasPrefix(line, walkHeading)
		case inWalk && walkStep.MatchString(line):
			for _, m := range walkFunction.FindAllStringSubmatch(line, -1) {
				walks[section] = append(walks[section], m[1]+"."+m[2])
			}
		}
	}
	return walks
}

// TestWalksNameFunctionsInOrder: every function that a walk names exists, and is
// named by one that the walk has passed, or by a table.
func TestWalksNameFunctionsInOrder(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "data-flow.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := functions(t)
	walks := walksIn(string(text))
	for _, section := range []string{"Creating a token", "Reading it", "Through a proxy", "Through a reactor, without waiting"} {
		if len(walks[section]) < 10 {
			t.Errorf("docs/data-flow.md: %q names %d functions in its walk, want at least 10", section, len(walks[section]))
		}
	}
	for section, walk := range walks {
		passed := append([]string(nil), tables...)
		for i, name := range walk {
			if all[name] == nil {
				t.Errorf("docs/data-flow.md: %q names %s, and there is no such function", section, name)
			} else if short := name[strings.LastIndex(name, ".")+1:]; i > 0 && !named(all, passed, short) {
				t.Errorf("docs/data-flow.md: %q names %s, which nothing before it calls", section, name)
			}
			passed = append(passed, name)
		}
	}
}

// named reports whether one of the functions has a name in its body.
func named(all map[string]function, passed []string, name string) bool {
	for _, f := range passed {
		if all[f][name] {
			return true
		}
	}
	return false
}
