package token_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// preview returns what a preview puts in the place of a text.
func (w *world) preview(viewer, as access.Caller, text string) (string, []token.Previewed, error) {
	w.t.Helper()
	d, err := expression.ParseDetokenization(nil, text)
	if err != nil {
		w.t.Fatal(err)
	}
	lookup, list, err := w.tokens.Preview(w.t.Context(), viewer, as, d.IDs())
	if err != nil {
		return "", nil, err
	}
	x, err := d.ResolveMasked(lookup, expression.PlainText, expression.Limits{}.BodyBudget(context.Background(), 1<<20))
	if err != nil {
		w.t.Fatalf("ResolveMasked: %v", err)
	}
	return x.Value().Reveal(), list, nil
}

func TestAPreviewShowsTheMaskOfWhatTheViewerMayRead(t *testing.T) {
	w := newWorld(t)
	w.mustCreate(w.revealing(), `{"id":"tok","type":"card","data":{"number":"`+visa+`","cvc":"987"},"containers":["/pci/","/shop/"],"metadata":{"of":"Jane"}}`)
	ruled := func(rules ...access.Rule) access.Caller {
		return accesstest.Application(t, w.tenant, appID, access.Private, rules)
	}
	rule := func(container string, transform access.Transform, p access.Permission) access.Rule {
		return accesstest.Rule(container, transform, p)
	}
	const text = "{{ tok | json: '$.number' }} {{ tok | json: '$.cvc' }} {{ token: tok | json: '$.type' }} {{ token: tok | json: '$.metadata.of' }}"
	const masked, hidden = "XXXXXXXXXXXX4242 XXXX card XXXX", "[card] [card] [card] [card]"
	for name, c := range map[string]struct {
		viewer access.Caller
		want   string
	}{
		"reveal":                     {ruled(rule("/", access.Reveal, access.TokenRead)), masked},
		"mask":                       {ruled(rule("/", access.Mask, access.TokenRead)), masked},
		"redact":                     {ruled(rule("/", access.Redact, access.TokenRead)), hidden},
		"a plain token:read":         {w.only(access.TokenRead), masked},
		"no permission":              {w.only(access.TokenCreate), hidden},
		"token:use and token:search": {w.only(access.TokenUse, access.TokenSearch), hidden},
		"one of two containers":      {ruled(rule("/pci/", access.Reveal, access.TokenRead)), hidden},
		"both containers":            {ruled(rule("/pci/", access.Reveal, access.TokenRead), rule("/shop/", access.Mask, access.TokenRead)), masked},
		"the lesser of two":          {ruled(rule("/pci/", access.Reveal, access.TokenRead), rule("/shop/", access.Redact, access.TokenRead)), hidden},
		"management":                 {accesstest.Caller(t, w.tenant, appID, access.ProxyRead), hidden},
		"nobody":                     {access.NewSystem(w.tenant), hidden},
	} {
		got, list, err := w.preview(c.viewer, w.only(access.TokenUse), text)
		if err != nil || got != c.want {
			t.Errorf("%s: the preview is %q, %v, want %q", name, got, err, c.want)
		}
		if len(list) != 1 || list[0].ID != "tok" || list[0].Type != "card" || list[0].Transform != access.Reveal || list[0].Masked != (c.want == masked) || len(list[0].Steps) == 0 {
			t.Errorf("%s: the tokens are %+v", name, list)
		}
	}
	// What the call may use changes nothing about what the viewer sees.
	for name, as := range map[string]access.Caller{
		"mask": w.in(w.tenant, access.Mask), "redact": w.redacting(), "nothing": w.only(access.TokenRead),
	} {
		for viewer, want := range map[*access.Caller]string{new(w.masking()): masked, new(w.only(access.TokenUse)): hidden} {
			got, list, err := w.preview(*viewer, as, text)
			if err != nil || got != want || (list[0].Transform == access.Nothing) == (name == "mask") {
				t.Errorf("of a call under %s the preview is %q, %+v, %v, want %q", name, got, list, err, want)
			}
		}
	}
	if _, _, err := w.preview(w.stranger(), w.revealing(), text); !errors.Is(err, fault.Invalid) || fault.Of(err).Detail() != "Failed to detokenize some tokens: tok" {
		t.Errorf("another tenant's preview = %s", says(err))
	}
	if _, _, err := w.preview(w.redacting(), w.revealing(), "{{ tok }} {{ nosuch }} {{ 4242-4242-4242-4242 }}"); fault.Of(err).Detail() != "Failed to detokenize some tokens: nosuch" {
		t.Errorf("a preview of what is not there = %s", says(err))
	}
}

// TestATokenBehindAPlaceholderIsNotOpened: nothing can depend on data that
// nobody looked at.
func TestATokenBehindAPlaceholderIsNotOpened(t *testing.T) {
	w := newWorld(t)
	w.mustCreate(w.revealing(), `{"id":"tok","type":"token","data":"something"}`)
	w.change(w.tenant, func(ctx context.Context, tx store.Tx) error {
		row, err := tx.Token(ctx, "tok")
		if err != nil {
			return err
		}
		row.Data, row.Details = []byte("damaged"), []byte("damaged")
		row.Version++
		return tx.ReplaceToken(ctx, row)
	})
	if _, _, err := w.preview(w.masking(), w.revealing(), "{{ tok }}"); err == nil {
		t.Error("a damaged token was shown as its mask")
	}
	if got, _, err := w.preview(w.only(access.TokenUse), w.revealing(), "{{ tok | size }}"); err != nil || got != "[token]" {
		t.Errorf("the preview of a damaged token is %q, %v, want its placeholder", got, err)
	}
}

func TestAPreviewIsLoggedAsAReadOfEachTokenByTheViewer(t *testing.T) {
	w := newWorld(t)
	w.mustCreate(w.revealing(), `{"id":"one","type":"token","data":1}`)
	w.mustCreate(w.revealing(), `{"id":"two","type":"card","data":{"number":"`+visa+`"}}`)
	for n, viewer := range []access.Caller{w.masking(), w.only(access.TokenUse)} {
		for _, as := range []access.Caller{w.revealing(), w.only(access.TokenRead)} {
			if _, _, err := w.preview(viewer, as, "{{ one }} {{ two | json: '$.number' }} {{ token: one }}"); err != nil {
				t.Fatal(says(err))
			}
		}
		for _, id := range []string{"token one", "card two"} {
			entry := fmt.Sprintf("read %s Token retrieved by proxy preview application", id)
			if got := w.count(w.tenant, entry); got != 2*(n+1) {
				t.Errorf("the log has %q %d times, want %d", entry, got, 2*(n+1))
			}
		}
	}
	before := len(w.logs(w.tenant))
	if got, list, err := w.preview(w.masking(), w.revealing(), "nothing to look up"); err != nil || list != nil || got != "nothing to look up" || len(w.logs(w.tenant)) != before {
		t.Errorf("a preview of no token is %q, %v, %v", got, list, err)
	}
}
