package api

// The states of an ImportResult.
const (
	ImportCreated  = "created"  // a token was made
	ImportExisting = "existing" // the line repeats a token that was there before
	ImportValid    = "valid"    // a dry run found nothing wrong
	ImportRejected = "rejected" // there is no token; see Detail and Errors
	ImportStopped  = "stopped"  // the import ended before this line; see Problem
	ImportEnd      = "end"      // all lines were read; Line is the one that would come next
)

// ImportResult is a line of the response of POST /imports: what became of one
// line of the request, and last how the import ended.
type ImportResult struct {
	Line   int64  `json:"line"`
	Status string `json:"status"`
	ID     string `json:"id,omitzero"` // of the token
	Detail string `json:"detail,omitzero"`
	Code   string `json:"code,omitzero"`
	// Errors has messages by the dotted path of the field at fault.
	Errors  map[string][]string `json:"errors,omitempty"`
	Problem *Problem            `json:"problem,omitzero"`
}

// ExportFilter chooses what is exported. The zero value is everything that the
// caller may read.
type ExportFilter struct {
	Container string   `json:"container,omitzero"` // one that a token has; with * at its end, or one under it
	Types     []string `json:"types,omitempty"`
}

// CreateExport is the body of POST /exports, and of POST /exports/{id}/approve,
// which names what is approved.
type CreateExport struct {
	Recipient string       `json:"recipient"` // of age, as in age1…
	Filter    ExportFilter `json:"filter,omitzero"`
}

// The states of an export.
const (
	ExportReady   = "ready"            // its content can be fetched
	ExportWaiting = "pending_approval" // another application has to approve it first
)

// Export is an export that was requested.
type Export struct {
	ID          string       `json:"id"`
	Status      string       `json:"status"`
	Recipient   string       `json:"recipient"`
	Filter      ExportFilter `json:"filter"`
	RequestedBy string       `json:"requested_by"`
	CreatedAt   Time         `json:"created_at"`
	ExpiresAt   Time         `json:"expires_at"`
	ApprovedBy  string       `json:"approved_by,omitzero"`
	ApprovedAt  *Time        `json:"approved_at,omitzero"`
}
