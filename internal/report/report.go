// Package report tells a tenant what deserves its attention, from what the other
// packages know.
//
// It promises that a caller learns of a thing only what it may read of it
// anyway, and that every report is in the log. It never shows values, keys or
// code, and it changes nothing.
package report

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/definition"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/proxy"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Service makes reports.
type Service struct {
	directory *directory.Service
	audit     *audit.Service
	proxies   *proxy.Service
	now       func() time.Time
}

// New returns the service.
func New(d *directory.Service, a *audit.Service, p *proxy.Service, now func() time.Time) *Service {
	return &Service{directory: d, audit: a, proxies: p, now: now}
}

// Severity says how soon somebody should look.
type Severity string

// The severities, most urgent first.
const (
	High   Severity = "high"
	Medium Severity = "medium"
	Low    Severity = "low"
)

var severities = []Severity{High, Medium, Low}

// Item is something that deserves attention.
type Item struct {
	Kind     string
	Severity Severity
	// EntityType and EntityID name what it is about; Name is its name, if it has
	// one.
	EntityType, EntityID, Name string
	Detail                     string // constant words
}

// When something deserves attention.
const (
	oldKeyDays    = 365
	unusedKeyDays = 90
	expiresSoon   = 30 * 24 * time.Hour
	verifiedEvery = 30 * 24 * time.Hour
	// maxProxies bounds the proxies that are looked at.
	maxProxies = 1000
)

// checks are what Attention looks at, each for callers with a permission.
var checks = []struct {
	permission access.Permission
	find       func(s *Service, ctx context.Context, c access.Caller) ([]Item, error)
}{
	{access.LogRead, (*Service).checkLog},
	{access.ApplicationRead, (*Service).checkRules},
	{access.ApplicationRead, (*Service).checkKeys},
	{access.ProxyRead, (*Service).checkProxies},
}

// Attention returns what deserves attention, most urgent first. The caller needs
// report:read, and learns only of things that it may read: applications and keys
// take application:read, proxies proxy:read, the log log:read.
func (s *Service) Attention(ctx context.Context, c access.Caller) (list []Item, err error) {
	if err := c.Require(access.ReportRead); err != nil {
		return nil, err
	}
	if err := s.audit.Reported(ctx, c, "attention report"); err != nil {
		return nil, err
	}
	for _, check := range checks {
		if c.Require(check.permission) != nil {
			continue
		}
		found, err := check.find(s, ctx, c)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	slices.SortStableFunc(list, func(a, b Item) int {
		return cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity))
	})
	return list, nil
}

// checkLog looks whether the log was verified lately, and found to be whole.
func (s *Service) checkLog(ctx context.Context, c access.Caller) (list []Item, err error) {
	in, err := s.audit.Integrity(ctx, c)
	if err != nil {
		return nil, err
	}
	item := func(kind string, severity Severity, detail string) {
		list = append(list, Item{Kind: kind, Severity: severity, EntityType: audit.Log, EntityID: audit.Many, Detail: detail})
	}
	switch {
	case in.Last == nil:
		item("log_unverified", Medium, "the log was never verified")
	case in.Last.Found > 0:
		item("log_changed", High, "the last verification found that the log is not what was sealed")
	case s.now().Sub(in.Last.At) > verifiedEvery:
		item("log_unverified", Medium, "the log was not verified for 30 days")
	}
	return list, nil
}

// checkRules looks for applications that see values of every token, and for
// those that expire soon.
func (s *Service) checkRules(ctx context.Context, c access.Caller) (list []Item, err error) {
	rows, err := s.directory.AccessReview(ctx, c, time.Time{})
	if err != nil {
		return nil, err
	}
	broad := make(map[string]bool)
	for _, r := range rows {
		item := Item{Severity: Medium, EntityType: audit.Application, EntityID: r.ID, Name: r.Name}
		if r.Session {
			continue // it ends by itself, and is no broader than its maker
		}
		if r.Container == "/" && r.Permission == access.TokenRead && !broad[r.ID] {
			broad[r.ID] = true
			item.Kind, item.Detail = "broad_rule", "the application reads the values of tokens in every container"
			list = append(list, item)
		}
	}
	return list, nil
}

// checkKeys looks for keys that are old or not used, and for applications that
// expire soon.
func (s *Service) checkKeys(ctx context.Context, c access.Caller) (list []Item, err error) {
	keys, err := s.directory.KeyInventory(ctx, c)
	if err != nil {
		return nil, err
	}
	now, told := s.now(), make(map[string]bool)
	unusedSince := now.AddDate(0, 0, -unusedKeyDays).UTC().Format(time.DateOnly)
	for _, k := range keys {
		if until := k.ExpiresAt.Sub(now); !k.ExpiresAt.IsZero() && until > 0 && until <= expiresSoon && !told[k.Application] {
			told[k.Application] = true
			list = append(list, Item{Kind: "expiring_application", Severity: High, EntityType: audit.Application, EntityID: k.Application, Name: k.ApplicationName,
				Detail: "the application expires within 30 days"})
		}
		item := Item{EntityType: audit.Key, EntityID: k.ID, Name: k.ApplicationName}
		unused := k.TrackedSince != "" && k.TrackedSince <= unusedSince && k.LastUsed < unusedSince && k.AgeDays >= unusedKeyDays
		switch {
		case unused:
			item.Kind, item.Severity, item.Detail = "unused_key", Low, "the key was not used for 90 days"
		case k.AgeDays >= oldKeyDays:
			item.Kind, item.Severity, item.Detail = "old_key", Medium, "the key is older than a year"
		default:
			continue
		}
		list = append(list, item)
	}
	return list, nil
}

// checkProxies looks for proxies that take calls without an API key.
func (s *Service) checkProxies(ctx context.Context, c access.Caller) (list []Item, err error) {
	for page := (store.Page{Limit: 100}); page.Offset < maxProxies; page.Offset += page.Limit {
		proxies, total, err := s.proxies.List(ctx, c, definition.Filter{}, page)
		if err != nil {
			return nil, err
		}
		for _, p := range proxies {
			if !proxy.RequireAuth(p) {
				detail := "the proxy takes calls without an API key"
				severity := Medium
				if p.ApplicationID == "" {
					severity, detail = High, "the proxy takes calls without an API key, and may use every token of the tenant"
				}
				list = append(list, Item{Kind: "open_proxy", Severity: severity, EntityType: audit.Proxy, EntityID: p.ID, Name: p.Name, Detail: detail})
			}
		}
		if int64(page.Offset+page.Limit) >= total {
			break
		}
	}
	return list, nil
}
