package api

import "encoding/json"

// Token is a token as the caller may see it. Members without a value, and
// those that the caller may not see, are left out.
type Token struct {
	ID       string `json:"id"`
	TenantID string `json:"tenant_id"`
	Type     string `json:"type"`
	// Data is in clear or masked, as the caller's access has it; left out when
	// that redacts it.
	Data json.RawMessage `json:"data,omitempty"`
	Card *Card           `json:"card,omitempty"`
	Bank *Bank           `json:"bank,omitempty"`
	// Mask is the mask as it was given, or the one of the type.
	Mask                  json.RawMessage   `json:"mask,omitempty"`
	Fingerprint           string            `json:"fingerprint,omitzero"`
	FingerprintExpression string            `json:"fingerprint_expression,omitzero"`
	Containers            []string          `json:"containers"`
	Metadata              map[string]string `json:"metadata,omitempty"`
	SearchIndexes         []string          `json:"search_indexes,omitempty"`
	// ExpiresAt has the offset that it was given with.
	ExpiresAt string `json:"expires_at,omitzero"`
	Made
}

// Card tells of a card what may be shown beside its masked number.
type Card struct {
	Bin             string `json:"bin"`
	Last4           string `json:"last4"`
	Brand           string `json:"brand,omitzero"`
	ExpirationMonth int    `json:"expiration_month,omitzero"`
	ExpirationYear  int    `json:"expiration_year,omitzero"`
}

// Bank tells of a bank account what may be shown.
type Bank struct {
	RoutingNumber      string `json:"routing_number"`
	AccountNumberLast4 string `json:"account_number_last4,omitzero"`
}

// CreateToken is the body of POST /tokens, and of a request for a token inside
// the body of POST /tokenize.
type CreateToken struct {
	ID                    string            `json:"id,omitzero"` // or an expression; default: a UUID
	Type                  string            `json:"type"`
	Data                  any               `json:"data"`
	Mask                  any               `json:"mask,omitempty"`
	Containers            []string          `json:"containers,omitempty"`
	Metadata              map[string]string `json:"metadata,omitempty"`
	SearchIndexes         []string          `json:"search_indexes,omitzero"`
	FingerprintExpression string            `json:"fingerprint_expression,omitzero"`
	DeduplicateToken      *bool             `json:"deduplicate_token,omitzero"`
	ExpiresAt             string            `json:"expires_at,omitzero"`
}

// SearchTokens is the body of POST /tokens/search.
type SearchTokens struct {
	Query string `json:"query"`
	Page  *int   `json:"page,omitzero"`
	Size  *int   `json:"size,omitzero"`
}

// SearchTokensFrom is the body of POST /v2/tokens/search.
type SearchTokensFrom struct {
	Query string `json:"query"`
	Start string `json:"start,omitzero"`
	Size  *int   `json:"size,omitzero"`
}

// Cursor says where a list goes on; Next is left out at its end.
type Cursor struct {
	PageSize int    `json:"page_size"`
	Next     string `json:"next,omitzero"`
}

// ListFrom is a part of a list that is read from place to place. Data is never
// null.
type ListFrom[T any] struct {
	Pagination Cursor `json:"pagination"`
	Data       []T    `json:"data"`
}
