package knowledge_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// clock is the server's clock. It moves a microsecond with every look, so that
// nothing that is listed by time has the time of anything else.
type clock struct {
	mu  sync.Mutex // guards now
	now time.Time
}

func (c *clock) Now() time.Time { return c.advance(time.Microsecond) }

func (c *clock) advance(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return c.now
}

// recorder is the destination of all proxies. It keeps what arrives, by path.
type recorder struct {
	url string

	mu   sync.Mutex // guards seen
	seen map[string][]string
}

func newRecorder(t testing.TB) *recorder {
	r := &recorder{seen: make(map[string][]string)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen[q.URL.Path] = append(r.seen[q.URL.Path], string(body))
		_, _ = io.WriteString(w, "received")
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// take returns what arrived at a path since the last time.
func (r *recorder) take(path string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := strings.Join(r.seen[path], "\n")
	delete(r.seen, path)
	return all
}

// site is a server on which many worlds run, each in a tenant of its own.
type site struct {
	t     testing.TB
	k     *keeptest.Server
	clock *clock
	to    *recorder
	// other sends requests from another client address.
	other *http.Client
}

// unwatched is a test whose server's responses are not compared with
// api/openapi.yaml. Other tests do that, and here it would take most of the time.
type unwatched struct{ testing.TB }

func newSite(t testing.TB, settings ...string) *site {
	t.Helper()
	c := &clock{now: time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)}
	all := map[string]string{"allow_http": "true", "allow_networks": "127.0.0.0/8,::1/128"}
	for i := 0; i < len(settings); i += 2 {
		all[settings[i]] = settings[i+1]
	}
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &site{
		t: t, clock: c, to: newRecorder(t), other: &http.Client{Transport: transport},
		k: keeptest.Start(unwatched{t}, keeptest.Options{Now: c.Now, Settings: all}),
	}
}

// appDef defines an application of a cast.
type appDef struct {
	name string
	kind string // public, private or management
	grant
}

// actorDef defines somebody who calls with the key of an application. Several
// may share one: everybody who opens a shop's page has its public key.
type actorDef struct {
	name string
	app  string // "" for a caller without a key
	// attacker: all attackers of a cast share what they know.
	attacker bool
}

// cast is who takes part in a sequence, beside those who are always there: the
// manager, the auditor, who reads everything, the masker, who reads everything
// masked, and the shop, the server whose tokens the others are after.
type cast struct {
	apps     []appDef
	actors   []actorDef
	settings map[string]string // of the tenant
}

const everywhere = "/"

func rule(container, transform string, permissions ...string) api.Rule {
	return api.Rule{Container: container, Transform: transform, Permissions: permissions}
}

var household = cast{
	apps: []appDef{
		{"manager", "management", grant{permissions: []string{
			"tenant:read", "tenant:update", "application:create", "application:read", "application:update", "application:delete",
			"session:read", "session:delete", "reactor:create", "reactor:read", "reactor:update", "reactor:delete",
			"proxy:create", "proxy:read", "proxy:update", "proxy:delete", "log:read", "report:read",
		}}},
		{"auditor", "private", grant{rules: []api.Rule{rule(everywhere, "reveal", "token:read")}}},
		{"masker", "private", grant{permissions: []string{"token:read"}}},
		{"shop", "private", grant{
			permissions: []string{"token:create", "token:update", "token:delete", "token:use"},
			rules:       []api.Rule{rule(everywhere, "reveal", "token:read", "token:search")},
		}},
	},
	actors: []actorDef{{name: "manager", app: "manager"}, {name: "auditor", app: "auditor"}, {name: "masker", app: "masker"}, {name: "shop", app: "shop"}},
}

// app is an application as the model knows it.
type app struct {
	appDef
	id, key, keyID string
	gone           bool
	refused        int // calls
}

// session is a session as the model knows it.
type session struct {
	name           string
	key            string
	maker          *actor
	by             *app // the public application that made it
	byKey          string
	authorizer     *app // nil until it is authorized
	authorizingKey string
	grant          grant
	dead           string // why it must not work any more; "" while it may
}

// actor is somebody who calls.
type actor struct {
	name     string
	app      *app // nil for a caller without a key
	session  *session
	key      string
	keyID    string
	attacker bool
	// sent is everything that the actor has sent so far; attackers share theirs.
	sent *strings.Builder
}

// public reports whether the actor calls with the key of a public application.
func (a *actor) public() bool { return a.session == nil && a.app != nil && a.app.kind == "public" }

// world is a tenant in which a sequence runs, with what the model knows of it.
type world struct {
	*site
	which    int // whose values the secrets have: 0 or 1
	symbols  map[string]pair
	tenant   string
	settings map[string]string
	apps     map[string]*app
	actors   map[string]*actor
	sessions map[string]*session
	proxies  map[string]*proxy // by id
	vars     map[string]string
	tokens   map[string]*state // as the auditor sees them now
	// made and changed say whose call created a token and changed it last.
	made, changed map[string]string
	asked         map[string]map[string]any // the request that created a token, unless its mask or indexes were changed since
	answered      map[string][]answered     // by idempotency key, caller and path
	given         map[string]string         // secrets that are shown once, and to whom
	shared        *strings.Builder          // what the attackers have sent

	done     []done
	findings []finding
	names    *naming
}

// proxy is a proxy as the model knows it.
type proxy struct {
	application string // id; "" for none
	requireAuth bool
}

// step is one call of a sequence. In path, body and headers, names in angle
// brackets stand for values: secrets, and what responses of earlier steps had
// in their members. A step that names something that is not there is skipped,
// so that steps before it can be left out.
type step struct {
	as     string // an actor, the name of a session, or actor@key for another key of it
	method string
	path   string
	body   string
	// header holds names and values in turn.
	header []string
	// save names the response: <name> is then its id, <name.member> a member.
	save string
	// address sends the step from another client address.
	address bool
	// poll repeats a GET while the answer is 404: nothing tells when it is there.
	poll bool
	// want is the status that the rules require; 0 when it is left open.
	want int
}

func (s step) String() string {
	out := fmt.Sprintf("%s: %s %s", s.as, s.method, s.path)
	if s.body != "" {
		out += " " + s.body
	}
	for i := 0; i < len(s.header); i += 2 {
		out += fmt.Sprintf(" [%s: %s]", s.header[i], s.header[i+1])
	}
	if s.address {
		out += " (from another address)"
	}
	if s.save != "" {
		out += " → " + s.save
	}
	return out
}

// done is a step that was carried out.
type done struct {
	step
	number   int
	actor    *actor
	trace    string
	path     string // with values in it
	body     string
	answer   keeptest.Answer
	arrived  string // at a destination of the actor's own
	sent     string // what arrived at the destination of the tenant's proxies
	before   map[string]*state
	after    map[string]*state
	proxy    *proxy // the one that was called
	replayed bool
	named    bool // a refusal of it must name its tokens in the log
}

func (d done) String() string {
	text := d.answer.String()
	if len(text) > 1500 {
		text = text[:1500] + "…"
	}
	out := fmt.Sprintf("%3d  %s\n       %s", d.number, d.step, text)
	if d.arrived != "" {
		out += "\n       arrived at the caller's own destination: " + d.arrived
	}
	if d.sent != "" {
		out += "\n       arrived at the tenant's destination: " + d.sent
	}
	return out
}

// finding is something that the model does not allow.
type finding struct {
	step  int
	claim string // which rule is broken
	text  string
}

func (f finding) String() string { return fmt.Sprintf("step %d: %s: %s", f.step, f.claim, f.text) }

func (w *world) find(step int, claim, format string, arguments ...any) {
	w.findings = append(w.findings, finding{step, claim, fmt.Sprintf(format, arguments...)})
}

// newWorld makes a tenant with a cast.
func (s *site) newWorld(c cast, symbols map[string]pair, which int) *world {
	s.t.Helper()
	made := s.k.Tenant(s.t)
	w := &world{
		site: s, which: which, symbols: symbols, tenant: made.Tenant.ID, settings: map[string]string{},
		apps: map[string]*app{}, actors: map[string]*actor{}, sessions: map[string]*session{}, proxies: map[string]*proxy{},
		vars: map[string]string{}, tokens: map[string]*state{}, made: map[string]string{}, changed: map[string]string{},
		asked:    map[string]map[string]any{},
		answered: map[string][]answered{}, given: map[string]string{}, shared: &strings.Builder{}, names: newNaming(),
	}
	for _, defined := range append(append([]appDef{}, household.apps...), c.apps...) {
		a := s.k.Application(s.t, w.tenant, api.CreateApplication{Name: defined.name, Type: defined.kind, Permissions: defined.permissions, Rules: defined.rules})
		w.apps[defined.name] = &app{appDef: defined, id: a.ID, key: a.Key, keyID: a.Keys[0].ID}
		w.vars[defined.name] = a.ID
		w.names.number(a.ID)
		w.vars[defined.name+".key_id"] = a.Keys[0].ID
	}
	for _, defined := range append(append([]actorDef{}, household.actors...), c.actors...) {
		a := &actor{name: defined.name, attacker: defined.attacker, sent: &strings.Builder{}}
		if defined.attacker {
			a.sent = w.shared
		}
		if defined.app != "" {
			a.app = w.apps[defined.app]
			if a.app == nil {
				s.t.Fatalf("the actor %s has no application", defined.name)
			}
		}
		w.actors[defined.name] = a
	}
	if len(c.settings) > 0 {
		body, err := json.Marshal(map[string]any{"name": "Tenant", "settings": c.settings})
		if err != nil {
			s.t.Fatal(err)
		}
		if got := s.k.Call(s.t, "PUT", "/tenants/self", w.apps["manager"].key, string(body)); got.Status != 200 {
			s.t.Fatalf("PUT /tenants/self with %s = %s", body, got)
		}
		w.settings = c.settings
	}
	return w
}

// who finds the actor of a step; nil when there is none (yet).
func (w *world) who(name string) *actor {
	name, other, hasKey := strings.Cut(name, "@")
	if s := w.sessions[name]; s != nil {
		if s.authorizer == nil {
			return nil // its authorization was refused
		}
		return &actor{name: name, app: s.by, session: s, key: s.key, attacker: s.maker.attacker, sent: s.maker.sent}
	}
	a := w.actors[name]
	if a == nil {
		return nil
	}
	found := *a
	if found.app != nil {
		found.key, found.keyID = found.app.key, found.app.keyID
	}
	if hasKey {
		found.key, found.keyID = w.vars[other+".key"], w.vars[other]
		if found.key == "" {
			return nil
		}
	}
	return &found
}

var placeholder = regexp.MustCompile(`<([A-Za-z][A-Za-z0-9_.]*)>`)

// value returns what a name in angle brackets stands for.
func (w *world) value(a *actor, name string) (string, bool) {
	if p, ok := w.symbols[name]; ok {
		return p[w.which], true
	}
	if n := len(name) - 1; n > 0 && (name[n] == 'a' || name[n] == 'b') {
		if p, ok := w.symbols[name[:n]]; ok {
			return p[name[n]-'a'], true
		}
	}
	switch name {
	case "psp":
		return w.to.url + w.pspPath(), true
	case "mine":
		return w.to.url + w.ownPath(a), true
	case "later":
		return w.clock.Now().Add(20 * time.Hour).Format(time.RFC3339), true
	}
	v, ok := w.vars[name]
	return v, ok && v != ""
}

func (w *world) pspPath() string         { return "/psp/" + w.tenant }
func (w *world) ownPath(a *actor) string { return "/mine/" + w.tenant + "/" + a.name }

// fill puts values in place of names; false when one is not there.
func (w *world) fill(a *actor, text string) (string, bool) {
	all := true
	return placeholder.ReplaceAllStringFunc(text, func(name string) string {
		v, ok := w.value(a, strings.Trim(name, "<>"))
		all = all && ok
		return v
	}), all
}

const (
	headerKey      = api.DefaultPrefix + "-" + api.APIKey
	headerTrace    = api.DefaultPrefix + "-" + api.TraceID
	headerIdem     = api.DefaultPrefix + "-" + api.IdempotencyKey
	headerReplayed = api.DefaultPrefix + "-" + api.IdempotentReplayed
	headerProxyKey = api.DefaultPrefix + "-" + api.ProxyKey
	headerProxyURL = api.DefaultPrefix + "-" + api.ProxyURL
)

// do carries out one step and checks everything that can be checked at once.
// It reports false for a step that was skipped.
func (w *world) do(number int, s step) bool {
	a := w.who(s.as)
	if a == nil {
		return false
	}
	path, ok := w.fill(a, s.path)
	body, also := w.fill(a, s.body)
	if !ok || !also {
		return false
	}
	header := []string{headerTrace, fmt.Sprintf("step-%d", number)}
	for _, text := range s.header {
		filled, ok := w.fill(a, text)
		if !ok {
			return false
		}
		header = append(header, filled)
	}
	d := done{step: s, number: number, actor: a, trace: header[1], path: path, body: body, before: w.tokens}
	if key := w.headerOf(header, headerProxyKey); key != "" {
		d.proxy = w.proxies[w.vars["proxy of "+key]]
	}
	w.to.take(w.pspPath())
	for len(w.names.started) < number {
		w.names.started = append(w.names.started, w.clock.Now())
	}
	d.answer = w.send(d, header)
	if s.poll && d.answer.Status == http.StatusNotFound {
		waittest.Until(w.t, "the result is there", func() bool {
			d.answer = w.send(d, header)
			return d.answer.Status != http.StatusNotFound
		})
	}
	d.sent, d.arrived = w.to.take(w.pspPath()), w.to.take(w.ownPath(a))
	d.replayed = d.answer.Header.Get(headerReplayed) == "true"
	for _, text := range append([]string{path, body}, header[2:]...) {
		a.sent.WriteString(text + "\n")
	}
	if d.answer.Status == http.StatusForbidden && a.app != nil {
		// The log bounds how many refusals of one application it holds.
		if a.app.refused++; a.app.refused > unbounded {
			w.clock.advance(5 * time.Second)
		}
	}
	w.save(d)
	if s.method != http.MethodGet && d.answer.Status < 300 {
		w.look()
	}
	d.after = w.tokens
	d.named = d.namesTokens()
	w.follow(d)
	w.check(d)
	if a.attacker {
		var fingerprints []string
		for _, m := range []map[string]*state{d.before, d.after} {
			for _, t := range m {
				if t.Fingerprint != "" && !slices.Contains(fingerprints, t.Fingerprint) {
					fingerprints = append(fingerprints, t.Fingerprint)
				}
			}
		}
		w.names.note(d, fingerprints)
	}
	w.done = append(w.done, d)
	return true
}

// unbounded is how many refusals of an application the log holds at any rate.
const unbounded = 15

func (w *world) headerOf(header []string, name string) string {
	for i := 0; i+1 < len(header); i += 2 {
		if strings.EqualFold(header[i], name) {
			return header[i+1]
		}
	}
	return ""
}

func (w *world) send(d done, header []string) keeptest.Answer {
	if !d.address {
		return w.k.Call(w.t, d.method, d.path, d.actor.key, d.body, header...)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), d.method, w.k.URL+d.path, strings.NewReader(d.body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set(headerKey, d.actor.key)
	if d.body != "" {
		r.Header.Set("Content-Type", api.MediaJSON)
		if d.method == http.MethodPatch {
			r.Header.Set("Content-Type", api.MediaMergePatch)
		}
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := w.other.Do(r)
	if err != nil {
		w.t.Fatalf("%s %s from another address: %v", d.method, d.path, err)
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return keeptest.Answer{Status: response.StatusCode, Header: response.Header, Body: string(got)}
}

// save keeps the members of a response under the name of the step.
func (w *world) save(d done) {
	if d.save == "" || d.answer.Status >= 300 {
		return
	}
	var members map[string]any
	if json.Unmarshal([]byte(d.answer.Body), &members) != nil {
		return
	}
	w.vars[d.save+".body"] = d.answer.Body
	for name, v := range members {
		if text, ok := v.(string); ok {
			w.vars[d.save+"."+name] = text
		}
	}
	for _, name := range []string{"id", "asyncReactorRequestId"} {
		if id, ok := members[name].(string); ok {
			w.vars[d.save] = id
			w.names.number(id)
		}
	}
}

// run carries out a sequence in a new tenant and reads its log.
func (s *site) run(c cast, symbols map[string]pair, which int, steps []step) *world {
	w := s.newWorld(c, symbols, which)
	for i, one := range steps {
		if !w.do(i+1, one) {
			w.names.skipped(i + 1)
		}
	}
	w.checkLog()
	return w
}
