// Package faults_test lets each call that a request makes to the store fail,
// one at a time, for every route: the caller is told, nothing is half done, and
// the same request succeeds afterwards.
package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/elements"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }

// row is a route with a request that succeeds. In path and body, {words} stand
// for what prepare made for this one request, or for what all share.
type row struct {
	key     string // whose: management, private, public
	path    string // when it is not the pattern's own
	body    string
	status  int
	prepare func(*world) // makes what the request uses up
	// outside says that the work is done outside the vault, or reads twice: that
	// it was begun stays in the log.
	outside bool
	// begun says that the work has several steps, and that chores finish what
	// was begun: whoever asks again is told so.
	begun bool
}

const (
	management = "management"
	private    = "private"
	public     = "public"

	recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p" // of exports; nobody has its identity
)

var table = map[string]row{
	"GET /tenants/self":                  {key: management, status: 200},
	"PUT /tenants/self":                  {key: management, body: `{"name":"New"}`, status: 200},
	"DELETE /tenants/self":               {key: "other", status: 204, prepare: (*world).otherTenant, begun: true},
	"GET /tenants/self/reports/usage":    {key: management, status: 200},
	"GET /tenants/self/callback-secret":  {key: management, status: 200},
	"POST /tenants/self/callback-secret": {key: management, status: 200},

	"POST /applications":                      {key: management, body: `{"name":"New","type":"private","permissions":["token:create"]}`, status: 201},
	"GET /applications":                       {key: management, status: 200},
	"GET /applications/key":                   {key: private, status: 200},
	"GET /applications/{id}":                  {key: management, path: "/applications/{application}", status: 200},
	"PUT /applications/{id}":                  {key: management, path: "/applications/{application}", body: `{"name":"New","permissions":["token:create"]}`, status: 200},
	"DELETE /applications/{id}":               {key: management, path: "/applications/{fresh}", status: 204, prepare: (*world).freshApplication},
	"POST /applications/{id}/regenerate":      {key: management, path: "/applications/{application}/regenerate", status: 200},
	"POST /applications/{id}/keys":            {key: management, path: "/applications/{fresh}/keys", status: 201, prepare: (*world).freshApplication},
	"GET /applications/{id}/keys":             {key: management, path: "/applications/{application}/keys", status: 200},
	"GET /applications/{id}/keys/{key_id}":    {key: management, path: "/applications/{fresh}/keys/{fresh_key}", status: 200, prepare: (*world).freshApplication},
	"DELETE /applications/{id}/keys/{key_id}": {key: management, path: "/applications/{fresh}/keys/{fresh_key}", status: 204, prepare: (*world).freshApplication},

	"POST /sessions":           {key: public, status: 201},
	"POST /sessions/authorize": {key: private, body: `{"nonce":"{nonce}","permissions":["token:create"]}`, status: 200, prepare: (*world).freshSession},
	"GET /sessions":            {key: management, status: 200},
	"DELETE /sessions/{id}":    {key: management, path: "/sessions/{session}", status: 204, prepare: (*world).freshSession},

	"GET /members/self":             {key: management, status: 404},
	"POST /members":                 {key: management, body: `{"email":"{unique}@shop.example","name":"New","role":"auditor"}`, status: 201, prepare: (*world).unique},
	"GET /members":                  {key: management, status: 200},
	"GET /members/{id}":             {key: management, path: "/members/{member}", status: 200, prepare: (*world).freshMember},
	"PATCH /members/{id}":           {key: management, path: "/members/{member}", body: `{"role":"admin"}`, status: 200, prepare: (*world).freshMember},
	"DELETE /members/{id}":          {key: management, path: "/members/{member}", status: 204, prepare: (*world).freshMember},
	"GET /members/{id}/sessions":    {key: management, path: "/members/{member}/sessions", status: 200, prepare: (*world).freshMember},
	"DELETE /members/sessions/{id}": {key: management, path: "/members/sessions/{sign_in}", status: 204, prepare: (*world).freshMember},
	"GET /roles":                    {key: management, status: 200},
	"POST /roles":                   {key: management, body: `{"name":"r-{unique}","permissions":["log:read"]}`, status: 201, prepare: (*world).unique},
	"PUT /roles/{id}":               {key: management, path: "/roles/{role}", body: `{"permissions":["log:read"]}`, status: 200, prepare: (*world).freshRole},
	"DELETE /roles/{id}":            {key: management, path: "/roles/{role}", status: 204, prepare: (*world).freshRole},
	"POST /auth/link":               {body: `{"code":"{code}"}`, status: 200, prepare: (*world).freshLink},
	"POST /tokens/{id}/reveal":      {key: private, path: "/tokens/{card}/reveal", body: `{"reason":"a test"}`, status: 200},

	"POST /access/explain":   {key: management, body: `{"application_id":"{application}","permission":"token:read","token_id":"{token}"}`, status: 200},
	"GET /access/who":        {key: management, path: "/access/who?permission=token:read&container=/", status: 200},
	"GET /reports/activity":  {key: management, path: "/reports/activity?bucket=hour", status: 200},
	"GET /reports/keys":      {key: management, status: 200},
	"GET /reports/access":    {key: management, status: 200},
	"GET /reports/attention": {key: management, status: 200, outside: true},
	"GET /permissions":       {key: private, status: 200},

	"POST /tokenize":         {key: private, body: `["x",{"type":"card","data":{"number":"4242424242424242","cvc":"123"}}]`, status: 200},
	"POST /detokenize":       {key: private, body: `["{{ {token} }}","{{ {card} }}"]`, status: 200},
	"POST /tokens":           {key: private, body: `{"type":"card","data":{"number":"4242424242424242","cvc":"123"},"metadata":{"a":"b"}}`, status: 201},
	"GET /tokens":            {key: private, path: "/tokens?metadata.a=b", status: 200},
	"GET /tokens/{id}":       {key: private, path: "/tokens/{card}", status: 200},
	"PATCH /tokens/{id}":     {key: private, path: "/tokens/{card}", body: `{"data":{"number":"4111111111111111","cvc":"999"}}`, status: 200},
	"DELETE /tokens/{id}":    {key: private, path: "/tokens/{fresh}", status: 204, prepare: (*world).freshToken},
	"POST /tokens/search":    {key: private, body: `{"query":"type:card"}`, status: 200},
	"GET /v2/tokens":         {key: private, status: 200},
	"POST /v2/tokens/search": {key: private, body: `{"query":"type:card"}`, status: 200},

	"POST /exports":              {key: private, body: `{"recipient":"` + recipient + `"}`, status: 201},
	"GET /exports/{id}":          {key: private, path: "/exports/{fresh}", status: 200, prepare: (*world).freshExport},
	"GET /exports/{id}/content":  {key: private, path: "/exports/{fresh}/content", status: 200, prepare: (*world).freshExport, outside: true},
	"POST /exports/{id}/approve": {key: management, path: "/exports/{fresh}/approve", body: `{"recipient":"` + recipient + `"}`, status: 200, prepare: (*world).freshExport},
	"POST /imports":              {key: private, body: `{"type":"card","data":{"number":"4242424242424242"}}`, status: 200},

	"POST /reactors":                          {key: management, body: `{"name":"New","code":"1","configuration":{}}`, status: 201},
	"GET /reactors":                           {key: management, status: 200},
	"GET /reactors/{id}":                      {key: management, path: "/reactors/{reactor}", status: 200},
	"PUT /reactors/{id}":                      {key: management, path: "/reactors/{fresh}", body: `{"name":"New","code":"1","configuration":{},"application":{"id":"{application}"}}`, status: 200, prepare: (*world).freshReactor},
	"PATCH /reactors/{id}":                    {key: management, path: "/reactors/{fresh}", body: `{"name":"New"}`, status: 204, prepare: (*world).freshReactor},
	"DELETE /reactors/{id}":                   {key: management, path: "/reactors/{fresh}", status: 204, prepare: (*world).freshReactor},
	"POST /reactors/{id}/react":               {key: private, path: "/reactors/{reactor}/react", body: `{"args":{"v":"{{ {token} }}"}}`, status: 200, outside: true},
	"POST /reactors/{id}/react-async":         {key: private, path: "/reactors/{reactor}/react-async", body: `{"args":{"v":"{{ {token} }}"}}`, status: 202, outside: true},
	"GET /reactors/{id}/results/{request_id}": {key: private, path: "/reactors/{reactor}/results/{nothing}", status: 404},
	"GET /reactors/{id}/runs":                 {key: management, path: "/reactors/{fresh}/runs", status: 200, prepare: (*world).freshReactor},

	"POST /reactors/try":                       {key: management, body: `{"code":"module.exports = async () => ({ raw: 1 })"}`, status: 422, outside: true},
	"GET /reactors/{id}/versions":              {key: management, path: "/reactors/{fresh}/versions", status: 200, prepare: (*world).freshReactor},
	"POST /reactors/{id}/versions/{n}/restore": {key: management, path: "/reactors/{fresh}/versions/1/restore", status: 200, prepare: (*world).freshReactor},
	"GET /proxies/{id}/versions":               {key: management, path: "/proxies/{fresh}/versions", status: 200, prepare: (*world).freshProxy},
	"POST /proxies/{id}/versions/{n}/restore":  {key: management, path: "/proxies/{fresh}/versions/1/restore", status: 200, prepare: (*world).freshProxy},

	"POST /proxies":                 {key: management, body: `{"name":"New","destination_url":"https://psp.example.com"}`, status: 201},
	"GET /proxies":                  {key: management, status: 200},
	"GET /proxies/{id}":             {key: management, path: "/proxies/{proxy}", status: 200},
	"PUT /proxies/{id}":             {key: management, path: "/proxies/{fresh}", body: `{"name":"New","destination_url":"https://psp.example.com"}`, status: 200, prepare: (*world).freshProxy},
	"PATCH /proxies/{id}":           {key: management, path: "/proxies/{fresh}", body: `{"name":"New"}`, status: 204, prepare: (*world).freshProxy},
	"DELETE /proxies/{id}":          {key: management, path: "/proxies/{fresh}", status: 204, prepare: (*world).freshProxy},
	"POST /proxies/{id}/preview":    {key: management, path: "/proxies/{proxy}/preview", body: `{"application_id":"{application}","path":"/x","body":{"n":"{{ {token} }}"}}`, status: 200, outside: true},
	"POST /proxies/{id}/rotate-key": {key: management, path: "/proxies/{fresh}/rotate-key", status: 200, prepare: (*world).freshProxy},
	"* /proxy/{rest...}":            {key: private, path: "/proxy/x", body: `{"n":"{{ {token} }}"}`, status: 200, outside: true},

	"GET /logs":              {key: management, status: 200},
	"GET /v2/logs":           {key: management, status: 200},
	"GET /logs/export":       {key: management, status: 200, outside: true},
	"GET /logs/integrity":    {key: management, status: 200},
	"POST /logs/verify":      {key: management, status: 202, outside: true},
	"GET /logs/verify/{id}":  {key: management, path: "/logs/verify/{fresh}", status: 200, prepare: (*world).freshVerification, outside: true},
	"GET /names":             {key: management, path: "/names?id={application}&id=x", status: 200},
	"GET /logs/entity-types": {key: management, status: 200},

	"GET /events":                       {key: management, status: 200},
	"POST /webhooks":                    {key: management, body: `{"name":"New","url":"https://shop.example.com","events":["token.*"]}`, status: 201},
	"GET /webhooks":                     {key: management, status: 200},
	"GET /webhooks/{id}":                {key: management, path: "/webhooks/{fresh}", status: 200, prepare: (*world).freshWebhook},
	"PUT /webhooks/{id}":                {key: management, path: "/webhooks/{fresh}", body: `{"name":"New","url":"https://shop.example.com","events":["webhook.test"]}`, status: 200, prepare: (*world).freshWebhook},
	"DELETE /webhooks/{id}":             {key: management, path: "/webhooks/{fresh}", status: 204, prepare: (*world).freshWebhook},
	"POST /webhooks/{id}/secret/rotate": {key: management, path: "/webhooks/{fresh}/secret/rotate", status: 200, prepare: (*world).freshWebhook},
	"POST /webhooks/{id}/test":          {key: management, path: "/webhooks/{fresh}/test", status: 200, prepare: (*world).freshWebhook, outside: true},
	"GET /webhooks/{id}/deliveries":     {key: management, path: "/webhooks/{fresh}/deliveries", status: 200, prepare: (*world).freshWebhook},
	"POST /webhooks/{id}/deliveries/{delivery_id}/resend": {key: management, path: "/webhooks/{fresh}/deliveries/{delivery}/resend", status: 202, prepare: (*world).freshDelivery},
	"GET /elements/v1/{key}/{kind}":                       {path: "/elements/v1/{public_key}/card", status: fieldPage()},
}

// fieldPage is the status of a field page, which a binary may lack.
func fieldPage() int {
	if elements.Built() {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// cutOff are rows whose response has begun when the store fails: it breaks off,
// and says no more.
var cutOff = []string{"GET /v2/logs/stream"}

// keyless rows are for the operator's tools, for whoever reads about the API, and for browsers.
var keyless = []string{"GET /", "GET /console/{rest...}", "GET /healthz", "GET /readyz", "GET /metrics", "GET /openapi.json", "GET /openapi.yaml", "GET /docs", "GET /docs/{file}",
	"GET /elements", "GET /elements/v1/{file}", "GET /auth/providers", "POST /auth/sign-out",
	"GET /auth/{provider}/start", "GET /auth/{provider}/callback", "POST /auth/{provider}/logout-token"}

// world is a server behind a failing store.
type world struct {
	*keeptest.Server
	t           *testing.T
	store       *storetest.Failing
	destination string // of proxies
	tenant      string
	names       map[string]string
	keys        map[string]string
}

func start(t *testing.T, settings map[string]string) *world {
	t.Helper()
	w := &world{t: t}
	w.Server = keeptest.Start(t, keeptest.Options{Settings: settings, Store: func(inner store.Store) store.Store {
		// What a request asks of the store has the context of a connection.
		w.store = storetest.NewFailing(inner, func(ctx context.Context) bool { return ctx.Value(http.LocalAddrContextKey) != nil })
		return w.store
	}})
	destination := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	t.Cleanup(destination.Close)
	w.destination = destination.URL
	return w
}

// with returns the world with a tenant of its own, which stays small.
func (w world) with(t *testing.T) *world {
	t.Helper()
	w.t = t
	made := w.Tenant(t)
	w.tenant = made.Tenant.ID
	everything := w.Application(t, w.tenant, api.CreateApplication{
		Type: "private", Permissions: []string{"token:create", "token:update", "token:delete", "token:use"},
		Rules: []api.Rule{{Container: "/", Transform: "reveal", Permissions: []string{"token:read", "token:search"}}},
	})
	w.keys = map[string]string{
		management: made.Application.Key, private: everything.Key,
		public: w.Application(t, w.tenant, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key,
	}
	w.names = map[string]string{
		"nothing":     "b7f1d3a0-0000-4000-8000-000000000001",
		"application": w.Application(t, w.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:use"}}).ID,
	}
	w.names["token"] = w.make(private, "/tokens", `{"type":"token","data":"x","metadata":{"a":"b"}}`)["id"]
	w.names["card"] = w.make(private, "/tokens", `{"type":"card","data":{"number":"4242424242424242","cvc":"123"}}`)["id"]
	w.names["reactor"] = w.make(management, "/reactors", `{"name":"x","configuration":{},"code":"module.exports = async (req) => ({ raw: req.args })"}`)["id"]
	proxy := w.make(management, "/proxies", `{"name":"x","destination_url":"`+w.destination+`"}`)
	w.names["public_key"] = w.keys[public]
	w.names["proxy"], w.names["proxy_key"] = proxy["id"], proxy["key"]
	return &w
}

// make creates something and returns the members of the answer that are texts.
func (w *world) make(key, path, body string) map[string]string {
	w.t.Helper()
	var members map[string]any
	w.Call(w.t, "POST", path, w.keys[key], body).Into(w.t, 201, &members)
	texts := make(map[string]string)
	for name, value := range members {
		if text, ok := value.(string); ok {
			texts[name] = text
		}
	}
	return texts
}

func (w *world) freshToken() {
	w.names["fresh"] = w.make(private, "/tokens", `{"type":"token","data":"x"}`)["id"]
}
func (w *world) freshReactor() {
	w.names["fresh"] = w.make(management, "/reactors", `{"name":"x","configuration":{},"code":"1"}`)["id"]
}
func (w *world) freshExport() {
	var made api.Export
	w.Call(w.t, "POST", "/exports", w.keys[private], `{"recipient":"`+recipient+`"}`).Into(w.t, 201, &made)
	w.names["fresh"] = made.ID
}
func (w *world) freshVerification() {
	var job api.LogVerification
	w.Call(w.t, "POST", "/logs/verify", w.keys[management], "").Into(w.t, 202, &job)
	w.names["fresh"] = job.ID
}
func (w *world) freshProxy() {
	w.names["fresh"] = w.make(management, "/proxies", `{"name":"x","destination_url":"https://psp.example.com"}`)["id"]
}
func (w *world) freshWebhook() {
	w.names["fresh"] = w.make(management, "/webhooks", `{"name":"x","url":"`+w.destination+`","events":["webhook.test"]}`)["id"]
}
func (w *world) freshDelivery() {
	w.freshWebhook()
	var d api.Delivery
	w.Call(w.t, "POST", "/webhooks/"+w.names["fresh"]+"/test", w.keys[management], "").Into(w.t, 200, &d)
	w.names["delivery"] = d.ID
}
func (w *world) freshApplication() {
	made := w.Application(w.t, w.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:use"}})
	w.names["fresh"], w.names["fresh_key"] = made.ID, made.Keys[0].ID
}
func (w *world) freshSession() {
	w.names["nonce"] = w.make(public, "/sessions", "")["nonce"]
	var list api.List[api.Session]
	w.Call(w.t, "GET", "/sessions?size=1", w.keys[management], "").Into(w.t, 200, &list)
	w.names["session"] = list.Data[0].ID
}

// made counts what must differ from everything made before.
var made atomic.Int64

func (w *world) unique() {
	w.names["unique"] = fmt.Sprint(made.Add(1))
}
func (w *world) freshRole() {
	w.unique()
	w.names["role"] = w.make(management, "/roles", `{"name":"r-`+w.names["unique"]+`","permissions":["log:read"]}`)["name"]
}
func (w *world) freshMember() {
	p := w.Person(w.t, w.tenant, "auditor", fmt.Sprintf("m%d@shop.example", made.Add(1)))
	w.names["member"] = p.ID
	var list []api.SignIn
	w.Call(w.t, "GET", "/members/"+p.ID+"/sessions", w.keys[management], "").Into(w.t, 200, &list)
	w.names["sign_in"] = list[0].ID
}
func (w *world) freshLink() {
	w.names["code"] = w.LinkCode(w.t, w.tenant, "auditor", "linked@shop.example")
}
func (w *world) otherTenant() {
	made := w.Tenant(w.t)
	w.names["tenant"], w.keys["other"] = made.Tenant.ID, made.Application.Key
}

// fill puts names in the place of {words}.
func (w *world) fill(s string) string {
	for name, value := range w.names {
		s = strings.ReplaceAll(s, "{"+name+"}", value)
	}
	return s
}

func TestAFailingStoreIsToldAndNothingIsHalfDone(t *testing.T) {
	storetest.Long(t)
	w := start(t, nil)
	for _, r := range w.Routes() {
		if _, known := table[r.Pattern]; !known && !slices.Contains(keyless, r.Pattern) && !slices.Contains(cutOff, r.Pattern) {
			t.Errorf("%s has no row in this test", r.Pattern)
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(table)) {
		if pattern != running {
			w.failAll(t, pattern)
		}
	}
	w.deletionsEnd(t)
	if err := w.Stop(); err != nil { // nothing hangs on anything
		t.Error(err)
	}
}

// running is the row that needs a sandbox, in which reactors take their time.
const running = "POST /reactors/{id}/react"

func TestAFailingStoreIsToldWhileCodeRuns(t *testing.T) {
	w := start(t, map[string]string{"sandbox.level": "reduced", "sandbox.runtime": runtimetest.Find(t).Folder, "sandbox.blank": "1"})
	w.failAll(t, running)
}

// failAll lets each call of a row fail in the two ways that there are.
func (w *world) failAll(t *testing.T, pattern string) {
	for name, cause := range map[string]error{
		"unavailable": fmt.Errorf("a test says so: %w", store.ErrUnavailable),
		"broken":      errors.New("a test says so"),
	} {
		if testing.Short() && name == "broken" {
			continue // it differs in the status alone
		}
		t.Run(pattern+" "+name, func(t *testing.T) {
			if n := w.with(t).failEach(pattern, cause); n == 0 {
				t.Error("no call failed: the test proves nothing")
			}
		})
	}
}

// deletionsEnd waits until no tenant is left that is being deleted.
func (w *world) deletionsEnd(t *testing.T) {
	t.Helper()
	waittest.Until(t, "the end of the deletions of tenants", func() bool {
		tenants, err := w.store.Inner().AllTenants().Tenants(t.Context(), "", 10_000)
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(tenants, func(t store.Tenant) bool { return t.Deleting })
	})
}

// failEach sends the request of a row again and again, and each time the next
// of its calls fails, until it makes fewer.
func (w *world) failEach(pattern string, cause error) (failed int) {
	w.t.Helper()
	r := table[pattern]
	const bound = 200
	for n := 1; n <= bound; n++ {
		if r.prepare != nil {
			r.prepare(w)
		}
		tenant := w.tenant
		if r.key == "other" {
			tenant = w.names["tenant"]
		}
		before := w.contents(tenant, r.outside)
		w.store.FailAt(n, cause)
		got := w.send(pattern, r, fmt.Sprint(pattern, cause, n))
		name := w.store.Rest()
		switch want := map[bool]int{true: 503, false: 500}[errors.Is(cause, store.ErrUnavailable)]; {
		case name == "":
			if got.Status != r.status {
				w.t.Errorf("no call failed, and the answer is %s, want %d", got, r.status)
			}
			return failed
		case got.Status != want:
			w.t.Errorf("call %d, %s, failed, and the answer is %s, want %d", n, name, got, want)
		default:
			w.checkFailure(got, pattern)
			after := w.contents(tenant, r.outside)
			for i := range after {
				if after[i] != before[i] && !r.begun {
					w.t.Errorf("call %d, %s, failed, and what is kept is not as before:\n%s\nwas\n%s", n, name, after[i], before[i])
				}
			}
		}
		failed++
		if again := w.send(pattern, r, fmt.Sprint(pattern, cause, n)); again.Status != r.status && !(r.begun && (again.Status == http.StatusConflict || again.Status == http.StatusUnauthorized)) {
			w.t.Errorf("call %d, %s, failed, and then the same request is answered with %s, want %d", n, name, again, r.status)
		}
	}
	w.t.Errorf("the request makes more than %d calls", bound)
	return failed
}

func (w *world) send(pattern string, r row, once string) keeptest.Answer {
	w.t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	if r.path != "" {
		path = r.path
	}
	var headers []string
	switch {
	case method == "*":
		method = "POST"
		headers = []string{api.Header(api.DefaultPrefix, api.ProxyKey), w.names["proxy_key"]}
	case !r.outside: // else the mark of the first would be in the way of the second
		headers = []string{api.Header(api.DefaultPrefix, api.IdempotencyKey), once}
	}
	return w.Call(w.t, method, w.fill(path), w.keys[r.key], w.fill(r.body), headers...)
}

// checkFailure looks at the shape of an answer that tells of our failure.
func (w *world) checkFailure(got keeptest.Answer, pattern string) {
	w.t.Helper()
	if strings.Contains(got.Body, "a test says so") {
		w.t.Errorf("the answer %s tells what went wrong inside", got)
	}
	if got.Status == 503 && got.Header.Get("Retry-After") == "" {
		w.t.Errorf("the answer %s does not say when to come back", got)
	}
	if strings.HasPrefix(pattern, "* /proxy") {
		if !strings.HasPrefix(got.Body, `{"proxy_error":`) {
			w.t.Errorf("the answer is %s, want a proxy_error", got)
		}
		return
	}
	got.CheckProblem(w.t)
}

// contents returns everything that the store keeps for a tenant, but for the
// seals of its log, which are a chore's. Of work outside the vault the log and
// what was printed may tell.
func (w *world) contents(tenant string, outside bool) (parts []string) {
	w.t.Helper()
	err := w.store.Inner().View(w.t.Context(), tenant, func(tx store.Tx) error {
		ctx, all := w.t.Context(), store.Page{Limit: 1000}
		parts = nil
		show := func(v any, err error) error {
			parts = append(parts, fmt.Sprintf("%+v", v))
			return err
		}
		errs := []error{
			show(tx.TenantRow(ctx)), show(tx.Keysets(ctx)), show(tx.Tokens(ctx, store.TokenFilter{Now: 1, Groups: store.AllGroups()}, all)),
			show(tx.Sessions(ctx, store.SessionFilter{Now: 1}, all)), show(tx.Definitions(ctx, store.DefinitionFilter{}, all)),
		}
		applications, err := tx.Applications(ctx, store.ApplicationFilter{}, all)
		errs = append(errs, show(applications, err))
		for _, a := range applications {
			errs = append(errs, show(tx.Keys(ctx, a.ID)))
		}
		if !outside {
			errs = append(errs, show(tx.CountLogs(ctx, store.LogFilter{})), show(tx.Parcels(ctx, store.ParcelFilter{Kind: store.ParcelAnswer}, all)))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return parts
}
