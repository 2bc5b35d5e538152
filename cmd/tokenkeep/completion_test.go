package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBashCompletes has a bash that knows the script complete lines, with
// nothing of the package bash-completion loaded.
func TestBashCompletes(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("bash is not installed")
	}
	desk(t)
	for _, name := range []string{"shop", "staging"} {
		if got := given(t, shopKey, "profile", "add", name, "--url", "https://vault.example"); got.code != 0 {
			t.Fatal(got)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := mustWrite(t, filepath.Join(dir, "tokenkeep"), fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", asTokenkeep, self))
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	for typed, want := range map[string][]string{
		"tokenkeep de":                              {"detokenize", "dev"},
		"tokenkeep token ":                          {"create", "delete", "get", "list", "reveal", "search", "update"},
		"tokenkeep log list --fo":                   {"--follow"},
		"tokenkeep profile use s":                   {"shop", "staging"},
		"tokenkeep token list --profile sh":         {"shop"},
		"tokenkeep token create --type card":        {"card", "card_number"},
		"tokenkeep access who --permission session": {"session:read", "session:delete"},
		"tokenkeep token get ":                      nil,
	} {
		words := strings.Split(typed, " ")
		script := fmt.Sprintf(`source <(tokenkeep completion bash) || exit 1
complete -p tokenkeep >/dev/null || exit 1
COMP_WORDS=(%s) COMP_CWORD=%d COMP_LINE=%q COMP_POINT=%d COMP_TYPE=9
__start_tokenkeep 2>/dev/null
printf '%%s\n' "${COMPREPLY[@]}"`, "'"+strings.Join(words, "' '")+"'", len(words)-1, typed, len(typed))
		cmd := exec.Command("bash", "--norc", "--noprofile", "-c", script)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		var got []string
		for line := range strings.Lines(string(out)) {
			if word, _, _ := strings.Cut(strings.TrimSpace(line), " "); word != "" {
				got = append(got, word)
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q completes to %q, %v, want %q", typed, got, err, want)
		}
	}
}

func TestScriptsForOtherShells(t *testing.T) {
	for shell, want := range map[string]string{"zsh": "#compdef tokenkeep", "fish": "complete -c tokenkeep"} {
		got := call(t, "completion", shell)
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("completion %s = %d, without %q", shell, got.code, want)
		}
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		cmd := exec.Command(shell, "-n", mustWrite(t, filepath.Join(t.TempDir(), "script"), got.out))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s does not take its script: %v: %s", shell, err, out)
		}
	}
}
