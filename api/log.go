package api

// LogEntry is one entry of a tenant's audit log.
type LogEntry struct {
	ID            string `json:"id"`
	TenantID      string `json:"tenant_id"`
	ActorID       string `json:"actor_id,omitzero"`
	ActorType     string `json:"actor_type,omitzero"`
	SessionID     string `json:"session_id,omitzero"`
	EntityType    string `json:"entity_type"`
	EntityID      string `json:"entity_id"`
	Operation     string `json:"operation"`
	Outcome       string `json:"outcome"`
	Message       string `json:"message"`
	TraceID       string `json:"trace_id,omitzero"`
	ClientAddress string `json:"client_address,omitzero"`
	// ActorName is the name of a member, and Reason the one that the actor gave.
	ActorName string `json:"actor_name,omitzero"`
	Reason    string `json:"reason,omitzero"`
	CreatedAt Time   `json:"created_at"`
}

// EntityType is a kind of thing that log entries are about.
type EntityType struct {
	DisplayName string `json:"display_name"`
	Value       string `json:"value"`
}

// Named says what an id belongs to. What is deleted, or has no name that the
// caller may read, comes without one.
type Named struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Name    string `json:"name,omitzero"`
	Deleted bool   `json:"deleted,omitzero"`
}
