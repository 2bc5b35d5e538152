package directory

import (
	"context"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// mayConfer returns nil when the caller may let an application hold permissions
// and rules, and have its key. Only members are bound here; see
// access.Caller.RequireToConfer.
func mayConfer(c access.Caller, p access.Permission, t access.ApplicationType, permissions []string, rules []access.Rule) error {
	if c.Member().ID == "" {
		return nil
	}
	g, err := access.NewGrant(permissions, rules)
	if err != nil {
		return fmt.Errorf("read grant: %w", err)
	}
	return c.RequireToConfer(p, t, g)
}

// mayReplace is mayConfer for a change: one that neither adds to what the
// application holds nor prolongs it is allowed too. was is what it held, if
// that could be opened.
func mayReplace(c access.Caller, r store.Application, was sealedGrant, opened bool, in NewApplication) error {
	t := access.ApplicationType(r.Type)
	refused := mayConfer(c, access.ApplicationUpdate, t, in.Permissions, in.Rules)
	longer := !r.ExpiresAt.IsZero() && (in.ExpiresAt.IsZero() || store.At(in.ExpiresAt) > r.ExpiresAt)
	if refused == nil || !opened || longer {
		return refused
	}
	old, err := access.NewGrant(was.Permissions, was.Rules)
	if err != nil {
		return fmt.Errorf("read grant: %w", err)
	}
	next, err := access.NewGrant(in.Permissions, in.Rules)
	if err != nil {
		return fmt.Errorf("read grant: %w", err)
	}
	if next.Within(old) {
		return nil
	}
	return refused
}

// RequireToPoint returns nil when the caller may have code, or a new key, act
// for an application: a member only within its own role. An application that is
// not there is for others to notice.
func RequireToPoint(ctx context.Context, tx store.Tx, keys *keyring.Keys, c access.Caller, p access.Permission, application string) error {
	if c.Member().ID == "" || application == "" {
		return nil
	}
	r, err := rowOf(ctx, tx, application)
	if err != nil {
		return err
	}
	g, err := openGrant(keys, r)
	if err != nil {
		return fmt.Errorf("open grant: %w", err)
	}
	return mayConfer(c, p, access.ApplicationType(r.Type), g.Permissions, g.Rules)
}

// mayChoose returns nil when the caller may choose settings: one that lets
// others see or do more than before takes an owner.
func mayChoose(c access.Caller, before store.Tenant, next Settings) error {
	was, err := SettingsOf(before)
	if err != nil {
		return err
	}
	wider := next.widening.and(was.widening) != next.widening || was.DisableAnonymousDetokenization && !next.DisableAnonymousDetokenization ||
		was.ExportApproval && !next.ExportApproval
	if !wider {
		return nil
	}
	return c.RequireOwner(access.TenantUpdate)
}
