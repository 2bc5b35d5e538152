package canary_test

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/luhn"
	"github.com/tokenkeep/tokenkeep/test/canary"
)

// plants are the values that were sent, each of them once.
type plants struct {
	t      *testing.T
	values []string
	where  []string // what each of them was sent as
	data   []int    // those that were sent as data, which a mask hides
}

func (p *plants) add(where, value string) string {
	p.values, p.where = append(p.values, value), append(p.where, where)
	return value
}

// text is a word of its own that no chance makes again.
func (p *plants) text(where string) string { return p.add(where, "cnry"+rand.Text()) }

// secret is a text for the data of a token.
func (p *plants) secret(where string) string {
	p.data = append(p.data, len(p.values))
	return p.text(where)
}

// number is Luhn-valid and no card: no issuer's numbers begin with 999999.
func (p *plants) number(where string) string {
	p.data = append(p.data, len(p.values))
	for body := "999999" + p.digits(9); ; {
		for check := range 10 {
			if n := body + fmt.Sprint(check); luhn.Valid(n) {
				return p.add(where, n)
			}
		}
	}
}

// account is a number of 17 digits.
func (p *plants) account(where string) string {
	p.data = append(p.data, len(p.values))
	return p.add(where, "999"+p.digits(14))
}

func (p *plants) digits(n int) string {
	p.t.Helper()
	most := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
	d, err := rand.Int(rand.Reader, most)
	if err != nil {
		p.t.Fatal(err)
	}
	return fmt.Sprintf("%0*d", n, d)
}

func (p *plants) scanner() *canary.Scanner {
	p.t.Helper()
	return scannerFor(p.t, p.values...)
}

func scannerFor(t *testing.T, values ...string) *canary.Scanner {
	t.Helper()
	s, err := canary.New(values...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// none fails when bytes hold a planted value.
func (p *plants) none(s *canary.Scanner, what string, b []byte) {
	p.t.Helper()
	for _, f := range s.Search(b) {
		p.t.Errorf("%s: found %v, which was sent as %s", what, f, p.where[f.Value])
	}
}

// files reads a folder. Sockets hold nothing.
func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := make(map[string][]byte)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		out[name] = b
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// copyFolder copies a folder under a running server, as a kill at that moment
// would have left it. Names that end in one of the endings are left out.
func copyFolder(t *testing.T, dir string, without ...string) string {
	t.Helper()
	to := t.TempDir()
	for name, b := range files(t, dir) {
		left := false
		for _, ending := range without {
			left = left || strings.HasSuffix(name, ending)
		}
		if left {
			continue
		}
		if err := os.WriteFile(filepath.Join(to, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}
