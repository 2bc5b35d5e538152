package access

import (
	"encoding/json"
	"errors"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// Shown says how much of one token a response showed, and by which permission.
// It is stored with the response: a replay needs as much access again.
type Shown struct {
	ID         string // of the token
	Permission Permission
	Transform  Transform
}

var errShowsLess = fault.New(fault.Forbidden, "the caller may now see less of a token than the stored result shows").WithCode("access_reduced")

// RequireAgain returns nil when the caller may now be shown at least as much of
// a token, by the same permission, and a *Denial about the token otherwise. The
// target is the token as it is now.
func (c Caller) RequireAgain(s Shown, target Target) error {
	d := c.Decide(s.Permission, target)
	switch {
	case d.Transform >= s.Transform:
		return nil
	case !d.Allowed():
		return d.Err()
	}
	less := &Denial{permission: s.Permission, fault: errShowsLess}
	if d.entity.ID == "" {
		return less
	}
	return About(less, d.entity)
}

// storedShown is a Shown at rest. Names do not change between releases, the
// numbers that they stand for may.
type storedShown struct {
	ID         string `json:"id"`
	Permission string `json:"permission"`
	Transform  string `json:"transform,omitempty"` // absent for Nothing
}

// MarshalJSON writes permission and transform by their names. Without a
// permission it is an error, because nobody could ever pass RequireAgain.
func (s Shown) MarshalJSON() ([]byte, error) {
	if s.Permission.String() == "" {
		return nil, errShown
	}
	return json.Marshal(storedShown{s.ID, s.Permission.String(), s.Transform.String()})
}

var errShown = errors.New("access: unknown permission or transform")

// UnmarshalJSON reads what MarshalJSON wrote. A name that this release does not
// know is an error: what it stood for cannot be checked.
func (s *Shown) UnmarshalJSON(b []byte) error {
	var in storedShown
	if err := json.Unmarshal(b, &in); err != nil {
		return errors.New("access: decode what was shown") // the decoder's words may repeat it
	}
	permission, known := ParsePermission(in.Permission)
	transform, allowed := ParseTransform(in.Transform)
	if !known || !allowed && in.Transform != "" {
		return errShown
	}
	*s = Shown{in.ID, permission, transform}
	return nil
}
