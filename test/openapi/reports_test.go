package openapi_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/client"
)

// walkReports reads all reports, and what there is about the log as a whole.
func walkReports(ctx context.Context, t *testing.T, c *client.Client) {
	t.Helper()
	check := func(name string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s = %v", name, err)
		}
	}
	_, err := c.Reports.Activity(ctx, client.ActivityFilter{Bucket: "minute"})
	check("Reports.Activity", err)
	_, err = c.Reports.KeysPage(ctx, 1, 10)
	check("Reports.KeysPage", err)
	_, err = c.Reports.AccessPage(ctx, time.Unix(1, 0), 1, 10)
	check("Reports.AccessPage", err)
	_, err = c.Reports.Attention(ctx)
	check("Reports.Attention", err)
	check("Logs.Export", c.Logs.Export(ctx, client.LogFilter{Operation: "read"}, "csv", io.Discard))
	_, err = c.Logs.Integrity(ctx)
	check("Logs.Integrity", err)
	v, err := c.Logs.Verify(ctx)
	check("Logs.Verify", err)
	_, err = c.Logs.Verification(ctx, v.ID)
	check("Logs.Verification", err)
}
