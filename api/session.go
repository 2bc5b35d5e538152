package api

// CreatedSession is the answer to a new session. Its key and its nonce are in
// this answer and nowhere else.
type CreatedSession struct {
	SessionKey string `json:"session_key"`
	Nonce      string `json:"nonce"`
	ExpiresAt  Time   `json:"expires_at"`
}

// AuthorizeSession gives the session of a nonce its rights.
type AuthorizeSession struct {
	Nonce       string   `json:"nonce"`
	Permissions []string `json:"permissions,omitempty"`
	Rules       []Rule   `json:"rules,omitempty"`
	ExpiresAt   Time     `json:"expires_at,omitzero"`
	// ApplicationID is the public application that must have made the session;
	// any of the tenant may when it is left out.
	ApplicationID string `json:"application_id,omitzero"`
}

// Session is a live session as the management of its tenant sees it.
type Session struct {
	ID       string `json:"id"`
	TenantID string `json:"tenant_id"`
	// Prefix is the beginning of the session's key, for people to tell them apart.
	Prefix       string   `json:"prefix"`
	Permissions  []string `json:"permissions"`
	Rules        []Rule   `json:"rules"`
	CreatedBy    string   `json:"created_by"`
	CreatedAt    Time     `json:"created_at"`
	AuthorizedBy string   `json:"authorized_by,omitempty"`
	AuthorizedAt Time     `json:"authorized_at,omitzero"`
	ExpiresAt    Time     `json:"expires_at"`
}
