package knowledge_test

import (
	"slices"
	"testing"
)

// exception is something that tells two values apart and is allowed. The random
// sequences do not do it.
type exception struct {
	what    string
	because string // the rule that allows it, or that there is none
	cast    cast
	steps   []step
}

func with(c cast, setting string) cast {
	c.settings = map[string]string{setting: "true"}
	return c
}

// Not listed: that callers see what token:read, token:search or token:use with
// reveal shows them, and that some management permissions (application:create,
// application:update, proxy:create, proxy:update, tenant:update, reactor:*) let
// their holders give themselves these rights.
var exceptions = []exception{
	{"a tenant with the setting masked_fingerprints shows readers of masks the fingerprints of their guesses",
		"the setting extends fingerprints to mask, and its description says what that gives away",
		with(alone(private("agent", perms("read", "create"))), "masked_fingerprints"), sequence(
			card("v"), get("agent", "/tokens/<v>"), guess("agent", "S0a", "o"))},
	{"a tenant with the setting blind_deduplication tells holders of a token's id which guess is right",
		"the setting lets callers deduplicate without seeing fingerprints, and its description says so",
		with(alone(private("agent", perms("create"))), "blind_deduplication"), sequence(
			card("v"), guess("agent", "S0a", "o", `"deduplicate_token":true`))},
	{"a private application that creates the card first sees in a list whether the shop's deduplicating create stored another",
		"deduplication trusts private applications",
		alone(private("agent", perms("create", "read"))), sequence(
			guess("agent", "S0a", "o"), card("w", `"deduplicate_token":true`), get("agent", "/tokens"))},
	{"a searcher under a mask rule finds a social security number by the indexes of its type",
		"data: matches the evaluated indexes under mask and reveal, at most 20 in a query",
		alone(private("agent", nil, rule("/", "mask", "token:search"))), sequence(
			step{as: "shop", method: "POST", path: "/tokens", body: `{"type":"social_security_number","data":"<N0>"}`, save: "v"},
			search("agent", `data:"<N0a>"`))},
	{"an anonymous caller of a proxy finds a number by whether an expression fails",
		"expressions are evaluated for everyone who may call the proxy; nothing says that their failure tells nothing",
		cast{actors: []actorDef{{"passer", "", true}}}, sequence(
			card("v"), anonymousProxy(""), throughProxy("passer", `{"n":"{{ <v> | json: '$[?(@ == \"<S0a>\")]' }}"}`))},
	{"a caller with token:use finds a number by whether an expression fails, where it cannot choose the destination",
		"expressions are evaluated for everyone who may use the token; nothing says that their failure tells nothing",
		with(alone(private("agent", perms("use"))), "disable_ephemeral_proxy"), sequence(
			card("v"), step{as: "manager", method: "POST", path: "/proxies", body: `{"name":"p","destination_url":"<psp>"}`, save: "p"},
			throughProxy("agent", `{"n":"{{ <v> | json: '$[?(@ == \"<S0a>\")]' }}"}`))},
	{"a public caller's mask shows readers of masks the number that the shop puts into the token later",
		"the creator of a token chooses its mask; nothing says whose mask counts for data that comes later",
		cast{
			apps:   []appDef{public("till", "token:create"), private("agent", perms("read"))},
			actors: []actorDef{{"intruder", "till", true}, {"agent", "agent", true}},
		}, sequence(
			guess("intruder", "S1a", "o", `"mask":"{{ data.number }}"`), patch("shop", "o", `{"data":{"number":"<S0>"}}`), get("agent", "/tokens/<o>"))},
	{"a client with the customer's public key, address, idempotency key and body receives the customer's token",
		"a short idempotency key counts for the same address and the same body",
		shopping(perms("create"), appDef{}), sequence(
			step{as: "customer", method: "POST", path: "/tokens", body: `{"type":"card_number","data":"<S0>"}`, header: []string{headerIdem, "retry-1"}, save: "v"},
			step{as: "intruder", method: "POST", path: "/tokens", body: `{"type":"card_number","data":"<S0a>"}`, header: []string{headerIdem, "retry-1"}})},
}

// TestEveryExceptionIsReal: what has been closed since is no exception any
// more. Its sequence then belongs to the scenarios, and its move to the random
// sequences.
func TestEveryExceptionIsReal(t *testing.T) {
	s := newSite(t)
	for _, e := range exceptions {
		t.Run(e.what, func(t *testing.T) {
			t.Parallel()
			first, _ := s.with(t).both(e.cast, fixed(), e.steps)
			if !slices.ContainsFunc(first.findings, func(f finding) bool { return f.claim == claimGuess }) {
				t.Errorf("two values cannot be told apart any more: take it off the list (%s)", e.because)
			}
		})
	}
}
