package token

import (
	"context"
	"errors"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

var refuseExport = fault.New(fault.Forbidden, "an export takes token:read with transform reveal on every token in it").WithCode("reveal_required")

// Bounds on a part of an export: rows, and bytes of what is sealed in them. A
// part has at least one token.
var exportSizes = []int{200, 20, 1}

const maxExportBytes = 1 << 20

var errExportBytes = errors.New("token: a part of an export is too large")

// Export returns the next tokens that a filter chooses, from the position that
// start names, as requests that make them again: with their ids and with what
// they were given, and without security codes. next is the position to continue
// from; "" at the end. The caller needs token:read with reveal on each; tokens
// that it may not read are not there, as in a list. Every token is in the log
// before Export returns.
func (s *Service) Export(ctx context.Context, c access.Caller, f Filter, start string) (list []jsonvalue.Value, next string, err error) {
	keys, set, err := s.begin(ctx, c, access.TokenRead)
	if err != nil {
		return nil, "", err
	}
	after, err := openCursor(keys, start)
	if err != nil {
		return nil, "", err
	}
	m := matcher{c, access.Reveal, set}
	p, err := f.plan(keys, m)
	if err != nil {
		return nil, "", err
	}
	var rows []store.Token
	for _, size := range exportSizes {
		rows, err = s.exportRows(ctx, c, p, m, after, size)
		if !errors.Is(err, errExportBytes) {
			break
		}
	}
	if err != nil || len(rows) == 0 {
		return nil, "", err
	}
	if err := c.ChargeTokens(len(rows)); err != nil {
		return nil, "", err
	}
	err = s.update(ctx, c, func(tx store.Tx) error {
		entries := make([]store.LogEntry, len(rows))
		for i, row := range rows {
			entries[i] = audit.EntryThat(c, s.now(), row.Type, row.ID, audit.Read, "exported")
		}
		return tx.AppendLog(ctx, entries...)
	})
	if err != nil {
		return nil, "", fmt.Errorf("log what is exported: %w", err)
	}
	for _, row := range rows {
		line, err := exported(c, keys, row)
		if err != nil {
			return nil, "", err
		}
		list = append(list, line)
	}
	last := rows[len(rows)-1]
	next, err = sealCursor(keys, store.Position{CreatedAt: last.CreatedAt, ID: last.ID})
	return list, next, err
}

// exportRows reads rows, each of which the caller may reveal.
func (s *Service) exportRows(ctx context.Context, c access.Caller, p plan, m matcher, after *store.Position, size int) (rows []store.Token, err error) {
	err = s.store.View(ctx, c.Tenant(), func(tx store.Tx) error {
		sel, err := p.selection(ctx, tx, m, access.TokenRead, store.At(s.now()))
		if err != nil {
			return err
		}
		bytes := int64(0)
		sel.admit = func(n int64) error {
			if bytes += n; bytes > maxExportBytes && size > 1 {
				return errExportBytes
			}
			return c.ChargeMemory(rowWeight * n)
		}
		rows, err = sel.page(ctx, tx, store.Page{After: after, Limit: size})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read what is exported: %w", err)
	}
	for _, row := range rows {
		if !mayReveal(c, row) {
			return nil, access.About(access.Refuse(access.TokenRead, refuseExport), access.Entity{Type: row.Type, ID: row.ID})
		}
	}
	return rows, nil
}

// exported is the request that makes a token again. Short-lived fields are left
// out: a security code is never exported.
func exported(c access.Caller, keys *keyring.Keys, row store.Token) (jsonvalue.Value, error) {
	x, err := openRow(c, keys, row)
	if err != nil {
		return jsonvalue.Value{}, err
	}
	var b jsonvalue.Builder
	b.Add("kind", jsonvalue.NewString("token"))
	b.Add("id", jsonvalue.NewString(row.ID))
	b.Add("type", jsonvalue.NewString(row.Type))
	b.Add("data", x.data)
	containers := make([]jsonvalue.Value, len(row.Containers))
	for i, path := range row.Containers {
		containers[i] = jsonvalue.NewString(path)
	}
	b.Add("containers", jsonvalue.NewArray(containers))
	for _, part := range []struct {
		name  string
		value jsonvalue.Value
	}{{"mask", x.mask}, {"metadata", x.metadata}, {"search_indexes", x.indexes}, {"fingerprint_expression", x.expression}} {
		if !part.value.IsNull() {
			b.Add(part.name, part.value)
		}
	}
	if !row.Expiry.At.IsZero() {
		b.Add("expires_at", jsonvalue.NewString(expiryText(row.Expiry)))
	}
	b.Add("deduplicate_token", jsonvalue.NewBool(false)) // each token is itself
	b.Add("created_at", jsonvalue.NewString(timeText(row.CreatedAt)))
	return b.Value(), nil
}
