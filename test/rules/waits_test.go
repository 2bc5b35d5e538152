package rules_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayWatchTheClock lists what tests may do with the machine's clock that could
// make them fail for how long something took, by file and call, by file or by
// folder, with the reason. Everything else waits with package waittest.
var mayWatchTheClock = map[string]string{
	"internal/clock/clock_test.go time.Since compared":           "tells an hour from the day that the clock jumped by",
	"internal/egress/http_test.go time.Sleep":                    "the event is that nothing comes for longer than a destination has, however long that is",
	"internal/sandbox/hostile_linux_test.go time.Since compared": "when all rounds are run, against how long a good program takes at that moment",
	"internal/store/postgres/pgtest/":                            "gives up a PostgreSQL that does not start, and says what it printed",
	"internal/store/storetest/kill.go time.AfterFunc":            "kills a process at a random moment, which no assertion depends on",
	"test/failover/line_test.go time.Sleep":                      "is the fault: a line on which every piece comes late",
}

// onTheClock are the functions that wait for the machine's clock or measure with it.
var onTheClock = map[string][]string{
	"time":    {"After", "AfterFunc", "NewTicker", "NewTimer", "Sleep", "Tick", "Until"},
	"context": {"WithDeadline", "WithDeadlineCause", "WithTimeout", "WithTimeoutCause"},
	"net":     {"DialTimeout"},
}

// onTheClockInJavaScript are the same for browsers and for Node.js.
var onTheClockInJavaScript = regexp.MustCompile(`performance\.now\(|waitForTimeout\(|AbortSignal\.timeout\(|setDefault(Navigation)?Timeout\([^0]`)

// isTestSource reports whether a file is a test or supports tests. What measures
// (make bench) is no test.
func isTestSource(name string) bool {
	folder, file := path.Split(name)
	folder = strings.TrimSuffix(folder, "/")
	switch {
	case folder == "internal/waittest" || folder == "test/bench" || strings.Contains(file, "bench"):
		return false
	case strings.HasSuffix(file, ".js"), strings.HasSuffix(file, ".mjs"):
		return strings.HasPrefix(folder, "test/") || path.Base(folder) == "test"
	case !strings.HasSuffix(file, ".go"):
		return false
	}
	return strings.HasSuffix(file, "_test.go") || strings.HasSuffix(folder, "test") || strings.HasPrefix(folder, "test/")
}

// TestNoTestFailsForHowLongItTook reads the tests. A wait ends by its event; a
// bound in seconds fails on a busy machine with nothing wrong.
func TestNoTestFailsForHowLongItTook(t *testing.T) {
	used, seen := make(map[string]bool), 0
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if name = filepath.ToSlash(name); d.IsDir() {
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || slices.Contains([]string{"node_modules", "testdata", "tools", "bin", "dist"}, base)) {
				return fs.SkipDir
			}
			return nil
		}
		if !isTestSource(name) {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		seen++
		calls, err := watchesTheClock(name, text)
		if err != nil {
			return err
		}
		for _, c := range calls {
			key := name + " " + c.what
			listed := false
			for _, k := range []string{key, name, path.Dir(name) + "/"} {
				used[k] = true
				listed = listed || mayWatchTheClock[k] != ""
			}
			if !listed {
				t.Errorf("%s:%d: %s could fail for how long something took: wait with waittest, or give the reason in mayWatchTheClock", name, c.line, c.what)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 300 {
		t.Errorf("found %d test files: the test looks in the wrong place", seen)
	}
	for key := range mayWatchTheClock {
		if !used[key] {
			t.Errorf("%s is listed in mayWatchTheClock and is not there: take it off the list", key)
		}
	}
}

// clockCall is a place in a test that watches the machine's clock.
type clockCall struct {
	line int
	what string
}

// watchesTheClock returns the places of a file that wait for the machine's clock,
// bound a wait by it, or compare what it measured.
func watchesTheClock(name string, text []byte) (calls []clockCall, err error) {
	if !strings.HasSuffix(name, ".go") {
		for i, line := range strings.Split(string(text), "\n") {
			if found := onTheClockInJavaScript.FindString(line); found != "" {
				calls = append(calls, clockCall{i + 1, found})
			}
		}
		return calls, nil
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	add := func(n ast.Node, what string) { calls = append(calls, clockCall{set.Position(n.Pos()).Line, what}) }
	imports := make(map[string]string) // by local name
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		local := path.Base(imported)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		imports[local] = imported
	}
	// of returns the package and the name that an expression selects.
	of := func(e ast.Expr) (pkg, sel string) {
		s, ok := e.(*ast.SelectorExpr)
		if !ok {
			return "", ""
		}
		if x, ok := s.X.(*ast.Ident); ok {
			return imports[x.Name], s.Sel.Name
		}
		return "", s.Sel.Name
	}
	isCall := func(e ast.Expr, pkg string, names ...string) bool {
		c, ok := e.(*ast.CallExpr)
		if !ok {
			return false
		}
		p, n := of(c.Fun)
		return p == pkg && slices.Contains(names, n)
	}
	for _, d := range file.Decls {
		measured := make(map[string]bool) // variables with what time.Since returned
		measures := func(e ast.Expr) (found bool) {
			ast.Inspect(e, func(n ast.Node) bool {
				if x, ok := n.(ast.Expr); ok && isCall(x, "time", "Since") {
					found = true
				}
				if x, ok := n.(*ast.Ident); ok && measured[x.Name] {
					found = true
				}
				return !found
			})
			return found
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if x, ok := left.(*ast.Ident); ok && len(n.Rhs) == len(n.Lhs) && x.Name != "_" && measures(n.Rhs[i]) {
						measured[x.Name] = true
					}
					if s, ok := left.(*ast.SelectorExpr); ok && s.Sel.Name == "Timeout" && strings.HasSuffix(fmt.Sprint(lastName(s.X)), "lient") {
						add(n, "Client.Timeout")
					}
				}
			case *ast.BinaryExpr:
				if slices.Contains([]token.Token{token.LSS, token.GTR, token.LEQ, token.GEQ}, n.Op) && (measures(n.X) || measures(n.Y)) {
					add(n, "time.Since compared")
				}
			case *ast.CompositeLit:
				if pkg, sel := of(n.Type); pkg == "net/http" && sel == "Client" || pkg == "net" && sel == "Dialer" {
					for _, e := range n.Elts {
						if kv, ok := e.(*ast.KeyValueExpr); ok && slices.Contains([]string{"Timeout", "Deadline"}, lastName(kv.Key)) {
							add(kv, sel+"."+lastName(kv.Key))
						}
					}
				}
			case *ast.CallExpr:
				pkg, sel := of(n.Fun)
				s, _ := n.Fun.(*ast.SelectorExpr)
				switch {
				case pkg != "" && slices.Contains(onTheClock[pkg], sel):
					if last, ok := n.Args[len(n.Args)-1].(*ast.BasicLit); !ok || last.Value != "0" { // which is over at once
						add(n, path.Base(pkg)+"."+sel)
					}
				case slices.Contains([]string{"SetDeadline", "SetReadDeadline", "SetWriteDeadline"}, sel):
					if _, none := n.Args[0].(*ast.CompositeLit); !none {
						add(n, sel)
					}
				case s != nil && len(n.Args) == 1 && slices.Contains([]string{"After", "Before", "Compare"}, sel) &&
					(isCall(s.X, "time", "Now") || isCall(n.Args[0], "time", "Now")):
					add(n, "time.Now compared")
				}
			}
			return true
		})
	}
	return calls, nil
}

// lastName returns the name of a variable, or of the field that is selected last.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

func TestTheRuleOnWaitsSeesThem(t *testing.T) {
	const head = "package p\nimport (\"context\"; \"net\"; \"net/http\"; \"time\")\nfunc f() {\n"
	for line, want := range map[string]string{
		`select { case <-c: case <-time.After(time.Second): }`: "time.After",
		`time.Sleep(d)`: "time.Sleep",
		`for d := time.Now().Add(x); time.Now().Before(d); {}`:                  "time.Now compared",
		`for d := time.Now().Add(x); ; { if d.After(time.Now()) {} }`:           "time.Now compared",
		`ctx, cancel := context.WithTimeout(t.Context(), time.Second)`:          "context.WithTimeout",
		`ctx, cancel := context.WithTimeout(t.Context(), 0)`:                    "",
		`c := &http.Client{Timeout: time.Second}`:                               "Client.Timeout",
		`w.Client.Timeout = time.Second`:                                        "Client.Timeout",
		`d := net.Dialer{Timeout: time.Second}`:                                 "Dialer.Timeout",
		`_ = c.SetReadDeadline(d)`:                                              "SetReadDeadline",
		`_ = c.SetReadDeadline(time.Time{})`:                                    "",
		`if time.Since(began) > time.Second {}`:                                 "time.Since compared",
		`took := time.Since(began); if took > time.Second {}`:                   "time.Since compared",
		`t.Logf("it took %v", time.Since(began))`:                               "",
		`c := script.Call{Timeout: time.Second}`:                                "",
		`if clock.Now().After(d) {}`:                                            "",
		`waittest.Until(t, "it is there", func() bool { return there.Load() })`: "",
	} {
		got, err := watchesTheClock("p_test.go", []byte(head+line+"\n}\n"))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || got[0] != (clockCall{4, want})) {
			t.Errorf("%s: found %v, want %q", line, got, want)
		}
	}
	for line, want := range map[string]bool{`assert.ok(performance.now() - before < 30)`: true, `page.setDefaultTimeout(1000)`: true, `page.setDefaultTimeout(0)`: false} {
		if got, _ := watchesTheClock("p.test.mjs", []byte(line)); (len(got) > 0) != want {
			t.Errorf("%s: found %v", line, got)
		}
	}
}
