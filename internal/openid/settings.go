package openid

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// Settings are what the operator says of one provider: an entry of the file
// that sign_in.providers_file names.
type Settings struct {
	ID       string `yaml:"id"`   // in the address of its callback
	Name     string `yaml:"name"` // for people
	Issuer   string `yaml:"issuer"`
	ClientID string `yaml:"client_id"`
	// SecretFile has the client's secret; "" for a public client.
	SecretFile string `yaml:"client_secret_file"`
	// Tenant is the tenant whose members sign in here, by their email.
	Tenant string `yaml:"tenant"`
	// Claim is the claim that Map looks at.
	Claim string `yaml:"claim"`
	// Map adds people who are not members yet. The first that matches counts.
	Map []Mapping `yaml:"map"`
	// RequiredACR and RequiredAMR are what the provider must say about how the
	// person was authenticated: one of them each, when they are not empty.
	RequiredACR []string `yaml:"required_acr"`
	RequiredAMR []string `yaml:"required_amr"`

	secret secret.Text
}

// Mapping makes a person a member with a role at the first sign-in.
type Mapping struct {
	// Value is one of the claim's values. Emails are those of the people.
	Value  string   `yaml:"value"`
	Emails []string `yaml:"emails"`
	Tenant string   `yaml:"tenant"` // default: the provider's
	Role   string   `yaml:"role"`
}

var (
	providerID = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)
	// reserved are the paths below /auth that are no provider's.
	reserved = []string{"providers", "link", "sign-out"}
)

// Load reads the file of providers. Errors name the provider by its position,
// and repeat nothing of the file.
func Load(path string) ([]Settings, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.New("the file in sign_in.providers_file cannot be read")
	}
	var list []Settings
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&list); err != nil {
		return nil, errors.New("the file in sign_in.providers_file is not a list of providers with known fields")
	}
	for i := range list {
		if err := list[i].check(); err != nil {
			return nil, fmt.Errorf("provider %d in sign_in.providers_file: %w", i+1, err)
		}
		if slices.ContainsFunc(list[:i], func(s Settings) bool { return s.ID == list[i].ID }) {
			return nil, fmt.Errorf("provider %d in sign_in.providers_file: another one has its id", i+1)
		}
	}
	return list, nil
}

func (s *Settings) check() error {
	u, err := url.Parse(s.Issuer)
	switch {
	case !providerID.MatchString(s.ID) || slices.Contains(reserved, s.ID):
		return errors.New("id must have 1 to 40 lower-case letters, digits and dashes, and begin with a letter")
	case s.Name == "" || s.ClientID == "":
		return errors.New("name and client_id are required")
	case err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())):
		return errors.New("issuer must be an https address, or http on loopback")
	case s.Tenant == "" && len(s.Map) == 0:
		return errors.New("tenant or map is required")
	}
	for _, m := range s.Map {
		switch {
		case m.Role == "" || m.Tenant == "" && s.Tenant == "":
			return errors.New("each entry of map needs a role, and a tenant when the provider has none")
		case (m.Value == "") == (len(m.Emails) == 0):
			return errors.New("each entry of map has a value or emails, and not both")
		case m.Value != "" && s.Claim == "":
			return errors.New("claim is required by a map with values")
		}
	}
	if s.SecretFile != "" {
		b, err := os.ReadFile(s.SecretFile)
		if err != nil || len(bytes.TrimSpace(b)) == 0 {
			return errors.New("client_secret_file cannot be read, or is empty")
		}
		s.secret = secret.NewText(strings.TrimSpace(string(b)))
	}
	return nil
}

func isLoopback(host string) bool {
	return host == "localhost" || host == "127.0.0.1" || host == "::1"
}

// tenants are those whose members sign in with the provider.
func (s *Settings) tenants() (list []string) {
	if s.Tenant != "" {
		list = append(list, s.Tenant)
	}
	for _, m := range s.Map {
		if m.Tenant != "" && !slices.Contains(list, m.Tenant) {
			list = append(list, m.Tenant)
		}
	}
	return list
}

// place returns the tenant of a person, and the role that it gets when it is not
// a member there yet; "" for none.
func (s *Settings) place(email string, values []string) (tenant, role string) {
	for _, m := range s.Map {
		if m.Value != "" && slices.Contains(values, m.Value) || slices.ContainsFunc(m.Emails, func(e string) bool { return strings.EqualFold(e, email) }) {
			if m.Tenant != "" {
				return m.Tenant, m.Role
			}
			return s.Tenant, m.Role
		}
	}
	return s.Tenant, ""
}
