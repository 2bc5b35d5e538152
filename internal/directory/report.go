package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// keyUse notes which keys were presented today. The store is written once a day
// and key, by NoteKeyUse, and not by requests.
type keyUse struct {
	mu   sync.Mutex // guards what follows
	day  string
	seen map[usedKey]bool // on that day; true when it is in the store
}

type usedKey struct{ tenant, key string }

func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// note remembers that a key was presented.
func (u *keyUse) note(tenant, key string, now time.Time) {
	day, k := dayOf(now), usedKey{tenant, key}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.day != day && u.unwritten() == 0 {
		u.day, u.seen = day, nil
	}
	if u.seen == nil {
		u.seen = make(map[usedKey]bool)
	}
	if _, known := u.seen[k]; !known {
		u.seen[k] = false
	}
}

// unwritten counts the keys that are not in the store yet.
func (u *keyUse) unwritten() (n int) {
	for _, written := range u.seen {
		if !written {
			n++
		}
	}
	return n
}

// take returns the keys of each tenant that are not in the store yet, and their day.
func (u *keyUse) take() (day string, tenants map[string][]string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	tenants = make(map[string][]string)
	for k, written := range u.seen {
		if !written {
			tenants[k.tenant] = append(tenants[k.tenant], k.key)
		}
	}
	return u.day, tenants
}

// written says that keys of a tenant are in the store.
func (u *keyUse) written(tenant string, keys []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, key := range keys {
		u.seen[usedKey{tenant, key}] = true
	}
}

// keyUseMark is where the last use of a tenant's keys stands.
const keyUseMark = "key-use"

// usedKeys are the days on which keys were last presented, by the ids of the
// keys. Nothing is known of the time before Since.
type usedKeys struct {
	Since string            `json:"since"`
	Days  map[string]string `json:"days"`
}

func readKeyUse(ctx context.Context, tx store.Tx) (u usedKeys, err error) {
	b, err := tx.Mark(ctx, keyUseMark)
	if errors.Is(err, store.ErrNotFound) {
		return usedKeys{Days: map[string]string{}}, nil
	}
	if err != nil {
		return u, err
	}
	if json.Unmarshal(b, &u) != nil {
		return u, fmt.Errorf("read the use of keys: %w", store.ErrDamaged)
	}
	if u.Days == nil {
		u.Days = map[string]string{}
	}
	return u, nil
}

// NoteKeyUse writes the days on which keys were presented. What a server has not
// written when it is killed is lost, and noted when the key is presented again.
func (s *Service) NoteKeyUse(ctx context.Context) error {
	day, tenants := s.used.take()
	var errs []error
	for tenant, keys := range tenants {
		err := s.store.Update(ctx, tenant, func(tx store.Tx) error {
			u, err := readKeyUse(ctx, tx)
			if err != nil {
				return err
			}
			if u.Since == "" {
				u.Since = day
			}
			live := make(map[string]bool)
			err = eachOf(func(page store.Page) ([]store.Application, error) {
				return tx.Applications(ctx, store.ApplicationFilter{}, page)
			}, func(a store.Application) (store.Position, error) {
				list, err := tx.Keys(ctx, a.ID)
				for _, k := range list {
					live[k.ID] = true
				}
				return store.Position{CreatedAt: a.CreatedAt, ID: a.ID}, err
			})
			if err != nil {
				return err
			}
			maps.DeleteFunc(u.Days, func(id, _ string) bool { return !live[id] })
			for _, id := range keys {
				if live[id] {
					u.Days[id] = max(u.Days[id], day)
				}
			}
			b, err := json.Marshal(u)
			if err != nil {
				return errors.New("encode the use of keys")
			}
			return tx.PutMark(ctx, keyUseMark, b)
		})
		if err != nil && !errors.Is(err, store.ErrNoTenant) {
			errs = append(errs, err)
			continue
		}
		s.used.written(tenant, keys)
	}
	return errors.Join(errs...)
}

// KeyReport is a key of an application in the inventory of keys.
type KeyReport struct {
	ID              string
	Prefix          string
	Application     string
	ApplicationName string
	ApplicationType access.ApplicationType
	CreatedAt       time.Time
	AgeDays         int
	// LastUsed is the day on which it was last presented; "" when it was not
	// since TrackedSince, before which nothing is known.
	LastUsed     string
	TrackedSince string
	// ExpiresAt is when the application expires; zero for never.
	ExpiresAt time.Time
}

// KeyInventory returns the inventory of the API keys of the caller's tenant, oldest
// first: their age, and the day of their last use. The caller needs
// application:read.
func (s *Service) KeyInventory(ctx context.Context, c access.Caller) (list []KeyReport, err error) {
	if err := c.Require(access.ApplicationRead); err != nil {
		return nil, err
	}
	now := s.now()
	err = s.store.View(ctx, c.Tenant(), func(tx store.Tx) error {
		list = nil // a transaction may run again
		used, err := readKeyUse(ctx, tx)
		if err != nil {
			return err
		}
		return eachOf(func(page store.Page) ([]store.Application, error) {
			return tx.Applications(ctx, store.ApplicationFilter{}, page)
		}, func(a store.Application) (store.Position, error) {
			keys, err := tx.Keys(ctx, a.ID)
			for _, k := range keys {
				list = append(list, KeyReport{
					ID: k.ID, Prefix: k.Prefix, Application: a.ID, ApplicationName: a.Name, ApplicationType: access.ApplicationType(a.Type), CreatedAt: k.CreatedAt.Time(),
					AgeDays: int(now.Sub(k.CreatedAt.Time()) / (24 * time.Hour)), LastUsed: used.Days[k.ID], TrackedSince: used.Since, ExpiresAt: a.ExpiresAt.Time(),
				})
			}
			return store.Position{CreatedAt: a.CreatedAt, ID: a.ID}, err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	slices.SortStableFunc(list, func(a, b KeyReport) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list, s.update(ctx, c, func(tx store.Tx) error {
		return tx.AppendLog(ctx, audit.EntryBy(c, s.now(), audit.Key, audit.Many, audit.Read, "key report"))
	})
}

// AccessReport is one way in which somebody may see values.
type AccessReport struct {
	Holder
	Permission access.Permission
	// Changed says that the application was created or changed since the date of
	// the report; ChangedAt and ChangedBy are of its last change.
	Changed   bool
	ChangedAt time.Time
	ChangedBy string
}

// seeing are the permissions by which values are seen.
var seeing = []access.Permission{access.TokenRead, access.TokenUse, access.TokenSearch}

// AccessReview returns who may see values, and in which containers: every application
// and live session that may read, use or search tokens with reveal, once for
// each permission and container where that begins. The caller needs
// application:read.
func (s *Service) AccessReview(ctx context.Context, c access.Caller, since time.Time) (list []AccessReport, err error) {
	keys, err := s.keysFor(ctx, c, access.ApplicationRead)
	if err != nil {
		return nil, err
	}
	err = s.store.View(ctx, c.Tenant(), func(tx store.Tx) error {
		list = nil // a transaction may run again
		return s.eachHolder(ctx, tx, keys, func(h Holder, m made, holder access.Caller) {
			row := AccessReport{Holder: h, Changed: !since.IsZero() && !m.at.Time().Before(since), ChangedAt: m.at.Time(), ChangedBy: m.by}
			for _, p := range seeing {
				for container, most := range holder.Reaches(p) {
					if row.Permission, row.Transform, row.Container = p, most, container; most == access.Reveal {
						list = append(list, row)
					}
				}
			}
		})
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b AccessReport) int { return strings.Compare(a.Container, b.Container) })
	return list, s.update(ctx, c, func(tx store.Tx) error {
		return tx.AppendLog(ctx, audit.EntryBy(c, s.now(), audit.Application, audit.Many, audit.Read, "access report"))
	})
}
