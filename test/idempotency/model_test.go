package idempotency_test

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// question is what is asked of the server: a change under an idempotency key
// that writes who asked, or a look at what the change wrote.
type question struct {
	key    int
	caller int // of a change
	look   bool
}

// reply of a question. The zero value is none: the connection broke, and nobody
// knows whether the change was made.
type told struct {
	known    bool
	refused  bool // 409 or 503: not now
	replayed bool
	writer   int    // whose change it tells of
	body     string // of an answer to a change
	written  int    // how many changes a look found
}

// effect is what one key has done: nothing, or the change of one writer, which
// was answered with body. The body of a change whose answer was lost is
// unknown until it is told again.
type effect struct {
	made   bool
	writer int
	body   string
}

// idempotent is how requests with idempotency keys must behave: as if each had
// happened at one instant between its beginning and its end, the first one made
// the change, and all others were told its answer.
var idempotent = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := make(map[int][]porcupine.Operation)
		for _, o := range history {
			k := o.Input.(question).key
			byKey[k] = append(byKey[k], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []any { return []any{effect{}} },
	Step: func(state, input, output any) []any {
		is, q, got := state.(effect), input.(question), output.(told)
		allowed := func(may bool, then effect) []any {
			if !may {
				return nil
			}
			return []any{then}
		}
		switch {
		case got.refused || q.look && !got.known:
			return []any{is}
		case q.look && !is.made:
			return allowed(got.written == 0, is)
		case q.look:
			return allowed(got.written == 1 && got.writer == is.writer, is)
		case !got.known && is.made:
			return []any{is}
		case !got.known:
			return []any{is, effect{made: true, writer: q.caller}}
		case !got.replayed:
			return allowed(!is.made && got.writer == q.caller, effect{true, q.caller, got.body})
		}
		return allowed(is.made && got.writer == is.writer && (is.body == "" || is.body == got.body), effect{true, is.writer, got.body})
	},
	Equal: func(a, b any) bool { return a == b },
}

func TestTheModelRefusesWhatMustNotHappen(t *testing.T) {
	ask := func(caller int) question { return question{caller: caller} }
	look := question{look: true}
	first := func(writer int, body string) told { return told{known: true, writer: writer, body: body} }
	again := func(writer int, body string) told {
		return told{known: true, replayed: true, writer: writer, body: body}
	}
	found := func(n, writer int) told { return told{known: true, written: n, writer: writer} }
	type step struct {
		q         question
		a         told
		from, end int64
	}
	for name, c := range map[string]struct {
		history []step
		want    bool
	}{
		"first, then again":                  {[]step{{ask(1), first(1, "a"), 0, 1}, {ask(2), again(1, "a"), 2, 3}, {look, found(1, 1), 4, 5}}, true},
		"two that met":                       {[]step{{ask(1), again(2, "a"), 0, 9}, {ask(2), first(2, "a"), 1, 8}}, true},
		"refused while the other was asked":  {[]step{{ask(1), first(1, "a"), 0, 9}, {ask(2), told{refused: true}, 1, 2}, {look, found(0, 0), 3, 4}}, true},
		"lost, and made":                     {[]step{{ask(1), told{}, 0, 99}, {ask(2), again(1, "a"), 2, 3}}, true},
		"lost, and not made":                 {[]step{{ask(1), told{}, 0, 99}, {ask(2), first(2, "a"), 2, 3}}, true},
		"lost, and made late":                {[]step{{ask(1), told{}, 0, 99}, {look, found(0, 0), 2, 3}, {ask(2), again(1, "a"), 4, 5}}, true},
		"two were first":                     {[]step{{ask(1), first(1, "a"), 0, 1}, {ask(2), first(2, "b"), 2, 3}}, false},
		"two were first at once":             {[]step{{ask(1), first(1, "a"), 0, 9}, {ask(2), first(2, "b"), 1, 8}}, false},
		"nobody was first":                   {[]step{{ask(2), again(1, "a"), 2, 3}}, false},
		"told again before it was asked":     {[]step{{ask(2), again(1, "a"), 0, 1}, {ask(1), first(1, "a"), 2, 3}}, false},
		"told another answer":                {[]step{{ask(1), first(1, "a"), 0, 1}, {ask(2), again(1, "b"), 2, 3}}, false},
		"lost, and two answers":              {[]step{{ask(1), told{}, 0, 99}, {ask(2), again(1, "a"), 2, 3}, {ask(3), again(1, "b"), 4, 5}}, false},
		"answered and not there":             {[]step{{ask(1), first(1, "a"), 0, 1}, {look, found(0, 0), 2, 3}}, false},
		"made twice":                         {[]step{{ask(1), told{}, 0, 99}, {ask(2), told{}, 1, 99}, {look, found(2, 1), 4, 5}}, false},
		"there, then gone":                   {[]step{{ask(1), told{}, 0, 99}, {look, found(1, 1), 2, 3}, {look, found(0, 0), 4, 5}}, false},
		"there, then another's":              {[]step{{ask(1), told{}, 0, 99}, {ask(2), told{}, 0, 99}, {look, found(1, 1), 2, 3}, {look, found(1, 2), 4, 5}}, false},
		"told of a change that nobody wrote": {[]step{{ask(1), first(3, "a"), 0, 1}}, false},
	} {
		var history []porcupine.Operation
		for i, s := range c.history {
			history = append(history, porcupine.Operation{ClientId: i, Input: s.q, Call: s.from, Output: s.a, Return: s.end})
		}
		if got := porcupine.CheckOperations(idempotent.ToModel(), history); got != c.want {
			t.Errorf("%s: it may happen: %v, want %v", name, got, c.want)
		}
	}
}
