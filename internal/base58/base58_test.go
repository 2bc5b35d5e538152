package base58_test

import (
	"bytes"
	"encoding/hex"
	"errors"
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

func TestIDsKeepTheirWidthAndComeBack(t *testing.T) {
	ids := [][16]byte{{}, {15: 1}, {0: 1}, [16]byte(bytes.Repeat([]byte{0xff}, 16))}
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var id [16]byte
		for i := range id {
			id[i] = byte(random.Uint32())
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		text := base58.EncodeID(id)
		if len(text) != base58.IDLength {
			t.Errorf("EncodeID(%x) = %q, want %d characters", id, text, base58.IDLength)
		}
		if got, err := base58.DecodeID(text); err != nil || got != id {
			t.Errorf("DecodeID(%q) = %x, %v, want %x", text, got, err, id)
		}
	}
}

func TestDecodeIDRefusesWhatEncodeIDNeverWrites(t *testing.T) {
	top := base58.EncodeID([16]byte(bytes.Repeat([]byte{0xff}, 16)))
	for name, text := range map[string]string{
		"empty":                 "",
		"too short":             strings.Repeat("1", 21),
		"too long":              strings.Repeat("1", 23),
		"zero is no character":  "0" + strings.Repeat("1", 21),
		"capital o":             strings.Repeat("1", 21) + "O",
		"capital i":             strings.Repeat("1", 21) + "I",
		"small l":               strings.Repeat("1", 21) + "l",
		"not ascii":             strings.Repeat("1", 20) + "é",
		"one above the highest": top[:21] + string(top[21]+1),
		"far above the highest": strings.Repeat("z", 22),
	} {
		if got, err := base58.DecodeID(text); !errors.Is(err, base58.ErrID) || got != [16]byte{} {
			t.Errorf("%s: DecodeID = %x, %v, want ErrID", name, got, err)
		}
	}
}

func FuzzDecodeIDHasOneSpelling(f *testing.F) {
	f.Add(strings.Repeat("1", 22))
	f.Add("YcVfxkQb6JRzqk5kF2tNLv")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := base58.DecodeID(text)
		if err == nil && base58.EncodeID(id) != text {
			t.Errorf("DecodeID(%q) = %x, which is written %q", text, id, base58.EncodeID(id))
		}
	})
}
