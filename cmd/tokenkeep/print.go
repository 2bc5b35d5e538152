package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/internal/admin"
)

func jsonFlag(c *cobra.Command) *bool { return c.Flags().Bool("json", false, "print JSON") }

// show prints a value.
func show(c *cobra.Command, asJSON bool, v any, table func(w io.Writer, v any)) error {
	if asJSON {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return errors.New("the answer cannot be written as JSON")
		}
		_, err := io.WriteString(c.OutOrStdout(), plainJSON(b.Bytes()))
		return err
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	table(w, v)
	return w.Flush()
}

// printLine prints a value as one line of JSON.
func printLine[T any](w io.Writer, v T) error {
	b, err := json.Marshal(v)
	if err != nil {
		return errors.New("the answer cannot be written as JSON")
	}
	_, err = io.WriteString(w, plainJSON(append(b, '\n')))
	return err
}

// tell shows on the error stream how far long work has come.
func tell(c *cobra.Command) func(admin.Progress) error {
	return func(p admin.Progress) error {
		_, err := fmt.Fprintf(c.ErrOrStderr(), "… %s\n", p.Doing)
		return err
	}
}

func printf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

func limitFlag(c *cobra.Command) *uint {
	return c.Flags().Uint("limit", 100, "how many at most; 0 for all")
}

func tellMore(c *cobra.Command) {
	printf(c.ErrOrStderr(), "… there are more; --limit 0 lists all\n")
}

// tellTrouble tells why there was nothing to follow just now.
func tellTrouble(c *cobra.Command, err error) {
	_, sentence := explain(err)
	printf(c.ErrOrStderr(), "… %s; looking again\n", sentence)
}

// upTo reads a list up to a limit, or to its end.
func upTo[T any](c *cobra.Command, limit uint, list iter.Seq2[T, error]) (any, error) {
	all := []T{}
	for item, err := range list {
		if err != nil {
			return nil, err
		}
		if limit > 0 && uint(len(all)) == limit {
			tellMore(c)
			break
		}
		all = append(all, item)
		tellCount(c, len(all))
	}
	return all, nil
}

// tellCount shows whoever looks on how far a long list has come.
func tellCount(c *cobra.Command, n int) {
	if n%1000 == 0 && isTerminal(c.ErrOrStderr()) {
		printf(c.ErrOrStderr(), "… %d so far\n", n)
	}
}

func isTerminal(s any) bool {
	f, ok := s.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// at writes an instant for people; nothing for none.
func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// fields prints names and values of one thing, without those that are empty.
func fields(w io.Writer, pairs ...string) {
	for pair := range slices.Chunk(pairs, 2) {
		if name, value := pair[0], pair[len(pair)-1]; value != "" {
			printf(w, "%s\t%s\n", plain(name), plain(value))
		}
	}
}

// plain makes a text fit for a line of a terminal: somebody else wrote it.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// plainJSON is plain for JSON, of which it keeps the meaning and the lines.
func plainJSON(text []byte) string {
	var b strings.Builder
	for _, r := range string(text) {
		if r == '\n' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			printf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}
