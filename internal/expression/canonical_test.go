package expression_test

import (
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/expression"
)

// TestTheCanonicalFormNeverChanges: fingerprints that are stored were computed
// over these bytes. A change of one of them would make equal tokens differ.
func TestTheCanonicalFormNeverChanges(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "",
		"plain text":                         "T10:plain text",
		"{{ data }}":                         "ED;",
		"{{data}}":                           "ED;",
		"{{\tdata\n}}":                       "ED;",
		"{{- data -}}":                       "ED;",
		"a {{- data -}} b":                   "T1:aED;T1:b",
		"{{ data | stringify }}":             "EDF9:stringify;",
		"{{data|stringify}}":                 "EDF9:stringify;",
		"{{ data.number }}":                  "EDP6:number;",
		"{{ data['number'] }}":               "EDP6:number;",
		"{{ data[0][-1] }}":                  "EDI1:0I2:-1;",
		"{{ data['0'] }}":                    "EDP1:0;",
		"{{ data.a.b }}{{ metadata.c }}":     "EDP1:aP1:b;EMP1:c;",
		"{{ data.a }}|{{ data.b }}":          "EDP1:a;T1:|EDP1:b;",
		"{{ data | remove: '-' }}":           "EDF6:removeAS1:-;",
		"{{ data | remove: ' - ' }}":         "EDF6:removeAS3: - ;",
		"{{ data | slice: 1, 2 }}":           "EDF5:sliceAN1:1AN1:2;",
		"{{ data|slice:1,2 }}":               "EDF5:sliceAN1:1AN1:2;",
		"{{ data | append: metadata.a }}":    "EDF6:appendAMP1:a;",
		"{{ data | append: true | upcase }}": "EDF6:appendAN4:trueF6:upcase;",
		"{{ data | append: nil }}":           "EDF6:appendA0;",
		"{{ data, reveal_last: 4 }}":         "ED?;",
		"{{ 'data' }}":                       "ES4:data;",
		"{{ 'a;T1:b' }}":                     "ES6:a;T1:b;",
		"{{ 1.50 }}":                         "EN4:1.50;",
	} {
		parsed, err := expression.Parse(text)
		if err != nil {
			t.Errorf("Parse(%q) = %v", text, err)
			continue
		}
		if got := string(parsed.Canonical()); got != want {
			t.Errorf("the canonical form of %q = %q, want %q", text, got, want)
		}
	}
}

func TestUsesData(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "data": false, "4242424242424242": false, "{{ 'data' }}": false, "{{ metadata.data }}": false, "{{ metadata.a | append: 'data.b' }}": false,
		"{{ data }}": true, "x{{ data.a }}y": true, "{{ 'a' | append: data.b }}": true, "{{ metadata.a | append: data }}": true,
	} {
		parsed, err := expression.Parse(text)
		if err != nil {
			t.Errorf("Parse(%q) = %v", text, err)
			continue
		}
		if got := parsed.UsesData(); got != want {
			t.Errorf("%q uses data: %t, want %t", text, got, want)
		}
	}
}
