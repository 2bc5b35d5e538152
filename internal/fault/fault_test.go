package fault_test

import (
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

func TestNamesAreRepeatedWhenTheyCannotBeValues(t *testing.T) {
	for name, want := range map[string]bool{
		"items": true, "data.number": true, "X-Request-Id": true, "token:read": true, "snake_case": true, "line123": true, "a": true,
		strings.Repeat("abcdefghi-", 4):       true,
		"a234567890123456789":                 false, // a value of 19 characters, mostly digits
		"abcdefghijklmnopqrs":                 true,  // 19 letters
		"":                                    false,
		"with space":                          false,
		"Zoë":                                 false,
		"a\"b":                                false,
		"line1234":                            false,
		"1-2-3-4":                             false,
		"4242424242424242":                    false,
		"key_test_pub":                        false,
		"abcdefghijklmnopqrst":                false, // 20 letters without a break
		strings.Repeat("abcdefghi-", 4) + "x": false,
	} {
		if got := fault.Repeatable(name); got != want {
			t.Errorf("Repeatable(%q) = %t, want %t", name, got, want)
		}
	}
}
