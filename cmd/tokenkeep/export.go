package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/exportfile"
)

var errExportChanged = errors.New("the file is not an export as it left the vault")

func exportCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "export", Short: "Take tokens out, encrypted to a recipient",
		Long: `Writes the tokens that the key may reveal to a file that age has encrypted to
the recipient, as the server sends them: no plaintext is here or on a disk. Each
token is in the log of the tenant. Security codes are not exported.

Where the tenant asks for it, another application has to approve the export
first. The command then prints its id; run it again with --id when it is
approved. See docs/export.md.`,
		Example: `  tokenkeep export --recipient age1… --out tokens.age
  tokenkeep export --recipient age1… --container '/pci/*' --type card --out cards.age
  tokenkeep export --id 00000000-0000-4000-8000-000000000040 --out tokens.age`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	request := exportFlags(c)
	id := c.Flags().String("id", "", "fetch this export, which was requested before")
	out := c.Flags().String("out", "", "file to write; it must not exist")
	apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		in := request()
		if (in.Recipient == "") == (*id == "") {
			return nil, &usageError{errors.New("give --recipient for a new export, or --id for one that was requested before")}
		}
		if *out == "" {
			return nil, &usageError{errors.New("name the file to write with --out")}
		}
		return runExport(c, call, *id, in, *out)
	}, showExport)
	c.AddCommand(exportGetCommand(), exportApproveCommand(), exportVerifyCommand())
	return c
}

// exportFlags gives a command the flags that say what is exported, and to whom.
func exportFlags(c *cobra.Command) (request func() api.CreateExport) {
	recipient := c.Flags().String("recipient", "", "age recipient (age1…) whose identity opens the file")
	container := c.Flags().String("container", "", "only tokens in this container; with * at its end, or one under it")
	types := c.Flags().StringArray("type", nil, "only tokens of this type; may be repeated")
	completeTypes(c)
	return func() api.CreateExport {
		return api.CreateExport{Recipient: *recipient, Filter: api.ExportFilter{Container: *container, Types: *types}}
	}
}

func runExport(c *cobra.Command, call *client.Client, id string, in api.CreateExport, out string) (any, error) {
	var x api.Export
	var err error
	if id == "" {
		x, err = call.Exports.Create(c.Context(), in)
	} else {
		x, err = call.Exports.Get(c.Context(), id)
	}
	if err != nil || x.Status == api.ExportWaiting {
		return x, err
	}
	f, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, &usageError{errors.New("the file given with --out exists, or cannot be written")}
	}
	err = call.Exports.Content(c.Context(), x.ID, f)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(out) // half a file is of no use
		return nil, err
	}
	return x, nil
}

func showExport(w io.Writer, v any) {
	x := v.(api.Export)
	printf(w, "id\t%s\nstatus\t%s\nrecipient\t%s\n", plain(x.ID), plain(x.Status), plain(x.Recipient))
	if x.Filter.Container != "" {
		printf(w, "container\t%s\n", plain(x.Filter.Container))
	}
	for _, t := range x.Filter.Types {
		printf(w, "type\t%s\n", plain(t))
	}
	printf(w, "requested by\t%s\n", plain(x.RequestedBy))
	if x.ApprovedBy != "" {
		printf(w, "approved by\t%s\n", plain(x.ApprovedBy))
	}
	if x.Status == api.ExportWaiting {
		printf(w, "next\tanother application runs 'tokenkeep export approve', then run this again with --id\n")
	}
}

func exportGetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "get ID", Short: "Show an export that was requested", Example: "  tokenkeep export get 00000000-0000-4000-8000-000000000040",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return call.Exports.Get(c.Context(), args[0])
	}, showExport)
}

func exportApproveCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "approve ID", Short: "Approve an export of another application",
		Long: `Approves an export that another application has requested. Recipient and filter
are given again, so that what is approved is what was read. It takes
tenant:update.`,
		Example: "  tokenkeep export approve 00000000-0000-4000-8000-000000000040 --recipient age1… --type card",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	request := exportFlags(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return call.Exports.Approve(c.Context(), args[0], request())
	}, showExport)
}

// verified is what an export is, without any of its values.
type verified struct {
	ExportID  string `json:"export_id"`
	TenantID  string `json:"tenant_id"`
	Recipient string `json:"recipient"`
	Tokens    int64  `json:"tokens"`
	Segments  int64  `json:"segments"`
	Hash      string `json:"hash"`
	KeyID     string `json:"key_id"`
	// KeyKnown says that the key is the one that was given.
	KeyKnown bool `json:"key_known"`
}

func exportVerifyCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "verify FILE", Short: "Check an export without showing its values",
		Long: `Decrypts an export as a stream and checks every signature, hash and count. With
--public-key it also checks that the tenant's key has signed it; without, that
one key has signed all of it, whose id is printed.`,
		Example: "  tokenkeep export verify tokens.age --identity key.txt --public-key tenant.pem",
		Args:    cobra.ExactArgs(1),
	}
	var o importOptions
	c.Flags().StringArrayVar(&o.identities, "identity", nil, "file with the age identity that opens the file; may be repeated")
	publicKey := c.Flags().String("public-key", "", "file with the tenant's public key in PEM, kept elsewhere")
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		protectProcess()
		v, err := verifyExport(c, args[0], o, *publicKey)
		if err != nil {
			return err
		}
		return show(c, *asJSON, v, func(w io.Writer, _ any) {
			printf(w, "export\t%s\ntenant\t%s\nrecipient\t%s\ntokens\t%d\nsegments\t%d\nkey\t%s\n", plain(v.ExportID), plain(v.TenantID), plain(v.Recipient), v.Tokens, v.Segments, v.KeyID)
			if v.KeyKnown {
				printf(w, "verdict\tcomplete and unchanged, signed by the key that was given\n")
			} else {
				printf(w, "verdict\tcomplete and unchanged, signed by the key above\n")
			}
		})
	}
	return c
}

func verifyExport(c *cobra.Command, name string, o importOptions, publicKey string) (verified, error) {
	keys, err := keysOf(o)
	if err != nil {
		return verified{}, err
	}
	file, _, err := openImport(c, name)
	if err != nil {
		return verified{}, err
	}
	defer func() { _ = file.Close() }()
	plaintext, _, err := keys.Decrypt(file)
	if err != nil {
		return verified{}, &usageError{err}
	}
	header, end, err := exportfile.Verify(linesIn(plaintext))
	if err != nil {
		return verified{}, fmt.Errorf("%w: %w", errExportChanged, err)
	}
	v := verified{
		ExportID: header.ExportID, TenantID: header.TenantID, Recipient: header.Recipient,
		Tokens: end.Tokens, Segments: end.Segments, Hash: end.Hash, KeyID: end.KeyID,
	}
	if publicKey != "" {
		b, err := readFile(publicKey, "the public key")
		if err != nil {
			return verified{}, err
		}
		if v.KeyKnown = exportfile.KeyID(string(b)) == end.KeyID; !v.KeyKnown {
			return verified{}, fmt.Errorf("%w: another key has signed it", errExportChanged)
		}
	}
	return v, nil
}

// maxExportLine bounds a line of an export.
const maxExportLine = 32 << 20

var errExportRead = errors.New("it cannot be read to its end")

// linesIn returns the lines of a stream, with their ends.
func linesIn(in io.Reader) func() ([]byte, error) {
	b := bufio.NewReaderSize(in, 64<<10)
	return func() (line []byte, err error) {
		for {
			piece, err := b.ReadSlice('\n')
			line = append(line, piece...)
			switch {
			case err == nil:
				return line, nil
			case errors.Is(err, bufio.ErrBufferFull) && len(line) <= maxExportLine:
			case errors.Is(err, io.EOF) && len(line) == 0:
				return nil, io.EOF
			default:
				return nil, errExportRead
			}
		}
	}
}
