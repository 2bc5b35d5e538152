package token_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// shows writes what a response shows of tokens: "id permission transform".
func shows(list []access.Shown) string {
	var out []string
	for _, s := range list {
		out = append(out, strings.TrimSpace(s.ID+" "+s.Permission.String()+" "+s.Transform.String()))
	}
	return strings.Join(out, ", ")
}

func TestAResponseSaysWhatItShows(t *testing.T) {
	w := newWorld(t)
	create := func(c access.Caller, request string) string {
		return shows(w.mustCreate(c, request).Shown())
	}
	patch := func(c access.Caller, id, patch string) string {
		return shows(w.mustPatch(c, id, patch).Shown())
	}
	tokenize := func(c access.Caller, body string) string {
		w.t.Helper()
		var kept string
		out, err := w.tokens.Tokenize(t.Context(), c, parse(t, body), func(_ store.Tx, made token.Tokenized) error {
			kept = shows(made.Shown)
			return nil
		})
		if err != nil || kept != shows(out.Shown) {
			t.Fatalf("Tokenize = %s, %s; its last step got %s", shows(out.Shown), says(err), kept)
		}
		return kept
	}
	use := func(c access.Caller, ids ...string) string {
		var refs []expression.Reference
		for _, id := range ids {
			refs = append(refs, expression.Reference{ID: id})
		}
		used, err := w.tokens.Use(t.Context(), c, token.User{Type: "reactor", ID: "r"}, refs)
		if err != nil {
			t.Fatalf("Use = %s", says(err))
		}
		return shows(used.Shown())
	}
	card := func(id, more string) string {
		return `{"id":"` + id + `","type":"card","data":{"number":"` + visa + `"}` + more + `}`
	}
	for _, test := range []struct{ name, got, want string }{
		{"a create", create(w.revealing(), card("revealed", "")), "revealed token:create mask, revealed token:read reveal"},
		{"a create masked", create(w.masking(), card("masked", "")), "masked token:create mask, masked token:read mask"},
		{"a create redacted", create(w.redacting(), card("redacted", "")), "redacted token:create redact, redacted token:read redact"},
		{"a create by one who may not read", create(w.only(access.TokenCreate), card("unread", "")), "unread token:create mask"},
		{"a create that shows a fingerprint for token:use", create(w.only(access.TokenCreate, access.TokenUse), card("used", "")), "used token:create mask, used token:use reveal"},
		{"an update", patch(w.revealing(), "revealed", `{"metadata":{"a":"b"}}`), "revealed token:update mask, revealed token:read reveal"},
		{"an update redacted", patch(w.redacting(), "revealed", `{"metadata":{"a":"c"}}`), "revealed token:update redact, revealed token:read redact"},
		{"a document", tokenize(w.only(access.TokenCreate), `["x",`+card("in-it", "")+`]`)[36:], " token:create mask, in-it token:create mask"},
		{"an empty document", tokenize(w.masking(), `[null,{}]`), ""},
		{"a use", use(w.revealing(), "revealed", "masked"), "revealed token:use reveal, masked token:use reveal"},
		{"a use of the mask", use(w.masking(), "redacted"), "redacted token:use mask"},
		{"a use of nothing", use(w.masking()), ""},
	} {
		if test.got != test.want {
			t.Errorf("%s shows %q, want %q", test.name, test.got, test.want)
		}
	}
}

// A create that repeats a token shows that one, by what the caller may read of it.
func TestARepeatedCreateShowsTheTokenThatExists(t *testing.T) {
	w := newWorld(t)
	const request = `{"type":"card_number","data":"` + visa + `","deduplicate_token":true}`
	first := w.mustCreate(w.revealing(), request).ID
	again := w.mustCreate(w.revealing(), request)
	if want := first + " token:create mask, " + first + " token:read reveal"; again.ID != first || shows(again.Shown()) != want {
		t.Errorf("a repeated create rests on %q, want %q", shows(again.Shown()), want)
	}
	w.chooseSealed(map[string]string{"blind_deduplication": "true"})
	blind := w.mustCreate(w.only(access.TokenCreate), request)
	if want := first + " token:create mask"; blind.ID != first || shows(blind.Shown()) != want {
		t.Errorf("a repeated create of one who may not read rests on %q, want %q", shows(blind.Shown()), want)
	}
}

func TestReplay(t *testing.T) {
	w := newWorld(t)
	for id, more := range map[string]string{"stays": "", "moved": "", "expiring": `,"expires_at":"` + start.Add(time.Minute).Format(time.RFC3339) + `"`, "deleted": ""} {
		w.mustCreate(w.revealing(), `{"id":"`+id+`","type":"card_number","data":"`+visa+`","containers":["/a/"]`+more+`}`)
	}
	if err := w.tokens.Delete(t.Context(), w.revealing(), "deleted"); err != nil {
		t.Fatal(err)
	}
	w.mustPatch(w.revealing(), "moved", `{"containers":["/b/"]}`)
	w.clock.Advance(time.Minute)
	result := func(ids ...string) (list []access.Shown) {
		for _, id := range ids {
			list = append(list, access.Shown{ID: id, Permission: access.TokenCreate, Transform: access.Mask})
		}
		return list
	}
	replay := func(c access.Caller, result []access.Shown) (out string, err error) {
		w.t.Helper()
		err = w.store.Update(t.Context(), c.Tenant(), func(tx store.Tx) error {
			entries, err := w.tokens.Replay(t.Context(), tx, c, result)
			var list []string
			for _, e := range entries {
				list = append(list, e.Operation+" "+e.EntityType+" "+e.EntityID+" "+e.Message+" "+e.Outcome)
			}
			out = strings.Join(list, ", ")
			return err
		})
		return out, err
	}
	entry := func(id string) string { return "read card_number " + id + " Token result replayed allowed" }
	for name, test := range map[string]struct {
		c      access.Caller
		result []access.Shown
		want   string
	}{
		"each token that exists":               {w.masking(), result("stays", "moved"), entry("stays") + ", " + entry("moved")},
		"a token that is named twice":          {w.masking(), result("stays", "stays"), entry("stays")},
		"tokens that no longer exist":          {w.masking(), result("deleted", "expiring", "never", "{{"), ""},
		"nothing":                              {w.redacting(), nil, ""},
		"where the caller may":                 {w.within("/a/"), result("stays"), entry("stays")},
		"the same id in another tenant is not": {w.stranger(), result("stays"), ""},
	} {
		if got, err := replay(test.c, test.result); err != nil || got != test.want {
			t.Errorf("%s: Replay = %q, %s; want %q", name, got, says(err), test.want)
		}
	}
	for name, test := range map[string]struct {
		c      access.Caller
		result []access.Shown
		id     string
	}{
		"less than then":            {w.redacting(), result("stays"), "stays"},
		"not there any more":        {w.within("/a/"), result("stays", "moved"), "moved"},
		"without the permission":    {w.only(access.TokenRead, access.TokenUse), result("stays"), "stays"},
		"one among those that went": {w.redacting(), result("deleted", "moved"), "moved"},
	} {
		got, err := replay(test.c, test.result)
		wantFault(t, name+": Replay", err, fault.Forbidden, "")
		var denial *access.Denial
		if !errors.As(err, &denial) || !slices.Equal(denial.Entities(), []access.Entity{{Type: "card_number", ID: test.id}}) || got != "" {
			t.Errorf("%s: Replay = %q, %#v; want a denial about %s", name, got, err, test.id)
		}
	}
	broken := errors.New("broken by the test")
	err := w.store.Update(t.Context(), w.tenant, func(tx store.Tx) error {
		_, err := w.tokens.Replay(t.Context(), withoutTokens{tx, broken}, w.masking(), result("stays"))
		return err
	})
	if !errors.Is(err, broken) {
		t.Errorf("Replay on a store that fails = %v, want %v", err, broken)
	}
}

// withoutTokens is a transaction that cannot read tokens.
type withoutTokens struct {
	store.Tx
	err error
}

func (t withoutTokens) Token(context.Context, string) (store.Token, error) {
	return store.Token{}, t.err
}
