// Package fault says what a caller may be told when something goes wrong.
//
// It promises that the words of a fault are constants of the program, so an
// error that reaches a caller never repeats what the caller sent. It never
// carries data, ids or causes: those stay in wrapped errors inside.
package fault

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is the class of a fault; HTTP maps it to a status in one place. A Kind
// is itself an error, so that errors.Is(err, fault.NotFound) reads well. The
// zero Kind is our own failure: what nobody classified is never blamed on the
// caller, and none of its words are shown.
type Kind int

// The kinds, in the order of their HTTP status.
const (
	Internal         Kind = iota // our failure
	Invalid                      // malformed or not valid
	Unauthenticated              // no key, an unknown one or an expired one
	Forbidden                    // a known caller without the access
	NotFound                     // not there, or another tenant's
	MethodNotAllowed             // the resource does not know the method
	Timeout                      // a destination was too slow
	Conflict                     // a state that the request did not expect
	Gone                         // was there once
	TooLarge                     // larger than the bounds, as sent or expanded
	MediaType                    // a body of a kind that is not accepted here
	Unprocessable                // a tenant's code failed, or an idempotency key has another body
	TooMany                      // over a rate or a queue bound; see RetryAfter
	BadGateway                   // a destination could not be reached
	Unavailable                  // not ready or shedding load; see RetryAfter
)

var kindNames = [...]string{
	"internal", "invalid", "unauthenticated", "forbidden", "not found", "method not allowed", "timeout", "conflict",
	"gone", "too large", "media type", "unprocessable", "too many", "bad gateway", "unavailable",
}

// validationCode is the code of a fault with fields that has none of its own.
const validationCode = "validation_failed"

// kindCodes are the codes of faults without one of their own.
var kindCodes = [...]string{
	Internal: "internal_error", Invalid: "invalid_request", Unauthenticated: "unauthenticated", Forbidden: "forbidden", NotFound: "not_found",
	MethodNotAllowed: "method_not_allowed", Timeout: "timeout", Conflict: "conflict", Gone: "gone", TooLarge: "too_large", MediaType: "media_type",
	Unprocessable: "unprocessable", TooMany: "too_many_requests", BadGateway: "bad_gateway", Unavailable: "unavailable",
}

// Error names the kind.
func (k Kind) Error() string {
	if k < 0 || int(k) >= len(kindNames) {
		return "fault kind " + strconv.Itoa(int(k))
	}
	return kindNames[k]
}

// Fault is an error whose words may be shown to a caller.
type Fault struct {
	kind       Kind
	code       string
	detail     string
	fields     map[string][]string
	unnamed    map[string]string // by message: the same message without a name that a caller sent
	retryAfter time.Duration
}

// New makes a fault. The detail must be a constant of the program (a test
// reads the source for it): what a caller sent is never repeated.
func New(kind Kind, detail string) *Fault { return &Fault{kind: kind, detail: detail} }

// WithCode returns a copy that carries a machine-readable code. The code is a
// constant of the program and never changes its meaning.
func (f *Fault) WithCode(code string) *Fault {
	c := *f
	c.code = code
	return &c
}

// RetryAfter returns a copy that tells the caller when to try again.
func (f *Fault) RetryAfter(d time.Duration) *Fault {
	c := *f
	c.retryAfter = d
	return &c
}

// Naming returns a copy whose words end with ids. It is the one exception to
// constant words, for a caller that must learn which of many tokens are
// missing; a test lists who calls it, and they leave out what could be a value.
func (f *Fault) Naming(ids []string) *Fault {
	c := *f
	if len(ids) > 0 {
		c.detail += ": " + strings.Join(ids, ", ")
	}
	return &c
}

// Counting returns a copy whose words end with a number of ours.
func (f *Fault) Counting(n int64) *Fault {
	c := *f
	c.detail += ": " + strconv.FormatInt(n, 10)
	return &c
}

// WithFieldsOf returns a copy with the messages of another fault, each below a
// path. A message of no field is at the path itself. Names are left out of the
// messages: what the other fault is about did not come from the caller.
func (f *Fault) WithFieldsOf(other *Fault, path string) *Fault {
	c := *f
	c.fields = map[string][]string{}
	for name, messages := range other.fields {
		messages = slices.Clone(messages)
		for i, message := range messages {
			messages[i] = cmp.Or(other.unnamed[message], message)
		}
		c.fields[path+"."+name] = messages
	}
	if len(c.fields) == 0 {
		c.fields[path] = []string{other.detail}
	}
	return &c
}

func (f *Fault) Error() string { return f.detail }

// Unwrap gives the kind, so that errors.Is(err, fault.NotFound) holds.
func (f *Fault) Unwrap() error { return f.kind }

// Kind returns the class of the fault.
func (f *Fault) Kind() Kind { return f.kind }

// Detail returns the sentence for the caller.
func (f *Fault) Detail() string { return f.detail }

// Code returns the machine-readable code of the fault, or that of its kind.
func (f *Fault) Code() string {
	switch {
	case f.code != "":
		return f.code
	case f.kind == Invalid && len(f.fields) > 0:
		return validationCode
	case f.kind < 0 || int(f.kind) >= len(kindCodes):
		return kindCodes[Internal]
	}
	return kindCodes[f.kind]
}

// Fields returns the messages by the dotted path of the member at fault; nil
// unless the fault came from Fields.Err.
func (f *Fault) Fields() map[string][]string { return f.fields }

// Wait returns how long the caller is asked to wait; 0 when it is not.
func (f *Fault) Wait() time.Duration { return f.retryAfter }

// Bounds on a name that may be repeated.
const (
	maxNameLength = 40
	maxNameDigits = 3
	maxNameRun    = 19 // letters and digits without a break
)

// Repeatable reports whether a name that a caller sent (of a field, a
// parameter, a header) may be repeated to it. People put values where names go:
// what could be a number, a key or a random text is not repeated.
func Repeatable(name string) bool {
	if name == "" || len(name) > maxNameLength || strings.HasPrefix(name, "key_") {
		return false
	}
	digits, run := 0, 0
	for _, c := range []byte(name) {
		switch {
		case c >= '0' && c <= '9':
			digits++
			run++
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			run++
		case c == '_', c == '.', c == ':', c == '-':
			run = 0
		default:
			return false
		}
		if digits > maxNameDigits || run > maxNameRun {
			return false
		}
	}
	return true
}

// Of finds the fault in an error's chain. An error without one is Internal
// with no words.
func Of(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	var k Kind
	if errors.As(err, &k) {
		return &Fault{kind: k}
	}
	return &Fault{}
}

// Fields gathers what is wrong with a request, member by member. Paths are
// dotted and made of names that we know ("data.number", "rules.0.container");
// they stop at the last such name, because a caller's own names may be data.
type Fields struct {
	messages map[string][]string
	unnamed  map[string]string // by message: the same message without a name that a caller sent
	code     string
}

// Add notes a message, a constant of the program, under a path.
func (f *Fields) Add(path, message string) {
	if f.messages == nil {
		f.messages = make(map[string][]string)
	}
	if !slices.Contains(f.messages[path], message) {
		f.messages[path] = append(f.messages[path], message)
	}
}

// AddCode is Add for a message that has a machine-readable code. The fault
// carries the first code that was added.
func (f *Fields) AddCode(path, code, message string) {
	f.Add(path, message)
	if f.code == "" {
		f.code = code
	}
}

// Under notes what was noted about a member, under the path of that member.
func (f *Fields) Under(path string, member Fields) {
	if f.code == "" {
		f.code = member.code
	}
	for name, messages := range member.messages {
		for _, message := range messages {
			f.Add(path+"."+name, message)
		}
	}
	if f.unnamed == nil {
		f.unnamed = member.unnamed
	} else {
		maps.Copy(f.unnamed, member.unnamed)
	}
}

// Has reports whether something was noted under path.
func (f *Fields) Has(path string) bool { return len(f.messages[path]) > 0 }

// Err returns nil when nothing was noted, and one fault with all of it otherwise.
func (f *Fields) Err() error {
	if len(f.messages) == 0 {
		return nil
	}
	return &Fault{kind: Invalid, detail: "the request is not valid; see errors", fields: f.messages, unnamed: f.unnamed, code: f.code}
}

// Field is the fault of a single member.
func Field(path, message string) error {
	var f Fields
	f.Add(path, message)
	return f.Err()
}

// FieldCode is Field with a machine-readable code.
func FieldCode(path, code, message string) error {
	var f Fields
	f.AddCode(path, code, message)
	return f.Err()
}
