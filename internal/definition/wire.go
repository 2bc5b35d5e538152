package definition

import (
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// The members that the wire forms of all kinds have.
const (
	MemberName          = "name"
	MemberCode          = "code"
	MemberConfiguration = "configuration"

	wireApplication = "application"
	wireID          = "id"
)

// ErrNotObject is the fault of a wire form, or of a patch, that is no object.
var ErrNotObject = fault.New(fault.Invalid, "the body must be a JSON object")

// EmptyObject is an object without members.
var EmptyObject = new(jsonvalue.Builder).Value()

// Member returns the text of a member; "" where there is none.
func Member(v jsonvalue.Value, name string) string {
	member, _ := v.Get(name)
	return member.Reveal()
}

// Text reads a member that must be a string or absent. What is wrong is noted
// under path.
func Text(f *fault.Fields, v jsonvalue.Value, name, path string) string {
	member, _ := v.Get(name)
	if !member.IsNull() && member.Kind() != jsonvalue.String {
		f.Add(path, "must be a string")
		return ""
	}
	return member.Reveal()
}

// Object reads a member that must be an object or absent.
func Object(f *fault.Fields, v jsonvalue.Value, name string) jsonvalue.Value {
	member, _ := v.Get(name)
	if !member.IsNull() && member.Kind() != jsonvalue.Object {
		f.Add(name, "must be an object")
	}
	return member
}

// Application reads the id of the application that a wire form names.
func Application(f *fault.Fields, in jsonvalue.Value) string {
	return Text(f, Object(f, in, wireApplication), wireID, wireApplication+"."+wireID)
}

// WithoutNulls leaves out members that are null: null means absent.
func WithoutNulls(v jsonvalue.Value) jsonvalue.Value {
	for name, member := range v.Members() {
		if member.IsNull() {
			v = v.Without(name)
		}
	}
	return v
}

// WireForm is what a merge patch changes: the contents, the name and the
// application.
func WireForm(d Definition) jsonvalue.Value {
	v := d.Contents.With(MemberName, jsonvalue.NewString(d.Name))
	if d.ApplicationID != "" {
		v = v.With(wireApplication, EmptyObject.With(wireID, jsonvalue.NewString(d.ApplicationID)))
	}
	return v
}
