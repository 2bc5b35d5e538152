package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/api"
)

// TestEveryOperatorCommandTakesATenantsNameAsWellAsItsID runs each command that
// takes a tenant, with the id, the id in capitals and the name.
func TestEveryOperatorCommandTakesATenantsNameAsWellAsItsID(t *testing.T) {
	o := openOffice(t)
	var tenant, other api.CreatedTenant
	o.read(&tenant, "tenant", "create", "Acme & Söhne")
	o.read(&other, "tenant", "create", "other")
	var app api.Application
	o.read(&app, "application", "create", "checkout", "--tenant", tenant.Tenant.ID, "--permission", "token:create")
	for _, command := range [][]string{
		{"audit", "verify", "TENANT"}, {"audit", "checkpoint", "TENANT"}, {"audit", "export", "TENANT"}, {"audit", "retain", "TENANT", "--keep", "8760h"},
		{"key", "rotate-tenant", "TENANT"}, {"application", "list", "--tenant", "TENANT"}, {"application", "keys", app.ID, "--tenant", "TENANT"},
		{"application", "rotate-key", app.ID, "--tenant", "TENANT"}, {"session", "list", "--tenant", "TENANT"},
	} {
		for _, named := range []string{tenant.Tenant.ID, strings.ToUpper(tenant.Tenant.ID), "Acme & Söhne"} {
			args := slices.Clone(command)
			args[slices.Index(args, "TENANT")] = named
			if got := o.operate(args...); got.code != 0 {
				t.Errorf("tokenkeep %s = %+v, want 0", strings.Join(args, " "), got)
			}
		}
		for named, want := range map[string]outcome{
			"nobody": {1, "", "no such tenant"}, "acme & söhne": {1, "", "no such tenant"}, "Acme": {1, "", "no such tenant"}, "": {2, "", "missing"},
		} {
			args := slices.Clone(command)
			args[slices.Index(args, "TENANT")] = named
			got := o.operate(args...)
			if got.code != want.code || !strings.Contains(got.errOut, want.errOut) || named != "" && strings.Contains(got.errOut, named) {
				t.Errorf("tokenkeep %s = %+v, want %+v, without the name", strings.Join(args, " "), got, want)
			}
		}
	}
	// The command with the name did what the one with the id does, to that tenant.
	byID, byName := o.done("application", "list", "--json", "--tenant", tenant.Tenant.ID), o.done("application", "list", "--json", "--tenant", "Acme & Söhne")
	if byID != byName || !strings.Contains(byName, app.ID) {
		t.Errorf("the applications by name are %s, by id %s", byName, byID)
	}
	if got := o.operate("tenant", "delete", "other", "--yes"); got.code != 0 || o.opens(other.Application.Key) || !o.opens(tenant.Application.Key) {
		t.Errorf("tenant delete other = %+v; its key opens: %t, that of the tenant beside it: %t", got, o.opens(other.Application.Key), o.opens(tenant.Application.Key))
	}
}

func TestATenantsNameThatIsNotUniqueListsTheIDs(t *testing.T) {
	o := openOffice(t)
	var first, second api.CreatedTenant
	o.read(&first, "tenant", "create", "twice")
	o.read(&second, "tenant", "create", "twice")
	got := o.operate("tenant", "delete", "twice", "--yes")
	if got.code != 2 || !strings.Contains(got.errOut, first.Tenant.ID) || !strings.Contains(got.errOut, second.Tenant.ID) {
		t.Errorf("tenant delete twice = %+v, want 2 and both ids", got)
	}
	if !o.opens(first.Application.Key) || !o.opens(second.Application.Key) {
		t.Error("one of the tenants is gone")
	}
}

// TestANameThatLooksLikeAnIDIsAnID: a tenant chooses its own name, and must not
// be taken for another one, not even for one that was deleted.
func TestANameThatLooksLikeAnIDIsAnID(t *testing.T) {
	o := openOffice(t)
	var victim, gone, liar api.CreatedTenant
	o.read(&victim, "tenant", "create", "victim")
	o.read(&gone, "tenant", "create", "gone")
	o.done("tenant", "delete", gone.Tenant.ID, "--yes")
	for _, name := range []string{victim.Tenant.ID, strings.ToUpper(gone.Tenant.ID), uuid.NewString()} {
		o.read(&liar, "tenant", "create", name)
		if got := o.operate("tenant", "delete", name, "--yes"); !o.opens(liar.Application.Key) {
			t.Errorf("tenant delete %s = %+v, and deleted the tenant of that name", name, got)
		}
	}
	if o.opens(victim.Application.Key) {
		t.Error("tenant delete with an id did not delete the tenant of that id")
	}
	o.done("audit", "verify", gone.Tenant.ID) // by its id, as before
}

func TestTenantsAreCompleted(t *testing.T) {
	o := openOffice(t)
	var acme, spaced api.CreatedTenant
	o.read(&acme, "tenant", "create", "acme")
	o.read(&spaced, "tenant", "create", "two words")
	for _, typed := range [][]string{{"audit", "verify"}, {"key", "rotate-tenant"}, {"tenant", "delete"}, {"session", "list", "--tenant"}} {
		args := append([]string{"__complete", typed[0], typed[1], "--data", o.server.Data}, append(typed[2:], "")...)
		got := call(t, args...)
		if got.code != 0 || !strings.Contains(got.out, "acme\t"+acme.Tenant.ID) || !strings.Contains(got.out, spaced.Tenant.ID+"\ttwo words") || strings.Contains(got.out, "\ntwo words\t") {
			t.Errorf("tokenkeep %s completes to %+v, want acme, and the other one by its id", strings.Join(typed, " "), got)
		}
	}
	if got := call(t, "__complete", "audit", "verify", "--data", filepath.Join(t.TempDir(), "none"), ""); strings.Contains(got.out, acme.Tenant.ID) {
		t.Errorf("without a server tenants are completed to %+v", got)
	}
}
