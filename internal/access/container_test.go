package access_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
)

func TestContainersAreLoweredAndChecked(t *testing.T) {
	tests := map[string]string{
		"/":                                  "/",
		"/pci/":                              "/pci/",
		"/PCI/High/":                         "/pci/high/",
		"/a-b/c_d/09/":                       "/a-b/c_d/09/",
		"":                                   "",
		"//":                                 "",
		"/pci":                               "",
		"pci/":                               "",
		"pci":                                "",
		"/pci//high/":                        "",
		"/p ci/":                             "",
		"/pci/../":                           "",
		"/\u212Aelvin/":                      "", // a letter that Unicode lowers to k
		"/\u00e4/":                           "",
		"/\x00/":                             "",
		"/a\n/":                              "",
		"/" + strings.Repeat("a", 398) + "/": "/" + strings.Repeat("a", 398) + "/",
		"/" + strings.Repeat("a", 399) + "/": "",
	}
	for in, want := range tests {
		got, ok := access.NormalizeContainer(in)
		if got != want || ok != (want != "") {
			t.Errorf("NormalizeContainer(%q) = %q, %v; want %q", in, got, ok, want)
		}
	}
}

func FuzzNormalizeContainer(f *testing.F) {
	for _, seed := range []string{"/", "/pci/high/", "/PCI//", "a"} {
		f.Add(seed)
	}
	pattern := regexp.MustCompile(`^/([a-z0-9_-]+/)*$`)
	f.Fuzz(func(t *testing.T, in string) {
		got, ok := access.NormalizeContainer(in)
		if ok && (!pattern.MatchString(got) || !strings.EqualFold(got, in) || len(got) != len(in)) {
			t.Errorf("NormalizeContainer(%q) = %q", in, got)
		}
		if !ok && len(in) <= 400 && pattern.MatchString(in) {
			t.Errorf("NormalizeContainer(%q) is refused", in)
		}
		if again, okAgain := access.NormalizeContainer(got); ok && (again != got || !okAgain) {
			t.Errorf("NormalizeContainer(%q) = %q, not itself", got, again)
		}
	})
}
