package token

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/base58"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// draft is a token that is complete but for its id, and not sealed yet.
type draft struct {
	contents
	shortLived  jsonvalue.Value // an object of short-lived members; null when there are none
	containers  []string
	expiry      store.Expiry
	terms       [][]byte
	deduplicate bool
	namer       namer
}

// draft checks a request and works out what is kept of it. It reads no store,
// so it runs before the transaction.
func (s *Service) draft(keys *keyring.Keys, set settings, r Request) (*draft, error) {
	var f fault.Fields
	kind := typeNamed(r.kind)
	switch {
	case r.kind == "":
		f.Add("type", "is required")
	case kind == nil:
		f.Add("type", "is not a type of tokens")
	}
	if r.data.IsNull() {
		f.Add("data", "is required")
	}
	expiry, err := s.expiry(r.expiresAt)
	if err != nil {
		f.Add("expires_at", fault.Of(err).Detail())
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	d := &draft{containers: r.containers, expiry: expiry, deduplicate: set.deduplicate}
	if r.deduplicate != nil {
		d.deduplicate = *r.deduplicate
	}
	if len(d.containers) == 0 {
		d.containers = []string{kind.Container}
	}
	normal := kind.normalize(&f, r.data)
	if err := f.Err(); err != nil {
		return nil, err
	}
	d.kind, d.mask, d.metadata, d.indexes, d.expression = kind, r.mask, r.metadata, r.indexes, r.expression
	d.data, d.shortLived = kind.split(normal)
	if !d.mask.IsNull() {
		if _, err := s.evaluateMask(d.mask, d.data, kind); err != nil {
			return nil, asField("mask", err)
		}
	}
	if err := s.find(keys, set, d); err != nil {
		return nil, err
	}
	d.namer, err = newNamer(r.id, kind, d.data)
	return d, err
}

var (
	errExpiry = fault.New(fault.Invalid, "must be a date and time, as in 8/26/2030 7:23:57 PM -07:00 or 2030-08-26T19:23:57-07:00, or a date, as in 8/26/2030")
	errPast   = fault.New(fault.Invalid, "must be in the future")
)

func (s *Service) expiry(text string) (store.Expiry, error) {
	if text == "" {
		return store.Expiry{}, nil
	}
	e, ok := parseExpiry(text)
	if !ok {
		return e, errExpiry
	}
	if e.At <= store.At(s.now()) {
		return e, errPast
	}
	return e, nil
}

// The names of terms. Keys of metadata hold no colon, so no two meet.
const (
	termFingerprint = "fingerprint"
	termIndex       = "index"
	termMetadata    = "metadata:"
)

// find works out the fingerprint and the terms by which the token is found.
func (s *Service) find(keys *keyring.Keys, set settings, d *draft) error {
	d.fingerprint = ""
	if set.fingerprint || !d.expression.IsNull() {
		if err := s.takeFingerprint(keys, d); err != nil {
			return err
		}
		d.addTerm(keys.IndexTerm(termFingerprint, d.fingerprint))
	}
	for key, value := range d.metadata.Members() {
		d.addTerm(keys.IndexTerm(termMetadata+key, fold(value.Reveal())))
	}
	for i, text := range d.shownIndexes().Items() {
		value, err := s.index(text.Reveal(), d)
		if err != nil {
			return asField("search_indexes."+strconv.Itoa(i), err)
		}
		d.addTerm(keys.IndexTerm(termIndex, fold(value)))
	}
	return nil
}

func (d *draft) addTerm(term []byte) {
	if !slices.ContainsFunc(d.terms, func(t []byte) bool { return bytes.Equal(t, term) }) {
		d.terms = append(d.terms, term)
	}
}

var errNothing = fault.New(fault.Invalid, "must come to something")

func (s *Service) takeFingerprint(keys *keyring.Keys, d *draft) error {
	t, err := s.cache.Parse(d.shownExpression())
	if err != nil {
		return asField("fingerprint_expression", err)
	}
	metadata := d.metadata
	if metadata.IsNull() {
		metadata = new(jsonvalue.Builder).Value()
	}
	scope := expression.Scope{Data: d.data, Metadata: metadata, Hidden: d.kind.ShortLived}
	written := 0
	sum, err := keys.FingerprintFrom(d.kind.Name, func(w io.Writer) error {
		count := &counter{w: w}
		err := t.Stream(count, scope, expression.Options{})
		written = count.n
		return err
	})
	if err == nil && written == 0 && !d.expression.IsNull() {
		err = errNothing // else all such tokens would be the same
	}
	if err != nil {
		return asField("fingerprint_expression", err)
	}
	d.fingerprint = base58.Encode(sum)
	return nil
}

type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(b []byte) (int, error) {
	c.n += len(b)
	return c.w.Write(b)
}

var errIndex = fault.New(fault.Invalid, "must come to a text, a number or a boolean of 1 to 400 characters")

func (s *Service) index(text string, d *draft) (string, error) {
	t, err := s.cache.Parse(text)
	if err != nil {
		return "", err
	}
	v, err := t.Evaluate(expression.Scope{Data: d.data, Hidden: d.kind.ShortLived}, expression.Options{})
	if err != nil {
		return "", err
	}
	value := v.Reveal() // empty for what is no scalar
	if n := utf8.RuneCountInString(value); n < 1 || n > maxIndexValue {
		return "", errIndex
	}
	return value, nil
}

// fold makes texts equal that differ in the case of letters alone.
func fold(s string) string {
	out := make([]rune, 0, len(s))
	for _, r := range s {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		out = append(out, least)
	}
	return string(out)
}

func (s *Service) evaluateMask(mask, data jsonvalue.Value, kind *Type) (jsonvalue.Value, error) {
	return expression.EvaluateMask(mask, data, expression.MaskOptions{Hidden: kind.ShortLived, Cache: s.cache})
}

// shownIndexes are the token's own, or the type's.
func (c contents) shownIndexes() jsonvalue.Value {
	if !c.indexes.IsNull() {
		return c.indexes
	}
	var items []jsonvalue.Value
	for _, text := range c.kind.Indexes {
		items = append(items, jsonvalue.NewString(text))
	}
	return jsonvalue.NewArray(items)
}

// shownExpression is the token's own, or the type's.
func (c contents) shownExpression() string {
	if !c.expression.IsNull() {
		return c.expression.Reveal()
	}
	return c.kind.Fingerprint
}

// shownMask is the token's own, or the type's; null for the type that has none.
func (c contents) shownMask() jsonvalue.Value {
	if !c.mask.IsNull() {
		return c.mask
	}
	return c.kind.Mask
}

// row seals the draft under an id. The epoch key is needed when there are
// short-lived members.
func (d *draft) row(keys *keyring.Keys, epoch *keyring.EpochKey, id, by string, now time.Time) (store.Token, error) {
	row := store.Token{
		ID: id, Type: d.kind.Name, Containers: d.containers, Terms: d.terms, Expiry: d.expiry,
		CreatedBy: by, CreatedAt: store.At(now), Version: 1,
	}
	return row, d.sealInto(&row, keys, epoch)
}

func (d *draft) sealInto(row *store.Token, keys *keyring.Keys, epoch *keyring.EpochKey) (err error) {
	if row.Data, err = seal(keys.Seal, row.ID, keyring.FieldTokenData, d.data); err != nil {
		return err
	}
	if row.Details, err = seal(keys.Seal, row.ID, keyring.FieldTokenDetails, d.object()); err != nil {
		return err
	}
	if !d.shortLived.IsNull() {
		row.ShortLived, err = seal(epoch.Seal, row.ID, keyring.FieldTokenShortLived, d.shortLived)
	}
	return err
}
