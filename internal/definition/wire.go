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

	wireApplication   = "application"
	wireApplicationID = "application_id"
	wireID            = "id"
	wireReference     = wireApplication + "." + wireID
)

// ErrNotObject is the fault of a wire form, or of a patch, that is no object.
var ErrNotObject = fault.New(fault.Invalid, "the body must be a JSON object")

// EmptyObject is an object without members.
var EmptyObject = new(jsonvalue.Builder).Value()

// Member returns the text of a member that is not protected; "" where there is
// none.
func Member(v jsonvalue.Value, name string) string {
	member, _ := v.Get(name)
	return member.PublicText()
}

// Text reads a member that must be a string or absent. What is wrong is noted
// under path.
func Text(f *fault.Fields, v jsonvalue.Value, name, path string) string {
	member, _ := v.Get(name)
	if !member.IsNull() && member.Kind() != jsonvalue.String {
		f.Add(path, "must be a string")
		return ""
	}
	return member.PublicText()
}

// Object reads a member that must be an object or absent.
func Object(f *fault.Fields, v jsonvalue.Value, name string) jsonvalue.Value {
	member, _ := v.Get(name)
	if !member.IsNull() && member.Kind() != jsonvalue.Object {
		f.Add(name, "must be an object")
	}
	return member
}

// Choice is what a request says about the application of a definition.
type Choice struct {
	ID string // of the application that it names; "" for none
	// Given reports whether the request names an application or removes it. A
	// merge patch that does neither leaves the application as it is.
	Given bool
	// Removed reports whether "application": null was written out.
	Removed bool
	path    string // of the field that names the application
}

// Application reads the application that the body of a POST or PUT names, as
// application.id or as application_id, which is what responses of proxies have.
// Null is the same as absent, except that "application": null beside an
// application_id is a contradiction.
func Application(f *fault.Fields, in jsonvalue.Value) Choice { return application(f, in, false) }

// PatchedApplication is Application for a merge patch, in which a null removes.
func PatchedApplication(f *fault.Fields, patch jsonvalue.Value) Choice {
	return application(f, patch, true)
}

func application(f *fault.Fields, in jsonvalue.Value, patch bool) Choice {
	object, written := in.Get(wireApplication)
	reference := applicationID(f, Object(f, in, wireApplication), wireID, wireReference)
	direct := applicationID(f, in, wireApplicationID, wireApplicationID)
	c := Choice{Removed: written && object.IsNull()}
	removed := c.Removed || patch && (reference.null || direct.null)
	switch {
	case reference.id != "" && direct.id != "" && reference.id != direct.id:
		f.AddCode(wireApplicationID, "application_mismatch", "must be equal to application.id; one of them is enough")
		return Choice{}
	case removed && (reference.id != "" || direct.id != ""):
		f.AddCode(wireApplicationID, "application_mismatch", "must agree with application: the request both names an application and removes it")
		return Choice{}
	case reference.id != "":
		c.ID, c.path = reference.id, wireReference
	case direct.id != "":
		c.ID, c.path = direct.id, wireApplicationID
	}
	c.Given = c.ID != "" || removed
	return c
}

// idField is a field that names an application: an id, a null, or absent.
type idField struct {
	id   string
	null bool
}

func applicationID(f *fault.Fields, in jsonvalue.Value, name, path string) idField {
	v, given := in.Get(name)
	if given && v.Kind() == jsonvalue.String && v.PublicText() == "" {
		f.Add(path, "must be the id of an application; null stands for none")
	}
	return idField{id: Text(f, in, name, path), null: given && v.IsNull()}
}

// WithoutApplication leaves out of a merge patch what PatchedApplication reads.
func WithoutApplication(patch jsonvalue.Value) jsonvalue.Value {
	return patch.Without(wireApplication).Without(wireApplicationID)
}

// Named returns the draft with the application that a request chose.
func (d Draft) Named(c Choice) Draft {
	d.ApplicationID, d.applicationPath = c.ID, c.path
	return d
}

// Patched returns the draft of a changed definition with the application that a
// merge patch chose: that of the definition when the patch says nothing.
func (d Draft) Patched(old Definition, c Choice) Draft {
	if !c.Given {
		c.ID = old.ApplicationID
	}
	return d.Named(c)
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

// WireForm is what a merge patch changes: the contents and the name. The
// application is read apart, by PatchedApplication.
func WireForm(d Definition) jsonvalue.Value {
	return d.Contents.With(MemberName, jsonvalue.NewString(d.Name))
}
