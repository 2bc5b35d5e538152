package directory

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// maxGrants bounds the grants that are remembered. When there are more, all
// are forgotten: each is opened again when it is next needed.
const maxGrants = 4096

// grants remembers what was opened of the applications whose keys are in use.
// It is asked with the row as the store has it now, and knows only rows that
// are the same byte for byte: one that was changed, by us or by hand, is
// opened and checked as if it were new.
type grants struct {
	mu    sync.RWMutex // guards known
	known map[grantID]knownGrant
}

type grantID struct{ tenant, application string }

type knownGrant struct {
	row     store.Application // as it was opened
	grant   access.Grant
	origins []string // never changed
}

// of returns the grant of a row.
func (g *grants) of(tenant string, keys *keyring.Keys, row store.Application) (access.Grant, error) {
	k, err := g.opened(tenant, keys, row)
	return k.grant, err
}

// opened returns all that was sealed with a row.
func (g *grants) opened(tenant string, keys *keyring.Keys, row store.Application) (knownGrant, error) {
	id := grantID{tenant, row.ID}
	g.mu.RLock()
	k, ok := g.known[id]
	g.mu.RUnlock()
	if ok && sameGrant(k.row, row) {
		k.row = row // the name may be another one
		return k, nil
	}
	sealed, err := openGrant(keys, row)
	if err != nil {
		return knownGrant{}, fmt.Errorf("open grant: %w", err)
	}
	grant, err := access.NewGrant(row.Permissions, sealed.Rules)
	if err != nil {
		return knownGrant{}, fmt.Errorf("read grant: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil || len(g.known) >= maxGrants {
		g.known = make(map[grantID]knownGrant)
	}
	k = knownGrant{row, grant, sealed.AllowedOrigins}
	g.known[id] = k
	return k, nil
}

// sameGrant compares all that openGrant looks at.
func sameGrant(a, b store.Application) bool {
	return bytes.Equal(a.Rules, b.Rules) && a.Type == b.Type && a.ExpiresAt == b.ExpiresAt && slices.Equal(a.Permissions, b.Permissions)
}
