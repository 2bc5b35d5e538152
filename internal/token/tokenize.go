package token

import (
	"context"
	"strconv"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// maxTokenized is how many tokens one document may become.
const maxTokenized = 1000

var errManyTokens = fault.New(fault.Invalid, "the body would become more than 1,000 tokens")

// Tokenize puts tokens in place of what a JSON value holds, and returns the
// same structure. An object with type and data is a request for a token and is
// replaced by the token; any other value that is neither null nor empty is
// replaced by the id of a generic token. All tokens are made, or none.
func (s *Service) Tokenize(ctx context.Context, c access.Caller, body jsonvalue.Value, last ...store.Step[jsonvalue.Value]) (out jsonvalue.Value, err error) {
	keys, set, err := s.begin(ctx, c, access.TokenCreate)
	if err != nil {
		return out, err
	}
	found, err := walk(body)
	if err != nil {
		return out, err
	}
	drafts := make([]*draft, len(found))
	for i, place := range found {
		r := Request{kind: "token", data: place.value}
		if place.request {
			if r, err = ParseRequest(place.value); err != nil {
				return out, place.named(err)
			}
		}
		if drafts[i], err = s.draft(keys, set, r); err != nil {
			return out, place.named(err)
		}
	}
	single := len(found) == 1 && found[0].request && isRequest(body)
	_, err = s.insert(ctx, c, keys, drafts, func(tx store.Tx, made []Token) error {
		for i := range made {
			made[i].shapeTokenized(single)
		}
		out = replace(body, found, made)
		return store.Finish(tx, out, last)
	})
	return out, err
}

// shapeTokenized gives a token the form that the answer of tokenize has for
// what has the mask of its type: a single card or bank account shows the
// evaluated mask twice, one among others shows it under data alone.
func (t *Token) shapeTokenized(single bool) {
	if t.ownMask || t.Data.IsNull() || t.sideName == "" {
		return
	}
	t.Mask = jsonvalue.Value{}
	if single {
		t.Mask = t.Data
	}
}

// place is a value that becomes a token.
type place struct {
	value   jsonvalue.Value
	request bool // else it is a plain value
	// path leads there by positions alone, "2.0." for example. Names on the
	// way are the caller's own, and end it.
	path string
}

// named puts the path before the members at fault.
func (p place) named(err error) error {
	fields := fault.Of(err).Fields()
	if p.path == "" || fields == nil {
		return err
	}
	var f fault.Fields
	for name, messages := range fields {
		for _, m := range messages {
			f.Add(p.path+name, m)
		}
	}
	return f.Err()
}

func isRequest(v jsonvalue.Value) bool {
	_, kind := v.Get("type")
	_, data := v.Get("data")
	return kind && data
}

// walker gathers what becomes tokens.
type walker struct{ found []place }

// walk finds what becomes tokens, in the order of the document.
func walk(body jsonvalue.Value) ([]place, error) {
	var w walker
	if !w.into(body, "", true) {
		return nil, errManyTokens
	}
	return w.found, nil
}

// into reports false when there are too many. byPosition says that only
// positions led here.
func (w *walker) into(v jsonvalue.Value, path string, byPosition bool) bool {
	switch {
	case v.IsNull():
		return true
	case isRequest(v):
		w.found = append(w.found, place{v, true, path})
		return len(w.found) <= maxTokenized
	case v.Kind() == jsonvalue.Array:
		for i, item := range v.Items() {
			below := ""
			if byPosition {
				below = path + strconv.Itoa(i) + "."
			}
			if !w.into(item, below, byPosition) {
				return false
			}
		}
		return true
	case v.Kind() == jsonvalue.Object:
		for _, member := range v.Members() {
			if !w.into(member, "", false) {
				return false
			}
		}
		return true
	}
	w.found = append(w.found, place{v, false, path})
	return len(w.found) <= maxTokenized
}

// replace puts tokens where walk found what they were made from.
func replace(v jsonvalue.Value, found []place, made []Token) jsonvalue.Value {
	next := 0
	var into func(v jsonvalue.Value) jsonvalue.Value
	into = func(v jsonvalue.Value) jsonvalue.Value {
		switch {
		case v.IsNull():
			return v
		case isRequest(v):
		case v.Kind() == jsonvalue.Array:
			items := make([]jsonvalue.Value, 0, v.Len())
			for _, item := range v.Items() {
				items = append(items, into(item))
			}
			return jsonvalue.NewArray(items)
		case v.Kind() == jsonvalue.Object:
			var b jsonvalue.Builder
			for name, member := range v.Members() {
				b.Add(name, into(member))
			}
			return b.Value()
		}
		i := next
		next++
		if found[i].request {
			return made[i].Object()
		}
		return jsonvalue.NewString(made[i].ID)
	}
	return into(v)
}
