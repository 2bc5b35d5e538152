package fault_test

import (
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

func TestAMessageAboutAnUnknownNameSaysWhatWouldBeRight(t *testing.T) {
	short := fault.Names{What: "field", Known: []string{"number", "cvc"}, List: "card data has"}
	long := fault.Names{What: "permission", Known: []string{"token:read", "token:create", "log:read"}, List: "GET /permissions lists them", Long: true}
	for _, tt := range []struct {
		names fault.Names
		name  string
		want  string
	}{
		{short, "cvv", `unknown field "cvv"; card data has number, cvc`},
		{short, "", `unknown field; card data has number, cvc`},
		{short, "4242424242424242", `unknown field; card data has number, cvc`},
		{long, "token:raed", `unknown permission "token:raed"; did you mean "token:read"?`},
		{long, "Token:Read", `unknown permission "Token:Read"; did you mean "token:read"?`},
		{long, "everything", `unknown permission "everything"; GET /permissions lists them`},
		{long, "key_test_pvt_abc", `unknown permission; GET /permissions lists them`},
	} {
		if got := tt.names.Unknown(tt.name); got != tt.want {
			t.Errorf("Unknown(%q) = %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestTheNearestNameIsNear(t *testing.T) {
	known := []string{"create", "list", "delete", "reveal"}
	for name, want := range map[string]string{
		"craete": "create", "lst": "list", "LIST": "list", "delet": "delete", "": "", "zzz": "", "a": "", "reveale": "reveal",
		strings.Repeat("a", 41): "",
	} {
		if got, ok := fault.Nearest(name, known); got != want && ok || ok != (want != "") {
			t.Errorf("Nearest(%q) = %q, %t, want %q", name, got, ok, want)
		}
	}
}

func TestMessagesAboutAnothersDataRepeatNoName(t *testing.T) {
	names := fault.Names{What: "token type", Known: []string{"card"}, List: "the types are"}
	var item, body fault.Fields
	item.AddUnknown("type", "token_type_unknown", "Smith", names)
	body.Under("0", item)
	f := fault.Of(body.Err())
	if got := f.Fields()["0.type"]; len(got) != 1 || got[0] != `unknown token type "Smith"; the types are card` || f.Code() != "token_type_unknown" {
		t.Errorf("the fault has %v with the code %s, want the name in it", got, f.Code())
	}
	blamed := fault.New(fault.Unprocessable, "the code returned something that is not valid").WithFieldsOf(f, "tokenize")
	if got := blamed.Fields()["tokenize.0.type"]; len(got) != 1 || got[0] != "unknown token type; the types are card" {
		t.Errorf("the fault of the code has %v, want no name in it", got)
	}
}
