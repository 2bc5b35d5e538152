package jsonvalue_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

func must(t testing.TB, text string) jsonvalue.Value {
	t.Helper()
	v, err := jsonvalue.Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse(%q) = %v", text, err)
	}
	return v
}

func stringify(t testing.TB, v jsonvalue.Value) string {
	t.Helper()
	var b strings.Builder
	if err := v.Stringify(&b); err != nil {
		t.Fatalf("Stringify = %v", err)
	}
	return b.String()
}

func TestWhatComesInGoesOutAsItWasWritten(t *testing.T) {
	for _, text := range []string{
		`null`, `true`, `false`, `0`, `-0`, `1.0`, `1E+2`, `12345678901234567890.10`, `""`, `"é\u0001\n\"\\"`,
		`"<a href='x'>&"`, `[]`, `{}`, `[1,[2,{"b":null,"a":[]}]]`, `{"z":1,"a":{"":""}}`, `"😀"`,
	} {
		v := must(t, text)
		if got := string(v.AppendJSON(nil)); got != text {
			t.Errorf("AppendJSON of %s = %s", text, got)
		}
		if got := v.JSONSize(); got != len(text) {
			t.Errorf("JSONSize of %s = %d, want %d", text, got, len(text))
		}
		if got := string(v.AppendJSON([]byte("x"))); got != "x"+text {
			t.Errorf("AppendJSON after x = %s, want x%s", got, text)
		}
	}
}

func TestWhatIsNotStrictJSONIsRefused(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, text := range map[string]string{
		"empty": ``, "two values": `1 2`, "trailing comma": `[1,]`, "duplicate name": `{"a":1,"a":2}`,
		"duplicate by escape": `{"a":1,"\u0061":2}`, "invalid UTF-8": "\"\xff\"", "lone surrogate": `"\ud800"`,
		"too deep": deep(65), "too deep in objects": strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65),
		"a comment": `1 // x`, "leading zero": `01`, "bare word": `nul`, "unclosed": `{"a":1`,
	} {
		_, err := jsonvalue.Parse([]byte(text))
		if !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: Parse = %v, want an invalid fault", name, err)
		}
	}
	must(t, deep(64))
}

func TestFaultsDoNotRepeatTheInput(t *testing.T) {
	for _, text := range []string{`{"canary":4242424242424242`, `{"canary":1,"canary":2}`, `[canary]`, `"canary\ud800"`} {
		_, err := jsonvalue.Parse([]byte(text))
		if err == nil || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "4242") {
			t.Errorf("Parse(%q) = %v, want constant words", text, err)
		}
	}
}

func TestStringifyIsCanonical(t *testing.T) {
	for text, want := range map[string]string{
		`null`: ``, `"a b"`: `a b`, `1.0`: `1.0`, `true`: `true`,
		`{"b":1.0,"a":"x"}`:             `{"a":"x","b":1.0}`,
		`[ {"z":null, "y":[true]} , 2]`: `[{"y":[true],"z":null},2]`,
		`{"é":1,"z":2,"":3}`:            `{"":3,"z":2,"é":1}`,
	} {
		if got := stringify(t, must(t, text)); got != want {
			t.Errorf("Stringify(%s) = %s, want %s", text, got, want)
		}
	}
}

func TestLongTextsAreWrittenInPieces(t *testing.T) {
	long := strings.Repeat("aé\"\u0001😀", 20_000)
	v := jsonvalue.NewArray([]jsonvalue.Value{jsonvalue.NewString(long), must(t, "1")})
	var w widest
	if err := v.WriteJSON(&w); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(w.all, v.AppendJSON(nil)) {
		t.Error("WriteJSON and AppendJSON differ")
	}
	if w.most > 64<<10 {
		t.Errorf("a piece of %d bytes was held at once", w.most)
	}
	back := must(t, string(w.all))
	if !back.Equal(v) {
		t.Error("what was written in pieces does not read back the same")
	}
}

type widest struct {
	all  []byte
	most int
}

func (w *widest) Write(p []byte) (int, error) {
	w.all, w.most = append(w.all, p...), max(w.most, len(p))
	return len(p), nil
}

func TestWritersThatFailStopTheWriting(t *testing.T) {
	v := must(t, `["`+strings.Repeat("x", 100_000)+`",{"a":"`+strings.Repeat("y", 100_000)+`"}]`)
	w := &full{room: 10_000}
	if err := v.WriteJSON(w); !errors.Is(err, errFull) {
		t.Errorf("WriteJSON = %v, want %v", err, errFull)
	}
	if w.calls > 4 {
		t.Errorf("%d writes after the writer failed", w.calls)
	}
}

var errFull = errors.New("full")

type full struct{ room, calls int }

func (f *full) Write(p []byte) (int, error) {
	f.calls++
	if f.room -= len(p); f.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestNumbersAreNumbersOnlyByTheGrammarOfJSON(t *testing.T) {
	for text, ok := range map[string]bool{
		"1": true, "-0.10": true, "1e400": true, "": false, "01": false, "+1": false, " 1": false, "1 ": false,
		"NaN": false, "true": false, "1,2": false, ".5": false,
	} {
		v, err := jsonvalue.NewNumber(text)
		if (err == nil) != ok {
			t.Errorf("NewNumber(%q) = %v, want ok %v", text, err, ok)
		}
		if ok && v.Reveal() != text {
			t.Errorf("NewNumber(%q).Reveal() = %q", text, v.Reveal())
		}
	}
}

func TestValuesBuiltByHand(t *testing.T) {
	var b jsonvalue.Builder
	b.Add("number", jsonvalue.NewString("4242424242424242"))
	b.Add("bad\xff", jsonvalue.NewString("\xff"))
	b.Add("month", jsonvalue.NewInt(12))
	v := b.Value().With("year", jsonvalue.NewInt(2030)).With("month", jsonvalue.NewBool(true)).Without("number")
	if got, want := string(v.AppendJSON(nil)), `{"bad�":"�","month":true,"year":2030}`; got != want {
		t.Errorf("built %s, want %s", got, want)
	}
	nested := must(t, `{"card":{"cvc":"123","number":"1"},"cvc":1}`)
	if got, want := string(nested.Without("card", "cvc").AppendJSON(nil)), `{"card":{"number":"1"},"cvc":1}`; got != want {
		t.Errorf("Without = %s, want %s", got, want)
	}
	if got := nested.Without("card", "nope", "x"); !got.Equal(nested) {
		t.Error("Without changed a value that has no such member")
	}
	if !(jsonvalue.Value{}).IsNull() || string((&jsonvalue.Builder{}).Value().AppendJSON(nil)) != "{}" {
		t.Error("the zero Value is not null, or the zero Builder not an empty object")
	}
}

func TestEqualMindsTheTextOfNumbersButNotTheOrderOfMembers(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1,"b":[2]}`, `{"b":[2],"a":1}`, true}, {`1`, `1.0`, false}, {`"1"`, `1`, false}, {`[1,2]`, `[2,1]`, false},
		{`{"a":1}`, `{"b":1}`, false}, {`null`, `false`, false}, {`{}`, `[]`, false},
	} {
		if got := must(t, c.a).Equal(must(t, c.b)); got != c.want {
			t.Errorf("%s equal to %s = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

// The examples of RFC 7386, appendix A.
func TestMergePatchFollowsTheRFC(t *testing.T) {
	for _, c := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`}, {`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`}, {`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`}, {`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`}, {`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`}, {`{"a":"b"}`, `["c"]`, `["c"]`}, {`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`}, {`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`}, {`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		got, err := jsonvalue.MergePatch(must(t, c[0]), must(t, c[1]))
		if err != nil || string(got.AppendJSON(nil)) != c[2] {
			t.Errorf("MergePatch(%s, %s) = %s, %v, want %s", c[0], c[1], got.AppendJSON(nil), err, c[2])
		}
	}
}

func TestMergePatchRefusesWhatParseWouldNot(t *testing.T) {
	v := jsonvalue.NewInt(1)
	for range 65 {
		v = jsonvalue.Value{}.With("a", v)
	}
	if _, err := jsonvalue.MergePatch(jsonvalue.Value{}, v); !errors.Is(err, fault.Invalid) {
		t.Errorf("MergePatch 65 deep = %v, want an invalid fault", err)
	}
}

func TestLeavesAndMapLeavesSeeTheSameValuesInOrder(t *testing.T) {
	v := must(t, `{"b":[1,{"a":"x"},[]],"c":null,"d":{}}`)
	var seen []string
	for leaf := range v.Leaves() {
		seen = append(seen, string(leaf.AppendJSON(nil)))
	}
	if got, want := strings.Join(seen, " "), `1 "x" null`; got != want {
		t.Errorf("Leaves = %s, want %s", got, want)
	}
	for range v.Leaves() {
		break // stopping early must be allowed
	}
	i := 0
	got, err := v.MapLeaves(func(leaf jsonvalue.Value) (jsonvalue.Value, error) {
		i++
		return jsonvalue.NewInt(int64(i)), nil
	})
	if want := `{"b":[1,{"a":2},[]],"c":3,"d":{}}`; err != nil || string(got.AppendJSON(nil)) != want {
		t.Errorf("MapLeaves = %s, %v, want %s", got.AppendJSON(nil), err, want)
	}
	if _, err := v.MapLeaves(func(jsonvalue.Value) (jsonvalue.Value, error) { return jsonvalue.Value{}, errFull }); !errors.Is(err, errFull) {
		t.Errorf("MapLeaves with an error = %v", err)
	}
}

// holder has a value where methods cannot be called on it, and where they can.
type holder struct {
	hidden jsonvalue.Value
	Shown  jsonvalue.Value
	list   []jsonvalue.Value
	byName map[string]*jsonvalue.Value
	build  jsonvalue.Builder
}

func TestNoPrinterShowsAValue(t *testing.T) {
	const canary = "4242424242424242"
	v := must(t, `{"`+canary+`":["`+canary+`",`+canary+`]}`)
	leaf, _ := v.Get(canary)
	var b jsonvalue.Builder
	b.Add(canary, v)
	for name, x := range map[string]any{
		"value": v, "pointer": &v, "leaf": leaf, "builder": b,
		"holder": holder{v, v, []jsonvalue.Value{v}, map[string]*jsonvalue.Value{"a": &v}, b},
	} {
		var logged bytes.Buffer
		slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "value", x)
		slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "value", x)
		shown := logged.String()
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X", "%T", "%p"} {
			shown += fmt.Sprintf(verb, x)
		}
		marshalled, _ := json.Marshal(x)
		shown += string(marshalled)
		marshalled, _ = xml.Marshal(x)
		shown += string(marshalled)
		var gobbed bytes.Buffer
		_ = gob.NewEncoder(&gobbed).Encode(x)
		shown += gobbed.String()
		if strings.Contains(shown, canary) || strings.Contains(shown, fmt.Sprintf("%x", canary)) {
			t.Errorf("%s: a printer showed the value: %s", name, shown)
		}
		if found := reachable(reflect.ValueOf(x), canary, 0); found {
			t.Errorf("%s: reflection reaches the value", name)
		}
	}
}

// reachable follows everything that reflection can follow.
func reachable(v reflect.Value, canary string, depth int) bool {
	if depth > 20 || !v.IsValid() {
		return false
	}
	switch v.Kind() {
	case reflect.String:
		return strings.Contains(v.String(), canary)
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil() && reachable(v.Elem(), canary, depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if reachable(v.Field(i), canary, depth+1) {
				return true
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if reachable(v.Index(i), canary, depth+1) {
				return true
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			if reachable(k, canary, depth+1) || reachable(v.MapIndex(k), canary, depth+1) {
				return true
			}
		}
	}
	return false
}

func TestValuesAreCheckedInPlace(t *testing.T) {
	for text, want := range map[string]struct {
		public     string
		characters int
	}{
		`"né"`: {"né", 2}, `""`: {"", 0}, `1.50`: {"1.50", 4}, `true`: {"true", 4}, `null`: {"", 0}, `["x"]`: {"", 0}, `{"a":"x"}`: {"", 0},
	} {
		v := must(t, text)
		if v.PublicText() != want.public || v.Characters() != want.characters || v.PublicText() != v.Reveal() {
			t.Errorf("%s: got text %q of %d characters, want %q of %d", text, v.PublicText(), v.Characters(), want.public, want.characters)
		}
		for _, is := range []bool{true, false} {
			if got := v.Matches(func(text string) bool { return (text == want.public) == is }); got != is {
				t.Errorf("%s: Matches returns %v, want %v", text, got, is)
			}
		}
		if s := v.AsString(); s.Kind() != jsonvalue.String || s.Reveal() != want.public {
			t.Errorf("%s: AsString has kind %s and text %q, want a string with %q", text, s.Kind(), s.Reveal(), want.public)
		}
	}
}

func TestSealedOverwritesWhatItHandsOver(t *testing.T) {
	var handed []byte
	failed := errors.New("no key")
	sealed, err := must(t, `{"b":1,"a":"x"}`).Sealed(func(plaintext []byte) ([]byte, error) {
		handed = plaintext
		return []byte(strings.ToUpper(string(plaintext))), failed
	})
	if string(sealed) != `{"B":1,"A":"X"}` || !errors.Is(err, failed) {
		t.Errorf("Sealed returns %s, %v; want what the function returned", sealed, err)
	}
	if len(handed) == 0 || slices.ContainsFunc(handed, func(b byte) bool { return b != 0 }) {
		t.Errorf("the plaintext is left in memory: %q", handed)
	}
}
