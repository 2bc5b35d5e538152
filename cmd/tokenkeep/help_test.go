package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/internal/config"
)

// leaves are all commands that do something.
func leaves(c *cobra.Command) (list []*cobra.Command) {
	for _, child := range c.Commands() {
		list = append(list, leaves(child)...)
	}
	if c.RunE != nil && (!c.HasSubCommands() || c.Flags().HasFlags()) && c.HasParent() {
		list = append(list, c)
	}
	return list
}

// printsNoJSON has the commands without --json, and why.
var printsNoJSON = map[string]string{
	"tokenkeep serve":            "prints its log",
	"tokenkeep dev":              "prints lines to paste",
	"tokenkeep help":             "prints help",
	"tokenkeep completion bash":  "prints a script",
	"tokenkeep completion zsh":   "prints a script",
	"tokenkeep completion fish":  "prints a script",
	"tokenkeep webhook listen":   "prints a line for each event that it posted",
	"tokenkeep audit checkpoint": "prints JSON and nothing else",
	"tokenkeep audit export":     "prints JSON and nothing else",
}

func TestEveryCommandHasHelpAnExampleAndJSON(t *testing.T) {
	all := leaves(rootCommand())
	for _, c := range all {
		name := c.CommandPath()
		if c.Short == "" {
			t.Errorf("%s says nothing of itself", name)
		}
		if (c.Flags().Lookup("json") != nil) == (printsNoJSON[name] != "") {
			t.Errorf("%s has --json: %t", name, c.Flags().Lookup("json") != nil)
		}
		if name == "tokenkeep help" {
			continue
		}
		if !strings.HasPrefix(c.Example, "  ") || !strings.Contains(c.Example, name) {
			t.Errorf("%s has no example of itself", name)
		}
		for text := range strings.Lines(c.Long) {
			if len([]rune(text)) > 86 {
				t.Errorf("%s: a line of its help is %d characters long: %s", name, len([]rune(text)), text)
			}
		}
	}
	if len(all) < 60 {
		t.Errorf("found %d commands: the search is wrong", len(all))
	}
}

// TestExamplesAreUnderstood parses every example of the help, without running it.
func TestExamplesAreUnderstood(t *testing.T) {
	for _, c := range leaves(rootCommand()) {
		example := strings.ReplaceAll(c.Example, "\\\n", "")
		for line := range strings.Lines(example) {
			_, typed, ok := strings.Cut(line, "tokenkeep ")
			if !ok {
				continue
			}
			if i := strings.IndexAny(typed, "<>|)#"); i >= 0 {
				typed = typed[:i]
			}
			found, rest, err := rootCommand().Find(words(typed))
			if err == nil {
				err = found.ParseFlags(rest)
			}
			if err == nil {
				err = found.ValidateArgs(found.Flags().Args())
			}
			if err == nil {
				err = found.ValidateRequiredFlags()
			}
			if err != nil {
				t.Errorf("%s has the example %q: %v", c.CommandPath(), strings.TrimSpace(line), err)
			}
		}
	}
}

// words splits a line as a shell does, as far as examples need it.
func words(line string) (list []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			list = append(list, part)
		} else {
			list = append(list, strings.Fields(part)...)
		}
	}
	return list
}

var stringFlag = regexp.MustCompile(`--([a-z-]+) string\S*\s+(.*)`)

// TestNoFlagTakesASecret: arguments are seen by every process on the machine.
func TestNoFlagTakesASecret(t *testing.T) {
	setting := make(map[string]bool)
	for _, s := range config.Settings() {
		setting[s.Flag()] = !s.Secret
	}
	flags := 0
	for _, c := range leaves(rootCommand()) {
		for _, m := range stringFlag.FindAllStringSubmatch(c.Flags().FlagUsages(), -1) {
			flags++
			for _, word := range []string{"key", "secret", "password", "nonce", "value", "number", "code", "args", "config", "body"} {
				if strings.Contains(m[1], word) && !strings.Contains(m[2], "file") && !setting[m[1]] && m[1] != "idempotency-key" {
					t.Errorf("%s --%s takes it as an argument", c.CommandPath(), m[1])
				}
			}
		}
	}
	if flags < 100 {
		t.Errorf("found %d flags: the search is wrong", flags)
	}
}
