package token_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/luhn"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// FuzzExpiry: what is accepted is written back as RFC 3339 and means the same.
func FuzzExpiry(f *testing.F) {
	for _, s := range []string{"8/26/2040 7:23:57 PM -07:00", "8/26/2040", "2040-08-26T19:23:57.123456Z", "1/1/0001", "12/31/9999 11:59:59 PM -23:59"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, ok := token.ParseExpiry(s)
		if !ok {
			return
		}
		again, err := time.Parse(time.RFC3339Nano, token.ExpiryText(e))
		if err != nil || again.UnixMicro() != int64(e.At) {
			t.Errorf("%q is written back as %s: %v", s, token.ExpiryText(e), err)
		}
		if same, ok := token.ParseExpiry(token.ExpiryText(e)); !ok || same.At != e.At {
			t.Errorf("%s, made from %q, is not accepted", token.ExpiryText(e), s)
		}
	})
}

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
