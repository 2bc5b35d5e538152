package audit_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
)

// noEvent are the changes that have no type of events, with the reason.
var noEvent = map[string]string{
	"event.created": "events are written with other changes", "event.updated": "events do not change", "event.deleted": "retention is no change of the tenant's",
	"event.key_rotated": "events have no key", "key.updated": "keys do not change", "key.key_rotated": "a new key is another key",
	"reactor.key_rotated": "reactors have no key", "session.key_rotated": "sessions keep their key", "token.key_rotated": "tokens have no key",
	"member.key_rotated": "members have no key", "role.key_rotated": "roles have no key",
	"tenant.deleted": "the events go with the tenant",
}

func TestEveryChangeHasAnEventType(t *testing.T) {
	var types []string
	for _, e := range audit.EventTypes() {
		if e.Description == "" || slices.Contains(types, e.Name) {
			t.Errorf("the type %q has no description or comes twice", e.Name)
		}
		types = append(types, e.Name)
	}
	c, now := access.NewSystem("11111111-1111-4111-8111-111111111111"), time.Unix(0, 0)
	for _, entity := range audit.EntityTypes() {
		for _, op := range []audit.Operation{audit.Create, audit.Update, audit.Delete, audit.Rotate} {
			got := audit.Entry(c, now, entity.Value, "x", op).Event
			switch {
			case entity.Value == audit.Log:
				if got != "" {
					t.Errorf("%s of the log has the event %q, want none", op, got)
				}
			case slices.Contains(types, got) == (noEvent[got] != ""):
				t.Errorf("%s of %s has the event %q: it must be one of audit.EventTypes, or in noEvent with the reason", op, entity.Value, got)
			}
		}
		for _, op := range []audit.Operation{audit.Read, audit.Use} {
			if got := audit.Entry(c, now, entity.Value, "x", op).Event; got != "" {
				t.Errorf("%s of %s has the event %q, want none", op, entity.Value, got)
			}
		}
	}
}

func TestWhatIsNoChangeOfItsOwnHasNoEvent(t *testing.T) {
	c, now := access.NewSystem("11111111-1111-4111-8111-111111111111"), time.Unix(0, 0)
	for name, got := range map[string]string{
		"a quiet entry":   audit.Quiet(audit.Entry(c, now, audit.Application, "x", audit.Update)).Event,
		"a cancelled job": audit.JobCancelled(c, now, "x").Event,
		"a replay":        audit.Replayed(c, now, "card", "x").Event,
	} {
		if got != "" {
			t.Errorf("%s has the event %q, want none", name, got)
		}
	}
	if got := audit.Expired("t", now, "card", "x").Event; got != "token.expired" {
		t.Errorf("an expired card has the event %q, want token.expired", got)
	}
}

func TestPatternsOfEvents(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		matches       bool
	}{
		{"*", "token.created", true}, {"token.*", "token.created", true}, {"token.created", "token.created", true},
		{"token.*", "tokens.created", false}, {"token*", "token.created", false}, {"*.created", "token.created", false}, {"", "token.created", false},
		{"token.created", "token.deleted", false}, {".*", "token.created", false},
	} {
		if got := audit.MatchEvent(c.pattern, c.name); got != c.matches {
			t.Errorf("MatchEvent(%q, %q) = %v, want %v", c.pattern, c.name, got, c.matches)
		}
	}
	for pattern, want := range map[string]bool{"*": true, "webhook.*": true, "token.expired": true, "token.exploded": false, "robot.*": false, "": false, ".*": false} {
		if got := audit.ValidEventPattern(pattern); got != want {
			t.Errorf("ValidEventPattern(%q) = %v, want %v", pattern, got, want)
		}
	}
}
