package access_test

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
)

var seed = flag.Uint64("seed", 0, "seed of the random grants; 0 takes a new one")

// holder is an application or a session as a request describes it. The methods
// on it are a second reading of the access rules, slow and in plain words, and
// share nothing with the package but the wire form.
type holder struct {
	permissions []string
	rules       []access.Rule
}

// onContainer follows one token in one container: gather the rules that match,
// put them in order, take the first.
func (h holder) onContainer(permission, id, container string) string {
	type candidate struct {
		priority  int
		transform string
	}
	var candidates []candidate
	for position, r := range h.rules {
		if !slices.Contains(r.Permissions, permission) {
			continue
		}
		matches := true
		if len(r.Conditions) == 0 {
			wanted, has := strings.Split(r.Container, "/"), strings.Split(container, "/")
			wanted, has = wanted[:len(wanted)-1], has[:len(has)-1]
			matches = len(wanted) <= len(has) && slices.Equal(wanted, has[:len(wanted)])
		}
		for _, c := range r.Conditions {
			value := id
			if c.Attribute == "container" {
				value = container
			}
			switch c.Operator {
			case "equals":
				matches = matches && value == c.Value
			case "starts_with":
				matches = matches && len(value) >= len(c.Value) && value[:len(c.Value)] == c.Value
			}
		}
		if matches {
			priority := position
			if r.Priority != nil {
				priority = *r.Priority
			}
			candidates = append(candidates, candidate{priority, r.Transform})
		}
	}
	if len(candidates) > 0 {
		return slices.MinFunc(candidates, func(a, b candidate) int { return a.priority - b.priority }).transform
	}
	if slices.Contains(h.permissions, permission) {
		if permission == "token:use" {
			return "reveal"
		}
		return "mask"
	}
	return "refused"
}

var order = []string{"refused", "redact", "mask", "reveal"}

func least(answers ...string) string {
	for _, answer := range order {
		if slices.Contains(answers, answer) {
			return answer
		}
	}
	return "refused"
}

// onToken follows one token in all its containers.
func (h holder) onToken(permission, id string, containers ...string) string {
	var answers []string
	for _, container := range containers {
		answers = append(answers, h.onContainer(permission, id, container))
	}
	answer := least(answers...)
	switch {
	case answer == "refused":
	case permission == "token:use" && answer == "redact":
		return "refused"
	case permission == "token:delete":
		return "redact" // there is nothing to show
	case permission == "token:create" || permission == "token:update":
		return least(answer, "mask")
	}
	return answer
}

func (h holder) String() string {
	text, _ := json.Marshal(map[string]any{"permissions": h.permissions, "rules": h.rules})
	return string(text)
}

func (h holder) grant(t testing.TB) access.Grant {
	t.Helper()
	g, err := access.NewGrant(h.permissions, h.rules)
	if err != nil {
		t.Fatalf("NewGrant of %s: %v", h, err)
	}
	return g
}

// answer puts a decision in the words of the oracle.
func answer(d access.Decision) string { return order[d.Transform] }

// The pools are small, so that rules meet.
var (
	poolContainers = []string{"/", "/a/", "/a/b/", "/a/b/c/", "/ab/", "/b/"}
	poolIDs        = []string{"a", "ab", "abc", "abd", "x"}
	poolTransforms = []string{"redact", "mask", "reveal"}
	poolNames      = []string{"token:create", "token:read", "token:update", "token:delete", "token:search", "token:use"}
	poolOperators  = []string{"equals", "starts_with"}
)

// everyContainer and everyID have one of each sort that such rules can tell
// apart: each value that they can name, and an unnamed one below each.
var everyContainer, everyID = func() (containers, ids []string) {
	for _, c := range poolContainers {
		containers = append(containers, c, c+"zz/")
	}
	ids = append(ids, "zz")
	for _, id := range poolIDs {
		ids = append(ids, id, id+"zz")
	}
	return containers, ids
}()

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func some(r *rand.Rand, from []string, atLeast, atMost int) []string {
	chosen := slices.Clone(from)
	r.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	return chosen[:atLeast+r.IntN(atMost-atLeast+1)]
}

func randomHolder(r *rand.Rand, session bool) holder {
	h := holder{permissions: some(r, poolNames, 0, 3)}
	for range r.IntN(7) {
		made := access.Rule{Transform: pick(r, poolTransforms), Permissions: some(r, poolNames, 1, 4)}
		if session && r.IntN(2) == 0 {
			for range 1 + r.IntN(3) {
				c := access.Condition{Attribute: "id", Operator: pick(r, poolOperators), Value: pick(r, poolIDs)}
				if r.IntN(2) == 0 {
					c.Attribute, c.Value = "container", pick(r, poolContainers)
				}
				made.Conditions = append(made.Conditions, c)
			}
		} else {
			made.Container = pick(r, poolContainers)
		}
		h.rules = append(h.rules, made)
	}
	if r.IntN(2) == 0 {
		for i, priority := range r.Perm(len(h.rules)) {
			h.rules[i].Priority = new(priority*3 + 1)
		}
	}
	return h
}

func (h holder) asksForIDs() bool {
	return slices.ContainsFunc(h.rules, func(r access.Rule) bool {
		return slices.ContainsFunc(r.Conditions, func(c access.Condition) bool { return c.Attribute == "id" })
	})
}

// seedOf tells the seed of a test, so that it can be run again.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d", s)
	return s
}

func TestRandomGrantsAreDecidedAsTheTextSays(t *testing.T) {
	r := rand.New(rand.NewPCG(seedOf(t), 0))
	seen := map[string]int{}
	for n := range 10_000 {
		own, maker := randomHolder(r, n%4 != 0), randomHolder(r, false)
		name := pick(r, poolNames)
		p, _ := access.ParsePermission(name)
		id, containers := pick(r, everyID), some(r, everyContainer, 1, 3)

		ownGrant, makerGrant := own.grant(t), maker.grant(t)
		uncapped := access.NewUncappedSession("t", "a", "s", ownGrant)
		capped := access.NewSession("t", "a", "s", ownGrant, makerGrant)
		application := access.NewApplication("t", "a", access.Private, makerGrant)

		wantOwn, wantMaker := own.onToken(name, id, containers...), maker.onToken(name, id, containers...)
		token := target(id, containers...)
		for _, check := range []struct {
			who  string
			c    access.Caller
			want string
		}{
			{"uncapped session", uncapped, wantOwn},
			{"application", application, wantMaker},
			{"capped session", capped, least(wantOwn, wantMaker)},
		} {
			d, steps := check.c.Explain(p, token)
			if got := answer(d); got != check.want || d.DependsOnID || d.By.Transform != d.Transform {
				t.Fatalf("grant %d, %s: Decide(%s, %+v) = %+v, want %s\nown   %s\nmaker %s", n, check.who, name, token, d, check.want, own, maker)
			}
			if d != check.c.Decide(p, token) || !slices.Contains(steps, d.By) {
				t.Fatalf("grant %d, %s: Explain and Decide differ, or the deciding step is not told", n, check.who)
			}
			seen[check.want]++
		}

		checkContainers(t, n, capped, p, own, maker, containers)
		checkSomewhere(t, n, capped, p, own, maker)
		under := pick(r, everyContainer)
		if n%2 == 0 {
			checkReach(t, n, capped, p, under, func(id, at string) string {
				return least(own.onToken(name, id, at), maker.onToken(name, id, at))
			}, own.asksForIDs())
		} else {
			checkReach(t, n, application, p, under, func(id, at string) string { return maker.onToken(name, id, at) }, false)
		}
		if checkExcess(t, n, own, maker, ownGrant, makerGrant) {
			seen["excess"]++
		}
	}
	t.Log(seen)
	for _, outcome := range append(slices.Clone(order), "excess") {
		if seen[outcome] < 500 {
			t.Errorf("only %d of the random cases came to %q: they do not test it", seen[outcome], outcome)
		}
	}
}

// checkContainers compares the answer without an id with those for every id.
func checkContainers(t *testing.T, n int, c access.Caller, p access.Permission, own, maker holder, containers []string) {
	t.Helper()
	d := c.DecideContainers(p, containers)
	var answers []string
	for _, id := range everyID {
		answers = append(answers, least(own.onToken(p.String(), id, containers...), maker.onToken(p.String(), id, containers...)))
	}
	worst := least(answers...)
	same := !slices.ContainsFunc(answers, func(a string) bool { return a != worst })
	switch got := answer(d); {
	case !own.asksForIDs() && d.DependsOnID:
		t.Fatalf("grant %d: %s on %v depends on the id, which no rule asks for\nown %s", n, p, containers, own)
	case !same && !d.DependsOnID:
		t.Fatalf("grant %d: %s on %v = %s for all, but the ids have %v\nown %s\nmaker %s", n, p, containers, got, answers, own, maker)
	case d.By.Transform != d.Transform:
		t.Fatalf("grant %d: %s on %v = %+v, which is not what its step says", n, p, containers, d)
	case !d.DependsOnID && got != worst, least(got, worst) != got:
		t.Fatalf("grant %d: %s on %v = %+v for all, but the ids have %v\nown %s\nmaker %s", n, p, containers, d, answers, own, maker)
	}
	if all, ok := c.DecideEverywhere(p); ok && (answer(all) != worst || !same) {
		t.Fatalf("grant %d: %s everywhere = %s, but on %v the ids have %v\nown %s\nmaker %s", n, p, answer(all), containers, answers, own, maker)
	}
	if err := c.Require(p, containers...); (err == nil) != d.Allowed() {
		t.Fatalf("grant %d: Require(%s, %v) = %v, while it is decided %+v", n, p, containers, err, d)
	}
}

// checkSomewhere looks for a token that the caller may do this to.
func checkSomewhere(t *testing.T, n int, c access.Caller, p access.Permission, own, maker holder) {
	t.Helper()
	found := slices.ContainsFunc(everyContainer, func(container string) bool {
		return maker.onToken(p.String(), "zz", container) != "refused" && // whose rules do not ask for ids
			slices.ContainsFunc(everyID, func(id string) bool { return own.onToken(p.String(), id, container) != "refused" })
	})
	err := c.RequireSomewhere(p)
	if found && err != nil || !found && err == nil && !own.asksForIDs() {
		t.Fatalf("grant %d: RequireSomewhere(%s) = %v, and there is such a token: %v\nown %s\nmaker %s", n, p, err, found, own, maker)
	}
}

// checkReach compares the most that a caller could be shown in a container and
// below it with what it is shown in every such container. Rules that ask for
// ids may be in one another's way, and then the most is more than any token
// shows; it is never less.
func checkReach(t *testing.T, n int, c access.Caller, p access.Permission, under string, shown func(id, at string) string, asksForIDs bool) {
	t.Helper()
	ids := everyID
	if !asksForIDs {
		ids = ids[:1]
	}
	most := func(where ...string) string {
		best := "refused"
		for _, at := range where {
			for _, id := range ids {
				if a := shown(id, at); least(a, best) == best {
					best = a
				}
			}
		}
		return best
	}
	var all []string
	for _, at := range append([]string{under, under + "zz/"}, everyContainer...) {
		if strings.HasPrefix(at, under) {
			all = append(all, at)
		}
	}
	transform, at := c.Reach(p, under)
	got, want := order[transform], most(all...)
	if least(got, want) != want || got != want && !asksForIDs {
		t.Fatalf("grant %d: Reach(%s, %s) = %s, but the tokens there show %s", n, p, under, got, want)
	}
	switch {
	case got == "refused":
		if at != "" {
			t.Fatalf("grant %d: Reach(%s, %s) is nothing, at %s", n, p, under, at)
		}
	case !strings.HasPrefix(at, under):
		t.Fatalf("grant %d: Reach(%s, %s) is at %s, which is elsewhere", n, p, under, at)
	case !asksForIDs && most(at, at+"zz/") != got:
		t.Fatalf("grant %d: Reach(%s, %s) = %s at %s, where the tokens show %s", n, p, under, got, at, most(at, at+"zz/"))
	case !asksForIDs && most(under, under+"zz/") == got && at != under:
		t.Fatalf("grant %d: Reach(%s, %s) is at %s, and %s itself would have been first", n, p, under, at, under)
	}
}

// checkExcess checks that a reported excess is one, that a container or plain
// permission with an excess at its own place is reported, and that nobody
// exceeds himself.
func checkExcess(t *testing.T, n int, own, maker holder, ownGrant, makerGrant access.Grant) bool {
	t.Helper()
	exceeds := func(name, id, container string) bool {
		a, b := own.onToken(name, id, container), maker.onToken(name, id, container)
		return a != b && least(a, b) == b
	}
	excess, found := access.PlainExcess(ownGrant, makerGrant)
	if found {
		witness := slices.ContainsFunc(everyContainer, func(container string) bool {
			return slices.ContainsFunc(everyID, func(id string) bool { return exceeds(excess.Permission.String(), id, container) })
		})
		if !witness {
			t.Fatalf("grant %d: %+v is no excess\nown %s\nmaker %s", n, excess, own, maker)
		}
	}
	for _, name := range own.permissions {
		if exceeds(name, "zz", "/") && !found {
			t.Fatalf("grant %d: the plain %s exceeds and is not found\nown %s\nmaker %s", n, name, own, maker)
		}
	}
	for i, r := range own.rules {
		for _, name := range r.Permissions {
			if len(r.Conditions) == 0 && exceeds(name, "zz", r.Container) && !found {
				t.Fatalf("grant %d: %s of rule %d exceeds and is not found\nown %s\nmaker %s", n, name, i, own, maker)
			}
		}
	}
	if self, exceedsItself := access.PlainExcess(makerGrant, makerGrant); exceedsItself {
		t.Fatalf("grant %d: exceeds itself: %+v\n%s", n, self, maker)
	}
	return found
}
