package proxy

import (
	"context"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/definition"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// The members of a proxy's contents, and of its wire form, beside those that
// all definitions have.
const (
	memberKey         = "key"
	memberDestination = "destination_url"
	memberRequireAuth = "require_auth"
	memberRequest     = "request_transform"
	memberResponse    = "response_transform"

	memberRequestReactor  = "request_reactor_id"
	memberResponseReactor = "response_reactor_id"
)

// transforms are the members that hold code.
var transforms = []string{memberRequest, memberResponse}

// reactors are the members that name a reactor, by the transform that it is.
var reactors = map[string]string{memberRequest: memberRequestReactor, memberResponse: memberResponseReactor}

// Key returns the key by which a proxy is called.
func Key(p Proxy) secret.Text { return keyIn(p.Contents) }

// Destination returns where a proxy leads.
func Destination(p Proxy) string { return definition.Member(p.Contents, memberDestination) }

// RequireAuth reports whether a proxy asks for an API key beside its own.
func RequireAuth(p Proxy) bool { return requireAuth(p.Contents) }

func requireAuth(contents jsonvalue.Value) bool {
	v, _ := contents.Get(memberRequireAuth)
	return v.IsTrue()
}

// RequestTransform returns the code that shapes requests; "" for none.
func RequestTransform(p Proxy) string { return code(p.Contents, memberRequest) }

// ResponseTransform returns the code that shapes responses; "" for none.
func ResponseTransform(p Proxy) string { return code(p.Contents, memberResponse) }

// RequestReactor returns the id of the reactor that shapes requests; "" for none.
func RequestReactor(p Proxy) string { return definition.Member(p.Contents, memberRequestReactor) }

// ResponseReactor returns the id of the reactor that shapes responses; "" for none.
func ResponseReactor(p Proxy) string { return definition.Member(p.Contents, memberResponseReactor) }

// ShapesRequests reports whether code runs on requests.
func ShapesRequests(p Proxy) bool { return RequestTransform(p) != "" || RequestReactor(p) != "" }

// ShapesResponses reports whether code runs on responses.
func ShapesResponses(p Proxy) bool { return ResponseTransform(p) != "" || ResponseReactor(p) != "" }

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
var unserved = []string{"request_transforms", "response_transforms", "disable_detokenization"}

const notServed = "is not supported here"

// says reports whether a member is there and means something.
func says(v jsonvalue.Value) bool {
	return v.IsTrue() || v.Len() > 0 || v.Kind() == jsonvalue.Number || v.Kind() == jsonvalue.String && v.PublicText() != ""
}

// draft reads a proxy without its application from its wire form. What is wrong
// is noted in f; whether code parses is checked elsewhere, as that takes time.
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
	named := make(map[string]string)
	for _, member := range transforms {
		transform := definition.Object(f, in, member)
		if kind := definition.Text(f, transform, "type", member+".type"); kind != "" && kind != definition.MemberCode {
			f.Add(member+".type", notServed)
		}
		code := definition.Text(f, transform, definition.MemberCode, member+"."+definition.MemberCode)
		if code != "" {
			contents.Add(member, definition.EmptyObject.With(definition.MemberCode, jsonvalue.NewString(code)))
		}
		reactor := reactors[member]
		id := definition.Text(f, in, reactor, reactor)
		if id == "" {
			continue
		}
		if code != "" {
			f.AddCode(reactor, "transform_mismatch", "must not be given beside code for the same transform")
		}
		contents.Add(reactor, jsonvalue.NewString(id))
		named[reactor] = id
	}
	configuration := definition.WithoutNulls(definition.Object(f, in, definition.MemberConfiguration))
	if configuration.IsNull() {
		configuration = definition.EmptyObject
	}
	definition.CheckConfiguration(f, configuration)
	contents.Add(definition.MemberConfiguration, configuration)
	return definition.Draft{Name: name, Contents: contents.Value(), Reactors: named}
}

// checkReactors refuses callers who could not read the reactors that a proxy
// names: who decides what a proxy sends where gets what their code makes of their
// configuration.
func checkReactors(c access.Caller, d definition.Draft) error {
	if len(d.Reactors) == 0 {
		return nil
	}
	return c.Require(access.ReactorRead)
}

// checked is draft with its application, and with its code parsed.
func (s *Service) checked(ctx context.Context, c access.Caller, in jsonvalue.Value) (definition.Draft, definition.Choice, error) {
	if in.Kind() != jsonvalue.Object {
		return definition.Draft{}, definition.Choice{}, definition.ErrNotObject
	}
	var f fault.Fields
	choice := definition.Application(&f, in)
	d := s.draft(&f, in).Named(choice)
	if err := checkReactors(c, d); err != nil {
		return d, choice, err
	}
	if err := s.checkCode(ctx, &f, c.Tenant(), d.Contents); err != nil {
		return d, choice, err
	}
	return d, choice, f.Err()
}

// checkRemoval refuses to take the application away from a proxy without
// require_auth unless "application": null is written out. Anyone who has the
// key of such a proxy can use the tokens that its application may use, and every
// token of the tenant when it has none: a field that was forgotten must not do
// that.
func checkRemoval(f *fault.Fields, old Proxy, next definition.Draft, choice definition.Choice) {
	if old.ApplicationID == "" || next.ApplicationID != "" || requireAuth(next.Contents) || choice.Removed {
		return
	}
	f.AddCode("application", "application_required",
		"is required for a proxy with require_auth false that has one: send application_id to keep it, or application as null to remove it")
}

func (s *Service) checkCode(ctx context.Context, f *fault.Fields, tenant string, contents jsonvalue.Value) error {
	for _, member := range transforms {
		if code := code(contents, member); code != "" {
			if err := s.scripts.Check(ctx, f, tenant, member+"."+definition.MemberCode, code, definition.MaxCode); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkedPatch parses the code in a patch. An empty transform means none there
// too, where a merge of nothing would otherwise change nothing.
func (s *Service) checkedPatch(ctx context.Context, tenant string, patch jsonvalue.Value) (jsonvalue.Value, error) {
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
	if err := s.checkCode(ctx, &f, tenant, code.Value()); err != nil {
		return patch, err
	}
	return patch, f.Err()
}

func keepKey(d definition.Draft, old Proxy) definition.Draft {
	key, _ := old.Contents.Get(memberKey)
	d.Contents = d.Contents.With(memberKey, key)
	return d
}
