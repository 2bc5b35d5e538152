package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// till is where somebody with a key sits: a dev process and the commands that
// call its API.
type till struct {
	t    *testing.T
	data string
	keys server.DevKeys
}

func openTill(t *testing.T, args ...string) *till {
	t.Helper()
	x := &till{t: t, data: filepath.Join(t.TempDir(), "data")}
	start(t, append([]string{"dev", "--addr", "127.0.0.1:0", "--data", x.data}, args...)...)
	b, err := os.ReadFile(filepath.Join(x.data, "dev-keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &x.keys); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TOKENKEEP_URL", x.keys.BaseURL)
	t.Setenv("TOKENKEEP_API_KEY", x.keys.PrivateKey)
	return x
}

// given runs a command that reads something.
func given(t *testing.T, in string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(in), &out, &errOut)
	return result{code, out.String(), errOut.String()}
}

// done runs a command that must succeed and returns what it printed.
func (x *till) done(in string, args ...string) string {
	x.t.Helper()
	got := given(x.t, in, args...)
	if got.code != 0 {
		x.t.Fatalf("tokenkeep %s = %d: %s", strings.Join(args, " "), got.code, got.err)
	}
	return got.out
}

// read runs a command with --json and reads what it printed.
func (x *till) read(v any, in string, args ...string) {
	x.t.Helper()
	out := x.done(in, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		x.t.Fatalf("tokenkeep %s --json printed %s: %v", strings.Join(args, " "), out, err)
	}
}

func wantLine(t *testing.T, out, pattern string) {
	t.Helper()
	if !regexp.MustCompile(`(?m)^` + pattern + `$`).MatchString(out) {
		t.Errorf("no line %s in\n%s", pattern, out)
	}
}

const cardJSON = `{"number":"` + planted + `","expiration_month":12,"expiration_year":2030,"cvc":"123"}`

func TestACardFromTheCommandLine(t *testing.T) {
	x := openTill(t)
	made := x.done(cardJSON, "token", "create", "--type", "card", "--id", "my-card", "--metadata", "order=1001", "--metadata", "shop=a=b")
	wantLine(t, made, `token +my-card`)
	wantLine(t, made, `data +\{"number":"XXXXXXXXXXXX4242","expiration_month":12,"expiration_year":2030\}`)
	wantLine(t, made, `metadata\.shop +a=b`)
	if strings.Contains(made, planted) || strings.Contains(made, "123\"") {
		t.Errorf("token create printed\n%s", made)
	}
	wantLine(t, x.done("", "token", "get", "my-card"), `data +\{"number":"`+planted+`","expiration_month":12,"expiration_year":2030,"cvc":"123"\}`)

	var patched, got api.Token
	x.read(&patched, `{"data":{"cvc":null},"metadata":{"order":null}}`, "token", "update", "my-card")
	x.read(&got, "", "token", "get", "my-card")
	if want := `{"number":"` + planted + `","expiration_month":12,"expiration_year":2030}`; compact(t, got.Data) != want || fmt.Sprint(got.Metadata) != "map[shop:a=b]" || patched.ModifiedBy == "" {
		t.Errorf("after the update: %s %v, want %s without an order", got.Data, got.Metadata, want)
	}
	if out := x.done("", "token", "delete", "my-card"); out != "The token is deleted.\n" {
		t.Errorf("token delete printed %q", out)
	}
	if got := given(t, "", "token", "get", "my-card"); got != (result{11, "", "tokenkeep: no such token\n"}) {
		t.Errorf("token get of what was deleted = %+v", got)
	}
}

func compact(t *testing.T, b []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestEveryAttributeOfATokenHasAFlag(t *testing.T) {
	x := openTill(t)
	file := mustWrite(t, filepath.Join(t.TempDir(), "value.json"), `{"n": 1.50, "s": "abc"}`)
	var made, again, got api.Token
	attributes := []string{"token", "create", "--type", "token", "--data-file", file, "--container", "/a/", "--container", "/b/c/", "--mask", `{"n":"{{ data.s | reveal_last: 1 }}"}`,
		"--search-index", "{{ data.s }}", "--fingerprint-expression", "{{ data.n }}", "--expires-at", "2099-12-31T00:00:00+01:00"}
	x.read(&made, "", attributes...)
	if compact(t, made.Data) != `{"n":"XXc"}` || fmt.Sprint(made.Containers) != "[/a/ /b/c/]" || made.SearchIndexes[0] != "{{ data.s }}" ||
		made.FingerprintExpression != "{{ data.n }}" || made.ExpiresAt != "2099-12-31T00:00:00.000000+01:00" {
		t.Errorf("token create gave %+v", made)
	}
	x.read(&got, "", "token", "get", made.ID)
	if compact(t, got.Data) != `{"n":1.50,"s":"abc"}` {
		t.Errorf("token get gave %s: the number lost its text", got.Data)
	}
	x.read(&again, "", append(attributes, "--deduplicate")...)
	if again.ID != made.ID {
		t.Error("token create --deduplicate made another token")
	}
	x.read(&made, "4242 4242\n", "token", "create", "--type", "token", "--text", "--mask", "{{ data | reveal_last: 2 }}", "--deduplicate=false")
	if string(made.Data) != `"XXXXXXX42"` {
		t.Errorf("token create --text gave %s", made.Data)
	}
}

func TestListsAndSearchesFromTheCommandLine(t *testing.T) {
	x := openTill(t)
	var values []string
	for i := range 120 {
		values = append(values, fmt.Sprintf("secret-%d", i))
	}
	in, _ := json.Marshal(values)
	x.done(string(in), "tokenize")
	var one api.Token
	x.read(&one, "123-45-6789", "token", "create", "--type", "social_security_number", "--text", "--metadata", "tier=gold")

	got := given(t, "", "token", "list")
	if lines := strings.Split(strings.TrimSpace(got.out), "\n"); len(lines) != 101 || !strings.HasPrefix(lines[0], "TOKEN") || !strings.HasPrefix(lines[1], one.ID) ||
		strings.Contains(got.out, "secret-") || got.err != "… there are more; --limit 0 lists all\n" {
		t.Errorf("token list = %d, %d lines, %q", got.code, len(lines), got.err)
	}
	for name, c := range map[string]struct {
		in   string
		args []string
		want int
	}{
		"all":                {"", []string{"token", "list", "--limit", "0"}, 121},
		"more than a page":   {"", []string{"token", "list", "--limit", "110"}, 110},
		"of a type":          {"", []string{"token", "list", "--type", "social_security_number"}, 1},
		"by metadata":        {"", []string{"token", "list", "--metadata", "tier=GOLD"}, 1},
		"by id":              {"", []string{"token", "list", "--id", one.ID, "--id", "nothing"}, 1},
		"none":               {"", []string{"token", "list", "--type", "bank"}, 0},
		"a search":           {"", []string{"token", "search", "type:token OR metadata.tier:gold", "--limit", "0"}, 121},
		"a search for data":  {"data:6789\n", []string{"token", "search"}, 1},
		"metadata of a name": {"", []string{"token", "search", "metadata.data:6789"}, 0},
	} {
		list := []api.Token{}
		x.read(&list, c.in, c.args...)
		if len(list) != c.want {
			t.Errorf("%s: %d tokens, want %d", name, len(list), c.want)
		}
	}
}

func TestDocumentsFromTheCommandLine(t *testing.T) {
	x := openTill(t)
	var out struct {
		Name string
		Card api.Token
	}
	text := x.done(`{"name":"Jane \u009b Doe","card":{"type":"card","data":{"number":"`+planted+`"}}}`, "tokenize")
	if err := json.Unmarshal([]byte(text), &out); err != nil || out.Card.Card.Last4 != "4242" || strings.Contains(text, planted) || strings.Contains(text, "Jane") {
		t.Fatalf("tokenize printed %s, %v", text, err)
	}
	file := mustWrite(t, filepath.Join(t.TempDir(), "in.json"), fmt.Sprintf(`{"to":"{{ %s }}","pan":"{{ %s | json: '$.number' }}","n":1.0}`, out.Name, out.Card.ID))
	// What a terminal would take for a command stays a part of the text.
	text = x.done("", "detokenize", "--data-file", file)
	if want := `{"to":"Jane \u009b Doe","pan":"` + planted + `","n":1.0}`; compact(t, []byte(text)) != want {
		t.Errorf("detokenize printed %s, want %s", text, want)
	}
}

func TestACommandMayBeRunAgainUnderItsKey(t *testing.T) {
	x, _ := besideServer(t, nil)
	x.as(x.keys.PrivateKey)
	for name, args := range map[string][]string{
		"token create": {"token", "create", "--type", "token"}, "tokenize": {"tokenize"},
	} {
		first := x.done(`"Jane"`, append(args, "--idempotency-key", "order-1001")...)
		if again := x.done(`"Jane"`, append(args, "--idempotency-key", "order-1001")...); again != first {
			t.Errorf("%s again under its key printed\n%s\nand not\n%s", name, again, first)
		}
		if other := x.done(`"Jane"`, args...); other == first {
			t.Errorf("%s without a key made nothing new", name)
		}
	}
	x.refused(map[string]refusedCase{"no key": {[]string{"tokenize", "--idempotency-key", planted + " x"}, "1", 2, "the idempotency key must be of 1 to 200 visible ASCII characters: not valid"}})
}

func TestTheKeyAndTheAddressMayComeFromElsewhere(t *testing.T) {
	x := openTill(t, "--header-prefix", "BT")
	public := mustWrite(t, filepath.Join(t.TempDir(), "key"), x.keys.PublicKey+"\n")
	x.done("1", "token", "create", "--type", "token", "--id", "one", "--key-file", public, "--header-prefix", "BT")
	t.Setenv("TOKENKEEP_URL", "")
	t.Setenv("TOKENKEEP_HEADER_PREFIX", "BT")
	x.done("", "token", "get", "one", "--data", x.data)
	x.done("", "token", "get", "one", "--url", x.keys.BaseURL+"/")
	if got := given(t, "", "token", "get", "one", "--data", x.data, "--key-file", public); got.code != 11 || got.err != "tokenkeep: missing permission token:read\n" {
		t.Errorf("token get with a public key = %+v", got)
	}
	if got := given(t, "", "token", "get", "one", "--data", x.data, "--header-prefix", "SVC"); got.code != 11 || got.err != "tokenkeep: the API key is missing; send it in the header: BT-API-KEY\n" {
		t.Errorf("token get under another prefix = %+v", got)
	}
}

// What is wrong is told in one sentence, with the code of its kind, and
// without what was typed, sent or read.
func TestMistakesWithTokensAreToldInOneSentence(t *testing.T) {
	storetest.Long(t)
	x := openTill(t)
	dir := t.TempDir()
	secretFile := mustWrite(t, filepath.Join(dir, planted), planted+planted)
	hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprint(w, `{"title":"t","status":418,"detail":"red \u001b[31m\nline"}`)
	}))
	defer hostile.Close()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = nil
	defer untrusted.Close()
	for name, test := range map[string]struct {
		in   string
		args []string
		code int
		want string
	}{
		"no type":              {"1", []string{"token", "create"}, 2, `required flag(s) "type" not set`},
		"a value as argument":  {"1", []string{"token", "create", planted, "--type", "token"}, 2, "unexpected argument; 'tokenkeep token create --help' shows what the command takes"},
		"no JSON":              {`{"number":"` + planted, []string{"token", "create", "--type", "card"}, 2, "the input is not valid JSON"},
		"nothing":              {"", []string{"tokenize"}, 2, "the input is not valid JSON"},
		"no such file":         {"", []string{"tokenize", "--data-file", secretFile + "x"}, 2, "the file given with --data-file cannot be read"},
		"metadata of no value": {"1", []string{"token", "create", "--type", "token", "--metadata", planted}, 2, "--metadata takes key=value, and each key once"},
		"metadata given twice": {"", []string{"token", "list", "--metadata", "a=1", "--metadata", "a=2"}, 2, "--metadata takes key=value, and each key once"},
		"data in a query":      {"", []string{"token", "search", "type:card AND (data:" + planted + ")"}, 2, "a query for data holds a value to protect: give it on standard input, without an argument"},
		"no id":                {"", []string{"token", "get", ".."}, 2, "an id is required, and it cannot be a dot or two: not valid"},
		"two ids":              {"", []string{"token", "get", "a", planted}, 2, "accepts 1 arg(s), received 2"},
		"a limit of nonsense":  {"", []string{"token", "list", "--limit", planted + "x"}, 2, "the value of --limit is missing or not valid; 'tokenkeep token list --help' lists the flags"},
		"no key file":          {"", []string{"token", "list", "--key-file", secretFile + "x"}, 2, "the file given with --key-file cannot be read"},
		"a file of no key":     {"", []string{"token", "list", "--key-file", mustWrite(t, filepath.Join(dir, "two"), planted+" "+planted)}, 2, "the key must be of visible ASCII characters, without spaces"},
		"an empty key file":    {"", []string{"token", "list", "--key-file", mustWrite(t, filepath.Join(dir, "none"), "\n")}, 2, errNoKey.Error()},
		"a bad prefix":         {"", []string{"token", "list", "--header-prefix", planted + " x"}, 2, "the header prefix must be of letters, digits and dashes"},
		"no address":           {"", []string{"token", "list", "--url", planted}, 2, "the base URL must be http or https, with a host, and without a user, query or fragment"},
		"an address in clear":  {"", []string{"token", "list", "--url", "http://" + planted}, 2, errInClear.Error()},
		"a folder of nobody":   {"", []string{"token", "list", "--url", "", "--data", filepath.Join(dir, "nobody")}, 9, "no server is running on this data folder"},

		"a bad card":            {`{"number":"` + planted + `1","cvc":"` + planted + `"}`, []string{"token", "create", "--type", "card"}, 11, "data.cvc must be three or four digits; data.number: the card number is not valid: check it for a mistyped digit"},
		"a card for a type":     {"1", []string{"token", "create", "--type", planted}, 11, "type: unknown token type; the types are token, card, bank, card_number, us_bank_account_number, us_bank_routing_number, social_security_number, employer_id_number"},
		"a card for an id":      {planted, []string{"token", "create", "--type", "card_number", "--text", "--id", planted}, 11, "id must not be the protected value, hold 12 or more digits of it, or look like a card number"},
		"a card for a token":    {"", []string{"token", "get", planted}, 11, "no such token"},
		"a patch of an array":   {`["` + planted + `"]`, []string{"token", "update", planted}, 11, "the body must be a JSON object"},
		"nothing to update":     {`{}`, []string{"token", "update", planted}, 11, "no such token"},
		"nothing to delete":     {"", []string{"token", "delete", planted}, 11, "no such token"},
		"a query of nonsense":   {"data:" + planted + " AND", []string{"token", "search"}, 11, "query is not understood at character 26"},
		"nothing to detokenize": {`"{{ ` + planted + ` }}"`, []string{"detokenize"}, 11, "Failed to detokenize some tokens"},
		"a key of nobody":       {"", []string{"token", "list", "--key-file", secretFile}, 11, "unknown API key"},
		"a server of others":    {"1", []string{"token", "create", "--type", "token", "--url", hostile.URL}, 11, "red ?[31m?line"},

		"nobody there":         {"1", []string{"token", "create", "--type", "token", "--url", "http://127.0.0.1:1"}, 12, "nothing listens at the address of the server"},
		"a certificate":        {"1", []string{"token", "create", "--type", "token", "--url", untrusted.URL}, 12, "the server's certificate is not trusted"},
		"in clear, and nobody": {"1", []string{"tokenize", "--url", "http://0.0.0.0:1", "--in-clear"}, 12, "nothing listens at the address of the server"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "a folder of nobody" {
				t.Setenv("TOKENKEEP_URL", "")
			}
			got := given(t, test.in, test.args...)
			if got.code != test.code || got.err != "tokenkeep: "+test.want+"\n" {
				t.Errorf("= %d %q, want %d %q", got.code, got.err, test.code, test.want)
			}
			if strings.Count(got.err, "\n") != 1 || got.out != "" || strings.Contains(got.err, planted[:8]) || strings.Contains(got.err, "key_dev") {
				t.Errorf("printed %q and %q, want one line of error that repeats nothing", got.out, got.err)
			}
		})
	}
	t.Setenv("TOKENKEEP_URL", "")
	if got := given(t, "", "token", "list"); got.code != 2 || got.err != "tokenkeep: "+errNoAddress.Error()+"\n" {
		t.Errorf("token list without an address = %+v", got)
	}
	t.Setenv("TOKENKEEP_API_KEY", "")
	if got := given(t, "", "token", "list", "--data", x.data); got.code != 2 || !strings.Contains(got.err, "there is no key") {
		t.Errorf("token list without a key = %+v", got)
	}
}

func TestWhyThereIsNoAnswerIsToldWithoutTheAddress(t *testing.T) {
	for want, cause := range map[string]error{
		"the name of the server is not known":                                           &net.DNSError{Err: "no such host", Name: planted},
		"the server gave no answer, so that it may or may not have done what was asked": io.ErrUnexpectedEOF,
	} {
		code, sentence := explain(fmt.Errorf("%w: %w", client.ErrUnavailable, cause))
		if code != 12 || sentence != want {
			t.Errorf("explain = %d %q, want 12 %q", code, sentence, want)
		}
	}
}

func TestShellsCompleteTheTypesOfTokens(t *testing.T) {
	for _, args := range [][]string{{"token", "create", "--type", ""}, {"token", "list", "--type", ""}} {
		got := call(t, append([]string{"__complete"}, args...)...)
		for _, k := range token.Types() {
			if !strings.Contains(got.out, k.Name+"\n") {
				t.Errorf("%v completes %q, without %s", args, got.out, k.Name)
			}
		}
	}
}
