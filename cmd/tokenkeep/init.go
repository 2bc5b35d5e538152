package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/keyring/localkms"
)

// errInitialized tells that a file of 'tokenkeep init' exists. It is never
// overwritten: data under a lost key is lost.
var errInitialized = errors.New("the folder has a tokenkeep.yaml or a kek already, and nothing was changed: choose another with --dir, or edit that file")

func initCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "init",
		Short: "Write a configuration file and a key-encryption key to start from",
		Long: `Writes two files into a folder: tokenkeep.yaml, which has every setting with its
meaning and its default, and kek, a new key-encryption key that only you can read.
Nothing that exists is overwritten. Keep a copy of the key away from the machine
and away from its backups.`,
		Example: "  tokenkeep init --dir /etc/tokenkeep --data /var/lib/tokenkeep\n  tokenkeep serve --config /etc/tokenkeep/tokenkeep.yaml",
		Args:    cobra.NoArgs,
	}
	dir := c.Flags().String("dir", "/etc/tokenkeep", "folder for the two files; it is created if need be")
	data := c.Flags().String("data", "/var/lib/tokenkeep", "data folder that the configuration names")
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		file, kek, err := initialize(*dir, *data)
		if err != nil {
			return err
		}
		return show(c, *asJSON, map[string]string{"config": file, "kek": kek}, func(w io.Writer, _ any) {
			printf(w, `Wrote %[1]s and the key-encryption key %[2]s.

Next:
  1. copy %[2]s to a safe place, apart from this machine and its backups
  2. set addr and TLS in %[1]s
  3. tokenkeep config check --config %[1]s
  4. tokenkeep serve --config %[1]s
`, file, kek)
		})
	}
	return c
}

func initialize(dir, data string) (file, kek string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", "", err
	}
	if data, err = filepath.Abs(data); err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", "", fmt.Errorf("make the folder %s: %w", dir, err)
	}
	file, kek = filepath.Join(dir, "tokenkeep.yaml"), filepath.Join(dir, "kek")
	for _, name := range []string{file, kek} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return "", "", errInitialized
		}
	}
	if _, err := localkms.Generate(kek); err != nil {
		return "", "", err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", "", fmt.Errorf("write %s: %w", file, err)
	}
	_, err = f.Write(settingsFile(map[string]string{"data": data, "kek.file": kek}))
	return file, kek, errors.Join(err, f.Close())
}

// settingsFile has every setting that a file may have: those in set as
// they are, and the others as comments with their defaults.
func settingsFile(set map[string]string) []byte {
	var b bytes.Buffer
	b.WriteString(`# Configuration of Tokenkeep. Every setting is below with its default; remove the
# leading # to change one. 'tokenkeep config check' says whether a server would
# start with it. Environment variables (TOKENKEEP_ADDR, ...) and flags win over this
# file. Secrets are set by environment variables only: docs/configuration.md has them.
`)
	for _, s := range config.Settings() {
		if s.Secret {
			continue
		}
		b.WriteString("\n")
		for _, line := range wrapped(s.Doc, 78) {
			b.WriteString("# " + line + "\n")
		}
		if value, ok := set[s.Name]; ok {
			fmt.Fprintf(&b, "%s: %s\n", s.Name, scalar(value))
			continue
		}
		fmt.Fprintf(&b, "#%s: %s\n", s.Name, scalar(s.Default))
	}
	return b.Bytes()
}

// plainScalar are texts that YAML reads as they are.
var plainScalar = regexp.MustCompile(`^[A-Za-z0-9/._][A-Za-z0-9/._:,+-]*$`)

// scalar returns a text as a value in YAML.
func scalar(s string) string {
	if plainScalar.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

// wrapped divides a text into lines of at most so many characters.
func wrapped(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}
