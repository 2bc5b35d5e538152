package main

import (
	"fmt"
	"io"
	"iter"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
)

// group makes a command that only holds others.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(children...)
	return c
}

// operatorCommand makes a command that talks to the running server over its
// admin socket. It has --data and --json; what it prints is the value that run
// returns, as JSON or in the form that table gives it; a value that is itself
// bad news has a method failure.
func operatorCommand(c *cobra.Command, run func(c *cobra.Command, call *admin.Client, args []string) (any, error), table func(w io.Writer, v any)) *cobra.Command {
	data := dataFlag(c)
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		v, err := run(c, admin.NewClient(*data), args)
		if err != nil || v == nil {
			return err
		}
		err = show(c, *asJSON, v, table)
		if f, ok := v.(interface{ failure() error }); ok && err == nil {
			return f.failure()
		}
		return err
	}
	return c
}

// allPages goes through a list of the admin socket.
func allPages[T any](c *cobra.Command, call *admin.Client, path string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for page := 1; ; page++ {
			var out api.List[T]
			err := call.Call(c.Context(), http.MethodGet, fmt.Sprintf("%s?size=100&page=%d", path, page), nil, &out)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range out.Data {
				if !yield(item, nil) {
					return
				}
			}
			if int64(page) >= out.Pagination.TotalPages {
				return
			}
		}
	}
}
