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
