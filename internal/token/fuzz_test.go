package token_test

import (
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/luhn"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// FuzzIDs: an id with a card number of the data in it is always found out.
func FuzzIDs(f *testing.F) {
	f.Add("tok-", "x", visa)
	f.Add("42", "42", "4111111111111111")
	f.Fuzz(func(t *testing.T, before, after, number string) {
		if len(number) < 12 || len(number) > 19 || !luhn.Valid(number) {
			return
		}
		data := jsonvalue.NewArray([]jsonvalue.Value{jsonvalue.NewString("x"), jsonvalue.NewString(number)})
		if !token.Tells(before+number+after, data) {
			t.Errorf("%q is taken for an id", before+number+after)
		}
		if token.Tells("no digits here", data) {
			t.Error("an id without digits is refused")
		}
	})
}

// FuzzQuery: every query is understood or refused with a position in it.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{`type:card AND (metadata.a:b OR NOT container:"/a/*")`, `created_at:[2031-01-01 TO *}`, `data:"\"x\\"`, "((", "NOT"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		err := token.ParseQuery(s)
		if err != nil && len(fault.Of(err).Fields()["query"]) != 1 {
			t.Errorf("%q = %v", s, err)
		}
	})
}

// FuzzTokenize: the structure stays, and every leaf is replaced or as it was.
func FuzzTokenize(f *testing.F) {
	for _, s := range []string{`{"a":[1,null,{}],"b":{"type":"x","data":[]}}`, `[[[]]]`, `"x"`, `{"type":{"type":1,"data":2}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := jsonvalue.Parse(b)
		if err != nil {
			return
		}
		out, n, err := token.Walk(body)
		if err != nil {
			return
		}
		if got := strings.Count(text(out), `"containers":[]`) + places(out); got < n {
			t.Errorf("%s has %d places and became %s", b, n, text(out))
		}
		if out.Kind() != body.Kind() && (body.Kind() == jsonvalue.Array || body.IsNull()) {
			t.Errorf("%s became %s", b, text(out))
		}
	})
}

// places counts the ids that stand for plain values.
func places(v jsonvalue.Value) int {
	n := 0
	for leaf := range v.Leaves() {
		if leaf.Kind() == jsonvalue.String && leaf.Reveal() == "" {
			n++
		}
	}
	return n
}

// FuzzRequest: whatever a request to create a token holds, it makes one whose
// data is what was sent, or is the caller's fault.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"type":"token","data":{"a":[1.50,null]},"metadata":{"a":"b"},"containers":["/a/B/"],"search_indexes":["{{ data.a }}"],"expires_at":"8/26/2040"}`,
		`{"type":"card","data":{"number":"4242424242424242","expiration_month":"12","expiration_year":2030,"cvc":123},"id":"{{ data.number | alias_card: 6, 4 }}"}`,
		`{"type":"bank","data":{"routing_number":"021000021","account_number":"00000000001"},"mask":{"a":["{{ data.account_number | reveal_last: 4 }}"]}}`,
		`{"type":"social_security_number","data":"123-45-6789","fingerprint_expression":"{{ data }}{{ metadata.a }}","deduplicate_token":true}`,
		`{"type":"token","data":"x","mask":null,"id":"a#b","containers":[],"metadata":{"":1}}`,
	} {
		f.Add([]byte(s))
	}
	w := newWorld(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := jsonvalue.Parse(b)
		if err != nil {
			return
		}
		w.t = t
		made, err := func() (token.Token, error) {
			r, err := token.ParseRequest(body)
			if err != nil {
				return token.Token{}, err
			}
			return w.tokens.Create(t.Context(), w.revealing(), r)
		}()
		if err != nil {
			if k := fault.Of(err).Kind(); k != fault.Invalid && k != fault.Conflict {
				t.Errorf("%s fails with %v", b, err)
			}
			return
		}
		got, err := w.tokens.Get(t.Context(), w.revealing(), made.ID)
		if err != nil {
			t.Fatalf("the token of %s is not there: %v", b, err)
		}
		data, _ := got.Object().Get("data")
		if sent, _ := body.Get("data"); made.Type == "token" && !data.Equal(sent) {
			t.Errorf("%s keeps %s", b, text(data))
		}
		if err := w.tokens.Delete(t.Context(), w.revealing(), made.ID); err != nil {
			t.Errorf("the token of %s cannot be deleted: %v", b, err)
		}
	})
}
