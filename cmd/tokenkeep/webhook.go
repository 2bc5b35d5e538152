package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

func webhookCommand() *cobra.Command {
	return group("webhook", "Make, list, change, test and delete webhooks, and bring events to a local port, over the API",
		webhookCreateCommand(), webhookListCommand(), webhookGetCommand(), webhookUpdateCommand(), webhookRotateCommand(), webhookDeleteCommand(),
		webhookTestCommand(), webhookDeliveriesCommand(), webhookResendCommand(), webhookListenCommand())
}

// webhookFlags adds the flags of what a caller chooses of a webhook.
func webhookFlags(c *cobra.Command) *api.SetWebhook {
	in := &api.SetWebhook{}
	c.Flags().StringVar(&in.Name, "name", "", "name of the webhook")
	c.Flags().StringVar(&in.URL, "to", "", "address that gets the events")
	c.Flags().StringArrayVar(&in.Events, "event", nil, "type of events, such as token.created, 'token.*' or '*'; repeatable")
	return in
}

func webhookCreateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "create", Short: "Make a webhook and print it with its secret",
		Long: `Makes a webhook, which gets the events that happen from then on. Its secret signs
every message and is not shown again. It takes webhook:create.`,
		Example: "  tokenkeep webhook create --name orders --to https://shop.example.com/hooks --event 'token.*'",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	in := webhookFlags(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		return call.Webhooks.Create(c.Context(), *in)
	}, showWebhook)
}

func showWebhook(w io.Writer, v any) {
	h := v.(api.Webhook)
	printf(w, "webhook\t%s\nname\t%s\naddress\t%s\nevents\t%s\nstate\t%s\n", plain(h.ID), plain(h.Name), plain(h.URL), plain(strings.Join(h.Events, " ")), plain(h.State))
	fields(w, "disabled because", h.DisabledReason, "created", at(h.CreatedAt.Time), "modified", at(h.ModifiedAt.Time), "secret", h.Secret)
}

func webhookListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List webhooks, newest first",
		Example: "  tokenkeep webhook list --name 'ord*'",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	var f client.WebhookFilter
	c.Flags().StringVar(&f.Name, "name", "", "only webhooks whose name holds this; * stands for anything")
	limit := limitFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, _ []string) (any, error) {
		return upTo(c, *limit, call.Webhooks.List(c.Context(), f))
	}, func(w io.Writer, v any) {
		printf(w, "WEBHOOK\tNAME\tSTATE\tADDRESS\tEVENTS\n")
		for _, h := range v.([]api.Webhook) {
			printf(w, "%s\t%s\t%s\t%s\t%s\n", plain(h.ID), plain(h.Name), plain(h.State), plain(h.URL), plain(strings.Join(h.Events, " ")))
		}
	})
}

func webhookGetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "get WEBHOOK", Short: "Print a webhook without its secret",
		Example: "  tokenkeep webhook get WEBHOOK",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return call.Webhooks.Get(c.Context(), args[0])
	}, showWebhook)
}

var errBothStates = &usageError{errors.New("--enable and --disable exclude each other")}

func webhookUpdateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "update WEBHOOK", Short: "Change a webhook; what no flag names stays",
		Long: `Changes a webhook, except its secret. One that is enabled again gets the events
that happen from then on. It takes webhook:read and webhook:update.`,
		Example: "  tokenkeep webhook update WEBHOOK --enable",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	in := webhookFlags(c)
	enable := c.Flags().Bool("enable", false, "send events again")
	disable := c.Flags().Bool("disable", false, "send no more events")
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		if *enable && *disable {
			return nil, errBothStates
		}
		old, err := call.Webhooks.Get(c.Context(), args[0])
		if err != nil {
			return nil, err
		}
		next := api.SetWebhook{Name: old.Name, URL: old.URL, Events: old.Events, State: old.State}
		if in.Name != "" {
			next.Name = in.Name
		}
		if in.URL != "" {
			next.URL = in.URL
		}
		if len(in.Events) > 0 {
			next.Events = in.Events
		}
		switch {
		case *enable:
			next.State = "enabled"
		case *disable:
			next.State = "disabled"
		}
		return call.Webhooks.Replace(c.Context(), args[0], next)
	}, showWebhook)
}

func webhookRotateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "rotate-secret WEBHOOK", Short: "Give a webhook a new secret; the old one signs too for a day",
		Example: "  tokenkeep webhook rotate-secret WEBHOOK",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return call.Webhooks.RotateSecret(c.Context(), args[0])
	}, showWebhook)
}

func webhookDeleteCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "delete WEBHOOK", Short: "Delete a webhook; what waits for it is not sent",
		Example: "  tokenkeep webhook delete WEBHOOK",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return deleted, call.Webhooks.Delete(c.Context(), args[0])
	}, func(w io.Writer, _ any) { printf(w, "The webhook is deleted.\n") })
}

func showDelivery(w io.Writer, v any) {
	d := v.(api.Delivery)
	printf(w, "delivery\t%s\nevent\t%s\nentity\t%s\nstate\t%s\nattempts\t%d\n", plain(d.ID), plain(d.EventType), plain(d.EntityID), plain(d.State), d.Attempts)
	if d.ResponseStatus != 0 {
		printf(w, "status\t%d\n", d.ResponseStatus)
	}
	printf(w, "latency\t%d ms\n", d.LatencyMS)
}

func webhookTestCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "test WEBHOOK", Short: "Send a test to a webhook and print how it went",
		Example: "  tokenkeep webhook test WEBHOOK",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return call.Webhooks.Test(c.Context(), args[0])
	}, showDelivery)
}

func webhookDeliveriesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "deliveries WEBHOOK", Short: "List the deliveries to a webhook, newest first",
		Example: "  tokenkeep webhook deliveries WEBHOOK",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	limit := limitFlag(c)
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return upTo(c, *limit, call.Webhooks.Deliveries(c.Context(), args[0]))
	}, func(w io.Writer, v any) {
		printf(w, "DELIVERY\tEVENT\tENTITY\tSTATE\tATTEMPTS\tSTATUS\tLATENCY\n")
		for _, d := range v.([]api.Delivery) {
			printf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d ms\n", plain(d.ID), plain(d.EventType), plain(d.EntityID), plain(d.State), d.Attempts, d.ResponseStatus, d.LatencyMS)
		}
	})
}

func webhookResendCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "resend WEBHOOK DELIVERY", Short: "Send the event of a delivery again, under the same id",
		Example: "  tokenkeep webhook resend WEBHOOK DELIVERY",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: cobra.NoFileCompletions,
	}
	return apiCommand(c, func(c *cobra.Command, call *client.Client, args []string) (any, error) {
		return call.Webhooks.Resend(c.Context(), args[0], args[1])
	}, showDelivery)
}

var errForwardTo = &usageError{errors.New("--forward-to takes an address such as http://localhost:3000/hooks")}

func webhookListenCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "listen", Short: "Bring the events that come to an address that only this machine reaches",
		Long: `Follows the events of the tenant over the API and posts each to an address, as a
webhook would, without a webhook and without a public address. Messages are signed
after Standard Webhooks with a secret that it makes and prints when it begins, so
that the receiver can verify them as it will verify those of a webhook. --secret-file
names a secret of your own instead.

Each event is sent once: an address that does not take one is told of, and the next
event follows. It takes event:read.`,
		Example: "  tokenkeep webhook listen --forward-to http://localhost:3000/hooks --type 'token.*'",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	var f client.EventFilter
	typeFlag(c, &f.Types)
	to := c.Flags().String("forward-to", "", "address that gets the events")
	file := c.Flags().String("secret-file", "", "file with the secret that signs (default: a new one)")
	connect := apiFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		u, err := url.Parse(*to)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return errForwardTo
		}
		key, err := signingSecret(*file)
		if err != nil {
			return err
		}
		call, err := connect(keyNeeded)
		if err != nil {
			return err
		}
		if *file == "" {
			printf(c.OutOrStdout(), "Messages are signed with the secret %s\n", key.Reveal())
		}
		sender := jobs.Sender{Now: time.Now, Transport: func(string, time.Duration) http.RoundTripper { return http.DefaultTransport }}
		return followEvents(c, call, f, func(e api.Event) error {
			body, err := json.Marshal(e)
			if err != nil {
				return errors.New("an event cannot be written as JSON")
			}
			receipt := sender.Deliver(c.Context(), e.TenantID, jobs.Message{ID: e.ID, URL: *to, Body: body, Secrets: []secret.Text{key}})
			if receipt.Status == 0 {
				printf(c.OutOrStdout(), "%s %s: no answer\n", plain(e.Type), plain(e.ID))
			} else {
				printf(c.OutOrStdout(), "%s %s: %d\n", plain(e.Type), plain(e.ID), receipt.Status)
			}
			return nil
		})
	}
	return c
}

// signingSecret reads a secret from a file, or makes one.
func signingSecret(file string) (secret.Text, error) {
	if file == "" {
		var b [32]byte
		_, _ = rand.Read(b[:]) // never fails
		return secret.NewText("whsec_" + base64.StdEncoding.EncodeToString(b[:])), nil
	}
	b, err := readFile(file, "the secret")
	if err != nil {
		return secret.Text{}, err
	}
	text := strings.TrimSpace(string(b))
	if raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_")); err != nil || len(raw) == 0 {
		return secret.Text{}, &usageError{errors.New("the file with the secret does not hold one: it is whsec_ and base64")}
	}
	return secret.NewText(text), nil
}
