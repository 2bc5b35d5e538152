package knowledge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
)

// state is a token as the auditor sees it, with what the masker sees of it.
type state struct {
	ID                    string            `json:"id"`
	Type                  string            `json:"type"`
	Data                  any               `json:"data"`
	Mask                  any               `json:"mask"`
	Containers            []string          `json:"containers"`
	Fingerprint           string            `json:"fingerprint"`
	FingerprintExpression string            `json:"fingerprint_expression"`
	SearchIndexes         []string          `json:"search_indexes"`
	Metadata              map[string]string `json:"metadata"`
	ExpiresAt             string            `json:"expires_at"`
	Card                  any               `json:"card"`
	Bank                  any               `json:"bank"`

	leaves []string // of the data, those that are long enough to be recognized
	shown  []string // what the masker sees of the data
	side   []string // what nobody sees who may not read the token at all
	said   string   // everything that is not data and that all readers see
}

// recognizable is how long a text must be to be no coincidence.
const recognizable = 6

// leavesOf returns the scalars in a JSON value, by their path.
func leavesOf(v any, path string, into map[string]string) map[string]string {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			leavesOf(member, path+"."+name, into)
		}
	case []any:
		for i, item := range v {
			leavesOf(item, fmt.Sprint(path, ".", i), into)
		}
	case nil:
	default:
		into[path] = fmt.Sprint(v)
	}
	return into
}

func recognizableLeaves(values ...any) (list []string) {
	for _, v := range values {
		for _, leaf := range leavesOf(v, "", map[string]string{}) {
			if len(leaf) >= recognizable && !slices.Contains(list, leaf) {
				list = append(list, leaf)
			}
		}
	}
	slices.Sort(list)
	return list
}

// canary matches the texts of high entropy that sequences put into what is not
// data.
var canary = regexp.MustCompile(`canary-[a-z]{14}`)

// look reads all tokens, in plaintext and masked.
func (w *world) look() {
	w.tokens = map[string]*state{}
	for _, reader := range []string{"auditor", "masker"} {
		for start, more := "", true; more; more = start != "" {
			var page struct {
				Pagination api.Cursor        `json:"pagination"`
				Data       []json.RawMessage `json:"data"`
			}
			w.k.Call(w.t, "GET", "/v2/tokens?size=100&start="+url.QueryEscape(start), w.apps[reader].key, "").Into(w.t, http.StatusOK, &page)
			for _, item := range page.Data {
				s := &state{}
				if err := json.Unmarshal(item, s); err != nil {
					w.t.Fatal(err)
				}
				if reader == "masker" {
					if known := w.tokens[s.ID]; known != nil {
						known.shown = recognizableLeaves(s.Data, s.Card, s.Bank)
					}
					continue
				}
				s.leaves = recognizableLeaves(s.Data)
				s.said = fmt.Sprint(s.Metadata, s.Mask, s.FingerprintExpression, s.SearchIndexes)
				s.side = canary.FindAllString(string(item), -1)
				s.side = slices.DeleteFunc(s.side, func(text string) bool { return slices.Contains(s.leaves, text) })
				w.tokens[s.ID] = s
			}
			start = page.Pagination.Next
		}
	}
}

// may is how much of a token an actor's permission shows, by what it was
// granted and, for a session, by what its authorizer may do now.
func (w *world) may(a *actor, permission string, t *state) level {
	if a.app == nil || t == nil {
		return nothing
	}
	return w.mayIn(a, permission, t.ID, t.Containers)
}

func (w *world) mayIn(a *actor, permission, id string, containers []string) level {
	if a.session == nil {
		if a.app.gone || !slices.Contains(typePermissions[a.app.kind], permission) {
			return nothing
		}
		return a.app.on(permission, id, containers)
	}
	s := a.session
	if s.dead != "" || s.authorizer == nil {
		return nothing
	}
	own := s.grant.on(permission, id, containers)
	if w.settings["uncapped_sessions"] == "true" {
		return own
	}
	return min(own, s.authorizer.on(permission, id, containers))
}

// maySeeFingerprint: with token:read or token:use and reveal; where the tenant
// says so, with mask.
func (w *world) maySeeFingerprint(a *actor, t *state) bool {
	needed := revealed
	if w.settings["masked_fingerprints"] == "true" {
		needed = masked
	}
	return max(w.may(a, "token:read", t), w.may(a, "token:use", t)) >= needed
}

// follow keeps up with what a step changed beside tokens.
func (w *world) follow(d done) {
	for id := range d.after {
		if d.before[id] == nil {
			w.made[id], w.changed[id] = d.actor.name, d.actor.name
			if d.path == "/tokens" {
				w.asked[id] = patchOf(d.body)
			}
		} else if !reflect.DeepEqual(d.before[id], d.after[id]) {
			w.changed[id] = d.actor.name
			if patch := patchOf(d.body); patch["mask"] != nil || patch["search_indexes"] != nil {
				delete(w.asked, id)
			}
		}
	}
	if d.answer.Status >= 300 {
		return
	}
	parts := strings.Split(strings.Trim(d.path, "/"), "/")
	switch d.method + " /" + parts[0] {
	case "POST /sessions":
		w.followSession(d, parts)
	case "PUT /applications", "POST /applications", "DELETE /applications":
		w.followApplication(d, parts)
	case "DELETE /sessions":
		for _, s := range w.sessions {
			if w.vars[s.name+".id"] == parts[1] {
				s.dead = "it was deleted"
			}
		}
	case "GET /sessions": // the only place where ids of sessions stand
		var list api.List[api.Session]
		if json.Unmarshal([]byte(d.answer.Body), &list) == nil {
			for _, s := range w.sessions {
				for _, found := range list.Data {
					if strings.HasPrefix(s.key, found.Prefix) {
						w.vars[s.name+".id"] = found.ID
					}
				}
			}
		}
	case "POST /proxies", "PUT /proxies", "PATCH /proxies":
		w.followProxy(d, parts)
	case "PUT /tenants":
		var in struct{ Settings map[string]string }
		if json.Unmarshal([]byte(d.body), &in) == nil {
			w.settings = in.Settings
		}
	}
}

func (w *world) followSession(d done, parts []string) {
	if len(parts) == 1 {
		if d.save != "" && w.vars[d.save+".session_key"] != "" {
			w.sessions[d.save] = &session{name: d.save, key: w.vars[d.save+".session_key"], maker: d.actor, by: d.actor.app, byKey: d.actor.keyID}
		}
		return
	}
	var in struct {
		Nonce       string
		Permissions []string
		Rules       []api.Rule
	}
	if json.Unmarshal([]byte(d.body), &in) != nil {
		return
	}
	for name, s := range w.sessions {
		if w.vars[name+".nonce"] == in.Nonce {
			s.authorizer, s.authorizingKey, s.grant = d.actor.app, d.actor.keyID, grant{in.Permissions, in.Rules}
		}
	}
}

func (w *world) followApplication(d done, parts []string) {
	if len(parts) < 2 {
		return
	}
	var of *app
	for _, a := range w.apps {
		if a.id == parts[1] {
			of = a
		}
	}
	if of == nil {
		return
	}
	end := func(why, key string) {
		for _, s := range w.sessions {
			if s.by == of && (key == "" || s.byKey == key) || s.authorizer == of && (key == "" || s.authorizingKey == key) {
				s.dead = why
			}
		}
	}
	var in struct {
		Permissions []string
		Rules       []api.Rule
	}
	var out struct {
		ID, Key string
		Keys    []struct{ ID string }
	}
	_ = json.Unmarshal([]byte(d.answer.Body), &out)
	switch {
	case d.method == http.MethodPut && json.Unmarshal([]byte(d.body), &in) == nil:
		of.grant = grant{in.Permissions, in.Rules}
	case d.method == http.MethodPost && parts[len(parts)-1] == "regenerate":
		end("the key of its application was regenerated", "")
		if out.Key != "" {
			of.key = out.Key
		}
		if len(out.Keys) > 0 {
			of.keyID = out.Keys[len(out.Keys)-1].ID
		}
	case d.method == http.MethodDelete && len(parts) == 2:
		of.gone = true
		end("its application was deleted", "")
	case d.method == http.MethodDelete && len(parts) == 4:
		end("the key that made or authorized it was deleted", parts[3])
	}
}

// followProxy keeps the application of a proxy. It goes away only when that is
// written out: what was read can be written back unchanged.
func (w *world) followProxy(d done, parts []string) {
	var in map[string]any
	if json.Unmarshal([]byte(d.body), &in) != nil {
		return
	}
	id := w.vars[d.save]
	if len(parts) > 1 {
		id = parts[1]
	}
	p := w.proxies[id]
	switch {
	case len(parts) > 2: // a preview, or another key
		return
	case p == nil && d.method == http.MethodPost:
		p = &proxy{requireAuth: true}
		w.proxies[id] = p
		w.vars["proxy of "+w.vars[d.save+".key"]] = id
	case p == nil:
		return
	}
	if auth, given := in["require_auth"].(bool); given {
		p.requireAuth = auth
	} else if d.method == http.MethodPut {
		p.requireAuth = true
	}
	if reference, ok := in["application"].(map[string]any); ok {
		p.application, _ = reference["id"].(string)
	} else if _, given := in["application"]; given || d.method == http.MethodPut && p.requireAuth && in["application_id"] == nil {
		p.application = ""
	}
	if id, ok := in["application_id"].(string); ok {
		p.application = id
	}
}

// kinds of endpoints, by what their responses may show.
type endpoint int

const (
	elsewhere endpoint = iota
	reading
	searching
	writing
	previewing
	proxying
	reacting
)

func (d done) endpoint() endpoint {
	path, _, _ := strings.Cut(d.path, "?")
	switch {
	case strings.HasSuffix(path, "/tokens/search"):
		return searching
	case path == "/detokenize", d.method == http.MethodGet && (strings.HasPrefix(path, "/tokens") || strings.HasPrefix(path, "/v2/tokens")):
		return reading
	case path == "/tokens", path == "/tokenize", strings.HasPrefix(path, "/tokens/"):
		return writing
	case strings.HasPrefix(path, "/proxies/") && strings.HasSuffix(path, "/preview"):
		return previewing
	case strings.HasPrefix(path, "/proxy"):
		return proxying
	case strings.HasPrefix(path, "/reactors/") && (strings.HasSuffix(path, "/react") || strings.Contains(path, "/results/")):
		return reacting
	}
	return elsewhere
}

// shows is how much of a token the response to a step may show.
func (w *world) shows(d done, t *state) level {
	if now := d.before[t.ID]; now != nil {
		t = now // what was allowed when the call was made
	}
	switch d.endpoint() {
	case reading:
		return w.may(d.actor, "token:read", t)
	case searching:
		return w.may(d.actor, "token:search", t)
	case reacting:
		return w.may(d.actor, "token:use", t)
	case writing, previewing:
		return min(masked, w.may(d.actor, "token:read", t))
	}
	return nothing
}

// received is everything that came back to the caller.
func (d done) received() string {
	var b strings.Builder
	b.WriteString(d.answer.Body)
	for name, values := range d.answer.Header {
		if name != "Date" {
			b.WriteString("\n" + strings.Join(values, "\n"))
		}
	}
	return b.String()
}

// check compares a step with what the rules allow.
func (w *world) check(d done) {
	if d.want != 0 && d.answer.Status != d.want {
		w.find(d.number, claimStatus, "it is %d, want %d", d.answer.Status, d.want)
	}
	if s := d.actor.session; s != nil && s.dead != "" && d.answer.Status != http.StatusUnauthorized {
		w.find(d.number, claimSession, "%s, and its key still gets %d", s.dead, d.answer.Status)
	}
	all := map[string]*state{}
	for _, m := range []map[string]*state{d.before, d.after} {
		for id, t := range m {
			all[id] = t
		}
	}
	w.scan(d, all, d.received(), "the response", func(t *state) level { return w.shows(d, t) })
	if d.arrived != "" {
		w.scan(d, all, d.arrived, "the caller's own destination", func(t *state) level { return w.may(d.actor, "token:use", t) })
	}
	if d.sent != "" {
		w.checkSent(d, all)
	}
	w.checkFingerprints(d, all)
	w.checkIDs(d, all)
	w.checkGivenOnce(d)
	w.checkChanges(d)
	w.checkDeduplication(d)
	w.checkReplay(d)
}

// knows reports whether an actor sent a text itself.
func (a *actor) knows(text string) bool { return strings.Contains(a.sent.String(), text) }

// knowsData reports whether an actor sent all that is protected in a token.
func (a *actor) knowsData(t *state) bool {
	for _, leaf := range t.leaves {
		if !a.knows(leaf) {
			return false
		}
	}
	return true
}

// window is how many digits of a number in a row are more than a mask shows.
const window = 9

// scan looks for protected texts in what somebody received.
func (w *world) scan(d done, all map[string]*state, text, where string, allowed func(*state) level) {
	written := drawn.ReplaceAllString(text, "#") // a short mask may stand in an id or a time by chance
	// ok reports whether some token that has the text may be shown so far.
	ok := func(needed level, has func(*state) bool) bool {
		for _, t := range all {
			if has(t) && allowed(t) >= needed {
				return true
			}
		}
		return false
	}
	for _, t := range all {
		for _, leaf := range t.leaves {
			if d.actor.knows(leaf) {
				continue
			}
			found := leaf
			if !strings.Contains(text, leaf) {
				if found = partOf(leaf, text); found == "" || d.actor.knows(found) {
					continue
				}
			}
			if ok(revealed, func(t *state) bool { return slices.Contains(t.leaves, leaf) }) ||
				ok(redacted, func(t *state) bool { return strings.Contains(t.said, found) }) ||
				ok(masked, func(t *state) bool {
					return slices.ContainsFunc(t.shown, func(shown string) bool { return strings.Contains(shown, found) })
				}) {
				continue
			}
			w.find(d.number, claimPlaintext, "%s holds %q of the token %s, of which %s may be shown %s",
				where, found, w.nameOf(t.ID), d.actor.name, allowed(t))
		}
		for _, shown := range t.shown {
			if !strings.Contains(written, shown) || d.actor.knows(shown) || ok(masked, func(t *state) bool { return slices.Contains(t.shown, shown) }) {
				continue
			}
			known := false // from data that it sent itself
			for _, other := range all {
				known = known || slices.Contains(other.shown, shown) && d.actor.knowsData(other)
			}
			if !known {
				w.find(d.number, claimMask, "%s holds %q of the token %s, of which %s may be shown %s",
					where, shown, w.nameOf(t.ID), d.actor.name, allowed(t))
			}
		}
		for _, side := range t.side {
			if strings.Contains(text, side) && !d.actor.knows(side) && !ok(redacted, func(t *state) bool { return slices.Contains(t.side, side) }) {
				w.find(d.number, claimSide, "%s holds %q of the token %s, of which %s may be shown %s",
					where, side, w.nameOf(t.ID), d.actor.name, allowed(t))
			}
		}
		if data, isObject := t.Data.(map[string]any); isObject {
			if cvc, has := data["cvc"].(string); has && strings.Contains(text, `"cvc":"`+cvc+`"`) && !d.actor.knows(`"cvc":"`+cvc+`"`) &&
				!ok(revealed, func(t *state) bool { return true }) {
				w.find(d.number, claimPlaintext, "%s holds the cvc of the token %s", where, w.nameOf(t.ID))
			}
		}
	}
}

// partOf returns a run of digits of a number that stands in a text and is
// longer than what a mask shows.
func partOf(number, text string) string {
	if strings.Trim(number, "0123456789") != "" {
		return ""
	}
	for i := 0; i+window <= len(number); i++ {
		if part := number[i : i+window]; strings.Contains(text, part) {
			return part
		}
	}
	return ""
}

// nameOf returns the name of a token in the sequence, for people to read.
func (w *world) nameOf(id string) string {
	for name, value := range w.vars {
		if value == id && !strings.Contains(name, ".") {
			return name
		}
	}
	return id
}

// checkSent checks what a proxy sent to the tenant's destination.
func (w *world) checkSent(d done, all map[string]*state) {
	w.scan(d, all, d.sent, "what the proxy sent", func(t *state) level {
		if d.proxy == nil || d.proxy.requireAuth {
			return w.may(d.actor, "token:use", t)
		}
		if d.proxy.application == "" {
			if w.settings["disable_anonymous_detokenization"] == "true" {
				return nothing
			}
			return revealed
		}
		for _, a := range w.apps {
			if a.id == d.proxy.application {
				return w.may(&actor{app: a}, "token:use", t)
			}
		}
		return nothing
	})
}

func (w *world) checkFingerprints(d done, all map[string]*state) {
	text := d.received() + d.arrived
	for _, t := range all {
		if t.Fingerprint == "" || !strings.Contains(text, t.Fingerprint) || d.actor.knows(t.Fingerprint) {
			continue
		}
		allowed := false
		for _, other := range all {
			then := other
			if before := d.before[other.ID]; before != nil {
				then = before
			}
			allowed = allowed || other.Fingerprint == t.Fingerprint && w.maySeeFingerprint(d.actor, then)
		}
		if !allowed {
			w.find(d.number, claimFingerprint, "the response holds the fingerprint of the token %s, on which %s has token:read %s and token:use %s",
				w.nameOf(t.ID), d.actor.name, w.may(d.actor, "token:read", t), w.may(d.actor, "token:use", t))
		}
	}
}

// checkIDs: a caller who may do nothing with a token is not told that it exists.
func (w *world) checkIDs(d done, all map[string]*state) {
	if d.actor.app != nil && d.actor.app.kind == "management" {
		return // logs and explanations name tokens
	}
	for id, t := range all {
		if d.before[id] == nil || d.actor.knows(id) || !strings.Contains(d.received(), id) || d.answer.Status >= 400 {
			continue
		}
		most := nothing
		for permission := range plain {
			if permission != "token:create" {
				most = max(most, w.may(d.actor, permission, t))
			}
		}
		if most == nothing && w.made[id] != d.actor.name && w.settings["blind_deduplication"] != "true" {
			w.find(d.number, claimIDs, "the response holds the id of the token %s of %s, on which %s has no permission", w.nameOf(id), w.made[id], d.actor.name)
		}
	}
}

// once are the members that are shown to one caller and to nobody else.
var once = regexp.MustCompile(`"(session_key|nonce|key)":"([^"]+)"`)

func (w *world) checkGivenOnce(d done) {
	if strings.HasPrefix(d.path, "/proxies") {
		return // the keys of proxies are shown on every read
	}
	for _, m := range once.FindAllStringSubmatch(d.answer.Body, -1) {
		owner := w.given[m[2]]
		if owner == "" {
			w.given[m[2]] = d.actor.name
		} else if owner != d.actor.name && !d.actor.knows(m[2]) {
			w.find(d.number, claimKeys, "%s receives the %s that %s received before", d.actor.name, m[1], owner)
		}
	}
}

// patchOf returns a body as an object.
func patchOf(body string) (patch map[string]any) {
	_ = json.Unmarshal([]byte(body), &patch)
	return patch
}

// remains reports whether something of the stored data is left after a patch:
// a leaf, security codes aside, that the patch did not bring.
func remains(after *state, patch map[string]any) bool {
	sent := leavesOf(patch["data"], "", map[string]string{})
	for path := range leavesOf(after.Data, "", map[string]string{}) {
		if _, brought := sent[path]; !brought && path != ".cvc" {
			return true
		}
	}
	return false
}

// checkChanges checks who may change what of a token: deriving is reading.
func (w *world) checkChanges(d done) {
	for id, after := range d.after {
		before := d.before[id]
		if before == nil {
			if w.mayIn(d.actor, "token:create", id, after.Containers) == nothing {
				w.find(d.number, claimCreate, "%s may not create in %v", d.actor.name, after.Containers)
			}
			continue
		}
		if reflect.DeepEqual(before, after) {
			continue
		}
		patch := patchOf(d.body)
		name, reads := w.nameOf(id), w.may(d.actor, "token:read", before)
		if d.method != http.MethodPatch || !strings.Contains(d.path, url.PathEscape(id)) {
			w.find(d.number, claimPatch, "the token %s is another than before", name)
			continue
		}
		if w.may(d.actor, "token:update", before) == nothing || w.mayIn(d.actor, "token:update", id, after.Containers) == nothing {
			w.find(d.number, claimUpdate, "%s has no token:update on %v or %v", d.actor.name, before.Containers, after.Containers)
		}
		var derived []string
		if !reflect.DeepEqual(before.Mask, after.Mask) {
			derived = append(derived, "mask")
		}
		if before.FingerprintExpression != after.FingerprintExpression {
			derived = append(derived, "fingerprint_expression")
		}
		if !slices.Equal(before.SearchIndexes, after.SearchIndexes) {
			derived = append(derived, "search_indexes")
		}
		if len(derived) > 0 && reads < revealed && (d.actor.public() || remains(after, patch)) {
			w.find(d.number, claimDerive, "%s changed %v of the token %s, on which it has token:read %s", d.actor.name, derived, name, reads)
		}
		for _, container := range before.Containers {
			if !slices.Contains(after.Containers, container) && reads < revealed {
				w.find(d.number, claimDerive, "%s moved the token %s from %v to %v, with token:read %s", d.actor.name, name, before.Containers, after.Containers, reads)
				break
			}
		}
		if d.actor.public() && (len(derived) > 0 || !slices.Equal(before.Containers, after.Containers) || before.ExpiresAt != after.ExpiresAt) {
			w.find(d.number, claimPublic, "%s changed more of the token %s", d.actor.name, name)
		}
	}
	for id, before := range d.before {
		if d.after[id] == nil && (d.method != http.MethodDelete || w.may(d.actor, "token:delete", before) == nothing) && before.ExpiresAt == "" {
			w.find(d.number, claimDelete, "the token %s is gone", w.nameOf(id))
		}
	}
}

// tokensIn returns the tokens in a response.
func tokensIn(body string) (list []map[string]any) {
	var v any
	if json.Unmarshal([]byte(body), &v) != nil {
		return nil
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			_, id := v["id"].(string)
			_, containers := v["containers"]
			if _, kind := v["type"].(string); id && kind && containers {
				list = append(list, v)
				return
			}
			for _, member := range v {
				walk(member)
			}
		case []any:
			for _, item := range v {
				walk(item)
			}
		}
	}
	walk(v)
	return list
}

// checkDeduplication checks every token that a create returned and that was
// there before: the caller may see its fingerprint, nobody planted it, and it
// is what the caller sent.
func (w *world) checkDeduplication(d done) {
	if d.method != http.MethodPost || d.path != "/tokens" && d.path != "/tokenize" || d.answer.Status >= 300 || d.replayed {
		return
	}
	for _, made := range tokensIn(d.answer.Body) {
		id := made["id"].(string)
		existing := d.before[id]
		if existing == nil {
			continue
		}
		name := w.nameOf(id)
		if !w.maySeeFingerprint(d.actor, existing) && w.settings["blind_deduplication"] != "true" {
			w.find(d.number, claimExists, "%s receives the token %s, on which it has token:read %s and token:use %s",
				d.actor.name, name, w.may(d.actor, "token:read", existing), w.may(d.actor, "token:use", existing))
		}
		for what, by := range map[string]string{"created": w.made[id], "last changed": w.changed[id]} {
			maker := w.who(by)
			if maker != nil && (maker.public() || maker.session != nil) && by != d.actor.name {
				w.find(d.number, claimPlanted, "%s receives the token %s, which %s %s", d.actor.name, name, by, what)
			}
		}
		if d.path == "/tokens" {
			sent := patchOf(d.body)
			if sentData := leavesOf(sent["data"], "", map[string]string{}); w.differs(sentData, existing) {
				w.find(d.number, claimSame, "%s receives the token %s, which holds other data", d.actor.name, name)
			}
			if containers, ok := sent["containers"].([]any); ok && fmt.Sprint(containers) != fmt.Sprint(existing.Containers) {
				w.find(d.number, claimSame, "%s receives the token %s, which is in other containers", d.actor.name, name)
			}
			if id, named := sent["id"].(string); named && id != existing.ID {
				w.find(d.number, claimSame, "%s receives the token %s, and asked for another id", d.actor.name, name)
			}
			if until, _ := sent["expires_at"].(string); earlier(existing.ExpiresAt, until) {
				w.find(d.number, claimSame, "%s receives the token %s, which expires earlier", d.actor.name, name)
			}
			for _, member := range []string{"mask", "search_indexes"} {
				if asked := w.asked[id]; asked != nil && !reflect.DeepEqual(asked[member], sent[member]) {
					w.find(d.number, claimSame, "%s receives the token %s, which has other %s", d.actor.name, name, member)
				}
			}
		}
	}
}

// earlier reports whether a token that expires at one time does not last until
// the other; both may be never.
func earlier(expires, until string) bool {
	at, err := time.Parse(time.RFC3339Nano, expires)
	if err != nil {
		return false // never
	}
	wanted, err := time.Parse(time.RFC3339Nano, until)
	return err != nil || at.Before(wanted)
}

// differs compares what is protected in data that was sent with a token.
func (w *world) differs(sent map[string]string, t *state) bool {
	have := leavesOf(t.Data, "", map[string]string{})
	for path, value := range sent {
		if path == ".cvc" || strings.HasPrefix(path, ".expiration_") {
			continue
		}
		if have[path] != value {
			return true
		}
	}
	return false
}

// answered is a response to an idempotency key that was not a replay. A key of
// a public application may have several: it counts for a body, and a short one
// for a client address too.
type answered struct {
	body     string // of the request
	address  bool   // the request came from another address
	response string
	reads    map[string]level
}

// checkReplay checks responses that were stored for an idempotency key.
func (w *world) checkReplay(d done) {
	key := w.headerOf(d.header, headerIdem)
	if key == "" || d.answer.Status >= 300 || d.endpoint() == proxying {
		return
	}
	who := d.actor.app.id
	if d.actor.session != nil {
		who = d.actor.session.key
	}
	at := strings.Join([]string{who, d.method, d.path, key}, " ")
	if !d.replayed {
		first := answered{body: d.body, address: d.address, response: d.answer.Body, reads: map[string]level{}}
		for _, t := range tokensIn(d.answer.Body) {
			id := t["id"].(string)
			first.reads[id] = w.may(d.actor, "token:read", d.after[id])
		}
		w.answered[at] = append(w.answered[at], first)
		return
	}
	var first answered // the response that is replayed
	for _, a := range w.answered[at] {
		if a.response == d.answer.Body {
			first = a
			break
		}
	}
	if d.actor.public() {
		switch {
		case first.body != d.body:
			w.find(d.number, claimBody, "%s receives the stored response to another request", d.actor.name)
		case len(key) < 22 && first.address != d.address:
			w.find(d.number, claimAddress, "%s receives the stored response to another client", d.actor.name)
		case len(key) < 22 && d.path == "/sessions":
			w.find(d.number, claimShort, "%s receives the stored response to another request", d.actor.name)
		}
	}
	permission := "token:create"
	if d.method == http.MethodPatch {
		permission = "token:update"
	}
	for _, shown := range tokensIn(d.answer.Body) {
		id := shown["id"].(string)
		t := d.before[id]
		if t == nil {
			continue
		}
		if w.may(d.actor, permission, t) == nothing {
			w.find(d.number, claimPermission, "%s receives the stored response about the token %s without %s", d.actor.name, w.nameOf(id), permission)
		}
		if now := w.may(d.actor, "token:read", t); now < first.reads[id] {
			w.find(d.number, claimAccess, "%s receives the stored response about the token %s with token:read %s, which was %s", d.actor.name, w.nameOf(id), now, first.reads[id])
		}
	}
}
