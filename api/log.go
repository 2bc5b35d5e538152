package api

import "time"

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
	ActorName     string `json:"actor_name,omitzero"`
	Transform     string `json:"transform,omitzero"`
	Reason        string `json:"reason,omitzero"`
	CreatedAt     Time   `json:"created_at"`
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

// LogIntegrity is what is known of the integrity of the log without reading all
// of it.
type LogIntegrity struct {
	// Head is the signed head of the log, in the form of a checkpoint; absent
	// while nothing is sealed.
	Head *LogHead `json:"head,omitempty"`
	// Unsealed entries wait to be sealed: nothing is proven about them.
	Unsealed         int64        `json:"unsealed"`
	OldestUnsealedAt *Time        `json:"oldest_unsealed_at,omitempty"`
	LastVerification *LogVerified `json:"last_verification,omitempty"`
}

// LogHead is the signed head of a log. 'tokenkeep audit verify --checkpoint'
// takes it as it is.
type LogHead struct {
	TenantID  string    `json:"tenant_id"`
	Number    int64     `json:"number"`
	Entries   int       `json:"entries"`
	Root      string    `json:"root"`
	Previous  string    `json:"previous"`
	SealedAt  time.Time `json:"sealed_at"`
	Link      string    `json:"link"`
	Signature []byte    `json:"signature"`
	PublicKey string    `json:"public_key"`
}

// LogVerified says when the log was last verified, by whom, and what was found.
type LogVerified struct {
	ID        string `json:"id,omitzero"` // of the verification; absent for one by the operator
	At        Time   `json:"at"`
	ActorID   string `json:"actor_id,omitzero"`
	ActorType string `json:"actor_type"`
	ActorName string `json:"actor_name,omitzero"`
	Batches   int64  `json:"batches"`
	Entries   int64  `json:"entries"`
	Findings  int64  `json:"findings"`
	Clean     bool   `json:"clean"`
	Head      int64  `json:"head"` // the number of the newest batch that was verified
}

// LogVerification is a verification of the log that runs as a job.
type LogVerification struct {
	ID         string                 `json:"id"`
	State      string                 `json:"state"` // queued, running, done or failed
	StartedAt  Time                   `json:"started_at"`
	FinishedAt *Time                  `json:"finished_at,omitempty"`
	ActorID    string                 `json:"actor_id,omitzero"`
	ActorType  string                 `json:"actor_type,omitzero"`
	ActorName  string                 `json:"actor_name,omitzero"`
	Progress   *Progress              `json:"progress,omitempty"`
	Result     *LogVerificationResult `json:"result,omitempty"`
}

// Progress is how far a long piece of work has come.
type Progress struct {
	Doing string `json:"doing"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0 when it is not known
}

// LogVerificationResult is what a verification found.
type LogVerificationResult struct {
	Clean    bool  `json:"clean"`
	Batches  int64 `json:"batches"`
	Entries  int64 `json:"entries"`
	Dropped  int64 `json:"dropped"`
	Unsealed int64 `json:"unsealed"`
	Found    int64 `json:"found"`
	// Findings are the first ones, in the order of the log.
	Findings []LogFinding `json:"findings"`
	Head     *LogHead     `json:"head,omitempty"`
}

// LogFinding is one thing that is wrong with the log.
type LogFinding struct {
	Kind    string `json:"kind"`
	Batch   int64  `json:"batch,omitzero"`
	EntryID string `json:"entry_id,omitzero"`
	Detail  string `json:"detail"`
}
