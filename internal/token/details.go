package token

import (
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// details are what a token has beside its data: what was asked for, as far as
// it is not the type's own. They are sealed as one JSON object.
type details struct {
	mask        jsonvalue.Value // null: the type's
	metadata    jsonvalue.Value // an object of strings; null when there is none
	indexes     jsonvalue.Value // an array of strings; null: the type's
	expression  jsonvalue.Value // of the fingerprint, a string; null: the type's
	fingerprint string          // "" when there is none
	// writers are the public applications and sessions that wrote the token.
	writers writers
}

func (d details) object() jsonvalue.Value {
	var b jsonvalue.Builder
	add := func(name string, v jsonvalue.Value) {
		if !v.IsNull() {
			b.Add(name, v)
		}
	}
	add("mask", d.mask)
	add("metadata", d.metadata)
	add("search_indexes", d.indexes)
	add("fingerprint_expression", d.expression)
	for _, text := range []struct{ name, value string }{
		{"fingerprint", d.fingerprint}, {"created_through", d.writers.created}, {"changed_through", d.writers.changed}, {"filled_through", d.writers.filled},
	} {
		if text.value != "" {
			b.Add(text.name, jsonvalue.NewString(text.value))
		}
	}
	return b.Value()
}

func detailsFrom(v jsonvalue.Value) (d details) {
	d.mask, _ = v.Get("mask")
	d.metadata, _ = v.Get("metadata")
	d.indexes, _ = v.Get("search_indexes")
	d.expression, _ = v.Get("fingerprint_expression")
	for name, text := range map[string]*string{
		"fingerprint": &d.fingerprint, "created_through": &d.writers.created, "changed_through": &d.writers.changed, "filled_through": &d.writers.filled,
	} {
		value, _ := v.Get(name)
		*text = value.PublicText()
	}
	return d
}

// contents are a token's sealed parts, opened, but for the short-lived ones.
type contents struct {
	kind *Type
	data jsonvalue.Value
	size int // about how many bytes the data has
	// masked is the mask as it was evaluated; nil when it was not.
	masked *jsonvalue.Value
	details
}

// openRow opens the parts of a row that are not short-lived. What it returns
// is plaintext: every caller of it is listed, with the decision before it, in
// a rule on the source. The caller's request is charged for the memory; the zero
// Caller is not.
func openRow(by access.Caller, keys *keyring.Keys, row store.Token) (c contents, err error) {
	if c.kind = typeNamed(row.Type); c.kind == nil {
		return c, fmt.Errorf("open token: the type is not known: %w", store.ErrDamaged)
	}
	if c.data, err = openJSON(by, keys, row.ID, keyring.FieldTokenData, row.Data); err != nil {
		return c, err
	}
	c.size = len(row.Data)
	object, err := openJSON(by, keys, row.ID, keyring.FieldTokenDetails, row.Details)
	c.details = detailsFrom(object)
	return c, err
}

func openJSON(by access.Caller, keys *keyring.Keys, record, field string, sealed []byte) (jsonvalue.Value, error) {
	plain, err := keys.Open(record, field, sealed)
	if err != nil {
		return jsonvalue.Value{}, fmt.Errorf("open token: %w", err)
	}
	if err := by.ChargeMemory(jsonvalue.Weight(plain)); err != nil {
		clear(plain)
		return jsonvalue.Value{}, err
	}
	return parseSealed(plain)
}

// parseSealed reads what was sealed, and overwrites the bytes.
func parseSealed(plain []byte) (jsonvalue.Value, error) {
	defer clear(plain)
	v, err := jsonvalue.Parse(plain)
	if err != nil {
		// Not a caller's fault, so it must not look like one.
		return jsonvalue.Value{}, fmt.Errorf("open token: it is not what was sealed: %w", store.ErrDamaged)
	}
	return v, nil
}

// seal seals a value with the function of some key.
func seal(with func(record, field string, plaintext []byte) ([]byte, error), record, field string, v jsonvalue.Value) ([]byte, error) {
	sealed, err := v.Sealed(func(plain []byte) ([]byte, error) { return with(record, field, plain) })
	if err != nil {
		return nil, fmt.Errorf("seal token: %w", err)
	}
	return sealed, nil
}
