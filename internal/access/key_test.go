package access_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/luhn"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

const tenantID = "b2a1d0c3-4e5f-4a6b-8c7d-9e0f1a2b3c4d"

var allKinds = []access.KeyKind{access.PublicKey, access.PrivateKey, access.ManagementKey, access.SessionKey, access.ProxyKey, access.Nonce}

func TestKeysHaveTheirForm(t *testing.T) {
	const body = `[1-9A-HJ-NP-Za-km-z]{50}$`
	tests := map[access.KeyKind]string{
		access.PublicKey:     `^key_test_pub_`,
		access.PrivateKey:    `^key_test_pvt_`,
		access.ManagementKey: `^key_test_mgt_`,
		access.SessionKey:    `^key_test_sess_`,
		access.ProxyKey:      `^key_test_proxy_`,
		access.Nonce:         `^nonce_test_`,
	}
	for kind, head := range tests {
		k, err := access.NewKey(rand.Reader, "test", kind, tenantID)
		if err != nil {
			t.Fatal(err)
		}
		text := k.Text().Reveal()
		if !regexp.MustCompile(head+body).MatchString(text) || len(text) > 100 {
			t.Errorf("kind %d is %q, want %s%s", kind, text, head, body)
		}
		parsed, ok := access.ParseKey(k.Text(), allKinds...)
		if !ok || parsed.Kind() != kind || parsed.Tenant() != tenantID || !parsed.Text().Equal(k.Text()) || parsed.Prefix() != k.Prefix() || k.Kind() != kind || k.Tenant() != tenantID {
			t.Errorf("ParseKey(%q) = %v of kind %d in %s", text, ok, parsed.Kind(), parsed.Tenant())
		}
		// Four characters of the secret are shown, twenty-four stay hidden.
		if !strings.HasPrefix(text, k.Prefix()) || len(text)-len(k.Prefix()) != 24 {
			t.Errorf("the prefix of %q is %q", text, k.Prefix())
		}
	}
}

func TestTheLongestKeyIsWithinBounds(t *testing.T) {
	k, err := access.NewKey(rand.Reader, strings.Repeat("z", 16), access.ProxyKey, tenantID)
	if err != nil || len(k.Text().Reveal()) > 100 {
		t.Errorf("NewKey = %d characters, %v", len(k.Text().Reveal()), err)
	}
}

// The text of a key is kept by customers: it must read the same in every
// release.
func TestKeysReadAsTheyAlwaysDid(t *testing.T) {
	for _, test := range []struct {
		random byte
		tenant string
		want   string
	}{
		{0, "00000000-0000-0000-0000-000000000000", "key_test_pvt_" + strings.Repeat("1", 50)},
		{0xff, "ffffffff-ffff-ffff-ffff-ffffffffffff", "key_test_pvt_YcVfxkQb6JRzqk5kF2tNLv4ZrjxJnU1LA5xSyrWMNuXTvSYKwt"},
	} {
		k, err := access.NewKey(bytes.NewReader(bytes.Repeat([]byte{test.random}, 20)), "test", access.PrivateKey, test.tenant)
		if err != nil || k.Text().Reveal() != test.want {
			t.Errorf("NewKey of %#x = %s, %v; want %s", test.random, k.Text().Reveal(), err, test.want)
		}
		if parsed, ok := access.ParseKey(k.Text(), access.PrivateKey); !ok || parsed.Tenant() != test.tenant {
			t.Errorf("ParseKey of %#x = %v in %s", test.random, ok, parsed.Tenant())
		}
	}
}

func TestEveryRandomBitIsInTheKey(t *testing.T) {
	seen := map[string]bool{}
	for bit := range 160 {
		random := make([]byte, 20)
		random[bit/8] = 1 << (bit % 8)
		k, err := access.NewKey(bytes.NewReader(random), "test", access.PrivateKey, tenantID)
		if err != nil {
			t.Fatal(err)
		}
		seen[k.Text().Reveal()] = true
	}
	if len(seen) != 160 {
		t.Errorf("160 bits gave %d keys", len(seen))
	}
}

func TestKeysThatCannotBeMade(t *testing.T) {
	tests := map[string]struct {
		random      io.Reader
		environment string
		kind        access.KeyKind
		tenant      string
	}{
		"no randomness":             {iotest.ErrReader(errors.New("dry")), "test", access.PrivateKey, tenantID},
		"too little randomness":     {bytes.NewReader(make([]byte, 19)), "test", access.PrivateKey, tenantID},
		"no environment":            {rand.Reader, "", access.PrivateKey, tenantID},
		"a long environment":        {rand.Reader, strings.Repeat("a", 17), access.PrivateKey, tenantID},
		"an underscore":             {rand.Reader, "a_b", access.PrivateKey, tenantID},
		"capitals":                  {rand.Reader, "Test", access.PrivateKey, tenantID},
		"no kind":                   {rand.Reader, "test", 0, tenantID},
		"an unknown kind":           {rand.Reader, "test", access.LinkCode + 1, tenantID},
		"no tenant":                 {rand.Reader, "test", access.PrivateKey, ""},
		"a tenant that is no id":    {rand.Reader, "test", access.PrivateKey, "acme"},
		"an id in another notation": {rand.Reader, "test", access.PrivateKey, strings.ToUpper(tenantID)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if k, err := access.NewKey(test.random, test.environment, test.kind, test.tenant); err == nil || !k.Text().IsZero() {
				t.Errorf("NewKey = %v, %v", k, err)
			}
		})
	}
}

func TestTextsThatAreNoKeys(t *testing.T) {
	good := "key_test_pvt_" + strings.Repeat("1", 50)
	if _, ok := access.ParseKey(secret.NewText(good), access.PrivateKey); !ok {
		t.Fatal("the text that the others are made from is no key")
	}
	tests := map[string]string{
		"nothing":                     "",
		"a word":                      "key",
		"a body alone":                strings.Repeat("1", 50),
		"a head alone":                "key_test_pvt_",
		"a character short":           good[:len(good)-1],
		"a character long":            good + "1",
		"far too long":                strings.Repeat(good, 1000),
		"another prefix":              "kay_test_pvt_" + strings.Repeat("1", 50),
		"an unknown kind":             "key_test_pov_" + strings.Repeat("1", 50),
		"no environment":              "key__pvt_" + strings.Repeat("1", 50),
		"a long environment":          "key_" + strings.Repeat("a", 17) + "_pvt_" + strings.Repeat("1", 50),
		"capitals in the environment": "key_Test_pvt_" + strings.Repeat("1", 50),
		"two environments":            "key_a_b_pvt_" + strings.Repeat("1", 50),
		"a zero in the tenant":        "key_test_pvt_0" + strings.Repeat("1", 49),
		"an l in the secret":          "key_test_pvt_" + strings.Repeat("1", 49) + "l",
		"a tenant too large":          "key_test_pvt_" + strings.Repeat("z", 22) + strings.Repeat("1", 28),
		"a tenant too large by one":   "key_test_pvt_" + "YcVfxkQb6JRzqk5kF2tNLw" + strings.Repeat("1", 28),
		"a secret too large":          "key_test_pvt_" + strings.Repeat("1", 22) + strings.Repeat("z", 28),
		"white space around":          " " + good,
		"a line end":                  good + "\n",
		"a NUL":                       good[:20] + "\x00" + good[21:],
		"not ASCII":                   good[:20] + "\u00e4" + good[22:],
		"a nonce with a kind":         "nonce_test_pvt_" + strings.Repeat("1", 50),
		"a key without a kind":        "key_test_" + strings.Repeat("1", 50),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			if k, ok := access.ParseKey(secret.NewText(text), allKinds...); ok || k.Tenant() != "" || !k.Text().IsZero() {
				t.Errorf("ParseKey(%q) = %v in %s", text, ok, k.Tenant())
			}
		})
	}
}

func TestAKeyOpensOnlyWhereItsKindIsAllowed(t *testing.T) {
	for _, kind := range allKinds {
		k, err := access.NewKey(rand.Reader, "test", kind, tenantID)
		if err != nil {
			t.Fatal(err)
		}
		for _, allowed := range allKinds {
			if _, ok := access.ParseKey(k.Text(), allowed); ok != (allowed == kind) {
				t.Errorf("a key of kind %d where %d is allowed: %v", kind, allowed, ok)
			}
		}
		if _, ok := access.ParseKey(k.Text()); ok {
			t.Errorf("a key of kind %d where none is allowed", kind)
		}
	}
}

func TestApplicationTypesHaveTheirKinds(t *testing.T) {
	for applicationType, want := range map[access.ApplicationType]access.KeyKind{
		access.Public: access.PublicKey, access.Private: access.PrivateKey, access.Management: access.ManagementKey, "robot": 0,
	} {
		if got := applicationType.KeyKind(); got != want {
			t.Errorf("%q.KeyKind() = %d, want %d", applicationType, got, want)
		}
	}
}

func TestPrintingAKeyDoesNotShowIt(t *testing.T) {
	k, err := access.NewKey(rand.Reader, "test", access.PrivateKey, tenantID)
	if err != nil {
		t.Fatal(err)
	}
	hidden := strings.TrimPrefix(k.Text().Reveal(), k.Prefix())
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if got := fmt.Sprintf(verb, k); strings.Contains(got, hidden) || strings.Contains(got, fmt.Sprintf("%x", hidden)) {
			t.Errorf("Sprintf(%q) = %s", verb, got)
		}
	}
}

func TestNewIDIsAUUIDOfVersion4(t *testing.T) {
	first, second := access.NewID(), access.NewID()
	id, err := uuid.Parse(first)
	if err != nil || id.Version() != 4 || first == second {
		t.Errorf("NewID gave %q and %q", first, second)
	}
}

// What parses is exactly what NewKey would have written.
func FuzzParseKey(f *testing.F) {
	f.Add("key_test_pvt_" + strings.Repeat("1", 50))
	f.Add("nonce_a_YcVfxkQb6JRzqk5kF2tNLv" + strings.Repeat("2", 28))
	f.Add("key__pub_")
	form := regexp.MustCompile(`^(key_[a-z0-9]{1,16}_(pub|pvt|mgt|sess|proxy)|nonce_[a-z0-9]{1,16})_[1-9A-HJ-NP-Za-km-z]{50}$`)
	f.Fuzz(func(t *testing.T, text string) {
		k, ok := access.ParseKey(secret.NewText(text), allKinds...)
		if !ok {
			return
		}
		if !form.MatchString(text) || len(text) > 100 || !strings.HasPrefix(text, k.Prefix()) || k.Text().Reveal() != text {
			t.Fatalf("ParseKey(%q) is accepted", text)
		}
		environment := strings.Split(text, "_")[1]
		again, err := access.NewKey(bytes.NewReader(make([]byte, 20)), environment, k.Kind(), k.Tenant())
		if err != nil || again.Text().Reveal()[:len(text)-28] != text[:len(text)-28] {
			t.Fatalf("ParseKey(%q) names %s, which is written otherwise", text, k.Tenant())
		}
	})
}

// One UUID in 80 holds a card number once their dashes are gone.
func TestNewIDIsNeverTakenForACardNumber(t *testing.T) {
	for range 2000 {
		if id := access.NewID(); luhn.HasCard(strings.ReplaceAll(id, "-", "")) {
			t.Fatalf("NewID gave %q", id)
		}
	}
}
