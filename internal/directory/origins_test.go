package directory_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// page is a public application with these origins.
func page(origins ...string) directory.NewApplication {
	return directory.NewApplication{Name: "page", Type: "public", Permissions: []string{"token:create"}, AllowedOrigins: origins}
}

func TestAllowedOriginsAreExactOriginsOfPublicApplications(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	public, private := w.application(tenant, page()), w.application(tenant, private())
	management := directory.ManagementApplication()
	many := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("https://shop-%d.example", i))
		}
		return list
	}
	for name, test := range map[string]struct {
		in   directory.NewApplication
		want []string // the refused fields
	}{
		"one":                             {page("https://shop.example"), nil},
		"twenty":                          {page(many(20)...), nil},
		"loopback":                        {page("http://localhost:3000", "http://127.0.0.1:3000"), nil},
		"twenty-one":                      {page(many(21)...), []string{"allowed_origins"}},
		"a path":                          {page("https://shop.example/"), []string{"allowed_origins.0"}},
		"the second and the fourth":       {page("https://a.example", "*", "https://b.example", "http://shop.example"), []string{"allowed_origins.1", "allowed_origins.3"}},
		"a wildcard":                      {page("https://*.shop.example"), []string{"allowed_origins.0"}},
		"a card number":                   {page("4242424242424242"), []string{"allowed_origins.0"}},
		"nothing":                         {page(""), []string{"allowed_origins.0"}},
		"of a private application":        {directory.NewApplication{Name: "x", Type: "private", Permissions: []string{"token:create"}, AllowedOrigins: many(1)}, []string{"allowed_origins"}},
		"an empty list of a private one":  {directory.NewApplication{Name: "x", Type: "private", Permissions: []string{"token:create"}, AllowedOrigins: []string{}}, nil},
		"of a management application":     {directory.NewApplication{Name: "x", Type: "management", Permissions: management.Permissions, AllowedOrigins: many(1)}, []string{"allowed_origins"}},
		"bad ones of a private one":       {directory.NewApplication{Name: "x", Type: "private", Permissions: []string{"token:create"}, AllowedOrigins: []string{"*"}}, []string{"allowed_origins"}},
		"a type in doubt hides the rest":  {directory.NewApplication{Name: "x", Type: "browser", Permissions: []string{"token:create"}, AllowedOrigins: []string{"*"}}, []string{"type"}},
		"a bad one beside a missing name": {directory.NewApplication{Type: "public", Permissions: []string{"token:create"}, AllowedOrigins: []string{"*"}}, []string{"name", "allowed_origins.0"}},
	} {
		_, createErr := w.CreateApplication(t.Context(), w.manager(tenant), test.in)
		errs := map[string]error{"CreateApplication": createErr}
		for kind, id := range map[string]string{"public": public.ID, "private": private.ID} {
			if test.in.Type == kind {
				_, errs["ReplaceApplication"] = w.ReplaceApplication(t.Context(), w.manager(tenant), id, test.in)
			}
		}
		for method, err := range errs {
			var got []string
			for path, messages := range refusedFor(err) {
				got = append(got, path)
				if strings.Contains(strings.Join(messages, ""), "4242") {
					t.Errorf("%s: %s repeats what was sent: %v", name, method, messages)
				}
			}
			slices.Sort(got)
			slices.Sort(test.want)
			if !slices.Equal(got, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("%s: %s = %v for %v, want %v", name, method, err, got, test.want)
			}
		}
	}
}

func TestAllowedOriginsAreShownReplacedAndLogged(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	c := w.manager(tenant)
	a := w.application(tenant, page("https://b.example", "https://a.example", "https://b.example"))
	for _, step := range []struct {
		in, want []string
		logged   int // entries about origins, so far
	}{
		{nil, nil, 1},
		{nil, nil, 1},
		{[]string{"https://c.example"}, []string{"https://c.example"}, 2},
		{[]string{"https://c.example", "https://c.example"}, []string{"https://c.example"}, 2},
		{[]string{"https://d.example"}, []string{"https://d.example"}, 3},
	} {
		replaced, err := w.ReplaceApplication(t.Context(), c, a.ID, page(step.in...))
		if err != nil || !slices.Equal(replaced.AllowedOrigins, step.want) {
			t.Fatalf("ReplaceApplication with %v = %v, %v; want %v", step.in, replaced.AllowedOrigins, err, step.want)
		}
		read, err := w.Application(t.Context(), c, a.ID)
		list, _, listErr := w.Applications(t.Context(), c, store.ApplicationFilter{IDs: []string{a.ID}}, store.Page{Limit: 5})
		if err != nil || listErr != nil || len(list) != 1 || !slices.Equal(read.AllowedOrigins, step.want) || !slices.Equal(list[0].AllowedOrigins, step.want) {
			t.Errorf("Application = %v, %v; Applications = %v, %v; want %v", read.AllowedOrigins, err, list, listErr, step.want)
		}
		n := 0
		for _, e := range w.entries(tenant) {
			if e.Message == "Application allowed origins changed" && e.EntityID == a.ID && e.Operation == "update" {
				n++
			}
			if strings.Contains(fmt.Sprint(e), "example") {
				t.Errorf("the log holds an origin: %+v", e)
			}
		}
		if n != step.logged {
			t.Errorf("after %v the log has %d entries about origins, want %d", step.in, n, step.logged)
		}
	}
	rotated, err := w.Regenerate(t.Context(), c, a.ID)
	if err != nil || !slices.Equal(rotated.AllowedOrigins, []string{"https://d.example"}) {
		t.Errorf("Regenerate = %v, %v; want the origins as they were", rotated.AllowedOrigins, err)
	}
	if want := []string{"https://b.example", "https://a.example"}; !slices.Equal(a.AllowedOrigins, want) {
		t.Errorf("CreateApplication = %v, want %v", a.AllowedOrigins, want)
	}
}

func TestAllowedOriginsOfAKey(t *testing.T) {
	w := newWorld(t)
	tenant, manager := w.tenant()
	other, _ := w.tenant()
	in := page("https://shop.example", "http://localhost:3000")
	in.ExpiresAt = start.Add(time.Hour)
	listed, bare, foreign := w.application(tenant, in), w.application(tenant, page()), w.application(other, page("https://other.example"))
	server := w.application(tenant, private())
	gone := w.application(tenant, page("https://gone.example"))
	if err := w.DeleteApplication(t.Context(), w.manager(tenant), gone.ID); err != nil {
		t.Fatal(err)
	}
	public, err := w.Authenticate(t.Context(), bare.Key)
	if err != nil {
		t.Fatal(err)
	}
	session, err := w.CreateSession(t.Context(), public)
	if err != nil {
		t.Fatal(err)
	}
	before := len(w.entries(tenant))
	var unknown []error
	for name, test := range map[string]struct {
		key  secret.Text
		want []string
		err  error
	}{
		"an application with a list":    {listed.Key, in.AllowedOrigins, nil},
		"one without":                   {bare.Key, nil, nil},
		"one of another tenant":         {foreign.Key, []string{"https://other.example"}, nil},
		"a private key":                 {server.Key, nil, fault.NotFound},
		"a management key":              {manager.Key, nil, fault.NotFound},
		"a session key":                 {session.Key, nil, fault.NotFound},
		"a nonce":                       {session.Nonce, nil, fault.NotFound},
		"a key of a deleted one":        {gone.Key, nil, fault.NotFound},
		"no key":                        {secret.Text{}, nil, fault.NotFound},
		"a key with another last digit": {secret.NewText(altered(listed.Key.Reveal())), nil, fault.NotFound},
		"the key of an unknown tenant":  {secret.NewText(strings.Replace(listed.Key.Reveal(), "_pub_", "_pub_1", 1)), nil, fault.NotFound},
	} {
		for range 2 { // the second time from memory
			got, err := w.AllowedOrigins(t.Context(), test.key)
			if !slices.Equal(got, test.want) || !errors.Is(err, test.err) {
				t.Errorf("%s: AllowedOrigins = %v, %v; want %v, %v", name, got, err, test.want, test.err)
			}
			if err != nil {
				unknown = append(unknown, err)
			}
		}
	}
	for _, err := range unknown {
		if !reflect.DeepEqual(err, unknown[0]) {
			t.Errorf("unknown keys are told apart: %v and %v", err, unknown[0])
		}
	}
	if after := len(w.entries(tenant)); after != before {
		t.Errorf("%d entries were made, want none", after-before)
	}

	got, err := w.AllowedOrigins(t.Context(), listed.Key)
	if err != nil {
		t.Fatal(err)
	}
	got[0] = "https://evil.example"
	if got, err := w.AllowedOrigins(t.Context(), listed.Key); err != nil || !slices.Equal(got, in.AllowedOrigins) {
		t.Errorf("a caller that changes its list changes that of others: %v, %v", got, err)
	}
	w.clock.Advance(time.Hour)
	if _, err := w.AllowedOrigins(t.Context(), listed.Key); !errors.Is(err, fault.NotFound) {
		t.Errorf("of an application that has expired = %v, want %v", err, fault.NotFound)
	}
}

// altered returns a key with another last character.
func altered(key string) string {
	if strings.HasSuffix(key, "2") {
		return key[:len(key)-1] + "3"
	}
	return key[:len(key)-1] + "2"
}

func TestAChangeOfAllowedOriginsCountsAtOnce(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	a := w.application(tenant, page("https://first.example"))
	for _, want := range [][]string{{"https://second.example"}, nil, {"https://third.example", "https://fourth.example"}} {
		if _, err := w.ReplaceApplication(t.Context(), w.manager(tenant), a.ID, page(want...)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := w.AllowedOrigins(t.Context(), a.Key); err != nil || !slices.Equal(got, want) {
				t.Errorf("AllowedOrigins = %v, %v; want %v", got, err, want)
			}
		}
	}
}

// Anyone who can write to the database must not let a page of theirs embed
// the fields of another.
func TestAllowedOriginsOfAChangedRowAreNotUsed(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	victim, other := w.application(tenant, page("https://shop.example")), w.application(tenant, page("https://evil.example"))
	for range 2 {
		if got, err := w.AllowedOrigins(t.Context(), victim.Key); err != nil || len(got) != 1 {
			t.Fatalf("AllowedOrigins = %v, %v", got, err)
		}
	}
	if err := w.store.Update(t.Context(), tenant, func(tx store.Tx) error {
		row, err := tx.Application(t.Context(), victim.ID)
		if err != nil {
			return err
		}
		from, err := tx.Application(t.Context(), other.ID)
		if err != nil {
			return err
		}
		row.Rules = from.Rules
		row.Version++
		return tx.ReplaceApplication(t.Context(), row)
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := w.AllowedOrigins(t.Context(), victim.Key); got != nil || !errors.Is(err, keyring.ErrDamaged) {
		t.Errorf("AllowedOrigins = %v, %v; want %v", got, err, keyring.ErrDamaged)
	}
	// It can be repaired, and the log says that the origins may have changed.
	if _, err := w.ReplaceApplication(t.Context(), w.manager(tenant), victim.ID, page("https://shop.example")); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(w.entries(tenant), func(e store.LogEntry) bool { return e.Message == "Application allowed origins changed" }) {
		t.Error("the log has no entry about the origins")
	}
	if got, err := w.AllowedOrigins(t.Context(), victim.Key); err != nil || len(got) != 1 {
		t.Errorf("AllowedOrigins after it was replaced = %v, %v", got, err)
	}
}

func TestAllowedOriginsWhenTheStoreFails(t *testing.T) {
	w := newWorld(t)
	tenant, _ := w.tenant()
	a := w.application(tenant, page("https://shop.example"))
	w.close()
	if got, err := w.AllowedOrigins(t.Context(), a.Key); got != nil || err == nil || errors.Is(err, fault.NotFound) {
		t.Errorf("AllowedOrigins = %v, %v; want a failure that is not %v", got, err, fault.NotFound)
	}
}
