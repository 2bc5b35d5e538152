package token

import (
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Token is a token as one caller sees it. What the caller may not see, or what
// the token does not have, is the zero value.
type Token struct {
	ID       string
	TenantID string
	Type     string
	// Data is the plaintext or the evaluated mask; null when redacted.
	Data jsonvalue.Value
	// Mask is the mask as it was given, or the type's.
	Mask                  jsonvalue.Value
	Fingerprint           string
	FingerprintExpression string
	Containers            []string
	Metadata              jsonvalue.Value
	SearchIndexes         jsonvalue.Value
	Expiry                store.Expiry
	CreatedBy             string
	CreatedAt             store.Time
	ModifiedBy            string
	ModifiedAt            store.Time

	sideName    string // card or bank
	side        jsonvalue.Value
	enrichments jsonvalue.Value // only where an expression sees the token
	ownMask     bool
	// rests are the decisions that let the caller see this.
	rests []access.Shown
}

// show is a token as far as a sight of it goes. Short-lived fields are included
// when they are revealed; null when there are none or they are gone. The error
// is that the budget is used up.
func (s *Service) show(b *expression.Budget, tenant string, row store.Token, c contents, shortLived jsonvalue.Value, by sight) (out Token, err error) {
	out = Token{
		ID: row.ID, TenantID: tenant, Type: row.Type, Containers: row.Containers, Expiry: row.Expiry,
		CreatedBy: row.CreatedBy, CreatedAt: row.CreatedAt, ModifiedBy: row.ModifiedBy, ModifiedAt: row.ModifiedAt,
		rests: by.rests,
	}
	if by.details {
		out.Mask, out.ownMask, out.FingerprintExpression = c.shownMask(), !c.mask.IsNull(), c.shownExpression()
		out.Metadata, out.SearchIndexes = c.metadata, c.shownIndexes()
	}
	if by.fingerprint {
		out.Fingerprint = c.fingerprint
	}
	switch by.data {
	case access.Reveal:
		out.Data = join(c.data, shortLived)
	case access.Mask:
		if out.Data, err = s.masked(b, c); err != nil {
			return Token{}, err
		}
	default:
		return out, nil
	}
	if c.kind.side != nil {
		out.sideName, out.side = c.kind.side(c.data)
	}
	return out, nil
}

// masked evaluates the mask of a token. A mask was evaluated before it was
// stored; one that fails all the same shows nothing, unless the request may not
// go on.
func (s *Service) masked(b *expression.Budget, c contents) (jsonvalue.Value, error) {
	if c.masked != nil {
		return *c.masked, nil
	}
	if c.shownMask().IsNull() {
		return expression.DefaultMask(c.data), b.Err()
	}
	v, err := s.evaluateMask(b, c)
	if err != nil {
		return jsonvalue.Value{}, b.Err()
	}
	return v, nil
}

// Object is the token as the JSON object of an answer. Members without a value
// are left out.
func (t Token) Object() jsonvalue.Value {
	var b jsonvalue.Builder
	value := func(name string, v jsonvalue.Value) {
		if !v.IsNull() {
			b.Add(name, v)
		}
	}
	text := func(name, s string) {
		if s != "" {
			b.Add(name, jsonvalue.NewString(s))
		}
	}
	text("id", t.ID)
	text("tenant_id", t.TenantID)
	text("type", t.Type)
	value("data", t.Data)
	value(t.sideName, t.side)
	value("mask", t.Mask)
	value("enrichments", t.enrichments)
	text("fingerprint", t.Fingerprint)
	text("fingerprint_expression", t.FingerprintExpression)
	containers := make([]jsonvalue.Value, len(t.Containers))
	for i, path := range t.Containers {
		containers[i] = jsonvalue.NewString(path)
	}
	b.Add("containers", jsonvalue.NewArray(containers))
	value("metadata", t.Metadata)
	if t.SearchIndexes.Len() > 0 {
		b.Add("search_indexes", t.SearchIndexes)
	}
	if !t.Expiry.At.IsZero() {
		text("expires_at", expiryText(t.Expiry))
	}
	text("created_by", t.CreatedBy)
	if !t.CreatedAt.IsZero() {
		text("created_at", timeText(t.CreatedAt))
	}
	text("modified_by", t.ModifiedBy)
	if !t.ModifiedAt.IsZero() {
		text("modified_at", timeText(t.ModifiedAt))
	}
	return b.Value()
}
