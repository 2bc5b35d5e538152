// Package definition keeps what tenants define once and call often: reactors
// and proxies.
//
// It promises that what a definition does is sealed, and bound to its id, its
// application and its key: a row that was changed by hand does not open. Every
// change and every look is in the log with it. It never runs anything, and it
// does not know what the contents mean: packages reactor and proxy do.
package definition

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Bounds on definitions.
const (
	maxName   = 200    // characters
	maxConfig = 25     // entries of a configuration
	maxValue  = 10_000 // characters of a value of it
	// maxConfigSize bounds all of it, in bytes of JSON: it goes to the code
	// beside arguments that may take all of their own room.
	maxConfigSize = 60 << 10
	// MaxCode bounds a piece of code, in characters.
	MaxCode = 50_000
)

var (
	errNoTenant = fault.New(fault.NotFound, "no such tenant")
	errChanged  = fault.New(fault.Conflict, "it was changed meanwhile; read it again").RetryAfter(time.Second)
)

// Kind is a kind of definitions.
type Kind struct {
	Row                          string // store.DefinitionReactor or store.DefinitionProxy
	Entity                       string // in the log
	Create, Read, Update, Delete access.Permission
	// Absent is the fault for one that is not there.
	Absent *fault.Fault
	// Anonymous reports whether contents let callers without a key use tokens
	// when the definition has no application; nil for kinds that never do.
	Anonymous func(contents jsonvalue.Value) bool
	// Users is the kind whose definitions may name those of this one; "" for
	// none. One that is named cannot be deleted: InUse says so, with a count.
	Users string
	InUse *fault.Fault
}

// Definition is what definitions of all kinds have. Package reactor and package
// proxy each have a type of their own that holds one. Its contents do not print:
// they hold code, secrets and keys.
type Definition struct {
	ID            string
	TenantID      string
	Name          string
	ApplicationID string // whose rights its code has; "" for none
	Contents      jsonvalue.Value
	// Reactors are those that it names. They exist while it does.
	Reactors   []string
	CreatedBy  string
	CreatedAt  time.Time
	ModifiedBy string
	ModifiedAt time.Time
	// Version counts the changes.
	Version int64
}

// Draft is what a caller may choose of a definition.
type Draft struct {
	Name          string
	ApplicationID string
	Contents      jsonvalue.Value
	// Reactors are those that it names, by the field that names each.
	Reactors map[string]string

	applicationPath string // of the field that named the application, for faults
}

// Service keeps the definitions of one kind, which T is the type of. Its methods
// are safe for concurrent use.
type Service[T any] struct {
	kind  Kind
	store store.Store
	ring  *keyring.Ring
	now   func() time.Time
	// key returns the key by which a definition is called, from its contents;
	// nil for kinds that have none.
	key func(jsonvalue.Value) secret.Text
	as  func(Definition) T
	// code returns the pieces of code in contents; nil keeps no versions.
	code func(jsonvalue.Value) map[string]string
}

// New returns the service for one kind. key returns the key by which a
// definition is called, and is nil for kinds without one. as makes one of that
// kind of a definition.
func New[T any](kind Kind, s store.Store, ring *keyring.Ring, now func() time.Time, key func(contents jsonvalue.Value) secret.Text, as func(Definition) T) *Service[T] {
	return &Service[T]{kind: kind, store: s, ring: ring, now: now, key: key, as: as}
}

// The members of what is sealed: the contents, and all in clear that decides
// whose rights they have and who reaches them.
const (
	memberApplication = "application_id"
	memberKeyHash     = "key_hash"
	memberReactors    = "reactors" // absent when there are none
	memberContents    = "contents"
)

func (s *Service[T]) seal(keys *keyring.Keys, r *store.Definition, d Draft) (err error) {
	if s.key != nil {
		r.KeyHash = keys.HashKey(s.key(d.Contents))
	}
	var b jsonvalue.Builder
	b.Add(memberApplication, jsonvalue.NewString(r.ApplicationID))
	b.Add(memberKeyHash, jsonvalue.NewString(hex.EncodeToString(r.KeyHash)))
	if reactors := d.reactors(); len(reactors) > 0 {
		list := make([]jsonvalue.Value, len(reactors))
		for i, id := range reactors {
			list[i] = jsonvalue.NewString(id)
		}
		b.Add(memberReactors, jsonvalue.NewArray(list))
	}
	b.Add(memberContents, d.Contents)
	r.Contents, err = b.Value().Sealed(func(plain []byte) ([]byte, error) {
		return keys.Seal(r.Record(), keyring.FieldDefinition, plain)
	})
	return err
}

func (s *Service[T]) open(keys *keyring.Keys, r store.Definition) (d Definition, err error) {
	plain, err := keys.Open(r.Record(), keyring.FieldDefinition, r.Contents)
	if err != nil {
		return d, fmt.Errorf("open a definition: %w", err)
	}
	defer clear(plain)
	v, err := jsonvalue.Parse(plain)
	if err != nil {
		return d, errors.New("decode a definition")
	}
	application, _ := v.Get(memberApplication)
	hash, _ := v.Get(memberKeyHash)
	contents, _ := v.Get(memberContents)
	named, _ := v.Get(memberReactors)
	var reactors []string
	for _, id := range named.Items() {
		reactors = append(reactors, id.PublicText())
	}
	if application.PublicText() != r.ApplicationID || hash.PublicText() != hex.EncodeToString(r.KeyHash) {
		return d, fmt.Errorf("open a definition: %w", &keyring.OpenError{Record: r.Record(), Field: keyring.FieldDefinition})
	}
	return opened(keys.Tenant(), r, contents, reactors), nil
}

// opened is the definition of a row, with what the row has sealed.
func opened(tenant string, r store.Definition, contents jsonvalue.Value, reactors []string) Definition {
	return Definition{
		ID: r.ID, TenantID: tenant, Name: r.Name, ApplicationID: r.ApplicationID, Contents: contents, Reactors: reactors,
		CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt.Time(), ModifiedBy: r.ModifiedBy, ModifiedAt: r.ModifiedAt.Time(), Version: r.Version,
	}
}

func (s *Service[T]) keysOf(ctx context.Context, tenant string) (*keyring.Keys, error) {
	keys, err := s.ring.For(ctx, tenant)
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return nil, errNoTenant
	}
	if err != nil {
		return nil, fmt.Errorf("get keys: %w", err)
	}
	return keys, nil
}

func (s *Service[T]) keysFor(ctx context.Context, c access.Caller, p access.Permission) (*keyring.Keys, error) {
	if err := c.Require(p); err != nil {
		return nil, err
	}
	return s.keysOf(ctx, c.Tenant())
}

// CheckName notes what is wrong with the name of a definition.
func CheckName(f *fault.Fields, name string) {
	if n := utf8.RuneCountInString(name); n < 1 || n > maxName {
		f.Add("name", "must have 1 to 200 characters")
	} else if strings.TrimSpace(name) == "" {
		f.Add("name", "must not be blank")
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			f.Add("name", "must not hold control characters")
		}
	}
}

// CheckConfiguration notes what is wrong with a configuration: a JSON object
// whose values are texts.
func CheckConfiguration(f *fault.Fields, configuration jsonvalue.Value) {
	if configuration.Kind() != jsonvalue.Object {
		f.Add("configuration", "must be an object")
		return
	}
	if configuration.Len() > maxConfig {
		f.Add("configuration", "must have at most 25 entries")
	}
	if configuration.JSONSize() > maxConfigSize {
		f.Add("configuration", "must come to at most 60 KiB of JSON")
	}
	for name, value := range configuration.Members() {
		if value.Kind() != jsonvalue.String {
			f.Add("configuration", "must have values that are strings")
		} else if name == "" || utf8.RuneCountInString(name) > maxName || value.Characters() > maxValue {
			f.Add("configuration", "must have names of 1 to 200 characters and values of at most 10,000")
		}
	}
}

// checkApplication refuses an application that cannot be named.
func checkApplication(ctx context.Context, tx store.Tx, d Draft) error {
	if d.ApplicationID == "" {
		return nil
	}
	a, err := tx.Application(ctx, d.ApplicationID)
	if errors.Is(err, store.ErrNotFound) || err == nil && a.Type != string(access.Public) && a.Type != string(access.Private) {
		return fault.Field(cmp.Or(d.applicationPath, wireReference), "must be a public or private application of the tenant")
	}
	if err != nil {
		return fmt.Errorf("look for application: %w", err)
	}
	return nil
}

// mayDefine refuses a member whose role allows less than the definition will do:
// with the rights of its application or, without one, for callers without a key.
func (s *Service[T]) mayDefine(ctx context.Context, tx store.Tx, keys *keyring.Keys, c access.Caller, p access.Permission, d Draft) error {
	if d.ApplicationID == "" && s.kind.Anonymous != nil && s.kind.Anonymous(d.Contents) {
		return c.RequireToConfer(p, access.Private, access.PlainGrant(access.TokenUse))
	}
	return directory.RequireToPoint(ctx, tx, keys, c, p, d.ApplicationID)
}

// RequireToRun returns nil when the caller may have code act as a draft says
// that is not stored: the question that a definition is stored by.
func (s *Service[T]) RequireToRun(ctx context.Context, c access.Caller, d Draft) error {
	keys, err := s.keysOf(ctx, c.Tenant())
	if err != nil {
		return err
	}
	return s.store.View(ctx, c.Tenant(), func(tx store.Tx) error {
		return s.mayDefine(ctx, tx, keys, c, s.kind.Update, d)
	})
}

// reactors are the ids of those that a draft names, each once, in order.
func (d Draft) reactors() []string {
	return slices.Compact(slices.Sorted(maps.Values(d.Reactors)))
}

// checkReactors refuses reactors that do not exist in the tenant.
func checkReactors(ctx context.Context, tx store.Tx, d Draft) error {
	var f fault.Fields
	for path, id := range d.Reactors {
		_, err := tx.Definition(ctx, store.DefinitionReactor, id)
		if errors.Is(err, store.ErrNotFound) {
			f.AddCode(path, "reactor_unknown", "must be a reactor of the tenant")
		} else if err != nil {
			return fmt.Errorf("look for reactor: %w", err)
		}
	}
	return f.Err()
}

// Create adds a definition. Its contents were checked by whoever knows them.
func (s *Service[T]) Create(ctx context.Context, c access.Caller, in Draft, last ...store.Step[T]) (made T, err error) {
	var none T
	keys, err := s.keysFor(ctx, c, s.kind.Create)
	if err != nil {
		return none, err
	}
	r := store.Definition{
		Kind: s.kind.Row, ID: access.NewID(), Name: in.Name, ApplicationID: in.ApplicationID,
		CreatedBy: c.Application(), CreatedAt: store.At(s.now()), Version: 1,
	}
	if err := s.seal(keys, &r, in); err != nil {
		return none, err
	}
	made = s.as(opened(c.Tenant(), r, in.Contents, in.reactors()))
	err = s.store.Update(ctx, c.Tenant(), func(tx store.Tx) error {
		if err := checkApplication(ctx, tx, in); err != nil {
			return err
		}
		if err := s.mayDefine(ctx, tx, keys, c, s.kind.Create, in); err != nil {
			return err
		}
		if err := checkReactors(ctx, tx, in); err != nil {
			return err
		}
		if err := tx.InsertDefinition(ctx, r); err != nil {
			return fmt.Errorf("insert a definition: %w", err)
		}
		if err := s.keepVersion(ctx, tx, c, keys, r, in.Contents, nil); err != nil {
			return err
		}
		if err := tx.AppendLog(ctx, audit.Entry(c, s.now(), s.kind.Entity, r.ID, audit.Create)); err != nil {
			return err
		}
		return store.Finish(tx, made, last)
	})
	if err != nil {
		return none, err
	}
	return made, nil
}

// Get returns a definition.
func (s *Service[T]) Get(ctx context.Context, c access.Caller, id string) (got T, err error) {
	keys, err := s.keysFor(ctx, c, s.kind.Read)
	if err != nil {
		return got, err
	}
	var r store.Definition
	err = s.store.Read(ctx, c.Tenant(), func(tx store.Tx) (err error) {
		if r, err = s.row(ctx, tx, id); err != nil {
			return err
		}
		return tx.AppendLog(ctx, audit.Entry(c, s.now(), s.kind.Entity, id, audit.Read))
	})
	if err != nil {
		return got, err
	}
	return s.openAs(keys, r)
}

// openAs is open for those who get the result.
func (s *Service[T]) openAs(keys *keyring.Keys, r store.Definition) (got T, err error) {
	d, err := s.open(keys, r)
	if err != nil {
		return got, err
	}
	return s.as(d), nil
}

func (s *Service[T]) row(ctx context.Context, tx store.Tx, id string) (store.Definition, error) {
	r, err := tx.Definition(ctx, s.kind.Row, id)
	if errors.Is(err, store.ErrNotFound) {
		return r, s.kind.Absent
	}
	if err != nil {
		return r, fmt.Errorf("look for a definition: %w", err)
	}
	return r, nil
}

// Filter chooses definitions. The zero filter chooses all.
type Filter struct {
	IDs  []string
	Name string // * stands for any run; without * a part of the name; case ignored
}

// List returns a page, newest first, and how many match in all.
func (s *Service[T]) List(ctx context.Context, c access.Caller, f Filter, page store.Page) (list []T, total int64, err error) {
	keys, err := s.keysFor(ctx, c, s.kind.Read)
	if err != nil {
		return nil, 0, err
	}
	filter := store.DefinitionFilter{Kind: s.kind.Row, IDs: f.IDs, Name: f.Name}
	var rows []store.Definition
	err = s.store.Read(ctx, c.Tenant(), func(tx store.Tx) (err error) {
		if rows, err = tx.Definitions(ctx, filter, page); err != nil {
			return fmt.Errorf("list definitions: %w", err)
		}
		if total, err = tx.CountDefinitions(ctx, filter); err != nil {
			return fmt.Errorf("count definitions: %w", err)
		}
		return tx.AppendLog(ctx, audit.Entry(c, s.now(), s.kind.Entity, audit.Many, audit.Read))
	})
	if err != nil {
		return nil, 0, err
	}
	for _, r := range rows {
		d, err := s.openAs(keys, r)
		if err != nil {
			return nil, 0, err
		}
		list = append(list, d)
	}
	return list, total, nil
}

// Definitions are opened outside the transaction that writes, which others wait
// for. A row that another caller has changed in between is opened again.
const maxAttempts = 50

var errStale = errors.New("a definition was changed after it was opened")

// again calls try until it has not failed for a row that was changed in
// between; errChanged when that goes on.
func again(try func() error) error {
	var err error
	for range maxAttempts {
		if err = try(); !errors.Is(err, errStale) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", errChanged, err)
}

// Change replaces a definition by what change makes of it. change may run more
// than once, does no I/O, and reports faults of its own.
func (s *Service[T]) Change(ctx context.Context, c access.Caller, id string, op audit.Operation, change func(T) (Draft, error), last ...store.Step[T]) (changed T, err error) {
	var none T
	keys, err := s.keysFor(ctx, c, s.kind.Update)
	if err != nil {
		return none, err
	}
	err = again(func() (err error) {
		changed, err = s.changeOnce(ctx, c, keys, id, op, change, last)
		return err
	})
	if errors.Is(err, store.ErrConflict) {
		return none, fmt.Errorf("%w: %w", errChanged, err)
	}
	if err != nil {
		return none, err
	}
	return changed, nil
}

// changeOnce is Change, unless the row is changed in between: then errStale.
func (s *Service[T]) changeOnce(ctx context.Context, c access.Caller, keys *keyring.Keys, id string, op audit.Operation, change func(T) (Draft, error), last []store.Step[T]) (changed T, err error) {
	var r store.Definition
	err = s.store.View(ctx, c.Tenant(), func(tx store.Tx) (err error) {
		r, err = s.row(ctx, tx, id)
		return err
	})
	if err != nil {
		return changed, err
	}
	was, err := s.open(keys, r)
	if err != nil {
		return changed, err
	}
	next, err := change(s.as(was))
	if err != nil {
		return changed, err
	}
	before := s.versionOf(was)
	moved := next.ApplicationID != r.ApplicationID
	r.Name, r.ApplicationID = next.Name, next.ApplicationID
	r.ModifiedBy, r.ModifiedAt = c.Application(), store.At(s.now())
	r.Version++
	if err := s.seal(keys, &r, next); err != nil {
		return changed, err
	}
	changed = s.as(opened(c.Tenant(), r, next.Contents, next.reactors()))
	return changed, s.store.Update(ctx, c.Tenant(), func(tx store.Tx) error {
		if current, err := s.row(ctx, tx, id); err != nil {
			return err
		} else if current.Version+1 != r.Version {
			return errStale
		}
		if moved {
			if err := checkApplication(ctx, tx, next); err != nil {
				return err
			}
		}
		if err := s.mayDefine(ctx, tx, keys, c, s.kind.Update, next); err != nil {
			return err
		}
		if err := checkReactors(ctx, tx, next); err != nil {
			return err
		}
		if err := tx.ReplaceDefinition(ctx, r); err != nil {
			return fmt.Errorf("replace a definition: %w", err)
		}
		if err := s.keepVersion(ctx, tx, c, keys, r, next.Contents, before); err != nil {
			return err
		}
		if err := tx.AppendLog(ctx, audit.Entry(c, s.now(), s.kind.Entity, id, op)); err != nil {
			return err
		}
		return store.Finish(tx, changed, last)
	})
}

// Delete removes a definition, unless another names it.
func (s *Service[T]) Delete(ctx context.Context, c access.Caller, id string) error {
	if err := c.Require(s.kind.Delete); err != nil {
		return err
	}
	if s.kind.Users == "" {
		return s.deleteIf(ctx, c, id, func(store.Tx) error { return nil })
	}
	keys, err := s.keysOf(ctx, c.Tenant())
	if err != nil {
		return err
	}
	return again(func() error {
		naming, err := s.naming(ctx, keys, id)
		if err != nil {
			return err
		}
		return s.deleteIf(ctx, c, id, func(tx store.Tx) error { return s.checkUnused(ctx, tx, naming, id) })
	})
}

// deleteIf removes a definition when check, in the same transaction, finds
// nothing against it.
func (s *Service[T]) deleteIf(ctx context.Context, c access.Caller, id string, check func(store.Tx) error) error {
	return s.store.Update(ctx, c.Tenant(), func(tx store.Tx) error {
		if err := check(tx); err != nil {
			return err
		}
		if err := tx.DeleteDefinition(ctx, s.kind.Row, id); errors.Is(err, store.ErrNotFound) {
			return s.kind.Absent
		} else if err != nil {
			return fmt.Errorf("delete a definition: %w", err)
		}
		if err := s.dropVersions(ctx, tx, id); err != nil {
			return err
		}
		return tx.AppendLog(ctx, audit.Entry(c, s.now(), s.kind.Entity, id, audit.Delete))
	})
}

// revision is one version of a definition.
type revision struct {
	id      string
	version int64
}

// naming opens the definitions that may name another, and reports of each
// whether it does. Which they name is sealed, so each is opened: there are few,
// and this is rare.
func (s *Service[T]) naming(ctx context.Context, keys *keyring.Keys, id string) (map[revision]bool, error) {
	var rows []store.Definition
	err := s.store.View(ctx, keys.Tenant(), func(tx store.Tx) (err error) {
		rows, err = s.users(ctx, tx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	naming := make(map[revision]bool, len(rows))
	for _, r := range rows {
		d, err := s.open(keys, r)
		if err != nil {
			return nil, err
		}
		naming[revision{r.ID, r.Version}] = slices.Contains(d.Reactors, id)
	}
	return naming, nil
}

// users returns the rows of the definitions that may name another, which must
// be there.
func (s *Service[T]) users(ctx context.Context, tx store.Tx, id string) ([]store.Definition, error) {
	if _, err := s.row(ctx, tx, id); err != nil {
		return nil, err
	}
	rows, err := tx.Definitions(ctx, store.DefinitionFilter{Kind: s.kind.Users}, store.Page{Limit: math.MaxInt32})
	if err != nil {
		return nil, fmt.Errorf("list definitions: %w", err)
	}
	return rows, nil
}

// checkUnused refuses to delete what definitions of another kind name. A row
// that naming does not have was written since: errStale.
func (s *Service[T]) checkUnused(ctx context.Context, tx store.Tx, naming map[revision]bool, id string) error {
	rows, err := s.users(ctx, tx, id)
	if err != nil {
		return err
	}
	var users int64
	for _, r := range rows {
		names, known := naming[revision{r.ID, r.Version}]
		if !known {
			return errStale
		}
		if names {
			users++
		}
	}
	if users > 0 {
		return s.kind.InUse.Counting(users)
	}
	return nil
}

// Find returns a definition to run it. It asks for no permission and logs
// nothing: whoever runs it does both, when the tokens are known.
func (s *Service[T]) Find(ctx context.Context, tenant, id string) (T, error) {
	return s.find(ctx, tenant, func(_ *keyring.Keys, tx store.Tx) (store.Definition, error) {
		return tx.Definition(ctx, s.kind.Row, id)
	})
}

// FindAll returns all definitions, newest first. As with Find, no permission is
// checked and nothing is logged.
func (s *Service[T]) FindAll(ctx context.Context, tenant string) (list []T, err error) {
	keys, err := s.keysOf(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var rows []store.Definition
	err = s.store.View(ctx, tenant, func(tx store.Tx) (err error) {
		rows, err = tx.Definitions(ctx, store.DefinitionFilter{Kind: s.kind.Row}, store.Page{Limit: math.MaxInt32})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list definitions: %w", err)
	}
	for _, r := range rows {
		d, err := s.openAs(keys, r)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

// FindByKey is Find for whoever has the definition's key.
func (s *Service[T]) FindByKey(ctx context.Context, tenant string, key secret.Text) (T, error) {
	return s.find(ctx, tenant, func(keys *keyring.Keys, tx store.Tx) (store.Definition, error) {
		return tx.DefinitionByKey(ctx, keys.HashKey(key))
	})
}

func (s *Service[T]) find(ctx context.Context, tenant string, look func(*keyring.Keys, store.Tx) (store.Definition, error)) (d T, err error) {
	keys, err := s.ring.For(ctx, tenant)
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return d, s.kind.Absent
	}
	if err != nil {
		return d, fmt.Errorf("get keys: %w", err)
	}
	var r store.Definition
	err = s.store.View(ctx, tenant, func(tx store.Tx) (err error) {
		r, err = look(keys, tx)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && r.Kind != s.kind.Row {
		return d, s.kind.Absent
	}
	if err != nil {
		return d, fmt.Errorf("look for a definition: %w", err)
	}
	return s.openAs(keys, r)
}
