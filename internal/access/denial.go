package access

import "github.com/tokenkeep/tokenkeep/internal/fault"

// Denial is the error for something that a known caller may not do. It is a
// fault of kind Forbidden with constant words, and it names the permission, so
// that one place can log refused attempts.
type Denial struct {
	permission Permission
	fault      *fault.Fault
}

func (d *Denial) Error() string { return d.fault.Error() }

// Unwrap gives the fault, so that errors.Is(err, fault.Forbidden) holds.
func (d *Denial) Unwrap() error { return d.fault }

// Permission returns what was missing; 0 where no permission would have helped.
func (d *Denial) Permission() Permission { return d.permission }

var (
	denyUnknown    = &Denial{fault: fault.New(fault.Forbidden, "the caller may not do this")}
	denyPublic     = &Denial{fault: fault.New(fault.Forbidden, "this takes the key of a public application")}
	denyPrivate    = &Denial{fault: fault.New(fault.Forbidden, "this takes the key of a private application")}
	denyManagement = &Denial{fault: fault.New(fault.Forbidden, "this takes the key of a management application")}
)

// denials has one for each permission, made once: refusing costs nothing.
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
