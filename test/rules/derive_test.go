package rules_test

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// mayDerive lists the functions that turn stored data of tokens into something
// else, with the decision that comes before. Whatever makes something visible
// out of stored data is a read of it, so a new line here answers the question:
// where is it decided that this caller may read that much of this token, and
// where is that logged?
var mayDerive = map[string]string{
	"internal/token openRow":                    "opens a row for the functions below",
	"internal/token openShortLived":             "opens the security code of a row that (*Service).open shows with reveal",
	"internal/token (*Service).open":            "shows each row by its sight, which viewer.look decided; the entries are committed before",
	"internal/token (*Service).showDuplicate":   "shows a row that findDuplicate found by a fingerprint that the caller may see, by sightOfDuplicate; logged by insertAll",
	"internal/token (*draft).duplicateTerm":     "hashes what duplicates share, for find and for findDuplicate",
	"internal/token (*update).work":             "merges a patch; permit decides before anything is evaluated, sightOfUpdated what the response shows; logged by write",
	"internal/token (*Service).rederive":        "recomputes fingerprints for nobody to see; logged by recompute",
	"internal/token (*draft).sealInto":          "seals; it opens nothing",
	"internal/token (*Service).find":            "hashes what a new token is found by; it reads no stored token",
	"internal/token (*Service).takeFingerprint": "computes the fingerprint of a draft; show decides who sees it, by sight.fingerprint",
	"internal/token (*Service).evaluateMask":    "evaluates the mask of a draft, or of a row that is shown by a sight of mask",
	"internal/token (*query).compile":           "compares with protected data through matcher, which decides for each token",
	"internal/token Filter.plan":                "compares with a fingerprint through matcher, which decides for each token",
	"internal/token previewed":                  "tells who may use a token, and nothing of its data; logged by Preview",
	"internal/directory (*Service).Explain":     "tells who may do what, and nothing of data; logged as a read of the token",
	"internal/endpoint Services.explainAccess":  "calls the service of that name",
	"internal/idempotency (*Attempt).stored":    "opens a stored response for (*Attempt).Find, which takes the access of then and logs the replay",
	"internal/exporting (*Service).find":        "opens what was asked to be exported, and no token; Get, Approve and Begin decide and log",
	"internal/token exported":                   "opens a token for Export, which takes token:read with reveal on it and logs it before",
	"internal/importing (*run).open":            "opens the ids that an import made, for replay, which logs that they are read again",
	"internal/reactor (*Service).open":          "opens a job to run it, or a result for Result, which takes the access of then and logs the read",
	"internal/reactor (*Service).Runs":          "shows what code printed to callers with reactor:read; logged",
}

// opens are the ways to stored data: what names them, by what stands before
// the dot ("" for a plain name or any receiver).
var opens = []struct{ before, name string }{
	{"keyring", "FieldTokenData"}, {"keyring", "FieldTokenDetails"}, {"keyring", "FieldTokenShortLived"}, // to open, one must name the field
	{"", "openRow"}, {"", "openShortLived"}, {"", "openJSON"}, // plaintext of a row
	{"", "OpenParcel"},                                                // stored results and responses, which were made from tokens
	{"", "termFingerprint"}, {"", "termIndex"}, {"", "termDuplicate"}, // comparing with protected data
	{"keys", "Fingerprint"}, {"expression", "EvaluateMask"}, // deriving from it
	{"", "Explain"}, // telling about a token
}

func TestOnlyListedFunctionsDeriveFromStoredData(t *testing.T) {
	set, files := sources(t)
	used := make(map[string]bool)
	for _, f := range files {
		if !strings.HasPrefix(f.pkg, "internal/") {
			continue // cmd and client speak to the API
		}
		for _, decl := range f.file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			name := f.pkg + " " + nameOf(fn)
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				before, word, pos := "", "", n
				switch x := n.(type) {
				case *ast.SelectorExpr:
					if id, ok := x.X.(*ast.Ident); ok {
						before = id.Name
					}
					word = x.Sel.Name
				case *ast.Ident:
					word = x.Name
				}
				if word == "" || !isOpening(before, word, n) {
					return true
				}
				used[name] = true
				if mayDerive[name] == "" {
					t.Errorf("%s: %s uses %s: it derives from stored data and is not listed in mayDerive", set.Position(pos.Pos()), name, word)
				}
				return true
			})
		}
	}
	for name := range mayDerive {
		if !used[name] {
			t.Errorf("%q is listed in mayDerive and derives nothing: take it off the list", name)
		}
	}
}

func isOpening(before, word string, n ast.Node) bool {
	return slices.ContainsFunc(opens, func(o struct{ before, name string }) bool {
		_, selected := n.(*ast.SelectorExpr)
		plain := strings.ToLower(o.name[:1]) == o.name[:1] // not exported: a plain name of its package
		return o.name == word && (o.before == "" && selected != plain || o.before != "" && o.before == before)
	})
}

// nameOf is a function with its receiver: "(*Service).Get".
func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	switch recv := fn.Recv.List[0].Type.(type) {
	case *ast.StarExpr:
		if id, ok := recv.X.(*ast.Ident); ok {
			return "(*" + id.Name + ")." + fn.Name.Name
		}
	case *ast.Ident:
		return recv.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// TestOnlyDecisionsMakeSights: what a caller sees of a token is a sight, and
// sights are made in one file, by functions that decide.
func TestOnlyDecisionsMakeSights(t *testing.T) {
	const place = "internal/token/sight.go"
	set, files := sources(t)
	made := 0
	for _, f := range files {
		if f.pkg != "internal/token" {
			continue
		}
		for _, decl := range f.file.Decls {
			var literals []*ast.CompositeLit
			decides := false
			ast.Inspect(decl, func(n ast.Node) bool {
				switch x := n.(type) {
				case *ast.CompositeLit:
					if id, ok := x.Type.(*ast.Ident); ok && id.Name == "sight" && len(x.Elts) > 0 {
						literals = append(literals, x)
					}
				case *ast.CallExpr:
					if id, ok := x.Fun.(*ast.Ident); ok && id.Name == "decide" {
						decides = true
					}
				case *ast.Field: // a decision that is handed over
					if s, ok := x.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "Decision" {
						decides = true
					}
				}
				return true
			})
			for _, x := range literals {
				made++
				if f.name != place {
					t.Errorf("%s makes a sight: only %s does, from a decision", set.Position(x.Pos()), place)
				} else if !decides {
					t.Errorf("%s makes a sight without a decision", set.Position(x.Pos()))
				}
			}
		}
	}
	if made == 0 {
		t.Error("no sight is made: the rule looks in the wrong place")
	}
}
