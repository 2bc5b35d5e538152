package api

// ActivityReport is what happened in a range of time, by bucket and application.
type ActivityReport struct {
	Bucket string         `json:"bucket"` // minute, hour or day
	Start  Time           `json:"start"`
	End    Time           `json:"end"`
	Total  ActivityCounts `json:"total"`
	// Data leaves out buckets without activity.
	Data []Activity `json:"data"`
}

// Activity is what an application did within a bucket.
type Activity struct {
	At Time `json:"at"` // when the bucket begins
	// ApplicationID is absent for what the system and anonymous callers did, and
	// where all applications are added up.
	ApplicationID string `json:"application_id,omitzero"`
	ActivityCounts
}

// ActivityCounts are numbers of log entries.
type ActivityCounts struct {
	Reads    ActivityReads `json:"reads"`
	Uses     int64         `json:"uses"`
	Changes  int64         `json:"changes"`
	Refusals int64         `json:"refusals"`
}

// ActivityReads are reads of tokens by how much they showed, and other reads.
type ActivityReads struct {
	Revealed int64 `json:"reveal"`
	Masked   int64 `json:"mask"`
	Redacted int64 `json:"redact"`
	Other    int64 `json:"other"`
}

// KeyReport is an API key in the inventory of keys. It never holds the key.
type KeyReport struct {
	ID              string `json:"id"`
	Prefix          string `json:"prefix,omitzero"`
	ApplicationID   string `json:"application_id"`
	ApplicationName string `json:"application_name"`
	ApplicationType string `json:"application_type"`
	CreatedAt       Time   `json:"created_at"`
	AgeDays         int    `json:"age_days"`
	// LastUsedOn is the day on which it was last presented, in UTC. It is absent
	// when it was not since TrackedSince; nothing is known of the time before.
	LastUsedOn   string `json:"last_used_on,omitzero"`
	TrackedSince string `json:"tracked_since,omitzero"`
	ExpiresAt    Time   `json:"expires_at,omitzero"`
}

// AccessReport is one way in which somebody may see values: a permission, and
// the container from which on.
type AccessReport struct {
	AccessHolder
	Permission string `json:"permission"`
	// Changed says that the holder was created or changed since the date that the
	// report was asked for with.
	Changed   bool   `json:"changed"`
	ChangedAt Time   `json:"changed_at"`
	ChangedBy string `json:"changed_by,omitzero"`
}

// AttentionItem is something that deserves attention.
type AttentionItem struct {
	Kind       string `json:"kind"`
	Severity   string `json:"severity"` // high, medium or low
	EntityType string `json:"entity_type"`
	EntityID   string `json:"entity_id"`
	Name       string `json:"name,omitzero"`
	Detail     string `json:"detail"`
}
