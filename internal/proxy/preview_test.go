package proxy_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/proxy"
)

// TestAPreviewShowsMasksToAViewerThatMayReadAndPlaceholdersToOthers in bodies of
// every kind. Nobody over the API holds proxy:read and token:read at once; the
// program itself can.
func TestAPreviewShowsMasksToAViewerThatMayReadAndPlaceholdersToOthers(t *testing.T) {
	w := newWorld(t, func(w *world, o *proxy.Options) proxy.Destinations {
		o.Acting = func(context.Context, string, string) (access.Caller, error) { return w.user, nil }
		return nil
	})
	p := w.define(`{"name":"p","destination_url":"https://psp.example/base"}`)
	id := w.token(card)
	reader := access.NewSystem(w.tenant, access.ProxyRead, access.TokenRead)
	for media, c := range map[string]struct{ body, masked, hidden string }{
		"application/json":                  {`["{{ ` + id + ` }}","{{ ` + id + ` | size }}"]`, `["XXXXXXXXXXXX4242",16]`, `["[token]","[token]"]`},
		"text/plain":                        {"{{ " + id + " | slice: 0, 2 }}", "XX", "[token]"},
		"application/x-www-form-urlencoded": {"a={{ " + id + " }}", "a=XXXXXXXXXXXX4242", "a=%5Btoken%5D"},
		"application/xml":                   {"<a>{{ token: " + id + " | json: '$.type' }}</a>", "<a>token</a>", "<a>[token]</a>"},
		"multipart/form-data; boundary=x": {
			"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n{{ " + id + " }}\r\n--x--\r\n",
			"--x\r\nContent-Disposition: form-data; name=a\r\n\r\nXXXXXXXXXXXX4242\r\n--x--\r\n",
			"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n[token]\r\n--x--\r\n",
		},
	} {
		for viewer, want := range map[*access.Caller]string{&reader: c.masked, &w.manager: c.hidden} {
			got, err := w.Preview(t.Context(), *viewer, p.ID, proxy.Draft{
				Application: "any", Method: "POST", Header: map[string]string{"Content-Type": media}, Body: c.body,
			})
			if err != nil || got.Body != want || !got.Allowed || len(got.Tokens) != 1 || got.Tokens[0].Masked != (want == c.masked) {
				t.Errorf("the preview of %s is %q with %+v, %v, want %q", media, got.Body, got.Tokens, err, want)
			}
		}
	}
	if len(w.got) != 0 {
		t.Errorf("the previews sent %d requests", len(w.got))
	}
	for name, viewer := range map[string]access.Caller{"without proxy:read": w.user, "the system without it": access.NewSystem(w.tenant, access.TokenRead)} {
		if _, err := w.Preview(t.Context(), viewer, p.ID, proxy.Draft{Application: "any", Method: "GET"}); !errors.Is(err, fault.Forbidden) {
			t.Errorf("%s: Preview = %v, want Forbidden", name, err)
		}
	}
}
