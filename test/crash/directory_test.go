package crash_test

import (
	"fmt"
	"net/http"

	"github.com/tokenkeep/tokenkeep/api"
)

// appKey is a key of an application of this actor's.
type appKey struct {
	of    *thing
	id    string
	text  string
	dead  bool
	asked *exchange // its deletion, when that was not answered
}

func (a *actor) useApplications() {
	t := a.some(2)
	if t == nil {
		name := a.number()
		a.create(&thing{entity: "application", name: name, list: "/applications?size=100", key: a.w.management}, "/applications",
			fmt.Sprintf(`{"name":%q,"type":"private","permissions":["token:read"],"create_key":false}`, name),
			state{"name": name, "permissions": []any{"token:read"}})
		return
	}
	if len(a.keys) > 0 && a.chance(2) {
		a.useKey(a.keys[a.random.IntN(len(a.keys))])
		return
	}
	switch a.random.IntN(5) {
	case 0:
		a.read(t)
	case 1:
		permission := []string{"token:read", "token:search", "token:use"}[a.random.IntN(3)]
		then := state{"name": t.name, "permissions": []any{permission}}
		if fmt.Sprint(then) == fmt.Sprint(t.is) {
			return // nobody could tell whether it was done
		}
		a.change(t, "PUT", fmt.Sprintf(`{"name":%q,"type":"private","permissions":[%q]}`, t.name, permission), "update", then)
	case 2, 3:
		// Its fourth key would be refused. A key that is made for nobody, because
		// the answer was lost, goes with its application.
		e := a.askOnce("POST", t.path+"/keys", a.w.management, "", entry{"key", "create", ""})
		if e.answered && !a.unexpected(e, http.StatusCreated, http.StatusConflict) && e.status == http.StatusCreated {
			a.keys = append(a.keys, &appKey{of: t, id: e.member("id"), text: e.member("key")})
		}
	case 4:
		a.change(t, "DELETE", "", "delete", nil)
	}
}

// useKey presents a key, which opens what it should, and then perhaps deletes it.
func (a *actor) useKey(k *appKey) {
	gone := k.dead || k.of.is == nil
	e := a.ask("GET", "/applications/key", k.text, "")
	switch {
	case !e.answered:
		return
	case gone:
		a.unexpected(e, http.StatusUnauthorized)
	case !a.unexpected(e, http.StatusOK) && e.member("id") != k.of.id():
		a.w.t.Errorf("%s: the key is of another application than %s", e, k.of.path)
	}
	if gone || a.chance(3) {
		return
	}
	e = a.ask("DELETE", k.of.path+"/keys/"+k.id, a.w.management, "", entry{"key", "delete", k.id})
	switch {
	case !e.answered:
		k.asked = e
	case !a.unexpected(e, http.StatusNoContent):
		k.dead = true
	}
}

// settleKeys finds out which keys still open something.
func (a *actor) settleKeys(log map[string][]api.LogEntry) {
	var kept []*appKey
	for _, k := range a.keys {
		if k.asked != nil && k.of.is != nil {
			a.w.agree(log, func(log map[string][]api.LogEntry) error {
				e := a.ask("GET", "/applications/key", k.text, "")
				k.dead = e.status == http.StatusUnauthorized
				if logged := k.asked.matches(log[k.asked.trace]) == 1; logged != k.dead {
					return fmt.Errorf("%s: the key is dead: %v, logged: %v", k.asked, k.dead, logged)
				}
				return nil
			})
			k.asked = nil
		}
		gone := k.dead || k.of.is == nil
		want := map[bool]int{true: http.StatusUnauthorized, false: http.StatusOK}[gone]
		if e := a.ask("GET", "/applications/key", k.text, ""); e.status != want {
			a.w.t.Errorf("%s, want %d", e, want)
		}
		if !gone {
			kept = append(kept, k)
		}
	}
	a.keys = kept
}

// administer changes the tenant itself and reads what is kept about it.
func (a *actor) administer() {
	if a.tenant == nil {
		a.tenant = &thing{entity: "tenant", path: "/tenants/self", key: a.w.management, is: state{"name": "Tenant"}}
	}
	switch a.random.IntN(6) {
	case 0:
		a.readTenant()
	case 1:
		name := a.number()
		e := a.ask("PUT", "/tenants/self", a.w.management, fmt.Sprintf(`{"name":%q,"settings":{"deduplicate_tokens":"false"}}`, name), entry{"tenant", "update", a.w.tenant})
		switch {
		case !e.answered:
			a.tenant.asked, a.tenant.then = e, state{"name": name}
		case !a.unexpected(e, http.StatusOK):
			a.tenant.is = state{"name": name}
		}
	case 2:
		e := a.askOnce("POST", "/tenants/self/callback-secret", a.w.management, "", entry{"tenant", "rotate", a.w.tenant})
		if e.answered && !a.unexpected(e, http.StatusOK) {
			a.secret = e.member("secret")
		}
		if !e.answered {
			a.secret = "" // the old one or a new one
		}
	case 3:
		e := a.ask("GET", "/tenants/self/callback-secret", a.w.management, "", entry{"tenant", "read", a.w.tenant})
		if e.answered && !a.unexpected(e, http.StatusOK) && a.secret != "" && e.member("secret") != a.secret {
			a.w.t.Errorf("%s: it is not the secret that was told", e.path)
		}
	case 4:
		e := a.ask("GET", "/logs", a.w.management, "", entry{"log", "read", "*"})
		a.unexpected(e, http.StatusOK)
	case 5:
		e := a.ask("GET", "/tenants/self/reports/usage", a.w.management, "", entry{"tenant", "read", ""})
		a.unexpected(e, http.StatusOK)
	}
}

func (a *actor) readTenant() {
	e := a.ask("GET", "/tenants/self", a.w.management, "", entry{"tenant", "read", a.w.tenant})
	if e.answered && !a.unexpected(e, http.StatusOK) && !a.tenant.is.matches(e) {
		a.w.t.Errorf("%s, want %v", e, a.tenant.is)
	}
}
