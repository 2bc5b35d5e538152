package expression_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
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

func TestFiltersInCorners(t *testing.T) {
	for _, c := range []struct{ text, data, want string }{
		{"{{ data | date: '%Y %y %m %d %e %H %I %M %S %p %P %A %a %B %b %h %j %z %L %F %T %R %D %s %u %w %%' }}", `"2030-02-03T16:05:06.789Z"`,
			`"2030 30 02 03  3 16 04 05 06 PM pm Sunday Sun February Feb Feb 034 +0000 789 2030-02-03 16:05:06 16:05 02/03/30 1896365106 7 0 %"`},
		{"{{ data | date: '%-d.%-m. %-I %-M' }}", `"2030-02-03T16:00:06+02:00"`, `"3.2. 4 0"`},
		{"{{ data | date: '%F' }}", `1896365106`, `"2030-02-03"`},
		{"{{ data | date: '%F' }}", `"3 February 2030"`, `"2030-02-03"`},
		{"{{ data | date: '%F' }}", `"Feb 3, 2030"`, `"2030-02-03"`},
		{"{{ data | escape_once }}", `"& &amp; &#39; &; &a b; &toolongtobeanentity; <"`, `"&amp; &amp; &#39; &amp;; &amp;a b; &amp;toolongtobeanentity; &lt;"`},
		{"{{ data | strip_html }}", `"a<script>x</script><style>y</style>b<br/>c < d"`, `"abc < d"`},
		{"{{ data | strip_html }}", `"<script x><!-- a > b"`, `" b"`},
		{"{{ data | sort: 'n' | map: 'n' }}", `[{"n":"b"},{},{"n":"a"}]`, `["a","b",null]`},
		{"{{ data | sort }}", `[1e2,99.5,-1]`, `[-1,99.5,1e2]`},
		{"{{ data | uniq: 'n' }}", `[{"n":1,"a":1},{"n":1,"a":2}]`, `[{"n":1,"a":1}]`},
		{"{{ data | uniq }}", `[[1],"[1]",[1]]`, `[[1],"[1]"]`},
		{"{{ data | where: 'on' | size }}", `[{"on":true},{"on":false},{},{"on":0}]`, `2`},
		{"{{ data | compact: 'a' }}", `[{"a":1},{"a":null},{}]`, `[{"a":1}]`},
		{"{{ data | first }}", `"éa"`, `"é"`},
		{"{{ data | first }}", `""`, `null`},
		{"{{ data | first }}", `[]`, `null`},
		{"{{ data | slice: 9, 2 }}", `"abc"`, `""`},
		{"{{ data | slice: -9, 2 }}", `"abc"`, `""`},
		{"{{ data | slice: 1, 99 }}", `"abc"`, `"bc"`},
		{"{{ data | truncate: 2 }}", `"abc"`, `"..."`},
		{"{{ data | truncate }}", `"abc"`, `"abc"`},
		{"{{ data | truncatewords: 9 }}", `" a  b "`, `"a b"`},
		{"{{ data | remove_last: 'z' }}", `"abc"`, `"abc"`},
		{"{{ data | split: ' ' }}", `"  a  b "`, `["a","b"]`},
		{"{{ data | split: '' }}", `"aé"`, `["a","é"]`},
		{"{{ data | split: ',' }}", `""`, `[]`},
		{"{{ data | capitalize }}", `""`, `""`},
		{"{{ data | pad_left: 3, 'é' }}", `"a"`, `"ééa"`},
		{"{{ data | divided_by: 3.0 }}", `1`, `0.33333333333333333333`},
		{"{{ data | divided_by: -3 }}", `10`, `-4`},
		{"{{ data | divided_by: 0.5 }}", `1`, `2.0`},
		{"{{ data | modulo: -3 }}", `10`, `-2`},
		{"{{ data | modulo: 0.3 }}", `1`, `0.1`},
		{"{{ data | round }}", `-2.5`, `-3`},
		{"{{ data | round: 5 }}", `1.5`, `1.5`},
		{"{{ data | ceil }}", `-0.5`, `0`},
		{"{{ data | plus: 1 }}", `1e3`, `1001`},
		{"{{ data | plus: 1 }}", `1e-3`, `1.001`},
		{"{{ data | times: 0.05 }}", `1`, `0.05`},
		{"{{ data | card_exp: 'M/yyyy' }}", `{"expiration_month":"3","expiration_year":"2030"}`, `"3/2030"`},
		{"{{ data | card_exp }}", `{"expiration_month":3}`, `null`},
		{"{{ data | card_mask: true, false, 'X', '-' }}", `"1234-5"`, `"XXXXXX"`},
		{"{{ data | reveal: 0, 0, 'X', '0123456789' }}", `"42"`, `"XX"`},
		{"{{ data | reveal_last: '4' }}", `4242424242424242`, `"XXXXXXXXXXXX4242"`},
		{"{{ data | hmac: 'sha-512', 'k' | size }}", `"x"`, `128`},
		{"{{ data | hmac: 'sha-1', 'k' | upcase | to_base16 | size }}", `"x"`, `80`},
		{"{{ data | default: 'x' }}", `[]`, `"x"`},
		{"{{ data | default: 'x' }}", `false`, `"x"`},
		{"{{ data | size }}", `{"a":1}`, `1`},
	} {
		got, err := evaluate(c.text, parseJSON(t, c.data))
		if err != nil || got != c.want {
			t.Errorf("%s over %s = %s, %v, want %s", c.text, c.data, got, err, c.want)
		}
	}
}

// bodyBudget is for the detokenization of a request whose context never ends.
func bodyBudget(maxOutput int) *expression.Budget {
	return expression.Limits{}.BodyBudget(context.Background(), maxOutput)
}

// beyondBudget reports whether a request was refused because its expressions
// used up their budget.
func beyondBudget(err error) bool {
	f := fault.Of(err)
	return f.Kind() == fault.Invalid && (f.Code() == "expression_steps" || f.Code() == "expression_memory")
}
