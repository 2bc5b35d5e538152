package api_test

import (
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
)

func TestWhatIsWrittenAboutAnApplication(t *testing.T) {
	for library, json := range libraries {
		for _, c := range []struct {
			id   string
			ref  *api.ApplicationRef
			want string
		}{
			{"", nil, ""},
			{"one", nil, `"application_id":"one"`},
			{"", &api.ApplicationRef{ID: "one"}, `"application":{"id":"one"}`},
			{"", &api.ApplicationRef{}, `"application":null`},
			{"one", &api.ApplicationRef{ID: "one"}, `"application":{"id":"one"},"application_id":"one"`},
		} {
			for name, v := range map[string]any{
				"a proxy":   api.WriteProxy{Application: c.ref, ApplicationID: c.id},
				"a reactor": api.WriteReactor{Application: c.ref, ApplicationID: c.id},
			} {
				b, err := json.marshal(v)
				_, got, _ := strings.Cut(string(b), `"application`)
				if got != "" {
					got = `"application` + strings.TrimSuffix(got, "}")
				}
				if err != nil || got != c.want {
					t.Errorf("%s writes %s as %s, %v, want %s", library, name, b, err, c.want)
				}
			}
		}
	}
}

func TestWhatWasReadIsWrittenBack(t *testing.T) {
	p := api.Proxy{
		Name: "n", DestinationURL: "d", RequestTransform: &api.ProxyTransform{Code: "a"}, ResponseTransform: &api.ProxyTransform{Code: "b"},
		RequestReactorID: "r", ResponseReactorID: "s", ApplicationID: "one", Configuration: map[string]string{"k": "v"},
	}
	w := p.Write()
	if w.Name != "n" || w.DestinationURL != "d" || *w.RequireAuth || w.RequestTransform.Code != "a" || w.ResponseTransform.Code != "b" || w.ApplicationID != "one" ||
		w.RequestReactorID != "r" || w.ResponseReactorID != "s" || w.Application != nil || w.Configuration["k"] != "v" {
		t.Errorf("Write of a proxy = %+v", w)
	}
	if p.RequireAuth = true; !*p.Write().RequireAuth {
		t.Error("Write of a proxy with require_auth is one without")
	}
	r := api.Reactor{Name: "n", Code: "c", Configuration: map[string]string{"k": "v"}, Application: &api.ApplicationRef{ID: "one"}}.Write()
	if r.Name != "n" || r.Code != "c" || r.Configuration["k"] != "v" || r.Application.ID != "one" {
		t.Errorf("Write of a reactor = %+v", r)
	}
}
