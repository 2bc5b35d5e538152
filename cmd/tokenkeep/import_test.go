package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"filippo.io/age"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/luhn"
)

// cardNumber returns one of the numbers of the test range 400000…, with its
// check digit.
func cardNumber(n int) string {
	body := fmt.Sprintf("400000%09d", n)
	for digit := range 10 {
		if number := body + string(rune('0'+digit)); luhn.Valid(number) {
			return number
		}
	}
	return ""
}

// encrypted writes a file that age has encrypted, and the identity that opens it.
func encrypted(t *testing.T, dir, text string) (file, identity string) {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := age.Encrypt(&b, key.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, text)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return mustWrite(t, filepath.Join(dir, "cards.csv.age"), b.String()), mustWrite(t, filepath.Join(dir, "key.txt"), key.String())
}

func cardsFile(n int) string {
	var b strings.Builder
	_, _ = b.WriteString("old_id,number,exp_month,exp_year,name,customer_id\n")
	for i := range n {
		_, _ = fmt.Fprintf(&b, "old-%d,%s,%d,2031,Jane Doe,c-%d\n", i, cardNumber(i), i%12+1, i)
	}
	return b.String()
}

// failing stands before a server and breaks calls: before they arrive, or after
// they took effect.
func failing(t *testing.T, target string, breaks func(n int64) (before, after bool)) string {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(u)
	var calls atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before, after := breaks(calls.Add(1))
		if before {
			panic(http.ErrAbortHandler)
		}
		if after {
			pass.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestImportMakesATokenOfEachRecordOnce(t *testing.T) {
	x := openTill(t)
	dir := t.TempDir()
	text := cardsFile(2600)
	text = strings.Replace(text, cardNumber(7), "4242424242424241", 1)                                // not a card number
	text = strings.Replace(text, "\nold-9,"+cardNumber(9)+",10,", "\nold-9,"+cardNumber(9)+",13,", 1) // not a month
	file, identity := encrypted(t, dir, text)
	args := []string{"import", file, "--identity", identity, "--preset", "cards"}

	// The second batch is stored, and its results are lost. That ends the
	// command as a kill would.
	t.Setenv("TOKENKEEP_URL", failing(t, x.keys.BaseURL, func(n int64) (before, after bool) { return n > 2, n == 2 }))
	if got := given(t, "", args...); got.code != 12 {
		t.Fatalf("an import that loses the server = %d %s %s, want 12", got.code, got.out, got.err)
	}
	t.Setenv("TOKENKEEP_URL", x.keys.BaseURL)
	got := given(t, "", args...)
	if got.code != 0 {
		t.Fatalf("the import goes on = %d %s", got.code, got.err)
	}
	for _, line := range []string{`records +2600`, `created +2598`, `rejected +2`} {
		wantLine(t, got.out, line)
	}
	// Each record once, in order, with an id of its own.
	results := readLines(t, file+".tokens.csv")
	seen := map[string]bool{}
	for i, line := range results[1:] {
		fields := strings.Split(line, ",")
		if len(fields) != 4 || seen[fields[1]] || seen[fields[2]] || i > 20 && fields[1] != fmt.Sprintf("old-%d", i+2) {
			t.Fatalf("results, line %d: %s", i+2, line)
		}
		seen[fields[1]], seen[fields[2]] = true, true
	}
	if len(results) != 2599 {
		t.Errorf("there are %d results, want a header and 2598", len(results))
	}
	rejects := readLines(t, file+".rejects.csv")
	if len(rejects) != 3 || !strings.HasPrefix(rejects[1], "9,old-7,data.number,") || !strings.HasPrefix(rejects[2], "11,old-9,data.expiration_month,") {
		t.Errorf("rejects = %q", rejects)
	}
	if list := strings.Count(x.done("", "token", "list", "--limit", "0", "--json"), `"tenant_id"`); list != 2598 {
		t.Errorf("there are %d tokens, want 2598", list)
	}
	// A token is what its record was.
	var token api.Token
	last := strings.Split(results[2598], ",")
	x.read(&token, "", "token", "get", last[2])
	if !strings.Contains(string(token.Data), cardNumber(2599)) || token.Metadata["customer_id"] != "c-2599" {
		t.Errorf("the token of the last record = %s %v", token.Data, token.Metadata)
	}
	// What is done is done.
	again := given(t, "", args...)
	if again.code != 0 || again.out != got.out {
		t.Errorf("once more = %d %s %s, want the same", again.code, again.out, again.err)
	}
	noValues(t, dir, got.out+got.err+again.err)
}

// noValues fails when a card of the test range is in a file or a text.
func noValues(t *testing.T, dir, printed string) {
	t.Helper()
	for _, entry := range mustReadDir(t, dir) {
		b, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("400000")) || bytes.Contains(b, []byte("424242")) {
			t.Errorf("%s holds a card number", entry.Name())
		}
		if info, err := entry.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s can be read by others", entry.Name())
		}
	}
	if strings.Contains(printed, "400000") || strings.Contains(printed, "Jane") {
		t.Errorf("values were printed: %s", printed)
	}
}

func mustReadDir(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

func TestADryRunOfAnImportLeavesOnlyRejects(t *testing.T) {
	x := openTill(t)
	dir := t.TempDir()
	file := mustWrite(t, filepath.Join(dir, "cards.csv"), strings.Replace(cardsFile(3), cardNumber(1), "4242424242424241", 1))
	out := x.done("", "import", file, "--preset", "cards", "--dry-run")
	wantLine(t, out, `valid +2`)
	wantLine(t, out, `rejected +1`)
	var names []string
	for _, e := range mustReadDir(t, dir) {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"cards.csv", "cards.csv.rejects.csv"}) {
		t.Errorf("files = %q", names)
	}
	if n := strings.Count(x.done("", "token", "list", "--json"), `"tenant_id"`); n != 0 {
		t.Errorf("there are %d tokens after a dry run", n)
	}
}

func TestWhatIsWrongWithAnImportIsSaidInOneSentence(t *testing.T) {
	openTill(t)
	dir := t.TempDir()
	file, identity := encrypted(t, dir, cardsFile(2))
	plainFile := mustWrite(t, filepath.Join(dir, "plain.csv"), cardsFile(2))
	bad := mustWrite(t, filepath.Join(dir, "bad.yaml"), "type: "+planted)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no key":             {[]string{file, "--preset", "cards"}, "no key that was given with --identity opens it"},
		"no mapping":         {[]string{plainFile}, "needs --mapping or --preset"},
		"both":               {[]string{plainFile, "--preset", "cards", "--mapping", bad}, "do not go together"},
		"unknown preset":     {[]string{plainFile, "--preset", planted}, "no such preset"},
		"a bad mapping":      {[]string{plainFile, "--mapping", bad}, "the mapping is not valid"},
		"no file":            {[]string{filepath.Join(dir, "none.csv"), "--preset", "cards"}, "cannot be read"},
		"a key that is none": {[]string{file, "--identity", plainFile, "--preset", "cards"}, "neither an age identity"},
		"other columns":      {[]string{plainFile, "--preset", "stripe"}, "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			got := given(t, "", append([]string{"import"}, test.args...)...)
			if got.code != 2 || !strings.Contains(got.err, test.want) || strings.Contains(got.err, planted) {
				t.Errorf("= %d %s, want 2 and %q", got.code, got.err, test.want)
			}
		})
	}
	if got := given(t, "", "import", file, "--identity", identity, "--preset", "cards"); got.code != 0 {
		t.Fatalf("an import = %d %s", got.code, got.err)
	}
	mapping := mustWrite(t, filepath.Join(dir, "m.yaml"), "type: token\ndata: {column: number}\n")
	if got := given(t, "", "import", file, "--identity", identity, "--mapping", mapping); got.code != 2 || !strings.Contains(got.err, "has changed since") {
		t.Errorf("with another mapping = %d %s, want 2", got.code, got.err)
	}
}

// TestAnExportGoesFromOneVaultToAnother: by the commands, with a kill between.
func TestAnExportGoesFromOneVaultToAnother(t *testing.T) {
	x := openTill(t)
	dir := t.TempDir()
	cards := mustWrite(t, filepath.Join(dir, "cards.csv"), cardsFile(450))
	x.done("", "import", cards, "--preset", "cards")
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	identity := mustWrite(t, filepath.Join(dir, "key.txt"), key.String())
	file := filepath.Join(dir, "tokens.age")
	wantLine(t, x.done("", "export", "--recipient", key.Recipient().String(), "--type", "card", "--out", file), `status +ready`)
	out := x.done("", "export", "verify", file, "--identity", identity)
	wantLine(t, out, `tokens +450`)
	wantLine(t, out, `verdict +complete and unchanged.*`)
	results := readLines(t, cards+".tokens.csv")
	var before api.Token
	id := strings.Split(results[450], ",")[2]
	x.read(&before, "", "token", "get", id)

	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	half := mustWrite(t, filepath.Join(dir, "half.age"), string(b[:len(b)/2]))
	if got := given(t, "", "export", "verify", half, "--identity", identity); got.code != 19 {
		t.Errorf("verify of half a file = %d %s, want 19", got.code, got.err)
	}
	if got := given(t, "", "export", "verify", file); got.code != 2 {
		t.Errorf("verify without an identity = %d %s, want 2", got.code, got.err)
	}
	if got := given(t, "", "export", "--recipient", key.Recipient().String(), "--out", file); got.code != 2 {
		t.Errorf("an export over another = %d %s, want 2", got.code, got.err)
	}

	y := openTill(t)
	t.Setenv("TOKENKEEP_URL", failing(t, y.keys.BaseURL, func(n int64) (before, after bool) { return n > 2, n == 2 }))
	args := []string{"import", file, "--identity", identity}
	if got := given(t, "", args...); got.code != 12 {
		t.Fatalf("an import that loses the server = %d %s, want 12", got.code, got.err)
	}
	t.Setenv("TOKENKEEP_URL", y.keys.BaseURL)
	out = y.done("", args...)
	wantLine(t, out, `created +450`)
	wantLine(t, out, `rejected +0`)
	var after api.Token
	y.read(&after, "", "token", "get", id)
	if string(after.Data) != string(before.Data) || fmt.Sprint(after.Metadata) != fmt.Sprint(before.Metadata) || !slices.Equal(after.Containers, before.Containers) {
		t.Errorf("a token is %+v, and was %+v", after, before)
	}
	for _, half := range []string{half} {
		got := given(t, "", "import", half, "--identity", identity)
		if got.code != 2 || !strings.Contains(got.err, "cannot be read to its end") {
			t.Errorf("an import of half an export = %d %s, want 2", got.code, got.err)
		}
	}
}
