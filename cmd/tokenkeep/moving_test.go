package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// TestManyCardsMoveWithFiveKills imports an encrypted file by a command that is
// killed five times, exports it, and imports it into another vault.
func TestManyCardsMoveWithFiveKills(t *testing.T) {
	storetest.Long(t)
	n := 4_000
	if storetest.All() {
		n = 100_000
	}
	x := openTill(t)
	dir := t.TempDir()
	file, identity := encrypted(t, dir, cardsFile(n))
	args := []string{"import", file, "--identity", identity, "--preset", "cards"}
	for kill := range 5 {
		killed(t, int64((kill+1)*n/7), file+".state.json", args)
	}
	last := tokenkeep(t, args...)
	if out, err := last.CombinedOutput(); err != nil {
		t.Fatalf("the last import: %v %s", err, out)
	}
	ids, olds := map[string]bool{}, map[string]bool{}
	for _, line := range readLines(t, file+".tokens.csv")[1:] {
		fields := strings.Split(line, ",")
		olds[fields[1]], ids[fields[2]] = true, true
	}
	before := valuesOf(t, x)
	if len(ids) != n || len(olds) != n || len(before) != n {
		t.Fatalf("%d tokens of %d records, and %d in the vault; want %d of each", len(ids), len(olds), len(before), n)
	}

	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	exported := filepath.Join(dir, "tokens.age")
	x.done("", "export", "--recipient", key.Recipient().String(), "--out", exported)
	y := openTill(t)
	wantLine(t, y.done("", "import", exported, "--identity", mustWrite(t, filepath.Join(dir, "key2.txt"), key.String())), fmt.Sprintf(`created +%d`, n))
	after := valuesOf(t, y)
	for id, value := range before {
		if after[id] != value {
			t.Fatalf("a token is not what it was")
		}
	}
	for _, folder := range []string{dir, x.data, y.data} {
		noCards(t, folder, n)
	}
}

// tokenkeep is a command in a process of its own.
func tokenkeep(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asTokenkeep+"=1")
	return cmd
}

// killed runs an import until its state says that it has come so far, and kills
// it.
func killed(t *testing.T, records int64, state string, args []string) {
	t.Helper()
	cmd := tokenkeep(t, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	waittest.Until(t, "the import has come far enough", func() bool {
		var s importState
		text, err := os.ReadFile(state)
		return err == nil && json.Unmarshal(text, &s) == nil && s.Records >= records
	})
	_ = cmd.Process.Kill() // it may have ended by itself
	waittest.Receive(t, "the end of the import", ended)
}

// valuesOf reads all tokens of a vault.
func valuesOf(t *testing.T, x *till) map[string]string {
	t.Helper()
	c, err := client.New(x.keys.BaseURL, client.WithKey(x.keys.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for token, err := range c.Tokens.ListFrom(t.Context(), client.TokenFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		metadata, _ := json.Marshal(token.Metadata)
		all[token.ID] = token.Type + string(token.Data) + string(metadata) + strings.Join(token.Containers, " ")
	}
	return all
}

// noCards looks for card numbers in all files of a folder.
func noCards(t *testing.T, folder string, n int) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i := 0; i < n; i += n/50 + 1 {
			if bytes.Contains(text, []byte(cardNumber(i))) {
				return fmt.Errorf("%s holds a card number", d.Name())
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
