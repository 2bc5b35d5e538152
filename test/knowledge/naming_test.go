package knowledge_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"
)

// naming makes two runs of one sequence comparable: whatever is drawn by
// chance (ids, keys, fingerprints) is replaced by a number, given in the order
// of first appearance, and an instant by the step in which it was. So it shows
// which of them are equal, and not what they are. The ids of applications and
// of the tokens of a sequence are known to everybody from the beginning.
type naming struct {
	numbers map[string]string
	started []time.Time // when the steps began
	seen    []seen
}

// seen is what attackers received by one step.
type seen struct {
	step int
	text string
}

func newNaming() *naming { return &naming{numbers: map[string]string{}} }

var (
	// opaque are members whose values are drawn by chance.
	opaque = regexp.MustCompile(`"(id|entity_id|trace_id|fingerprint|next|nonce|session_key|key|prefix|value|secret)":"([^"]+)"`)
	drawn  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)|key_[A-Za-z0-9_]{16,}`)
)

func (n *naming) number(value string) string {
	if n.numbers[value] == "" {
		n.numbers[value] = fmt.Sprint("#", len(n.numbers)+1, n.stepOf(value))
	}
	return n.numbers[value]
}

// stepOf says in which step an instant was; "" for what is none.
func (n *naming) stepOf(value string) string {
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		return ""
	}
	step := sort.Search(len(n.started), func(i int) bool { return n.started[i].After(at) })
	return fmt.Sprintf(" of step %d", step)
}

// skipped notes a step that was not carried out.
func (n *naming) skipped(step int) { n.seen = append(n.seen, seen{step, "skipped"}) }

// dropped are headers that differ between any two responses, or are what the
// test sent itself.
var dropped = []string{"Date", "Content-Length", headerTrace}

// note keeps what an attacker received.
func (n *naming) note(d done, fingerprints []string) {
	var b strings.Builder
	fmt.Fprintln(&b, d.answer.Status)
	header := maps.Clone(d.answer.Header)
	for name := range header {
		if slices.ContainsFunc(dropped, func(drop string) bool { return strings.EqualFold(drop, name) }) {
			delete(header, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(header[name], ", "))
	}
	fmt.Fprintln(&b, d.answer.Body)
	fmt.Fprint(&b, d.arrived)
	n.seen = append(n.seen, seen{d.number, n.canonical(b.String(), fingerprints)})
}

// canonical replaces what is drawn by chance in the order in which it stands.
func (n *naming) canonical(text string, fingerprints []string) string {
	parts := []string{opaque.String(), drawn.String()}
	for _, f := range fingerprints { // wherever an expression put them
		parts = append(parts, regexp.QuoteMeta(f))
	}
	all := regexp.MustCompile(strings.Join(parts, "|"))
	return all.ReplaceAllStringFunc(text, func(found string) string {
		if m := opaque.FindStringSubmatch(found); m != nil {
			return fmt.Sprintf(`"%s":"%s"`, m[1], n.number(m[2]))
		}
		return n.number(found)
	})
}

// compare finds the first step of which the attackers received different things
// in two runs, and puts it among the findings of the first.
func compare(a, b *world) {
	for i := range a.names.seen {
		if i >= len(b.names.seen) {
			return
		}
		one, two := a.names.seen[i], b.names.seen[i]
		if one == two {
			continue
		}
		at := 0
		for at < min(len(one.text), len(two.text)) && one.text[at] == two.text[at] {
			at++
		}
		a.find(one.step, claimGuess, "with one value they receive %q, with the other %q", around(one.text, at), around(two.text, at))
		return
	}
}

// around returns a part of a text for people to read.
func around(text string, at int) string {
	from, to := max(0, at-60), min(len(text), at+100)
	return "…" + text[from:to] + "…"
}
