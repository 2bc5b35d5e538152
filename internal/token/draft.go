package token

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/base58"
	"github.com/tokenkeep/tokenkeep/internal/date"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// draft is a token that is complete except for its id, and not sealed yet.
type draft struct {
	contents
	shortLived  jsonvalue.Value // an object of short-lived members; null when there are none
	containers  []string
	expiry      store.Expiry
	terms       [][]byte
	deduplicate bool
	namer       namer
	// path leads to its request in a document that is tokenized; "" elsewhere.
	path string
}

// placed puts the path of the request before the fields at fault.
func (d *draft) placed(err error) error { return below(d.path, err) }

// draftNew is the draft of a token that a caller creates.
func (s *Service) draftNew(b *expression.Budget, c access.Caller, keys *keyring.Keys, set settings, r Request) (*draft, error) {
	var f fault.Fields
	checkNames(&f, set, r.containers, r.metadata)
	if err := f.Err(); err != nil {
		return nil, err
	}
	if err := s.checkExpression(b, r.expression); err != nil {
		return nil, err
	}
	return s.draft(b, keys, set, r, writers{created: through(c)})
}

// checkNames refuses containers and metadata keys that look like card numbers:
// both are stored in plaintext or shown to callers who see no data.
func checkNames(f *fault.Fields, set settings, containers []string, metadata jsonvalue.Value) {
	if set.NumericIDs {
		return
	}
	if slices.ContainsFunc(containers, looksLikeCardNumber) {
		f.AddCode("containers", "container_looks_like_card_number", "must not look like a card number")
	}
	for key := range metadata.Members() {
		if looksLikeCardNumber(key) {
			f.AddCode("metadata", "metadata_key_looks_like_card_number", "keys must not look like card numbers")
		}
	}
}

// draft checks a request and works out what is stored of it. It reads no store,
// so it runs before the transaction.
func (s *Service) draft(b *expression.Budget, keys *keyring.Keys, set settings, r Request, w writers) (*draft, error) {
	var f fault.Fields
	kind := typeNamed(r.kind)
	switch {
	case r.kind == "":
		f.Add("type", "is required")
	case kind == nil:
		f.AddUnknown("type", "token_type_unknown", r.kind, typeNames())
	}
	if r.data.IsNull() {
		f.Add("data", "is required")
	}
	expiry := s.expiry(&f, r.expiresAt)
	if err := f.Err(); err != nil {
		return nil, err
	}
	d := &draft{containers: r.containers, expiry: expiry, deduplicate: set.DeduplicateTokens}
	d.writers = w
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
	d.size = d.data.JSONSize()
	b.Grow(d.size)
	if !d.mask.IsNull() {
		masked, err := s.evaluateMask(b, d.contents)
		if err != nil {
			return nil, asField("mask", err)
		}
		d.masked = &masked
	}
	if err := s.find(b, keys, set, d); err != nil {
		return nil, err
	}
	if r.deduplicate != nil && d.deduplicate && d.fingerprint == "" {
		return nil, errNoFingerprints
	}
	var err error
	d.namer, err = newNamer(b, r.id, kind, d.data, set.NumericIDs)
	return d, err
}

var errNoFingerprints = fault.Field("deduplicate_token",
	"takes fingerprints: give a fingerprint_expression, or turn on the tenant setting fingerprint_tokens")

// checkExpression refuses the expression of a fingerprint that the data does
// not change: its fingerprint would say nothing of the data.
func (s *Service) checkExpression(b *expression.Budget, text jsonvalue.Value) error {
	if text.IsNull() {
		return nil // the type's own
	}
	t, err := s.cache.Parse(b, text.PublicText())
	if err != nil {
		return asField("fingerprint_expression", err)
	}
	if !t.UsesData() {
		return errWithoutData
	}
	return nil
}

var errWithoutData = fault.Field("fingerprint_expression", "must refer to data, as in {{ data.number }}")

// expiry reads an expiry, which must be in the future; "" is none.
func (s *Service) expiry(f *fault.Fields, text string) store.Expiry {
	if text == "" {
		return store.Expiry{}
	}
	e, ok := parseExpiry(text)
	switch {
	case !ok:
		f.Add("expires_at", date.WantedExpiry)
	case e.At <= store.At(s.now()):
		f.Add("expires_at", "must be in the future")
	}
	return e
}

// The names of terms. Keys of metadata hold no colon, so no two meet.
const (
	termFingerprint = "fingerprint"
	termIndex       = "index"
	termMetadata    = "metadata:"
	termDuplicate   = "duplicate"
)

// find works out the fingerprint and the terms by which the token is found.
func (s *Service) find(b *expression.Budget, keys *keyring.Keys, set settings, d *draft) error {
	d.fingerprint = ""
	if set.FingerprintTokens || !d.expression.IsNull() {
		if err := s.takeFingerprint(b, keys, d); err != nil {
			return err
		}
		d.addTerm(keys.IndexTerm(termFingerprint, d.fingerprint))
		if writer, one := d.writers.only(); one {
			d.addTerm(d.duplicateTerm(keys, writer))
		}
	}
	for key, value := range d.metadata.Members() {
		d.addTerm(keys.IndexTerm(termMetadata+key, fold(value.PublicText())))
	}
	for i, text := range d.shownIndexes().Items() {
		value, err := s.index(b, text.PublicText(), d)
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

var errNothing = fault.New(fault.Invalid, "must not be empty")

func (s *Service) takeFingerprint(b *expression.Budget, keys *keyring.Keys, d *draft) error {
	t, err := s.cache.Parse(b, d.shownExpression())
	if err != nil {
		return asField("fingerprint_expression", err)
	}
	metadata := d.metadata
	if metadata.IsNull() {
		metadata = new(jsonvalue.Builder).Value()
	}
	scope := expression.Scope{Data: d.data, Metadata: metadata, Hidden: d.kind.ShortLived}
	written := 0
	of := keyring.Fingerprinted{Type: d.kind.Name, JSONType: d.data.Kind().String(), Expression: t.Canonical()}
	sum, err := keys.Fingerprint(of, func(w io.Writer) error {
		count := &counter{w: w}
		err := t.Stream(count, scope, expression.Options{Budget: b})
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

var errIndex = fault.New(fault.Invalid, "must result in a text, a number or a boolean of 1 to 400 characters")

func (s *Service) index(b *expression.Budget, text string, d *draft) (string, error) {
	t, err := s.cache.Parse(b, text)
	if err != nil {
		return "", err
	}
	v, err := t.Evaluate(expression.Scope{Data: d.data, Hidden: d.kind.ShortLived}, expression.Options{Budget: b})
	if err != nil {
		return "", err
	}
	value := v.Reveal() // empty for what is no scalar
	if n := utf8.RuneCountInString(value); n < 1 || n > maxIndexValue {
		return "", errIndex
	}
	return value, nil
}

// evaluateMask evaluates the token's own mask, or the type's.
func (s *Service) evaluateMask(b *expression.Budget, c contents) (jsonvalue.Value, error) {
	return expression.EvaluateMask(c.shownMask(), c.data, expression.MaskOptions{Hidden: c.kind.ShortLived, Cache: s.cache, Budget: b, DataSize: c.size})
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
		return c.expression.PublicText()
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
		ID: id, Type: d.kind.Name, Containers: d.containers, Terms: d.terms, Derived: true, Expiry: d.expiry,
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
