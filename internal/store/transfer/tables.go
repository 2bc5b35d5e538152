package transfer

import "strings"

// Kind is what a column holds.
type Kind int

// The kinds of columns. Each backend has a type for each.
const (
	UUID Kind = iota
	Text
	Bytes
	Whole
	Flag
)

var kinds = map[string]Kind{"uuid": UUID, "text": Text, "bytes": Bytes, "whole": Whole, "flag": Flag}

// Column is a column of a table.
type Column struct {
	Name string
	Kind Kind
}

// Table is a table that all backends have.
type Table struct {
	Name    string
	Key     int // how many of the first columns are its primary key
	Columns []Column
	// Where chooses the rows that move; empty for all.
	Where string
	// Slotted says that a backend with several writers counts in slots. What
	// moves there is in the first.
	Slotted bool
}

// Tables are what moves, in this order. A table that is missing here is lost,
// so the tests of the backends compare the list with their schemas. Not here
// are the epoch keys, which move apart because they must not outlive their
// hour, and what a backend derives or needs for itself alone.
var Tables = []Table{
	Table{Name: "installation", Where: "name >= 'setting:' AND name < 'setting;'"}.of("name text", "value bytes"),
	Table{Name: "tenants"}.of("tenant_id uuid",
		"name text, settings text, secrets bytes, created_by text, created_at whole, modified_by text, modified_at whole, deleting flag"),
	Table{Name: "keysets"}.of("tenant_id uuid, purpose text",
		"wrapped bytes, kek text, version whole, created_at whole, modified_at whole"),
	Table{Name: "marks"}.of("tenant_id uuid, name text", "value bytes"),
	Table{Name: "applications"}.of("tenant_id uuid, id text",
		"name text, type text, permissions text, rules bytes, expires_at whole, created_by text, created_at whole, modified_by text, modified_at whole, version whole"),
	Table{Name: "application_keys"}.of("tenant_id uuid, hash bytes",
		"application_id text, id text, version whole, prefix text, created_by text, created_at whole"),
	Table{Name: "tokens"}.of("tenant_id uuid, id text",
		"group_id uuid, type text, containers text, data bytes, details bytes, short_lived bytes, terms bytes, expires_at whole, expires_offset whole, "+
			"created_by text, created_at whole, modified_by text, modified_at whole, version whole, derived_at whole"),
	Table{Name: "token_groups", Slotted: true}.of("tenant_id uuid, group_id uuid", "type text, containers text, tokens whole"),
	Table{Name: "token_terms"}.of("tenant_id uuid, term bytes, created_at whole, id text", "group_id uuid, expires_at whole"),
	Table{Name: "sessions"}.of("tenant_id uuid, id text",
		"key_hash bytes, nonce_hash bytes, prefix text, sealed_grant bytes, created_by text, created_at whole, authorized_by text, authorized_at whole, expires_at whole, version whole, "+
			"created_key_id text, authorized_key_id text"),
	Table{Name: "parcels"}.of("tenant_id uuid, kind text, id text",
		"group_name text, owner text, contents bytes, epoch whole, created_at whole, due_at whole, expires_at whole, attempts whole, version whole"),
	Table{Name: "definitions"}.of("tenant_id uuid, kind text, id text",
		"name text, folded_name text, application_id text, key_hash bytes, created_by text, created_at whole, modified_by text, modified_at whole, version whole, contents bytes"),
	Table{Name: "log"}.of("tenant_id uuid, created_at whole, id uuid",
		"actor_id text, actor_type text, session_id text, entity_type text, entity_id text, operation text, outcome text, message text, trace_id text, client_address text, actor_name text, reason text"),
	Table{Name: "log_counts", Slotted: true}.of("tenant_id uuid, entity_type text", "entries whole"),
	Table{Name: "log_unsealed"}.of("tenant_id uuid, created_at whole, id uuid", ""),
	Table{Name: "log_batches"}.of("tenant_id uuid, number whole",
		"entries whole, leaves bytes, root bytes, link bytes, signature bytes, sealed_at whole, dropped flag"),
}

// of gives a table its columns, the key first.
func (t Table) of(key, others string) Table {
	t.Key = strings.Count(key, ",") + 1
	if others != "" {
		key += ", " + others
	}
	for column := range strings.SplitSeq(key, ", ") {
		name, kind, _ := strings.Cut(column, " ")
		t.Columns = append(t.Columns, Column{name, kinds[kind]})
	}
	return t
}

// Names returns the names of the first n columns as a statement lists them.
func (t Table) Names(n int) string {
	names := make([]string, n)
	for i, c := range t.Columns[:n] {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}
