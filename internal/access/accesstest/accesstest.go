// Package accesstest makes callers for tests.
//
// It promises that a caller made here could exist: what an application of some
// type cannot hold fails the test. It never goes into the binary.
package accesstest

import (
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// Caller is an application that holds these permissions plainly: a management
// application when the first of them is not on tokens, a private one otherwise.
func Caller(t testing.TB, tenant, application string, permissions ...access.Permission) access.Caller {
	t.Helper()
	class := access.Private
	if len(permissions) > 0 && permissions[0].Entity() != "token" {
		class = access.Management
	}
	return Application(t, tenant, application, class, nil, permissions...)
}

// Application is an application of a type, with rules and plain permissions.
func Application(t testing.TB, tenant, application string, class access.ApplicationType, rules []access.Rule, permissions ...access.Permission) access.Caller {
	t.Helper()
	var faults fault.Fields
	held, rules := access.NormalizeApplication(&faults, class, names(permissions), rules)
	if len(permissions)+len(rules) == 0 {
		faults = fault.Fields{} // an application that may do nothing is what many tests need
	}
	return access.NewApplication(tenant, application, class, grant(t, &faults, held, rules))
}

// Session is an uncapped session with rules and plain permissions, made by a
// public application.
func Session(t testing.TB, tenant, application, session string, rules []access.Rule, permissions ...access.Permission) access.Caller {
	t.Helper()
	var faults fault.Fields
	held, rules := access.NormalizeSession(&faults, names(permissions), rules)
	return access.NewUncappedSession(tenant, application, session, grant(t, &faults, held, rules))
}

// Rule grants permissions on a container.
func Rule(container string, transform access.Transform, permissions ...access.Permission) access.Rule {
	return access.Rule{Container: container, Transform: transform.String(), Permissions: names(permissions)}
}

func names(permissions []access.Permission) []string {
	var names []string
	for _, p := range permissions {
		names = append(names, p.String())
	}
	return names
}

func grant(t testing.TB, faults *fault.Fields, permissions []string, rules []access.Rule) access.Grant {
	t.Helper()
	if err := faults.Err(); err != nil {
		t.Fatalf("this grant could not exist: %v", fault.Of(err).Fields())
	}
	g, err := access.NewGrant(permissions, rules)
	if err != nil {
		t.Fatalf("NewGrant: %v", err)
	}
	return g
}
