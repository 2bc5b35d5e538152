// Package rules holds the tests that read the source: which package may import
// which, who may reach the network, and where protected values come out.
//
// They promise that the security argument in docs/architecture.md stays true
// of the code as it is. They never run the code, and they read the files
// themselves: a test that asked the go command would be cached and stay green.
package rules_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/tokenkeep/tokenkeep/"

// mayImport lists for every package what it may import of ours. Arrows point
// one way, from cmd down to fault and secret; a new package needs a row.
var mayImport = map[string][]string{
	"api":    {"internal/date"},
	"client": {"api"},
	"cmd/tokenkeep": {"api", "client", "internal/access", "internal/admin", "internal/audit", "internal/backup", "internal/bulkfile", "internal/config", "internal/date", "internal/doctor", "internal/exportfile", "internal/fault", "internal/jobs", "internal/keyring", "internal/keyring/localkms", "internal/keyring/providers",
		"internal/sandbox", "internal/secret", "internal/server", "internal/store", "internal/store/sqlite", "internal/store/transfer", "internal/token"},

	"cmd/tokenkeep-pkcs11": {"internal/keyring/pkcs11/wire"},

	"internal/keeptest": {"api", "internal/admin", "internal/config", "internal/httpapi", "internal/keyring/localkms", "internal/sandbox", "internal/server", "internal/store", "internal/store/postgres/pgtest", "test/openapitest"},
	"internal/server": {"api", "internal/access", "internal/admin", "internal/admission", "internal/apidoc", "internal/audit", "internal/backup", "internal/clock", "internal/config", "internal/console", "internal/directory", "internal/egress", "internal/elements", "internal/endpoint", "internal/event", "internal/exporting", "internal/expression",
		"internal/fault", "internal/folder", "internal/httpapi", "internal/idempotency", "internal/importing", "internal/jobs", "internal/jsonvalue", "internal/keyring", "internal/keyring/localkms", "internal/keyring/providers", "internal/limit", "internal/member", "internal/openid", "internal/processor", "internal/proxy", "internal/reactor", "internal/report", "internal/sandbox",
		"internal/script", "internal/secret", "internal/store",
		"internal/store/postgres", "internal/store/sqlite", "internal/store/transfer", "internal/token", "internal/webhook"},
	"internal/admin":    {"api", "internal/limit"},
	"internal/apidoc":   {"api", "internal/access", "internal/fault", "internal/httpapi"},
	"internal/backup":   {},
	"internal/folder":   {"internal/store"},
	"internal/doctor":   {"internal/admin", "internal/config", "internal/limit"},
	"internal/limit":    {},
	"internal/config":   {"internal/origin", "internal/secret"},
	"internal/console":  {"internal/access", "internal/fault", "internal/httpapi"},
	"internal/elements": {"internal/access", "internal/fault", "internal/httpapi"},
	"internal/endpoint": {"api", "internal/access", "internal/audit", "internal/date", "internal/directory", "internal/fault", "internal/httpapi",
		"internal/definition", "internal/event", "internal/exporting", "internal/idempotency", "internal/importing", "internal/jsonvalue", "internal/keyring", "internal/member", "internal/openid", "internal/limit", "internal/proxy", "internal/reactor", "internal/report", "internal/response", "internal/script", "internal/secret", "internal/store", "internal/token", "internal/webhook"},
	"internal/report":    {"internal/access", "internal/audit", "internal/definition", "internal/directory", "internal/proxy", "internal/store"},
	"internal/admission": {"internal/fault", "internal/limit"},
	"internal/httpapi":   {"api", "internal/access", "internal/admission", "internal/date", "internal/fault", "internal/limit", "internal/luhn", "internal/response", "internal/secret"},
	"internal/response":  {"internal/access"},

	"internal/token": {"internal/access", "internal/audit", "internal/base58", "internal/date", "internal/directory", "internal/expression", "internal/fault",
		"internal/jsonvalue", "internal/keyring", "internal/limit", "internal/luhn", "internal/processor", "internal/store"},
	"internal/reactor": {"api", "internal/access", "internal/audit", "internal/definition", "internal/expression", "internal/fault", "internal/jobs", "internal/jsonvalue",
		"internal/keyring", "internal/limit", "internal/script", "internal/secret", "internal/store", "internal/token"},
	"internal/jobs":  {"api", "internal/secret", "internal/store"},
	"internal/event": {"api", "internal/access", "internal/audit", "internal/fault", "internal/keyring", "internal/store"},
	"internal/webhook": {"internal/access", "internal/audit", "internal/definition", "internal/event", "internal/fault", "internal/jobs", "internal/jsonvalue", "internal/keyring",
		"internal/secret", "internal/store"},
	"internal/proxy": {"api", "internal/access", "internal/audit", "internal/definition", "internal/directory", "internal/expression", "internal/fault",
		"internal/jsonvalue", "internal/keyring", "internal/script", "internal/secret", "internal/store", "internal/token"},
	"internal/definition":  {"internal/access", "internal/audit", "internal/directory", "internal/fault", "internal/jsonvalue", "internal/keyring", "internal/secret", "internal/store"},
	"internal/script":      {"api", "internal/access", "internal/fault", "internal/jsonvalue", "internal/sandbox"},
	"internal/bulkfile":    {"internal/luhn"},
	"internal/exportfile":  {"internal/keyring"},
	"internal/exporting":   {"internal/access", "internal/audit", "internal/directory", "internal/exportfile", "internal/fault", "internal/jsonvalue", "internal/keyring", "internal/store", "internal/token"},
	"internal/importing":   {"internal/access", "internal/audit", "internal/base58", "internal/directory", "internal/exportfile", "internal/fault", "internal/jsonvalue", "internal/keyring", "internal/store", "internal/token"},
	"internal/idempotency": {"internal/access", "internal/audit", "internal/base58", "internal/fault", "internal/keyring", "internal/response", "internal/store"},
	"internal/directory":   {"internal/access", "internal/audit", "internal/fault", "internal/keyring", "internal/origin", "internal/secret", "internal/store"},
	"internal/openid":      {"internal/fault", "internal/secret"},
	"internal/member":      {"internal/access", "internal/audit", "internal/fault", "internal/keyring", "internal/luhn", "internal/secret", "internal/store"},
	"internal/audit":       {"internal/access", "internal/fault", "internal/jobs", "internal/keyring", "internal/store"},

	"internal/access":                      {"api", "internal/base58", "internal/fault", "internal/luhn", "internal/secret"},
	"internal/access/accesstest":           {"internal/access", "internal/fault"},
	"internal/keyring":                     {"internal/secret", "internal/store"},
	"internal/keyring/kmstest":             {"internal/keyring", "internal/keyring/envelope"},
	"internal/keyring/envelope":            {"internal/keyring"},
	"internal/keyring/awskms":              {"internal/keyring", "internal/keyring/envelope"},
	"internal/keyring/azurekv":             {"internal/keyring", "internal/keyring/envelope"},
	"internal/keyring/gcpkms":              {"internal/keyring", "internal/keyring/envelope"},
	"internal/keyring/pkcs11":              {"internal/keyring", "internal/keyring/envelope", "internal/keyring/pkcs11/wire", "internal/secret"},
	"internal/keyring/pkcs11/wire":         {},
	"internal/keyring/transit":             {"internal/keyring", "internal/keyring/envelope", "internal/secret"},
	"internal/keyring/transit/transittest": {"internal/keyring/kmstest"},
	"internal/keyring/providers": {"internal/keyring", "internal/keyring/awskms", "internal/keyring/azurekv", "internal/keyring/envelope", "internal/keyring/gcpkms",
		"internal/keyring/localkms", "internal/keyring/pkcs11", "internal/keyring/transit", "internal/secret"},
	"internal/keyring/localkms":  {"internal/keyring", "internal/secret"},
	"internal/egress":            {"internal/fault"},
	"internal/egress/egresstest": {},
	"internal/expression":        {"internal/fault", "internal/jsonvalue"},
	"internal/jsonvalue":         {"internal/fault"},

	"internal/sandbox": {},

	"internal/store":                 {},
	"internal/store/storetest":       {"internal/store", "internal/waittest"},
	"internal/store/transfer":        {},
	"internal/store/sqlite":          {"internal/folder", "internal/store", "internal/store/transfer"},
	"internal/store/sqlite/powercut": {},
	"internal/store/postgres":        {"internal/store", "internal/store/transfer"},
	"internal/store/postgres/pgtest": {},

	"internal/base58":    {},
	"internal/luhn":      {},
	"internal/processor": {},
	"internal/origin":    {},
	"internal/clock":     {},
	"internal/date":      {},
	"internal/clocktest": {},
	"internal/waittest":  {},
	"internal/fault":     {},
	"internal/secret":    {},

	"test/canary":      {},
	"test/runtimetest": {},
	"test/openapitest": {"api", "internal/apidoc"},
	"test/rules":       {},
}

// mayDial lists the files that may open connections, with the reason.
var mayDial = map[string]string{
	"client/client.go":                         "calls the server that a customer names",
	"cmd/tokenkeep/webhook.go":                 "posts events to the address that the caller names on the command line",
	"internal/admin/admin.go":                  "dials the admin socket on this machine, for the operator's commands",
	"internal/egress/dial.go":                  "dials what a tenant chose, once every address of it is checked",
	"internal/egress/http.go":                  "sends requests over the connections of dial.go",
	"internal/egress/pools.go":                 "keeps those connections, each tenant's apart",
	"internal/egress/egresstest/names.go":      "asks the name server that a test started, on loopback",
	"internal/egress/egresstest/witness.go":    "knocks on its own listener, on loopback",
	"internal/keyring/gcpkms/gcpkms.go":        "calls the KMS that the operator names",
	"internal/keyring/pkcs11/process.go":       "starts the program that loads the module of the operator's token",
	"internal/keyring/transit/transit.go":      "calls the KMS that the operator names",
	"internal/sandbox/launcher_linux.go":       "starts the processes that code of tenants runs in, behind their walls",
	"internal/keeptest/nodes.go":               "calls the server that a test started, on loopback",
	"internal/keeptest/farm.go":                "starts the servers that a test kills",
	"internal/store/postgres/pgtest/host.go":   "connects test binaries to the process that owns their PostgreSQL",
	"internal/store/postgres/pgtest/pgtest.go": "starts a database server of its own, for tests",
}

// waysOut are the methods that hand over what is protected: of secret.Text and
// secret.Bytes the first, of jsonvalue.Value all.
var waysOut = []string{"Reveal", "AppendJSON", "WriteJSON", "Stringify"}

// mayReveal lists the files where a protected value leaves its wrapping, with
// where it goes. A reviewer looks at every new line here. What only checks a
// value calls Matches, and what reads an attribute that is not protected calls
// PublicText: neither needs a line.
var mayReveal = map[string]string{
	"internal/secret/secret.go":             "defines Reveal, and compares in constant time",
	"internal/jsonvalue/write.go":           "defines the ways to write a value",
	"internal/access/key.go":                "splits the key that a caller presented",
	"internal/keyring/keys.go":              "hashes the keys of callers",
	"internal/keyring/localkms/localkms.go": "reads the key-encryption key",
	"internal/keyring/pkcs11/pkcs11.go":     "sends the PIN of the token to the program that logs in",
	"internal/keyring/transit/transit.go":   "sends the credentials for the KMS to it",
	"internal/server/store.go":              "hands the URL of the database to its driver",
	"internal/server/dev.go":                "leaves the keys of the demo tenant in the developer's folder",
	"internal/server/bench.go":              "returns the result of code that an operator tries out",
	"internal/exporting/exporting.go":       "writes the tokens of an export into the stream that is encrypted to its recipient",
	"internal/endpoint/application.go":      "writes a key into the one answer that shows it",
	"internal/endpoint/tenant.go":           "writes the callback secret for the tenant itself",
	"internal/endpoint/session.go":          "writes a session's key and nonce into the one answer that shows them",
	"internal/endpoint/reactor.go":          "writes a configuration for callers that may read it",
	"internal/endpoint/proxy.go":            "writes the key of a proxy for callers that may read it",
	"internal/endpoint/webhook.go":          "writes the secret of a webhook into the one answer that shows it",
	"internal/webhook/webhook.go":           "takes the secrets of a webhook out of its definition, to sign with",
	"cmd/tokenkeep/webhook.go":              "prints the secret that it made, for the receiver",
	"internal/endpoint/member.go":           "writes the code of a link into the one answer that shows it, and a token that a caller reveals",
	"internal/openid/openid.go":             "derives what a provider is sent from the secret of a flow, and hands the client's secret to it",
	"internal/httpapi/people.go":            "writes the secret of a session into its cookie",
	"cmd/tokenkeep/token.go":                "asks a server to reveal a token, for a reason",
	"internal/endpoint/token.go":            "writes what a caller may see of tokens",
	"internal/reactor/react.go":             "keeps apart what expressions made from what was sent",
	"internal/reactor/job.go":               "writes the input of a run into the job that is sealed, and reads it back",
	"internal/reactor/work.go":              "writes the result that a callback gets",
	"internal/jobs/webhook.go":              "signs a message with the secret that its receiver knows",
	"internal/script/script.go":             "hands the input of a run to the sandbox",
	"internal/script/hidden.go":             "searches what code printed for protected values, to remove them",
	"internal/proxy/proxy.go":               "puts a fresh key into the definition that is sealed with it, and takes it out",
	"internal/proxy/template.go":            "writes values into the body that a destination gets",
	"internal/proxy/transform.go":           "writes what a transform returned into the message that goes on",
	"internal/token/types.go":               "takes from a number what is shown beside a token, and turns months and years into numbers",
	"internal/token/id.go":                  "makes an id of what an expression returned",
	"internal/token/draft.go":               "hashes what tokens are found by",
	"internal/token/duplicate.go":           "hashes what makes two tokens the same",
}

// mayCompute lists the packages that may use the ways out in every file,
// because they are pure: what they read leaves only in what they return.
var mayCompute = map[string]string{
	"internal/expression": "makes values of values; its results are values that cannot be printed",
}

// impure are the packages with which something could leave one that is pure.
var impure = []string{"os", "os/exec", "io/fs", "io/ioutil", "log", "log/slog", "net", "net/http", "syscall", "unsafe", "database/sql", "runtime/debug", "testing"}

// mayReadPublic lists the packages that may call PublicText, with what they read.
var mayReadPublic = map[string]string{
	"internal/definition": "the attributes of definitions, and what binds them to their rows",
	"internal/endpoint":   "the metadata that a query names",
	"internal/proxy":      "whether an attribute of a proxy is set",
	"internal/reactor":    "the code of a reactor, and where and when a result goes",
	"internal/webhook":    "the types of events that a webhook takes",
	"internal/token":      "the attributes of tokens: ids, types, containers, times, expressions, metadata",
}

// source is one parsed file of the product.
type source struct {
	name string // path from the root of the module
	pkg  string // folder from the root of the module
	file *ast.File
}

// sources parses every Go file of the module but the tests.
func sources(t *testing.T) (*token.FileSet, []source) {
	t.Helper()
	set := token.NewFileSet()
	var list []source
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "node_modules" || base == "testdata" || base == "tools" || base == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(set, p, text, parser.ParseComments)
		if err != nil {
			return err
		}
		list = append(list, source{name: filepath.ToSlash(name), pkg: filepath.ToSlash(filepath.Dir(name)), file: f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 20 {
		t.Fatalf("found %d source files: the test looks in the wrong place", len(list))
	}
	return set, list
}

func TestImportsPointOneWay(t *testing.T) {
	_, files := sources(t)
	for _, f := range files {
		allowed, known := mayImport[f.pkg]
		if !known {
			t.Errorf("package %s has no row in mayImport", f.pkg)
			continue
		}
		for _, spec := range f.file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(imported, "github.com/getkin/kin-openapi") && f.pkg != "test/openapitest" {
				t.Errorf("%s imports %s, whose messages show values", f.name, imported)
			}
			if ours, ok := strings.CutPrefix(imported, module); ok && !slices.Contains(allowed, ours) {
				t.Errorf("%s imports %s, which its row in mayImport does not have", f.name, ours)
			}
		}
	}
}

// reaches follows the rows of mayImport.
func reaches(from, to string, seen map[string]bool) bool {
	if seen[from] {
		return false
	}
	seen[from] = true
	for _, next := range mayImport[from] {
		if next == to || reaches(next, to, seen) {
			return true
		}
	}
	return false
}

// TestTheSecurityArgument checks what must hold whatever rows are added.
func TestTheSecurityArgument(t *testing.T) {
	plaintext := []string{"internal/secret", "internal/keyring", "internal/token", "internal/expression", "internal/jsonvalue"}
	for pkg := range mayImport {
		switch {
		case strings.HasPrefix(pkg, "internal/store"):
			for _, p := range plaintext {
				if reaches(pkg, p, map[string]bool{}) {
					t.Errorf("%s reaches %s: the store must not be able to name plaintext", pkg, p)
				}
			}
		case strings.HasPrefix(pkg, "internal/sandbox"):
			for _, p := range []string{"internal/store", "internal/keyring", "internal/access"} {
				if reaches(pkg, p, map[string]bool{}) {
					t.Errorf("%s reaches %s: code of tenants runs there", pkg, p)
				}
			}
		}
		if reaches(pkg, "test/openapitest", map[string]bool{}) && !strings.HasPrefix(pkg, "test/") && pkg != "internal/keeptest" {
			t.Errorf("%s reaches test/openapitest: its messages show values", pkg)
		}
		if reaches(pkg, pkg, map[string]bool{}) {
			t.Errorf("%s reaches itself", pkg)
		}
		if pkg != "cmd/tokenkeep" && pkg != "internal/server" && !strings.HasPrefix(pkg, "internal/store/") && !strings.HasSuffix(pkg, "test") {
			for _, p := range mayImport[pkg] {
				if strings.HasPrefix(p, "internal/store/") {
					t.Errorf("%s imports the backend %s: only the composition root chooses one", pkg, p)
				}
			}
		}
	}
}

// dialling are the ways to open a connection, by package and name.
var dialling = map[string][]string{
	"net":                   {"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialUnix", "DialIP", "Dialer"},
	"net/http":              {"Get", "Head", "Post", "PostForm", "DefaultClient", "DefaultTransport", "Transport"},
	"crypto/tls":            {"Dial", "DialWithDialer", "Dialer"},
	"net/smtp":              {"Dial", "SendMail"},
	"net/rpc":               {"Dial", "DialHTTP"},
	"os/exec":               {"Command", "CommandContext"}, // a child process can dial too
	"syscall":               {"Connect", "ForkExec", "StartProcess"},
	"os":                    {"StartProcess"},
	"golang.org/x/sys/unix": {"Connect"},
}

func TestOnlyListedFilesReachOut(t *testing.T) {
	set, files := sources(t)
	used := make(map[string]bool)
	for _, f := range files {
		names := make(map[string][]string) // local package name → what it must not name
		for _, spec := range f.file.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			if forbidden, ok := dialling[imported]; ok {
				local := path.Base(imported)
				if spec.Name != nil {
					local = spec.Name.Name
				}
				if local == "." {
					t.Errorf("%s imports %s under no name, which hides what it calls", f.name, imported)
				}
				names[local] = forbidden
			}
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := s.X.(*ast.Ident); ok && slices.Contains(names[x.Name], s.Sel.Name) {
				if _, listed := mayDial[f.name]; !listed {
					t.Errorf("%s uses %s.%s, and is not listed in mayDial", set.Position(s.Pos()), x.Name, s.Sel.Name)
				}
				used[f.name] = true
			}
			return true
		})
	}
	for name := range mayDial {
		if !used[name] {
			t.Errorf("%s is listed in mayDial and does not dial: take it off the list", name)
		}
	}
}

func TestOnlyListedFilesReveal(t *testing.T) {
	set, files := sources(t)
	used := make(map[string]bool)
	for _, f := range files {
		_, pure := mayCompute[f.pkg]
		ast.Inspect(f.file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains(waysOut, s.Sel.Name) || isTransform(s) || isOfPackage(s, "httpapi") {
				return true
			}
			if _, listed := mayReveal[f.name]; !listed && !pure {
				t.Errorf("%s calls %s, and is not listed in mayReveal", set.Position(s.Pos()), s.Sel.Name)
			}
			used[f.name], used[f.pkg] = true, true
			return true
		})
	}
	for name := range mayReveal {
		if !used[name] {
			t.Errorf("%s is listed in mayReveal and lets nothing out: take it off the list", name)
		}
	}
	for pkg := range mayCompute {
		if !used[pkg] {
			t.Errorf("%s is listed in mayCompute and reads nothing: take it off the list", pkg)
		}
	}
}

func TestPackagesThatComputeArePure(t *testing.T) {
	_, files := sources(t)
	for _, f := range files {
		if _, listed := mayCompute[f.pkg]; !listed {
			continue
		}
		for _, spec := range f.file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			ours, is := strings.CutPrefix(imported, module)
			if slices.Contains(impure, imported) || is && ours != "internal/fault" && ours != "internal/jsonvalue" {
				t.Errorf("%s imports %s, with which a value could leave: its package is listed in mayCompute", f.name, imported)
			}
		}
	}
}

func TestOnlyListedPackagesReadPublicText(t *testing.T) {
	set, files := sources(t)
	used := make(map[string]bool)
	for _, f := range files {
		ast.Inspect(f.file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "PublicText" {
				if _, listed := mayReadPublic[f.pkg]; !listed {
					t.Errorf("%s calls PublicText, and its package is not listed in mayReadPublic", set.Position(s.Pos()))
				}
				used[f.pkg] = true
			}
			return true
		})
	}
	for pkg := range mayReadPublic {
		if !used[pkg] {
			t.Errorf("%s is listed in mayReadPublic and does not call it: take it off the list", pkg)
		}
	}
}

// mayName lists the files that may put ids into the words of a fault.
var mayName = map[string]string{
	"internal/fault/fault.go":      "defines Naming",
	"internal/httpapi/caller.go":   "names the header of the API key, which is a setting",
	"internal/token/preview.go":    "says which tokens are missing, and leaves out what could be a card number",
	"internal/token/detokenize.go": "says which tokens are missing, and leaves out what could be a card number",
}

func TestOnlyListedFilesNameIDs(t *testing.T) {
	set, files := sources(t)
	for _, f := range files {
		ast.Inspect(f.file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Naming" && mayName[f.name] == "" {
				t.Errorf("%s calls Naming, and is not listed in mayName", set.Position(s.Pos()))
			}
			return true
		})
	}
}

// isTransform tells the constant access.Reveal from the method.
func isTransform(s *ast.SelectorExpr) bool { return isOfPackage(s, "access") }

// isOfPackage reports whether a selector names something of a package, and not
// a method.
func isOfPackage(s *ast.SelectorExpr, pkg string) bool {
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// TestFaultsHaveConstantWords keeps input out of what callers are told: the
// words of a fault may be literals and names, and never the result of a call.
func TestFaultsHaveConstantWords(t *testing.T) {
	set, files := sources(t)
	seen := 0
	for _, f := range files {
		ast.Inspect(f.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			s, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, _ := s.X.(*ast.Ident)
			isFault := x != nil && x.Name == "fault"
			switch {
			case isFault && s.Sel.Name == "New" && len(call.Args) == 2:
				seen++
				if !isLiteral(call.Args[1]) {
					t.Errorf("%s: the words of fault.New must be a literal", set.Position(call.Pos()))
				}
			case isFault && s.Sel.Name == "Field" && len(call.Args) == 2:
				if computed(call.Args[1], f.file) {
					t.Errorf("%s: the words of fault.Field must not be computed", set.Position(call.Pos()))
				}
			}
			return true
		})
	}
	if seen == 0 {
		t.Error("found no fault.New at all: the test looks in the wrong place")
	}
}

func isLiteral(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return e.Op == token.ADD && isLiteral(e.X) && isLiteral(e.Y)
	}
	return false
}

// computed tells whether an expression calls anything but a function of its own
// file that returns literals alone.
func computed(e ast.Expr, file *ast.File) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && !returnsLiterals(call.Fun, file) {
			found = true
		}
		return !found
	})
	return found
}

func returnsLiterals(fun ast.Expr, file *ast.File) bool {
	name, ok := fun.(*ast.Ident)
	if !ok {
		return false
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || f.Name.Name != name.Name {
			continue
		}
		literals := true
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if r, ok := n.(*ast.ReturnStmt); ok {
				literals = literals && len(r.Results) == 1 && isLiteral(r.Results[0])
			}
			return true
		})
		return literals
	}
	return false
}

// TestEveryPackageSaysWhatItPromises reads the package comments.
func TestEveryPackageSaysWhatItPromises(t *testing.T) {
	_, files := sources(t)
	comments := make(map[string]string)
	for _, f := range files {
		if f.file.Doc != nil {
			comments[f.pkg] += f.file.Doc.Text()
		} else if _, there := comments[f.pkg]; !there {
			comments[f.pkg] = ""
		}
	}
	for pkg, comment := range comments {
		if !strings.Contains(comment, "promises") || !strings.Contains(comment, "never") {
			t.Errorf("the comment of package %s does not say what it promises and what it never does", pkg)
		}
	}
}
