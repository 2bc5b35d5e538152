package main

import (
	"io"

	"github.com/spf13/cobra"
)

// withoutPackage stands in for the one function that the script for bash asks
// of the package bash-completion, where that is not installed.
const withoutPackage = `if ! declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
    _get_comp_words_by_ref() {
        words=("${COMP_WORDS[@]}")
        cword=$COMP_CWORD
        cur=${words[cword]}
        prev=${words[cword - 1]}
    }
fi

`

func completionCommand() *cobra.Command {
	shell := func(name, example string, write func(root *cobra.Command, w io.Writer) error) *cobra.Command {
		return &cobra.Command{
			Use: name, Short: "Print the script that completes commands and flags in " + name,
			Example: example, Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
			RunE: func(c *cobra.Command, _ []string) error { return write(c.Root(), c.OutOrStdout()) },
		}
	}
	return group("completion", "Print a script that completes commands, flags and profiles in your shell",
		shell("bash", "  source <(tokenkeep completion bash)   # also in ~/.bashrc", func(root *cobra.Command, w io.Writer) error {
			if _, err := io.WriteString(w, withoutPackage); err != nil {
				return err
			}
			return root.GenBashCompletionV2(w, true)
		}),
		shell("zsh", "  tokenkeep completion zsh > \"${fpath[1]}/_tokenkeep\"", func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) }),
		shell("fish", "  tokenkeep completion fish > ~/.config/fish/completions/tokenkeep.fish", func(root *cobra.Command, w io.Writer) error {
			return root.GenFishCompletion(w, true)
		}))
}
