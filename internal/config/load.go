package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const envPrefix = "TOKENKEEP_"

// clientVariables are read by commands that call a server; they are not
// settings of one.
var clientVariables = []string{"TOKENKEEP_CONFIG", "TOKENKEEP_URL", "TOKENKEEP_API_KEY", "TOKENKEEP_PROXY_KEY", "TOKENKEEP_CA_FILE", "TOKENKEEP_PROFILE"}

// serviceVariable matches what Kubernetes puts into the environment of every
// container for a service that is called tokenkeep.
var serviceVariable = regexp.MustCompile(`^TOKENKEEP(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[A-Z0-9_]+)?)$`)

// Load reads the file (none when path is empty), then the environment (as
// os.Environ gives it), then the flags (setting name → value).
func Load(path string, environment []string, flags map[string]string) (*Config, error) {
	c := &Config{sources: make(map[string]string)}
	for _, s := range settings {
		if s.Secret {
			continue
		}
		if err := s.set(c, s.Default); err != nil {
			return nil, errorf("%s: the default %v", s.Name, err)
		}
	}
	if path != "" {
		values, err := readFile(path)
		if err != nil {
			return nil, err
		}
		if err := c.apply("file", values); err != nil {
			return nil, err
		}
	}
	values, err := readEnvironment(environment)
	if err != nil {
		return nil, err
	}
	if err := c.apply("environment", values); err != nil {
		return nil, err
	}
	return c, c.apply("flag", flags)
}

func find(name string) (Setting, bool) {
	i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		return Setting{}, false
	}
	return settings[i], true
}

func (c *Config) apply(source string, values map[string]string) error {
	for name, v := range values {
		s, ok := find(name)
		if !ok {
			return errorf("unknown setting %s in the %s; 'tokenkeep config settings' lists the known ones", name, source)
		}
		if s.Secret && source != "environment" {
			return errorf("%s must come from the environment variable %s, not from the %s", s.Name, s.Env(), source)
		}
		if err := s.set(c, v); err != nil {
			return errorf("%s (from the %s) %v", s.Name, source, err)
		}
		c.sources[name] = source
	}
	return nil
}

// readFile reads a YAML file into setting names and values: nested names are
// joined by dots, lists by commas.
func readFile(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errorf("there is no file at the path given with --config")
	}
	if err != nil {
		return nil, errorf("the file given with --config cannot be read: %v", errors.Unwrap(err))
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	var root yaml.Node
	if err := d.Decode(&root); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		// The parser's message may quote the file.
		return nil, errorf("the file given with --config is not valid YAML%s", lineOf(err))
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errorf("the file given with --config holds more than one document")
	}
	values := make(map[string]string)
	return values, flatten(root.Content[0], "", values)
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

func lineOf(err error) string {
	if m := yamlLine.FindString(err.Error()); m != "" {
		return " (" + m + ")"
	}
	return ""
}

// settingName is a name, or several joined by dots, as it may stand in a file;
// variableName is what follows the prefix in the environment. Others are not
// repeated: what has a digit in it may be a number that is not for us.
var (
	settingName  = regexp.MustCompile(`^[a-z][a-z_]{0,40}(\.[a-z][a-z_]{0,40})*$`)
	variableName = regexp.MustCompile(`^[A-Z_]{1,80}$`)
)

func flatten(n *yaml.Node, path string, values map[string]string) error {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if !settingName.MatchString(key) {
				return errorf("line %d of the file has a name that is not a setting's", n.Content[i].Line)
			}
			name := strings.TrimPrefix(path+"."+key, ".")
			if err := flatten(n.Content[i+1], name, values); err != nil {
				return err
			}
		}
		return nil
	case yaml.SequenceNode:
		items := make([]string, len(n.Content))
		for i, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return errorf("%s (line %d of the file) must be a list of plain values", path, item.Line)
			}
			items[i] = item.Value
		}
		return put(values, path, strings.Join(items, ","), n.Line)
	case yaml.ScalarNode:
		if path == "" {
			return errorf("the file given with --config must hold names and values")
		}
		if n.Tag == "!!null" {
			return put(values, path, "", n.Line)
		}
		return put(values, path, n.Value, n.Line)
	default:
		return errorf("line %d of the file uses a YAML alias, which settings do not take", n.Line)
	}
}

func put(values map[string]string, name, value string, line int) error {
	if _, twice := values[name]; twice {
		return errorf("%s stands twice in the file (line %d)", name, line)
	}
	values[name] = value
	return nil
}

func readEnvironment(environment []string) (map[string]string, error) {
	byVariable := make(map[string]string, len(settings))
	for _, s := range settings {
		byVariable[s.Env()] = s.Name
	}
	values := make(map[string]string)
	for _, line := range environment {
		variable, value, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(variable, envPrefix) || slices.Contains(clientVariables, variable) {
			continue
		}
		name, ok := byVariable[variable]
		if !ok {
			if serviceVariable.MatchString(variable) {
				continue
			}
			if !variableName.MatchString(strings.TrimPrefix(variable, envPrefix)) {
				return nil, errorf("a variable in the environment begins with %s and is not a setting's; 'tokenkeep config settings' lists the known ones", envPrefix)
			}
			return nil, errorf("unknown setting %s in the environment; 'tokenkeep config settings' lists the known ones", variable)
		}
		values[name] = value
	}
	return values, nil
}

// Validate refuses what is not safe or does not fit together. It looks at
// files but changes nothing.
func (c *Config) Validate() error {
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		return errorf("tls.cert_file and tls.key_file go together: set both or neither")
	}
	if c.Dev && !isLoopback(c.Addr) {
		return errorf("addr is not a loopback address, and this server is for this machine alone: its key lies beside what it protects; use 'tokenkeep serve'")
	}
	if c.TLSCertFile == "" && !c.TLSTerminatedElsewhere && !isLoopback(c.Addr) {
		return errorf("addr is not a loopback address and there is no TLS: set tls.cert_file and tls.key_file, or tls.terminated_elsewhere when something in front ends TLS")
	}
	for name, path := range map[string]string{"tls.cert_file": c.TLSCertFile, "tls.key_file": c.TLSKeyFile, "kek.file": c.KEKFile, "store.url_file": c.StoreURLFile, "extra_ca_file": c.ExtraCAFile} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			return errorf("%s names a file that cannot be read: %v", name, errors.Unwrap(err))
		}
	}
	if err := notForOthers("tls.key_file", c.TLSKeyFile, 0o007); err != nil {
		return err
	}
	if err := notForOthers("kek.file", c.KEKFile, 0o077); err != nil {
		return err
	}
	if err := notForOthers("store.url_file", c.StoreURLFile, 0o077); err != nil {
		return err
	}
	if c.StoreURLFile != "" && !c.StoreURL.IsZero() {
		return errorf("store.url_file and %s are both set: keep one", mustFind("store.url").Env())
	}
	if err := notForOthers("data", c.Data, 0o077); err != nil {
		return err
	}
	if err := c.checkKEK(); err != nil {
		return err
	}
	for _, p := range c.TrustedProxies {
		if p.Bits() == 0 {
			return errorf("trusted_proxies trusts every address, so that anyone could claim to be anyone: name the networks of your own proxies")
		}
	}
	for _, p := range c.AllowNetworks {
		if p.Bits() == 0 {
			return errorf("allow_networks opens every address, this machine's own among them: name the networks of the hosts that tenants may reach")
		}
	}
	return nil
}

// checkKEK makes sure that there is one key-encryption key that wraps.
func (c *Config) checkKEK() error {
	given := 0
	for _, set := range []bool{c.KEKFile != "", c.KEKURI != "", !c.KEK.IsZero()} {
		if set {
			given++
		}
	}
	switch {
	case given > 1 && c.KEKURI == "":
		return errorf("kek.file and kek.value are both set: keep one")
	case given > 1:
		return errorf("kek and kek.file or kek.value are both set: keep one")
	case given == 0 && !c.Dev:
		return errorf("kek.file is not set and neither is kek or %s: there is no key to encrypt anything with; 'tokenkeep key create FILE' makes one", mustFind("kek.value").Env())
	case given == 0 && len(c.KEKAlso) > 0:
		return errorf("kek.also is set and kek is not")
	}
	return nil
}

// ElementsURL returns the origin of field pages, which is also the one that they
// call; empty when it is the host of each request.
func (c *Config) ElementsURL() string { return cmp.Or(c.ElementsPublicURL, c.PublicURL) }

// KEKs returns the URIs of the key-encryption keys: the first wraps, all unwrap.
func (c *Config) KEKs() []string {
	var uris []string
	switch {
	case c.KEKURI != "":
		uris = append(uris, c.KEKURI)
	case c.KEKFile != "":
		uris = append(uris, "file:"+c.KEKFile)
	}
	return append(uris, c.KEKAlso...)
}

func mustFind(name string) Setting {
	s, ok := find(name)
	if !ok {
		panic(fmt.Sprintf("config: no setting %s", name))
	}
	return s
}

// notForOthers refuses a path whose mode lets somebody else in. What is not
// there yet is made with the right mode.
func notForOthers(setting, path string, forbidden os.FileMode) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // whoever opens it reports that
	}
	if mode := info.Mode().Perm(); mode&forbidden != 0 {
		return errorf("%s has mode %04o, which lets others in: run chmod go-rwx on it", setting, mode)
	}
	return nil
}

// isLoopback tells whether only this machine can reach the address.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
