package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/date"
)

var errLogChanged = errors.New("the log is not what was sealed")

func auditCommand() *cobra.Command {
	path := func(c *cobra.Command, call *admin.Client, tenant, what string) (string, error) {
		id, err := tenantID(c, call, tenant)
		return tenantPath(id, "audit", what), err
	}

	verify := &cobra.Command{
		Use: "verify TENANT", Short: "Prove that a tenant's log is what was sealed",
		Long: `Reads the whole log, checks every signature and every entry, and names the
first entry that was removed, changed or inserted. With a checkpoint it also
finds that the end was cut off since. Nothing is proven about the unsealed
tail, whose length it tells.` + byTenant,
		Example: "  tokenkeep audit verify acme --checkpoint checkpoint.json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completeOneTenant,
	}
	checkpointFile := verify.Flags().String("checkpoint", "", "file with a checkpoint that was kept elsewhere")
	checkpoint := &cobra.Command{
		Use: "checkpoint TENANT", Short: "Seal what waits and print the signed head of a tenant's log",
		Long:    "Prints the signed head in JSON. Keep it away from the server: 'audit verify\n--checkpoint' later finds what was cut off." + byTenant,
		Example: "  tokenkeep audit checkpoint acme > checkpoint.json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completeOneTenant,
	}
	checkpointData := dataFlag(checkpoint)
	checkpoint.RunE = func(c *cobra.Command, args []string) error {
		call := admin.NewClient(*checkpointData)
		to, err := path(c, call, args[0], "checkpoint")
		if err != nil {
			return err
		}
		last, err := call.Follow(c.Context(), http.MethodPost, to, nil, tell(c))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s\n", last.Data)
		return err
	}
	export := &cobra.Command{
		Use: "export TENANT", Short: "Write a tenant's entries with their proofs, one JSON value a line",
		Long: `Writes the sealed entries of a time with what proves each of them, so that an
auditor can verify them without the server: see docs/audit.md.` + byTenant,
		Example: "  tokenkeep audit export acme --from 2030-01-01T00:00:00Z > export.jsonl",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completeOneTenant,
	}
	exportData := dataFlag(export)
	from := export.Flags().String("from", "", "first instant, RFC 3339 (default: the beginning)")
	before := export.Flags().String("before", "", "end, exclusive, RFC 3339 (default: now)")
	export.RunE = func(c *cobra.Command, args []string) error {
		var in admin.ExportLog
		for flag, at := range map[*string]**time.Time{from: &in.From, before: &in.Before} {
			if *flag == "" {
				continue
			}
			d, ok := date.Parse(*flag)
			if !ok {
				return &usageError{errors.New("--from and --before take an instant such as 2026-01-31T00:00:00Z, or a day such as 2026-01-31")}
			}
			*at = &d.Time
		}
		call := admin.NewClient(*exportData)
		to, err := path(c, call, args[0], "export")
		if err != nil {
			return err
		}
		_, err = call.Follow(c.Context(), http.MethodPost, to, in, func(p admin.Progress) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s\n", p.Data)
			return err
		})
		return err
	}
	check := &cobra.Command{
		Use: "check-export FILE", Short: "Verify an export without the server",
		Example: "  tokenkeep audit check-export export.jsonl --public-key tenant.pem",
		Args:    cobra.ExactArgs(1),
	}
	asJSON := jsonFlag(check)
	keyFile := check.Flags().String("public-key", "", "file with the tenant's public key in PEM, kept elsewhere")
	check.RunE = func(c *cobra.Command, args []string) error { return checkExport(c, args[0], *keyFile, *asJSON) }
	retain := &cobra.Command{
		Use: "retain TENANT", Short: "Drop entries older than a time, whole batches at once, and keep their roots",
		Long:    "Drops whole batches of entries and keeps their signed roots, so that the rest of\nthe log still verifies." + byTenant,
		Example: "  tokenkeep audit retain acme --keep 8760h",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completeOneTenant,
	}
	keep := retain.Flags().String("keep", "", "how long entries are kept, such as 8760h")
	_ = retain.MarkFlagRequired("keep")

	return group("audit", "Verify, checkpoint and export tenants' logs",
		operatorCommand(verify, func(c *cobra.Command, call *admin.Client, args []string) (any, error) {
			var in admin.VerifyLog
			if *checkpointFile != "" {
				b, err := os.ReadFile(*checkpointFile)
				if err != nil || !json.Valid(b) {
					return nil, &usageError{errors.New("the file given with --checkpoint is not a checkpoint")}
				}
				in.Checkpoint = b
			}
			to, err := path(c, call, args[0], "verify")
			if err != nil {
				return nil, err
			}
			last, err := call.Follow(c.Context(), http.MethodPost, to, in, tell(c))
			if err != nil {
				return nil, err
			}
			var v audit.Verification
			if err := json.Unmarshal(last.Data, &v); err != nil {
				return nil, fmt.Errorf("the server's answer is not understood: %w", err)
			}
			return verdict{&v}, nil
		}, func(w io.Writer, v any) { showVerification(w, v.(verdict).Verification) }),
		checkpoint,
		export,
		check,
		operatorCommand(retain, func(c *cobra.Command, call *admin.Client, args []string) (any, error) {
			to, err := path(c, call, args[0], "retain")
			if err != nil {
				return nil, err
			}
			last, err := call.Follow(c.Context(), http.MethodPost, to, admin.RetainLog{Keep: *keep}, tell(c))
			if err != nil {
				return nil, err
			}
			var v audit.Retained
			return &v, json.Unmarshal(last.Data, &v)
		}, func(w io.Writer, v any) {
			r := v.(*audit.Retained)
			printf(w, "Dropped %d entries in %d batches; their roots stay.\n", r.Entries, r.Batches)
		}),
	)
}

// verdict is a verification that makes its command fail when it found something.
type verdict struct{ *audit.Verification }

func (v verdict) failure() error {
	if v.Clean() {
		return nil
	}
	return errLogChanged
}

func showVerification(w io.Writer, v *audit.Verification) {
	for _, f := range v.Findings {
		printf(w, "%s\n", describe(f))
	}
	if more := v.Found - int64(len(v.Findings)); more > 0 {
		printf(w, "… and %d more\n", more)
	}
	printf(w, "%d entries in %d batches are as they were sealed (%d batches dropped by retention).\n", v.Entries, v.Batches, v.Dropped)
	printf(w, "%d entries wait to be sealed: nothing is proven about them.\n", v.Unsealed)
}

func describe(f audit.Finding) string {
	what := string(f.Kind)
	if f.ID != "" {
		what += ": entry " + f.ID
	}
	if f.CreatedAt != nil {
		what += " of " + f.CreatedAt.Format(time.RFC3339Nano)
	}
	if f.Batch > 0 {
		what += fmt.Sprintf(", batch %d", f.Batch)
	}
	if f.Line > 0 {
		what += fmt.Sprintf(", line %d", f.Line)
	}
	if f.Detail != "" {
		what += " (" + f.Detail + ")"
	}
	return what
}

// checkExport verifies a file that 'audit export' wrote; no server takes part.
func checkExport(c *cobra.Command, file, keyFile string, asJSON bool) error {
	f, err := os.Open(file)
	if err != nil {
		return &usageError{errors.New("the export cannot be read")}
	}
	defer func() { _ = f.Close() }()
	var public []byte
	if keyFile != "" {
		if public, err = os.ReadFile(keyFile); err != nil {
			return &usageError{errors.New("the file given with --public-key cannot be read")}
		}
	}
	v, err := audit.VerifyExport(f, public, nil)
	if err != nil {
		return err
	}
	err = show(c, asJSON, v, func(w io.Writer, _ any) {
		if v.Clean() {
			printf(w, "%d entries in %d batches verify.\n", v.Entries, v.Batches)
		} else {
			printf(w, "%s\n", describe(*v.Finding))
		}
	})
	if err == nil && !v.Clean() {
		return errLogChanged
	}
	return err
}
