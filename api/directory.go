package api

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/date"
)

// Time is an instant as responses write it: RFC 3339 with +00:00 and
// microseconds. Requests may use any form that UnmarshalJSON reads.
type Time struct{ time.Time }

const timeLayout = "2006-01-02T15:04:05.000000-07:00"

// MarshalJSON writes the instant in UTC.
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(`"` + t.UTC().Format(timeLayout) + `"`), nil
}

var errNoTime = errors.New("api: a time " + date.Wanted)

// UnmarshalJSON reads ISO 8601 in extended form: a day, or a time whose seconds
// and offset are optional; without an offset it is in UTC. null is no time. The
// first instant of the year 1 stands for no time in Go, and is refused.
func (t *Time) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		t.Time = time.Time{}
		return nil
	}
	var text string
	if json.Unmarshal(b, &text) != nil {
		return errNoTime
	}
	d, ok := date.Parse(text)
	if !ok || d.Time.IsZero() {
		return errNoTime
	}
	t.Time = d.Time
	return nil
}

// IsZero reports whether there is no time; then the member is left out.
func (t Time) IsZero() bool { return t.Time.IsZero() }

// Made says who made and last changed a resource, and when. Members without a
// value are left out.
type Made struct {
	CreatedBy  string `json:"created_by,omitzero"`
	CreatedAt  Time   `json:"created_at,omitzero"`
	ModifiedBy string `json:"modified_by,omitzero"`
	ModifiedAt Time   `json:"modified_at,omitzero"`
}

// Tenant is the caller's tenant.
type Tenant struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Settings map[string]string `json:"settings"`
	Made
}

// ReplaceTenant is the body of PUT /tenants/self.
type ReplaceTenant struct {
	Name     string            `json:"name"`
	Settings map[string]string `json:"settings,omitzero"`
}

// Usage is the answer to GET /tenants/self/reports/usage.
type Usage struct {
	TotalTokens int64       `json:"total_tokens"` // again: clients read it in either place
	TokenReport TokenReport `json:"token_report"`
}

// TokenReport counts tokens, in all and by their type.
type TokenReport struct {
	TotalTokens   int64                  `json:"total_tokens"`
	MetricsByType map[string]TypeMetrics `json:"metrics_by_type"`
}

// TypeMetrics counts the tokens of one type.
type TypeMetrics struct {
	Count int64 `json:"count"`
}

// CallbackSecret signs what is delivered to callback URLs. While there is a
// previous one, both sign.
type CallbackSecret struct {
	Secret         string `json:"secret"`
	PreviousSecret string `json:"previous_secret,omitzero"`
	PreviousUntil  Time   `json:"previous_until,omitzero"`
}

// Rule grants permissions on some tokens, and says how much of them they show.
type Rule struct {
	Description string `json:"description,omitempty"`
	// Priority orders the rules of a list, lowest first. It stands on all
	// rules of a list or on none; then their position counts.
	Priority *int `json:"priority,omitempty"`
	// Container is a path: the rule is about the tokens in it and below it.
	Container   string   `json:"container,omitempty"`
	Transform   string   `json:"transform"`
	Permissions []string `json:"permissions"`
	// RequiresReason makes the rule count as mask, except for callers that give
	// a reason: POST /tokens/{id}/reveal. token:use is not affected.
	RequiresReason bool `json:"requires_reason,omitzero"`
	// Conditions choose tokens in place of Container, in sessions' rules
	// alone. All of them must hold.
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is one thing that must hold of a token.
type Condition struct {
	Attribute string `json:"attribute"` // "id" or "container"
	Operator  string `json:"operator"`  // "equals" or "starts_with"
	Value     string `json:"value"`
}

// Application is an application. Key is there only in the answer that made it.
type Application struct {
	ID          string   `json:"id"`
	TenantID    string   `json:"tenant_id"`
	Name        string   `json:"name"`
	Type        string   `json:"type"`
	Permissions []string `json:"permissions"`
	Rules       []Rule   `json:"rules"`
	Keys        []Key    `json:"keys"`
	Key         string   `json:"key,omitzero"`
	ExpiresAt   Time     `json:"expires_at,omitzero"`
	// AllowedOrigins are the pages that may embed fields; public applications
	// only.
	AllowedOrigins []string `json:"allowed_origins,omitempty"`
	Made
}

// Key tells of a key of an application. Key.Key is there only in the answer
// that made it.
type Key struct {
	ID        string `json:"id"`
	Version   string `json:"version"` // digits; counts the keys of the application
	Prefix    string `json:"prefix"`
	Key       string `json:"key,omitzero"`
	CreatedBy string `json:"created_by,omitzero"`
	CreatedAt Time   `json:"created_at,omitzero"`
}

// CreateApplication is the body of POST /applications.
type CreateApplication struct {
	Name        string   `json:"name"`
	Type        string   `json:"type"`
	Permissions []string `json:"permissions,omitzero"`
	Rules       []Rule   `json:"rules,omitzero"`
	ExpiresAt   Time     `json:"expires_at,omitzero"`
	CreateKey   *bool    `json:"create_key,omitzero"` // default true
	// AllowedOrigins are the pages that may embed fields: at most 20 origins
	// such as https://shop.example. Public applications only.
	AllowedOrigins []string `json:"allowed_origins,omitzero"`
}

// ReplaceApplication is the body of PUT /applications/{id}. What is left out
// returns to its default; a type may be given when it is the one that stands.
type ReplaceApplication struct {
	Name        string   `json:"name"`
	Type        string   `json:"type,omitzero"`
	Permissions []string `json:"permissions,omitzero"`
	Rules       []Rule   `json:"rules,omitzero"`
	ExpiresAt   Time     `json:"expires_at,omitzero"`
	// AllowedOrigins are as in CreateApplication.
	AllowedOrigins []string `json:"allowed_origins,omitzero"`
}

// Permission is one that applications of some types may hold.
type Permission struct {
	Type             string   `json:"type"`
	Description      string   `json:"description"`
	ApplicationTypes []string `json:"application_types"`
}

// CreateTenant is what the operator makes a tenant from.
type CreateTenant struct {
	Name string `json:"name"`
}

// CreatedTenant is a new tenant with the application that manages it.
type CreatedTenant struct {
	Tenant      Tenant      `json:"tenant"`
	Application Application `json:"application"`
}
