package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

func tokenCommand() *cobra.Command {
	return group("token", "Make, read, change, find and delete tokens, over the API",
		tokenCreateCommand(), tokenGetCommand(), tokenRevealCommand(), tokenListCommand(), tokenUpdateCommand(), tokenDeleteCommand(), tokenSearchCommand())
}

// atMostFlag lets a read of tokens ask for less than the rules allow.
func atMostFlag(c *cobra.Command) (options func() []client.CallOption) {
	transform := c.Flags().String("transform", "", "show at most this: mask or redact (default: what the key's access allows)")
	_ = c.RegisterFlagCompletionFunc("transform", cobra.FixedCompletions([]string{"mask", "redact", "reveal"}, cobra.ShellCompDirectiveNoFileComp))
	return func() []client.CallOption {
		if !c.Flags().Changed("transform") {
			return nil
		}
		return []client.CallOption{client.AtMost(*transform)}
	}
}

// completeTypes lets shells complete the names of types.
func completeTypes(c *cobra.Command) {
	var names []string
	for _, t := range token.Types() {
		names = append(names, t.Name)
	}
	_ = c.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

func tokenCreateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "create", Short: "Protect a value and print its token, masked",
		Long: `Reads the value as JSON from standard input, or from a file, and keeps it as a
token. The value is never an argument: those are seen by every process on the
machine, and shells keep them. With --text the input is one text, without the
line's end; that is the way for numbers whose digits are a text, such as those
of cards.`,
		Example: `  tokenkeep token create --type card < card.json
  printf 4242424242424242 | tokenkeep token create --type card_number --text
  tokenkeep token create --type token --data-file person.json --metadata order=1001 --expires-at 2030-12-31T00:00:00Z`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	read := inputFlag(c, "the value, in JSON")
	text := c.Flags().Bool("text", false, "take the input as a text and not as JSON")
	var in api.CreateToken
	c.Flags().StringVar(&in.Type, "type", "", "type of the token")
	_ = c.MarkFlagRequired("type")
	completeTypes(c)
	c.Flags().StringVar(&in.ID, "id", "", "id, or an expression for it (default: a UUID)")
	c.Flags().StringArrayVar(&in.Containers, "container", nil, "container, such as /pci/high/; may be repeated (default: that of the type)")
	metadata := c.Flags().StringArray("metadata", nil, "key=value, not sensitive; may be repeated")
	mask := c.Flags().String("mask", "", "expression, or JSON that holds expressions, for what masked data shows (default: that of the type)")
	c.Flags().StringArrayVar(&in.SearchIndexes, "search-index", nil, "expression by which the token is found; may be repeated (default: those of the type)")
	c.Flags().StringVar(&in.FingerprintExpression, "fingerprint-expression", "", "expression for what makes two tokens equal (default: that of the type)")
	deduplicate := c.Flags().Bool("deduplicate", false, "return an equal token instead of making another (default: the tenant's setting)")
	c.Flags().StringVar(&in.ExpiresAt, "expires-at", "", "instant from which on the token is gone, such as 2030-12-31T00:00:00Z")
	once := onceFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		var err error
		if in.Metadata, err = pairs(*metadata, errPair); err != nil {
			return nil, err
		}
		if *mask != "" {
			in.Mask = maskOf(*mask)
		}
		if c.Flags().Changed("deduplicate") {
			in.DeduplicateToken = deduplicate
		}
		if *text {
			b, err := read(c)
			if err != nil {
				return nil, err
			}
			in.Data = strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
		} else if in.Data, err = inputJSON(read(c)); err != nil {
			return nil, err
		}
		return call.Tokens.Create(c.Context(), in, once()...)
	}, showToken)
}

// maskOf takes JSON as JSON and everything else as an expression.
func maskOf(s string) any {
	if json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	return s
}

var errPair = &usageError{errors.New("--metadata takes key=value, and each key once")}

func pairs(list []string, fault error) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(list))
	for _, s := range list {
		key, value, ok := strings.Cut(s, "=")
		if _, twice := out[key]; !ok || key == "" || twice {
			return nil, fault
		}
		out[key] = value
	}
	return out, nil
}

func tokenGetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "get TOKEN", Short: "Print a token, revealed or masked, as the key's access has it",
		Example: "  tokenkeep token get my-card --json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	atMost := atMostFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return call.Tokens.Get(c.Context(), args[0], atMost()...)
	}, showToken)
}

func tokenRevealCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "reveal TOKEN", Short: "Print a token with its plaintext, for a reason that the log keeps",
		Long: `Prints a token with its plaintext. It takes token:read with reveal on every
container of the token; rules that require a reason reveal here and nowhere else.
The reason goes into the log: it must not hold what is protected.`,
		Example: "  tokenkeep token reveal my-card --reason 'Dispute 1742' --json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	reason := c.Flags().String("reason", "", "why, for the log")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return call.Tokens.Reveal(c.Context(), args[0], *reason)
	}, showToken)
}

// showToken prints a token as a table of its members.
func showToken(w io.Writer, v any) {
	t := v.(api.Token)
	fields(w, "token", t.ID, "type", t.Type, "data", plainJSON(t.Data), "containers", strings.Join(t.Containers, " "))
	for _, key := range slices.Sorted(maps.Keys(t.Metadata)) {
		fields(w, "metadata."+key, t.Metadata[key])
	}
	fields(w, "fingerprint", t.Fingerprint, "expires", t.ExpiresAt, "created", at(t.CreatedAt.Time), "modified", at(t.ModifiedAt.Time))
}

const tableWithoutData = "The table has no data; --json prints it,\nas far as the key's access goes. Every token that is shown is in the log."

func tokenListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List tokens, newest first",
		Long: "Lists the tokens that the key may read. " + tableWithoutData,
		Example: `  tokenkeep token list --type card --metadata order=1001
  tokenkeep token list --limit 0 --json > all.json`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	var f client.TokenFilter
	c.Flags().StringArrayVar(&f.IDs, "id", nil, "only this token; may be repeated")
	c.Flags().StringArrayVar(&f.Types, "type", nil, "only tokens of this type; may be repeated")
	completeTypes(c)
	metadata := c.Flags().StringArray("metadata", nil, "only tokens with this key=value; may be repeated")
	c.Flags().StringVar(&f.Container, "container", "", "only tokens of this container; with * behind it, or of one under it")
	c.Flags().StringVar(&f.Fingerprint, "fingerprint", "", "only tokens of this fingerprint")
	limit := limitFlag(c)
	atMost := atMostFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		var err error
		if f.Metadata, err = pairs(*metadata, errPair); err != nil {
			return nil, err
		}
		return gather(c, *limit, func(start string, size int) (api.ListFrom[api.Token], error) {
			return call.Tokens.PageFrom(c.Context(), f, start, size, atMost()...)
		})
	}, showTokens)
}

// gather reads a list up to a limit, and no token more: each is logged.
func gather(c *cobra.Command, limit uint, fetch func(start string, size int) (api.ListFrom[api.Token], error)) ([]api.Token, error) {
	const most = 100 // that the server gives at once
	list := []api.Token{}
	for start := ""; ; {
		size := most
		if limit > 0 {
			size = int(min(most, limit-uint(len(list))))
		}
		part, err := fetch(start, size)
		if err != nil {
			return nil, err
		}
		list = append(list, part.Data...)
		tellCount(c, len(list))
		next := part.Pagination.Next
		if next == "" || next == start || len(part.Data) == 0 {
			return list, nil
		}
		if limit > 0 && uint(len(list)) >= limit {
			tellMore(c)
			return list, nil
		}
		start = next
	}
}

func showTokens(w io.Writer, v any) {
	printf(w, "TOKEN\tTYPE\tCONTAINERS\tCREATED\tEXPIRES\n")
	for _, t := range v.([]api.Token) {
		printf(w, "%s\t%s\t%s\t%s\t%s\n", plain(t.ID), plain(t.Type), plain(strings.Join(t.Containers, " ")), at(t.CreatedAt.Time), plain(t.ExpiresAt))
	}
}

func tokenUpdateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "update TOKEN", Short: "Change a token by a merge patch and print it, masked",
		Long: `Reads a JSON object from standard input, or from a file. What it names is
changed: data, mask and metadata are merged, null removes a member, and the
other attributes are replaced. What it does not name stays.`,
		Example: `  echo '{"metadata":{"order":null},"expires_at":"2030-12-31T00:00:00Z"}' | tokenkeep token update my-card`,
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	read := inputFlag(c, "the merge patch, in JSON")
	once := onceFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		patch, err := inputJSON(read(c))
		if err != nil {
			return nil, err
		}
		return call.Tokens.Update(c.Context(), args[0], patch, once()...)
	}, showToken)
}

func tokenDeleteCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "delete TOKEN", Short: "Delete a token; there is no way back",
		Example: "  tokenkeep token delete my-card",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return deleted, call.Tokens.Delete(c.Context(), args[0])
	}, func(w io.Writer, _ any) { printf(w, "The token is deleted.\n") })
}

// asksForData finds the field whose values are protected.
var asksForData = regexp.MustCompile(`(^|[^A-Za-z0-9_.-])data:`)

var errDataQuery = &usageError{errors.New("a query for data holds a value to protect: give it on standard input, without an argument")}

func tokenSearchCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "search [QUERY]", Short: "Find tokens by a query",
		Long: `Finds the tokens that the key may search. Comparisons field:value are joined by
AND, OR, NOT and parentheses; fields are id, type, container, fingerprint, data,
metadata.KEY, created_by, created_at, modified_by and modified_at. Without an
argument the query is read from standard input: that is the way for data,
whose values are not for the eyes of every process.

` + tableWithoutData,
		Example: `  tokenkeep token search 'type:card AND metadata.order:1001'
  tokenkeep token search 'container:"/pci/*" AND created_at:[2030-01-01 TO *]'
  echo data:6789 | tokenkeep token search`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	limit := limitFlag(c)
	atMost := atMostFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		var query string
		if len(args) > 0 {
			query = args[0]
			if asksForData.MatchString(query) {
				return nil, errDataQuery
			}
		} else {
			b, err := readInput(c, c.InOrStdin())
			if err != nil {
				return nil, err
			}
			query = strings.TrimSpace(string(b))
		}
		return gather(c, *limit, func(start string, size int) (api.ListFrom[api.Token], error) {
			return call.Tokens.SearchPageFrom(c.Context(), query, start, size, atMost()...)
		})
	}, showTokens)
}

func tokenizeCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "tokenize", Short: "Put tokens in place of the values of any JSON",
		Long: `Reads JSON from standard input, or from a file, and prints the same structure: an
object with type and data becomes a token, any other value the id of one. All
tokens are made, or none.`,
		Example: fmt.Sprintf("  echo '%s' | tokenkeep tokenize", `{"name":"Jane Doe","card":{"type":"card","data":{"number":"4242424242424242"}}}`),
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	read := inputFlag(c, "the JSON")
	once := onceFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		in, err := inputJSON(read(c))
		if err != nil {
			return nil, err
		}
		return call.Tokenize(c.Context(), in, once()...)
	}, nil)
}

func detokenizeCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "detokenize", Short: "Put values in place of the expressions in any JSON",
		Long: `Reads JSON from standard input, or from a file, and prints the same structure
with values in place of expressions such as {{ TOKEN }}, as far as the key's
access goes. What is printed may be plaintext.`,
		Example: `  echo '{"to":"Dear {{ TOKEN }}"}' | tokenkeep detokenize`,
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	read := inputFlag(c, "the JSON")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		in, err := inputJSON(read(c))
		if err != nil {
			return nil, err
		}
		return call.Detokenize(c.Context(), in)
	}, nil)
}
