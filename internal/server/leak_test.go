package server_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// planted is a card number that nothing may ever show.
const planted = "4242424242424242"

// shows tells whether a text holds the planted number, or a good part of it:
// more digits than the times in a log have.
func shows(text string) bool {
	return strings.Contains(text, "4242424242") || strings.Contains(text, "4242 4242")
}

// plantedHeaders are the headers in which the number is sent.
func plantedHeaders() []string {
	names := []string{
		"Accept", "Access-Control-Request-Headers", "Access-Control-Request-Method", "Authorization", "Content-Encoding", "Content-Type", "Cookie",
		"Expect-CT", "Forwarded", "If-None-Match", "Origin", "Referer", "Traceparent", "User-Agent", "X-Forwarded-For", "X-Request-Id", "X-" + planted,
	}
	for _, name := range api.HeaderNames {
		names = append(names, api.Header(api.DefaultPrefix, name))
	}
	return names
}

// plant sends the number to a row in every place of a request, with the key
// when there is one, and gives the answers to see as they came over the wire.
func plant(t *testing.T, client *http.Client, base, pattern, key string, see func(request, answer string)) {
	t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	if method == "*" {
		method = http.MethodPost
	}
	for {
		from, to := strings.IndexByte(path, '{'), strings.IndexByte(path, '}')
		if from < 0 {
			break
		}
		path = path[:from] + "PLACE" + path[to+1:]
	}
	plain := strings.ReplaceAll(path, "PLACE", "abc")
	send := func(method, target, body string, headers ...string) {
		t.Helper()
		if strings.HasPrefix(target, "/v2/logs/stream") { // which would go on until its client leaves
			target += map[bool]string{true: "&", false: "?"}[strings.Contains(target, "?")] + "follow=false"
		}
		r, err := http.NewRequest(method, base+target, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if key != "" {
			r.Header.Set("SVC-API-KEY", key)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatalf("%s of %s: %v", method, pattern, err)
		}
		defer func() { _ = response.Body.Close() }()
		var answer strings.Builder
		if err := response.Write(&answer); err != nil {
			t.Fatal(err)
		}
		see(fmt.Sprint(method, target, body, headers), answer.String())
	}
	spellings := []string{planted, "a" + planted + "b", "4242 4242 4242 4242"}
	if key != "" {
		spellings = spellings[:1] // the door has had the others
	}
	for _, number := range spellings {
		escaped := url.PathEscape(number)
		send(method, strings.ReplaceAll(path, "PLACE", escaped), "{}")
		send(method, plain+"/"+escaped, "{}")
		send(method, "/"+escaped+plain, "{}")
		send("M"+strings.ReplaceAll(number, " ", ""), plain, "{}")
		for _, name := range []string{"", "id=", "page=", "size=", "metadata." + planted + "=", "svc-proxy-key=", "%25zz="} {
			send(method, plain+"?"+name+url.QueryEscape(number), "{}")
		}
		for _, name := range plantedHeaders() {
			send(method, plain, "{}", name, number)
			if key != "" {
				continue // nobody asks a preflight for its key
			}
			send(http.MethodOptions, plain, "", "Origin", "https://a.example", "Access-Control-Request-Method", method, name, number)
		}
		for _, body := range []string{`{"id":"%s"}`, `{"type":"card","data":{"number":"%s"`, `{"%s":1,"%[1]s":2}`, `"%s"`, `%s`} {
			for _, media := range []string{"application/json", "application/merge-patch+json", "text/plain", number} {
				send(method, plain, fmt.Sprintf(body, number), "Content-Type", media)
			}
		}
	}
}

// givesBack tells whether a successful answer is one that is there to show
// what was put away before, or the description, whose examples have the number.
func givesBack(request, answer string) bool {
	for _, row := range []string{"GET/tokens", "GET/v2/tokens", "POST/detokenize", "GET/openapi."} {
		if strings.HasPrefix(request, row) && strings.HasPrefix(answer, "HTTP/1.1 200 ") {
			return true
		}
	}
	return false
}

func TestACardNumberSentToAnyRowOfTheServerIsShownNowhere(t *testing.T) {
	storetest.Long(t)
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"metrics_addr": "127.0.0.1:0", "rate_limit.per_address": "1000000"}})
	keys, _, err := k.Demo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sent, reached := 0, 0
	see := func(request, answer string) {
		sent++
		if !strings.HasPrefix(answer, "HTTP/1.1 401 ") {
			reached++
		}
		if givesBack(request, answer) {
			answer, _, _ = strings.Cut(answer, "\r\n\r\n") // the headers must not show it all the same
		}
		if shows(answer) {
			t.Errorf("the answer to %s shows the number:\n%s", request, answer)
		}
	}
	rows := k.Routes()
	if len(rows) < 2 {
		t.Fatalf("the server has %d rows: the test looks in the wrong place", len(rows))
	}
	// What deletes comes last: it may take the keys along.
	slices.SortStableFunc(rows, func(a, b httpapi.Route) int {
		last := func(r httpapi.Route) int { return strings.Index(r.Pattern, "DELETE") }
		return cmp.Compare(last(a), last(b))
	})
	for _, key := range []string{"", keys.PublicKey, keys.PrivateKey, keys.ManagementKey} {
		for _, row := range rows {
			plant(t, k.Client, k.URL, row.Pattern, key, see)
		}
	}
	if reached < sent/4 {
		t.Errorf("%d of %d requests came past the door: the keys do not work", reached, sent)
	}
	plant(t, k.Client, k.MetricsURL(), "GET /metrics", "", see)
	for _, row := range k.AdminRoutes() {
		plant(t, operator(t, k.Data), "http://admin", row.Pattern, "operator", see)
	}
	if shows(scrape(t, k)) {
		t.Error("the metrics show the number")
	}
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	log := k.Log.String()
	if shows(log) {
		t.Error("the log shows the number")
	}
	if got := strings.Count(log, `"msg":"request"`); got < sent {
		t.Errorf("%d records for %d requests: the log searched is not the whole log", got, sent)
	}
}

func TestTheSearchForACardNumberFindsOne(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{Routes: []httpapi.Route{
		{Pattern: "GET /" + planted, Auth: httpapi.Anonymous, Handle: func(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
			_, err := io.WriteString(w, r.URL.RawQuery)
			return err
		}},
		{Pattern: "GET /broken", Auth: httpapi.Anonymous, Handle: func(http.ResponseWriter, *http.Request, access.Caller) error {
			return errors.New("read 4242 4242")
		}},
	}})
	if shows(k.Log.String() + scrape(t, k)) {
		t.Fatal("found before anything was sent")
	}
	answers := ""
	for _, path := range []string{"/" + planted + "?" + planted, "/broken"} {
		response, err := k.Client.Get(k.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		answers += string(b)
	}
	metrics := scrape(t, k)
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	if !shows(answers) || !shows(metrics) || !shows(k.Log.String()) {
		t.Errorf("found in answers %t, metrics %t, log %t; want all", shows(answers), shows(metrics), shows(k.Log.String()))
	}
}
