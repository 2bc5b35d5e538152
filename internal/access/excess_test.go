package access_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

func TestPlainExcess(t *testing.T) {
	none := func() (access.Excess, bool) { return access.Excess{}, false }
	lacks := func(p access.Permission, rule int, lack access.Lack) func() (access.Excess, bool) {
		return func() (access.Excess, bool) {
			return access.Excess{Permission: p, Rule: rule, Lack: lack}, true
		}
	}
	read := func(container, transform string) string { return rule(container, transform, "token:read") }
	onID := func(conditions string) access.Grant {
		return grant(t, list(ruleWith(conditions, "reveal", "token:read")))
	}
	x := when("id", "equals", "x")
	tests := map[string]struct {
		proposed, maker access.Grant
		want            func() (access.Excess, bool)
	}{
		"the same rule":                                  {grant(t, list(read("/a/", "reveal"))), grant(t, list(read("/a/", "reveal"))), none},
		"a container below":                              {grant(t, list(read("/a/b/", "reveal"))), grant(t, list(read("/a/", "reveal"))), none},
		"a lesser transform":                             {grant(t, list(read("/a/", "mask"))), grant(t, list(read("/a/", "reveal"))), none},
		"a plain permission under a rule on /":           {grant(t, `[]`, "token:read"), grant(t, list(read("/", "reveal"))), none},
		"a masking rule under a plain permission":        {grant(t, list(read("/a/", "mask"))), grant(t, `[]`, "token:read"), none},
		"a missing permission":                           {grant(t, list(read("/a/", "reveal"))), grant(t, `[]`, "token:use"), lacks(access.TokenRead, 0, access.LacksPermission)},
		"a missing plain permission":                     {grant(t, `[]`, "token:use", "token:read"), grant(t, `[]`, "token:use"), lacks(access.TokenRead, access.NoRule, access.LacksPermission)},
		"a maker without anything":                       {grant(t, `[]`, "token:use"), access.Grant{}, lacks(access.TokenUse, access.NoRule, access.LacksPermission)},
		"another container":                              {grant(t, list(read("/b/", "reveal"))), grant(t, list(read("/a/", "reveal"))), lacks(access.TokenRead, 0, access.LacksContainer)},
		"the container above":                            {grant(t, list(read("/a/", "reveal"))), grant(t, list(read("/a/b/", "reveal"))), lacks(access.TokenRead, 0, access.LacksContainer)},
		"a plain permission reaches every container":     {grant(t, `[]`, "token:read"), grant(t, list(read("/a/", "reveal"))), lacks(access.TokenRead, access.NoRule, access.LacksContainer)},
		"a greater transform":                            {grant(t, list(read("/a/", "reveal"))), grant(t, list(read("/a/", "mask"))), lacks(access.TokenRead, 0, access.LacksTransform)},
		"reveal under a plain read":                      {grant(t, list(read("/a/", "reveal"))), grant(t, `[]`, "token:read"), lacks(access.TokenRead, 0, access.LacksTransform)},
		"the maker's first rule counts":                  {grant(t, list(read("/a/b/", "reveal"))), grant(t, list(read("/a/b/", "redact"), read("/a/", "reveal"))), lacks(access.TokenRead, 0, access.LacksTransform)},
		"the second rule exceeds":                        {grant(t, list(read("/a/", "mask"), read("/b/", "mask"))), grant(t, list(read("/a/", "mask"))), lacks(access.TokenRead, 1, access.LacksContainer)},
		"rules by their position, whatever the priority": {grant(t, `[{"priority":5,"container":"/b/","transform":"mask","permissions":["token:read"]},{"priority":1,"container":"/a/","transform":"mask","permissions":["token:read"]}]`), grant(t, list(read("/a/", "mask"))), lacks(access.TokenRead, 0, access.LacksContainer)},
		"a rule that an earlier one hides":               {grant(t, list(read("/", "mask"), read("/a/", "reveal"))), grant(t, list(read("/", "mask"))), none},
		"an exception further below is left to the cap":  {grant(t, list(read("/a/", "reveal"))), grant(t, list(read("/a/b/", "redact"), read("/a/", "reveal"))), none},
		"creating never reveals, so reveal is no more":   {grant(t, list(rule("/a/", "reveal", "token:create token:delete"))), grant(t, `[]`, "token:create", "token:delete"), none},
		"creating under redact shows less":               {grant(t, `[]`, "token:create"), grant(t, list(rule("/", "redact", "token:create"))), lacks(access.TokenCreate, access.NoRule, access.LacksTransform)},
		"using what the maker has redacted":              {grant(t, list(rule("/a/", "mask", "token:use"))), grant(t, list(rule("/a/", "redact", "token:use"))), lacks(access.TokenUse, 0, access.LacksPermission)},
		"asking to use what would be redacted anyway":    {grant(t, list(rule("/a/", "redact", "token:use"))), access.Grant{}, none},

		"one token, wherever the maker may":         {onID(x), grant(t, list(read("/a/", "reveal"))), none},
		"one token, which the maker nowhere may":    {onID(x), grant(t, `[]`, "token:use"), lacks(access.TokenRead, 0, access.LacksPermission)},
		"one token, which the maker nowhere shows":  {onID(x), grant(t, list(read("/a/", "mask")), "token:read"), lacks(access.TokenRead, 0, access.LacksTransform)},
		"tokens by prefix, which nowhere shows":     {onID(when("id", "starts_with", "x")), grant(t, `[]`, "token:read"), lacks(access.TokenRead, 0, access.LacksTransform)},
		"ids that contradict one another":           {onID(x + "," + when("id", "equals", "y")), access.Grant{}, none},
		"prefixes that contradict one another":      {onID(when("id", "starts_with", "x") + "," + when("id", "starts_with", "yy")), access.Grant{}, none},
		"one token in a container":                  {onID(x + "," + when("container", "equals", "/b/")), grant(t, list(read("/a/", "reveal"))), lacks(access.TokenRead, 0, access.LacksContainer)},
		"one token in a container of the maker's":   {onID(x + "," + when("container", "starts_with", "/a/b/")), grant(t, list(read("/a/", "reveal"))), none},
		"the longest prefix counts":                 {onID(when("container", "starts_with", "/") + "," + when("container", "starts_with", "/a/")), grant(t, list(read("/a/", "reveal"))), none},
		"the longest prefix counts against it":      {onID(when("container", "starts_with", "/") + "," + when("container", "starts_with", "/b/")), grant(t, list(read("/a/", "reveal"))), lacks(access.TokenRead, 0, access.LacksContainer)},
		"below an exact exception":                  {grant(t, list(ruleWith(when("container", "equals", "/a/"), "mask", "token:read"), ruleWith(when("container", "starts_with", "/a/"), "reveal", "token:read"))), grant(t, list(read("/a/", "mask"))), lacks(access.TokenRead, 1, access.LacksTransform)},
		"beside an exact id":                        {grant(t, list(ruleWith(x, "mask", "token:read"), ruleWith(when("id", "starts_with", "x"), "reveal", "token:read"))), grant(t, list(read("/", "mask"))), lacks(access.TokenRead, 1, access.LacksTransform)},
		"one container alone":                       {onID(when("container", "equals", "/a/")), grant(t, list(read("/a/", "reveal"))), none},
		"one container alone that the maker lacks":  {onID(when("container", "equals", "/b/")), grant(t, list(read("/a/", "reveal"))), lacks(access.TokenRead, 0, access.LacksContainer)},
		"containers that contradict one another":    {onID(when("container", "equals", "/a/") + "," + when("container", "equals", "/b/")), access.Grant{}, none},
		"an exact exception does not hide the rest": {grant(t, list(ruleWith(when("container", "equals", "/a/"), "mask", "token:read"), read("/a/", "reveal"))), grant(t, list(read("/a/", "mask"))), lacks(access.TokenRead, 1, access.LacksTransform)},
		"nor does it hide a plain permission":       {grant(t, list(ruleWith(when("container", "equals", "/"), "redact", "token:read")), "token:read"), grant(t, list(read("/", "redact"))), lacks(access.TokenRead, access.NoRule, access.LacksTransform)},
		"a rule for one token does not hide others": {grant(t, list(ruleWith(x, "mask", "token:read"), read("/a/", "reveal"))), grant(t, list(read("/a/", "mask"))), lacks(access.TokenRead, 1, access.LacksTransform)},
		"one token that an earlier rule has hidden": {grant(t, list(read("/", "mask"), ruleWith(x, "reveal", "token:read"))), grant(t, list(read("/", "mask"))), none},
		"management permissions are no session's":   {grant(t, `[]`, "log:read"), access.Grant{}, none},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, found := access.PlainExcess(test.proposed, test.maker)
			want, wanted := test.want()
			if got != want || found != wanted {
				t.Errorf("PlainExcess = %+v, %v; want %+v, %v", got, found, want, wanted)
			}
		})
	}
}

func TestRequireToGrant(t *testing.T) {
	maker := grant(t, list(rule("/a/", "mask", "token:read token:create"), rule("/b/", "redact", "token:create")), "token:use")
	private := access.NewApplication("t", "a", access.Private, maker)
	tests := map[string]struct {
		caller   access.Caller
		proposed access.Grant
		want     string // in the words of the refusal; "" when there is none
		missing  access.Permission
	}{
		"within":                                {private, grant(t, list(rule("/a/", "mask", "token:read"))), "", 0},
		"nothing":                               {private, access.Grant{}, "", 0},
		"the permission":                        {private, grant(t, `[]`, "token:delete"), "does not have token:delete and", access.TokenDelete},
		"the container":                         {private, grant(t, `[]`, "token:read"), "does not have token:read on a container", access.TokenRead},
		"the transform":                         {private, grant(t, list(rule("/b/", "mask", "token:create"))), "token:create with a lesser transform", access.TokenCreate},
		"a public application":                  {access.NewApplication("t", "a", access.Public, maker), access.Grant{}, "private application", 0},
		"a session":                             {access.NewUncappedSession("t", "a", "s", maker), access.Grant{}, "private application", 0},
		"a private application without a grant": {access.NewApplication("t", "a", access.Private, access.Grant{}), grant(t, `[]`, "token:create"), "does not have token:create and", access.TokenCreate},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.caller.RequireToGrant(test.proposed)
			if test.want == "" {
				if err != nil {
					t.Errorf("RequireToGrant = %v", err)
				}
				return
			}
			var denial *access.Denial
			if !errors.As(err, &denial) || denial.Permission() != test.missing || !errors.Is(err, fault.Forbidden) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("RequireToGrant = %v, want %q about %s", err, test.want, test.missing)
			}
		})
	}
}
