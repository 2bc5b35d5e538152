package token

import (
	"slices"
	"strconv"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/date"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// The bounds on what a token may have.
const (
	maxContainers    = 10
	maxMetadata      = 50
	maxMetadataKey   = 200
	maxMetadataValue = 1000 // characters
	maxIndexes       = 10
	maxIndexValue    = 400 // characters
)

var errNotObject = fault.New(fault.Invalid, "the body must be a JSON object")

// Request is what a token is made from. Whoever decodes it uses ParseRequest:
// only the shapes are checked there, everything else when the token is made.
type Request struct {
	id          string
	kind        string
	data        jsonvalue.Value
	mask        jsonvalue.Value // null: the type's
	containers  []string
	metadata    jsonvalue.Value // an object of strings, or null
	indexes     jsonvalue.Value // an array of strings, or null for the type's
	expression  jsonvalue.Value // a string, or null for the type's
	deduplicate *bool
	expiresAt   string
}

// ParseRequest reads the JSON object of a request to create a token. Unknown
// members are ignored, and null stands for what is left out.
func ParseRequest(v jsonvalue.Value) (Request, error) {
	if v.Kind() != jsonvalue.Object {
		return Request{}, errNotObject
	}
	var f fault.Fields
	r := parseRequest(&f, v)
	return r, f.Err()
}

func parseRequest(f *fault.Fields, v jsonvalue.Value) (r Request) {
	get := func(name string, kind jsonvalue.Kind, wanted string) jsonvalue.Value {
		m, _ := v.Get(name)
		if !m.IsNull() && m.Kind() != kind {
			f.Add(name, wanted)
			return jsonvalue.Value{}
		}
		return m
	}
	const wantText = "must be a string"
	if id := get("id", jsonvalue.String, wantText); !id.IsNull() {
		if r.id = id.PublicText(); r.id == "" {
			f.Add("id", "must not be empty")
		}
	}
	r.kind = get("type", jsonvalue.String, wantText).PublicText()
	r.data, _ = v.Get("data")
	r.mask, _ = v.Get("mask")
	r.containers = containersOf(f, get("containers", jsonvalue.Array, "must be an array of strings"))
	r.metadata = metadataOf(f, get("metadata", jsonvalue.Object, "must be an object of strings"))
	r.indexes = get("search_indexes", jsonvalue.Array, "must be an array of strings")
	for _, item := range r.indexes.Items() {
		if item.Kind() != jsonvalue.String {
			f.Add("search_indexes", "must be an array of strings")
		}
	}
	if r.indexes.Len() > maxIndexes {
		f.Add("search_indexes", "must have at most 10 items")
	}
	r.expression = get("fingerprint_expression", jsonvalue.String, wantText)
	if b := get("deduplicate_token", jsonvalue.Bool, "must be true or false"); !b.IsNull() {
		yes := b.IsTrue()
		r.deduplicate = &yes
	}
	if at := get("expires_at", jsonvalue.String, wantText); !at.IsNull() {
		if r.expiresAt = at.PublicText(); r.expiresAt == "" {
			f.Add("expires_at", date.WantedExpiry)
		}
	}
	return r
}

// containersOf returns containers in their normal form: sorted, no repeats.
func containersOf(f *fault.Fields, v jsonvalue.Value) []string {
	if v.Len() > maxContainers {
		f.Add("containers", "must have at most 10 items")
		return nil
	}
	var list []string
	for i, item := range v.Items() {
		path, ok := access.NormalizeContainer(item.PublicText())
		if item.Kind() != jsonvalue.String || !ok {
			f.Add("containers."+strconv.Itoa(i), "must be a path such as /group/level/, of letters, digits, - and _")
			continue
		}
		list = append(list, path)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// metadataOf returns the members that are not null; null when there are none.
// Faults stop at "metadata": the keys are the caller's own words.
func metadataOf(f *fault.Fields, v jsonvalue.Value) jsonvalue.Value {
	var b jsonvalue.Builder
	n := 0
	for key, value := range v.Members() {
		if value.IsNull() {
			continue
		}
		if !isMetadataKey(key) {
			f.Add("metadata", "keys must have 1 to 200 letters, digits, dots, dashes and underscores")
		}
		if value.Kind() != jsonvalue.String {
			f.Add("metadata", "values must be strings")
		} else if value.Characters() > maxMetadataValue {
			f.Add("metadata", "values must have at most 1,000 characters")
		}
		b.Add(key, value)
		n++
	}
	if n > maxMetadata {
		f.Add("metadata", "must have at most 50 keys")
	}
	if n == 0 {
		return jsonvalue.Value{}
	}
	return b.Value()
}

func isMetadataKey(key string) bool {
	for _, c := range []byte(key) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '.', c == '-':
		default:
			return false
		}
	}
	return len(key) >= 1 && len(key) <= maxMetadataKey
}
