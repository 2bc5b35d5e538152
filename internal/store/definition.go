package store

import (
	"context"
	"strings"
	"unicode"
)

// The kinds of definitions. No kind has a slash in its name.
const (
	DefinitionReactor = "reactor"
	DefinitionProxy   = "proxy"
	DefinitionMember  = "member" // its name is sealed, and its KeyHash is that of its email
	DefinitionRole    = "role"   // its id is its name
)

// Definition is the row of a reactor, a proxy, a member or a role. What it does
// (code, configuration, destination, key) or is is sealed; the names of reactors
// and proxies stand in clear.
type Definition struct {
	Kind          string
	ID            string // one of its kind
	Name          string
	ApplicationID string // whose key its code acts with; empty for none
	KeyHash       []byte // keyed hash of a proxy's key; nil for reactors
	Contents      []byte // sealed
	CreatedBy     string
	CreatedAt     Time
	ModifiedBy    string
	ModifiedAt    Time
	// Version counts the changes; ReplaceDefinition checks it.
	Version int64
}

// Record is the name of the row to which its contents are sealed.
func (d Definition) Record() string { return d.Kind + "/" + d.ID }

// DefinitionFilter chooses definitions; each part narrows the choice, and an
// empty part does not.
type DefinitionFilter struct {
	Kind string
	IDs  []string
	// Name is a part of the name or, with a star for any run of characters in
	// it, the whole. The case of letters does not count. Whoever takes it from a
	// caller bounds its length.
	Name          string
	ApplicationID string
}

// DefinitionRows are the methods of a transaction on definitions.
type DefinitionRows interface {
	// InsertDefinition adds a definition; ErrExists when its kind has one of
	// that id, or the tenant one of that KeyHash.
	InsertDefinition(ctx context.Context, d Definition) error
	Definition(ctx context.Context, kind, id string) (Definition, error)
	// DefinitionByKey returns the definition whose key has that hash, or ErrNotFound.
	DefinitionByKey(ctx context.Context, hash []byte) (Definition, error)
	// ReplaceDefinition changes a row, but for its making. ErrNotFound when it
	// is not there, ErrConflict when d.Version is not one more than the stored
	// one, ErrExists when another one has its KeyHash.
	ReplaceDefinition(ctx context.Context, d Definition) error
	// DeleteDefinition removes a definition; ErrNotFound when it is not there.
	DeleteDefinition(ctx context.Context, kind, id string) error
	// Definitions returns a page, newest first; of all kinds, kind by kind.
	Definitions(ctx context.Context, f DefinitionFilter, p Page) ([]Definition, error)
	CountDefinitions(ctx context.Context, f DefinitionFilter) (int64, error)
}

// FoldName makes names equal that differ in the case of letters alone. Backends
// keep a name folded too, because each database has its own idea of case; and
// for one of them a text ends at a NUL, so there is none.
func FoldName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == 0 {
			return unicode.ReplacementChar
		}
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, name)
}

// NamePattern is DefinitionFilter.Name as a pattern of LIKE for folded names,
// with a backslash before what is no wildcard.
func NamePattern(name string) string {
	pattern := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`, `*`, `%`).Replace(FoldName(name))
	if !strings.Contains(name, "*") {
		pattern = "%" + pattern + "%"
	}
	return pattern
}
