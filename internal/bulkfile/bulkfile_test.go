package bulkfile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"filippo.io/age"
	agearmor "filippo.io/age/armor"
	"github.com/ProtonMail/go-crypto/openpgp"
	pgparmor "github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenkeep/tokenkeep/internal/bulkfile"
)

// all reads a file to its end.
func all(t *testing.T, text string, m *bulkfile.Mapping) (list []bulkfile.Record, err error) {
	t.Helper()
	r, err := bulkfile.NewReader(strings.NewReader(text), m)
	for err == nil {
		var next bulkfile.Record
		if next, err = r.Next(); err == nil {
			list = append(list, next)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return list, err
}

func mapping(t *testing.T, text string) *bulkfile.Mapping {
	t.Helper()
	m, err := bulkfile.ParseMapping([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const cards = `type: card
old_id: {column: ref}
data: {number: {column: pan, as: digits}, expiration_month: {column: exp, as: month}, expiration_year: {column: exp, as: year}}
metadata: {tier: gold, who: {column: name}}
containers: [/pci/high/]
`

func TestFilesAreReadRecordByRecord(t *testing.T) {
	want := func(pan, who string) string {
		return `{"containers":["/pci/high/"],"data":{"expiration_month":9,"expiration_year":2030,"number":"` + pan + `"},"metadata":{"tier":"gold","who":"` + who + `"},"type":"card"}`
	}
	for name, test := range map[string]struct {
		file string
		want []string // line, old id, request or error
	}{
		"CSV":                          {"ref,pan,exp,name\nr1,4242 4242-42424242,09/2030,Jane\n", []string{"2 r1 " + want("4242424242424242", "Jane")}},
		"with a BOM":                   {"\xef\xbb\xbfREF;PAN;EXP;NAME\r\nr1;4242424242424242;2030-09;Jane\r\n", []string{"2 r1 " + want("4242424242424242", "Jane")}},
		"with tabs":                    {"ref\tpan\texp\tname\nr1\t4242424242424242\t0930\tJane\n", []string{"2 r1 " + want("4242424242424242", "Jane")}},
		"lines of JSON":                {"\n" + `{"ref":"r1","pan":"4242424242424242","exp":"9/30","name":"Jane"}`, []string{"2 r1 " + want("4242424242424242", "Jane")}},
		"lines in a field":             {"ref,pan,exp,name\n\"r\n1\",4242424242424242,09/30,Jane\nr2,x,y,z\n", []string{"2 r\n1 " + want("4242424242424242", "Jane"), "4 r2 data.expiration_month is not a month"}},
		"a short record":               {"ref,pan,exp,name\nr1,4242424242424242\nr2,4242424242424242,09/30,Jane\n", []string{"2  has another number of fields than the header", "3 r2 " + want("4242424242424242", "Jane")}},
		"an id that looks like a card": {"ref,pan,exp,name\n4242424242424242,4242424242424242,09/30,Jane\n", []string{"2  " + want("4242424242424242", "Jane")}},
		"no JSON":                      {`{"pan":` + "\n" + `{"ref":"r","exp":"13/30"}`, []string{"1  is not a JSON object", "2 r data.expiration_month is not a month"}},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := all(t, test.file, mapping(t, cards))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range list {
				text := string(r.Request)
				if r.Err != nil {
					text = r.Err.Error()
				}
				line, _ := json.Marshal(r.Line)
				got = append(got, string(line)+" "+r.OldID+" "+text)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsWrongWithAFileIsSaidWithoutItsValues(t *testing.T) {
	const pan = "4242424242424242"
	for name, test := range map[string]struct{ file, want string }{
		"a column that is missing": {"ref,pan\nr," + pan + "\n", "missing: exp, name"},
		"a quote in a field":       {"ref,pan,exp,name\nr," + pan + "\"x,09/30,Jane\n", "line 2 is not CSV"},
		"a quote that stays open":  {"ref,pan,exp,name\nr,\"" + strings.Repeat(pan, 1<<20) + "\n", "longer than 8 MiB"},
		"a long line of JSON":      {`{"pan":"` + strings.Repeat(pan, 1<<20) + `"}`, "longer than 8 MiB"},
		"nothing":                  {"", "no header"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := all(t, test.file, mapping(t, cards))
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), pan) {
				t.Errorf("error = %v, want %q and no value", err, test.want)
			}
		})
	}
	if _, err := all(t, "a,b\n", nil); err == nil || !strings.Contains(err.Error(), "--mapping") {
		t.Errorf("CSV without a mapping = %v", err)
	}
}

func TestMappingsThatAreNotValidAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "type: card", "data: x", "type: card\ndata: {column: a, as: money}", "type: card\ndata: [a]", "type: card\ndata: x\nsurprise: 1",
		"type: card\ndata: {column: {a: b}}", "type: card\ndata: {column: a, of: b}", "type: card\ndata: {column: a, as: text, of: b}", ": :",
	} {
		if m, err := bulkfile.ParseMapping([]byte(text)); err == nil {
			t.Errorf("ParseMapping(%q) = %+v, want an error", text, m)
		}
	}
}

func TestPresetsReadTheirExamples(t *testing.T) {
	for _, p := range bulkfile.Presets {
		list, err := all(t, p.Example, bulkfile.PresetNamed(p.Name))
		if err != nil || len(list) != 1 || list[0].Err != nil || list[0].OldID == "" {
			t.Errorf("%s: %+v, %v", p.Name, list, err)
			continue
		}
		var request struct {
			Data struct {
				Number string `json:"number"`
				Month  int    `json:"expiration_month"`
				Year   int    `json:"expiration_year"`
			} `json:"data"`
		}
		if err := json.Unmarshal(list[0].Request, &request); err != nil || len(request.Data.Number) != 16 || request.Data.Month == 0 || request.Data.Year < 2030 {
			t.Errorf("%s: %+v, %v", p.Name, request, err)
		}
	}
	if bulkfile.PresetNamed("none") != nil {
		t.Error("there is a preset that is none")
	}
}

var update = flag.Bool("update", false, "write the table of presets into docs/import.md")

func TestDocsHaveEveryPreset(t *testing.T) {
	const page, begin, end = "../../docs/import.md", "<!-- presets: written by go test ./internal/bulkfile -update -->\n", "<!-- end of presets -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	table, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatal("the page has no place for the presets")
	}
	want := "\n| preset | files that it reads |\n|---|---|\n"
	for _, p := range bulkfile.Presets {
		want += "| `" + p.Name + "` | " + p.Doc + " |\n"
	}
	want += "\n"
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Errorf("the table of presets in docs/import.md differs; run go test ./internal/bulkfile -update")
	}
}

const secretText = "ref,pan\nr1,4242424242424242\n"

func TestEncryptedFilesAreOpened(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	entity, err := openpgp.NewEntity("Test", "", "test@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	var privateKey bytes.Buffer
	armored, err := pgparmor.Encode(&privateKey, openpgp.PrivateKeyType, nil)
	if err == nil {
		err = errors.Join(entity.SerializePrivate(armored, nil), armored.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	written := func(open func(io.Writer) (io.WriteCloser, error)) []byte {
		var b bytes.Buffer
		w, err := open(&b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, secretText); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	var ageArmored bytes.Buffer
	wrapped := agearmor.NewWriter(&ageArmored)
	plainAge := written(func(w io.Writer) (io.WriteCloser, error) { return age.Encrypt(w, identity.Recipient()) })
	_, _ = wrapped.Write(plainAge)
	_ = wrapped.Close()
	binaryPGP := written(func(w io.Writer) (io.WriteCloser, error) {
		return openpgp.Encrypt(w, openpgp.EntityList{entity}, nil, nil, nil)
	})
	var pgpArmored bytes.Buffer
	out, err := pgparmor.Encode(&pgpArmored, "PGP MESSAGE", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = out.Write(binaryPGP)
	_ = out.Close()

	var keys bulkfile.Keys
	if err := errors.Join(keys.Add([]byte("# made for a test\n"+identity.String()+"\n"), nil), keys.Add(privateKey.Bytes(), nil)); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		file      []byte
		encrypted bool
	}{
		"plain": {[]byte(secretText), false}, "with a BOM": {[]byte("\xef\xbb\xbf" + secretText), false}, "age": {plainAge, true}, "armored age": {ageArmored.Bytes(), true},
		"OpenPGP": {binaryPGP, true}, "armored OpenPGP": {pgpArmored.Bytes(), true},
	} {
		t.Run(name, func(t *testing.T) {
			plain, encrypted, err := keys.Decrypt(bytes.NewReader(test.file))
			if err != nil || encrypted != test.encrypted {
				t.Fatalf("Decrypt = %t, %v", encrypted, err)
			}
			if got, err := io.ReadAll(plain); err != nil || strings.TrimPrefix(string(got), "\xef\xbb\xbf") != secretText {
				t.Errorf("plaintext = %q, %v", got, err)
			}
			if !test.encrypted {
				return
			}
			var none bulkfile.Keys
			if _, _, err := none.Decrypt(bytes.NewReader(test.file)); err == nil {
				t.Error("it opens without a key")
			}
			var wrong bulkfile.Keys
			if err := wrong.Add([]byte(other.String()), nil); err != nil {
				t.Fatal(err)
			}
			if _, _, err := wrong.Decrypt(bytes.NewReader(test.file)); err == nil {
				t.Error("it opens with another key")
			}
		})
	}
	for _, text := range []string{"", "nothing", "AGE-SECRET-KEY-1NOT"} {
		var k bulkfile.Keys
		if err := k.Add([]byte(text), nil); err == nil || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("Add(%q) = %v", text, err)
		}
	}
}

// TestAFileThatIsCutOffIsNoWholeFile: half a file must not look like a whole one.
func TestAFileThatIsCutOffIsNoWholeFile(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := age.Encrypt(&b, identity.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, strings.Repeat(secretText, 10_000))
	_ = w.Close()
	var keys bulkfile.Keys
	if err := keys.Add([]byte(identity.String()), nil); err != nil {
		t.Fatal(err)
	}
	plain, _, err := keys.Decrypt(bytes.NewReader(b.Bytes()[:b.Len()/2]))
	if err != nil {
		t.Fatal(err)
	}
	r, err := bulkfile.NewReader(plain, mapping(t, "type: token\ndata: {column: pan}"))
	for err == nil {
		_, err = r.Next()
	}
	if errors.Is(err, io.EOF) || strings.Contains(err.Error(), "4242") {
		t.Errorf("the end of half a file = %v, want an error without values", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("ref,pan,exp,name\nr1,4242424242424242,09/2030,Jane\n"))
	f.Add([]byte(`{"ref":"r1","pan":"4242424242424242","exp":"9/30","name":"Jane"}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		m, err := bulkfile.ParseMapping([]byte(cards))
		if err != nil {
			t.Fatal(err)
		}
		r, err := bulkfile.NewReader(bytes.NewReader(file), m)
		for err == nil {
			var next bulkfile.Record
			if next, err = r.Next(); err == nil && next.Err == nil && !json.Valid(next.Request) {
				t.Errorf("a request that is not JSON: %q", next.Request)
			}
		}
	})
}
