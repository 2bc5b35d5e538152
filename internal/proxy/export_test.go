package proxy

import (
	"context"

	"github.com/tokenkeep/tokenkeep/internal/expression"
)

// Finds tells whether a body of a type that comes in pieces holds an
// expression, for tests.
func Finds(contentType string, pieces ...[]byte) bool {
	kind, params := mediaOf(contentType)
	if kind == binaryMedia {
		return false
	}
	s := newScanner(kind, params)
	for _, p := range pieces {
		if s.found(p) {
			return true
		}
	}
	return false
}

// Fills tells whether a body of a type holds an expression that is evaluated,
// for tests.
func Fills(contentType string, body []byte) (bool, error) {
	kind, params := mediaOf(contentType)
	if kind == binaryMedia {
		return false, nil
	}
	t, err := parse(expression.Limits{}.BodyBudget(context.Background(), 5<<20), kind, params, body)
	return t != nil, err
}

// Texts tells whether a body that comes in pieces is text, for tests.
func Texts(pieces ...[]byte) bool {
	var c textCheck
	for _, p := range pieces {
		c.take(p)
	}
	return c.whole()
}
