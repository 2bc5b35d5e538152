package knowledge_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/tokenkeep/tokenkeep/api"
)

// readLog returns the log of the tenant by the trace ids of the steps.
func (w *world) readLog() map[string][]api.LogEntry {
	all := map[string][]api.LogEntry{}
	for page, pages := 1, 1; page <= pages; page++ {
		var list struct {
			Pagination struct {
				TotalPages int `json:"total_pages"`
			} `json:"pagination"`
			Data []api.LogEntry `json:"data"`
		}
		w.k.Call(w.t, "GET", fmt.Sprintf("/logs?size=100&page=%d", page), w.apps["manager"].key, "").Into(w.t, http.StatusOK, &list)
		pages = list.Pagination.TotalPages
		for _, e := range list.Data {
			// Reading the log may shift its pages: an entry can be there twice.
			if !slices.ContainsFunc(all[e.TraceID], func(have api.LogEntry) bool { return have.ID == e.ID }) {
				all[e.TraceID] = append(all[e.TraceID], e)
			}
		}
	}
	return all
}

var expressionID = regexp.MustCompile(`\{\{\s*(?:token:\s*)?([A-Za-z0-9._-]+?)\s*[|}]`)

// touched are the tokens that a step was about, as far as they existed.
func (d done) touched() (ids []string) {
	add := func(id string) {
		if (d.before[id] != nil || d.after[id] != nil) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	path, _, _ := strings.Cut(d.path, "?")
	switch d.endpoint() {
	case previewing, proxying, reacting:
		for _, m := range expressionID.FindAllStringSubmatch(d.body, -1) {
			add(m[1])
		}
	case reading, searching, writing:
		if path == "/detokenize" {
			for _, m := range expressionID.FindAllStringSubmatch(d.body, -1) {
				add(m[1])
			}
			break
		}
		if id, named := strings.CutPrefix(path, "/tokens/"); named {
			add(id)
		}
		for _, t := range tokensIn(d.answer.Body) {
			add(t["id"].(string))
		}
		for id := range d.after {
			if d.before[id] == nil {
				add(id)
			}
		}
	}
	return ids
}

// checkLog checks that every token that a step showed, used or changed is in
// the log with the caller, and so is every token that a caller was refused.
func (w *world) checkLog() {
	log := w.readLog()
	for _, d := range w.done {
		ids := d.touched()
		status := d.answer.Status
		entries := log[d.trace]
		of := func(id, outcome string) bool {
			return slices.ContainsFunc(entries, func(e api.LogEntry) bool {
				if e.EntityID != id || e.Outcome != outcome {
					return false
				}
				if d.actor.app == nil || d.proxy != nil && !d.proxy.requireAuth { // nobody
					return e.ActorID == ""
				}
				return e.ActorID == d.actor.app.id && (d.actor.session != nil) == (e.SessionID != "")
			})
		}
		switch {
		case status < 300:
			for _, id := range ids {
				if !of(id, "allowed") {
					w.find(d.number, claimLogged, "it has no entry for the token %s and %s", w.nameOf(id), d.actor.name)
				}
			}
		case status == http.StatusForbidden && d.named:
			named := slices.ContainsFunc(ids, func(id string) bool { return of(id, "denied") })
			if e := d.endpoint(); e == proxying || e == reacting { // or what the tokens were to be used by
				named = named || slices.ContainsFunc(entries, func(e api.LogEntry) bool { return e.Outcome == "denied" && e.EntityID != "*" })
			}
			if !named {
				w.find(d.number, claimRefused, "it has %s for the token %s", describe(entries), w.nameOf(ids[0]))
			}
		}
		if strings.Contains(d.path, "/results/") && status != http.StatusNotFound && status < 500 && len(entries) == 0 {
			w.find(d.number, claimResult, "it has no entry of the read of %s", d.actor.name)
		}
	}
}

// namesTokens reports whether a call named tokens that the log must name too
// when it is refused: in its path, or in a body that the server reads because
// the caller holds the permission somewhere. Keys that do not work any more are
// no known callers.
func (d done) namesTokens() bool {
	a := d.actor
	if len(d.touched()) == 0 || a.app == nil || a.session != nil && a.session.dead != "" {
		return false
	}
	switch d.endpoint() {
	case previewing:
		return false // it is not the viewer that is refused
	case reading:
		if d.path == "/detokenize" {
			return a.session == nil && a.app.kind == "private" && a.app.somewhere("token:read")
		}
	}
	return true
}

func describe(entries []api.LogEntry) string {
	if len(entries) == 0 {
		return "no entry"
	}
	var list []string
	for _, e := range entries {
		list = append(list, fmt.Sprintf("%q of %s %q", e.Message, e.EntityType, e.EntityID))
	}
	return strings.Join(list, ", ")
}
