package audit

import (
	"slices"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// EventType is a kind of events.
type EventType struct {
	Name        string
	Description string
}

// The types of events that no operation on an entity names.
const (
	EventCheckpoint      = "audit.checkpoint"
	EventLimitReached    = "limit.reached"
	EventRotated         = "key.rotation_finished"
	EventWebhookDisabled = "webhook.disabled"
	EventWebhookTest     = "webhook.test"
)

// eventTypes are in the order of the documentation.
var eventTypes = []EventType{
	{"token.created", "a token was created"},
	{"token.updated", "a token was changed"},
	{"token.deleted", "a token was deleted"},
	{"token.expired", "a token was removed because it had expired"},
	{"application.created", "an application was created"},
	{"application.updated", "an application was changed"},
	{"application.key_rotated", "an application got one new key in place of all others"},
	{"application.deleted", "an application was deleted"},
	{"key.created", "an application got another key"},
	{"key.deleted", "a key of an application was deleted"},
	{EventRotated, "all rows of the tenant are sealed with its new data key"},
	{"session.created", "a session was created"},
	{"session.updated", "a session was authorized"},
	{"session.deleted", "a session was ended"},
	{"session.expired", "a session was removed because it had expired"},
	{"reactor.created", "a reactor was created"},
	{"reactor.updated", "a reactor was changed"},
	{"reactor.deleted", "a reactor was deleted"},
	{"proxy.created", "a proxy was created"},
	{"proxy.updated", "a proxy was changed"},
	{"proxy.key_rotated", "a proxy got a new key"},
	{"proxy.deleted", "a proxy was deleted"},
	{"tenant.created", "the tenant was created"},
	{"tenant.updated", "the name or settings of the tenant were changed"},
	{"tenant.secret_rotated", "the tenant got a new callback secret"},
	{"webhook.created", "a webhook was created"},
	{"webhook.updated", "a webhook was changed"},
	{"webhook.secret_rotated", "a webhook got a new secret"},
	{"webhook.deleted", "a webhook was deleted"},
	{"member.created", "a member was added"},
	{"member.updated", "a member was changed"},
	{"member.deleted", "a member was removed"},
	{"role.created", "a role was added"},
	{"role.updated", "a role was changed"},
	{"role.deleted", "a role was deleted"},
	{EventWebhookDisabled, "a webhook was disabled because its receiver failed or returned 410"},
	{EventWebhookTest, "a test was requested; it goes to that webhook only"},
	{EventCheckpoint, "batches of the audit log were signed; the entity is the number of the newest; at most once an hour"},
	{EventLimitReached, "the tenant reached a limit; the entity is the name of the limit; at most once an hour for each"},
}

// EventTypes returns all of them.
func EventTypes() []EventType { return slices.Clone(eventTypes) }

// MatchEvent reports whether a pattern chooses a type of events: "*" for all,
// "token.*" for those of an entity, or the type itself.
func MatchEvent(pattern, name string) bool {
	if pattern == "*" || pattern == name {
		return true
	}
	prefix, all := strings.CutSuffix(pattern, "*")
	return all && strings.HasSuffix(prefix, ".") && strings.HasPrefix(name, prefix)
}

// ValidEventPattern reports whether a pattern chooses at least one type.
func ValidEventPattern(pattern string) bool {
	return slices.ContainsFunc(eventTypes, func(t EventType) bool { return MatchEvent(pattern, t.Name) })
}

// changeWords are the last words of the types of events, by operation. What reads
// and uses has no event.
var changeWords = map[Operation]string{Create: "created", Update: "updated", Delete: "deleted", Rotate: "key_rotated"}

// eventOf returns the type of the event of an operation; "" for none. It is derived
// from the entry, so that no change is without one. Entries about the log itself
// have none: retention is no change of the tenant's.
func eventOf(entityType string, op Operation) string {
	word := changeWords[op]
	if word == "" || entityType == Log {
		return ""
	}
	if op == Rotate && (entityType == Tenant || entityType == Webhook) {
		word = "secret_rotated"
	}
	return eventEntity(entityType) + "." + word
}

// eventEntity is the first word of a type of events: tokens of all types are
// tokens.
func eventEntity(entityType string) string {
	if nounOf(entityType) == nounOf(Token) {
		return Token
	}
	return entityType
}

// Quiet is an entry without an event: it tells more of a change that another
// entry of the transaction records.
func Quiet(e store.LogEntry) store.LogEntry {
	e.Event = ""
	return e
}

// Announced is the entry for something that the program itself did or found,
// with an event of its own. The words are constants of the program.
func Announced(tenant string, now time.Time, event, entityType, entityID string, op Operation, what string) store.LogEntry {
	e := entry(access.NewSystem(tenant), now, entityType, entityID, op, outcomeAllowed, nounOf(entityType)+" "+what)
	e.Event = event
	return e
}
