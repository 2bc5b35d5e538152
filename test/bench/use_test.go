package bench_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// few are the connections of what runs code: one reactor may have ten runs at
// once on default settings.
var few = []int{1, 8, 32}

// BenchmarkReact runs warm reactors on one detokenized card, behind all walls
// and with machine code, beside a handler that reads the same body and answers
// as many bytes. The reactor's answer waits for the log and for the code, the
// handler's for nothing.
func BenchmarkReact(b *testing.B) {
	folder := runtimetest.Find(b).Folder
	for name, jit := range map[string]string{"hardened": "false", "with the JIT": "true"} {
		b.Run(name, func(b *testing.B) {
			p := serve(b, "", nil, "--sandbox-level", "full", "--sandbox-runtime", folder, "--sandbox-jit", jit)
			body := fmt.Sprintf(`{"args":{"card":"{{ %s }}"}}`, p.create(b, 1)[0])
			var reactors []string
			for range 4 { // each connection keeps to one
				text, err := p.ask("POST", "/reactors", p.managing, `{"name":"last four","configuration":{},
					"code":"module.exports = async (req) => ({ raw: { last4: req.args.card.number.slice(-4) } })"}`, 201)
				reactors = append(reactors, made(b, text, err))
			}
			plain := startLimit(b, "plain", `{"raw":{"last4":"0000"}}`, "")
			aim := map[string]float64{"false": 0.2, "true": 0.25}[jit]
			for _, n := range few {
				b.Run(fmt.Sprint(n), func(b *testing.B) {
					f := measure(b, n, side{"react", p.pid(), func(c int, _ int64) error {
						_, err := p.ask("POST", "/reactors/"+reactors[c%4]+"/react", p.revealing, body, http.StatusOK)
						return err
					}}, side{"plain", plain.pid, plain.do(p, body)})
					against(named("react, warm, "+name, n), "plain handler", f[0], f[1], aim)
				})
			}
		})
	}
}

// BenchmarkProxy sends a small JSON body through a proxy, with nothing to put
// in, with one expression, and with one expression and a warm transform, beside
// a plain reverse proxy to the same destination. Ours answers after its call,
// and each token, is in the log on disk; the plain one logs nothing. Logged is a
// handler that answers after one such entry and sends nothing on.
func BenchmarkProxy(b *testing.B) {
	p := serve(b, "", nil, "--sandbox-level", "full", "--sandbox-runtime", runtimetest.Find(b).Folder, "--allow-http", "true", "--allow-networks", "127.0.0.0/8")
	const answered = `{"ok":true}`
	destination := startLimit(b, "destination", answered, "")
	reverse, logged := startLimit(b, "reverse", answered, destination.url), startLimit(b, "logged", answered, "")
	define := func(more string) string {
		text, err := p.ask("POST", "/proxies", p.managing, `{"name":"p","destination_url":"`+destination.url+`"`+more+`}`, 201)
		if err != nil {
			b.Fatal(err)
		}
		var made api.Proxy
		if err := json.Unmarshal([]byte(text), &made); err != nil {
			b.Fatal(err)
		}
		return made.Key
	}
	plain := define("")
	var shaped []string
	for range 4 {
		shaped = append(shaped, define(`,"request_transform":{"code":"module.exports = async (req) => ({ body: req.args.body, headers: { ...req.args.headers, 'X-A': 'b' } })"}`))
	}
	constant := `{"amount":1999,"number":"9999990000000015"}`
	expression := fmt.Sprintf(`{"amount":1999,"number":"{{ %s | json: '$.number' }}"}`, p.create(b, 1)[0])
	send := func(key func(connection int) string, body string) func(int, int64) error {
		return func(c int, _ int64) error {
			_, err := p.ask("POST", "/proxy/x", p.revealing, body, http.StatusOK, api.Header(api.DefaultPrefix, api.ProxyKey), key(c))
			return err
		}
	}
	always := func(int) string { return plain }
	for _, n := range few {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := measure(b, n,
				side{"nothing", p.pid(), send(always, constant)},
				side{"expression", p.pid(), send(always, expression)},
				side{"transform", p.pid(), send(func(c int) string { return shaped[c%4] }, expression)},
				side{"logged", logged.pid, logged.do(p, constant)},
				side{"reverse", reverse.pid, reverse.do(p, constant)})
			against(named("proxy with one expression", n), "httputil.ReverseProxy", f[1], f[4], 0.6)
			for i, name := range []string{"nothing", "expression", "transform", "logged"} {
				b.ReportMetric(f[i].rate/f[4].rate, name+"/reverse")
				b.ReportMetric(f[i].median-f[4].median, name+"-added-µs")
			}
		})
	}
}
