package contract_test

import (
	"testing"
	"time"
)

const (
	settings = `{"fingerprint_tokens":"true","deduplicate_tokens":"false","disable_ephemeral_proxy":"false",` +
		`"disable_anonymous_detokenization":"false","uncapped_sessions":"false","blind_deduplication":"false","masked_fingerprints":"false","numeric_ids":"false","cvc_retention":"1h"}`
	changedSettings = `{"fingerprint_tokens":"false","deduplicate_tokens":"true","disable_ephemeral_proxy":"false",` +
		`"disable_anonymous_detokenization":"false","uncapped_sessions":"false","blind_deduplication":"false","masked_fingerprints":"false","numeric_ids":"false","cvc_retention":"10m"}`
)

func TestTheTenant(t *testing.T) {
	w := newWalk(t)
	w.walk(
		step{name: "a new tenant was made by nobody and never changed", call: "GET /tenants/self", status: 200,
			want: `{"id":"{tenant}","name":"Tenant","settings":` + settings + `,"created_at":"2031-05-06T07:08:09.123456+00:00"}`},
		step{name: "a trailing slash is no other path", call: "GET /tenants/self/", status: 200,
			want: `{"id":"<uuid>","name":"<text>","settings":` + settings + `,"created_at":"<time>"}`},
		step{name: "PUT replaces the name and the settings", call: "PUT /tenants/self", status: 200,
			body: `{"name":"Ünïcode 🔑","settings":{"fingerprint_tokens":"false","deduplicate_tokens":"true","cvc_retention":"10m"},"unknown":1}`,
			want: `{"id":"{tenant}","name":"Ünïcode 🔑","settings":` + changedSettings + `,"created_at":"2031-05-06T07:08:09.123456+00:00",` +
				`"modified_by":"{manager}","modified_at":"2031-05-06T07:08:12.123456+00:00"}`},
		step{name: "a setting that is null is one left out", call: "PUT /tenants/self", status: 200,
			body: `{"name":"Tenant","settings":{"fingerprint_tokens":null}}`,
			want: `{"id":"{tenant}","name":"Tenant","settings":` + settings + `,"created_at":"<time>","modified_by":"{manager}","modified_at":"<time>"}`},
		step{name: "what PUT leaves out returns to its default", call: "PUT /tenants/self", status: 200,
			body: `{"name":"Tenant","settings":null}`,
			want: `{"id":"{tenant}","name":"Tenant","settings":` + settings + `,"created_at":"<time>","modified_by":"{manager}","modified_at":"<time>"}`},
		step{name: "an unknown setting", call: "PUT /tenants/self", status: 400, body: `{"name":"T","settings":{"4242424242424242":"true"}}`,
			want: refused("settings", "holds a setting that does not exist")},
		step{name: "a setting that is no text", call: "PUT /tenants/self", status: 400, body: `{"name":"T","settings":{"fingerprint_tokens":true}}`,
			want: refused("settings", "holds a value of the wrong type")},
		step{name: "a value that a setting does not take", call: "PUT /tenants/self", status: 400, body: `{"name":"T","settings":{"cvc_retention":"2h"}}`,
			want: refused("settings.cvc_retention", "must be a duration from 1m to 1h")},
		step{name: "no name", call: "PUT /tenants/self", status: 400, body: `{}`, want: refused("name", "must have 1 to 200 characters")},
		step{name: "a name that is no text", call: "PUT /tenants/self", status: 400, body: `{"name":4242424242424242}`, want: refused("name", "must be a string")},
		step{name: "no object", call: "PUT /tenants/self", status: 400, body: `[]`, want: problem(400, "the body must be a JSON object")},
		step{name: "nothing has changed meanwhile", call: "GET /tenants/self", status: 200,
			want: `{"id":"{tenant}","name":"Tenant","settings":` + settings + `,"created_at":"<time>","modified_by":"{manager}","modified_at":"2031-05-06T07:08:14.123456+00:00"}`},
		step{name: "usage of a tenant without tokens", call: "GET /tenants/self/reports/usage", status: 200,
			want: `{"total_tokens":0,"token_report":{"total_tokens":0,"metrics_by_type":{}}}`},
		step{name: "a tenant cannot be made over the API", call: "POST /tenants", status: 404, body: `{"name":"x"}`, want: problem(404, "no such resource")},
	)
}

func TestTheCallbackSecret(t *testing.T) {
	w := newWalk(t)
	w.walk(
		step{call: "GET /tenants/self/callback-secret", status: 200, want: `{"secret":"<secret>"}`, keep: map[string]string{"secret": "first"}},
		step{name: "it stays", call: "GET /tenants/self/callback-secret", status: 200, want: `{"secret":"{first}"}`},
		step{name: "a rotation keeps both for a day", call: "POST /tenants/self/callback-secret", status: 200,
			want: `{"secret":"<secret>","previous_secret":"{first}","previous_until":"2031-05-07T07:08:12.123456+00:00"}`, keep: map[string]string{"secret": "second"}},
		step{call: "GET /tenants/self/callback-secret", status: 200,
			want: `{"secret":"{second}","previous_secret":"{first}","previous_until":"2031-05-07T07:08:12.123456+00:00"}`},
	)
	w.clock.Advance(24 * time.Hour)
	w.walk(step{name: "after a day the new one is alone", call: "GET /tenants/self/callback-secret", status: 200, want: `{"secret":"{second}"}`})
}

func TestDeletingTheTenant(t *testing.T) {
	w := newWalk(t)
	other := w.server.Tenant(t)
	w.names["other_key"] = other.Application.Key
	w.walk(
		step{call: "DELETE /tenants/self", status: 204},
		step{name: "its key opens nothing from the next request on", call: "GET /tenants/self", status: 401, want: problem(401, "unknown API key")},
		step{name: "nor does it delete again", call: "DELETE /tenants/self", status: 401, want: problem(401, "unknown API key")},
		step{name: "another tenant is as it was", call: "GET /applications/key", key: "other_key", status: 200,
			want: `{"id":"<uuid>","tenant_id":"<uuid>","name":"management","type":"management","permissions":` + everyManagement + `,"rules":[],` +
				`"keys":[{"id":"<uuid>","version":"1","prefix":"<prefix>","created_at":"<time>"}],"created_at":"<time>"}`},
	)
}
