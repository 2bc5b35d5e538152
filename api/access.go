package api

// ExplainAccess asks whether an application, a session or a proposed grant may
// do something to a token, or to any token in all of the containers.
type ExplainAccess struct {
	ApplicationID string         `json:"application_id,omitempty"`
	SessionID     string         `json:"session_id,omitempty"`
	Proposed      *ProposedGrant `json:"proposed,omitempty"`
	Permission    string         `json:"permission"`
	TokenID       string         `json:"token_id,omitempty"`
	Container     string         `json:"container,omitempty"`
	Containers    []string       `json:"containers,omitempty"`
}

// ProposedGrant is a grant that nobody has yet.
type ProposedGrant struct {
	Type        string   `json:"type"` // public, private, management or session
	Permissions []string `json:"permissions,omitempty"`
	Rules       []Rule   `json:"rules,omitempty"`
}

// Explanation says what was decided, by which rule, and why the rules before
// it did not decide.
type Explanation struct {
	Allowed    bool   `json:"allowed"`
	Transform  string `json:"transform,omitempty"` // redact, mask or reveal
	Permission string `json:"permission"`
	// DependsOnID says that the answer might be kinder to some ids: no token
	// was named, and a rule has a condition on it.
	DependsOnID bool         `json:"depends_on_id"`
	Inactive    string       `json:"inactive,omitempty"` // why the holder may do nothing now
	Containers  []string     `json:"containers,omitempty"`
	DecidedBy   *AccessStep  `json:"decided_by,omitempty"` // nil for an inactive session
	Steps       []AccessStep `json:"steps"`
}

// AccessStep is a look at one rule, or at the plain permissions, for one container.
type AccessStep struct {
	// OfMaker says that the rule is one of the application that authorized the session.
	OfMaker   bool   `json:"of_maker"`
	Container string `json:"container,omitempty"`
	Rule      *int   `json:"rule,omitempty"` // position in the list, from 0
	Priority  int    `json:"priority,omitzero"`
	Condition *int   `json:"condition,omitempty"` // position of the one that fails, from 0
	Decides   bool   `json:"decides"`
	Transform string `json:"transform,omitempty"`
	Reason    string `json:"reason"`
}

// AccessHolder is an application or a session that could do what was asked
// about, with the most that it would be shown and the first place where.
type AccessHolder struct {
	Kind            string `json:"kind"` // application or session
	ID              string `json:"id"`
	Name            string `json:"name,omitempty"`
	ApplicationType string `json:"application_type,omitempty"`
	Transform       string `json:"transform"`
	Container       string `json:"container,omitempty"`
	ExpiresAt       Time   `json:"expires_at,omitzero"`
}
