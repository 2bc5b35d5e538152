package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/bulkfile"
)

// importOptions are the flags of an import.
type importOptions struct {
	identities               []string
	passphraseFile           string
	mapping, preset          string
	dryRun                   bool
	state, results, rejected string
}

func importCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "import FILE", Short: "Make tokens of the records of a file",
		Long: `Reads CSV or lines of JSON, in plaintext or encrypted with age or OpenPGP, and
makes a token of each record. The file is decrypted here, as a stream: no
plaintext is written anywhere. - is standard input.

What the columns are is in a mapping file or a preset. Lines of JSON need
neither: each is then a request for a token. A file of 'tokenkeep export' is
known by its first line, and verified while it is imported. See docs/import.md.

Beside the file, the command writes three others, which hold no values: which
record became which token, which records were rejected and why, and how far the
import has come. A command that was interrupted is continued by running it
again; no record is imported twice.`,
		Example: `  tokenkeep import cards.csv.age --identity key.txt --preset cards
  tokenkeep import export.csv.gpg --identity private.asc --mapping mapping.yaml --dry-run`,
		Args: cobra.ExactArgs(1),
	}
	var o importOptions
	c.Flags().StringArrayVar(&o.identities, "identity", nil, "file with an age identity or an OpenPGP private key that opens the file; may be repeated")
	c.Flags().StringVar(&o.passphraseFile, "passphrase-file", "", "file with the passphrase of the OpenPGP private key")
	c.Flags().StringVar(&o.mapping, "mapping", "", "file that says what the columns become, in YAML")
	c.Flags().StringVar(&o.preset, "preset", "", "a mapping that is built in: "+strings.Join(presetNames(), ", "))
	_ = c.RegisterFlagCompletionFunc("preset", cobra.FixedCompletions(presetNames(), cobra.ShellCompDirectiveNoFileComp))
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "check the records, and store nothing")
	c.Flags().StringVar(&o.state, "state", "", "file with how far the import has come (default FILE.state.json)")
	c.Flags().StringVar(&o.results, "results", "", "file for which record became which token, in CSV (default FILE.tokens.csv)")
	c.Flags().StringVar(&o.rejected, "rejects", "", "file for the records that were rejected, and why, in CSV (default FILE.rejects.csv)")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		protectProcess()
		return runImport(c, call, args[0], o)
	}, showImport)
}

func presetNames() (names []string) {
	for _, p := range bulkfile.Presets {
		names = append(names, p.Name)
	}
	return names
}

// importSummary is what an import did.
type importSummary struct {
	Records     int64  `json:"records"`
	Created     int64  `json:"created"`
	Existing    int64  `json:"existing"`
	Valid       int64  `json:"valid,omitzero"`
	Rejected    int64  `json:"rejected"`
	ResultFile  string `json:"results,omitzero"`
	RejectsFile string `json:"rejects,omitzero"`
}

func showImport(w io.Writer, v any) {
	s := v.(importSummary)
	printf(w, "records\t%d\ncreated\t%d\nexisting\t%d\nrejected\t%d\n", s.Records, s.Created, s.Existing, s.Rejected)
	if s.Valid > 0 {
		printf(w, "valid\t%d\n", s.Valid)
	}
	if s.ResultFile != "" {
		printf(w, "tokens in\t%s\n", s.ResultFile)
	}
	if s.Rejected > 0 {
		printf(w, "rejects in\t%s\n", s.RejectsFile)
	}
}

// importer is one run of the command.
type importer struct {
	c       *cobra.Command
	call    *client.Client
	options importOptions
	books   *importBooks
	meter   *importMeter
}

func runImport(c *cobra.Command, call *client.Client, name string, o importOptions) (any, error) {
	mapping, digest, err := mappingOf(o)
	if err != nil {
		return nil, err
	}
	keys, err := keysOf(o)
	if err != nil {
		return nil, err
	}
	file, size, err := openImport(c, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if name != "-" {
		o.state, o.results, o.rejected = cmp.Or(o.state, name+".state.json"), cmp.Or(o.results, name+".tokens.csv"), cmp.Or(o.rejected, name+".rejects.csv")
	}
	books, err := openBooks(o, importState{ImportID: access.NewID(), Size: size, Mapping: digest})
	if err != nil {
		return nil, err
	}
	defer books.close()
	im := &importer{c: c, call: call, options: o, books: books, meter: newMeter(c, file, size, books.state.Records)}
	if !books.state.Done {
		plain, _, err := keys.Decrypt(im.meter)
		if err != nil {
			return nil, &usageError{err}
		}
		batches, err := batchesOf(bufio.NewReaderSize(plain, 64<<10), mapping)
		if err != nil {
			return nil, err
		}
		err = im.run(c.Context(), batches)
		im.meter.end()
		if err != nil {
			return nil, err
		}
	}
	return books.state.summary(o), nil
}

// batcher sends the batches of a file to a channel, and leaves out the first
// records.
type batcher func(ctx context.Context, skip int64, out chan<- importBatch) error

// batchesOf reads a file that is decrypted: an export of tokens, or records.
func batchesOf(in *bufio.Reader, mapping *bulkfile.Mapping) (batcher, error) {
	if mapping == nil {
		exported, err := exportIn(in)
		if err != nil {
			return nil, err
		}
		if exported != nil {
			return exported.batches, nil
		}
	}
	records, err := bulkfile.NewReader(in, mapping)
	if err != nil {
		return nil, &usageError{err}
	}
	return func(ctx context.Context, skip int64, out chan<- importBatch) error {
		return readBatches(ctx, records, skip, out)
	}, nil
}

// mappingOf returns the mapping, or nil, and a digest of it.
func mappingOf(o importOptions) (*bulkfile.Mapping, string, error) {
	switch {
	case o.mapping != "" && o.preset != "":
		return nil, "", &usageError{errors.New("--mapping and --preset do not go together")}
	case o.preset != "":
		m := bulkfile.PresetNamed(o.preset)
		if m == nil {
			return nil, "", &usageError{errors.New("there is no such preset; --help lists them")}
		}
		return m, "preset " + o.preset, nil
	case o.mapping != "":
		b, err := readFile(o.mapping, "the mapping")
		if err != nil {
			return nil, "", err
		}
		m, err := bulkfile.ParseMapping(b)
		if err != nil {
			return nil, "", &usageError{err}
		}
		sum := sha256.Sum256(b)
		return m, hex.EncodeToString(sum[:]), nil
	}
	return nil, "", nil
}

func keysOf(o importOptions) (*bulkfile.Keys, error) {
	var keys bulkfile.Keys
	var passphrase []byte
	if o.passphraseFile != "" {
		b, err := readFile(o.passphraseFile, "the passphrase")
		if err != nil {
			return nil, err
		}
		passphrase = bytes.TrimRight(b, "\r\n")
	}
	for _, name := range o.identities {
		b, err := readFile(name, "the key")
		if err != nil {
			return nil, err
		}
		if err := keys.Add(b, passphrase); err != nil {
			return nil, &usageError{err}
		}
	}
	return &keys, nil
}

// openImport opens the file; the size of standard input is 0.
func openImport(c *cobra.Command, name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(c.InOrStdin()), 0, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, &usageError{errors.New("the file cannot be read")}
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, 0, &usageError{errors.New("the file is not a regular file; - is standard input")}
	}
	return f, info.Size(), nil
}

// Bounds on what is sent with one call.
const (
	importRecords = 1000
	importBytes   = 1 << 20
)

// importBatch is what one call sends. A record with an error is a blank line,
// so that the others keep their numbers.
type importBatch struct {
	first   int64 // the number of the first record, from 1
	records []bulkfile.Record
	lines   client.Lines
	export  bool // the lines are those of an export
}

// run sends the records that are not imported yet. The next batch is read while
// one is sent.
func (im *importer) run(ctx context.Context, read batcher) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	batches, failed := make(chan importBatch, 1), make(chan error, 1)
	go func() {
		defer close(batches)
		failed <- read(ctx, im.books.state.Records, batches)
	}()
	for b := range batches {
		if err := im.send(ctx, b); err != nil {
			return err
		}
	}
	if err := <-failed; err != nil {
		return err
	}
	if im.options.dryRun {
		return nil
	}
	im.books.state.Done = true
	return im.books.save()
}

// readBatches reads a file to its end, and leaves out the first records.
func readBatches(ctx context.Context, records bulkfile.Reader, skip int64, out chan<- importBatch) error {
	b := importBatch{first: skip + 1}
	flush := func() error {
		if len(b.records) == 0 {
			return nil
		}
		select {
		case out <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
		b = importBatch{first: b.first + int64(len(b.records))}
		return nil
	}
	for n := int64(1); ; n++ {
		r, err := records.Next()
		if errors.Is(err, io.EOF) {
			return flush()
		}
		if err != nil {
			return errors.Join(flush(), &usageError{err})
		}
		if n <= skip {
			continue
		}
		b.lines = append(append(b.lines, r.Request...), '\n')
		r.Request = nil
		b.records = append(b.records, r)
		if len(b.records) == importRecords || len(b.lines) >= importBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
}

// send imports a batch and notes what became of it.
func (im *importer) send(ctx context.Context, b importBatch) error {
	results, err := im.call.Tokens.Import(ctx, client.Import{ID: im.books.state.ImportID, FirstLine: b.first, DryRun: im.options.dryRun, Export: b.export}, b.lines)
	clear(b.lines)
	if err != nil {
		return err
	}
	byRecord := make(map[int64]api.ImportResult, len(results))
	for _, r := range results {
		if r.Status != api.ImportEnd {
			byRecord[r.Line] = r
		}
	}
	for i, r := range b.records {
		im.books.note(r, byRecord[b.first+int64(i)])
	}
	im.books.state.Records = b.first + int64(len(b.records)) - 1
	if err := im.books.save(); err != nil {
		return err
	}
	im.meter.tell(im.books.state)
	return nil
}

// note notes what became of one record. Rejects name line and field, and never
// a value.
func (b *importBooks) note(r bulkfile.Record, result api.ImportResult) {
	line := strconv.FormatInt(r.Line, 10)
	switch {
	case r.Err != nil:
		b.state.Rejected++
		b.rejects.add(line, r.OldID, r.Err.Field, r.Err.Message, "")
	case result.Status == api.ImportCreated || result.Status == api.ImportExisting:
		if result.Status == api.ImportCreated {
			b.state.Created++
		} else {
			b.state.Existing++
		}
		b.results.add(line, r.OldID, result.ID, result.Status)
	case result.Status == api.ImportValid:
		b.state.Valid++
	default:
		b.state.Rejected++
		b.noteRejected(line, r.OldID, result)
	}
}

func (b *importBooks) noteRejected(line, oldID string, result api.ImportResult) {
	if len(result.Errors) == 0 {
		b.rejects.add(line, oldID, "", plain(cmp.Or(result.Detail, "there is no result for it")), plain(result.Code))
	}
	for _, field := range slices.Sorted(maps.Keys(result.Errors)) {
		for _, message := range result.Errors[field] {
			b.rejects.add(line, oldID, plain(field), plain(message), plain(result.Code))
		}
	}
}

// importMeter counts what is read of the file, and tells how far the import has
// come: on a terminal in one line that changes, elsewhere now and then.
type importMeter struct {
	in      io.Reader
	c       *cobra.Command
	size    int64
	read    atomic.Int64
	began   time.Time
	before  int64 // records that an earlier run imported
	told    time.Time
	inPlace bool
}

func newMeter(c *cobra.Command, in io.Reader, size, before int64) *importMeter {
	return &importMeter{in: in, c: c, size: size, before: before, began: time.Now(), told: time.Now(), inPlace: isTerminal(c.ErrOrStderr())}
}

func (m *importMeter) Read(p []byte) (int, error) {
	n, err := m.in.Read(p)
	m.read.Add(int64(n))
	return n, err
}

// How often progress is told.
const (
	tellOnTerminal = 200 * time.Millisecond
	tellElsewhere  = 10 * time.Second
)

func (m *importMeter) tell(s importState) {
	every := tellElsewhere
	if m.inPlace {
		every = tellOnTerminal
	}
	now := time.Now()
	if now.Sub(m.told) < every {
		return
	}
	m.told = now
	took := now.Sub(m.began)
	rate := float64(s.Records-m.before) / took.Seconds()
	line := "… " + strconv.FormatInt(s.Records, 10) + " records, " + strconv.FormatFloat(rate, 'f', 0, 64) + "/s, " + strconv.FormatInt(s.Rejected, 10) + " rejected"
	if read := m.read.Load(); m.size > 0 && read > 0 {
		left := time.Duration(float64(took) * float64(m.size-read) / float64(read))
		line += ", about " + left.Round(time.Second).String() + " left"
	}
	if m.inPlace {
		printf(m.c.ErrOrStderr(), "\r%-78s", line)
		return
	}
	printf(m.c.ErrOrStderr(), "%s\n", line)
}

// end ends the line that changes.
func (m *importMeter) end() {
	if m.inPlace {
		printf(m.c.ErrOrStderr(), "\r%-78s\r", "")
	}
}
