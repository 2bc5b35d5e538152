package access_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// entitiesOf returns what a refusal was about.
func entitiesOf(t *testing.T, err error) []access.Entity {
	t.Helper()
	var denial *access.Denial
	if !errors.As(err, &denial) {
		t.Fatalf("%v is no denial", err)
	}
	return denial.Entities()
}

func TestARefusalIsAboutATokenThatExists(t *testing.T) {
	c := access.NewApplication("t", "a", access.Private, grant(t, list(rule("/a/", "mask", "token:read")), "token:update"))
	card := access.Entity{Type: "card", ID: "card-1"}
	tests := map[string]struct {
		permission access.Permission
		target     access.Target
		want       []access.Entity
	}{
		"a token that exists":                 {access.TokenRead, access.Target{ID: "card-1", Type: "card", Containers: []string{"/b/"}}, []access.Entity{card}},
		"a token in several containers":       {access.TokenRead, access.Target{ID: "card-1", Type: "card", Containers: []string{"/a/", "/b/"}}, []access.Entity{card}},
		"a permission of another kind":        {access.TokenDelete, access.Target{ID: "card-1", Type: "card", Containers: []string{"/a/"}}, []access.Entity{card}},
		"a token whose containers are broken": {access.TokenRead, access.Target{ID: "card-1", Type: "card"}, []access.Entity{card}},
		"an id that a caller has chosen":      {access.TokenCreate, access.Target{ID: "4242424242424242", Containers: []string{"/b/"}}, nil},
		"a container alone":                   {access.TokenRead, access.Target{Containers: []string{"/b/"}}, nil},
		"a type without an id":                {access.TokenRead, access.Target{Type: "card", Containers: []string{"/b/"}}, nil},
		"a permission that is not on tokens":  {access.LogRead, access.Target{}, nil},
	}
	for name, test := range tests {
		err := c.Decide(test.permission, test.target).Err()
		if got := entitiesOf(t, err); !slices.Equal(got, test.want) {
			t.Errorf("%s: the refusal is about %v, want %v", name, got, test.want)
		}
		plain := c.Decide(test.permission, access.Target{Containers: test.target.Containers}).Err()
		if err.Error() != plain.Error() || strings.Contains(err.Error(), "card-1") || !errors.Is(err, fault.Forbidden) {
			t.Errorf("%s: the words are %q, want %q", name, err, plain)
		}
	}
	if err := c.Decide(access.TokenRead, access.Target{ID: "card-1", Type: "card", Containers: []string{"/a/"}}).Err(); err != nil {
		t.Errorf("a token that may be read: %v", err)
	}
}

func TestAboutNamesWhatARefusalWasAbout(t *testing.T) {
	proxy, card := access.Entity{Type: "proxy", ID: "p"}, access.Entity{Type: "card", ID: "c"}
	refusal := access.Caller{}.RequireSomewhere(access.TokenUse)
	for range 2 { // the refusals of a permission are shared: naming an entity changes none of them
		err := access.About(fmt.Errorf("wrapped: %w", refusal), proxy)
		if got := entitiesOf(t, err); !slices.Equal(got, []access.Entity{proxy}) || err.Error() != refusal.Error() {
			t.Errorf("the refusal %q is about %v, want %v", err, got, proxy)
		}
		if got := entitiesOf(t, access.About(err, card)); !slices.Equal(got, []access.Entity{proxy}) {
			t.Errorf("a refusal about one entity is now about %v", got)
		}
		if got := entitiesOf(t, refusal); got != nil {
			t.Fatalf("the refusal of the permission itself is about %v", got)
		}
	}
	other := errors.New("other")
	for _, err := range []error{nil, other, fault.New(fault.Forbidden, "no")} {
		if got := access.About(err, proxy); !errors.Is(got, err) || errors.As(got, new(*access.Denial)) {
			t.Errorf("About(%v) = %v", err, got)
		}
	}
}

func TestARefusalMayHaveOtherWords(t *testing.T) {
	words := fault.New(fault.Forbidden, "not in this tenant")
	var denial *access.Denial
	if err := error(access.Refuse(access.TokenUse, words)); !errors.As(err, &denial) || denial.Permission() != access.TokenUse || fault.Of(err) != words {
		t.Errorf("the refusal is %#v", err)
	}
}

func TestSeveralRefusalsAreOneAboutAll(t *testing.T) {
	var all *access.Denial
	var want []access.Entity
	for i := range 4 {
		e := access.Entity{Type: "card", ID: fmt.Sprint(i)}
		var next *access.Denial
		if !errors.As(access.About(access.Caller{}.Require(access.TokenUse), e), &next) {
			t.Fatal("no denial")
		}
		before := all
		all, want = all.And(next), append(want, e)
		if before != nil && len(before.Entities()) != i {
			t.Errorf("the refusals before are about %v", before.Entities())
		}
	}
	if !slices.Equal(all.Entities(), want) || all.Permission() != access.TokenUse {
		t.Errorf("the refusals are of %s, about %v, want %v", all.Permission(), all.Entities(), want)
	}
}

// Anybody may be refused any number of times.
func TestARefusalWithoutAnEntityAllocatesNothing(t *testing.T) {
	c := access.NewApplication("t", "a", access.Private, grant(t, list(rule("/a/", "mask", "token:read"))))
	containers := []string{"/pci/high/"}
	if n := testing.AllocsPerRun(100, func() {
		if c.DecideContainers(access.TokenRead, containers).Err() == nil {
			t.Fatal("allowed")
		}
	}); n != 0 {
		t.Errorf("a refusal allocates %v times, want 0", n)
	}
}
