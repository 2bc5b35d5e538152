package canary_test

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/tokenkeep/tokenkeep/test/canary"
)

func zipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func utf16Of(s string, high bool) (b []byte) {
	for _, u := range utf16.Encode([]rune(s)) {
		if high {
			b = append(b, byte(u>>8), byte(u))
		} else {
			b = append(b, byte(u), byte(u>>8))
		}
	}
	return b
}

// disguises are ways to write a value that the search must see through.
func disguises(t *testing.T, v string) map[string][]byte {
	t.Helper()
	backwards := []byte(v)
	slices.Reverse(backwards)
	sum, sum1, sum5 := sha256.Sum256([]byte(v)), sha1.Sum([]byte(v)), md5.Sum([]byte(v))
	out := map[string][]byte{
		"itself": []byte(v), "in small letters": []byte(strings.ToLower(v)), "in capital letters": []byte(strings.ToUpper(v)), "reversed": backwards,
		"hexadecimal": []byte(hex.EncodeToString([]byte(v))), "capital hexadecimal": []byte(strings.ToUpper(hex.EncodeToString([]byte(v)))),
		"UTF-16 low": utf16Of(v, false), "UTF-16 high": utf16Of(v, true),
		"SHA-256": sum[:], "SHA-1 in hexadecimal": []byte(hex.EncodeToString(sum1[:])), "MD5 in base64": []byte(base64.StdEncoding.EncodeToString(sum5[:])),
	}
	for offset := range 3 {
		whole := []byte(strings.Repeat("\xff", offset) + v + "\xfe?")
		out[fmt.Sprint("base64 from ", offset)] = []byte(base64.StdEncoding.EncodeToString(whole))
		out[fmt.Sprint("base64 for URLs from ", offset)] = []byte(base64.URLEncoding.EncodeToString(whole))
	}
	for name, b := range maps.Clone(out) {
		out["gzip of "+name] = zipped(t, b)
	}
	out["gzip of gzip"] = zipped(t, zipped(t, []byte(v)))
	long := zipped(t, []byte(v+strings.Repeat("more that follows ", 1000)))
	out["gzip cut short"] = long[:len(long)-9]
	return out
}

// The values hold what the two alphabets of base64 differ in.
var controls = []string{"cnry-Tq7~>~?Wm2xZ", "9999991234567894", "ÿþ~~>>??ÿþ"}

func TestEveryDisguiseIsSeenThrough(t *testing.T) {
	s, err := canary.New(append([]string{"not this one at all"}, controls...)...)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range controls {
		for name, b := range disguises(t, v) {
			for _, before := range []int{0, 1, 4095} {
				hay := append(bytes.Repeat([]byte{'y'}, before), b...)
				hay = append(hay, "and what follows"...)
				found := s.Search(hay)
				if !slices.ContainsFunc(found, func(f canary.Finding) bool { return f.Value == i+1 && f.Offset >= before }) {
					t.Errorf("value %d, %s, behind %d bytes: found %v", i+1, name, before, found)
				}
				if slices.ContainsFunc(found, func(f canary.Finding) bool { return f.Value != i+1 }) {
					t.Errorf("value %d, %s: found another one: %v", i+1, name, found)
				}
			}
		}
	}
}

func TestWhatIsOnlyAlikeIsNotFound(t *testing.T) {
	s, err := canary.New(controls...)
	if err != nil {
		t.Fatal(err)
	}
	hay := "cnry-Tq7~>~?Wm2x|999999123456789|XXXXXXXXXXXX7894|" + strings.Repeat("9", 40)
	hay += base64.StdEncoding.EncodeToString([]byte("cnry-Tq7~>~?Wm2")) + string(zipped(t, []byte(hay)))
	if found := s.Search([]byte(hay)); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	if s.Search(nil) != nil || s.Search([]byte{0x1f, 0x8b, 0x08}) != nil {
		t.Error("found something in nothing")
	}
}

func TestAFindingDoesNotTellTheValue(t *testing.T) {
	s, err := canary.New(controls[0])
	if err != nil {
		t.Fatal(err)
	}
	found := s.Search([]byte(controls[0]))
	if len(found) != 1 || fmt.Sprint(found) != "[value 0 as itself at byte 0]" {
		t.Errorf("found %v", found)
	}
}

func TestShortValuesAreRefused(t *testing.T) {
	if _, err := canary.New("long enough", "short"); err == nil {
		t.Error("a value that chance would find was taken")
	}
}

// The binary that runs this holds the value: a large file of somebody else's making.
func TestAValueIsFoundInALargeFile(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := canary.New("9999991234567894")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Search(b)) == 0 {
		t.Error("the literal of this file was not found in the binary")
	}
}
