package postgres

import (
	"maps"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// rows are rows to insert, changes of parcels, and what they do to the
// counters. They depend on no read and on no order, so those of several updates
// of a tenant can go into one statement for each table.
type rows struct {
	tokens   []tokenRow
	sessions []store.Session
	parcels  parcelRows
	entries  []entryRow
	// groups and kinds are changes of the counters, written once however many
	// rows of a kind the transaction touches.
	groups map[store.GroupKey]*groupDelta
	kinds  map[string]int64
	bytes  int // about how much there is to send
	// server is the one that must keep the rows, because what they tell of was
	// read there; empty for any.
	server string
}

// severalServers is what the rows of reads on different servers must be kept by:
// none.
const severalServers = "several"

type tokenRow struct {
	store.Token
	group      store.GroupKey
	containers string
	terms      []byte
}

type entryRow struct {
	store.LogEntry
	id pgtype.UUID
	// position is the number of the entry in its transaction.
	position int64
}

type groupDelta struct {
	kind, containers string
	tokens           int64
}

func (r *rows) empty() bool {
	return len(r.tokens)+len(r.sessions)+len(r.entries) == 0 && r.parcels.empty() && !r.counted()
}

func (r *rows) counted() bool { return len(r.groups) > 0 || len(r.kinds) > 0 }

// settled says that the rows have been taken; the counters stay.
func (r *rows) settled() {
	r.tokens, r.sessions, r.parcels, r.entries, r.bytes = nil, nil, parcelRows{}, nil, 0
}

// add takes the rows of another update along.
func (r *rows) add(other *rows) {
	r.tokens = append(r.tokens, other.tokens...)
	r.sessions = append(r.sessions, other.sessions...)
	r.parcels.add(&other.parcels)
	r.entries = append(r.entries, other.entries...)
	for group, d := range other.groups {
		r.countToken(group, d.kind, d.containers, d.tokens)
	}
	for kind, n := range other.kinds {
		r.countEntry(kind, n)
	}
	r.bytes += other.bytes
	switch {
	case r.server == "":
		r.server = other.server
	case other.server != "" && other.server != r.server:
		r.server = severalServers
	}
}

func (r *rows) countToken(group store.GroupKey, kind, containers string, n int64) {
	if r.groups == nil {
		r.groups = make(map[store.GroupKey]*groupDelta)
	}
	d := r.groups[group]
	if d == nil {
		d = &groupDelta{kind: kind, containers: containers}
		r.groups[group] = d
	}
	d.tokens += n
}

func (r *rows) countEntry(kind string, n int64) {
	if r.kinds == nil {
		r.kinds = make(map[string]int64)
	}
	r.kinds[kind] += n
}

// statements returns what writes the rows, but for the counters.
func (r *rows) statements() (steps []step) {
	if len(r.tokens) > 0 {
		steps = append(steps, insertTokens(r.tokens))
		if terms, some := insertTerms(r.tokens); some {
			steps = append(steps, terms)
		}
	}
	if len(r.sessions) > 0 {
		steps = append(steps, insertSessions(r.sessions))
	}
	steps = append(steps, r.parcels.statements()...)
	if len(r.entries) > 0 {
		steps = append(steps, insertEntries(r.entries))
		if events, some := insertEvents(r.entries); some {
			steps = append(steps, events)
		}
	}
	return steps
}

func insertTokens(tokens []tokenRow) step {
	n := len(tokens)
	var (
		ids, kinds, containers, makers, changers = make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		groups                                   = make([]pgtype.UUID, n)
		data, details, shortLived, terms         = make([][]byte, n), make([][]byte, n), make([][]byte, n), make([][]byte, n)
		expires                                  = make([]pgtype.Int8, n)
		offsets, made, changed                   = make([]int64, n), make([]int64, n), make([]int64, n)
		versions, derived                        = make([]int64, n), make([]int64, n)
	)
	for i, t := range tokens {
		ids[i], kinds[i], containers[i], makers[i], changers[i] = t.ID, t.Type, t.containers, t.CreatedBy, t.ModifiedBy
		groups[i] = groupColumn(t.group)
		data[i], details[i], shortLived[i], terms[i] = orEmpty(t.Data), t.Details, t.ShortLived, t.terms
		expires[i] = orNull(t.Expiry.At)
		offsets[i], made[i], changed[i] = int64(t.Expiry.OffsetSeconds), int64(t.CreatedAt), int64(t.ModifiedAt)
		versions[i], derived[i] = t.Version, t.DerivedAt()
	}
	return step{doing: "insert tokens", text: `
		INSERT INTO tokens (tenant_id, ` + tokenColumns + `)
		SELECT $1, * FROM unnest($2::text[], $3::uuid[], $4::text[], $5::text[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[],
		  $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::text[], $15::bigint[], $16::bigint[], $17::bigint[])`,
		args: []any{ids, groups, kinds, containers, data, details, shortLived, terms, expires, offsets, makers, made, changers, changed, versions, derived}}
}

func insertTerms(tokens []tokenRow) (_ step, some bool) {
	var (
		terms   [][]byte
		made    []int64
		ids     []string
		groups  []pgtype.UUID
		expires []pgtype.Int8
	)
	for _, t := range tokens {
		for _, term := range t.Terms {
			terms, made, ids = append(terms, term), append(made, int64(t.CreatedAt)), append(ids, t.ID)
			groups, expires = append(groups, groupColumn(t.group)), append(expires, orNull(t.Expiry.At))
		}
	}
	return step{doing: "insert search terms", text: `
		INSERT INTO token_terms (tenant_id, term, created_at, id, group_id, expires_at)
		SELECT $1, * FROM unnest($2::bytea[], $3::bigint[], $4::text[], $5::uuid[], $6::bigint[])`,
		args: []any{terms, made, ids, groups, expires}}, len(terms) > 0
}

// insertEntries appends to the log and to the queue of what is unsealed.
func insertEntries(entries []entryRow) step {
	n := len(entries)
	made, ids := make([]int64, n), make([]pgtype.UUID, n)
	texts := make([][]string, len(entryRow{}.texts()))
	for i := range texts {
		texts[i] = make([]string, n)
	}
	for i, e := range entries {
		made[i], ids[i] = int64(e.CreatedAt), e.id
		for j, text := range e.texts() {
			texts[j][i] = text
		}
	}
	args := []any{made, ids}
	for _, list := range texts {
		args = append(args, list)
	}
	return step{doing: "append to the log", text: `
		WITH appended AS (
		  INSERT INTO log (tenant_id, ` + logColumns + `)
		  SELECT $1, * FROM unnest($2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
		    $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[])
		  RETURNING tenant_id, created_at, id)
		INSERT INTO log_unsealed (tenant_id, created_at, id) SELECT tenant_id, created_at, id FROM appended`,
		args: args}
}

// texts are the entry's columns behind its place, in their order.
func (e entryRow) texts() [13]string {
	return [13]string{e.ActorID, e.ActorType, e.SessionID, e.EntityType, e.EntityID, e.Operation, e.Outcome, e.Message, e.TraceID, e.ClientAddress,
		e.ActorName, e.Transform, e.Reason}
}

// counters returns the statements that change the counters, in a slot. limit is
// how many containers the tenant may have.
func (r *rows) counters(slot int, limit int64) (steps []step, err error) {
	groups, types := make(map[store.GroupKey]*groupDelta), make(map[string]int64)
	for group, d := range r.groups {
		if d.tokens != 0 {
			groups[group] = d
			types[d.kind] += d.tokens
		}
	}
	if len(groups) > 0 {
		containers, some, err := countContainers(limit, groups)
		if err != nil {
			return nil, err
		}
		if some {
			steps = append(steps, containers)
		}
		steps = append(steps, countTokens(slot, groups))
	}
	maps.DeleteFunc(types, func(_ string, n int64) bool { return n == 0 })
	if len(types) > 0 {
		steps = append(steps, countTypes(slot, types))
	}
	if len(r.kinds) > 0 {
		var kinds []string
		var entries []int64
		for kind, n := range r.kinds {
			kinds, entries = append(kinds, kind), append(entries, n)
		}
		steps = append(steps, step{doing: "count log entries", text: `
			INSERT INTO log_counts (tenant_id, slot, entity_type, entries) SELECT $1, $2, * FROM unnest($3::text[], $4::bigint[])
			ON CONFLICT (tenant_id, entity_type, slot) DO UPDATE SET entries = log_counts.entries + excluded.entries`,
			args: []any{slot, kinds, entries}})
	}
	return steps, nil
}
