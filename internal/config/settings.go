package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/origin"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// Setting is one row of the table of settings: its name in the file, what it
// means, its default, and how it is read. The environment variable, the flag
// and the page in docs/ all follow from the row.
type Setting struct {
	Name    string
	Doc     string
	Default string
	// Secret settings come from the environment alone: a file may be copied
	// and a command line is seen by every process.
	Secret bool
	set    func(*Config, string) error
	get    func(*Config) string
}

// Env returns the environment variable of the setting.
func (s Setting) Env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.Name, ".", "_"))
}

// Flag returns the command-line flag of the setting.
func (s Setting) Flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(s.Name) }

// Value returns the value in force, as it would be written in the file.
func (s Setting) Value(c *Config) string { return s.get(c) }

// Settings returns the table.
func Settings() []Setting { return settings }

var settings = []Setting{
	text("addr", "Address to listen on, as host:port. Port 0 takes a free one and prints it.",
		"127.0.0.1:8420", func(c *Config) *string { return &c.Addr }, isAddress),
	text("data", "Folder of the embedded store, of the admin socket and of what the server notes about itself.",
		"data", func(c *Config) *string { return &c.Data }, isSet),
	text("environment", "The word after key_ in every key that this server makes, so that people can tell keys apart.",
		"prod", func(c *Config) *string { return &c.Environment }, matches(`^[a-z0-9]{1,12}$`, "must be 1 to 12 lower-case letters and digits")),
	text("header_prefix", "Prefix of the service's own headers: SVC makes SVC-API-KEY.",
		"SVC", func(c *Config) *string { return &c.HeaderPrefix }, matches(`^[A-Za-z][A-Za-z0-9-]{0,30}$`, "must begin with a letter and hold letters, digits and dashes")),

	text("public_url", "Origin under which browsers reach this server, such as https://vault.example. The policy of field pages names it. Without it, the host of each request counts.",
		"", func(c *Config) *string { return &c.PublicURL }, isOrigin),
	text("elements.public_url", "Origin of field pages, such as https://fields.vault.example, when they have a host name apart from that of the API. It leads to this server, too, which serves the fields under this name and nothing else; a proxy in front must pass the Host header on.",
		"", func(c *Config) *string { return &c.ElementsPublicURL }, isOrigin),

	text("sign_in.providers_file", "YAML file with the OpenID Connect providers that people sign in with; see docs/people.md. Without it, people sign in with links of the operator.",
		"", func(c *Config) *string { return &c.SignInProvidersFile }, nil),

	text("tls.cert_file", "PEM file with the certificate and its chain. Read again on SIGHUP.",
		"", func(c *Config) *string { return &c.TLSCertFile }, nil),
	text("tls.key_file", "PEM file with the certificate's private key. Read again on SIGHUP.",
		"", func(c *Config) *string { return &c.TLSKeyFile }, nil),
	flag("tls.terminated_elsewhere", "Says that something in front of this server ends TLS, so that it may listen in clear on an address other than loopback.",
		"false", func(c *Config) *bool { return &c.TLSTerminatedElsewhere }),

	{
		Name: "kek", Doc: "Key-encryption key, as a URI: file:/etc/tokenkeep/kek, hcvault://…, awskms://…, pkcs11:…, gcpkms://… or azurekv://…; see docs/kms.md.",
		set: func(c *Config, v string) error {
			c.KEKURI = ""
			if path, ok := strings.CutPrefix(v, "file:"); ok {
				c.KEKFile = path
			} else {
				c.KEKURI = v
			}
			return nil
		},
		get: func(c *Config) string { return c.KEKURI },
	},
	{
		Name: "kek.also", Doc: "Key-encryption keys, as URIs, that open what they wrapped and wrap nothing new. For moves from one key to another.",
		set: func(c *Config, v string) error { c.KEKAlso = list(v); return nil },
		get: func(c *Config) string { return strings.Join(c.KEKAlso, ",") },
	},
	{
		Name: "kek.max_outage", Doc: "How long tenants whose keys are in memory are served while the KMS is not available; 0 is no limit.", Default: "0s",
		set: func(c *Config, v string) error {
			d, err := time.ParseDuration(v)
			if err != nil || d < 0 {
				return errors.New("must be a duration such as 12h, or 0s")
			}
			c.KEKMaxOutage = d
			return nil
		},
		get: func(c *Config) string { return c.KEKMaxOutage.String() },
	},
	span("kek.timeout", "How long one call of the KMS may take.", "5s", 100*time.Millisecond, func(c *Config) *time.Duration { return &c.KEKTimeout }),
	{
		Name: "kek.token", Doc: "Token for hcvault://… with auth=token.", Secret: true,
		set: func(c *Config, v string) error { c.KEKToken = secret.NewText(v); return nil },
		get: func(c *Config) string { return isGiven(c.KEKToken) },
	},
	{
		Name: "kek.pin", Doc: "PIN for pkcs11:… without pin-source.", Secret: true,
		set: func(c *Config, v string) error { c.KEKPIN = secret.NewText(v); return nil },
		get: func(c *Config) string { return isGiven(c.KEKPIN) },
	},
	text("kek.file", "File with the key-encryption key, mode 0600. 'tokenkeep key create' makes one.",
		"", func(c *Config) *string { return &c.KEKFile }, nil),
	{
		Name: "store.url", Doc: "URL of a PostgreSQL database (postgres://user:password@host/name), in place of the embedded store.", Secret: true,
		set: func(c *Config, v string) error { c.StoreURL = secret.NewText(v); return nil },
		get: func(c *Config) string { return isGiven(c.StoreURL) },
	},
	text("store.url_file", "File with that URL, mode 0600, for those who keep secrets in files.",
		"", func(c *Config) *string { return &c.StoreURLFile }, nil),
	{
		Name: "store.reserve", Doc: "Bytes of the data folder's disk that the embedded store keeps for its log, so that reads go on when the disk is full; 0 keeps none.", Default: "67108864",
		set: func(c *Config, v string) error {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil || n < 0 || n > 16<<30 || n > 0 && n < 16<<20 {
				return errors.New("must be 0 or a number of bytes from 16777216 to 17179869184")
			}
			c.StoreReserve = n
			return nil
		},
		get: func(c *Config) string { return strconv.FormatInt(c.StoreReserve, 10) },
	},
	count("store.connections", "Most connections to PostgreSQL that serve requests; a few more serve sweeps and checks.", "16", 2, 1000,
		func(c *Config) *int { return &c.StoreConnections }),
	text("store.request_role", "Role of PostgreSQL that requests act as: it sees one tenant at a time.",
		"tokenkeep_requests", func(c *Config) *string { return &c.StoreRequestRole }, matches(`^[a-z_][a-z0-9_]{0,62}$`, "must be a plain role name in lower case")),
	flag("store.logged_epoch_keys", "Keeps short-lived keys through a crash of PostgreSQL, at the price of copies in its write-ahead log and on standbys.",
		"false", func(c *Config) *bool { return &c.StoreLoggedEpochKeys }),
	{
		Name: "kek.value", Doc: "The key-encryption key itself, for machines that hand secrets over in the environment.", Secret: true,
		set: func(c *Config, v string) error { c.KEK = secret.NewText(v); return nil },
		get: func(c *Config) string { return isGiven(c.KEK) },
	},

	{
		Name: "log.level", Doc: "Least level that is logged: debug, info, warn or error. No level logs values.", Default: "info",
		set: func(c *Config, v string) error {
			if err := c.LogLevel.UnmarshalText([]byte(v)); err != nil {
				return errors.New("must be debug, info, warn or error")
			}
			return nil
		},
		get: func(c *Config) string { return strings.ToLower(c.LogLevel.String()) },
	},
	text("log.format", "Form of the log: json or text.",
		"json", func(c *Config) *string { return &c.LogFormat }, matches(`^(json|text)$`, "must be json or text")),

	{
		Name: "cors_origins", Doc: "Origins of browser pages that may call the API; * lets every page (keys made for browsers are what protects it).", Default: "*",
		set: func(c *Config, v string) error {
			c.CORSOrigins = list(v)
			for _, o := range c.CORSOrigins {
				if o != "*" && !strings.HasPrefix(o, "https://") && !strings.HasPrefix(o, "http://") {
					return errors.New("must be * or a list of origins such as https://shop.example")
				}
			}
			return nil
		},
		get: func(c *Config) string { return strings.Join(c.CORSOrigins, ",") },
	},
	networks("trusted_proxies", "Networks of the proxies in front whose X-Forwarded-For is believed.",
		func(c *Config) *[]netip.Prefix { return &c.TrustedProxies }),
	rate("rate_limit.per_key", "Requests a second that one key may make on this node, with bursts of ten times that; 0 is no limit.", "0",
		func(c *Config) *float64 { return &c.RateLimitPerKey }),
	rate("rate_limit.per_address", "Requests a second that one client address may make on this node, with bursts of ten times that; 0 is no limit.", "0",
		func(c *Config) *float64 { return &c.RateLimitPerAddress }),
	rate("rate_limit.public_requests", "Requests a second that one client address may make with one public key or session on this node, with bursts of ten times that; 0 is no limit. Development mode has none unless it is set.", "20",
		func(c *Config) *float64 { return &c.RateLimitPublicRequests }),
	rate("rate_limit.public_tokens", "Tokens a second that one client address may access with one public key or session on this node, with bursts of twenty times that and at least 1,000; 0 is no limit. Development mode has none unless it is set.", "50",
		func(c *Config) *float64 { return &c.RateLimitPublicTokens }),
	rate("rate_limit.public_key_tokens", "Tokens a second that all callers of one public key may access together on this node, with bursts of ten times that and at least 1,000; beyond it the busiest addresses are refused first. 0 is no limit. Development mode has none unless it is set.", "2000",
		func(c *Config) *float64 { return &c.RateLimitPublicKeyTokens }),

	{
		Name: "limits.request_memory", Doc: "Bytes of memory that requests in flight may use together on this node, by estimate; one tenant gets at most half. 0 is a quarter of the machine's or the container's memory.", Default: "0",
		set: func(c *Config, v string) error {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil || n < 0 || n > 1<<40 || n > 0 && n < 16<<20 {
				return errors.New("must be 0 or a number of bytes from 16777216 to 1099511627776")
			}
			c.RequestMemory = n
			return nil
		},
		get: func(c *Config) string { return strconv.FormatInt(c.RequestMemory, 10) },
	},
	count("limits.connections", "Connections to the API that this node accepts at once; more are closed at once. 0 is three quarters of the open files that the process may have, and at most 10,000.", "0", 0, 1000000,
		func(c *Config) *int { return &c.Connections }),
	count("limits.connections_per_address", "Connections to the API that one client address may have at once on this node, and at most half of limits.connections; addresses in trusted_proxies are exempt. 0 is no limit.", "1000", 0, 1000000,
		func(c *Config) *int { return &c.ConnectionsPerAddress }),

	{
		Name: "max_body", Doc: "Largest request body in bytes, as sent and once expanded.", Default: "5242880",
		set: func(c *Config, v string) error {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil || n < 1024 || n > 256<<20 {
				return errors.New("must be a number of bytes from 1024 to 268435456")
			}
			c.MaxBody = n
			return nil
		},
		get: func(c *Config) string { return strconv.FormatInt(c.MaxBody, 10) },
	},
	{
		Name: "max_header_bytes", Doc: "Largest request header in bytes.", Default: "65536",
		set: func(c *Config, v string) error {
			n, err := strconv.Atoi(v)
			if err != nil || n < 4096 || n > 1<<20 {
				return errors.New("must be a number of bytes from 4096 to 1048576")
			}
			c.MaxHeaderBytes = n
			return nil
		},
		get: func(c *Config) string { return strconv.Itoa(c.MaxHeaderBytes) },
	},
	count("limits.expression_steps", "Steps that all expressions of one request may take together; 16 more for each byte of data that they see.",
		"10000000", 1_000_000, 1_000_000_000, func(c *Config) *int { return &c.ExpressionSteps }),
	count("limits.expression_memory", "Bytes of values that all expressions of one request may make together; 4 more for each byte of data that they see.",
		"1048576", 256<<10, 256<<20, func(c *Config) *int { return &c.ExpressionMemory }),
	count("limits.containers", "Different containers that the tokens of one tenant may have; 0 is no limit. A create in a further one gets 409; containers that have tokens go on working.",
		"10000", 0, 1_000_000, func(c *Config) *int { return &c.MaxContainers }),
	span("timeout.read_header", "Longest time for a request's header to arrive.", "10s", time.Millisecond, func(c *Config) *time.Duration { return &c.ReadHeaderTimeout }),
	span("timeout.read", "Longest time for a whole request to arrive.", "60s", time.Millisecond, func(c *Config) *time.Duration { return &c.ReadTimeout }),
	span("timeout.write", "Longest time for a request to be worked on and its answer to leave.", "90s", time.Millisecond, func(c *Config) *time.Duration { return &c.WriteTimeout }),
	span("timeout.idle", "Longest time that an unused connection is kept.", "2m", time.Millisecond, func(c *Config) *time.Duration { return &c.IdleTimeout }),
	span("drain.delay", "Time between saying 'not ready' and closing the door on SIGTERM, for load balancers to notice.", "3s", 0, func(c *Config) *time.Duration { return &c.DrainDelay }),
	span("drain.timeout", "Longest time that requests under way may take to finish after that.", "30s", 0, func(c *Config) *time.Duration { return &c.DrainTimeout }),

	text("metrics_addr", "Address for /metrics alone. Without it, /metrics is served beside the API.",
		"", func(c *Config) *string { return &c.MetricsAddr }, isAddress),

	flag("api_page", "Serves a page at /docs on which the API is read and tried. It shows nothing of any tenant; without it the description at /openapi.json stays.",
		"true", func(c *Config) *bool { return &c.APIPage }),

	flag("allow_http", "Lets destinations of tenants be http:// and use port 80: what is sent there can be read on the way.",
		"false", func(c *Config) *bool { return &c.AllowHTTP }),
	{
		Name: "allow_hosts", Doc: "Full names of inner hosts that destinations of tenants may be, and that may then have private addresses; *.name stands for all below it.",
		set: func(c *Config, v string) error {
			c.AllowHosts = list(v)
			for _, h := range c.AllowHosts {
				if !hostName.MatchString(h) {
					return errors.New("must be a list of names such as psp.internal or *.internal, not of addresses or URLs")
				}
			}
			return nil
		},
		get: func(c *Config) string { return strings.Join(c.AllowHosts, ",") },
	},
	networks("allow_networks", "Networks that destinations of tenants may lie in although they are not public. Metadata addresses of clouds stay shut.",
		func(c *Config) *[]netip.Prefix { return &c.AllowNetworks }),
	{
		Name: "allow_ports", Doc: "Ports below 1024 that destinations of tenants may use beside 443.",
		set: func(c *Config, v string) error {
			c.AllowPorts = nil
			for _, p := range list(v) {
				n, err := strconv.ParseUint(p, 10, 16)
				if err != nil || n == 0 {
					return errors.New("must be a list of ports from 1 to 65535")
				}
				c.AllowPorts = append(c.AllowPorts, uint16(n))
			}
			return nil
		},
		get: func(c *Config) string {
			ports := make([]string, len(c.AllowPorts))
			for i, p := range c.AllowPorts {
				ports[i] = strconv.Itoa(int(p))
			}
			return strings.Join(ports, ",")
		},
	},
	count("limits.queued_jobs", "Asynchronous runs of reactors that one tenant may have waiting or running; more are refused with 429.", "1000", 1, 100000,
		func(c *Config) *int { return &c.QueuedJobs }),
	text("sandbox.level", "Least wall that code of tenants may run behind: full, reduced or unsafe_none, which is for development; off runs no code.",
		"full", func(c *Config) *string { return &c.SandboxLevel }, matches(`^(full|reduced|unsafe_none|off)$`, "must be full, reduced, unsafe_none or off")),
	text("sandbox.runtime", "Folder with the Node.js and the packages that code runs on. Without it, the folder runtime beside the program.",
		"", func(c *Config) *string { return &c.SandboxRuntime }, nil),
	text("sandbox.node", "Another Node.js program than the one in that folder.",
		"", func(c *Config) *string { return &c.SandboxNode }, nil),
	text("sandbox.packages", "Folder with a node_modules of further packages that code may require.",
		"", func(c *Config) *string { return &c.SandboxPackages }, nil),
	flag("sandbox.jit", "Lets Node.js compile code to machine code: faster for heavy computing, and one wall less.",
		"false", func(c *Config) *bool { return &c.SandboxJIT }),
	flag("sandbox.per_invocation", "Takes a fresh process for every run, so that not even runs of the same code share one.",
		"false", func(c *Config) *bool { return &c.SandboxPerInvocation }),
	count("sandbox.blank", "Processes that are kept ready for code that has not run yet.", "4", 1, 100, func(c *Config) *int { return &c.SandboxBlank }),
	count("sandbox.per_program", "Runs of one reactor or proxy at once on this node; more are answered with 429.", "10", 1, 1000, func(c *Config) *int { return &c.SandboxPerProgram }),
	count("sandbox.global", "Runs of all code at once on this node. A tenant for which nothing runs does not wait: up to an eighth more, and another eighth at each level for runs that code makes.", "200", 1, 10000, func(c *Config) *int { return &c.SandboxGlobal }),
	count("sandbox.queue", "Runs that may wait for a process on this node; more are answered with 503.", "100", 1, 10000, func(c *Config) *int { return &c.SandboxQueue }),
	count("sandbox.heap_mib", "Heap of the engine in each process, in MiB.", "96", 32, 4096, func(c *Config) *int { return &c.SandboxHeap }),
	count("sandbox.memory_mib", "All private memory of each process, in MiB.", "256", 128, 8192, func(c *Config) *int { return &c.SandboxMemory }),
	span("sandbox.idle", "How long an unused process keeps its code.", "1m", time.Second, func(c *Config) *time.Duration { return &c.SandboxIdle }),
	span("sandbox.max_age", "How long a process lives at most.", "1h", time.Second, func(c *Config) *time.Duration { return &c.SandboxMaxAge }),
	flag("optional_configuration", "Takes reactors without a configuration, for clients that leave it out.",
		"false", func(c *Config) *bool { return &c.OptionalConfiguration }),

	text("extra_ca_file", "PEM file of certificate authorities that destinations of tenants may have their certificates from, beside the system's.",
		"", func(c *Config) *string { return &c.ExtraCAFile }, nil),
}

// hostName is a name or *. and a name, and not what could be an address: its
// last label has a letter in front. Names in other scripts come in ASCII form.
var hostName = regexp.MustCompile(`^(\*\.)?([A-Za-z0-9-]{1,63}\.)*[A-Za-z][A-Za-z0-9-]{0,62}$`)

// The makers of rows below read one kind of value each.

func count(name, doc, fallback string, least, most int, field func(*Config) *int) Setting {
	return Setting{
		Name: name, Doc: doc, Default: fallback,
		set: func(c *Config, v string) error {
			n, err := strconv.Atoi(v)
			if err != nil || n < least || n > most {
				return fmt.Errorf("must be a number from %d to %d", least, most)
			}
			*field(c) = n
			return nil
		},
		get: func(c *Config) string { return strconv.Itoa(*field(c)) },
	}
}

func text(name, doc, fallback string, field func(*Config) *string, check func(string) error) Setting {
	return Setting{
		Name: name, Doc: doc, Default: fallback,
		set: func(c *Config, v string) error {
			if check != nil && (v != "" || fallback != "") {
				if err := check(v); err != nil {
					return err
				}
			}
			*field(c) = v
			return nil
		},
		get: func(c *Config) string { return *field(c) },
	}
}

func flag(name, doc, fallback string, field func(*Config) *bool) Setting {
	return Setting{
		Name: name, Doc: doc, Default: fallback,
		set: func(c *Config, v string) error {
			b, err := strconv.ParseBool(v)
			if err != nil {
				return errors.New("must be true or false")
			}
			*field(c) = b
			return nil
		},
		get: func(c *Config) string { return strconv.FormatBool(*field(c)) },
	}
}

func networks(name, doc string, field func(*Config) *[]netip.Prefix) Setting {
	return Setting{
		Name: name, Doc: doc,
		set: func(c *Config, v string) error {
			*field(c) = nil
			for _, p := range list(v) {
				prefix, err := netip.ParsePrefix(p)
				if err != nil || prefix.Addr().Is4In6() {
					return errors.New("must be a list of networks such as 10.0.0.0/8")
				}
				*field(c) = append(*field(c), prefix.Masked())
			}
			return nil
		},
		get: func(c *Config) string {
			names := make([]string, len(*field(c)))
			for i, p := range *field(c) {
				names[i] = p.String()
			}
			return strings.Join(names, ",")
		},
	}
}

func rate(name, doc, fallback string, field func(*Config) *float64) Setting {
	return Setting{
		Name: name, Doc: doc, Default: fallback,
		set: func(c *Config, v string) error {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil || !(f >= 0 && f <= 1e6) {
				return errors.New("must be a number from 0 to 1000000")
			}
			*field(c) = f
			return nil
		},
		get: func(c *Config) string { return strconv.FormatFloat(*field(c), 'f', -1, 64) },
	}
}

func span(name, doc, fallback string, least time.Duration, field func(*Config) *time.Duration) Setting {
	return Setting{
		Name: name, Doc: doc, Default: fallback,
		set: func(c *Config, v string) error {
			d, err := time.ParseDuration(v)
			if err != nil || d < least || d > time.Hour {
				return fmt.Errorf("must be a duration such as 30s, from %v to 1h", least)
			}
			*field(c) = d
			return nil
		},
		get: func(c *Config) string { return field(c).String() },
	}
}

// isGiven tells of a secret only that there is one.
func isGiven(t secret.Text) string {
	if t.IsZero() {
		return ""
	}
	return "(set)"
}

func list(v string) []string {
	var out []string
	for item := range strings.SplitSeq(v, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

func isOrigin(v string) error {
	if !origin.Valid(v) {
		return errors.New(origin.Must)
	}
	return nil
}

func isSet(v string) error {
	if v == "" {
		return errors.New("must not be empty")
	}
	return nil
}

func isAddress(v string) error {
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return errors.New("must be host:port")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return errors.New("must be host:port with a port from 0 to 65535")
	}
	return nil
}

func matches(pattern, otherwise string) func(string) error {
	re := regexp.MustCompile(pattern)
	return func(v string) error {
		if !re.MatchString(v) {
			return errors.New(otherwise)
		}
		return nil
	}
}
