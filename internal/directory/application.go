package directory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/origin"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

var (
	errNoApplication = fault.New(fault.NotFound, "no such application")
	errNoKey         = fault.New(fault.NotFound, "no such key")
	errManyKeys      = fault.New(fault.Conflict, "the application has as many keys as it may have: delete one first")
	errChanged       = fault.New(fault.Conflict, "the application was changed meanwhile: read it again")
)

// maxKeys is how many keys an application may have at a time: enough to bring
// in a new one and take out the old one without a pause.
const maxKeys = 3

// maxOrigins is how many allowed origins an application may have: they are all
// part of one header.
const maxOrigins = 20

// Application is an application with its keys, and with a key itself only in
// the answer that made it.
type Application struct {
	ID          string
	TenantID    string
	Name        string
	Type        access.ApplicationType
	Permissions []string
	Rules       []access.Rule
	Keys        []Key
	ExpiresAt   time.Time
	Key         secret.Text
	// AllowedOrigins are the pages that may embed fields with the keys of a
	// public application.
	AllowedOrigins []string
	Made
}

// Key tells of a key; Text is the key itself, only in the answer that made it.
type Key struct {
	ID        string
	Version   int
	Prefix    string
	Text      secret.Text
	CreatedBy string
	CreatedAt time.Time
}

// NewApplication is what an application is made from, and what it is replaced
// by. When it replaces, an empty Type is the one that the application has.
type NewApplication struct {
	Name        string
	Type        string
	Permissions []string
	Rules       []access.Rule
	ExpiresAt   time.Time
	WithoutKey  bool
	// AllowedOrigins are for public applications only.
	AllowedOrigins []string
}

// check notes what is wrong and returns the permissions and rules to store.
func (n *NewApplication) check(f *fault.Fields, now time.Time) (t access.ApplicationType) {
	checkName(f, n.Name)
	t, ok := access.ParseApplicationType(n.Type)
	if !ok {
		f.Add("type", "must be public, private or management")
		return t
	}
	n.Permissions, n.Rules = access.NormalizeApplication(f, t, n.Permissions, n.Rules)
	if !n.ExpiresAt.IsZero() && !n.ExpiresAt.After(now) {
		f.Add("expires_at", "must be in the future")
	}
	n.AllowedOrigins = checkOrigins(f, t, n.AllowedOrigins)
	return t
}

// checkOrigins notes what is wrong with the origins of an application, and
// returns them without repeats.
func checkOrigins(f *fault.Fields, t access.ApplicationType, list []string) (kept []string) {
	switch {
	case len(list) > 0 && t != access.Public:
		f.Add("allowed_origins", "only public applications have allowed origins")
	case len(list) > maxOrigins:
		f.Add("allowed_origins", "must have at most 20 origins")
	default:
		for i, o := range list {
			if !origin.Valid(o) {
				f.Add("allowed_origins."+strconv.Itoa(i), origin.Must)
			} else if !slices.Contains(kept, o) {
				kept = append(kept, o)
			}
		}
	}
	return kept
}

func applicationOf(tenant string, r store.Application, rules []access.Rule, origins []string, keys []store.Key) Application {
	a := Application{
		ID: r.ID, TenantID: tenant, Name: r.Name, Type: access.ApplicationType(r.Type), Permissions: r.Permissions, Rules: rules,
		ExpiresAt: r.ExpiresAt.Time(), AllowedOrigins: slices.Clone(origins),
		Made: Made{CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt.Time(), ModifiedBy: r.ModifiedBy, ModifiedAt: r.ModifiedAt.Time()},
	}
	for _, k := range keys {
		a.Keys = append(a.Keys, keyOf(k))
	}
	return a
}

func keyOf(k store.Key) Key {
	return Key{ID: k.ID, Version: k.Version, Prefix: k.Prefix, CreatedBy: k.CreatedBy, CreatedAt: k.CreatedAt.Time()}
}

// read returns an application with its rules opened and its keys listed.
func read(ctx context.Context, tx store.Tx, keys *keyring.Keys, id string) (Application, store.Application, error) {
	r, err := rowOf(ctx, tx, id)
	if err != nil {
		return Application{}, r, err
	}
	a, err := opened(ctx, tx, keys, r)
	return a, r, err
}

// rowOf returns an application as it is stored. What does not show the rules
// does not open them: keys of an application whose rules are damaged must
// still be found and revoked, and the rules replaced.
func rowOf(ctx context.Context, tx store.Tx, id string) (store.Application, error) {
	r, err := tx.Application(ctx, id)
	return r, notFound(err, errNoApplication)
}

// keysOfRow returns a stored application with its keys.
func keysOfRow(ctx context.Context, tx store.Tx, id string) (r store.Application, list []Key, err error) {
	if r, err = rowOf(ctx, tx, id); err != nil {
		return r, nil, err
	}
	rows, err := tx.Keys(ctx, id)
	if err != nil {
		return r, nil, fmt.Errorf("list keys: %w", err)
	}
	for _, k := range rows {
		list = append(list, keyOf(k))
	}
	return r, list, nil
}

func opened(ctx context.Context, tx store.Tx, keys *keyring.Keys, r store.Application) (Application, error) {
	g, err := openGrant(keys, r)
	if err != nil {
		return Application{}, err
	}
	list, err := tx.Keys(ctx, r.ID)
	if err != nil {
		return Application{}, fmt.Errorf("list keys: %w", err)
	}
	return applicationOf(tx.Tenant(), r, g.Rules, g.AllowedOrigins, list), nil
}

// keysFor asks for the permission and then for the tenant's keys, which may
// take I/O and so cannot wait for the transaction.
func (s *Service) keysFor(ctx context.Context, c access.Caller, p access.Permission) (*keyring.Keys, error) {
	if err := c.Require(p); err != nil {
		return nil, err
	}
	return s.keysOf(ctx, c)
}

func (s *Service) keysOf(ctx context.Context, c access.Caller) (*keyring.Keys, error) {
	keys, err := s.ring.For(ctx, c.Tenant())
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return nil, errNoTenant
	}
	if err != nil {
		return nil, fmt.Errorf("get keys: %w", err)
	}
	return keys, nil
}

// CreateApplication makes an application, and its first key unless asked not to.
func (s *Service) CreateApplication(ctx context.Context, c access.Caller, in NewApplication, last ...store.Step[Application]) (a Application, err error) {
	keys, err := s.keysFor(ctx, c, access.ApplicationCreate)
	if err != nil {
		return Application{}, err
	}
	var f fault.Fields
	kind := in.check(&f, s.now())
	if err := f.Err(); err != nil {
		return Application{}, err
	}
	if err := mayConfer(c, access.ApplicationCreate, kind, in.Permissions, in.Rules); err != nil {
		return Application{}, err
	}
	p, err := s.prepare(keys, c, kind, in)
	if err != nil {
		return Application{}, err
	}
	err = s.logged(ctx, c, audit.Application, p.row.ID, audit.Create, func(tx store.Tx) error {
		if a, err = p.insert(ctx, tx); err != nil {
			return err
		}
		return store.Finish(tx, a, last)
	})
	return a, err
}

// prepared is an application that is ready to be stored: sealed, with its key made.
type prepared struct {
	row     store.Application
	rules   []access.Rule
	origins []string
	key     *store.Key
	text    secret.Text
}

func (s *Service) prepare(keys *keyring.Keys, c access.Caller, kind access.ApplicationType, in NewApplication) (prepared, error) {
	p := prepared{rules: in.Rules, origins: in.AllowedOrigins, row: store.Application{
		ID: access.NewID(), Name: in.Name, Type: string(kind), Permissions: in.Permissions, ExpiresAt: store.At(in.ExpiresAt),
		CreatedBy: c.Application(), CreatedAt: store.At(s.now()), Version: 1,
	}}
	if err := sealGrant(keys, &p.row, in.Rules, in.AllowedOrigins); err != nil {
		return p, err
	}
	if !in.WithoutKey {
		k, text, err := s.newKey(keys, c, kind, p.row.ID)
		if err != nil {
			return p, err
		}
		k.Version = 1
		p.key, p.text = &k, text
	}
	return p, nil
}

func (p prepared) insert(ctx context.Context, tx store.Tx) (Application, error) {
	if err := tx.InsertApplication(ctx, p.row); err != nil {
		return Application{}, fmt.Errorf("insert application: %w", err)
	}
	var list []store.Key
	if p.key != nil {
		if err := tx.InsertKey(ctx, *p.key); err != nil {
			return Application{}, fmt.Errorf("insert key: %w", err)
		}
		list = append(list, *p.key)
	}
	a := applicationOf(tx.Tenant(), p.row, p.rules, p.origins, list)
	a.Key = p.text
	return a, nil
}

// newKey makes a key: the row with its hash, and the text to be shown once.
func (s *Service) newKey(keys *keyring.Keys, c access.Caller, kind access.ApplicationType, application string) (store.Key, secret.Text, error) {
	for {
		k, err := access.NewKey(s.random, s.environment, kind.KeyKind(), keys.Tenant())
		if err != nil {
			return store.Key{}, secret.Text{}, err
		}
		if id := keyID(keys, k.Text(), application); access.FitForID(id) {
			return store.Key{
				ID: id, ApplicationID: application, Hash: keys.HashKey(k.Text()), Prefix: k.Prefix(),
				CreatedBy: c.Application(), CreatedAt: store.At(s.now()),
			}, k.Text(), nil
		}
	}
}

// keyID is the id of a key. It binds the key to its application: whoever points
// the row at another application would have to know the tenant's keys to find
// the id that belongs there. It looks like the random ids of other things.
func keyID(keys *keyring.Keys, key secret.Text, application string) string {
	id := uuid.UUID(keys.KeyHolder(key, application))
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// Application returns an application of the caller's tenant.
func (s *Service) Application(ctx context.Context, c access.Caller, id string) (a Application, err error) {
	keys, err := s.keysFor(ctx, c, access.ApplicationRead)
	if err != nil {
		return Application{}, err
	}
	return s.show(ctx, c, keys, id)
}

// Own returns the application whose key the caller presents; for a session,
// the one that made it. It takes no permission.
func (s *Service) Own(ctx context.Context, c access.Caller) (Application, error) {
	keys, err := s.keysOf(ctx, c)
	if err != nil {
		return Application{}, err
	}
	return s.show(ctx, c, keys, c.Application())
}

func (s *Service) show(ctx context.Context, c access.Caller, keys *keyring.Keys, id string) (a Application, err error) {
	err = s.logged(ctx, c, audit.Application, id, audit.Read, func(tx store.Tx) error {
		a, _, err = read(ctx, tx, keys, id)
		return err
	})
	return a, err
}

// Applications returns a page of the tenant's applications, newest first, and
// how many match in all.
func (s *Service) Applications(ctx context.Context, c access.Caller, filter store.ApplicationFilter, page store.Page) (list []Application, total int64, err error) {
	keys, err := s.keysFor(ctx, c, access.ApplicationRead)
	if err != nil {
		return nil, 0, err
	}
	err = s.logged(ctx, c, audit.Application, audit.Many, audit.Read, func(tx store.Tx) error {
		list = nil // a transaction may run again
		rows, err := tx.Applications(ctx, filter, page)
		if err != nil {
			return fmt.Errorf("list applications: %w", err)
		}
		for _, r := range rows {
			a, err := opened(ctx, tx, keys, r)
			if err != nil {
				return err
			}
			list = append(list, a)
		}
		total, err = tx.CountApplications(ctx, filter)
		return err
	})
	return list, total, err
}

// ReplaceApplication changes everything but an application's type and keys.
func (s *Service) ReplaceApplication(ctx context.Context, c access.Caller, id string, in NewApplication, last ...store.Step[Application]) (a Application, err error) {
	keys, err := s.keysFor(ctx, c, access.ApplicationUpdate)
	if err != nil {
		return Application{}, err
	}
	err = s.logged(ctx, c, audit.Application, id, audit.Update, func(tx store.Tx) error {
		r, err := rowOf(ctx, tx, id)
		if err != nil {
			return err
		}
		in := in
		var f fault.Fields
		if in.Type == "" {
			in.Type = r.Type
		} else if in.Type != r.Type {
			f.Add("type", "cannot be changed")
		}
		if !f.Has("type") {
			in.check(&f, s.now())
		}
		if err := f.Err(); err != nil {
			return err
		}
		// One that does not open had unknown origins: it is replaced all the same.
		was, err := openGrant(keys, r)
		if err := mayReplace(c, r, was, err == nil, in); err != nil {
			return err
		}
		changed := err != nil && in.Type == string(access.Public) || !slices.Equal(was.AllowedOrigins, in.AllowedOrigins)
		r.Name, r.Permissions, r.ExpiresAt = in.Name, in.Permissions, store.At(in.ExpiresAt)
		if err := sealGrant(keys, &r, in.Rules, in.AllowedOrigins); err != nil {
			return err
		}
		r.ModifiedBy, r.ModifiedAt = c.Application(), store.At(s.now())
		r.Version++
		if err := tx.ReplaceApplication(ctx, r); errors.Is(err, store.ErrConflict) {
			return errChanged
		} else if err != nil {
			return fmt.Errorf("replace application: %w", err)
		}
		if changed {
			if err := tx.AppendLog(ctx, audit.EntryThat(c, s.now(), audit.Application, id, audit.Update, "allowed origins changed")); err != nil {
				return err
			}
		}
		if a, err = opened(ctx, tx, keys, r); err != nil {
			return err
		}
		return store.Finish(tx, a, last)
	})
	return a, err
}

// errInUse says how many, so that whoever deletes knows what to look for.
var errInUse = fault.New(fault.Conflict, "the application is in use; reactors and proxies that name it")

// DeleteApplication removes an application with its keys and their sessions,
// unless a reactor or a proxy names it.
func (s *Service) DeleteApplication(ctx context.Context, c access.Caller, id string) error {
	if err := c.Require(access.ApplicationDelete); err != nil {
		return err
	}
	return s.logged(ctx, c, audit.Application, id, audit.Delete, func(tx store.Tx) error {
		used, err := tx.CountDefinitions(ctx, store.DefinitionFilter{ApplicationID: id})
		if err != nil {
			return fmt.Errorf("count reactors and proxies: %w", err)
		}
		if used > 0 {
			return errInUse.Counting(used)
		}
		return notFound(tx.DeleteApplication(ctx, id), errNoApplication)
	})
}

// Regenerate gives an application one new key and revokes all older ones, with
// their sessions, as DeleteKey does.
func (s *Service) Regenerate(ctx context.Context, c access.Caller, id string, last ...store.Step[Application]) (a Application, err error) {
	keys, err := s.keysFor(ctx, c, access.ApplicationUpdate)
	if err != nil {
		return Application{}, err
	}
	err = s.logged(ctx, c, audit.Application, id, audit.Rotate, func(tx store.Tx) error {
		old, r, err := read(ctx, tx, keys, id)
		if err != nil {
			return err
		}
		if err := mayConfer(c, access.ApplicationUpdate, old.Type, old.Permissions, old.Rules); err != nil {
			return err
		}
		k, text, err := s.addKey(ctx, tx, keys, c, r, old.Keys)
		if err != nil {
			return err
		}
		for _, o := range old.Keys {
			if err := tx.DeleteKey(ctx, id, o.ID); err != nil {
				return fmt.Errorf("delete key: %w", err)
			}
		}
		a = old
		a.Keys, a.Key = []Key{keyOf(k)}, text
		return store.Finish(tx, a, last)
	})
	return a, err
}

// addKey stores a new key of an application.
func (s *Service) addKey(ctx context.Context, tx store.Tx, keys *keyring.Keys, c access.Caller, r store.Application, there []Key) (store.Key, secret.Text, error) {
	k, text, err := s.newKey(keys, c, access.ApplicationType(r.Type), r.ID)
	if err != nil {
		return k, text, err
	}
	k.Version = 1
	for _, o := range there {
		k.Version = max(k.Version, o.Version+1)
	}
	if err := tx.InsertKey(ctx, k); err != nil {
		return k, text, fmt.Errorf("insert key: %w", err)
	}
	return k, text, nil
}

// CreateKey gives an application one more key.
func (s *Service) CreateKey(ctx context.Context, c access.Caller, application string, last ...store.Step[Key]) (out Key, err error) {
	keys, err := s.keysFor(ctx, c, access.ApplicationUpdate)
	if err != nil {
		return Key{}, err
	}
	err = s.update(ctx, c, func(tx store.Tx) error {
		r, there, err := keysOfRow(ctx, tx, application)
		if err != nil {
			return err
		}
		if len(there) >= maxKeys {
			return errManyKeys
		}
		if err := RequireToPoint(ctx, tx, keys, c, access.ApplicationUpdate, application); err != nil {
			return err
		}
		k, text, err := s.addKey(ctx, tx, keys, c, r, there)
		if err != nil {
			return err
		}
		out = keyOf(k)
		out.Text = text
		if err := tx.AppendLog(ctx, audit.Entry(c, s.now(), audit.Key, k.ID, audit.Create)); err != nil {
			return err
		}
		return store.Finish(tx, out, last)
	})
	return out, err
}

// Keys returns the keys of an application, oldest first.
func (s *Service) Keys(ctx context.Context, c access.Caller, application string) (list []Key, err error) {
	if err := c.Require(access.ApplicationRead); err != nil {
		return nil, err
	}
	err = s.logged(ctx, c, audit.Key, audit.Many, audit.Read, func(tx store.Tx) error {
		_, list, err = keysOfRow(ctx, tx, application)
		return err
	})
	return list, err
}

// Key returns one key of an application.
func (s *Service) Key(ctx context.Context, c access.Caller, application, id string) (out Key, err error) {
	if err := c.Require(access.ApplicationRead); err != nil {
		return Key{}, err
	}
	err = s.logged(ctx, c, audit.Key, id, audit.Read, func(tx store.Tx) error {
		_, list, err := keysOfRow(ctx, tx, application)
		if err != nil {
			return err
		}
		for _, k := range list {
			if k.ID == id {
				out = k
				return nil
			}
		}
		return errNoKey
	})
	return out, err
}

// DeleteKey revokes a key, and with it the sessions that it created or
// authorized: they are refused from the next request on, and their rows go when
// they expire. There may be very many, so each has no entry of its own. A key
// that is gone, or whose application is gone or another tenant's, is no fault:
// callers that retry want it gone.
func (s *Service) DeleteKey(ctx context.Context, c access.Caller, application, id string) error {
	if err := c.Require(access.ApplicationUpdate); err != nil {
		return err
	}
	return s.update(ctx, c, func(tx store.Tx) error {
		if err := tx.DeleteKey(ctx, application, id); errors.Is(err, store.ErrNotFound) {
			return nil
		} else if err != nil {
			return fmt.Errorf("delete key: %w", err)
		}
		return tx.AppendLog(ctx, audit.Entry(c, s.now(), audit.Key, id, audit.Delete))
	})
}
