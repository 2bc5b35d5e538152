package directory_test

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// refusedFor tells under which paths a request was refused.
func refusedFor(err error) map[string][]string {
	if !errors.Is(err, fault.Invalid) {
		return nil
	}
	return fault.Of(err).Fields()
}

func TestNames(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	c := w.manager(tenant)
	a := w.application(tenant, private())
	const length, control = "must have 1 to 200 characters", "must not hold control characters"
	for name, test := range map[string]struct {
		name string
		want []string
	}{
		"one character":       {"a", nil},
		"200 characters":      {strings.Repeat("ä", 200), nil},
		"200 wide characters": {strings.Repeat("🔑", 200), nil},
		"none":                {"", []string{length}},
		"201 characters":      {strings.Repeat("ä", 201), []string{length}},
		"a line feed":         {"a\nb", []string{control}},
		"a NUL":               {"a\x00", []string{control}},
		"an escape":           {"\x1b[31m", []string{control}},
		"a C1 control":        {"a\u0085b", []string{control}},
		"long with a tab":     {strings.Repeat("\t", 201), []string{length, control}},
	} {
		in := private()
		in.Name = test.name
		_, _, tenantErr := w.CreateTenant(t.Context(), test.name)
		_, replaceErr := w.ReplaceTenant(t.Context(), c, test.name, nil)
		_, createErr := w.CreateApplication(t.Context(), c, in)
		_, changeErr := w.ReplaceApplication(t.Context(), c, a.ID, in)
		for method, err := range map[string]error{
			"CreateTenant": tenantErr, "ReplaceTenant": replaceErr, "CreateApplication": createErr, "ReplaceApplication": changeErr,
		} {
			if test.want == nil && err == nil {
				continue
			}
			if got := refusedFor(err); !reflect.DeepEqual(got, map[string][]string{"name": test.want}) {
				t.Errorf("%s with a name of %s = %v %v, want %v", method, name, err, got, test.want)
			}
		}
	}
}

func TestWhatAnApplicationMayBeMadeFrom(t *testing.T) {
	rule := func(change func(*access.Rule)) []access.Rule {
		r := accesstest.Rule("/pci/", access.Mask, access.TokenRead)
		change(&r)
		return []access.Rule{r}
	}
	for name, test := range map[string]struct {
		change func(*directory.NewApplication)
		paths  []string
	}{
		"as it is":                      {func(*directory.NewApplication) {}, nil},
		"no type":                       {func(in *directory.NewApplication) { in.Type = "" }, []string{"type"}},
		"an unknown type":               {func(in *directory.NewApplication) { in.Type = "4242424242424242" }, []string{"type"}},
		"a type in upper case":          {func(in *directory.NewApplication) { in.Type = "PRIVATE" }, []string{"type"}},
		"neither permissions nor rules": {func(in *directory.NewApplication) { in.Permissions, in.Rules = nil, nil }, []string{"permissions"}},
		"an unknown permission":         {func(in *directory.NewApplication) { in.Permissions = []string{"token:steal"} }, []string{"permissions"}},
		"a permission of another type":  {func(in *directory.NewApplication) { in.Permissions = []string{"tenant:delete"} }, []string{"permissions"}},
		"public with token:read": {func(in *directory.NewApplication) {
			in.Type, in.Permissions, in.Rules = "public", []string{"token:read"}, nil
		}, []string{"permissions"}},
		"management with token:create": {func(in *directory.NewApplication) { in.Type, in.Rules = "management", nil }, []string{"permissions"}},
		"management with rules":        {func(in *directory.NewApplication) { in.Type, in.Permissions = "management", []string{"log:read"} }, []string{"rules"}},
		"a rule without a container":   {func(in *directory.NewApplication) { in.Rules = rule(func(r *access.Rule) { r.Container = "" }) }, []string{"rules.0.container"}},
		"a rule with a bad container":  {func(in *directory.NewApplication) { in.Rules = rule(func(r *access.Rule) { r.Container = "pci" }) }, []string{"rules.0.container"}},
		"a rule without a transform":   {func(in *directory.NewApplication) { in.Rules = rule(func(r *access.Rule) { r.Transform = "" }) }, []string{"rules.0.transform"}},
		"a rule without permissions":   {func(in *directory.NewApplication) { in.Rules = rule(func(r *access.Rule) { r.Permissions = nil }) }, []string{"rules.0.permissions"}},
		"a rule about tenants": {func(in *directory.NewApplication) {
			in.Rules = rule(func(r *access.Rule) { r.Permissions = []string{"tenant:read"} })
		}, []string{"rules.0.permissions"}},
		"a rule with conditions": {func(in *directory.NewApplication) {
			in.Rules = rule(func(r *access.Rule) { r.Conditions = []access.Condition{{}} })
		}, []string{"rules.0.conditions"}},
		"a priority of 0":                  {func(in *directory.NewApplication) { in.Rules = rule(func(r *access.Rule) { r.Priority = new(0) }) }, []string{"rules.0.priority"}},
		"two faults at once":               {func(in *directory.NewApplication) { in.Name, in.Permissions = "", []string{"x"} }, []string{"name", "permissions"}},
		"the second rule is bad":           {func(in *directory.NewApplication) { in.Rules = append(in.Rules, access.Rule{}) }, []string{"rules.1.container", "rules.1.permissions", "rules.1.transform"}},
		"an expiry now":                    {func(in *directory.NewApplication) { in.ExpiresAt = start }, []string{"expires_at"}},
		"an expiry in the past":            {func(in *directory.NewApplication) { in.ExpiresAt = start.Add(-time.Hour) }, []string{"expires_at"}},
		"an expiry a microsecond from now": {func(in *directory.NewApplication) { in.ExpiresAt = start.Add(time.Microsecond) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tenant, _ := w.tenant()
			c := w.manager(tenant)
			a := w.application(tenant, private())
			before := w.rows(tenant)
			in := private()
			test.change(&in)

			_, createErr := w.CreateApplication(t.Context(), c, in)
			tested := map[string]error{"CreateApplication": createErr}
			if in.Type == "private" {
				_, tested["ReplaceApplication"] = w.ReplaceApplication(t.Context(), c, a.ID, in)
			}
			_, _, tested["CreateTenant"] = w.CreateTenant(t.Context(), "Tenant", in)
			for method, err := range tested {
				if test.paths == nil {
					if err != nil {
						t.Errorf("%s = %v %v", method, err, refusedFor(err))
					}
					continue
				}
				want := map[string]bool{}
				for _, p := range test.paths {
					want[p] = true
				}
				got := map[string]bool{}
				for p, messages := range refusedFor(err) {
					got[p] = true
					if strings.Contains(strings.Join(messages, ""), "4242") {
						t.Errorf("%s repeats what was sent: %v", method, messages)
					}
				}
				if !maps.Equal(got, want) {
					t.Errorf("%s = %v, refused for %v, want %v", method, err, got, want)
				}
			}
			if test.paths != nil && !reflect.DeepEqual(w.rows(tenant), before) {
				t.Error("something changed although all was refused")
			}
		})
	}
}

func TestATypeIsForEver(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	a := w.application(tenant, private())
	for kind, want := range map[string]map[string][]string{
		"private": nil, "": nil, "public": {"type": {"cannot be changed"}}, "nonsense": {"type": {"cannot be changed"}},
	} {
		in := private()
		in.Type = kind
		got, err := w.ReplaceApplication(t.Context(), w.manager(tenant), a.ID, in)
		if !reflect.DeepEqual(refusedFor(err), want) || err == nil && got.Type != access.Private {
			t.Errorf("ReplaceApplication with type %q = %s, %v, want %v", kind, got.Type, refusedFor(err), want)
		}
	}
}

func TestReplacingAnApplicationReplacesAllOfIt(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	in := private()
	in.ExpiresAt = start.Add(time.Hour)
	a := w.application(tenant, in)
	w.clock.Advance(time.Minute)
	got, err := w.ReplaceApplication(t.Context(), w.manager(tenant), a.ID, directory.NewApplication{Name: "other", Permissions: []string{"token:use", "token:use"}})
	if err != nil {
		t.Fatal(err)
	}
	read, err := w.Application(t.Context(), w.manager(tenant), a.ID)
	if err != nil || !reflect.DeepEqual(read, got) {
		t.Errorf("Application = %+v, %v, want what ReplaceApplication gave: %+v", read, err, got)
	}
	want := directory.Application{
		ID: a.ID, TenantID: tenant, Name: "other", Type: access.Private, Permissions: []string{"token:use"}, Keys: a.Keys,
		Made: directory.Made{CreatedBy: "the-caller", CreatedAt: start.Truncate(time.Microsecond), ModifiedBy: "the-caller", ModifiedAt: start.Add(time.Minute)},
	}
	if got.Rules != nil || !got.ExpiresAt.IsZero() || !reflect.DeepEqual(got, want) {
		t.Errorf("ReplaceApplication = %+v, want %+v", got, want)
	}
}

func TestRulesComeBackInTheFormInWhichTheyCount(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	in := private()
	in.Rules[0].Container, in.Rules[0].Description = "/PCI/High/", "for the ops team"
	a := w.application(tenant, in)
	got, err := w.Application(t.Context(), w.manager(tenant), a.ID)
	want := accesstest.Rule("/pci/high/", access.Mask, access.TokenRead)
	want.Description, want.Priority = "for the ops team", new(1)
	if err != nil || !reflect.DeepEqual(got.Rules, []access.Rule{want}) {
		t.Errorf("rules = %+v, %v, want %+v", got.Rules, err, want)
	}
}

func TestListsOfApplications(t *testing.T) {
	w := newWorld(t)
	tenant, manager := w.tenant()
	ids := []string{manager.ID}
	for _, kind := range []access.ApplicationType{access.Public, access.Private, access.Public} {
		w.clock.Advance(time.Second)
		ids = append(ids, w.application(tenant, one[kind]).ID)
	}
	for name, test := range map[string]struct {
		filter store.ApplicationFilter
		page   store.Page
		want   []int // indexes, newest first
		total  int64
	}{
		"all":               {store.ApplicationFilter{}, store.Page{Limit: 10}, []int{3, 2, 1, 0}, 4},
		"a page":            {store.ApplicationFilter{}, store.Page{Offset: 1, Limit: 2}, []int{2, 1}, 4},
		"past the end":      {store.ApplicationFilter{}, store.Page{Offset: 9, Limit: 2}, nil, 4},
		"of one type":       {store.ApplicationFilter{Types: []string{"public"}}, store.Page{Limit: 10}, []int{3, 1}, 2},
		"of two types":      {store.ApplicationFilter{Types: []string{"private", "management"}}, store.Page{Limit: 10}, []int{2, 0}, 2},
		"of ids":            {store.ApplicationFilter{IDs: []string{ids[1], ids[2], nothing.application}}, store.Page{Limit: 10}, []int{2, 1}, 2},
		"of ids and a type": {store.ApplicationFilter{IDs: ids, Types: []string{"private"}}, store.Page{Limit: 10}, []int{2}, 1},
		"of no type":        {store.ApplicationFilter{Types: []string{"other"}}, store.Page{Limit: 10}, nil, 0},
	} {
		list, total, err := w.Applications(t.Context(), w.manager(tenant), test.filter, test.page)
		var got []string
		for _, a := range list {
			got = append(got, a.ID)
		}
		var want []string
		for _, i := range test.want {
			want = append(want, ids[i])
		}
		if err != nil || total != test.total || !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %v of %d, %v; want %v of %d", name, got, total, err, want, test.total)
		}
	}
}

func TestSettings(t *testing.T) {
	defaults := map[string]string{
		"fingerprint_tokens": "true", "deduplicate_tokens": "false", "disable_ephemeral_proxy": "false",
		"disable_anonymous_detokenization": "false", "uncapped_sessions": "false", "cvc_retention": "1h",
		"blind_deduplication": "false", "masked_fingerprints": "false", "numeric_ids": "false",
	}
	with := func(name, value string) map[string]string {
		m := maps.Clone(defaults)
		m[name] = value
		return m
	}
	const choice, unknown, duration = `must be "true" or "false"`, "holds a setting that does not exist", "must be a duration from 1m to 1h"
	w := newWorld(t)
	tenant, _ := w.tenant()
	c := w.manager(tenant)
	got, err := w.Tenant(t.Context(), c)
	if err != nil || !maps.Equal(got.Settings, defaults) {
		t.Fatalf("a new tenant has %v, %v; want %v", got.Settings, err, defaults)
	}
	if len(directory.SettingRows()) != len(defaults) {
		t.Errorf("there are %d settings, and the test knows %d", len(directory.SettingRows()), len(defaults))
	}
	for _, row := range directory.SettingRows() {
		if row.Default != defaults[row.Name] || row.Doc == "" {
			t.Errorf("setting %s has default %q and doc %q", row.Name, row.Default, row.Doc)
		}
	}
	for name, test := range map[string]struct {
		chosen  map[string]string
		want    map[string]string
		refused map[string][]string
	}{
		"none":                  {nil, defaults, nil},
		"one":                   {map[string]string{"deduplicate_tokens": "true"}, with("deduplicate_tokens", "true"), nil},
		"a default":             {map[string]string{"fingerprint_tokens": "true"}, defaults, nil},
		"a short retention":     {map[string]string{"cvc_retention": "1m"}, with("cvc_retention", "1m"), nil},
		"minutes":               {map[string]string{"cvc_retention": "60m"}, with("cvc_retention", "60m"), nil},
		"unknown":               {map[string]string{"4242424242424242": "true"}, nil, map[string][]string{"settings": {unknown}}},
		"upper case":            {map[string]string{"Fingerprint_Tokens": "true"}, nil, map[string][]string{"settings": {unknown}}},
		"not a choice":          {map[string]string{"uncapped_sessions": "yes"}, nil, map[string][]string{"settings.uncapped_sessions": {choice}}},
		"an empty choice":       {map[string]string{"uncapped_sessions": ""}, nil, map[string][]string{"settings.uncapped_sessions": {choice}}},
		"too long":              {map[string]string{"cvc_retention": "61m"}, nil, map[string][]string{"settings.cvc_retention": {duration}}},
		"a nanosecond too long": {map[string]string{"cvc_retention": "3600000000001ns"}, nil, map[string][]string{"settings.cvc_retention": {duration}}},
		"too short":             {map[string]string{"cvc_retention": "59s"}, nil, map[string][]string{"settings.cvc_retention": {duration}}},
		"negative":              {map[string]string{"cvc_retention": "-1h"}, nil, map[string][]string{"settings.cvc_retention": {duration}}},
		"no duration":           {map[string]string{"cvc_retention": "3600"}, nil, map[string][]string{"settings.cvc_retention": {duration}}},
		"good and bad ones":     {map[string]string{"deduplicate_tokens": "true", "x": "1", "cvc_retention": "x"}, nil, map[string][]string{"settings": {unknown}, "settings.cvc_retention": {duration}}},
	} {
		if _, err := w.ReplaceTenant(t.Context(), c, "Before", map[string]string{"uncapped_sessions": "true"}); err != nil {
			t.Fatal(err)
		}
		got, err := w.ReplaceTenant(t.Context(), c, "After", test.chosen)
		if !reflect.DeepEqual(refusedFor(err), test.refused) || err == nil && !maps.Equal(got.Settings, test.want) {
			t.Errorf("%s: ReplaceTenant = %v, %v %v; want %v, %v", name, got.Settings, err, refusedFor(err), test.want, test.refused)
		}
		now, err := w.Tenant(t.Context(), c)
		wantName, want := "After", test.want
		if test.refused != nil {
			wantName, want = "Before", with("uncapped_sessions", "true")
		}
		if err != nil || now.Name != wantName || !maps.Equal(now.Settings, want) {
			t.Errorf("%s: afterwards the tenant is %s with %v, %v; want %s with %v", name, now.Name, now.Settings, err, wantName, want)
		}
	}
}

func TestSettingsAreReadIntoTheirFields(t *testing.T) {
	defaults := directory.Settings{FingerprintTokens: true, CVCRetention: time.Hour}
	if got := directory.DefaultSettings(); got != defaults {
		t.Errorf("DefaultSettings() = %+v, want %+v", got, defaults)
	}
	for name, test := range map[string]struct {
		chosen map[string]string
		want   directory.Settings
	}{
		"none":            {nil, defaults},
		"of a later time": {map[string]string{"not_yet_known": "true"}, defaults},
		"no fingerprints": {map[string]string{"fingerprint_tokens": "false"}, directory.Settings{CVCRetention: time.Hour}},
		"deduplication":   {map[string]string{"deduplicate_tokens": "true"}, directory.Settings{FingerprintTokens: true, CVCRetention: time.Hour, DeduplicateTokens: true}},
		"no ephemeral":    {map[string]string{"disable_ephemeral_proxy": "true"}, directory.Settings{FingerprintTokens: true, CVCRetention: time.Hour, DisableEphemeralProxy: true}},
		"no anonymous":    {map[string]string{"disable_anonymous_detokenization": "true"}, directory.Settings{FingerprintTokens: true, CVCRetention: time.Hour, DisableAnonymousDetokenization: true}},
		"numeric ids":     {map[string]string{"numeric_ids": "true"}, directory.Settings{FingerprintTokens: true, CVCRetention: time.Hour, NumericIDs: true}},
		"a retention":     {map[string]string{"cvc_retention": "90s"}, directory.Settings{FingerprintTokens: true, CVCRetention: 90 * time.Second}},
	} {
		if got, err := directory.SettingsOf(store.Tenant{Settings: test.chosen}); got != test.want || err != nil {
			t.Errorf("%s: SettingsOf(%v) = %+v, %v; want %+v", name, test.chosen, got, err, test.want)
		}
	}
	for _, row := range directory.SettingRows() {
		for _, text := range []string{"", "yes", "TRUE", "2h"} {
			damaged := store.Tenant{Settings: map[string]string{row.Name: text}}
			if _, err := directory.SettingsOf(damaged); err == nil {
				t.Errorf("SettingsOf(%v) returns no error", damaged.Settings)
			}
			if got, err := directory.WideningOf(damaged, nil); got != (directory.Widening{}) || err == nil {
				t.Errorf("WideningOf(%v) = %+v, %v; want none and an error", damaged.Settings, got, err)
			}
		}
	}
}

func TestACallbackSecretIsRotatedWithADayOfBoth(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	other, _ := w.tenant()
	c := w.manager(tenant)
	read := func() directory.CallbackSecret {
		t.Helper()
		s, err := w.CallbackSecret(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := read()
	if !strings.HasPrefix(first.Secret.Reveal(), "whsec_") || !first.Previous.IsZero() || !first.PreviousUntil.IsZero() || !read().Secret.Equal(first.Secret) {
		t.Fatalf("the first secret is not one that stays: %+v", first)
	}
	if theirs, err := w.CallbackSecret(t.Context(), w.manager(other)); err != nil || theirs.Secret.Equal(first.Secret) {
		t.Errorf("two tenants have one secret, or %v", err)
	}
	second, err := w.RotateCallbackSecret(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	rotated := w.clock.Now()
	if second.Secret.Equal(first.Secret) || !second.Previous.Equal(first.Secret) || !second.PreviousUntil.Equal(rotated.Add(24*time.Hour)) {
		t.Errorf("after the rotation: previous is the first %t, until %s", second.Previous.Equal(first.Secret), second.PreviousUntil)
	}
	w.clock.Advance(24*time.Hour - time.Nanosecond)
	if s := read(); !s.Secret.Equal(second.Secret) || !s.Previous.Equal(first.Secret) {
		t.Error("right before a day has passed, not both are there")
	}
	w.clock.Advance(time.Nanosecond)
	if s := read(); !s.Secret.Equal(second.Secret) || !s.Previous.IsZero() || !s.PreviousUntil.IsZero() {
		t.Error("after a day the old one is still there")
	}
	for range 2 {
		before := read().Secret
		s, err := w.RotateCallbackSecret(t.Context(), c)
		if err != nil || !s.Previous.Equal(before) {
			t.Errorf("the next rotation does not keep the one before it, or %v", err)
		}
	}
}

func TestUsageCountsTheTokensThatAreThere(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	other, _ := w.tenant()
	err := w.files.Update(t.Context(), tenant, func(tx store.Tx) error {
		for i, token := range []store.Token{
			{Type: "card", Containers: []string{"/pci/high/"}}, {Type: "card", Containers: []string{"/other/"}}, {Type: "token", Containers: []string{"/"}},
			{Type: "bank", Containers: []string{"/"}, Expiry: store.Expiry{At: store.At(start)}},
		} {
			token.ID, token.Data, token.CreatedAt, token.Version = access.NewID(), []byte{byte(i)}, store.At(start), 1
			if err := tx.InsertToken(t.Context(), token); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.Usage(t.Context(), w.manager(tenant))
	if want := (directory.Usage{Tokens: map[string]int64{"card": 2, "token": 1}, Total: 3}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Usage = %+v, %v; want %+v: what has expired is not there", got, err, want)
	}
	if got, err := w.Usage(t.Context(), w.manager(other)); err != nil || got.Total != 0 || len(got.Tokens) != 0 {
		t.Errorf("Usage of another tenant = %+v, %v; want nothing", got, err)
	}
}

func TestANewTenantIsThereAsAWholeOrNotAtAll(t *testing.T) {
	w := newWorld(t)
	for n, failed := 0, true; failed; n++ {
		if n > 50 {
			t.Fatal("CreateTenant never got through")
		}
		w.store.breakAfter(n, false)
		_, _, err := w.CreateTenant(t.Context(), "Tenant", directory.DemoApplications()...)
		if failed = w.store.mend(); failed != (err != nil) {
			t.Fatalf("CreateTenant = %v although a call failed: %t", err, failed)
		}
		if failed {
			w.none()
		}
	}
	bad := private()
	bad.Name = ""
	if _, _, err := w.CreateTenant(t.Context(), "Tenant", private(), bad); !errors.Is(err, fault.Invalid) {
		t.Errorf("CreateTenant with an application that is not valid = %v", err)
	}
	names := []string{}
	if err := w.AllTenants(t.Context(), func(t directory.Tenant) error { names = append(names, t.Name); return nil }); err != nil || len(names) != 1 {
		t.Errorf("the tenants are %v, %v; want one", names, err)
	}
}

func (w *world) none() {
	w.t.Helper()
	if err := w.AllTenants(w.t.Context(), func(t directory.Tenant) error { return errors.New("there is a tenant") }); err != nil {
		w.t.Error(err)
	}
}

func TestTheFirstEntriesOfATenantAreTheSystems(t *testing.T) {
	w := newWorld(t)
	made, applications, err := w.CreateTenant(t.Context(), "demo", directory.DemoApplications()...)
	if err != nil || len(applications) != 3 || made.Name != "demo" || !made.CreatedAt.Equal(start) || made.CreatedBy != "" {
		t.Fatalf("CreateTenant = %+v, %d applications, %v", made, len(applications), err)
	}
	want := map[string]string{made.ID: "Tenant created"}
	for _, a := range applications {
		want[a.ID] = "Application created"
		if a.CreatedBy != "" || !w.authenticates(a.Key) {
			t.Errorf("application %s is made by %q, or its key opens nothing", a.Name, a.CreatedBy)
		}
	}
	for _, e := range w.entries(made.ID) {
		if want[e.EntityID] != e.Message || e.ActorType != "system" || e.ActorID != "" || e.Operation != "create" || e.Outcome != "allowed" {
			t.Errorf("unexpected entry %+v", e)
		}
		delete(want, e.EntityID)
	}
	if len(want) != 0 {
		t.Errorf("no entries for %v", want)
	}
	c, err := w.Authenticate(t.Context(), applications[1].Key)
	if err != nil {
		t.Fatal(err)
	}
	if d := c.Decide(access.TokenRead, access.Target{ID: "x", Containers: []string{"/pci/high/"}}); d.Transform != access.Reveal {
		t.Errorf("the private demo application reads with %s, want reveal", d.Transform)
	}
}

func TestWhatTheOperatorDoesIsInTheTenantsLog(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	a := w.application(tenant, private())
	entries := w.since(tenant, func() {
		if _, err := w.CreateKey(t.Context(), directory.Operator(tenant), a.ID); err != nil {
			t.Fatal(err)
		}
	})
	if len(entries) != 1 || entries[0].ActorType != "system" || entries[0].Message != "Key created" {
		t.Errorf("a key that the operator made left %+v, want one entry of the system", entries)
	}
}

func TestTheOperatorMayLookAfterTenantsAndNoMore(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	c := directory.Operator(tenant)
	for _, p := range access.Permissions() {
		want := p.Entity() == "application" || p.Entity() == "session" || p.Entity() == "member" || p == access.TenantRead || p == access.TenantDelete
		containers := []string{"/"}
		if p.Entity() != "token" {
			containers = nil
		}
		if got := c.Require(p, containers...) == nil; got != want {
			t.Errorf("the operator may %s: %t, want %t", p, got, want)
		}
	}
	for _, id := range []string{"", "4242424242424242", "../x", nothing.application} {
		_, err := w.Tenant(t.Context(), directory.Operator(id))
		_, _, listErr := w.Applications(t.Context(), directory.Operator(id), store.ApplicationFilter{}, store.Page{Limit: 1})
		_, createErr := w.CreateApplication(t.Context(), directory.Operator(id), private())
		_, keyErr := w.CreateKey(t.Context(), directory.Operator(id), nothing.application)
		deleteErr := w.DeleteTenant(t.Context(), directory.Operator(id))
		for method, err := range map[string]error{"Tenant": err, "Applications": listErr, "CreateApplication": createErr, "CreateKey": keyErr, "DeleteTenant": deleteErr} {
			if id == "" && errors.Is(err, fault.Forbidden) {
				continue // nobody in no tenant
			}
			if !errors.Is(err, fault.NotFound) || strings.Contains(err.Error(), "4242") {
				t.Errorf("%s in tenant %q = %v, want not found", method, id, err)
			}
		}
	}
	for _, id := range []string{strings.ToUpper(tenant), "{" + tenant + "}", "urn:uuid:" + tenant} {
		c := directory.Operator(id)
		_, err := w.Tenant(t.Context(), c)
		_, createErr := w.CreateApplication(t.Context(), c, private())
		if err := errors.Join(err, createErr); err != nil || c.Tenant() != tenant {
			t.Errorf("the operator in tenant %s = %v", id, err)
		}
	}
	if err := w.DeleteTenant(t.Context(), directory.Operator(strings.ToUpper(tenant))); err != nil {
		t.Errorf("DeleteTenant = %v", err)
	}
	if v, err := w.audit.Verify(t.Context(), tenant, nil, nil); err != nil || v.Batches == 0 || !v.Clean() {
		t.Errorf("the log of the deleted tenant: %+v, %v; want it sealed", v, err)
	}
}
