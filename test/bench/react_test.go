package bench_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// BenchmarkReact runs a warm reactor on one detokenized card over HTTP, behind
// all walls and with machine code, beside a handler that reads the same body
// and answers a constant. The reactor's answer waits for two log entries and
// for the code; the handler's for nothing.
func BenchmarkReact(b *testing.B) {
	folder := runtimetest.Find(b).Folder
	for _, jit := range []string{"false", "true"} {
		k := keeptest.Start(b, keeptest.Options{Settings: map[string]string{
			"sandbox.level": "full", "sandbox.runtime": folder, "sandbox.jit": jit, "sandbox.per_program": "64",
		}})
		k.Client.Transport.(*http.Transport).MaxIdleConnsPerHost = 128
		p := &place{Server: k}
		p.tenant = k.Tenant(b).Tenant.ID
		p.revealing = k.Application(b, p.tenant, api.CreateApplication{
			Type: "private", Permissions: []string{"token:create", "token:use"},
		}).Key
		management := k.Application(b, p.tenant, api.CreateApplication{Type: "management", Permissions: []string{"reactor:create"}}).Key
		var card api.Token
		k.Call(b, "POST", "/tokens", p.revealing, cardBody(1)).Into(b, 201, &card)
		var reactor api.Reactor
		k.Call(b, "POST", "/reactors", management, `{"name":"last four","configuration":{},
			"code":"module.exports = async (req) => ({ raw: { last4: req.args.card.number.slice(-4) } })"}`).Into(b, 201, &reactor)
		body := fmt.Sprintf(`{"args":{"card":"{{ %s }}"}}`, card.ID)
		plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", api.MediaJSON)
			_, _ = io.WriteString(w, `{"raw":{"last4":"0000"}}`)
		}))
		b.Cleanup(plain.Close)
		for _, n := range []int{1, 8} {
			b.Run(fmt.Sprintf("jit=%s/connections=%d", jit, n), func(b *testing.B) {
				compare(b, n, side{"react", func(int64) error {
					_, err := p.ask("POST", "/reactors/"+reactor.ID+"/react", p.revealing, body, http.StatusOK)
					return err
				}}, side{"plain", func(int64) error {
					r, err := http.NewRequest("POST", plain.URL, strings.NewReader(body))
					if err != nil {
						return err
					}
					_, err = answer(k.Client, r, http.StatusOK)
					return err
				}})
			})
		}
	}
}
