package access

import (
	"errors"
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// Denial is the error for something that a known caller may not do. It is a
// fault of kind Forbidden with constant words, and it names the permission and
// the entities, so that one place can log refused attempts.
type Denial struct {
	permission Permission
	fault      *fault.Fault
	entities   []Entity
}

// Entity is something that exists in the tenant, as the log names it: its
// entity type, which for a token is the token's type, and its id. An id that
// only the caller has named is never one: it may be a card number.
type Entity struct{ Type, ID string }

func (d *Denial) Error() string { return d.fault.Error() }

// Unwrap gives the fault, so that errors.Is(err, fault.Forbidden) holds.
func (d *Denial) Unwrap() error { return d.fault }

// Permission returns what was missing; 0 where no permission would have helped.
func (d *Denial) Permission() Permission { return d.permission }

// Entities returns what the caller was refused; none where that is not known.
// They are for the log: the words of the denial never name them.
func (d *Denial) Entities() []Entity { return d.entities }

// And returns the refusals of one call as one: d, about the entities of both.
// A nil d is no refusal.
func (d *Denial) And(other *Denial) *Denial {
	if d == nil {
		return other
	}
	both := *d
	both.entities = slices.Concat(d.entities, other.entities)
	return &both
}

// About returns the denial in err with the entity that it was about. A denial
// that names one already, and any other error, is returned as it is.
func About(err error, e Entity) error {
	var d *Denial
	if !errors.As(err, &d) || len(d.entities) > 0 {
		return err
	}
	about := *d
	about.entities = []Entity{e}
	return &about
}

// Refuse returns a denial with words of the service's own, where it refuses
// what the permission alone would allow. The fault is of kind Forbidden.
func Refuse(p Permission, f *fault.Fault) *Denial { return &Denial{permission: p, fault: f} }

// wrongApplicationType is the code of a refusal that no permission of the caller would change.
const wrongApplicationType = "wrong_application_type"

var (
	denyUnknown    = &Denial{fault: fault.New(fault.Forbidden, "the caller may not do this")}
	denyPublic     = &Denial{fault: fault.New(fault.Forbidden, "the key must be of a public application").WithCode(wrongApplicationType)}
	denyPrivate    = &Denial{fault: fault.New(fault.Forbidden, "the key must be of a private application").WithCode(wrongApplicationType)}
	denyManagement = &Denial{fault: fault.New(fault.Forbidden, "the key must be of a management application").WithCode(wrongApplicationType)}
)

// denials has one for each permission, made once: a refusal that is about no
// one entity costs nothing.
var denials = func() map[Permission]*Denial {
	m := make(map[Permission]*Denial, len(permissionRows))
	for _, p := range Permissions() {
		m[p] = &Denial{permission: p, fault: p.row().refusal}
	}
	return m
}()

func denial(p Permission) *Denial {
	if d := denials[p]; d != nil {
		return d
	}
	return denyUnknown
}

func wrongType(t ApplicationType) *Denial {
	switch t {
	case Public:
		return denyPublic
	case Private:
		return denyPrivate
	case Management:
		return denyManagement
	}
	return denyUnknown
}
