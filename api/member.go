package api

// Member is a person of a tenant.
type Member struct {
	ID       string `json:"id"`
	TenantID string `json:"tenant_id"`
	Email    string `json:"email"`
	Name     string `json:"name"`
	Role     string `json:"role"`
	State    string `json:"state"`
	// LastSeenAt is when the member last used the service, to the minute.
	LastSeenAt Time `json:"last_seen_at,omitzero"`
	Made
}

// CreateMember is the body of POST /members.
type CreateMember struct {
	Email string `json:"email"`
	Name  string `json:"name"`
	Role  string `json:"role"`
}

// UpdateMember is the body of PATCH /members/{id}; nil leaves a field.
type UpdateMember struct {
	Name  *string `json:"name,omitempty"`
	Role  *string `json:"role,omitempty"`
	State *string `json:"state,omitempty"`
}

// SignIn is a browser in which a member is signed in.
type SignIn struct {
	ID            string `json:"id"`
	MemberID      string `json:"member_id"`
	CreatedAt     Time   `json:"created_at"`
	LastUsedAt    Time   `json:"last_used_at"`
	IdleExpiresAt Time   `json:"idle_expires_at"`
	ExpiresAt     Time   `json:"expires_at"`
	ClientAddress string `json:"client_address,omitzero"`
	// Provider is the id of the identity provider; absent for a link.
	Provider string `json:"provider,omitzero"`
}

// Role is what the members who have it may do.
type Role struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitzero"`
	Permissions []string `json:"permissions"`
	Rules       []Rule   `json:"rules"`
	BuiltIn     bool     `json:"built_in"`
	Made
}

// CreateRole is the body of POST /roles, and without the name of PUT
// /roles/{id}.
type CreateRole struct {
	Name        string   `json:"name,omitzero"`
	Description string   `json:"description,omitzero"`
	Permissions []string `json:"permissions,omitzero"`
	Rules       []Rule   `json:"rules,omitzero"`
}

// MemberSelf is the answer to GET /members/self.
type MemberSelf struct {
	Member  Member      `json:"member"`
	Role    Role        `json:"role"`
	Tenant  TenantNamed `json:"tenant"`
	Session SignIn      `json:"session"`
	// Operator says that the member runs the installation.
	Operator bool `json:"operator"`
}

// TenantNamed names a tenant.
type TenantNamed struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// SignInProviders is the answer to GET /auth/providers.
type SignInProviders struct {
	Providers []SignInProvider `json:"providers"`
	// Links says that people can sign in with a link of the operator's.
	Links bool `json:"links"`
}

// SignInProvider is an identity provider that people sign in with.
type SignInProvider struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// RedeemLink is the body of POST /auth/link.
type RedeemLink struct {
	Code string `json:"code"`
}

// CreateLink asks for a link that signs a member in, once.
type CreateLink struct {
	Role  string `json:"role"`
	Email string `json:"email,omitzero"`
	Name  string `json:"name,omitzero"`
}

// CreatedLink is a link that signs a member in, once.
type CreatedLink struct {
	URL       string `json:"url"`
	ExpiresAt Time   `json:"expires_at"`
	Member    Member `json:"member"`
}

// RevealToken is the body of POST /tokens/{id}/reveal.
type RevealToken struct {
	Reason string `json:"reason"`
}
