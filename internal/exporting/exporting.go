// Package exporting gives out tokens in bulk, encrypted to a recipient.
//
// It promises that an export is a read: the same decision about every token, in
// the log before it leaves, by a caller whose key is looked at before each part;
// that a tenant which asks for it has every export approved by another
// application, which names what is exported and to whom; and that memory is
// bounded whatever the number of tokens. It never writes plaintext anywhere, and
// never exports a security code.
package exporting

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"filippo.io/age"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/exportfile"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// Lifetime is how long an export may be approved and fetched.
const Lifetime = 24 * time.Hour

var (
	errNoExport  = fault.New(fault.NotFound, "no such export")
	errNoTenant  = fault.New(fault.NotFound, "no such tenant")
	errRecipient = fault.Field("recipient", "must be an age recipient, as in age1…")
	errType      = fault.Field("types", "holds a text that is not a type of tokens")
	errContainer = fault.Field("container", "must be a path such as /group/level/, or one with * at its end")
	errApproval  = fault.New(fault.Forbidden, "the export waits for the approval of another application").WithCode("approval_required")
	errOwn       = fault.New(fault.Forbidden, "an export must be approved by another application than the one that requested it").WithCode("own_export")
	errMismatch  = fault.New(fault.Conflict, "the recipient or the filter is not that of the export").WithCode("export_mismatch")
	errChanged   = fault.New(fault.Conflict, "the export was changed meanwhile").RetryAfter(time.Second)
)

// Filter chooses what is exported. The zero Filter is everything that the caller
// may read.
type Filter struct {
	Container string   `json:"container,omitempty"` // one that a token has; with * at its end, or one under it
	Types     []string `json:"types,omitempty"`
}

// Request asks for an export, or names the one that is approved.
type Request struct {
	Recipient string `json:"recipient"`
	Filter    Filter `json:"filter"`
}

// Export is a requested export. Its JSON form is what is stored, sealed.
type Export struct {
	ID string `json:"id"`
	Request
	RequestedBy string    `json:"requested_by"`
	CreatedAt   time.Time `json:"created_at"`
	ExpiresAt   time.Time `json:"expires_at"`
	ApprovedBy  string    `json:"approved_by,omitempty"`
	ApprovedAt  time.Time `json:"approved_at,omitzero"`

	// Waits says that it can be fetched only when it is approved.
	Waits bool `json:"-"`
}

// Service exports tokens. Its methods are safe for concurrent use.
type Service struct {
	store  store.Store
	ring   *keyring.Ring
	tokens *token.Service
	now    func() time.Time
}

// New returns the service.
func New(s store.Store, ring *keyring.Ring, tokens *token.Service, now func() time.Time) *Service {
	return &Service{store: s, ring: ring, tokens: tokens, now: now}
}

func (r Request) check() error {
	if _, err := age.ParseX25519Recipient(r.Recipient); err != nil {
		return errRecipient // the library's words quote it
	}
	for _, name := range r.Filter.Types {
		if !slices.ContainsFunc(token.Types(), func(t token.Type) bool { return t.Name == name }) {
			return errType
		}
	}
	path := r.Filter.Container
	if len(path) > 0 && path[len(path)-1] == '*' {
		path = path[:len(path)-1]
	}
	if _, ok := access.NormalizeContainer(path); path != "" && !ok {
		return errContainer
	}
	return nil
}

func (r Request) equal(other Request) bool {
	return r.Recipient == other.Recipient && r.Filter.Container == other.Filter.Container && slices.Equal(slices.Sorted(slices.Values(r.Filter.Types)), slices.Sorted(slices.Values(other.Filter.Types)))
}

// Create requests an export. The caller needs token:read with reveal on every
// token that is exported, which is decided when it is fetched.
func (s *Service) Create(ctx context.Context, c access.Caller, in Request) (Export, error) {
	if err := c.RequireSomewhere(access.TokenRead); err != nil {
		return Export{}, err
	}
	if err := in.check(); err != nil {
		return Export{}, err
	}
	keys, err := s.keysOf(ctx, c)
	if err != nil {
		return Export{}, err
	}
	now := s.now().UTC()
	x := Export{ID: access.NewID(), Request: in, RequestedBy: actor(c), CreatedAt: now, ExpiresAt: now.Add(Lifetime)}
	err = s.update(ctx, c, func(tx store.Tx) error {
		if x.Waits, err = waits(ctx, tx, x); err != nil {
			return err
		}
		if err := put(ctx, tx, keys, x, 0); err != nil {
			return err
		}
		return tx.AppendLog(ctx, audit.EntryThat(c, s.now(), audit.Tenant, c.Tenant(), audit.Create, "export requested"))
	})
	return x, err
}

// actor names who requests and approves: an application, or a session of one.
func actor(c access.Caller) string {
	if c.Session() != "" {
		return c.Session()
	}
	return c.Application()
}

// waits reports whether an export has to be approved first.
func waits(ctx context.Context, tx store.Tx, x Export) (bool, error) {
	row, err := tx.TenantRow(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return false, errNoTenant
	}
	if err != nil {
		return false, fmt.Errorf("read tenant: %w", err)
	}
	set, err := directory.SettingsOf(row)
	return set.ExportApproval && x.ApprovedBy == "", err
}

// Get returns an export, to the one who requested it and to callers with
// tenant:update, who may approve it. For others there is none.
func (s *Service) Get(ctx context.Context, c access.Caller, id string) (Export, error) {
	x, _, err := s.find(ctx, c, id)
	if err != nil {
		return Export{}, err
	}
	if x.RequestedBy != actor(c) && c.Require(access.TenantUpdate) != nil {
		return Export{}, errNoExport
	}
	err = s.update(ctx, c, func(tx store.Tx) (err error) {
		if x.Waits, err = waits(ctx, tx, x); err != nil {
			return err
		}
		return tx.AppendLog(ctx, audit.EntryThat(c, s.now(), audit.Tenant, c.Tenant(), audit.Read, "export retrieved"))
	})
	return x, err
}

// Approve approves an export of another application. The approval names the
// recipient and the filter. The caller needs tenant:update: it could turn the
// setting off that asks for approval.
func (s *Service) Approve(ctx context.Context, c access.Caller, id string, in Request) (Export, error) {
	if err := c.Require(access.TenantUpdate); err != nil {
		return Export{}, err
	}
	x, version, err := s.find(ctx, c, id)
	if err != nil {
		return Export{}, err
	}
	switch {
	case x.RequestedBy == actor(c):
		return Export{}, access.Refuse(access.TenantUpdate, errOwn)
	case !x.Request.equal(in):
		return Export{}, errMismatch
	case x.ApprovedBy != "":
		return x, nil
	}
	x.ApprovedBy, x.ApprovedAt, x.Waits = actor(c), s.now().UTC(), false
	keys, err := s.keysOf(ctx, c)
	if err != nil {
		return Export{}, err
	}
	err = s.update(ctx, c, func(tx store.Tx) error {
		if err := put(ctx, tx, keys, x, version); err != nil {
			return err
		}
		return tx.AppendLog(ctx, audit.EntryThat(c, s.now(), audit.Tenant, c.Tenant(), audit.Update, "export approved"))
	})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return Export{}, errChanged
	}
	return x, err
}

// Begun is an export that may be fetched.
type Begun struct {
	service *Service
	export  Export
	keys    *keyring.Keys
}

// Begin decides whether the caller may fetch an export now: it must have
// requested it, and it must be approved where the tenant asks for that.
func (s *Service) Begin(ctx context.Context, c access.Caller, id string) (*Begun, error) {
	if err := c.RequireSomewhere(access.TokenRead); err != nil {
		return nil, err
	}
	x, _, err := s.find(ctx, c, id)
	if err != nil {
		return nil, err
	}
	if x.RequestedBy != actor(c) {
		return nil, errNoExport
	}
	keys, err := s.keysOf(ctx, c)
	if err != nil {
		return nil, err
	}
	err = s.update(ctx, c, func(tx store.Tx) error {
		waiting, err := waits(ctx, tx, x)
		if err != nil {
			return err
		}
		if waiting {
			return access.Refuse(access.TokenRead, errApproval)
		}
		return tx.AppendLog(ctx, audit.EntryThat(c, s.now(), audit.Tenant, c.Tenant(), audit.Read, "export begun"))
	})
	if err != nil {
		return nil, err
	}
	return &Begun{s, x, keys}, nil
}

// Write writes the export, encrypted. caller is called before each part and
// returns the caller as it is now. An error leaves a file that is cut off, which
// whoever reads it notices.
func (b *Begun) Write(ctx context.Context, caller func() (access.Caller, error), out io.Writer) error {
	recipient, err := age.ParseX25519Recipient(b.export.Recipient)
	if err != nil {
		return errors.New("the recipient of an export cannot be read") // it was checked
	}
	// What fails before this much is written has a response of its own.
	buffer := bufio.NewWriterSize(out, 64<<10)
	sealed, err := age.Encrypt(buffer, recipient)
	if err != nil {
		return fmt.Errorf("encrypt an export: %w", err)
	}
	file, err := exportfile.NewWriter(sealed, exportfile.Header{
		ExportID: b.export.ID, TenantID: b.keys.Tenant(), Recipient: b.export.Recipient, Container: b.export.Filter.Container, Types: b.export.Filter.Types,
		CreatedAt: b.service.now().UTC(), PublicKey: string(b.keys.Verifier().PEM()),
	}, b.keys.Sign)
	if err != nil {
		return fmt.Errorf("begin an export: %w", err)
	}
	filter := token.Filter{Types: b.export.Filter.Types, Container: b.export.Filter.Container}
	var last access.Caller
	for start, more := "", true; more; more = start != "" {
		if last, err = caller(); err != nil {
			return err
		}
		if start, err = b.part(ctx, last, filter, start, file); err != nil {
			return err
		}
	}
	if _, err := file.Close(); err != nil {
		return fmt.Errorf("end an export: %w", err)
	}
	if err := sealed.Close(); err != nil {
		return fmt.Errorf("end an export: %w", err)
	}
	err = b.service.update(ctx, last, func(tx store.Tx) error {
		return tx.AppendLog(ctx, audit.EntryThat(last, b.service.now(), audit.Tenant, last.Tenant(), audit.Read, "export finished"))
	})
	if err != nil {
		return err
	}
	if err := buffer.Flush(); err != nil {
		return fmt.Errorf("end an export: %w", err)
	}
	return nil
}

// part writes the next tokens, and returns where to continue.
func (b *Begun) part(ctx context.Context, c access.Caller, f token.Filter, start string, file *exportfile.Writer) (next string, err error) {
	c, release := c.Holding()
	defer release()
	list, next, err := b.service.tokens.Export(ctx, c, f, start)
	if err != nil || len(list) == 0 {
		return "", err
	}
	lines := linesOf(list)
	defer clear(lines)
	if err := file.WriteSegment(lines, int64(len(list))); err != nil {
		return "", fmt.Errorf("write a part of an export: %w", err)
	}
	return next, nil
}

// linesOf writes values as lines of JSON. They leave encrypted.
func linesOf(list []jsonvalue.Value) []byte {
	var b bytes.Buffer
	for _, v := range list {
		_ = v.WriteJSON(&b) // a buffer takes everything
		_ = b.WriteByte('\n')
	}
	return b.Bytes()
}

// find reads an export that is not over, and its version.
func (s *Service) find(ctx context.Context, c access.Caller, id string) (x Export, version int64, err error) {
	keys, err := s.keysOf(ctx, c)
	if err != nil {
		return x, 0, err
	}
	var p store.Parcel
	err = s.store.View(ctx, c.Tenant(), func(tx store.Tx) (err error) {
		p, err = tx.Parcel(ctx, store.ParcelExport, id)
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && p.ExpiresAt <= store.At(s.now()):
		return x, 0, errNoExport
	case errors.Is(err, store.ErrNoTenant):
		return x, 0, errNoTenant
	case err != nil:
		return x, 0, fmt.Errorf("read an export: %w", err)
	}
	text, err := s.ring.OpenParcel(ctx, keys, p)
	if err != nil {
		return x, 0, fmt.Errorf("open an export: %w", err)
	}
	if json.Unmarshal(text, &x) != nil {
		return x, 0, errors.New("decode an export")
	}
	return x, p.Version, nil
}

// put stores an export in place of the one of a version.
func put(ctx context.Context, tx store.Tx, keys *keyring.Keys, x Export, version int64) error {
	text, err := json.Marshal(x)
	if err != nil {
		return errors.New("encode an export")
	}
	p := store.Parcel{
		Kind: store.ParcelExport, ID: x.ID, Owner: x.RequestedBy, CreatedAt: store.At(x.CreatedAt), ExpiresAt: store.At(x.ExpiresAt), Version: version + 1,
	}
	if err := keys.SealParcel(&p, nil, text); err != nil {
		return fmt.Errorf("seal an export: %w", err)
	}
	if version == 0 {
		return tx.InsertParcel(ctx, p)
	}
	return tx.ReplaceParcel(ctx, p)
}

func (s *Service) keysOf(ctx context.Context, c access.Caller) (*keyring.Keys, error) {
	keys, err := s.ring.For(ctx, c.Tenant())
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return nil, errNoTenant
	}
	if err != nil {
		return nil, fmt.Errorf("get keys: %w", err)
	}
	return keys, nil
}

func (s *Service) update(ctx context.Context, c access.Caller, fn func(store.Tx) error) error {
	err := s.store.Update(ctx, c.Tenant(), fn)
	if errors.Is(err, store.ErrNoTenant) {
		return errNoTenant
	}
	return err
}
