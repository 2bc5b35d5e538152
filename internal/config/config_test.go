package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/config"
)

// planted stands for a secret in the wrong place: no error may repeat it.
const planted = "4242424242424242"

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokenkeep.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheLaterSourceWins(t *testing.T) {
	path := write(t, "addr: 127.0.0.1:1\nlog:\n  level: warn\ntimeout:\n  read: 5s\ncors_origins: [https://a.example, https://b.example]\n")
	c, err := config.Load(path, []string{"TOKENKEEP_ADDR=127.0.0.1:2", "TOKENKEEP_LOG_LEVEL=error", "HOME=/"}, map[string]string{"addr": "127.0.0.1:3"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Addr != "127.0.0.1:3" || c.Source("addr") != "flag" {
		t.Errorf("addr = %s from %s, want the flag's", c.Addr, c.Source("addr"))
	}
	if got := c.LogLevel.String(); got != "ERROR" || c.Source("log.level") != "environment" {
		t.Errorf("log.level = %s from %s, want the environment's", got, c.Source("log.level"))
	}
	if c.ReadTimeout != 5*time.Second || c.Source("timeout.read") != "file" {
		t.Errorf("timeout.read = %s from %s, want the file's", c.ReadTimeout, c.Source("timeout.read"))
	}
	if len(c.CORSOrigins) != 2 || c.CORSOrigins[1] != "https://b.example" {
		t.Errorf("cors_origins = %v, want the two of the file", c.CORSOrigins)
	}
	if c.MaxBody != 5<<20 || c.Source("max_body") != "default" {
		t.Errorf("max_body = %d from %s, want the default", c.MaxBody, c.Source("max_body"))
	}
}

func TestWhatIsNotUnderstoodIsRefusedByName(t *testing.T) {
	for name, test := range map[string]struct {
		file  string
		env   []string
		flags map[string]string
		want  string
	}{
		"unknown name in the file":          {file: "adr: x", want: "unknown setting adr"},
		"unknown nested name":               {file: "tls:\n  cert: x", want: "unknown setting tls.cert"},
		"unknown variable":                  {env: []string{"TOKENKEEP_ADR=" + planted}, want: "unknown setting TOKENKEEP_ADR"},
		"unknown flag":                      {flags: map[string]string{"adr": planted}, want: "unknown setting adr"},
		"a name twice":                      {file: "addr: 127.0.0.1:1\naddr: 127.0.0.1:2", want: "twice"},
		"a value where a name is due":       {file: planted + ": 1", want: "line 1"},
		"a value in a name":                 {file: "addr:\n  a" + planted + ": 1", want: "line 2"},
		"a value in a variable's name":      {env: []string{"TOKENKEEP_A" + planted + "=1"}, want: "TOKENKEEP_"},
		"a dotted name and its nested twin": {file: "log.level: warn\nlog:\n  level: warn", want: "twice"},
		"no time at all":                    {file: "timeout.write: 0s", want: "timeout.write"},
		"not YAML":                          {file: "addr: [" + planted, want: "not valid YAML"},
		"two documents":                     {file: "addr: 127.0.0.1:1\n---\naddr: 127.0.0.1:2", want: "more than one document"},
		"an alias":                          {file: "addr: &a 127.0.0.1:1\ndata: *a", want: "alias"},
		"a list of lists":                   {file: "cors_origins: [[a]]", want: "cors_origins"},
		"a bare value":                      {file: planted, want: "names and values"},
		"addr without a port":               {file: "addr: " + planted, want: "addr"},
		"a port too high":                   {file: "addr: 127.0.0.1:70000", want: "addr"},
		"a duration without unit":           {file: "timeout: {read: " + planted + "}", want: "timeout.read"},
		"a level that does not exist":       {file: "log: {level: " + planted + "}", want: "log.level"},
		"a size that is too small":          {file: "max_body: 1", want: "max_body"},
		"a rate that is not a number":       {file: "rate_limit: {per_key: NaN}", want: "rate_limit.per_key"},
		"a network that is not one":         {file: "trusted_proxies: [" + planted + "]", want: "trusted_proxies"},
		"a mapped network":                  {file: "allow_networks: ['::ffff:10.0.0.0/104']", want: "allow_networks"},
		"an open host that is an address":   {file: "allow_hosts: [10.0.0.1]", want: "allow_hosts"},
		"an open host that is a URL":        {file: "allow_hosts: ['https://a" + planted + "/']", want: "allow_hosts"},
		"a star as an open host":            {file: "allow_hosts: ['*']", want: "allow_hosts"},
		"an open port that is none":         {file: "allow_ports: [" + planted + "]", want: "allow_ports"},
		"an open port 0":                    {file: "allow_ports: [0]", want: "allow_ports"},
		"a boolean that is not one":         {file: "tls: {terminated_elsewhere: " + planted + "}", want: "tls.terminated_elsewhere"},
		"a prefix that no header can have":  {file: "header_prefix: 'a b'", want: "header_prefix"},
		"a secret in the file":              {file: "kek: {value: " + planted + "}", want: "TOKENKEEP_KEK_VALUE"},
		"a secret on the command line":      {flags: map[string]string{"kek.value": planted}, want: "TOKENKEEP_KEK_VALUE"},
		"an empty data folder":              {file: "data: ''", want: "data"},
		"an origin that is not one":         {file: "cors_origins: [" + planted + "]", want: "cors_origins"},
		"a public address with a path":      {file: "public_url: https://vault.example/" + planted, want: "public_url"},
		"a public address in clear":         {file: "public_url: http://vault.example", want: "public_url"},
		"a public address with a slash":     {file: "elements.public_url: https://fields.example/", want: "elements.public_url"},
		"a public address with a query":     {file: "elements: {public_url: 'https://fields.example?" + planted + "'}", want: "elements.public_url"},
		"an environment with a slash in it": {file: "environment: a/b", want: "environment"},
	} {
		t.Run(name, func(t *testing.T) {
			path := ""
			if test.file != "" {
				path = write(t, test.file)
			}
			_, err := config.Load(path, test.env, test.flags)
			var ce *config.Error
			if !errors.As(err, &ce) {
				t.Fatalf("Load = %v, want a *config.Error", err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("Load = %q, want it to name %q", err, test.want)
			}
			if strings.Contains(err.Error(), planted) {
				t.Errorf("Load repeats a value: %q", err)
			}
		})
	}
}

func TestANameMayBeWrittenWithDots(t *testing.T) {
	c, err := config.Load(write(t, "log.level: warn\ntimeout: {read: 5s}\n"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.LogLevel.String(); got != "WARN" || c.ReadTimeout != 5*time.Second {
		t.Errorf("log.level = %s, timeout.read = %s; want those of the file", got, c.ReadTimeout)
	}
}

func TestADevelopersServerIsForThisMachineAlone(t *testing.T) {
	for addr, ok := range map[string]bool{"127.0.0.1:0": true, "localhost:0": true, "0.0.0.0:0": false, ":0": false, "192.0.2.1:0": false} {
		c, err := config.Load("", nil, map[string]string{"addr": addr, "data": filepath.Join(t.TempDir(), "new"), "tls.terminated_elsewhere": "true"})
		if err != nil {
			t.Fatal(err)
		}
		c.Dev = true
		if err := c.Validate(); (err == nil) != ok {
			t.Errorf("Validate with addr %s = %v", addr, err)
		}
	}
}

func TestVariablesThatAreNotSettingsOfAServerAreLeftAlone(t *testing.T) {
	env := []string{"TOKENKEEP_API_KEY=x", "TOKENKEEP_URL=x", "TOKENKEEP_SERVICE_HOST=10.0.0.1", "TOKENKEEP_PORT=tcp://10.0.0.1:80", "TOKENKEEP_PORT_8420_TCP_ADDR=10.0.0.1"}
	if _, err := config.Load("", env, nil); err != nil {
		t.Errorf("Load = %v, want nil", err)
	}
}

func TestUnsafeSettingsAreRefusedByName(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("x"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kek, open := file("kek", 0o600), file("open", 0o644)
	cert, key := file("cert", 0o644), file("key", 0o640)
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	safe := map[string]string{"addr": "127.0.0.1:0", "data": filepath.Join(dir, "new"), "kek.file": kek}
	for name, test := range map[string]struct {
		change map[string]string
		want   string // "" means that nothing is refused
	}{
		"loopback in clear":                         {nil, ""},
		"localhost in clear":                        {map[string]string{"addr": "localhost:0"}, ""},
		"IPv6 loopback in clear":                    {map[string]string{"addr": "[::1]:0"}, ""},
		"every address with TLS":                    {map[string]string{"addr": "0.0.0.0:0", "tls.cert_file": cert, "tls.key_file": key}, ""},
		"every address behind a proxy":              {map[string]string{"addr": ":0", "tls.terminated_elsewhere": "true"}, ""},
		"every address in clear":                    {map[string]string{"addr": "0.0.0.0:0"}, "addr is not a loopback"},
		"no host in clear":                          {map[string]string{"addr": ":0"}, "addr is not a loopback"},
		"a certificate without its key":             {map[string]string{"tls.cert_file": cert}, "tls.key_file"},
		"a certificate that is not there":           {map[string]string{"tls.cert_file": dir + "/none", "tls.key_file": key}, "tls.cert_file"},
		"a TLS key that everyone can read":          {map[string]string{"tls.cert_file": cert, "tls.key_file": open}, "tls.key_file"},
		"no key-encryption key":                     {map[string]string{"kek.file": ""}, "kek.file"},
		"a key-encryption key that others can read": {map[string]string{"kek.file": open}, "kek.file"},
		"a data folder that others can read":        {map[string]string{"data": folder}, "data"},
		"every address as a destination":            {map[string]string{"allow_networks": "::/0"}, "allow_networks"},
		"an inner network as a destination":         {map[string]string{"allow_networks": "10.1.0.0/16", "allow_hosts": "psp.internal,*.svc", "allow_ports": "444", "allow_http": "true"}, ""},
		"authorities that are not there":            {map[string]string{"extra_ca_file": dir + "/none"}, "extra_ca_file"},
		"every address trusted as a proxy":          {map[string]string{"trusted_proxies": "0.0.0.0/0"}, "trusted_proxies"},
	} {
		t.Run(name, func(t *testing.T) {
			flags := make(map[string]string)
			for k, v := range safe {
				flags[k] = v
			}
			for k, v := range test.change {
				flags[k] = v
			}
			c, err := config.Load("", nil, flags)
			if err != nil {
				t.Fatal(err)
			}
			err = c.Validate()
			if test.want == "" && err != nil {
				t.Errorf("Validate = %v, want nil", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("Validate = %v, want it to name %s", err, test.want)
			}
		})
	}
}

func TestASecretSettingIsNotShown(t *testing.T) {
	c, err := config.Load("", []string{"TOKENKEEP_KEK_VALUE=" + planted}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.KEK.Reveal() != planted {
		t.Error("the key from the environment did not arrive")
	}
	for _, s := range config.Settings() {
		if strings.Contains(s.Value(c), planted) {
			t.Errorf("%s shows the key", s.Name)
		}
	}
}

func TestEveryDefaultIsTheValueThatItSays(t *testing.T) {
	c, err := config.Load("", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range config.Settings() {
		want := s.Default
		if d, err := time.ParseDuration(want); err == nil && want != "0" {
			want = d.String()
		}
		if got := s.Value(c); got != want {
			t.Errorf("%s = %q, want its default %q", s.Name, got, want)
		}
	}
}

func TestTheOriginOfFieldPages(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"nothing":          {"addr: 127.0.0.1:1", ""},
		"one for both":     {"public_url: https://vault.example", "https://vault.example"},
		"two":              {"public_url: https://vault.example\nelements: {public_url: 'https://fields.example:8443'}", "https://fields.example:8443"},
		"one of its own":   {"elements.public_url: http://localhost:8420", "http://localhost:8420"},
		"set and emptied":  {"public_url: ''", ""},
		"on this computer": {"public_url: http://127.0.0.1:8420", "http://127.0.0.1:8420"},
	} {
		c, err := config.Load(write(t, test.file), nil, nil)
		if err != nil || c.ElementsURL() != test.want {
			t.Errorf("%s: ElementsURL = %q, %v; want %q", name, c.ElementsURL(), err, test.want)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("addr: 127.0.0.1:1\ntls:\n  cert_file: a\n")
	f.Add("a: &x [1, 2]\nb: *x\n")
	f.Add("{\"addr\": \"127.0.0.1:0\", \"cors_origins\": [\"*\"]}")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Skip()
		}
		_, err := config.Load(path, nil, nil)
		var ce *config.Error
		if err != nil && !errors.As(err, &ce) {
			t.Errorf("Load = %v, want nil or a *config.Error", err)
		}
	})
}

func TestPublicKeysHaveRateLimitsExceptInDevelopmentMode(t *testing.T) {
	type rates struct{ requests, tokens, keyTokens float64 }
	for name, tt := range map[string]struct {
		dev   bool
		flags map[string]string
		want  rates
	}{
		"a server":                        {false, nil, rates{20, 50, 2000}},
		"a server that turns them off":    {false, map[string]string{"rate_limit.public_requests": "0"}, rates{0, 50, 2000}},
		"development mode":                {true, nil, rates{}},
		"development mode that wants one": {true, map[string]string{"rate_limit.public_tokens": "7"}, rates{0, 7, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := config.Load("", nil, tt.flags)
			if err != nil {
				t.Fatal(err)
			}
			c.Dev = tt.dev
			var got rates
			if got.requests, got.tokens, got.keyTokens = c.PublicRates(); got != tt.want {
				t.Errorf("PublicRates() = %v, want %v", got, tt.want)
			}
		})
	}
}
