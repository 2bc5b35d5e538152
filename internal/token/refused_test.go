package token_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// refusedTokens returns what a refusal names, as "type id".
func refusedTokens(t *testing.T, err error) (list []string) {
	t.Helper()
	var denial *access.Denial
	if !errors.As(err, &denial) || !errors.Is(err, fault.Forbidden) {
		t.Fatalf("%s is no refusal", says(err))
	}
	for _, e := range denial.Entities() {
		list = append(list, e.Type+" "+e.ID)
	}
	return list
}

func TestARefusalNamesTheToken(t *testing.T) {
	w := newWorld(t)
	w.mustCreate(w.revealing(), `{"id":"far","type":"card","data":{"number":"`+visa+`"},"containers":["/far/"]}`)
	w.mustCreate(w.revealing(), `{"id":"both","type":"token","data":1,"containers":["/far/","/near/"]}`)
	c := w.within("/near/")
	ctx := t.Context()
	tests := map[string]struct {
		call func() error
		want []string
	}{
		"reading":                    {func() error { _, err := w.get(c, "far"); return err }, []string{"card far"}},
		"reading one that lies half": {func() error { _, err := w.get(c, "both"); return err }, []string{"token both"}},
		"updating":                   {func() error { _, err := w.patch(c, "far", `{"metadata":{"a":"b"}}`); return err }, []string{"card far"}},
		"deleting":                   {func() error { return w.tokens.Delete(ctx, c, "both") }, []string{"token both"}},
		"using": {func() error {
			_, err := w.tokens.Use(ctx, c, token.User{Type: audit.Reactor, ID: "r"}, []expression.Reference{{ID: "far"}})
			return err
		}, []string{"card far"}},
		"detokenizing": {func() error { _, err := w.tokens.Detokenize(ctx, c, parse(t, `"{{ far }}"`)); return err }, []string{"card far"}},
		"creating, with an id of the caller's": {func() error {
			_, err := w.create(c, `{"id":"4242-mine","type":"token","data":1,"containers":["/far/"]}`)
			return err
		}, nil},
		"tokenizing": {func() error {
			_, err := w.tokenize(c, `{"id":"mine","type":"token","data":1,"containers":["/far/"]}`)
			return err
		}, nil},
		"reading without the permission anywhere": {func() error {
			_, err := w.get(w.only(access.TokenUse), "far") // nobody has looked: who logs it does
			return err
		}, nil},
	}
	for name, test := range tests {
		if got := refusedTokens(t, test.call()); !slices.Equal(got, test.want) {
			t.Errorf("%s: the refusal names %v, want %v", name, got, test.want)
		}
	}
	for name, err := range map[string]error{
		"an id of nothing": func() error { _, err := w.get(c, visa); return err }(),
		"another tenant":   func() error { _, err := w.get(w.stranger(), "far"); return err }(),
	} {
		wantFault(t, name, err, fault.NotFound, "")
	}
}

func TestEveryRefusedTokenOfACallIsNamed(t *testing.T) {
	w := newWorld(t)
	w.mustCreate(w.revealing(), `{"id":"near","type":"token","data":1,"containers":["/near/"]}`)
	for i := range 14 {
		w.mustCreate(w.revealing(), fmt.Sprintf(`{"id":"far-%02d","type":"card_number","data":%q,"containers":["/far/"]}`, i, visa))
	}
	before := len(w.logs(w.tenant))
	c := w.within("/near/")
	body := func(ids ...string) string {
		for i, id := range ids {
			ids[i] = `"{{ ` + id + ` }}"`
		}
		return "[" + strings.Join(ids, ",") + "]"
	}
	var many []string
	for i := range 14 {
		many = append(many, fmt.Sprintf("far-%02d", i))
	}
	tests := map[string]struct {
		body string
		want []string
	}{
		"one of three":                 {body("near", "far-01", "near"), []string{"far-01"}},
		"two of three":                 {body("far-01", "near", "far-02"), []string{"far-01", "far-02"}},
		"with some that are not there": {body("nothing", "far-01", "4242", "far-02"), []string{"far-01", "far-02"}},
		"the same token again":         {body("far-01", "far-01", "far-02", "far-01", "far-02"), []string{"far-01", "far-02"}},
		"more than are worth mentioning": {body(many...), []string{
			"far-00", "far-01", "far-02", "far-03", "far-04", "far-05", "far-06", "far-07", "far-08", "far-09"}},
	}
	_, one := w.tokens.Detokenize(t.Context(), c, parse(t, `"{{ far-03 }}"`))
	for name, test := range tests {
		var want []string
		for _, id := range test.want {
			want = append(want, "card_number "+id)
		}
		_, err := w.tokens.Detokenize(t.Context(), c, parse(t, test.body))
		if got := refusedTokens(t, err); !slices.Equal(got, want) {
			t.Errorf("%s: the refusal names %v, want %v", name, got, want)
		}
		if fault.Of(err).Detail() != fault.Of(one).Detail() || fault.Of(err).Kind() != fault.Of(one).Kind() {
			t.Errorf("%s: the caller is told %q, and of one token %q", name, fault.Of(err).Detail(), fault.Of(one).Detail())
		}
	}
	if after := len(w.logs(w.tenant)); after != before {
		t.Errorf("refused calls made %d entries of their own", after-before)
	}
}
