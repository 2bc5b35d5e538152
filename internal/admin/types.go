package admin

import (
	"encoding/json"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/limit"
)

// KeyStatus tells which keys there are and what they are used for.
type KeyStatus struct {
	Primary string       `json:"primary_kek"`
	KEKs    []string     `json:"keks"`
	Tenants []TenantKeys `json:"tenants"`
}

// TenantKeys are the keys of one tenant.
type TenantKeys struct {
	Tenant   string    `json:"tenant_id"`
	KEKs     []string  `json:"keks"` // that wrap its keysets
	Keys     []DataKey `json:"data_keys"`
	Rotation string    `json:"rotation,omitempty"` // how far the last one has come
}

// DataKey is a key under which a tenant's values are sealed.
type DataKey struct {
	ID      string    `json:"id"`
	Primary bool      `json:"primary"`
	MadeAt  time.Time `json:"made_at"`
	// Values is how many are sealed with it; -1 when it is the only key, and
	// so seals all.
	Values int64 `json:"values"`
}

// DropKEK names the key-encryption key to forget.
type DropKEK struct {
	ID string `json:"id"`
}

// Status is what a running server tells its operator.
type Status struct {
	BaseURL   string    `json:"base_url"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
	Ready     bool      `json:"ready"`
	// ClockOffsetMS is how far the server's clock is ahead of its database's,
	// in milliseconds; nil for the embedded store, which has no clock.
	ClockOffsetMS *int64 `json:"clock_offset_ms,omitempty"`
	// SandboxLevel is the wall that code of tenants runs behind; empty for a
	// server that has none.
	SandboxLevel string `json:"sandbox_level,omitempty"`
	// Outdated says that a newer release has changed the database, and that this
	// server goes on until it is replaced.
	Outdated bool `json:"outdated,omitempty"`
	// KMS is what is wrong with the KMS that holds the key-encryption key; empty
	// when nothing is.
	KMS string `json:"kms,omitempty"`
	// LimitsReached are the limits that callers reached within the last hour.
	LimitsReached []limit.Reached `json:"limits_reached,omitempty"`
}

// Swept is how much a sweep removed: expired tokens and sessions, and
// short-lived keys whose time was over.
type Swept struct {
	Tokens   int `json:"tokens"`
	Sessions int `json:"sessions"`
	Keys     int `json:"short_lived_keys"`
}

// Backup names the folder to write a backup into: an absolute path, for a
// server has another working folder than its operator.
type Backup struct {
	Folder string `json:"folder"`
}

// VerifyLog asks for a log to be verified, against a checkpoint when there is one.
type VerifyLog struct {
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
}

// ExportLog says which entries to export: at or after From, before Before.
type ExportLog struct {
	From   *time.Time `json:"from,omitempty"`
	Before *time.Time `json:"before,omitempty"`
}

// RetainLog says how long entries are kept, as a duration such as 8760h.
type RetainLog struct {
	Keep string `json:"keep"`
}
