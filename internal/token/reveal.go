package token

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/luhn"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// maxReason bounds a reason, in characters.
const maxReason = 500

var errNoReveal = fault.New(fault.Forbidden, "the caller may not reveal this token").WithCode("reveal_denied")

// CheckReason returns a reason as it is logged. It is a fault when the reason is
// blank, too long, or holds a card number: reasons stand in the log in clear.
func CheckReason(reason string) (string, error) {
	reason = strings.TrimSpace(reason)
	switch {
	case reason == "":
		return "", fault.Field("reason", "is required, and must not be blank")
	case utf8.RuneCountInString(reason) > maxReason:
		return "", fault.Field("reason", "must have at most 500 characters")
	case strings.ContainsFunc(reason, unicode.IsControl):
		return "", fault.Field("reason", "must not hold control characters")
	case luhn.WrittenCard(reason):
		return "", fault.Field("reason", "must not hold a card number")
	}
	return reason, nil
}

// Reveal returns a token with its plaintext, for a reason that the log keeps.
// The caller needs token:read with reveal on each of its containers; rules that
// require a reason count in full here. Anything less is refused: a mask is what
// Get is for.
func (s *Service) Reveal(ctx context.Context, c access.Caller, id, reason string) (Token, error) {
	if err := c.RequireSomewhere(access.TokenRead); err != nil {
		return Token{}, err
	}
	reason, err := CheckReason(reason)
	if err != nil {
		return Token{}, err
	}
	return s.get(ctx, c.WithReason(reason), id, access.Reveal, func(row store.Token, shown access.Transform) error {
		if shown == access.Reveal {
			return nil
		}
		return access.About(access.Refuse(access.TokenRead, errNoReveal), access.Entity{Type: row.Type, ID: row.ID})
	})
}
