package keeptest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/admin"
)

// Operator returns a client of the server's admin socket, where there are
// several of one by chance.
func (s *Server) Operator() *admin.Client { return s.nodes[s.chance.next()].operator }

// Nodes returns how many servers answer requests.
func (s *Server) Nodes() int { return len(s.nodes) }

// Tenant makes a tenant with a management application that has its key.
func (s *Server) Tenant(t testing.TB) api.CreatedTenant {
	t.Helper()
	var made api.CreatedTenant
	if err := s.Operator().Call(t.Context(), http.MethodPost, "/tenants", api.CreateTenant{Name: "Tenant"}, &made); err != nil {
		t.Fatalf("make a tenant: %v", err)
	}
	return made
}

// Application makes an application of a tenant, in the operator's name.
func (s *Server) Application(t testing.TB, tenant string, in api.CreateApplication) api.Application {
	t.Helper()
	if in.Name == "" {
		in.Name = in.Type
	}
	var made api.Application
	if err := s.Operator().Call(t.Context(), http.MethodPost, "/tenants/"+tenant+"/applications", in, &made); err != nil {
		t.Fatalf("make an application: %v", err)
	}
	return made
}

// Answer is what the API answered, read to its end.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Call calls the API with a key, or without one when that is empty. A body is
// sent as JSON, by PATCH as a merge patch. More headers are given as name, value, name, value.
func (s *Server) Call(t testing.TB, method, path, key, body string, headers ...string) Answer {
	t.Helper()
	var send io.Reader
	if body != "" {
		send = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, send)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set(api.Header(api.DefaultPrefix, api.APIKey), key)
	}
	if body != "" {
		r.Header.Set("Content-Type", api.MediaJSON)
		if method == http.MethodPatch {
			r.Header.Set("Content-Type", api.MediaMergePatch)
		}
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := s.Client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: read the answer: %v", method, path, err)
	}
	return Answer{response.StatusCode, response.Header, string(b)}
}

// Into reads the body, which must be of that status, into v.
func (a Answer) Into(t testing.TB, status int, v any) {
	t.Helper()
	if a.Status != status {
		t.Fatalf("the answer is %s, want status %d", a, status)
	}
	if err := json.Unmarshal([]byte(a.Body), v); err != nil {
		t.Fatalf("the answer is %s: %v", a, err)
	}
}

func (a Answer) String() string { return fmt.Sprintf("%d %s", a.Status, a.Body) }

// CheckProblem fails unless the answer is an error in the one shape that all
// errors have.
func (a Answer) CheckProblem(t testing.TB) {
	t.Helper()
	var members map[string]json.RawMessage
	var p api.Problem
	if json.Unmarshal([]byte(a.Body), &members) != nil || json.Unmarshal([]byte(a.Body), &p) != nil {
		t.Errorf("the answer is %s: no problem", a)
		return
	}
	want := map[string]bool{"title": true, "status": true, "detail": true}
	title := http.StatusText(a.Status)
	if len(p.Errors) > 0 {
		want["errors"], title = true, api.ValidationTitle
	}
	if p.Code != "" {
		want["code"] = true
	}
	for name := range members {
		if !want[name] {
			t.Errorf("the answer is %s: unexpected member %s", a, name)
		}
	}
	if p.Title != title || p.Status != a.Status || p.Detail == "" {
		t.Errorf("the answer is %s: want the title %q, the status and a detail", a, title)
	}
	for path, messages := range p.Errors {
		if path == "" || len(messages) == 0 {
			t.Errorf("the answer is %s: a path without messages", a)
		}
	}
	if got := a.Header.Get("Content-Type"); got != api.MediaJSON {
		t.Errorf("the answer is of type %q, want %q", got, api.MediaJSON)
	}
	if a.Header.Get(api.Header(api.DefaultPrefix, api.TraceID)) == "" {
		t.Error("the answer has no trace id")
	}
}

// Person is a member who has signed in.
type Person struct {
	api.Member
	Cookie string // the value of a Cookie header
}

// Person adds a member with a role to a tenant, by a link, and signs it in.
func (s *Server) Person(t testing.TB, tenant, role, email string) Person {
	t.Helper()
	p := Person{}
	answer := s.Redeem(t, s.LinkCode(t, tenant, role, email))
	answer.Into(t, http.StatusOK, &p.Member)
	p.Cookie, _, _ = strings.Cut(answer.Header.Get("Set-Cookie"), ";")
	return p
}

// LinkCode returns the code of a link for a member, who is added when there is
// none of the email.
func (s *Server) LinkCode(t testing.TB, tenant, role, email string) string {
	t.Helper()
	var made api.CreatedLink
	if err := s.Operator().Call(t.Context(), http.MethodPost, "/tenants/"+tenant+"/links", api.CreateLink{Role: role, Email: email}, &made); err != nil {
		t.Fatalf("make a link: %v", err)
	}
	_, code, _ := strings.Cut(made.URL, "#code=")
	return code
}

// Redeem uses a link.
func (s *Server) Redeem(t testing.TB, code string, headers ...string) Answer {
	t.Helper()
	return s.Call(t, http.MethodPost, "/auth/link", "", `{"code":"`+code+`"}`, headers...)
}

// As calls the API as a person.
func (s *Server) As(t testing.TB, p Person, method, path, body string, headers ...string) Answer {
	t.Helper()
	return s.Call(t, method, path, "", body, append([]string{"Cookie", p.Cookie, "Sec-Fetch-Site", "same-origin"}, headers...)...)
}
