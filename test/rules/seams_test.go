package rules_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// mayCarry lists the files that put a value into a context, with what it is. A
// context carries a deadline, an end, and what belongs to one request at the
// edge; what services decide by is an argument.
var mayCarry = map[string]string{
	"internal/httpapi/httpapi.go":     "the exchange of a request, with its trace id; only httpapi reads it",
	"internal/keyring/watch.go":       "which epochs' keys were used, while code runs whose result must not outlive them; only keyring reads it",
	"internal/sandbox/turns_linux.go": "the turn of the run that a nested run is part of; only sandbox reads it",
}

func TestOnlyListedFilesPutValuesIntoContexts(t *testing.T) {
	set, files := sources(t)
	used := make(map[string]bool)
	for _, f := range files {
		ast.Inspect(f.file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "WithValue" && isOfPackage(s, "context") {
				if _, listed := mayCarry[f.name]; !listed {
					t.Errorf("%s puts a value into a context, and is not listed in mayCarry: make it an argument", set.Position(s.Pos()))
				}
				used[f.name] = true
			}
			return true
		})
	}
	for name := range mayCarry {
		if !used[name] {
			t.Errorf("%s is listed in mayCarry and puts no value into a context: take it off the list", name)
		}
	}
}

// TestEveryTestPackageSaysWhatItGuards reads the comments of the folders under
// test.
func TestEveryTestPackageSaysWhatItGuards(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "*", "*.go"))
	if err != nil || len(files) < 50 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	says := make(map[string]bool)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Base(filepath.Dir(name))
		about := strings.HasPrefix(file.Doc.Text(), "Package "+file.Name.Name+" ") || strings.HasPrefix(file.Doc.Text(), "Package "+strings.TrimSuffix(file.Name.Name, "_test")+" ")
		says[folder] = says[folder] || about
	}
	for folder, ok := range says {
		if !ok {
			t.Errorf("test/%s has no comment that says what it guards", folder)
		}
	}
}
