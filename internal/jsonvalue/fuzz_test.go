package jsonvalue_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a":[1.0,"é",null,true]}`, `{"a":1,"a":2}`, `"\ud800"`, `[[[[]]]]`, `1e999`, "\"\xff\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := jsonvalue.Parse(b)
		if err != nil {
			return
		}
		if !json.Valid(b) {
			t.Fatalf("accepted what is not JSON")
		}
		out := v.AppendJSON(nil)
		back, err := jsonvalue.Parse(out)
		if err != nil || !back.Equal(v) || !bytes.Equal(back.AppendJSON(nil), out) {
			t.Fatalf("a value does not survive being written and read: %v", err)
		}
		if v.JSONSize() != len(out) {
			t.Fatalf("JSONSize = %d, wrote %d", v.JSONSize(), len(out))
		}
		if v.Kind() != jsonvalue.String && v.Kind() != jsonvalue.Null {
			canonical := must(t, stringify(t, v))
			if !canonical.Equal(v) || stringify(t, canonical) != stringify(t, v) {
				t.Fatal("the canonical form is not stable")
			}
		}
	})
}

func FuzzMergePatch(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1},"c":2}`), []byte(`{"a":{"b":null,"d":[1]},"c":null}`))
	f.Add([]byte(`[1]`), []byte(`{"a":null}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		target, err := jsonvalue.Parse(a)
		if err != nil {
			return
		}
		patch, err := jsonvalue.Parse(b)
		if err != nil {
			return
		}
		once, err := jsonvalue.MergePatch(target, patch)
		if err != nil {
			t.Fatalf("MergePatch of parsed values = %v", err)
		}
		twice, err := jsonvalue.MergePatch(once, patch)
		if err != nil || !twice.Equal(once) {
			t.Fatalf("a patch applied twice differs from once: %v", err)
		}
		if _, err := jsonvalue.Parse(once.AppendJSON(nil)); err != nil {
			t.Fatalf("the merged value does not parse: %v", err)
		}
		if !target.Equal(must(t, string(a))) || !patch.Equal(must(t, string(b))) {
			t.Fatal("MergePatch changed its arguments")
		}
	})
}

// A large object takes the map in index, a small one the scan: both must find
// the same members.
func TestMergePatchOfAnySizeDoesTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 0, 40, rapid.ID[string]).Draw(t, "names")
		var target, patch jsonvalue.Builder
		want := map[string]string{}
		for _, n := range names {
			inTarget, inPatch := rapid.Bool().Draw(t, "target"), rapid.IntRange(0, 2).Draw(t, "patch")
			if inTarget {
				target.Add(n, jsonvalue.NewInt(1))
				want[n] = "1"
			}
			switch inPatch {
			case 1:
				patch.Add(n, jsonvalue.NewInt(2))
				want[n] = "2"
			case 2:
				patch.Add(n, jsonvalue.Value{})
				delete(want, n)
			}
		}
		got, err := jsonvalue.MergePatch(target.Value(), patch.Value())
		if err != nil || got.Len() != len(want) {
			t.Fatalf("MergePatch has %d members, %v, want %d", got.Len(), err, len(want))
		}
		for n, v := range got.Members() {
			if want[n] != v.Reveal() {
				t.Fatalf("%s = %s, want %s", n, v.Reveal(), want[n])
			}
		}
	})
}

var card = []byte(`{"number":"4242424242424242","expiration_month":12,"expiration_year":2030,"cvc":"123"}`)

func BenchmarkParseCard(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := jsonvalue.Parse(card); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendJSONCard(b *testing.B) {
	v := must(b, string(card))
	buf := make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		buf = v.AppendJSON(buf[:0])
	}
}

func BenchmarkParseMegabyte(b *testing.B) {
	text := []byte("[" + strings.Repeat(string(card)+",", 11_000) + "1]")
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := jsonvalue.Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
