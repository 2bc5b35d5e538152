package access_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
)

// The rule that decides is the last one, so every rule is looked at.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		var rules []string
		for i := range n - 1 {
			rules = append(rules, rule("/other/"+strconv.Itoa(i)+"/", "mask", "token:read"))
		}
		rules = append(rules, rule("/pci/", "reveal", "token:read"))
		g := grant(b, list(rules...))
		token := target("5f2b1c0e-1d0a-4d0e-9d7f-0b6d0c1b2a3c", "/pci/high/")
		for name, c := range map[string]access.Caller{
			"application": access.NewApplication("t", "a", access.Private, g),
			"session":     access.NewSession("t", "a", "s", g, g),
		} {
			b.Run(fmt.Sprintf("%s/rules=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if !c.Decide(access.TokenRead, token).Allowed() {
						b.Fatal("refused")
					}
				}
			})
		}
	}
}

func BenchmarkRequireRefused(b *testing.B) {
	c := access.NewApplication("t", "a", access.Private, grant(b, list(rule("/a/", "mask", "token:read"))))
	b.ReportAllocs()
	for b.Loop() {
		if c.Require(access.TokenRead, "/pci/high/") == nil {
			b.Fatal("allowed")
		}
	}
}

func BenchmarkNewGrant(b *testing.B) {
	rules := decodeRules(b, many(10, goodRule))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := access.NewGrant(nil, rules); err != nil {
			b.Fatal(err)
		}
	}
}
