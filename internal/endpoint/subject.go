package endpoint

import (
	"net/http"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// subject is the entity that calls of some rows are about.
type subject struct {
	rows   string // the beginning of their patterns; the method "*" is any method
	entity string // the entity type of the last id in it
	// operation is what the calls do to the entity, if the permission of the
	// row does not tell.
	operation audit.Operation
}

// subjects are for the log entries of refused calls. The first that matches a
// row counts; a row without one has no id of an entity in its path.
var subjects = []subject{
	{"* /tokens/{id}", audit.Token, ""},
	{"GET /applications/{id}/keys/{key_id}", audit.Key, audit.Read},
	{"DELETE /applications/{id}/keys/{key_id}", audit.Key, audit.Delete},
	{"* /applications/{id}", audit.Application, ""},
	{"* /sessions/{id}", audit.Session, ""},
	{"POST /sessions/authorize", audit.Session, audit.Update},
	{"POST /sessions", audit.Session, audit.Create},
	{"* /members/{id}", audit.Member, ""},
	{"GET /reactors/{id}/results", audit.Reactor, audit.Read},
	{"* /reactors/{id}", audit.Reactor, ""},
	{"* /proxies/{id}", audit.Proxy, ""},
}

// attemptsOf returns what a refused call of a row was about.
func attemptsOf(route httpapi.Route) func(*http.Request) audit.Attempt {
	method, path, _ := strings.Cut(route.Pattern, " ")
	for _, s := range subjects {
		m, begin, _ := strings.Cut(s.rows, " ")
		if m != "*" && m != method || !strings.HasPrefix(path, begin) {
			continue
		}
		return func(r *http.Request) audit.Attempt {
			a := audit.Attempt{Entity: s.entity, ID: r.PathValue("id"), Permission: route.Permission, Operation: s.operation}
			if s.entity == audit.Key {
				a.ID, a.Application = r.PathValue("key_id"), r.PathValue("id")
			}
			return a
		}
	}
	return func(*http.Request) audit.Attempt { return audit.Attempt{} }
}
