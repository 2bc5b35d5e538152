package script_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/script"
)

func values(texts ...string) (list []jsonvalue.Value) {
	for _, s := range texts {
		list = append(list, jsonvalue.NewString(s))
	}
	return list
}

func TestProtectedValuesAreHidden(t *testing.T) {
	number, err := jsonvalue.NewNumber("1234567.50")
	if err != nil {
		t.Fatal(err)
	}
	const card = "4242424242424242"
	for name, test := range map[string]struct {
		protected []jsonvalue.Value
		in, want  []string
	}{
		"nothing protected":      {nil, []string{"a text", ""}, []string{"a text", ""}},
		"no texts":               {values(card), nil, []string{}},
		"in the middle":          {values(card), []string{"no " + card + " here"}, []string{"no [protected] here"}},
		"all of it":              {values(card), []string{card}, []string{"[protected]"}},
		"more than once":         {values(card), []string{card + "," + card}, []string{"[protected],[protected]"}},
		"side by side":           {values("secret", "values"), []string{"a secretvalues z"}, []string{"a [protected] z"}},
		"the first digits first": {values("424242", card), []string{"x" + card + "x424242x"}, []string{"x[protected]x[protected]x"}},
		"overlapping itself":     {values("ababab"), []string{"abababab."}, []string{"[protected]."}},
		"overlapping another":    {values("xyz424", "424242"), []string{"xyz424242!"}, []string{"[protected]!"}},
		"a number":               {[]jsonvalue.Value{number}, []string{"it is 1234567.50"}, []string{"it is [protected]"}},
		"five characters":        {values("12345", "äöüßé"), []string{"12345 äöüßé"}, []string{"12345 äöüßé"}},
		"six characters":         {values("äöüßéè"), []string{"<äöüßéè>"}, []string{"<[protected]>"}},
		"longer than the text":   {values(strings.Repeat("x", 100)), []string{"xxxxxxxxx"}, []string{"xxxxxxxxx"}},
		"several texts":          {values("secret"), []string{"", "secret", "a", "secretsecret", "sec", "ret"}, []string{"", "[protected]", "a", "[protected]", "sec", "ret"}},
		"across two texts":       {values("one\x00two"), []string{"a one", "two b"}, []string{"a [protected]", "[protected] b"}},
	} {
		if got := script.Hide(test.protected, test.in...); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q becomes %q, want %q", name, test.in, got, test.want)
		}
	}
}

// TestNoProtectedValueIsLeft tries texts of few letters, in which everything
// overlaps, against a search that is plainly right.
func TestNoProtectedValueIsLeft(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	letters := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "ab"[random.IntN(2)]
		}
		return string(b)
	}
	for range 2000 {
		text := letters(random.IntN(40))
		var protected []string
		for range random.IntN(6) {
			protected = append(protected, letters(4+random.IntN(8)))
		}
		covered := make([]bool, len(text)+1)
		for _, p := range protected {
			for i := 0; len(p) >= 6 && i+len(p) <= len(text); i++ {
				if text[i:i+len(p)] == p {
					for j := range p {
						covered[i+j] = true
					}
				}
			}
		}
		want := ""
		for i := range text {
			if !covered[i] {
				want += text[i : i+1]
			} else if i == 0 || !covered[i-1] {
				want += "[protected]"
			}
		}
		if got := script.Hide(values(protected...), text)[0]; got != want {
			t.Fatalf("%q without %q = %q, want %q", text, protected, got, want)
		}
	}
}
