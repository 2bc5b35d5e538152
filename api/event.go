package api

// Event tells that something happened to an entity of the tenant. It has ids and
// types only, never data. The body of a webhook delivery is an Event too.
type Event struct {
	ID         string   `json:"id"`
	TenantID   string   `json:"tenant_id"`
	Type       string   `json:"type"`
	EntityType string   `json:"entity_type"`
	EntityID   string   `json:"entity_id"`
	Containers []string `json:"containers,omitzero"`
	ActorID    string   `json:"actor_id,omitzero"`
	ActorType  string   `json:"actor_type"`
	CreatedAt  Time     `json:"created_at"`
}

// EventCursor says where a part of the list of events ends. Next is never empty:
// events that come later follow it. More says that there are more events now.
type EventCursor struct {
	PageSize int    `json:"page_size"`
	Next     string `json:"next"`
	More     bool   `json:"more"`
}

// EventList is a part of the list of events, oldest first. Data is never null.
type EventList struct {
	Pagination EventCursor `json:"pagination"`
	Data       []Event     `json:"data"`
}

// Webhook is an address that gets events of the tenant. Secret is present only in
// the answers that create a webhook or rotate its secret.
type Webhook struct {
	ID             string   `json:"id"`
	TenantID       string   `json:"tenant_id"`
	Name           string   `json:"name"`
	URL            string   `json:"url"`
	Events         []string `json:"events"`
	State          string   `json:"state"`
	DisabledReason string   `json:"disabled_reason,omitzero"`
	Secret         string   `json:"secret,omitzero"`
	// PreviousSecretUntil is until when the secret before this one signs too.
	PreviousSecretUntil *Time `json:"previous_secret_until,omitzero"`
	Made
}

// SetWebhook is what a caller chooses of a webhook.
type SetWebhook struct {
	Name   string   `json:"name"`
	URL    string   `json:"url"`
	Events []string `json:"events"`
	State  string   `json:"state,omitzero"`
}

// Delivery tells how the attempts to send an event to a webhook went. Its id is that
// of the event.
type Delivery struct {
	ID             string `json:"id"`
	WebhookID      string `json:"webhook_id"`
	EventType      string `json:"event_type"`
	EntityType     string `json:"entity_type"`
	EntityID       string `json:"entity_id"`
	State          string `json:"state"`
	Attempts       int    `json:"attempts"`
	ResponseStatus int    `json:"response_status,omitzero"`
	LatencyMS      int64  `json:"latency_ms"`
	AttemptedAt    *Time  `json:"attempted_at,omitzero"`
}
