package canary_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// plantUses puts values into code, configurations, arguments, console output,
// results and errors of reactors, and into what goes through proxies in both
// directions. Whoever asks is shown what they asked for; what is searched is
// all that stays.
func (g *garden) plantUses(destination string) {
	g.t.Helper()
	card := g.create(g.revealing, fmt.Sprintf(`{"type":"card","data":{"number":%q}}`, g.number("card for code")))
	const code = `
		module.exports = async (req) => {
			const { plain, card, fail } = req.args;
			console.log(plain, card.number, req.configuration.SECRET);
			console.error({ plain, card, configuration: req.configuration });
			if (fail === "throw") throw new Error(plain + card.number);
			if (fail === "reject") return Promise.reject(plain);
			const response = await fetch(req.configuration.TO + "/" + plain, { method: "POST", headers: { "x-plain": plain }, body: JSON.stringify(card) }).catch(String);
			return { raw: { plain, card, said: String(response) }, tokenize: { kept: { type: "token", data: plain } } };
		};`
	var reactor api.Reactor
	g.Call(g.t, "POST", "/reactors", g.management, fmt.Sprintf(`{"name":"r","code":%s,"configuration":{"SECRET":%q,"TO":%q}}`,
		quote("// "+g.text("code")+"\n"+code), g.text("configuration"), destination)).Into(g.t, 201, &reactor)
	for _, fail := range []string{"", "throw", "reject"} {
		for n := range 3 {
			body := fmt.Sprintf(`{"args":{"plain":%q,"card":"{{ %s }}","fail":%q}}`, g.text("argument"), card, fail)
			headers := []string{api.Header(api.DefaultPrefix, api.IdempotencyKey), fmt.Sprint("key ", fail, n)}
			for range 2 { // the second is answered from what was kept
				g.Call(g.t, "POST", "/reactors/"+reactor.ID+"/react", g.revealing, body, headers...)
			}
			body = fmt.Sprintf(`{"args":{"plain":%q,"card":"{{ %s }}","fail":%q},"callback_url":%q}`, g.text("argument of a job"), card, fail, destination+"/"+g.text("callback"))
			var run api.AsyncReactor
			g.Call(g.t, "POST", "/reactors/"+reactor.ID+"/react-async", g.revealing, body).Into(g.t, 202, &run)
			waittest.Until(g.t, "a job ends", func() bool {
				result := g.Call(g.t, "GET", "/reactors/"+reactor.ID+"/results/"+run.AsyncReactorRequestID, g.revealing, "")
				return result.Status != http.StatusNotFound
			})
		}
	}
	g.Call(g.t, "GET", "/reactors/"+reactor.ID+"/runs", g.management, "")

	var proxy api.Proxy
	g.Call(g.t, "POST", "/proxies", g.management, fmt.Sprintf(`{"name":"p","destination_url":%q,"configuration":{"SECRET":%q},
		"request_transform":{"code":%s},"response_transform":{"code":%s}}`, destination, g.text("configuration"),
		quote("// "+g.text("code")+"\nmodule.exports = async (req) => { console.log(req.args.body); return { body: req.args.body, headers: req.args.headers } }"),
		quote("module.exports = async (req) => { if (String(req.args.headers['x-fail'])) console.log(req.args); return { body: req.args.body, headers: {} } }"))).Into(g.t, 201, &proxy)
	proxyKey := api.Header(api.DefaultPrefix, api.ProxyKey)
	for range 3 {
		body := fmt.Sprintf(`{"number":"{{ %s | json: '$.number' }}","plain":%q}`, card, g.text("body of a proxied call"))
		g.Call(g.t, "POST", "/proxy/"+g.text("path of a proxied call")+"?q="+g.text("query of a proxied call"), g.revealing, body, proxyKey, proxy.Key,
			"X-Plain", g.text("header of a proxied call"), "Authorization", "Bearer "+g.text("header of a proxied call"))
		// A destination that is not there, and a token that is not: its id is named to who sent it.
		g.call("POST", "/proxy/x", g.revealing, body, api.Header(api.DefaultPrefix, api.ProxyURL), "http://127.0.0.1:1/"+g.text("destination"))
		g.Call(g.t, "POST", "/proxy/x", g.revealing, fmt.Sprintf(`{"a":"{{ %s }}"}`, g.text("id in an expression")), proxyKey, proxy.Key)
		g.Call(g.t, "POST", "/proxies/"+proxy.ID+"/preview", g.management, fmt.Sprintf(`{"path":"/%s","body":{"a":%q}}`, g.text("path"), g.text("body of a preview")))
	}
}

// TestPlantedValuesAreNowhereAfterTheirUse lets code and destinations have
// values, and searches all that stays: the store, the log, metrics, and the
// folder for temporary files.
func TestPlantedValuesAreNowhereAfterTheirUse(t *testing.T) {
	storetest.Long(t)
	runtime := runtimetest.Find(t).Folder
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	arrived := make(chan string, 1000)
	destination := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		arrived <- r.URL.String() + string(b)
		w.Header().Set("X-Fail", "1")
		_, _ = w.Write(b)
	}))
	defer destination.Close()
	g := newGarden(t, keeptest.Options{Data: filepath.Join(t.TempDir(), "data"), Settings: map[string]string{
		"sandbox.level": "full", "sandbox.runtime": runtime, "allow_http": "true", "allow_networks": "127.0.0.0/8,::1/128",
	}})
	g.plantUses(destination.URL)
	metrics := g.Call(t, "GET", "/metrics", "", "").Body
	running, inUse := files(t, g.Data), files(t, temporary)
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	s := g.scanner()
	for state, all := range map[string]map[string][]byte{"running": running, "stopped": files(t, g.Data), "temporary": inUse, "temporary, stopped": files(t, temporary)} {
		for name, b := range all {
			g.none(s, state+": "+name, b)
		}
	}
	g.none(s, "log", []byte(g.Log.String()))
	g.none(s, "metrics", []byte(metrics))
	g.none(s, "errors", []byte(g.refusals.String()))
	// What was to arrive did, so that what was searched had it all.
	close(arrived)
	var all strings.Builder
	for text := range arrived {
		all.WriteString(text + "\n")
	}
	if found := s.Search([]byte(all.String())); len(found) < 10 {
		t.Errorf("the destination got %d planted values, want at least 10: nothing was used", len(found))
	}
}
