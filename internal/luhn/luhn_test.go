package luhn_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/luhn"
)

func TestValidKnowsTheCheckDigit(t *testing.T) {
	for name, tt := range map[string]struct {
		in   string
		want bool
	}{
		"a test card":          {"4242424242424242", true},
		"a test card of 15":    {"378282246310005", true},
		"one digit off":        {"4242424242424241", false},
		"two digits exchanged": {"2442424242424242", false},
		"empty":                {"", false},
		"a letter":             {"424242424242424a", false},
		"spaces":               {"4242 4242 4242 4242", false},
		"digits of a script":   {"４２４２", false},
		"a single zero":        {"0", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := luhn.Valid(tt.in); got != tt.want {
				t.Errorf("Valid(%q) = %v, want %v", tt.in, got, tt.want)
			}
		})
	}
}

func TestHasCardFindsACardInsideText(t *testing.T) {
	for name, tt := range map[string]struct {
		in   string
		want bool
	}{
		"a card alone":              {"4242424242424242", true},
		"inside letters":            {"x4242424242424242y", true},
		"inside a longer run":       {"994242424242424242999", true},
		"after a run that is none":  {"123-4242424242424242", true},
		"twelve digits":             {"000000000000", true},
		"eleven digits":             {"00000000000", false},
		"a wrong check digit":       {"424242424241", false},
		"broken by a dash":          {"42424242-42424242", false},
		"a uuid":                    {"0b94a2d9-7a27-4a43-9a41-2ff6b0b4d9f3", false},
		"empty":                     {"", false},
		"nineteen digits":           {"6304000000000000000", true},
		"far into a very long text": {strings.Repeat("1", 11) + strings.Repeat("x", 5000) + "4000056655665556", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := luhn.HasCard(tt.in); got != tt.want {
				t.Errorf("HasCard(%q) = %v, want %v", tt.in, got, tt.want)
			}
		})
	}
}

func TestHasCardAgreesWithTryingEveryWindow(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 20_000 {
		b := make([]byte, rng.IntN(40))
		for i := range b {
			b[i] = "0123456789012345678901234567890123456789-"[rng.IntN(41)]
		}
		s, want := string(b), false
		for i := range s {
			for n := 12; n <= 19 && i+n <= len(s); n++ {
				want = want || luhn.Valid(s[i:i+n])
			}
		}
		if want {
			found++
		}
		if got := luhn.HasCard(s); got != want {
			t.Fatalf("HasCard(%q) = %v, want %v", s, got, want)
		}
	}
	if found < 1000 || found > 19_000 {
		t.Errorf("%d of 20000 samples held a card: the samples prove little", found)
	}
}
