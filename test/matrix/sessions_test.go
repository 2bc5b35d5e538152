package matrix_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
)

// session makes a session of a tenant that nobody has authorized yet.
func (s *square) session(tenant string) (made api.CreatedSession) {
	s.t.Helper()
	key := s.holder(tenant, access.Public, "token:create").Key
	s.k.Call(s.t, "POST", "/sessions", key, "").Into(s.t, 201, &made)
	return made
}

// authorized makes a session that holds these permissions, authorized by a
// private application that holds them all.
func (s *square) authorized(tenant string, permissions ...string) api.CreatedSession {
	s.t.Helper()
	made := s.session(tenant)
	var all []string
	for _, p := range access.Private.Permissions() {
		all = append(all, p.String())
	}
	body := fmt.Sprintf(`{"nonce":%q,"permissions":["%s"]}`, made.Nonce, strings.Join(permissions, `","`))
	if got := s.k.Call(s.t, "POST", "/sessions/authorize", s.holder(tenant, access.Private, all...).Key, body); got.Status != 200 {
		s.t.Fatalf("the authorization = %s", got)
	}
	return made
}

// sessionID finds the id of a session, which only its managers see.
func (s *square) sessionID(tenant string, made api.CreatedSession) string {
	s.t.Helper()
	var list api.List[api.Session]
	s.k.Call(s.t, "GET", "/sessions?size=100", s.holder(tenant, access.Management, "session:read").Key, "").Into(s.t, 200, &list)
	for _, x := range list.Data {
		if strings.HasPrefix(made.SessionKey, x.Prefix) {
			return x.ID
		}
	}
	s.t.Fatalf("the session is not among %d", len(list.Data))
	return ""
}

// sessions calls the row with a session's key in each state that it has. It may
// do what it was granted on tokens, and nothing else.
func (s *square) sessions() {
	tenant, another := s.k.Tenant(s.t).Tenant.ID, s.k.Tenant(s.t).Tenant.ID // the first two may be gone
	target, id := s.target(tenant)
	refused := func(caller, key string, status int, detail string) {
		s.t.Helper()
		got := s.call(key, target, id)
		s.want(caller, got, status)
		title := map[int]string{401: "Unauthorized", 403: "Forbidden"}[status]
		if want := fmt.Sprintf(`{"title":%q,"status":%d,"detail":%q}`, title, status, detail); s.problem(got) != want {
			s.t.Errorf("%s for %s = %s, want %s", s.route.Pattern, caller, got.Body, want)
		}
	}
	var others []string // permissions of sessions but for the row's
	for _, p := range access.Private.Permissions() {
		if p != s.route.Permission {
			others = append(others, p.String())
		}
	}
	waiting := s.session(tenant)
	refused("a session that is not authorized", waiting.SessionKey, 403, "the session is not authorized yet")
	granted := others
	if s.onTokens() {
		granted = []string{s.route.Permission.String()}
	}
	ended, live, expired := s.authorized(tenant, granted...), s.authorized(tenant, granted...), s.authorized(tenant, granted...)
	manager := s.holder(tenant, access.Management, "session:delete").Key
	if got := s.k.Call(s.t, "DELETE", "/sessions/"+s.sessionID(tenant, ended), manager, ""); got.Status != 204 {
		s.t.Fatalf("the end of a session = %s", got)
	}
	refused("a session that was ended", ended.SessionKey, 401, "unknown API key")
	switch {
	case s.onTokens():
		refused("a session with all but the permission", s.authorized(tenant, others...).SessionKey, 403, "missing permission "+s.route.Permission.String())
		s.want("a session with the permission", s.call(live.SessionKey, target, id), s.row.served)
	case s.row.holders == nil:
		s.want("a session", s.call(live.SessionKey, target, id), s.row.served)
	case ownKeyOf(s.route) != "":
		refused("a session with every permission", live.SessionKey, 403, fmt.Sprintf("the key must be of a %s application", ownKeyOf(s.route)))
	default:
		refused("a session with every permission", live.SessionKey, 403, "missing permission "+s.route.Permission.String())
	}
	if s.onTokens() && s.named() {
		target, id = s.target(tenant)
		s.want("a session of another tenant", s.call(s.authorized(another, granted...).SessionKey, target, id), s.absent())
	}
	s.clock.Advance(3 * time.Minute)
	s.want("a session that has expired", s.call(expired.SessionKey, target, id), 401) // in other words once it is swept
}
