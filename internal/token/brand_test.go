package token_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/token"
)

const (
	elements   = "../../web/elements"
	brandTable = elements + "/src/brands.gen.ts"
)

var update = flag.Bool("update", false, "write web/elements/src/brands.gen.ts")

// generatedBrands is the table of brands for the card fields: one text, which
// is smaller than a list of objects.
func generatedBrands() string {
	var rows []string
	last := ""
	for _, b := range token.BrandRanges() {
		if b.Brand != last {
			rows = append(rows, b.Brand)
			last = b.Brand
		}
		r := b.First
		if b.Last != b.First {
			r += "-" + b.Last
		}
		rows[len(rows)-1] += " " + r
	}
	var lines []string
	line := ""
	for _, word := range strings.SplitAfter(strings.Join(rows, "|"), " ") {
		if len(line)+len(word) > 136 {
			lines = append(lines, line)
			line = ""
		}
		line += word
	}
	lines = append(lines, line)
	return "// Code generated from internal/token/brand.go by 'go test ./internal/token -run Brands -update'; DO NOT EDIT.\n\n" +
		"/** Rows \"brand range range …\", separated by \"|\". A range is a prefix, or first-last. */\n" +
		"export const table =\n  '" + strings.Join(lines, "' +\n  '") + "';\n"
}

func TestTheBrandsOfTheFieldsAreGenerated(t *testing.T) {
	want := generatedBrands()
	if *update {
		if err := os.WriteFile(brandTable, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(brandTable)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the table gives: run 'go test ./internal/token -run Brands -update'", brandTable)
	}
}

// brandNumbers are beginnings of numbers around the edges of all ranges, and random ones.
func brandNumbers(r *rand.Rand) (list []string) {
	digits := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('0' + r.IntN(10))
		}
		return string(b)
	}
	list = append(list, "")
	for _, row := range token.BrandRanges() {
		for _, edge := range []string{row.First, row.Last} {
			for n := range len(edge) + 1 {
				list = append(list, edge[:n], edge[:n]+digits(r.IntN(13)))
			}
			for _, next := range []byte{edge[len(edge)-1] - 1, edge[len(edge)-1] + 1} {
				if next >= '0' && next <= '9' {
					list = append(list, edge[:len(edge)-1]+string(next)+digits(10))
				}
			}
		}
	}
	for range 20_000 {
		list = append(list, digits(r.IntN(20)))
	}
	return list
}

// bundled returns Node.js and the URL of a module of the fields as JavaScript.
func bundled(t *testing.T, module string) (node, script string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	bundler, err := filepath.Abs(elements + "/node_modules/.bin/esbuild")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bundler); err != nil {
		t.Skip("the tools of web/elements are not installed: run 'make elements'")
	}
	script = filepath.Join(t.TempDir(), module+".mjs")
	if out, err := exec.CommandContext(t.Context(), bundler, elements+"/src/"+module+".ts", "--bundle", "--format=esm", "--outfile="+script, "--log-level=error").CombinedOutput(); err != nil {
		t.Fatalf("esbuild: %v\n%s", err, out)
	}
	return node, "file://" + script
}

// TestBankAccountsOfTheFields checks IBANs by examples, and routing numbers
// against the vault's own check.
func TestBankAccountsOfTheFields(t *testing.T) {
	node, script := bundled(t, "bank")
	numbers := map[string]bool{"": false, "02100002": false, "0210000210": false, "000000000": token.IsRoutingNumber("000000000")}
	for range 5000 {
		n := fmt.Sprintf("%09d", rand.IntN(1e9))
		numbers[n] = token.IsRoutingNumber(n)
	}
	in, err := json.Marshal(numbers)
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), node, "testdata/bank.mjs", script)
	run.Stdin = strings.NewReader(string(in))
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("node: %v\n%s", err, out)
	}
}

// TestBrandsAreTheSameInTheFields runs both implementations over the same numbers.
func TestBrandsAreTheSameInTheFields(t *testing.T) {
	node, script := bundled(t, "card")
	seed := rand.Uint64()
	numbers := brandNumbers(rand.New(rand.NewPCG(seed, 1)))
	in, err := json.Marshal(numbers)
	if err != nil {
		t.Fatal(err)
	}
	const program = `import { readFileSync } from 'node:fs';
const { brandOf } = await import(process.argv[1]);
process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, 'utf8')).map(brandOf)));`
	run := exec.CommandContext(t.Context(), node, "--input-type=module", "--eval", program, script)
	run.Stdin = strings.NewReader(string(in))
	out, err := run.Output()
	if err != nil {
		t.Fatalf("node: %v", err)
	}
	var brands []string
	if err := json.Unmarshal(out, &brands); err != nil || len(brands) != len(numbers) {
		t.Fatalf("node returned %d brands, %v; want %d", len(brands), err, len(numbers))
	}
	found := map[string]bool{}
	for i, n := range numbers {
		if want := token.BrandOf(n); brands[i] != want {
			t.Errorf("seed %d: the brand of %q is %q in the fields and %q in the vault", seed, n, brands[i], want)
		}
		found[brands[i]] = true
	}
	if len(found) < 13 {
		t.Errorf("only %d brands were compared", len(found))
	}
}
