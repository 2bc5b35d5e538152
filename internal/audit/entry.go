// Package audit keeps a tenant's log: who did what to which entity, and proof
// that nobody changed the record afterwards.
//
// It promises that an entry commits with what it records or not at all, and
// that a sealed entry which is removed, changed or inserted later is found and
// named. It never holds data: an entry has ids, types, words of ours, and of
// people their name and the reason that they gave.
package audit

import (
	"cmp"
	"crypto/rand"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Operation is what was done to an entity.
type Operation string

// The operations.
const (
	Create Operation = "create"
	Read   Operation = "read"
	Update Operation = "update"
	Delete Operation = "delete"
	Use    Operation = "use"
	Rotate Operation = "rotate"
)

// past has the word of each operation for messages.
var past = map[Operation]string{
	Create: "created", Read: "retrieved", Update: "updated", Delete: "deleted", Use: "used", Rotate: "rotated",
}

// EntityType is a kind of thing that entries are about.
type EntityType struct {
	Value       string
	DisplayName string
	// noun begins the messages about entities of this type.
	noun string
}

// The entity types by name, for the services that log them. Tokens are logged
// under their own types, one of which is Token.
const (
	Application = "application"
	Key         = "key"
	Log         = "log"
	Member      = "member"
	Proxy       = "proxy"
	Reactor     = "reactor"
	Role        = "role"
	Session     = "session"
	Tenant      = "tenant"
	Token       = "token"
)

// entityTypes are in the order of their values.
var entityTypes = []EntityType{
	{Application, "Application", "Application"},
	{"bank", "Bank", "Token"},
	{"card", "Card", "Token"},
	{"card_number", "Card Number", "Token"},
	{"employer_id_number", "Employer ID Number", "Token"},
	{Key, "Key", "Key"},
	{Log, "Log", "Logs"},
	{Member, "Member", "Member"},
	{Proxy, "Proxy", "Proxy"},
	{Reactor, "Reactor", "Reactor"},
	{Role, "Role", "Role"},
	{Session, "Session", "Session"},
	{"social_security_number", "Social Security Number", "Token"},
	{Tenant, "Tenant", "Tenant"},
	{Token, "Token", "Token"},
	{"us_bank_account_number", "US Bank Account Number", "Token"},
	{"us_bank_routing_number", "US Bank Routing Number", "Token"},
}

// EntityTypes returns all of them.
func EntityTypes() []EntityType { return entityTypes }

// Many stands for the entity of a list: it has no id of its own.
const Many = "*"

// How an attempt ended.
const (
	outcomeAllowed = "allowed"
	outcomeDenied  = "denied"
)

// Entry is the entry for something that a caller did. A service appends it in
// the transaction of what it records.
func Entry(c access.Caller, now time.Time, entityType, entityID string, op Operation) store.LogEntry {
	return EntryBy(c, now, entityType, entityID, op, "")
}

// EntryPart is an entry whose message names the part of the entity that it is
// about: "Reactor result retrieved". The part is a constant of the program.
func EntryPart(c access.Caller, now time.Time, entityType, entityID, part string, op Operation) store.LogEntry {
	return entry(c, now, entityType, entityID, op, outcomeAllowed, nounOf(entityType)+" "+part+" "+past[op])
}

// EntryBy is an entry whose message says through what it happened: "Token used
// by proxy". The words are constants of the program.
func EntryBy(c access.Caller, now time.Time, entityType, entityID string, op Operation, by string) store.LogEntry {
	message := nounOf(entityType) + " " + past[op]
	if by != "" {
		message += " by " + by
	}
	return entry(c, now, entityType, entityID, op, outcomeAllowed, message)
}

// EntryThat is an entry with words of its own after the noun: "Token mask
// changed". They are constants of the program.
func EntryThat(c access.Caller, now time.Time, entityType, entityID string, op Operation, what string) store.LogEntry {
	return entry(c, now, entityType, entityID, op, outcomeAllowed, nounOf(entityType)+" "+what)
}

// DeniedThat is EntryThat for something that was refused: "Member sign-in
// denied".
func DeniedThat(c access.Caller, now time.Time, entityType, entityID string, op Operation, what string) store.LogEntry {
	return entry(c, now, entityType, entityID, op, outcomeDenied, nounOf(entityType)+" "+what)
}

// Replayed is the entry for a stored result about an entity that was given out
// again: "Token result replayed".
func Replayed(c access.Caller, now time.Time, entityType, entityID string) store.LogEntry {
	return entry(c, now, entityType, entityID, Read, outcomeAllowed, nounOf(entityType)+" result replayed")
}

// Expired is the entry for something that the program itself removed because
// its time was over.
func Expired(tenant string, now time.Time, entityType, entityID string) store.LogEntry {
	return entry(access.NewSystem(tenant), now, entityType, entityID, Delete, outcomeAllowed, nounOf(entityType)+" expired")
}

// JobCancelled is the entry for a queued job of a reactor that was removed before
// it ran, because the caller that requested it may no longer run the reactor.
func JobCancelled(c access.Caller, now time.Time, reactor string) store.LogEntry {
	return entry(c, now, Reactor, reactor, Update, outcomeDenied, nounOf(Reactor)+" job cancelled")
}

func entry(c access.Caller, now time.Time, entityType, entityID string, op Operation, outcome, message string) store.LogEntry {
	return store.LogEntry{
		ID: newID(now), CreatedAt: store.At(now), ActorID: c.Application(), ActorType: c.ActorType(), SessionID: cmp.Or(c.Session(), c.Member().SignIn),
		EntityType: entityType, EntityID: entityID, Operation: string(op), Outcome: outcome, Message: message,
		TraceID: c.Origin().TraceID, ClientAddress: c.Origin().Address,
		ActorName: c.Member().Name, Reason: c.Reason(),
	}
}

func nounOf(entityType string) string {
	for _, e := range entityTypes {
		if e.Value == entityType {
			return e.noun
		}
	}
	return "Entity"
}

// newID returns a UUID of version 7 for the time of the entry: entries of one
// time stand together in the indexes, and the rest of the id is random.
func newID(now time.Time) string {
	var id uuid.UUID
	_, _ = rand.Read(id[:]) // never fails
	ms := uint64(now.UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}
