package httpapi

import (
	"net/http"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// Auth says how callers of a row are known. The zero value refuses: New panics
// on a row that has it.
type Auth int

// How callers of rows are known.
const (
	_           Auth = iota
	APIKey           // by any valid key, of an application or of a session
	PublicKey        // by the own key of a public application
	PrivateKey       // by the own key of a private application
	AdminSocket      // by the socket: whoever reaches it is the operator; the handler gets the zero Caller
	Anonymous        // not at all; the handler gets the zero Caller
)

// Body says what a row reads. The zero value reads nothing.
type Body int

// The bodies of rows.
const (
	NoBody     Body = iota // whatever is sent is not read
	JSON                   // application/json, bounded, read by Decode
	MergePatch             // application/merge-patch+json, bounded, read by Decode
	Raw                    // the handler reads r.Body itself, under its own bounds
	Lines                  // application/x-ndjson of any length; likewise
)

// Readers says which web pages may read the responses of a row. The zero value
// lets those of the setting cors_origins.
type Readers int

// The readers of rows.
const (
	ConfiguredPages Readers = iota
	EveryPage               // public files that pages load with an integrity hash
	NoPage                  // documents that browsers show
)

// Route is one row of the API.
type Route struct {
	// Pattern is a method and a path: "DELETE /tokens/{id}". The method "*" is
	// any method. {name} is one segment, not empty, and is decoded once for
	// r.PathValue. {name...} comes last and is everything that follows, as it
	// was sent: "/proxy/{rest...}" has the rest "" for /proxy, "/a%2Fb/" for
	// /proxy/a%2Fb/.
	Pattern string
	Auth    Auth
	// Permission is what a caller with an API key needs, on some token where it
	// is a permission on tokens; see Require. The zero Permission is for rows
	// that any key may call. An Anonymous row has one when its handler finds
	// the caller itself, with Authenticate.
	Permission access.Permission
	// FromCode rows may be called by code of tenants, in the name of the
	// application that it acts for; see As. For such code the others do not exist.
	FromCode bool
	Body     Body
	// Idempotent rows take the idempotency header; see IdempotencyKey.
	Idempotent bool
	Handle     func(w http.ResponseWriter, r *http.Request, c access.Caller) error

	// Unlimited rows are exempt from rate limits and from the limit on memory:
	// health checks and metrics must work when nothing else does. Rows of the
	// admin socket always are.
	Unlimited bool
	// NoCORS rows have no CORS headers, so that no web page reads them. Rows of
	// the admin socket never have any.
	NoCORS  bool
	Readers Readers
	// Refused, when not nil, is told of a caller that is known and was refused
	// before Handle ran.
	Refused func(r *http.Request, c access.Caller, err error)
	// Problem gives the errors of this row another shape. Nil leaves it.
	Problem func(api.Problem) any
}

var errRefused = fault.New(fault.Forbidden, "the caller may not do this")

// Require returns nil when a caller meets what the row says of its callers, and
// a *access.Denial or another fault otherwise. Services decide more exactly,
// token by token, in their transactions.
func (r *Route) Require(c access.Caller) error {
	switch r.Auth {
	case APIKey:
		return r.requirePermission(c)
	case PublicKey:
		return c.RequireType(access.Public)
	case PrivateKey:
		return c.RequireType(access.Private)
	case AdminSocket, Anonymous:
		return nil
	}
	return errRefused
}

func (r *Route) requirePermission(c access.Caller) error {
	switch {
	case c.Tenant() == "":
		return errRefused
	case r.Permission == 0:
		return nil
	case r.Permission.OnTokens():
		return c.RequireSomewhere(r.Permission)
	}
	return c.Require(r.Permission)
}

// check panics when a row says what cannot be meant. onSocket reports whether
// it is to be served on the admin socket.
func (r *Route) check(onSocket bool) {
	keyed := r.Auth == APIKey || r.Auth == PublicKey || r.Auth == PrivateKey
	switch {
	case !keyed && r.Auth != AdminSocket && r.Auth != Anonymous:
		panic("httpapi: a row does not say how its callers are known: " + r.Pattern)
	case r.Auth == AdminSocket && !onSocket:
		panic("httpapi: a row of the admin socket is served elsewhere: " + r.Pattern)
	case keyed && onSocket:
		panic("httpapi: a row for keys is served on the admin socket: " + r.Pattern)
	case r.Permission != 0 && r.Permission.String() == "":
		panic("httpapi: a row takes an unknown permission: " + r.Pattern)
	case r.Permission != 0 && r.Auth != APIKey && r.Auth != Anonymous:
		panic("httpapi: a row takes a permission of callers that have none: " + r.Pattern)
	case r.FromCode && r.Auth != APIKey && r.Auth != Anonymous:
		panic("httpapi: a row is for code, which has no key: " + r.Pattern)
	}
}

// unlimited reports whether the row is exempt from limits.
func (r *Route) unlimited() bool { return r.Unlimited || r.Auth == AdminSocket }

// noCORS reports whether the row has no CORS headers.
func (r *Route) noCORS() bool { return r.NoCORS || r.Auth == AdminSocket }
