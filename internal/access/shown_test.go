package access_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

func TestAReplayTakesTheAccessOfThen(t *testing.T) {
	const lost, less = "missing permission token:create", "the caller may now see less of a token than the stored result shows"
	shown := func(p access.Permission, tr access.Transform) access.Shown {
		return access.Shown{ID: "x", Permission: p, Transform: tr}
	}
	created := shown(access.TokenCreate, access.Mask)
	for name, test := range map[string]struct {
		rules       string
		permissions string
		shown       access.Shown
		containers  []string
		want        string // the words of the denial; "" for none
	}{
		"nothing changed":                       {`[]`, "token:create", created, []string{"/a/"}, ""},
		"the permission is gone":                {`[]`, "token:read", created, []string{"/a/"}, lost},
		"a rule shows less now":                 {list(rule("/", "redact", "token:create")), "", created, []string{"/a/"}, less},
		"a rule shows as much":                  {list(rule("/", "mask", "token:create")), "", created, []string{"/a/"}, ""},
		"it shows more now":                     {`[]`, "token:create", shown(access.TokenCreate, access.Redact), []string{"/a/"}, ""},
		"a redacted result needs it still":      {`[]`, "token:read", shown(access.TokenCreate, access.Redact), []string{"/a/"}, lost},
		"a result that showed nothing":          {`[]`, "token:read", shown(access.TokenCreate, access.Nothing), []string{"/a/"}, ""},
		"another permission is no substitute":   {list(rule("/", "reveal", "token:read token:use")), "", created, []string{"/a/"}, lost},
		"the token moved out of reach":          {list(rule("/a/", "mask", "token:create")), "", created, []string{"/b/"}, lost},
		"one of its containers is out of reach": {list(rule("/a/", "mask", "token:create")), "", created, []string{"/a/", "/b/"}, lost},
		"use went from reveal to mask":          {list(rule("/", "mask", "token:use")), "", shown(access.TokenUse, access.Reveal), []string{"/a/"}, less},
		"a token without containers":            {`[]`, "token:create", created, nil, lost},
	} {
		var permissions []string
		if test.permissions != "" {
			permissions = strings.Fields(test.permissions)
		}
		c := access.NewApplication("t", "a", access.Private, grant(t, test.rules, permissions...))
		target := access.Target{ID: "x", Type: "card", Containers: test.containers}
		err := c.RequireAgain(test.shown, target)
		if test.want == "" && err != nil || test.want != "" && (err == nil || err.Error() != test.want) {
			t.Errorf("%s: RequireAgain(%v, %v) = %v, want %q", name, test.shown, target, err, test.want)
			continue
		}
		var denial *access.Denial
		if test.want != "" && (!errors.Is(err, fault.Forbidden) || !errors.As(err, &denial) || denial.Permission() != test.shown.Permission) {
			t.Errorf("%s: RequireAgain = %#v, want a denial of %s", name, err, test.shown.Permission)
		}
		if test.want != "" && !slices.Equal(entitiesOf(t, err), []access.Entity{{Type: "card", ID: "x"}}) {
			t.Errorf("%s: the denial is about %v, want the card", name, entitiesOf(t, err))
		}
		if code := fault.Of(err).Code(); test.want == less && code != "access_reduced" {
			t.Errorf("%s: the code is %q, want access_reduced", name, code)
		}
	}
	poor := access.NewApplication("t", "a", access.Private, grant(t, list(rule("/", "redact", "token:create"))))
	if err := poor.RequireAgain(created, access.Target{ID: "x", Containers: []string{"/a/"}}); !errors.Is(err, fault.Forbidden) || entitiesOf(t, err) != nil {
		t.Errorf("a token of which no type is known: RequireAgain = %v, about %v; want a denial about nothing", err, entitiesOf(t, err))
	}
	if err := (access.Caller{}).RequireAgain(created, access.Target{ID: "x", Containers: []string{"/a/"}}); !errors.Is(err, fault.Forbidden) {
		t.Errorf("the zero caller: RequireAgain = %v, want a denial", err)
	}
}

func TestWhatWasShownIsStoredByName(t *testing.T) {
	for want, shown := range map[string]access.Shown{
		`{"id":"a b","permission":"token:create","transform":"mask"}`: {ID: "a b", Permission: access.TokenCreate, Transform: access.Mask},
		`{"id":"x","permission":"token:use","transform":"reveal"}`:    {ID: "x", Permission: access.TokenUse, Transform: access.Reveal},
		`{"id":"x","permission":"token:read"}`:                        {ID: "x", Permission: access.TokenRead},
	} {
		b, err := json.Marshal(shown)
		if err != nil || string(b) != want {
			t.Errorf("%v is stored as %s, %v; want %s", shown, b, err, want)
		}
		var back access.Shown
		if err := json.Unmarshal(b, &back); err != nil || back != shown {
			t.Errorf("%s is read as %v, %v; want %v", b, back, err, shown)
		}
	}
	if b, err := json.Marshal(access.Shown{ID: "x", Transform: access.Mask}); err == nil {
		t.Errorf("without a permission it is stored as %s, want an error", b)
	}
	for name, text := range map[string]string{
		"a permission of tomorrow": `{"id":"Planted-1","permission":"token:paint","transform":"mask"}`,
		"a transform of tomorrow":  `{"id":"Planted-1","permission":"token:read","transform":"paint"}`,
		"no permission":            `{"id":"Planted-1","transform":"mask"}`,
		"an empty object":          `{}`,
		"another type":             `{"id":["Planted-1"]}`,
	} {
		var s access.Shown
		if err := json.Unmarshal([]byte(text), &s); err == nil || strings.Contains(err.Error(), "Planted") || s != (access.Shown{}) {
			t.Errorf("%s is read as %v, %v; want an error that does not repeat it", name, s, err)
		}
	}
}
