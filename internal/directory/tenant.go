package directory

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

var (
	errNoTenant     = fault.New(fault.NotFound, "no such tenant")
	errTenantIsGone = fault.New(fault.Conflict, "the tenant is being deleted")
)

// Tenant is a tenant as its own management applications see it.
type Tenant struct {
	ID       string
	Name     string
	Settings map[string]string // all of them, as the tenant wrote them; those left out at their defaults
	Made
}

func tenantOf(r store.Tenant) Tenant {
	return Tenant{ID: r.ID, Name: r.Name, Settings: settingTexts(r.Settings), Made: Made{
		CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt.Time(), ModifiedBy: r.ModifiedBy, ModifiedAt: r.ModifiedAt.Time(),
	}}
}

// Tenant returns the caller's tenant.
func (s *Service) Tenant(ctx context.Context, c access.Caller) (t Tenant, err error) {
	if err := c.Require(access.TenantRead); err != nil {
		return Tenant{}, err
	}
	err = s.logged(ctx, c, audit.Tenant, c.Tenant(), audit.Read, func(tx store.Tx) error {
		r, err := tx.TenantRow(ctx)
		t = tenantOf(r)
		return notFound(err, errNoTenant)
	})
	return t, err
}

// ReplaceTenant changes the name and the settings of the caller's tenant.
// Settings that are left out return to their defaults.
func (s *Service) ReplaceTenant(ctx context.Context, c access.Caller, name string, chosen map[string]string, last ...store.Step[Tenant]) (t Tenant, err error) {
	if err := c.Require(access.TenantUpdate); err != nil {
		return Tenant{}, err
	}
	var f fault.Fields
	checkName(&f, name)
	settings := checkSettings(&f, chosen)
	if err := f.Err(); err != nil {
		return Tenant{}, err
	}
	keys, err := s.keysOf(ctx, c)
	if err != nil {
		return Tenant{}, err
	}
	err = s.logged(ctx, c, audit.Tenant, c.Tenant(), audit.Update, func(tx store.Tx) error {
		r, err := tx.TenantRow(ctx)
		if err != nil {
			return notFound(err, errNoTenant)
		}
		if err := mayChoose(c, r, settings); err != nil {
			return err
		}
		r.Name, r.Settings = name, chosen
		kept, err := openSecrets(keys, r.Secrets)
		if err != nil {
			return err
		}
		if kept.Widening != settings.widening {
			kept.Widening = settings.widening
			if r.Secrets, err = sealSecrets(keys, kept); err != nil {
				return err
			}
		}
		r.ModifiedBy, r.ModifiedAt = c.Application(), store.At(s.now())
		if err := tx.ReplaceTenant(ctx, r); err != nil {
			return fmt.Errorf("replace tenant: %w", err)
		}
		t = tenantOf(r)
		return store.Finish(tx, t, last)
	})
	return t, err
}

// DeleteTenant destroys the keys of the caller's tenant: from the moment it
// returns nothing of the tenant opens any more, here or in any copy without
// the keysets. FinishDeletions removes the rows, which takes longer.
func (s *Service) DeleteTenant(ctx context.Context, c access.Caller) error {
	if err := c.Require(access.TenantDelete); err != nil {
		return err
	}
	return s.shred(ctx, c)
}

// shred marks the tenant, seals its log while there is a key to sign with, and
// destroys the keys. Whatever cuts it short, FinishDeletions goes on from the mark.
func (s *Service) shred(ctx context.Context, c access.Caller) error {
	err := s.logged(ctx, c, audit.Tenant, c.Tenant(), audit.Delete, func(tx store.Tx) error {
		r, err := tx.TenantRow(ctx)
		if err != nil {
			return notFound(err, errNoTenant)
		}
		r.Deleting = true
		return tx.ReplaceTenant(ctx, r)
	})
	if err != nil {
		return err
	}
	return s.destroyKeys(context.WithoutCancel(ctx), c.Tenant())
}

func (s *Service) destroyKeys(ctx context.Context, tenant string) error {
	_, err := s.ring.For(ctx, tenant)
	if err == nil {
		err = s.seal(ctx, tenant)
	}
	// Keys that do not open sign nothing, today or later: they go unsealed.
	lost := errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, keyring.ErrUnwrap) || errors.Is(err, keyring.ErrDamaged)
	if err != nil && !lost {
		return fmt.Errorf("seal the log for the last time: %w", err)
	}
	if err := s.store.Update(ctx, tenant, func(tx store.Tx) error { return tx.DestroyKeysets(ctx) }); err != nil {
		return fmt.Errorf("destroy keysets: %w", err)
	}
	s.ring.Forget(tenant)
	if err := s.store.EpochKeys().DestroyTenantEpochKeys(ctx, tenant); err != nil {
		return fmt.Errorf("destroy epoch keys: %w", err)
	}
	return nil
}

// rowsPerStep bounds the transactions in which a deletion proceeds.
const rowsPerStep = 500

// FinishDeletions destroys the keys and removes the rows of tenants that are
// being deleted, a bounded number at a time, so that nobody waits behind it. The
// tenants take turns, and one that fails does not keep the others. Every node
// does so; while releases change, rows wait for the newer one.
func (s *Service) FinishDeletions(ctx context.Context) error {
	var errs []error
	var tenants []string // that have rows
	err := s.eachTenant(ctx, func(t store.Tenant) error {
		if t.Deleting {
			if err := s.destroyKeys(ctx, t.ID); err != nil {
				errs = append(errs, err)
			} else {
				tenants = append(tenants, t.ID)
			}
		}
		return ctx.Err()
	})
	errs = append(errs, err)
	if len(tenants) > 0 {
		switch err := s.store.AllTenants().Current(ctx); {
		case errors.Is(err, store.ErrNewerSchema):
			tenants = nil // a server of the newer release removes all rows; this one may not know them
		case err != nil:
			return errors.Join(append(errs, fmt.Errorf("look at the schema: %w", err))...)
		}
	}
	for len(tenants) > 0 && ctx.Err() == nil {
		tenants = slices.DeleteFunc(tenants, func(tenant string) bool {
			more := false
			err := s.store.Update(ctx, tenant, func(tx store.Tx) (err error) {
				more, err = tx.DeleteTenantRows(ctx, rowsPerStep)
				return err
			})
			if err != nil {
				errs = append(errs, fmt.Errorf("delete rows of a tenant: %w", err))
			}
			return err != nil || !more
		})
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// eachTenant goes through all tenants of the installation.
func (s *Service) eachTenant(ctx context.Context, fn func(store.Tenant) error) error {
	for after := ""; ; {
		page, err := s.store.AllTenants().Tenants(ctx, after, 100)
		if err != nil {
			return fmt.Errorf("list tenants: %w", err)
		}
		if len(page) == 0 {
			return nil
		}
		for _, t := range page {
			if err := fn(t); err != nil {
				return err
			}
			after = t.ID
		}
	}
}

// Usage is how many tokens of each type a tenant has.
type Usage struct {
	Tokens map[string]int64
	Total  int64
}

// Usage counts the tokens of the caller's tenant, whatever their containers.
func (s *Service) Usage(ctx context.Context, c access.Caller) (u Usage, err error) {
	if err := c.Require(access.ReportRead); err != nil {
		return Usage{}, err
	}
	// Read in a view, so that no writer waits for it. Nothing is shown before it
	// is in the log.
	err = s.store.View(ctx, c.Tenant(), func(tx store.Tx) error {
		types, err := tx.CountTypes(ctx, store.At(s.now()))
		if err != nil {
			return fmt.Errorf("count tokens: %w", err)
		}
		u = Usage{Tokens: types}
		for _, n := range types {
			u.Total += n
		}
		return nil
	})
	if err != nil {
		return Usage{}, notFound(err, errNoTenant)
	}
	if err := s.logged(ctx, c, audit.Tenant, c.Tenant(), audit.Read, func(store.Tx) error { return nil }); err != nil {
		return Usage{}, err
	}
	return u, nil
}

// CallbackSecret signs what is delivered to a tenant's callback URLs.
type CallbackSecret struct {
	Secret secret.Text
	// Previous is the one before it, which signs too until PreviousUntil.
	Previous      secret.Text
	PreviousUntil time.Time
}

// callbackOverlap is how long a replaced secret goes on signing.
const callbackOverlap = 24 * time.Hour

// keptSecrets is the form in which a tenant's secrets are sealed, and the
// settings that let callers see or do more: see WideningOf.
type keptSecrets struct {
	Callback  string    `json:"callback"`
	Previous  string    `json:"previous,omitempty"`
	RotatedAt time.Time `json:"rotated_at,omitzero"`

	Widening
}

// newCallbackSecret makes a secret in the form that libraries for Standard
// Webhooks take.
func newCallbackSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(b[:])
}

func sealSecrets(keys *keyring.Keys, k keptSecrets) ([]byte, error) {
	b, err := json.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("encode secrets: %w", err)
	}
	return keys.Seal(keys.Tenant(), keyring.FieldTenantSecrets, b)
}

func openSecrets(keys *keyring.Keys, sealed []byte) (k keptSecrets, err error) {
	b, err := keys.Open(keys.Tenant(), keyring.FieldTenantSecrets, sealed)
	if err != nil {
		return k, err
	}
	if err := json.Unmarshal(b, &k); err != nil {
		return k, errors.New("decode secrets")
	}
	return k, nil
}

func (s *Service) callbackSecretOf(k keptSecrets) CallbackSecret {
	c := CallbackSecret{Secret: secret.NewText(k.Callback)}
	if until := k.RotatedAt.Add(callbackOverlap); k.Previous != "" && s.now().Before(until) {
		c.Previous, c.PreviousUntil = secret.NewText(k.Previous), until
	}
	return c
}

// CallbackSecret returns the secret of the caller's tenant.
func (s *Service) CallbackSecret(ctx context.Context, c access.Caller) (out CallbackSecret, err error) {
	if err := c.Require(access.TenantRead); err != nil {
		return out, err
	}
	return s.withSecrets(ctx, c, audit.Read, func(k keptSecrets) keptSecrets { return k })
}

// RotateCallbackSecret replaces it; the old one goes on signing for a day.
func (s *Service) RotateCallbackSecret(ctx context.Context, c access.Caller, last ...store.Step[CallbackSecret]) (out CallbackSecret, err error) {
	if err := c.Require(access.TenantUpdate); err != nil {
		return out, err
	}
	fresh := newCallbackSecret() // once, although the transaction may run again
	return s.withSecrets(ctx, c, audit.Rotate, func(k keptSecrets) keptSecrets {
		k.Callback, k.Previous, k.RotatedAt = fresh, k.Callback, s.now().UTC()
		return k
	}, last...)
}

// CallbackSecrets are those that sign at this moment, newest first. It is for
// the deliveries themselves: nobody is shown them, so nothing is logged.
func (s *Service) CallbackSecrets(ctx context.Context, tenant string) (list []secret.Text, err error) {
	keys, err := s.ring.For(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("get keys: %w", err)
	}
	var r store.Tenant
	err = s.store.View(ctx, tenant, func(tx store.Tx) (err error) {
		r, err = tx.TenantRow(ctx)
		return notFound(err, errNoTenant)
	})
	if err != nil {
		return nil, err
	}
	k, err := openSecrets(keys, r.Secrets)
	if err != nil {
		return nil, err
	}
	c := s.callbackSecretOf(k)
	list = append(list, c.Secret)
	if !c.Previous.IsZero() {
		list = append(list, c.Previous)
	}
	return list, nil
}

// withSecrets opens a tenant's secrets and puts back what change makes of them.
func (s *Service) withSecrets(ctx context.Context, c access.Caller, op audit.Operation, change func(keptSecrets) keptSecrets, last ...store.Step[CallbackSecret]) (out CallbackSecret, err error) {
	keys, err := s.keysOf(ctx, c)
	if err != nil {
		return out, err
	}
	err = s.logged(ctx, c, audit.Tenant, c.Tenant(), op, func(tx store.Tx) error {
		r, err := tx.TenantRow(ctx)
		if err != nil {
			return notFound(err, errNoTenant)
		}
		before, err := openSecrets(keys, r.Secrets)
		if err != nil {
			return err
		}
		after := change(before)
		if after != before {
			if r.Secrets, err = sealSecrets(keys, after); err != nil {
				return err
			}
			r.ModifiedBy, r.ModifiedAt = c.Application(), store.At(s.now())
			if err := tx.ReplaceTenant(ctx, r); err != nil {
				return fmt.Errorf("replace tenant: %w", err)
			}
		}
		out = s.callbackSecretOf(after)
		return store.Finish(tx, out, last)
	})
	return out, err
}
