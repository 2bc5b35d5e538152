package knowledge_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// scenario is a short sequence for one thing that must not happen.
type scenario struct {
	name  string
	about string // the claim that it is about
	cast  cast
	steps []step
}

// with returns the site for the part of a test that t is.
func (s *site) with(t testing.TB) *site {
	part := *s
	part.t = t
	return &part
}

// both carries out a sequence in two tenants and returns everything that is
// wrong with it.
func (s *site) both(c cast, symbols map[string]pair, steps []step) (first, second *world) {
	first, second = s.run(c, symbols, 0, steps), s.run(c, symbols, 1, steps)
	compare(first, second)
	return first, second
}

// told is how many findings of one claim are printed.
const told = 2

// tell fails the test with the findings of a sequence, those of the claim that
// it is about first, and the sequence.
func tell(t *testing.T, about string, first, second *world) {
	t.Helper()
	w := first
	if len(w.findings) == 0 {
		w = second
	}
	if len(w.findings) == 0 {
		return
	}
	slices.SortStableFunc(w.findings, func(a, b finding) int {
		switch {
		case (a.claim == about) == (b.claim == about):
			return 0
		case a.claim == about:
			return -1
		}
		return 1
	})
	var b strings.Builder
	count := map[string]int{}
	for _, f := range w.findings {
		if count[f.claim]++; count[f.claim] <= told {
			fmt.Fprintln(&b, f)
		}
	}
	fmt.Fprintln(&b, "the sequence, each call with its response:")
	for _, d := range w.done {
		fmt.Fprintln(&b, d)
	}
	t.Error(b.String())
}

// fixed are the secrets of scripted sequences: card numbers of 16 digits whose
// ninth differs.
func fixed() map[string]pair {
	m := symbols(rand.New(rand.NewPCG(1, 2)))
	m["S0"] = pair{"4242424242424242", "4242424200184242"}
	m["S1"] = pair{"5555555555554444", "5555555500104444"}
	return m
}

func private(name string, permissions []string, rules ...api.Rule) appDef {
	return appDef{name, "private", grant{permissions, rules}}
}

func public(name string, permissions ...string) appDef {
	return appDef{name, "public", grant{permissions: permissions}}
}

func perms(names ...string) []string {
	var list []string
	for _, name := range names {
		list = append(list, "token:"+name)
	}
	return list
}

// alone is a cast of one attacker with an application of its own.
func alone(a appDef) cast {
	return cast{apps: []appDef{a}, actors: []actorDef{{a.name, a.name, true}}}
}

// shopping is a cast with a shop's public application, whose key a customer and
// an intruder have, and a clerk, who authorizes sessions.
func shopping(till []string, clerk appDef) cast {
	clerk.name, clerk.kind = "clerk", "private"
	if len(clerk.permissions)+len(clerk.rules) == 0 {
		clerk.permissions = perms("delete") // an application holds something
	}
	return cast{
		apps:   []appDef{public("till", till...), clerk},
		actors: []actorDef{{"customer", "till", false}, {"intruder", "till", true}, {"clerk", "clerk", false}},
	}
}

// card is the shop's card <S0> as a token.
func card(save string, more ...string) step {
	body := `{"type":"card","data":{"number":"<S0>","expiration_month":12,"expiration_year":2040,"cvc":"<C0>"}` + members(more) + `}`
	return step{as: "shop", method: "POST", path: "/tokens", body: body, save: save}
}

func members(more []string) string {
	if len(more) == 0 {
		return ""
	}
	return "," + strings.Join(more, ",")
}

// guess creates a card of one number, as somebody.
func guess(as, number, save string, more ...string) step {
	return step{as: as, method: "POST", path: "/tokens", save: save,
		body: `{"type":"card","data":{"number":"<` + number + `>","expiration_month":12,"expiration_year":2040}` + members(more) + `}`}
}

func patch(as, token, body string, more ...string) step {
	s := step{as: as, method: "PATCH", path: "/tokens/<" + token + ">", body: body}
	if len(more) > 0 {
		s.save = more[0]
	}
	return s
}

func get(as, path string, save ...string) step {
	s := step{as: as, method: "GET", path: path}
	if len(save) > 0 {
		s.save = save[0]
	}
	return s
}

func search(as, query string) step {
	return step{as: as, method: "POST", path: "/tokens/search", body: `{"query":"` + strings.ReplaceAll(query, `"`, `\"`) + `"}`}
}

// guest makes a session of the intruder that the clerk authorizes.
func guest(name, grant string) []step {
	return []step{
		{as: "intruder", method: "POST", path: "/sessions", save: name},
		{as: "clerk", method: "POST", path: "/sessions/authorize", body: `{"nonce":"<` + name + `.nonce>",` + grant + `,"expires_at":"<later>"}`, want: 200},
	}
}

func sequence(parts ...any) (steps []step) {
	for _, part := range parts {
		switch part := part.(type) {
		case step:
			steps = append(steps, part)
		case []step:
			steps = append(steps, part...)
		}
	}
	return steps
}

// spelled is how digits are spelled with fingerprints: one of each digit, then
// one of a digit of the number.
func spelled(as string) (steps []step) {
	for digit := range 10 {
		steps = append(steps, patch(as, "v", fmt.Sprintf(`{"fingerprint_expression":"%d"}`, digit)), get(as, "/tokens/<v>"))
	}
	return append(steps, patch(as, "v", `{"fingerprint_expression":"{{ data.number | slice: 8 }}"}`), get(as, "/tokens/<v>"))
}

// manyGuesses tokenizes 50 numbers at once, both values among them.
func manyGuesses(as string, more ...string) step {
	var items []string
	numbers := append(cardNumbers(rand.New(rand.NewPCG(3, 4)), 0, 48), "<S0a>", "<S0b>")
	for _, number := range numbers {
		items = append(items, `{"type":"card","data":{"number":"`+number+`"}`+members(more)+`}`)
	}
	return step{as: as, method: "POST", path: "/tokenize", body: "[" + strings.Join(items, ",") + "]"}
}

// equalTokens creates so many cards of one number in the type's container.
func equalTokens(as string, n int) step {
	return step{as: as, method: "POST", path: "/tokenize", body: "[" + strings.Repeat(`{"type":"card","data":{"number":"<S0a>"}},`, n-1) + `{"type":"card","data":{"number":"<S0a>"}}]`}
}

var bankData = `"data":{"routing_number":"011000015","account_number":"11112222"}`

// Group 1: callers who may update, and derive.
var deriving = []scenario{
	{"1a a public application with token:update reads the number through a mask of its own", claimPlaintext, shopping(perms("update"), appDef{}), sequence(
		card("v"), patch("intruder", "v", `{"mask":{"number":"{{ data.number }}"}}`))},
	{"1a a session under a mask rule reads the number through a mask of its own", claimGuess,
		shopping(perms("create"), private("", perms("read", "update"))), sequence(
			card("v"), guest("g", `"rules":[{"container":"/","transform":"mask","permissions":["token:read","token:update"]}]`),
			patch("g", "v", `{"mask":{"number":"{{ data.number }}"}}`), get("g", "/tokens/<v>"))},
	{"1a a private application that reads masks reads an encoded number through a mask of its own", claimGuess, alone(private("agent", perms("read", "update"))), sequence(
		card("v"), patch("agent", "v", `{"mask":"{{ data.number | to_base64 }}"}`), get("agent", "/tokens/<v>"))},
	{"1a a mask that stays, beside data that is patched in part, is no way around", claimGuess, alone(private("agent", perms("read", "update"))), sequence(
		card("v"), patch("agent", "v", `{"data":{"expiration_month":11},"mask":{"number":"{{ data.number }}"}}`), get("agent", "/tokens/<v>"))},
	{"1a data that is sent whole may have a mask of its own", claimStatus, alone(private("agent", perms("read", "update"))), sequence(
		step{as: "shop", method: "POST", path: "/tokens", body: `{"type":"card_number","data":"<S0>"}`, save: "v"},
		step{as: "agent", method: "PATCH", path: "/tokens/<v>", body: `{"data":"<S0b>","mask":"{{ data }}"}`, want: 200}, get("agent", "/tokens/<v>"))},
	{"1a data that a public application sends whole may not", claimPublic, shopping(perms("update"), appDef{}), sequence(
		step{as: "shop", method: "POST", path: "/tokens", body: `{"type":"card_number","data":"<S0>"}`, save: "v"},
		step{as: "intruder", method: "PATCH", path: "/tokens/<v>", body: `{"data":"<S0b>","mask":"{{ data }}"}`, want: 403})},
	{"1a an update by a caller without token:read shows nothing of the token", claimSide, alone(private("agent", perms("update"))), sequence(
		card("v", `"metadata":{"order":"<K0>"}`, `"mask":"<K1> {{ data.number | last4 }}"`), patch("agent", "v", `{"metadata":{"mine":"1"}}`))},
	{"1b a caller under a redact rule spells the number with fingerprints", claimGuess,
		alone(private("agent", perms("update"), rule("/", "redact", "token:read"))), sequence(card("v"), spelled("agent"))},
	{"1b a caller that reads masks spells the number with fingerprints", claimGuess, alone(private("agent", perms("read", "update"))), sequence(card("v"), spelled("agent"))},
	{"1b a public application spells the number with fingerprints", claimGuess, shopping(perms("update"), appDef{}), sequence(card("v"), spelled("intruder"))},
	{"1c a caller moves a token to where it may reveal", claimDerive,
		alone(private("agent", perms("read", "update"), rule("/own/", "reveal", "token:read"))), sequence(
			card("v"), patch("agent", "v", `{"containers":["/own/"]}`), get("agent", "/tokens/<v>"))},
	{"1c a caller adds a container where it may reveal and takes the other away", claimDerive,
		alone(private("agent", perms("read", "update"), rule("/own/", "reveal", "token:read", "token:use"))), sequence(
			card("v"), patch("agent", "v", `{"containers":["/pci/high/","/own/"]}`), get("agent", "/tokens/<v>"),
			patch("agent", "v", `{"containers":["/own/"]}`), get("agent", "/tokens/<v>"))},
	{"1c a caller without token:read moves a token to where it may use it", claimDerive,
		alone(private("agent", perms("update"), rule("/own/", "reveal", "token:use"))), sequence(
			card("v"), patch("agent", "v", `{"containers":["/own/"]}`),
			step{as: "agent", method: "POST", path: "/proxy", header: []string{headerProxyURL, "<mine>"}, body: `{"n":"{{ <v> }}"}`})},
	{"1c a public application moves a token", claimDerive, shopping(perms("update"), appDef{}), sequence(card("v"), patch("intruder", "v", `{"containers":["/shop/"]}`))},
	{"1d a caller that reads masks and searches finds the number by an index of its own", claimGuess, alone(private("agent", perms("read", "update", "search"))), sequence(
		card("v"), patch("agent", "v", `{"search_indexes":["{{ data.number }}"]}`),
		search("agent", `data:"<S0a>"`), search("agent", `data:"<S0b>"`))},
	{"1d a session finds digits of the number by an index of its own", claimGuess,
		shopping(perms("create"), private("", perms("read", "update", "search"))), sequence(
			card("v"), guest("g", `"rules":[{"container":"/","transform":"redact","permissions":["token:read","token:search"]}],"permissions":["token:update"]`),
			patch("g", "v", `{"search_indexes":["{{ data.number | slice: 8, 4 }}"]}`), search("g", `data:4242`), search("g", `data:0018`))},
}

// Group 2: fingerprints make numbers guessable.
var guessing = []scenario{
	{"2 a masked read shows a fingerprint, and creates of guesses show theirs", claimGuess, alone(private("agent", perms("read", "create"))), sequence(
		card("v"), get("agent", "/tokens/<v>"), guess("agent", "S0a", "o"), guess("agent", "S0b", "p"))},
	{"2 a tokenize of many guesses shows which one is the number", claimGuess, alone(private("agent", perms("read", "create"))), sequence(
		card("v"), get("agent", "/tokens/<v>"), manyGuesses("agent"))},
	{"2 a create with an expression of its own shows the same fingerprint", claimGuess, alone(private("agent", perms("read", "create"))), sequence(
		card("v"), get("agent", "/tokens"),
		step{as: "agent", method: "POST", path: "/tokens", body: `{"type":"card","data":{"number":"<S1a>"},"fingerprint_expression":"<S0a>"}`},
		step{as: "agent", method: "POST", path: "/tokens", body: `{"type":"card","data":{"number":"<S0a>"},"fingerprint_expression":"{{ data.number }}"}`})},
	{"2 a redacted read shows a fingerprint", claimFingerprint, alone(private("agent", perms("create"), rule("/", "redact", "token:read"))), sequence(
		card("v"), get("agent", "/tokens/<v>"), get("agent", "/v2/tokens"), guess("agent", "S0a", "o"))},
	{"2 a search shows a fingerprint", claimFingerprint, alone(private("agent", perms("search", "create"))), sequence(
		card("v"), search("agent", "type:card"), guess("agent", "S0a", "o"))},
	{"2 an expression shows a fingerprint", claimFingerprint, alone(private("agent", perms("read"))), sequence(
		card("v"), step{as: "agent", method: "POST", path: "/detokenize", body: `{"f":"{{ token: <v> | json: '$.fingerprint' }}"}`})},
	{"2 a public application sees the fingerprint of what it creates", claimFingerprint, shopping(perms("create"), appDef{}), sequence(
		guess("intruder", "S0a", "o"))},
	{"2 a list finds the token by the fingerprint of a guess", claimGuess,
		alone(private("agent", perms("read", "create"), rule("/own/", "reveal", "token:read"))), sequence(
			card("v"), guess("agent", "S0a", "o", `"containers":["/own/"]`), guess("agent", "S0b", "p", `"containers":["/own/"]`),
			get("agent", "/tokens?fingerprint=<o.fingerprint>"), get("agent", "/tokens?fingerprint=<p.fingerprint>"), get("agent", "/v2/tokens?fingerprint=<o.fingerprint>"))},
	{"2 a search finds the token by the fingerprint of a guess", claimGuess,
		alone(private("agent", perms("search", "create"), rule("/own/", "reveal", "token:read"))), sequence(
			card("v"), guess("agent", "S0a", "o", `"containers":["/own/"]`), guess("agent", "S0b", "p", `"containers":["/own/"]`),
			search("agent", "fingerprint:<o.fingerprint>"), search("agent", "type:card AND NOT fingerprint:<p.fingerprint>"))},
	{"2 a deduplicating create of a private application tells that an equal token exists", claimGuess, alone(private("agent", perms("create"))), sequence(
		card("v"), guess("agent", "S0a", "o", `"deduplicate_token":true`), guess("agent", "S0b", "p", `"deduplicate_token":true`))},
	{"2 a deduplicating create of a public application tells that an equal token exists", claimGuess, shopping(perms("create"), appDef{}), sequence(
		card("v"), guess("intruder", "S0a", "o", `"deduplicate_token":true`), guess("intruder", "S0b", "p", `"deduplicate_token":true`))},
	{"2 a deduplicating create of a reader of masks tells that an equal token exists", claimGuess, alone(private("agent", perms("create", "read"))), sequence(
		card("v"), guess("agent", "S0a", "o", `"deduplicate_token":true`), guess("agent", "S0b", "p", `"deduplicate_token":true`))},
	{"2 a deduplicating create of a session tells that an equal token exists", claimGuess, shopping(perms("create"), private("", perms("create", "read"))), sequence(
		card("v"), guest("g", `"permissions":["token:create","token:read"]`), guess("g", "S0a", "o", `"deduplicate_token":true`), guess("g", "S0b", "p", `"deduplicate_token":true`))},
	{"2 a tenant that deduplicates tells a public application that an equal token exists", claimGuess,
		cast{apps: []appDef{public("till", "token:create")}, actors: []actorDef{{"intruder", "till", true}}, settings: map[string]string{"deduplicate_tokens": "true"}}, sequence(
			card("v"), guess("intruder", "S0a", "o"), guess("intruder", "S0b", "p"), manyGuesses("intruder"))},
	{"2 an update to the number of another token shows less in its response", claimGuess, alone(private("agent", perms("create", "update"), rule("/own/", "reveal", "token:read"))), sequence(
		card("v"), guess("agent", "S1a", "o", `"containers":["/own/"]`),
		patch("agent", "o", `{"data":{"number":"<S0a>"}}`), patch("agent", "o", `{"data":{"number":"<S0b>"}}`))},
	{"2 a searcher under a redact rule finds a social security number by the indexes of its type", claimGuess,
		alone(private("agent", nil, rule("/", "redact", "token:search"))), sequence(
			step{as: "shop", method: "POST", path: "/tokens", body: `{"type":"social_security_number","data":"<N0>"}`, save: "v"},
			search("agent", `data:"<N0a>"`))},
	{"2 a hundred equal tokens out of sight hide the caller's own from a deduplicating create", claimGuess,
		alone(private("agent", perms("create"), rule("/own/", "reveal", "token:read", "token:create"))), sequence(
			equalTokens("agent", 99), card("v"), guess("agent", "S0a", "o", `"containers":["/own/"]`), card("w"), equalTokens("agent", 99),
			guess("agent", "S0a", "p", `"containers":["/own/"]`, `"deduplicate_token":true`))},
	{"2 a hundred equal tokens of a session hide the shop's own from its deduplicating create, and a list shows it", claimGuess,
		shopping(perms("create"), private("", perms("create", "read"))), sequence(
			card("v"), guest("g", `"permissions":["token:create","token:read"]`), equalTokens("g", 100),
			card("w", `"deduplicate_token":true`), get("g", "/tokens?size=1"))},
	{"2 a create under the tenant setting masked_fingerprints shows a redacted reader no fingerprint", claimFingerprint,
		cast{apps: []appDef{private("agent", perms("create"), rule("/", "redact", "token:read"))}, actors: []actorDef{{"agent", "agent", true}}, settings: map[string]string{"masked_fingerprints": "true"}}, sequence(
			card("v"), get("agent", "/tokens/<v>"), guess("agent", "S0a", "o"), guess("agent", "S0b", "p", `"deduplicate_token":true`))},
}

// Group 3: a public caller plants tokens for the server's deduplication.
var planting = []scenario{
	{"3 a public application plants a fingerprint with a literal expression", claimPlanted, shopping(perms("create"), appDef{}), sequence(
		step{as: "intruder", method: "POST", path: "/tokens", save: "o",
			body: `{"type":"bank","data":{"routing_number":"021000021","account_number":"99998888"},"fingerprint_expression":"11112222|011000015"}`},
		step{as: "shop", method: "POST", path: "/tokens", body: `{"type":"bank",` + bankData + `,"deduplicate_token":true}`})},
	{"3 a public application plants a fingerprint with an expression that mentions data", claimPlanted, shopping(perms("create"), appDef{}), sequence(
		step{as: "intruder", method: "POST", path: "/tokens", save: "o",
			body: `{"type":"bank","data":{"routing_number":"021000021","account_number":"99998888"},"fingerprint_expression":"11112222|0110000{{ data.nothing }}15"}`},
		step{as: "shop", method: "POST", path: "/tokens", body: `{"type":"bank",` + bankData + `,"deduplicate_token":true}`})},
	{"3 a public application plants the card itself, with a mask that shows it", claimPlanted, shopping(perms("create"), appDef{}), sequence(
		guess("intruder", "S0a", "o", `"mask":{"number":"{{ data.number }}"}`), card("w", `"deduplicate_token":true`), get("masker", "/tokens/<w>"))},
	{"3 a public application plants the card itself, as it will be sent", claimPlanted, shopping(perms("create"), appDef{}), sequence(
		guess("intruder", "S0a", "o"), card("w", `"deduplicate_token":true`))},
	{"3 a session plants the card itself", claimPlanted, shopping(perms("create"), private("", perms("create"))), sequence(
		guest("g", `"permissions":["token:create"]`), guess("g", "S0a", "o"), card("w", `"deduplicate_token":true`))},
	{"3 a public application changes a token of the server's to what the server will send", claimPlanted, shopping(perms("update"), appDef{}), sequence(
		step{as: "shop", method: "POST", path: "/tokens", body: `{"type":"card","data":{"number":"<S1a>"}}`, save: "v"},
		patch("intruder", "v", `{"data":{"number":"<S0a>"}}`), card("w", `"deduplicate_token":true`))},
	{"3 a deduplicating create with another mask returns a token with that mask", claimSame, cast{}, sequence(
		card("v", `"mask":"{{ data.number | slice: 0, 12 }}"`), card("w", `"deduplicate_token":true`), get("masker", "/tokens/<w>"),
		card("x", `"deduplicate_token":true`, `"containers":["/shop/"]`))},
	{"3 a deduplicating create returns a token that expires earlier", claimSame, cast{}, sequence(
		card("v", `"expires_at":"2032-01-01T00:00:00Z"`), card("w", `"deduplicate_token":true`), card("x", `"deduplicate_token":true`, `"expires_at":"2033-01-01T00:00:00Z"`))},
	{"3 a deduplicating create that names an id returns another", claimSame, cast{}, sequence(
		card("v"), card("w", `"deduplicate_token":true`, `"id":"order-1"`))},
}

// Group 4: idempotency keys.
var replaying = []scenario{
	{"4 two browsers with one idempotency key get the same session", claimKeys, shopping(perms("create"), appDef{}), sequence(
		step{as: "customer", method: "POST", path: "/sessions", header: []string{headerIdem, "retry-1"}, save: "s"},
		step{as: "intruder", method: "POST", path: "/sessions", header: []string{headerIdem, "retry-1"}, save: "g"})},
	{"4 two browsers with one idempotency key get each other's tokens", claimIDs, shopping(perms("create"), appDef{}), sequence(
		step{as: "customer", method: "POST", path: "/tokens", body: `{"type":"card_number","data":"<S0>"}`, header: []string{headerIdem, "retry-1"}, save: "v"},
		step{as: "intruder", method: "POST", path: "/tokens", body: `{"type":"card_number","data":"<S1a>"}`, header: []string{headerIdem, "retry-1"}})},
	{"4 two browsers with one long idempotency key get each other's tokens", claimBody, shopping(perms("create"), appDef{}), sequence(
		step{as: "customer", method: "POST", path: "/tokenize", body: `["<T0>"]`, header: []string{headerIdem, "a-key-of-thirty-characters-000"}},
		step{as: "intruder", method: "POST", path: "/tokenize", body: `["x"]`, header: []string{headerIdem, "a-key-of-thirty-characters-000"}, want: 422})},
	{"4 a short idempotency key and a guessed body from another address replay a customer's token", claimAddress, shopping(perms("create"), appDef{}), sequence(
		step{as: "customer", method: "POST", path: "/tokens", body: `{"type":"card_number","data":"<S0>"}`, header: []string{headerIdem, "retry-1"}, save: "v"},
		step{as: "intruder", method: "POST", path: "/tokens", body: `{"type":"card_number","data":"<S0a>"}`, header: []string{headerIdem, "retry-1"}, address: true},
		step{as: "intruder", method: "POST", path: "/tokens", body: `{"type":"card_number","data":"<S0b>"}`, header: []string{headerIdem, "retry-1"}, address: true})},
	{"4 a replay ignores a lost permission", claimPermission, alone(private("agent", perms("create", "read"))), sequence(
		step{as: "agent", method: "POST", path: "/tokens", body: `{"type":"card_number","data":"<S1a>"}`, header: []string{headerIdem, "one"}, save: "o"},
		step{as: "manager", method: "PUT", path: "/applications/<agent>", body: `{"name":"agent","permissions":["token:delete"]}`, want: 200},
		step{as: "agent", method: "POST", path: "/tokens", body: `{"type":"card_number","data":"<S1a>"}`, header: []string{headerIdem, "one"}, want: 403})},
	{"4 a replay ignores that less may be read", claimAccess, alone(private("agent", perms("update", "read"))), sequence(
		card("v", `"metadata":{"order":"<K0>"}`),
		step{as: "agent", method: "PATCH", path: "/tokens/<v>", body: `{"metadata":{"mine":"1"}}`, header: []string{headerIdem, "one"}},
		step{as: "manager", method: "PUT", path: "/applications/<agent>", body: `{"name":"agent","permissions":["token:update"]}`, want: 200},
		step{as: "agent", method: "PATCH", path: "/tokens/<v>", body: `{"metadata":{"mine":"1"}}`, header: []string{headerIdem, "one"}, want: 403})},
	{"4 a replay ignores that the token was moved away", claimPermission, alone(private("agent", nil, rule("/pci/", "mask", "token:update", "token:read"))), sequence(
		card("v"),
		step{as: "agent", method: "PATCH", path: "/tokens/<v>", body: `{"metadata":{"mine":"1"}}`, header: []string{headerIdem, "one"}},
		patch("shop", "v", `{"containers":["/shop/"]}`),
		step{as: "agent", method: "PATCH", path: "/tokens/<v>", body: `{"metadata":{"mine":"1"}}`, header: []string{headerIdem, "one"}, want: 403})},
	{"4 a replay leaves no log entry", claimLogged, alone(private("agent", perms("create", "read"))), sequence(
		step{as: "agent", method: "POST", path: "/tokens", body: `{"type":"card_number","data":"<S1a>"}`, header: []string{headerIdem, "one"}, save: "o"},
		step{as: "agent", method: "POST", path: "/tokens", body: `{"type":"card_number","data":"<S1a>"}`, header: []string{headerIdem, "one"}, want: 201})},
	{"4 a replay of a session that has lost its authorizer", claimSession, shopping(perms("create"), private("", perms("create"))), sequence(
		guest("g", `"permissions":["token:create"]`),
		step{as: "g", method: "POST", path: "/tokens", body: `{"type":"card_number","data":"<S1a>"}`, header: []string{headerIdem, "one"}, save: "o"},
		step{as: "manager", method: "DELETE", path: "/applications/<clerk>", want: 204},
		step{as: "g", method: "POST", path: "/tokens", body: `{"type":"card_number","data":"<S1a>"}`, header: []string{headerIdem, "one"}})},
}

// Group 5: sessions, the log, and numbers where names go.
var lifetimes = []scenario{
	{"5 regenerating the key that made a session leaves it alive", claimSession, shopping(perms("create"), private("", perms("create"))), sequence(
		guest("g", `"permissions":["token:create"]`),
		step{as: "manager", method: "POST", path: "/applications/<till>/regenerate", want: 200},
		get("g", "/applications/key"), guess("g", "S1a", "o"))},
	{"5 regenerating the key that authorized a session leaves it alive", claimSession, shopping(perms("create"), private("", perms("create"))), sequence(
		guest("g", `"permissions":["token:create"]`),
		step{as: "manager", method: "POST", path: "/applications/<clerk>/regenerate", want: 200},
		get("g", "/applications/key"), guess("g", "S1a", "o"))},
	{"5 regenerating a key leaves a session alive in a tenant with uncapped sessions", claimSession, func() cast {
		c := shopping(perms("create"), private("", perms("create")))
		c.settings = map[string]string{"uncapped_sessions": "true"}
		return c
	}(), sequence(
		guest("g", `"permissions":["token:create"]`),
		step{as: "manager", method: "POST", path: "/applications/<clerk>/regenerate", want: 200},
		guess("g", "S1a", "o"))},
	{"5 deleting the key that made a session leaves it alive", claimSession, shopping(perms("create"), private("", perms("create"))), sequence(
		step{as: "manager", method: "POST", path: "/applications/<till>/keys", save: "k", want: 201},
		guest("g", `"permissions":["token:create"]`),
		step{as: "manager", method: "DELETE", path: "/applications/<till>/keys/<till.key_id>", want: 204},
		guess("g", "S1a", "o"), guess("intruder@k", "S1a", "p"))},
	{"5 deleting the key that authorized a session leaves it alive", claimSession, shopping(perms("create"), private("", perms("create"))), sequence(
		step{as: "manager", method: "POST", path: "/applications/<clerk>/keys", save: "k", want: 201},
		guest("g", `"permissions":["token:create"]`),
		step{as: "manager", method: "DELETE", path: "/applications/<clerk>/keys/<clerk.key_id>", want: 204},
		guess("g", "S1a", "o"))},
	{"5 deleting the application that made a session leaves it alive", claimSession, shopping(perms("create"), private("", perms("create"))), sequence(
		guest("g", `"permissions":["token:create"]`),
		step{as: "manager", method: "DELETE", path: "/applications/<till>", want: 204},
		guess("g", "S1a", "o"))},
	{"5 deleting the application that authorized a session leaves it alive", claimSession, shopping(perms("create"), private("", perms("create"))), sequence(
		guest("g", `"permissions":["token:create"]`),
		step{as: "manager", method: "DELETE", path: "/applications/<clerk>", want: 204},
		guess("g", "S1a", "o"))},
	{"5 a session that was deleted is alive", claimSession, shopping(perms("create"), private("", perms("create"))), sequence(
		guest("g", `"permissions":["token:create"]`), get("manager", "/sessions"),
		step{as: "manager", method: "DELETE", path: "/sessions/<g.id>", want: 204},
		guess("g", "S1a", "o"))},
	{"5 reading the stored result of a reactor makes no log entry", claimResult, alone(private("agent", perms("create", "use"))), sequence(
		step{as: "manager", method: "POST", path: "/reactors", body: `{"name":"r","code":"module.exports = async () => ({ raw: 1 })","configuration":{}}`, save: "r", want: 201},
		step{as: "agent", method: "POST", path: "/reactors/<r>/react-async", body: `{}`, save: "q", want: 202},
		step{as: "agent", method: "GET", path: "/reactors/<r>/results/<q>", poll: true})},
	{"5 a refused read is logged without the token", claimRefused, alone(private("agent", perms("create"), rule("/own/", "mask", "token:read", "token:update", "token:delete"))), sequence(
		card("v"), get("agent", "/tokens/<v>"), patch("agent", "v", `{"metadata":{"x":"1"}}`),
		step{as: "agent", method: "DELETE", path: "/tokens/<v>"}, step{as: "agent", method: "POST", path: "/detokenize", body: `"{{ <v> }}"`})},
	{"5 a refused read of a caller that may read nothing is logged without the token", claimRefused, alone(private("agent", perms("create"))), sequence(
		card("v"), get("agent", "/tokens/<v>"), step{as: "agent", method: "DELETE", path: "/tokens/<v>"})},
	{"5 a refused use is logged without the token", claimRefused, alone(private("agent", perms("create"), rule("/own/", "reveal", "token:use"))), sequence(
		card("v"), step{as: "agent", method: "POST", path: "/proxy", header: []string{headerProxyURL, "<mine>"}, body: `{"n":"{{ <v> }}"}`})},
	{"5 a card number becomes an id", claimStatus, alone(private("agent", perms("create"))), sequence(
		step{as: "agent", method: "POST", path: "/tokens", body: `{"id":"<S0a>","type":"token","data":"x"}`, want: 400},
		step{as: "agent", method: "POST", path: "/tokens", body: `{"id":"order-4242-4242-4242-4242","type":"token","data":"x"}`, want: 400},
		step{as: "agent", method: "POST", path: "/tokenize", body: `{"id":"378282246310005","type":"token","data":"x"}`, want: 400},
		step{as: "agent", method: "POST", path: "/tokens", body: `{"id":"5555.5555.5555.4444","type":"token","data":"x"}`, want: 400},
		step{as: "agent", method: "POST", path: "/tokens", body: `{"id":"{{ data.n }}","type":"token","data":{"n":"4242424242424242"}}`, want: 400})},
	{"5 a card number becomes a container", claimStatus, alone(private("agent", perms("create", "update"))), sequence(
		step{as: "agent", method: "POST", path: "/tokens", body: `{"type":"token","data":"x","containers":["/4242424242424242/"]}`, want: 400},
		step{as: "agent", method: "POST", path: "/tokens", body: `{"type":"token","data":"x","containers":["/a/4242-4242-4242-4242/"]}`, want: 400},
		step{as: "agent", method: "POST", path: "/tokens", body: `{"type":"token","data":"x"}`, save: "o"},
		step{as: "agent", method: "PATCH", path: "/tokens/<o>", body: `{"containers":["/general/high/","/4242424242424242/"]}`, want: 400})},
	{"5 a card number becomes a key of metadata", claimStatus, alone(private("agent", perms("create"))), sequence(
		step{as: "agent", method: "POST", path: "/tokens", body: `{"type":"token","data":"x","metadata":{"4242424242424242":"1"}}`, want: 400})},
}

func anonymousProxy(application string) step {
	return step{as: "manager", method: "POST", path: "/proxies", save: "p", want: 201,
		body: `{"name":"p","destination_url":"<psp>","require_auth":false` + application + `}`}
}

func throughProxy(as, body string) step {
	return step{as: as, method: "POST", path: "/proxy", header: []string{headerProxyKey, "<p.key>"}, body: body}
}

// Group 6: proxies.
var proxies = []scenario{
	{"6 a proxy that is written back as it was read loses its application", claimPlaintext,
		cast{apps: []appDef{private("bound", nil, rule("/own/", "reveal", "token:use"))}, actors: []actorDef{{"passer", "", true}}}, sequence(
			card("v"), anonymousProxy(`,"application":{"id":"<bound>"}`), throughProxy("passer", `{"n":"{{ <v> }}"}`),
			get("manager", "/proxies/<p>", "read"), step{as: "manager", method: "PUT", path: "/proxies/<p>", body: "<read.body>"},
			throughProxy("passer", `{"n":"{{ <v> }}"}`))},
	{"6 a proxy without a key loses its application when it is left out", claimPlaintext,
		cast{apps: []appDef{private("bound", nil, rule("/own/", "reveal", "token:use"))}, actors: []actorDef{{"passer", "", true}}}, sequence(
			card("v"), anonymousProxy(`,"application":{"id":"<bound>"}`),
			step{as: "manager", method: "PUT", path: "/proxies/<p>", body: `{"name":"p","destination_url":"<psp>","require_auth":false}`, want: 400},
			throughProxy("passer", `{"n":"{{ <v> }}"}`))},
	{"6 a proxy of an application that uses masks sends values to no destination", claimPlaintext,
		cast{apps: []appDef{private("bound", nil, rule("/", "mask", "token:use"))}, actors: []actorDef{{"passer", "", true}}}, sequence(
			card("v"), anonymousProxy(`,"application_id":"<bound>"`), throughProxy("passer", `{"n":"{{ <v> }}","f":"{{ token: <v> | json: '$.fingerprint' }}"}`))},
	{"6 a preview shows the masks of tokens to a manager who may not read them", claimMask,
		cast{apps: []appDef{private("bound", perms("use")), {"office", "management", grant{permissions: []string{"proxy:read"}}}}, actors: []actorDef{{"office", "office", true}}}, sequence(
			card("v", `"metadata":{"order":"<K0>"}`),
			step{as: "manager", method: "POST", path: "/proxies", body: `{"name":"p","destination_url":"<psp>"}`, save: "p", want: 201},
			step{as: "office", method: "POST", path: "/proxies/<p>/preview", body: `{"application_id":"<bound>","body":{"n":"{{ <v> }}","m":"{{ token: <v> | json: '$.metadata.order' }}"}}`})},
}

// Observation 4 once more, where code runs.
var running = []scenario{
	{"4 a replay of a run shows values that its caller may not use any more", claimPlaintext, alone(private("agent", perms("use"))), sequence(
		card("v"),
		step{as: "manager", method: "POST", path: "/reactors", body: `{"name":"r","code":"module.exports = async (req) => ({ raw: req.args })","configuration":{}}`, save: "r", want: 201},
		step{as: "agent", method: "POST", path: "/reactors/<r>/react", body: `{"args":{"n":"{{ <v> }}"}}`, header: []string{headerIdem, "one"}, want: 200},
		step{as: "manager", method: "PUT", path: "/applications/<agent>", body: `{"name":"agent","rules":[{"container":"/own/","transform":"reveal","permissions":["token:use"]}]}`, want: 200},
		step{as: "agent", method: "POST", path: "/reactors/<r>/react", body: `{"args":{"n":"{{ <v> }}"}}`, header: []string{headerIdem, "one"}, want: 403})},
}

// TestWhatWasObservedOfCode needs the runtime of reactor code.
func TestWhatWasObservedOfCode(t *testing.T) {
	s := newSite(t, "sandbox.level", "full", "sandbox.runtime", runtimetest.Find(t).Folder, "sandbox.blank", "1")
	for _, c := range running {
		t.Run(c.name, func(t *testing.T) {
			first, second := s.with(t).both(c.cast, fixed(), c.steps)
			// Two values are no secret from a caller that may use the token at first.
			first.findings = slices.DeleteFunc(first.findings, func(f finding) bool { return f.claim == claimGuess })
			tell(t, c.about, first, second)
		})
	}
}

func TestWhatWasObserved(t *testing.T) {
	s := newSite(t)
	for _, group := range [][]scenario{deriving, guessing, planting, replaying, lifetimes, proxies} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				first, second := s.with(t).both(c.cast, fixed(), c.steps)
				tell(t, c.about, first, second)
			})
		}
	}
}
