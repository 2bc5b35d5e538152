package importing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/exportfile"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

var (
	errNotExport = fault.New(fault.Invalid, "the body must begin with the first line of an export").WithCode("export_invalid")
	errChanged   = fault.New(fault.Invalid, "the export was changed after it was signed, or is not sent segment by segment").WithCode("export_invalid")
)

// source is where the batches of an import come from. A batch without lines is
// the end.
type source interface {
	take() ([]line, error)
}

// take returns the next lines of a body of requests.
func (l *lines) take() ([]line, error) { return l.batch(maxBatchLines, maxBatchBytes) }

// segments are the lines of an export of tokens: its first line, and then whole
// segments, each of which is verified before its lines are imported. Only lines
// of tokens have numbers.
type segments struct {
	in       *lines
	number   int64
	verifier *exportfile.Verifier
	// trusted says that the key which signed the export is one that the tenant
	// trusts: its own, or one of the setting trusted_export_keys.
	trusted bool
	trusts  func(keyID string) (bool, error)
}

func (s *segments) take() ([]line, error) {
	if s.verifier == nil {
		if err := s.begin(); err != nil {
			return nil, err
		}
	}
	var list []line
	size := 0
	for {
		l, err := s.in.read()
		if err != nil {
			return nil, err
		}
		if l == nil {
			if len(list) > 0 {
				return nil, errChanged // a segment that is not whole
			}
			return nil, nil
		}
		text := exportfile.Line(bytes.TrimSuffix(l.text, []byte("\n")))
		switch exportfile.KindOf(l.text) {
		case exportfile.KindToken:
			s.verifier.Token(text)
			l.number, l.exported = s.number, s.trusted
			s.number++
			list = append(list, *l)
			if size += len(l.text); l.long || len(list) > exportfile.MaxTokens || size > exportfile.MaxBytes+s.in.max {
				return nil, errChanged
			}
		case exportfile.KindSegment:
			if s.verifier.Segment(text, false) != nil {
				return nil, errChanged
			}
			if len(list) > 0 {
				return list, nil
			}
		case exportfile.KindEnd:
			if len(list) > 0 {
				return nil, errChanged
			}
		default:
			return nil, errChanged
		}
	}
}

// begin reads the first line, and finds out whether its key is trusted.
func (s *segments) begin() error {
	l, err := s.in.read()
	if err != nil {
		return err
	}
	if l == nil {
		return errNotExport
	}
	if s.verifier, err = exportfile.NewVerifier(exportfile.Line(bytes.TrimSuffix(l.text, []byte("\n")))); err != nil {
		return errNotExport
	}
	s.trusted, err = s.trusts(exportfile.KeyID(s.verifier.Header().PublicKey))
	return err
}

// trusts reports whether a tenant trusts exports that a key has signed: its own
// key, and those that its settings name.
func (s *Service) trusts(ctx context.Context, keys *keyring.Keys, keyID string) (trusted bool, err error) {
	if keyID == exportfile.KeyID(string(keys.Verifier().PEM())) {
		return true, nil
	}
	err = s.store.View(ctx, keys.Tenant(), func(tx store.Tx) error {
		row, err := tx.TenantRow(ctx)
		if err != nil {
			return err
		}
		w, err := directory.WideningOf(row, keys)
		trusted = slices.Contains(w.TrustedExports(), keyID)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrNoTenant) {
		return false, errNoTenant
	}
	if err != nil {
		return false, fmt.Errorf("read settings: %w", err)
	}
	return trusted, nil
}
