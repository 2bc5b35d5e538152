package proxy

import (
	"context"

	"github.com/tokenkeep/tokenkeep/internal/definition"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
)

// The members of a proxy's contents, and of its wire form, beside those that
// all definitions have.
const (
	memberKey         = "key"
	memberDestination = "destination_url"
	memberRequireAuth = "require_auth"
	memberRequest     = "request_transform"
	memberResponse    = "response_transform"
)

// transforms are the members that hold code.
var transforms = []string{memberRequest, memberResponse}

// Key returns the key by which a proxy is called.
func Key(p Proxy) string { return definition.Member(p.Contents, memberKey) }

// Destination returns where a proxy leads.
func Destination(p Proxy) string { return definition.Member(p.Contents, memberDestination) }

// RequireAuth reports whether a proxy asks for an API key beside its own.
func RequireAuth(p Proxy) bool {
	v, _ := p.Contents.Get(memberRequireAuth)
	return v.IsTrue()
}

// RequestTransform returns the code that shapes requests; "" for none.
func RequestTransform(p Proxy) string { return code(p.Contents, memberRequest) }

// ResponseTransform returns the code that shapes responses; "" for none.
func ResponseTransform(p Proxy) string { return code(p.Contents, memberResponse) }

func code(contents jsonvalue.Value, member string) string {
	transform, _ := contents.Get(member)
	return definition.Member(transform, definition.MemberCode)
}

// Configuration returns what the code may read, an object of texts.
func Configuration(p Proxy) jsonvalue.Value {
	v, _ := p.Contents.Get(definition.MemberConfiguration)
	return v
}

// unserved are members of proxies elsewhere that change what goes out. A proxy
// that seems to have them and does not would send what nobody wanted sent.
var unserved = []string{"request_transforms", "response_transforms", "request_reactor_id", "response_reactor_id", "disable_detokenization"}

const notServed = "is not supported here"

// says reports whether a member is there and means something.
func says(v jsonvalue.Value) bool {
	return v.IsTrue() || v.Len() > 0 || v.Kind() == jsonvalue.Number || v.Kind() == jsonvalue.String && v.Reveal() != ""
}

// draft reads a proxy from its wire form. What is wrong is noted in f; whether
// code parses is asked elsewhere, as that takes time.
func (s *Service) draft(f *fault.Fields, in jsonvalue.Value) definition.Draft {
	var contents jsonvalue.Builder
	name := definition.Text(f, in, definition.MemberName, definition.MemberName)
	definition.CheckName(f, name)
	destination := definition.Text(f, in, memberDestination, memberDestination)
	if destination == "" {
		f.Add(memberDestination, "is required")
	} else if _, err := s.destinations.Check(destination); err != nil {
		f.Add(memberDestination, fault.Of(err).Detail())
	}
	contents.Add(memberDestination, jsonvalue.NewString(destination))
	auth, _ := in.Get(memberRequireAuth)
	if auth.IsNull() {
		auth = jsonvalue.NewBool(true)
	} else if auth.Kind() != jsonvalue.Bool {
		f.Add(memberRequireAuth, "must be true or false")
	}
	contents.Add(memberRequireAuth, auth)
	for _, member := range unserved {
		if v, _ := in.Get(member); says(v) {
			f.Add(member, notServed)
		}
	}
	for _, member := range transforms {
		transform := definition.Object(f, in, member)
		if kind := definition.Text(f, transform, "type", member+".type"); kind != "" && kind != definition.MemberCode {
			f.Add(member+".type", notServed)
		}
		if code := definition.Text(f, transform, definition.MemberCode, member+"."+definition.MemberCode); code != "" {
			contents.Add(member, definition.EmptyObject.With(definition.MemberCode, jsonvalue.NewString(code)))
		}
	}
	configuration := definition.WithoutNulls(definition.Object(f, in, definition.MemberConfiguration))
	if configuration.IsNull() {
		configuration = definition.EmptyObject
	}
	definition.CheckConfiguration(f, configuration)
	contents.Add(definition.MemberConfiguration, configuration)
	return definition.Draft{
		Name: name, ApplicationID: definition.Application(f, in), Contents: contents.Value(),
	}
}

// checked is draft with its code parsed.
func (s *Service) checked(ctx context.Context, in jsonvalue.Value) (definition.Draft, error) {
	if in.Kind() != jsonvalue.Object {
		return definition.Draft{}, definition.ErrNotObject
	}
	var f fault.Fields
	d := s.draft(&f, in)
	if err := s.checkCode(ctx, &f, d.Contents); err != nil {
		return d, err
	}
	return d, f.Err()
}

func (s *Service) checkCode(ctx context.Context, f *fault.Fields, contents jsonvalue.Value) error {
	for _, member := range transforms {
		if code := code(contents, member); code != "" {
			if err := s.scripts.Check(ctx, f, member+"."+definition.MemberCode, code, definition.MaxCode); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkedPatch parses the code in a patch. An empty transform means none there
// too, where a merge of nothing would otherwise change nothing.
func (s *Service) checkedPatch(ctx context.Context, patch jsonvalue.Value) (jsonvalue.Value, error) {
	var f fault.Fields
	var code jsonvalue.Builder
	for _, member := range transforms {
		transform, given := patch.Get(member)
		if given && transform.Kind() == jsonvalue.Object && transform.Len() == 0 {
			patch = patch.With(member, jsonvalue.Value{})
		}
		if text, _ := transform.Get(definition.MemberCode); text.Kind() == jsonvalue.String {
			code.Add(member, transform)
		}
	}
	if err := s.checkCode(ctx, &f, code.Value()); err != nil {
		return patch, err
	}
	return patch, f.Err()
}

func keepKey(d definition.Draft, old Proxy) definition.Draft {
	key, _ := old.Contents.Get(memberKey)
	d.Contents = d.Contents.With(memberKey, key)
	return d
}
