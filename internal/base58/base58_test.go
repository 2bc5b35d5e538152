package base58_test

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/base58"
)

// The vectors are those of the Bitcoin project and of the Base58 draft.
func TestEncodeWritesTheKnownVectors(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		"00":                       "1",
		"61":                       "2g",
		"626262":                   "a3gV",
		"636363":                   "aPEr",
		"516b6fcd0f":               "ABnLTmg",
		"bf4f89001e670274dd":       "3SEo3LWLoPntC",
		"572e4794":                 "3EFU7m",
		"ecac89cad93923c02321":     "EJDM8drfXA6uyA",
		"10c8511e":                 "Rt5zm",
		"00000000000000000000":     "1111111111",
		"0000287fb4cd":             "11233QC4",
		"48656c6c6f20576f726c6421": "2NEpo7TZRRrLZSi2U",
		"73696d706c792061206c6f6e6720737472696e67":           "2cFupjhnEsSn59qHXstmK2ffpLv2",
		"00eb15231dfceb60925886b67d065299925915aeb172c06647": "1NS17iag9jJgTHD1VXjvLCEnZuQ3rJDE9L",
	} {
		b, err := hex.DecodeString(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := base58.Encode(b); got != want {
			t.Errorf("Encode(%s) = %q, want %q", in, got, want)
		}
	}
}

func TestFixedWidthsComeBack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for size, width := range map[int]int{16: 22, 20: 28} {
		all := [][]byte{make([]byte, size), append(make([]byte, size-1), 1), bytes.Repeat([]byte{0xff}, size)}
		for range 1000 {
			b := make([]byte, size)
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			all = append(all, b)
		}
		for _, b := range all {
			text := base58.EncodeFixed(b, width)
			if len(text) != width {
				t.Errorf("EncodeFixed(%x, %d) = %q", b, width, text)
			}
			got := bytes.Repeat([]byte{0xaa}, size)
			if !base58.DecodeFixed(got, text) || !bytes.Equal(got, b) {
				t.Errorf("DecodeFixed(%q) = %x, want %x", text, got, b)
			}
		}
	}
}

func TestWhatIsNoNumberOfThatSizeIsRefused(t *testing.T) {
	top := base58.EncodeFixed(bytes.Repeat([]byte{0xff}, 16), 22)
	for name, text := range map[string]string{
		"zero is no character":  "0" + strings.Repeat("1", 21),
		"capital o":             strings.Repeat("1", 21) + "O",
		"capital i":             strings.Repeat("1", 21) + "I",
		"small l":               strings.Repeat("1", 21) + "l",
		"not ascii":             strings.Repeat("1", 20) + "é",
		"one above the highest": top[:21] + string(top[21]+1),
		"far above the highest": strings.Repeat("z", 22),
	} {
		if base58.DecodeFixed(make([]byte, 16), text) {
			t.Errorf("%s: DecodeFixed reads it", name)
		}
	}
}

func FuzzDecodeFixedHasOneSpelling(f *testing.F) {
	f.Add(strings.Repeat("1", 22))
	f.Add("YcVfxkQb6JRzqk5kF2tNLv")
	f.Fuzz(func(t *testing.T, text string) {
		b := make([]byte, 16)
		if len(text) == 22 && base58.DecodeFixed(b, text) && base58.EncodeFixed(b, 22) != text {
			t.Errorf("DecodeFixed(%q) = %x, which is written %q", text, b, base58.EncodeFixed(b, 22))
		}
	})
}
