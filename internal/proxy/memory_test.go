package proxy_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/proxy"
	"github.com/tokenkeep/tokenkeep/internal/script"
)

func TestACallThatNeedsTooMuchMemoryIsRefusedBeforeItIsSent(t *testing.T) {
	w := newWorld(t)
	w.scripts["same"] = func(script.Call) (string, error) { return `{"body":"short"}`, nil }
	plain, shaped := w.transformed("", ""), w.transformed("", "same")
	w.answer = func(*http.Request) *http.Response { return respond(200, "text/plain", "well") }
	body := `{"a":"` + strings.Repeat("x", 100<<10) + `"}`
	for name, tt := range map[string]struct {
		proxy             proxy.Proxy
		contentType, body string
		needs             int64 // at least, and not twice as much
	}{
		"a body that is looked into":            {plain, "application/json", body, 500 << 10},
		"an answer that a transform would read": {shaped, "application/json", `{}`, 20 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			w.meter = &accesstest.Meter{Most: tt.needs - 1}
			if _, _, err := w.call(tt.proxy, "POST", "/", tt.contentType, tt.body); !errors.Is(err, fault.Unavailable) || len(w.got) != 0 {
				t.Errorf("a call with %d bytes of memory = %v, and %d requests were sent, want Unavailable and none", tt.needs-1, err, len(w.got))
			}
			w.meter = &accesstest.Meter{Most: 2 * tt.needs}
			if _, _, err := w.call(tt.proxy, "POST", "/", tt.contentType, tt.body); err != nil || len(w.got) != 1 {
				t.Errorf("a call with %d bytes of memory = %v, and %d requests were sent, want one", 2*tt.needs, err, len(w.got))
			}
		})
	}
	t.Run("a body that passes through needs none", func(t *testing.T) {
		w.meter = &accesstest.Meter{}
		if _, _, err := w.call(plain, "POST", "/", "application/octet-stream", body); err != nil || len(w.got) != 1 {
			t.Errorf("a stream without memory = %v, and %d requests were sent, want one", err, len(w.got))
		}
	})
}
