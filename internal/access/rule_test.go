package access_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// decodeRules reads rules as they stand in a request.
func decodeRules(t testing.TB, text string) []access.Rule {
	t.Helper()
	var rules []access.Rule
	if err := json.Unmarshal([]byte(text), &rules); err != nil {
		t.Fatalf("rules %s: %v", text, err)
	}
	return rules
}

// paths lists where something is wrong.
func paths(f *fault.Fields) string {
	return strings.Join(slices.Sorted(maps.Keys(fault.Of(f.Err()).Fields())), " ")
}

func many(n int, rule string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(rule+",", n), ",") + "]"
}

const goodRule = `{"container":"/pci/","transform":"mask","permissions":["token:create"]}`

func TestRulesOfApplicationsAreChecked(t *testing.T) {
	type test struct {
		applicationType access.ApplicationType
		permissions     []string
		rules           string
		want            string
	}
	tests := map[string]test{
		"one rule is enough":                       {access.Private, nil, `[` + goodRule + `]`, ""},
		"one permission is enough":                 {access.Private, []string{"token:read"}, `null`, ""},
		"every member may be given":                {access.Private, nil, `[{"description":"d","priority":7,"container":"/","transform":"reveal","permissions":["token:read"],"conditions":[]}]`, ""},
		"nothing at all is refused":                {access.Private, nil, `[]`, "permissions"},
		"a permission that does not exist":         {access.Private, []string{"token:fly"}, `[]`, "permissions"},
		"a permission of another type":             {access.Public, []string{"token:read"}, `[]`, "permissions"},
		"a management permission on a private one": {access.Private, []string{"log:read"}, `[]`, "permissions"},
		"a token permission on a management one":   {access.Management, []string{"token:read"}, `[]`, "permissions"},
		"too many permissions":                     {access.Private, slices.Repeat([]string{"token:read"}, 101), `[]`, "permissions"},
		"a type that is none of ours":              {"robot", []string{"token:read"}, `[]`, "permissions"},
		"management applications have no rules":    {access.Management, []string{"log:read"}, `[` + goodRule + `]`, "rules"},
		"a rule of management permissions":         {access.Management, nil, `[` + goodRule + `]`, "permissions rules"},
		"rules carry token permissions alone":      {access.Private, nil, `[{"container":"/","transform":"mask","permissions":["log:read"]}]`, "rules.0.permissions"},
		"a rule keeps to the type":                 {access.Public, nil, `[{"container":"/","transform":"mask","permissions":["token:read"]}]`, "rules.0.permissions"},
		"a rule with an unknown permission":        {access.Private, nil, `[{"container":"/","transform":"mask","permissions":["x"]}]`, "rules.0.permissions"},
		"a rule without permissions":               {access.Private, nil, `[{"container":"/","transform":"mask"}]`, "rules.0.permissions"},
		"a rule without a transform":               {access.Private, nil, `[{"container":"/","permissions":["token:read"]}]`, "rules.0.transform"},
		"an unknown transform":                     {access.Private, nil, `[{"container":"/","transform":"Mask","permissions":["token:read"]}]`, "rules.0.transform"},
		"an empty transform is not Nothing":        {access.Private, nil, `[{"container":"/","transform":"","permissions":["token:read"]}]`, "rules.0.transform"},
		"a rule without a container":               {access.Private, nil, `[{"transform":"mask","permissions":["token:read"]}]`, "rules.0.container"},
		"a container that is no path":              {access.Private, nil, `[` + goodRule + `,{"container":"/pci","transform":"mask","permissions":["token:read"]}]`, "rules.1.container"},
		"conditions are for sessions":              {access.Private, nil, `[{"transform":"mask","permissions":["token:read"],"conditions":[{"attribute":"id","operator":"equals","value":"x"}]}]`, "rules.0.conditions"},
		"a priority of zero":                       {access.Private, nil, `[{"priority":0,"container":"/","transform":"mask","permissions":["token:read"]}]`, "rules.0.priority"},
		"a negative priority":                      {access.Private, nil, `[{"priority":-1,"container":"/","transform":"mask","permissions":["token:read"]}]`, "rules.0.priority"},
		"a priority beyond bounds":                 {access.Private, nil, `[{"priority":2147483648,"container":"/","transform":"mask","permissions":["token:read"]}]`, "rules.0.priority"},
		"a priority used twice":                    {access.Private, nil, many(2, `{"priority":1,"container":"/","transform":"mask","permissions":["token:read"]}`), "rules.1.priority"},
		"a priority on some rules only":            {access.Private, nil, `[` + goodRule + `,{"priority":1,"container":"/","transform":"mask","permissions":["token:read"]}]`, "rules.0.priority"},
		"a null priority is none":                  {access.Private, nil, `[{"priority":null,"container":"/","transform":"mask","permissions":["token:read"]}]`, ""},
		"a description that is too long":           {access.Private, nil, `[{"description":"` + strings.Repeat("\u00e4", 1001) + `","container":"/","transform":"mask","permissions":["token:read"]}]`, "rules.0.description"},
		"a description just within bounds":         {access.Private, nil, `[{"description":"` + strings.Repeat("\u00e4", 1000) + `","container":"/","transform":"mask","permissions":["token:read"]}]`, ""},
		"a hundred rules":                          {access.Private, nil, many(100, goodRule), ""},
		"a hundred and one rules":                  {access.Private, nil, many(101, goodRule), "rules"},
		"a null rule":                              {access.Private, nil, `[null]`, "rules.0.container rules.0.permissions rules.0.transform"},
		"everything wrong is told at once": {access.Private, []string{"x"}, `[{"priority":0,"container":"x","transform":"x","permissions":["x"]}]`,
			"permissions rules.0.container rules.0.permissions rules.0.priority rules.0.transform"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var faults fault.Fields
			access.NormalizeApplication(&faults, test.applicationType, test.permissions, decodeRules(t, test.rules))
			if got := paths(&faults); got != test.want {
				t.Errorf("NormalizeApplication(%s, %v, %s) finds fault with %q, want %q", test.applicationType, test.permissions, test.rules, got, test.want)
			}
		})
	}
}

func TestRulesOfSessionsAreChecked(t *testing.T) {
	rule := func(rest string) string {
		return `[{"transform":"mask","permissions":["token:read"],` + rest + `}]`
	}
	condition := `{"attribute":"id","operator":"equals","value":"tok"}`
	tests := map[string]struct {
		permissions []string
		rules       string
		want        string
	}{
		"any token permission":                 {[]string{"token:create", "token:read", "token:update", "token:delete", "token:search", "token:use"}, `[]`, ""},
		"no management permission":             {[]string{"session:read"}, `[]`, "permissions"},
		"nothing at all":                       {nil, `[]`, "permissions"},
		"a container":                          {nil, rule(`"container":"/pci/"`), ""},
		"conditions on the id":                 {nil, rule(`"conditions":[` + condition + `]`), ""},
		"conditions on the container":          {nil, rule(`"conditions":[{"attribute":"container","operator":"starts_with","value":"/PCI/"}]`), ""},
		"both of them":                         {nil, rule(`"container":"/","conditions":[` + condition + `]`), "rules.0.conditions"},
		"neither of them":                      {nil, rule(`"description":""`), "rules.0.container"},
		"an empty list of conditions":          {nil, rule(`"conditions":[]`), "rules.0.container"},
		"an unknown attribute":                 {nil, rule(`"conditions":[{"attribute":"type","operator":"equals","value":"card"}]`), "rules.0.conditions.0.attribute"},
		"an unknown operator":                  {nil, rule(`"conditions":[` + condition + `,{"attribute":"id","operator":"ends_with","value":"x"}]`), "rules.0.conditions.1.operator"},
		"an empty condition":                   {nil, rule(`"conditions":[{}]`), "rules.0.conditions.0.attribute rules.0.conditions.0.operator"},
		"an empty id":                          {nil, rule(`"conditions":[{"attribute":"id","operator":"starts_with","value":""}]`), "rules.0.conditions.0.value"},
		"a missing value":                      {nil, rule(`"conditions":[{"attribute":"container","operator":"equals"}]`), "rules.0.conditions.0.value"},
		"the start of a container's name":      {nil, rule(`"conditions":[{"attribute":"container","operator":"starts_with","value":"/pc"}]`), "rules.0.conditions.0.value"},
		"an id with a control character":       {nil, rule(`"conditions":[{"attribute":"id","operator":"equals","value":"a\u0000b"}]`), "rules.0.conditions.0.value"},
		"an id of 400 characters":              {nil, rule(`"conditions":[{"attribute":"id","operator":"equals","value":"` + strings.Repeat("\u00e4", 400) + `"}]`), ""},
		"an id of 401 characters":              {nil, rule(`"conditions":[{"attribute":"id","operator":"equals","value":"` + strings.Repeat("a", 401) + `"}]`), "rules.0.conditions.0.value"},
		"ten conditions":                       {nil, rule(`"conditions":` + many(10, condition)), ""},
		"eleven conditions":                    {nil, rule(`"conditions":` + many(11, condition)), "rules.0.conditions"},
		"rules carry no management permission": {nil, `[{"container":"/","transform":"mask","permissions":["log:read"]}]`, "rules.0.permissions"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var faults fault.Fields
			access.NormalizeSession(&faults, test.permissions, decodeRules(t, test.rules))
			if got := paths(&faults); got != test.want {
				t.Errorf("NormalizeSession(%v, %s) finds fault with %q, want %q", test.permissions, test.rules, got, test.want)
			}
		})
	}
	t.Run("an id that is not UTF-8", func(t *testing.T) {
		var faults fault.Fields
		access.NormalizeSession(&faults, nil, []access.Rule{{Transform: "mask", Permissions: []string{"token:read"},
			Conditions: []access.Condition{{Attribute: "id", Operator: "equals", Value: "\xff"}}}})
		if got := paths(&faults); got != "rules.0.conditions.0.value" {
			t.Errorf("finds fault with %q", got)
		}
	})
}

func TestStoredRulesAreInNormalForm(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"priorities by position": {
			`[{"container":"/B/","transform":"mask","permissions":["token:read"]},{"container":"/a/","transform":"reveal","permissions":["token:read"]}]`,
			`[{"priority":1,"container":"/b/","transform":"mask","permissions":["token:read"]},{"priority":2,"container":"/a/","transform":"reveal","permissions":["token:read"]}]`,
		},
		"given priorities and the order of the list stay": {
			`[{"priority":9,"container":"/a/","transform":"mask","permissions":["token:read"]},{"priority":3,"container":"/b/","transform":"mask","permissions":["token:read"]}]`,
			`[{"priority":9,"container":"/a/","transform":"mask","permissions":["token:read"]},{"priority":3,"container":"/b/","transform":"mask","permissions":["token:read"]}]`,
		},
		"repeated permissions are dropped": {
			`[{"container":"/","transform":"mask","permissions":["token:read","token:use","token:read"],"conditions":[]}]`,
			`[{"priority":1,"container":"/","transform":"mask","permissions":["token:read","token:use"]}]`,
		},
		"containers in conditions are lowered, ids are not": {
			`[{"description":"D","transform":"mask","permissions":["token:read"],"conditions":[{"attribute":"container","operator":"equals","value":"/PCI/"},{"attribute":"id","operator":"starts_with","value":"Ab"}]}]`,
			`[{"description":"D","priority":1,"transform":"mask","permissions":["token:read"],"conditions":[{"attribute":"container","operator":"equals","value":"/pci/"},{"attribute":"id","operator":"starts_with","value":"Ab"}]}]`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var faults fault.Fields
			given := decodeRules(t, test.in)
			before, _ := json.Marshal(given)
			_, rules := access.NormalizeSession(&faults, nil, given)
			if err := faults.Err(); err != nil {
				t.Fatalf("finds fault with %q", paths(&faults))
			}
			if got, _ := json.Marshal(rules); string(got) != test.want {
				t.Errorf("stored as %s\nwant      %s", got, test.want)
			}
			if after, _ := json.Marshal(given); string(after) != string(before) {
				t.Errorf("the request's own rules became %s", after)
			}
			_, again := access.NormalizeSession(&faults, nil, rules)
			if got, _ := json.Marshal(again); string(got) != test.want || faults.Err() != nil {
				t.Errorf("normal form is not stable: %s", got)
			}
		})
	}
}

func TestRepeatedPlainPermissionsAreDropped(t *testing.T) {
	var faults fault.Fields
	got, _ := access.NormalizeApplication(&faults, access.Private, []string{"token:use", "token:read", "token:use"}, nil)
	if strings.Join(got, " ") != "token:use token:read" || faults.Err() != nil {
		t.Errorf("kept %v, %v", got, faults.Err())
	}
}

// Faults name places and say constant words: a card number in the wrong
// member must not come back.
func TestFaultsNeverRepeatWhatWasSent(t *testing.T) {
	const card = "4242424242424242"
	rules := []access.Rule{{Container: card, Transform: card, Permissions: []string{card}, Priority: new(-4242)},
		{Transform: "mask", Permissions: []string{"token:read"}, Conditions: []access.Condition{{Attribute: card, Operator: card, Value: card}}}}
	var faults fault.Fields
	access.NormalizeSession(&faults, []string{card}, rules)
	if text := shownFields(faults.Err()); text == "" || strings.Contains(text, "4242") {
		t.Errorf("faults say %s", text)
	}
	if _, err := access.NewGrant([]string{card}, rules); err == nil || strings.Contains(err.Error(), "4242") {
		t.Errorf("NewGrant says %v", err)
	}
}

func shownFields(err error) string {
	var all strings.Builder
	for path, messages := range fault.Of(err).Fields() {
		all.WriteString(path + " " + strings.Join(messages, " ") + "\n")
	}
	return all.String()
}

func TestAStoredGrantThatCannotBeReadIsAnError(t *testing.T) {
	tests := map[string]struct {
		permissions []string
		rules       string
	}{
		"a permission of a later release":  {[]string{"token:fly"}, `[]`},
		"a transform of a later release":   {nil, `[{"container":"/","transform":"blur","permissions":["token:read"]}]`},
		"a rule that matches everything":   {nil, `[{"transform":"reveal","permissions":["token:read"]}]`},
		"a rule with management power":     {nil, `[{"container":"/","transform":"reveal","permissions":["tenant:delete"]}]`},
		"two rules with the same priority": {nil, many(2, `{"priority":1,"container":"/","transform":"mask","permissions":["token:read"]}`)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, err := access.NewGrant(test.permissions, decodeRules(t, test.rules))
			if err == nil || fault.Of(err).Kind() != fault.Internal {
				t.Errorf("NewGrant = %v, want a failure of ours", err)
			}
			if d := access.NewApplication("t", "a", access.Private, g).Decide(access.TokenRead, access.Target{Containers: []string{"/"}}); d.Allowed() {
				t.Errorf("the grant of a failed NewGrant allows")
			}
		})
	}
}

// Whatever bytes come, what passes the check can be stored, read back and
// decided on, and faults are under paths that we know.
func FuzzRules(f *testing.F) {
	f.Add(`["token:read"]`, `[`+goodRule+`]`)
	f.Add(`[]`, `[{"priority":3,"transform":"reveal","permissions":["token:use"],"conditions":[{"attribute":"id","operator":"starts_with","value":"a"}]}]`)
	f.Add(`["x"]`, `[null,{"container":"/A/","conditions":[{}]}]`)
	known := []string{"permissions", "rules", "description", "priority", "container", "transform", "conditions", "attribute", "operator", "value"}
	f.Fuzz(func(t *testing.T, permissionText, ruleText string) {
		var permissions []string
		var rules []access.Rule
		if json.Unmarshal([]byte(permissionText), &permissions) != nil || json.Unmarshal([]byte(ruleText), &rules) != nil {
			return
		}
		for _, normalize := range []func(*fault.Fields) ([]string, []access.Rule){
			func(f *fault.Fields) ([]string, []access.Rule) { return access.NormalizeSession(f, permissions, rules) },
			func(f *fault.Fields) ([]string, []access.Rule) {
				return access.NormalizeApplication(f, access.Private, permissions, rules)
			},
		} {
			var faults fault.Fields
			heldPermissions, heldRules := normalize(&faults)
			if err := faults.Err(); err != nil {
				if !errors.Is(err, fault.Invalid) {
					t.Fatalf("the fault is %v", err)
				}
				for path := range fault.Of(err).Fields() {
					for name := range strings.SplitSeq(path, ".") {
						if _, err := strconv.Atoi(name); err != nil && !slices.Contains(known, name) {
							t.Fatalf("the path %q has a name that is not ours", path)
						}
					}
				}
				continue
			}
			stored, err := json.Marshal(heldRules)
			if err != nil {
				t.Fatal(err)
			}
			g, err := access.NewGrant(heldPermissions, decodeRules(t, string(stored)))
			if err != nil {
				t.Fatalf("%s passed the check and cannot be read: %v", stored, err)
			}
			c := access.NewUncappedSession("t", "a", "s", g)
			for _, p := range access.Permissions() {
				if d := c.Decide(p, access.Target{ID: "abc", Containers: []string{"/a/"}}); d.Transform != d.By.Transform {
					t.Fatalf("%s: the decision is %v by %+v", stored, d.Transform, d.By)
				}
			}
		}
	})
}
