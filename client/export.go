package client

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/tokenkeep/tokenkeep/api"
)

var (
	createExport     = row{method: "POST", path: "/exports"}
	getExport        = row{method: "GET", path: "/exports/{id}"}
	approveExport    = row{method: "POST", path: "/exports/{id}/approve", reads: true} // approving it again changes nothing
	getExportContent = row{method: "GET", path: "/exports/{id}/content"}
)

// Exports give out tokens in bulk, encrypted to a recipient.
type Exports struct{ caller *caller }

// Create requests an export. It takes token:read with reveal on every token that
// is exported, which is decided when it is fetched.
func (e Exports) Create(ctx context.Context, in api.CreateExport) (api.Export, error) {
	return get[api.Export](ctx, e.caller, request{row: createExport, in: in})
}

// Get returns an export, to the application that requested it and to callers
// with tenant:update.
func (e Exports) Get(ctx context.Context, id string) (api.Export, error) {
	return get[api.Export](ctx, e.caller, request{row: getExport, ids: []string{id}})
}

// Approve approves an export of another application; in names what is approved.
// It takes tenant:update.
func (e Exports) Approve(ctx context.Context, id string, in api.CreateExport) (api.Export, error) {
	return get[api.Export](ctx, e.caller, request{row: approveExport, ids: []string{id}, in: in})
}

// Content writes the file of an export as it arrives: of any length, encrypted
// to the recipient. It is tried once, and has no timeout but that of ctx. After
// an error, what was written is cut off, which whoever opens it notices.
func (e Exports) Content(ctx context.Context, id string, to io.Writer) error {
	c, r := e.caller, getExportContent
	address, err := c.address(request{row: r, ids: []string{id}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, nil)
	if err != nil {
		return fmt.Errorf("client: %s: the request cannot be made", r)
	}
	req.Header.Set("User-Agent", "tokenkeep-go")
	if c.key != nil {
		req.Header.Set(api.Header(c.prefix, api.APIKey), c.key())
	}
	h := c.http
	h.Timeout = 0
	resp, err := h.Do(req)
	if err != nil {
		return c.broken(ctx, r, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, c.maxResponse))
		if err != nil {
			return c.broken(ctx, r, err)
		}
		return c.refused(r, received{resp.StatusCode, resp.Header, text})
	}
	if _, err := io.Copy(to, resp.Body); err != nil {
		return c.broken(ctx, r, err)
	}
	return nil
}
