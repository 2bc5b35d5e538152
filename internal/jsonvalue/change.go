package jsonvalue

import "iter"

// MergePatch applies a patch after RFC 7386 and returns the result; target and
// patch stay as they are. Kept members keep their order, new ones follow. It
// refuses a patch nested deeper than MaxDepth, which Parse never makes.
func MergePatch(target, patch Value) (Value, error) { return merge(target, patch, 0) }

func merge(target, patch Value, depth int) (Value, error) {
	p := patch.node()
	if p.kind != Object {
		return patch, nil
	}
	if depth >= MaxDepth {
		return Value{}, errTooDeep
	}
	t := target.node()
	if t.kind != Object {
		t = &node{kind: Object}
	}
	inPatch, inTarget := index(p.names), index(t.names)
	out := &node{kind: Object}
	add := func(name string, old Value, at int) error {
		if p.items[at].IsNull() {
			return nil
		}
		merged, err := merge(old, p.items[at], depth+1)
		out.names = append(out.names, name)
		out.items = append(out.items, merged)
		return err
	}
	for i, name := range t.names {
		at := inPatch(name)
		if at < 0 {
			out.names = append(out.names, name)
			out.items = append(out.items, t.items[i])
			continue
		}
		if err := add(name, t.items[i], at); err != nil {
			return Value{}, err
		}
	}
	for at, name := range p.names {
		if inTarget(name) >= 0 {
			continue
		}
		if err := add(name, Value{}, at); err != nil {
			return Value{}, err
		}
	}
	return seal(out), nil
}

// MapLeaves replaces every value that is neither an array nor an object,
// depth first and in order, and keeps the shape around them. It stops at the
// first error.
func (v Value) MapLeaves(replace func(leaf Value) (Value, error)) (Value, error) {
	n := v.node()
	if n.kind != Array && n.kind != Object {
		return replace(v)
	}
	items := make([]Value, len(n.items))
	for i, item := range n.items {
		var err error
		if items[i], err = item.MapLeaves(replace); err != nil {
			return Value{}, err
		}
	}
	return seal(&node{kind: n.kind, names: n.names, items: items}), nil
}

// Leaves yields every value that is neither an array nor an object, in the
// order of MapLeaves.
func (v Value) Leaves() iter.Seq[Value] {
	return func(yield func(Value) bool) { v.leaves(yield) }
}

func (v Value) leaves(yield func(Value) bool) bool {
	n := v.node()
	if n.kind != Array && n.kind != Object {
		return yield(v)
	}
	for _, item := range n.items {
		if !item.leaves(yield) {
			return false
		}
	}
	return true
}

// With returns a copy of an object in which the member has this value: in its
// old place, or at the end when it is new. On anything else it is the object
// of this one member.
func (v Value) With(name string, member Value) Value {
	var b Builder
	found := false
	for m, old := range v.Members() {
		if m == name {
			old, found = member, true
		}
		b.Add(m, old)
	}
	if !found {
		b.Add(name, member)
	}
	return b.Value()
}

// Without returns a copy in which the member at the end of the path, a name
// for each object on the way, is gone. What has no such member is returned as
// it is.
func (v Value) Without(path ...string) Value {
	if len(path) == 0 {
		return v
	}
	child, ok := v.Get(path[0])
	if !ok {
		return v
	}
	var b Builder
	for name, member := range v.Members() {
		switch {
		case name != path[0]:
			b.Add(name, member)
		case len(path) > 1:
			b.Add(name, child.Without(path[1:]...))
		}
	}
	return b.Value()
}
