package api

import "encoding/json"

// Reactor is a tenant's own code on the server.
type Reactor struct {
	ID            string            `json:"id"`
	TenantID      string            `json:"tenant_id"`
	Name          string            `json:"name"`
	Code          string            `json:"code"`
	Configuration map[string]string `json:"configuration"`
	Application   *ApplicationRef   `json:"application,omitempty"`
	State         string            `json:"state"` // always active
	Made
}

// Write returns the body of a PUT that leaves the reactor as it was read.
func (r Reactor) Write() WriteReactor {
	return WriteReactor{Name: r.Name, Code: r.Code, Configuration: r.Configuration, Application: r.Application}
}

// ApplicationRef names the application whose rights code has. The zero value is
// written as null and names none.
type ApplicationRef struct {
	ID string `json:"id"`
}

// MarshalJSON writes {"id": …}, or null without an id.
func (r ApplicationRef) MarshalJSON() ([]byte, error) {
	if r.ID == "" {
		return []byte("null"), nil
	}
	type object ApplicationRef // without this method
	return json.Marshal(object(r))
}

// WriteReactor is the body of POST /reactors and PUT /reactors/{id}. The
// application is named by Application or by ApplicationID; one is enough.
type WriteReactor struct {
	Name          string            `json:"name"`
	Code          string            `json:"code"`
	Configuration map[string]string `json:"configuration"`
	Application   *ApplicationRef   `json:"application,omitzero"`
	ApplicationID string            `json:"application_id,omitempty"`
}

// React is the body of POST /reactors/{id}/react. CallbackURL and TimeoutMS are
// for runs that nobody waits for.
type React struct {
	Args        any    `json:"args,omitempty"`
	CallbackURL string `json:"callback_url,omitempty"`
	TimeoutMS   int    `json:"timeout_ms,omitempty"`
}

// ReactorResponse is what a run returned. Both members are nil when the code
// returned nothing of the kind.
type ReactorResponse struct {
	Tokens json.RawMessage `json:"tokens,omitempty"` // tokens in the places of what they keep
	Raw    json.RawMessage `json:"raw,omitempty"`
}

// AsyncReactor names a run that nobody waits for.
type AsyncReactor struct {
	AsyncReactorRequestID string `json:"asyncReactorRequestId"`
}

// Run is what is remembered of a run for an hour.
type Run struct {
	ID               string            `json:"id"`
	RequestID        string            `json:"request_id,omitempty"` // of a run that nobody waited for
	StartedAt        Time              `json:"started_at"`
	TookMicroseconds int64             `json:"took_us"`
	MemoryBytes      int64             `json:"memory_bytes"`
	Failed           bool              `json:"failed"`
	Console          []json.RawMessage `json:"console"` // {"level":…,"text":…}
}

// CodeVersion is the code of a reactor or a proxy as it once was.
type CodeVersion struct {
	Number int64 `json:"number"`
	// Code has the pieces by name: code of a reactor, request_transform and
	// response_transform of a proxy.
	Code      map[string]string `json:"code"`
	CreatedBy string            `json:"created_by,omitzero"`
	ActorName string            `json:"actor_name,omitzero"`
	CreatedAt Time              `json:"created_at"`
}

// TryReactor is the body of POST /reactors/try.
type TryReactor struct {
	Code          string            `json:"code"`
	Configuration map[string]string `json:"configuration,omitempty"`
	ApplicationID string            `json:"application_id,omitempty"`
	Args          any               `json:"args,omitempty"`
}

// Trial is what came of code that was tried.
type Trial struct {
	Raw json.RawMessage `json:"raw,omitempty"`
	// Tokenize is what the code wants tokenized. A trial tokenizes nothing.
	Tokenize         json.RawMessage   `json:"tokenize,omitempty"`
	Response         *TrialResponse    `json:"response,omitempty"` // that the code gives in place of these
	Error            *Problem          `json:"error,omitempty"`    // what was wrong with the code
	TookMicroseconds int64             `json:"took_us"`
	MemoryBytes      int64             `json:"memory_bytes"`
	Console          []json.RawMessage `json:"console"` // {"level":…,"text":…}
}

// TrialResponse is a response that code gives by itself.
type TrialResponse struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    json.RawMessage   `json:"body,omitempty"`
}
