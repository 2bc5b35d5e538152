package token

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// maxTokenized is how many tokens one document may become.
const maxTokenized = 1000

var errManyTokens = fault.New(fault.Invalid, "the body would become more than 1,000 tokens")

// Tokenized is a JSON value with tokens in place of what it held.
type Tokenized struct {
	Value jsonvalue.Value
	Shown []access.Shown // of each token
}

// Tokenize puts tokens in place of what a JSON value holds, and returns the
// same structure. An object with type and data is a request for a token and is
// replaced by the token; any other value that is neither null nor empty is
// replaced by the id of a generic token. All tokens are made, or none. Faults
// name the position in the document.
func (s *Service) Tokenize(ctx context.Context, c access.Caller, body jsonvalue.Value, last ...store.Step[Tokenized]) (Tokenized, error) {
	return s.tokenize(ctx, author{Caller: c}, body, fault.Repeatable, last)
}

// TokenizeResult is Tokenize for what code returned. The tokens are made by
// maker. When viewer is not nil, it is for viewer, who requested the run and is
// not maker: what it gets shows no more than it may read, and rests on its own
// access. Faults name none of the fields but those of tokens: the others may be
// values that the code was given.
func (s *Service) TokenizeResult(ctx context.Context, maker access.Caller, viewer *access.Caller, body jsonvalue.Value, last ...store.Step[Tokenized]) (Tokenized, error) {
	return s.tokenize(ctx, author{maker, viewer}, body, func(string) bool { return false }, last)
}

func (s *Service) tokenize(ctx context.Context, c author, body jsonvalue.Value, repeatable func(name string) bool, last []store.Step[Tokenized]) (out Tokenized, err error) {
	keys, set, err := s.begin(ctx, c.Caller, access.TokenCreate)
	if err != nil {
		return out, err
	}
	found, err := walk(body)
	if err != nil {
		return out, err
	}
	if err := c.ChargeTokens(len(found)); err != nil {
		return out, err
	}
	b := s.limitsOf(c.Tenant()).Budget(ctx)
	drafts, err := s.drafts(b, c.Caller, keys, set, found, repeatable)
	if err != nil {
		return out, err
	}
	single := len(found) == 1 && found[0].request && isRequest(body)
	respond := func(made []Token) (out Tokenized) {
		for i := range made {
			made[i].shapeTokenized(single)
			out.Shown = append(out.Shown, made[i].Shown()...)
		}
		out.Value = replace(body, found, made)
		return out
	}
	made, err := s.insert(ctx, b, c, keys, set, drafts, func(tx store.Tx, made []Token) error {
		if len(last) == 0 {
			return nil
		}
		return store.Finish(tx, respond(slices.Clone(made)), last) // a transaction may run again
	})
	if err != nil {
		return out, err
	}
	return respond(made), nil
}

// preparationSteps is what drafting a token, and what naming and sealing it,
// costs besides its expressions, in steps of these.
const preparationSteps = 10_000

// drafts are the drafts of what is in these places of a document. Those of a
// large document take turns with other requests.
func (s *Service) drafts(b *expression.Budget, c access.Caller, keys *keyring.Keys, set settings, found []place, repeatable func(name string) bool) ([]*draft, error) {
	defer b.End()
	if err := b.Begin(); err != nil {
		return nil, err
	}
	list := make([]*draft, len(found))
	for i, place := range found {
		if err := b.Err(); err != nil {
			return nil, err
		}
		path := place.path(repeatable)
		r := Request{kind: "token", data: place.value}
		var err error
		if place.request {
			if r, err = ParseRequest(place.value); err != nil {
				return nil, below(path, err)
			}
		}
		if list[i], err = s.draftNew(b, c, keys, set, r); err != nil {
			return nil, below(path, err)
		}
		list[i].path = path
		if err := b.Worked(preparationSteps); err != nil {
			return nil, err
		}
	}
	return list, nil
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
	request bool   // else it is a plain value
	steps   []step // that lead there
}

// step is one step into a document: to an item of an array, or a member of an
// object.
type step struct {
	position int
	name     string // of a member
	member   bool
}

// path is the dotted path of a place. A name that must not be repeated is "*".
func (p place) path(repeatable func(name string) bool) string {
	var b strings.Builder
	for i, to := range p.steps {
		if i > 0 {
			_ = b.WriteByte('.')
		}
		switch {
		case !to.member:
			_, _ = b.WriteString(strconv.Itoa(to.position))
		case repeatable(to.name):
			_, _ = b.WriteString(to.name)
		default:
			_ = b.WriteByte('*')
		}
	}
	return b.String()
}

// below puts a path before the fields at fault.
func below(path string, err error) error {
	whole := fault.Of(err)
	if path == "" || whole.Fields() == nil {
		return err
	}
	var f fault.Fields
	for name, messages := range whole.Fields() {
		for _, m := range messages {
			f.AddCode(path+"."+name, whole.Code(), m)
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
type walker struct {
	found []place
	steps []step // that lead to where it is
}

// walk finds what becomes tokens, in the order of the document.
func walk(body jsonvalue.Value) ([]place, error) {
	var w walker
	if !w.into(body) {
		return nil, errManyTokens
	}
	return w.found, nil
}

// into reports false when there are too many.
func (w *walker) into(v jsonvalue.Value) bool {
	switch {
	case v.IsNull():
		return true
	case isRequest(v):
		return w.add(v, true)
	case v.Kind() == jsonvalue.Array:
		for i, item := range v.Items() {
			if !w.step(step{position: i}, item) {
				return false
			}
		}
		return true
	case v.Kind() == jsonvalue.Object:
		for name, member := range v.Members() {
			if !w.step(step{name: name, member: true}, member) {
				return false
			}
		}
		return true
	}
	return w.add(v, false)
}

func (w *walker) step(to step, v jsonvalue.Value) bool {
	w.steps = append(w.steps, to)
	defer func() { w.steps = w.steps[:len(w.steps)-1] }()
	return w.into(v)
}

func (w *walker) add(v jsonvalue.Value, request bool) bool {
	w.found = append(w.found, place{v, request, slices.Clone(w.steps)})
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
