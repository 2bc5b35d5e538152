// Package access says who is calling.
//
// It promises that a Caller made anywhere but here may do nothing. It never
// holds a key or anything else that could be used to call again.
package access

// Caller is an authenticated application or session of one tenant. The zero
// value belongs to no tenant and is denied everything.
type Caller struct {
	tenant      string
	application string
}

// Tenant returns the id of the caller's tenant, "" for nobody.
func (c Caller) Tenant() string { return c.tenant }

// Application returns the id of the application that acts.
func (c Caller) Application() string { return c.application }

// TestCaller makes a caller for a test, without a key.
func TestCaller(t interface{ Helper() }, tenant, application string) Caller {
	t.Helper()
	return Caller{tenant: tenant, application: application}
}
