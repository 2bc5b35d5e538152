package expression_test

import (
	"math/rand/v2"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// chance is the same for everyone: examples of alias filters must come out as
// they are printed.
func chance() *rand.ChaCha8 { return rand.NewChaCha8([32]byte{}) }

func parseJSON(t testing.TB, text string) jsonvalue.Value {
	t.Helper()
	v, err := jsonvalue.Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse(%q) = %v", text, err)
	}
	return v
}

func evaluate(text string, data jsonvalue.Value) (string, error) {
	t, err := expression.Parse(text)
	if err != nil {
		return "", err
	}
	v, err := t.Evaluate(expression.Scope{Data: data, Metadata: (&jsonvalue.Builder{}).Value()}, expression.Options{Random: chance()})
	return string(v.AppendJSON(nil)), err
}

func TestExamplesOfFiltersComeOutAsPrinted(t *testing.T) {
	for _, f := range expression.Filters() {
		if len(f.Examples) == 0 {
			t.Errorf("%s has no example", f.Name)
		}
		if f.Doc == "" {
			t.Errorf("%s has no description", f.Name)
		}
		for _, e := range f.Examples {
			got, err := evaluate(e.Expression, parseJSON(t, e.Data))
			if err != nil || got != e.Want {
				t.Errorf("%s over %s = %s, %v, want %s", e.Expression, e.Data, got, err, e.Want)
			}
		}
	}
}
