package reactor

import (
	"strconv"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/definition"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// Bounds on how long code may take while nobody waits, in milliseconds.
const (
	minTimeout = 10_000
	maxTimeout = 210_000
)

// Invocation is a request to run a reactor.
type Invocation struct {
	Args jsonvalue.Value
	// Callback is where the result goes; "" when the caller waits for it.
	Callback string
	// Timeout is for runs that nobody waits for; 0 when none was given.
	Timeout time.Duration
}

// ParseInvocation reads an invocation from its wire form.
func ParseInvocation(body jsonvalue.Value) (in Invocation, err error) {
	if body.Kind() != jsonvalue.Object {
		return in, definition.ErrNotObject
	}
	var f fault.Fields
	in.Args, _ = body.Get("args")
	callback := either(body, "callback_url", "callbackUrl")
	if !callback.IsNull() && (callback.Kind() != jsonvalue.String || callback.PublicText() == "") {
		f.Add("callback_url", "must be a URL")
	}
	in.Callback = callback.PublicText()
	if timeout := either(body, "timeout_ms", "timeoutMs"); !timeout.IsNull() {
		ms, err := strconv.Atoi(timeout.PublicText())
		if err != nil || timeout.Kind() != jsonvalue.Number || ms < minTimeout || ms > maxTimeout {
			f.Add("timeout_ms", "must be a whole number from 10000 to 210000")
		}
		in.Timeout = time.Duration(ms) * time.Millisecond
	}
	return in, f.Err()
}

var errSyncTimeout = fault.Field("timeout_ms", "is for asynchronous requests: give a callback_url too")

// either returns a member under its name or, for older clients, another one.
func either(v jsonvalue.Value, name, other string) jsonvalue.Value {
	if member, ok := v.Get(name); ok {
		return member
	}
	member, _ := v.Get(other)
	return member
}
