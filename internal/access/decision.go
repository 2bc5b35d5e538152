package access

import "math/bits"

// Transform says how much of a token an allowed operation shows. They are
// ordered: of two, the lesser shows less. The zero Transform goes with what is
// not allowed at all.
type Transform uint8

// The transforms, least revealing first.
const (
	Nothing Transform = iota // not allowed
	Redact                   // no data, no details of card or bank
	Mask                     // the evaluated mask
	Reveal                   // plaintext
)

var transformNames = [...]string{Redact: "redact", Mask: "mask", Reveal: "reveal"}

// String returns the word that rules use; "" for Nothing.
func (t Transform) String() string {
	if int(t) >= len(transformNames) {
		return ""
	}
	return transformNames[t]
}

// ParseTransform returns the transform of a word.
func ParseTransform(name string) (Transform, bool) {
	for t := Redact; t <= Reveal; t++ {
		if t.String() == name {
			return t, true
		}
	}
	return Nothing, false
}

// Target is what an operation is done to. Tokens have at least one container,
// in normal form: a target without any, or with another text, is refused.
type Target struct {
	// ID of the token, be it one that is about to be created. Left empty it is
	// unknown, and the answer is one that holds whatever the id is.
	ID         string
	Containers []string
	// Type is the type of a token that exists. A refusal is then about this
	// token. It stays empty while the id is only what a caller has chosen.
	Type string
}

// Decision is the answer to: may this caller do that, and what does it show?
// Its zero value refuses.
type Decision struct {
	Permission Permission
	// Transform is how much may be shown; Nothing when it is refused. For
	// create and update it is never more than Mask, and a deletion has nothing
	// to show: Redact. Permissions that are not on tokens have Redact too.
	Transform Transform
	// DependsOnID says that the target named no id and the answer might be
	// kinder to some ids. What is said here holds for all of them.
	DependsOnID bool
	// By is the step that settled it: of several containers, and of a session
	// and its maker, the one that allows least.
	By Step
	// entity is the target, when it is a token that exists.
	entity Entity
}

// Allowed reports whether the operation may be done.
func (d Decision) Allowed() bool { return d.Transform != Nothing }

// Err returns nil when the operation is allowed, and a *Denial otherwise: about
// the token, where the target was one that exists.
func (d Decision) Err() error {
	if d.Allowed() {
		return nil
	}
	err := denial(d.Permission)
	if d.entity.ID == "" {
		return err
	}
	return About(err, d.entity)
}

// Step is a look at one rule, or at the plain permissions, for one container.
type Step struct {
	// Maker says that the rule is one of the application that authorized the
	// session; otherwise it is the caller's own.
	Maker     bool
	Container string
	Rule      int // position in the list as it was given, from 0; or NoRule
	Priority  int // of that rule
	Condition int // position of the condition that fails; see ConditionFails
	Reason    Reason
	Transform Transform // what it allows here, if it decides
}

// NoRule stands for the position of a rule where no rule was involved.
const NoRule = -1

// Reason says what a step found.
type Reason uint8

// The reasons.
const (
	_                 Reason = iota
	Decides                  // the rule matches first
	WithoutPermission        // the rule does not carry the permission
	OtherContainer           // the rule is about another container
	ConditionFails           // a condition of the rule does not hold
	NeedsID                  // the rule would match some ids, and none is known
	PlainDecides             // no rule decides and the permission is held plainly
	PlainMissing             // no rule decides and it is not held plainly either
	CannotHold               // a caller of this kind cannot hold the permission
	WrongTarget              // the target is not one that the permission is about
)

var reasonWords = [...]string{
	Decides:           "the rule matches and decides",
	WithoutPermission: "the rule does not carry the permission",
	OtherContainer:    "the rule is about another container",
	ConditionFails:    "a condition of the rule does not hold",
	NeedsID:           "the rule depends on the id",
	PlainDecides:      "no rule matches; the plain permission decides",
	PlainMissing:      "no rule matches and the plain permission is missing",
	CannotHold:        "a caller of this kind cannot hold the permission",
	WrongTarget:       "the target is not one that the permission is about",
}

// String says the reason in words.
func (r Reason) String() string {
	if int(r) >= len(reasonWords) {
		return ""
	}
	return reasonWords[r]
}

// outcomes are the transforms that an answer may come to, as bits: one of them
// when everything is known, several when the id would tell.
type outcomes uint8

func only(t Transform) outcomes { return 1 << t }

func (o outcomes) least() Transform { return Transform(bits.TrailingZeros8(uint8(o))) }
func (o outcomes) most() Transform  { return Transform(bits.Len8(uint8(o)) - 1) }

// lesser returns what the lesser of two answers may be: everything in either
// that is not above all that is in the other.
func lesser(a, b outcomes) outcomes {
	return a&(only(b.most()+1)-1) | b&(only(a.most()+1)-1)
}

// trace gathers the steps of a decision; a nil one gathers nothing.
type trace struct{ steps []Step }

func (t *trace) add(s Step) {
	if t != nil {
		t.steps = append(t.steps, s)
	}
}

// decide is the one place where a grant is read: what it says about a
// permission on a token in one container, and the step that allows least.
func (g Grant) decide(p Permission, container, id string, maker bool, t *trace) (outcomes, Step) {
	step := Step{Maker: maker, Container: container, Rule: NoRule}
	if !g.limit.has(p) {
		step.Reason = CannotHold
		t.add(step)
		return only(Nothing), step
	}
	var possible outcomes
	var by Step
	settle := func(s Step) {
		if possible == 0 || s.Transform < by.Transform {
			by = s
		}
		possible |= only(s.Transform)
		t.add(s)
	}
	rules := g.rules()
	for i := range rules {
		r := &rules[i]
		reason, condition := r.match(p, container, id)
		if t == nil && reason != Decides && reason != NeedsID {
			continue
		}
		s := step
		s.Rule, s.Priority, s.Reason, s.Condition = r.position, r.priority, reason, condition
		switch reason {
		case Decides:
			s.Transform = p.under(r.shows(p, g.reasoned))
			settle(s)
			return possible, by
		case NeedsID:
			s.Transform = p.under(r.shows(p, g.reasoned))
			settle(s)
		default:
			t.add(s)
		}
	}
	step.Reason = PlainMissing
	if g.plain().has(p) {
		step.Reason, step.Transform = PlainDecides, p.row().plain
	}
	settle(step)
	return possible, by
}
