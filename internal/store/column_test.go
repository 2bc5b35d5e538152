package store_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

func TestListsComeBack(t *testing.T) {
	for _, list := range [][]string{
		nil, {""}, {"/"}, {"/a/", "/b/"}, {`,`, `"`, `","`, `\`, `["`, `"]`}, {"é", "\n", "\x00", "<&>"}, {"a", ""}, {"", "", ""},
	} {
		if got, err := store.DecodeStrings(store.EncodeStrings(list)); err != nil || !slices.Equal(got, list) {
			t.Errorf("DecodeStrings(EncodeStrings(%q)) = %q, %v", list, got, err)
		}
	}
	for _, damaged := range []string{``, `[`, `["`, `["]`, `["a"`, `"a"]`, `["a"b"]`, `["a",b"]`, `["a" "b"]`, "[\"a\nb\"]", `[1]`, `{}`} {
		if got, err := store.DecodeStrings(damaged); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("DecodeStrings(%q) = %q, %v; want %v", damaged, got, err, store.ErrDamaged)
		}
	}
	if got, err := store.DecodeStrings(` [ "a" , "b" ] `); err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("with spaces: %q, %v", got, err)
	}
}
