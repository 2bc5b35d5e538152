// Package response has the one form in which a request is answered: handlers
// return it, idempotency stores it for requests that are sent again, and httpapi
// writes it.
//
// It promises that what is stored and what is sent are the same. It has no
// logic, and never holds anything but what the caller is to receive and what
// the log says about that.
package response

import (
	"net/http"

	"github.com/tokenkeep/tokenkeep/internal/access"
)

// Response is what a request is answered with. Its JSON is what is stored.
type Response struct {
	Status   int    `json:"status"`
	Location string `json:"location,omitempty"`
	// Headers are those of a response that is not the service's own JSON. A
	// tenant's code or a destination has chosen them.
	Headers map[string]string `json:"headers,omitempty"`
	Body    []byte            `json:"body,omitempty"`

	// Tokens are those that the response is about, with how much it shows of each.
	Tokens []access.Shown `json:"tokens,omitempty"`
	// Entity is what the response is about when that is not a token.
	Entity access.Entity `json:"-"`

	// Replayed says that this is the response to an earlier request.
	Replayed bool `json:"-"`
	// Stream, when it is set, writes the response in place of all fields above,
	// as it comes. It cannot be stored. An error before it has written anything
	// is answered as an error of the handler.
	Stream func(w http.ResponseWriter) error `json:"-"`
}
