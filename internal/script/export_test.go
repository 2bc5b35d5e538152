package script

import (
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/sandbox"
)

// Hide is hide with these values protected.
func Hide(values []jsonvalue.Value, texts ...string) []string {
	return hidden{values: slices.Values(values)}.hide(texts...)
}

// ErrorOf is what becomes of something thrown, with these values protected.
func ErrorOf(t sandbox.Thrown, values ...jsonvalue.Value) error {
	return thrown(t, hidden{values: slices.Values(values)})
}
