// Package config reads Tokenkeep's settings from a file, the environment and
// flags, in that order: the later one wins.
//
// It promises that a setting which it does not know, a value that does not
// parse and a combination that is not safe are refused by the setting's name
// before anything starts. It never repeats a value in an error: somebody will
// paste a key into the wrong line.
package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// Config is what a server is started with. Settings fill it; see Settings for
// what each means and its default.
type Config struct {
	Addr         string
	Data         string
	Environment  string
	HeaderPrefix string

	PublicURL string // an origin, or empty
	// SignInProvidersFile names the identity providers of people; empty for none.
	SignInProvidersFile string

	ElementsPublicURL string // an origin, or empty; see ElementsURL

	TLSCertFile            string
	TLSKeyFile             string
	TLSTerminatedElsewhere bool

	KEKFile      string
	KEKURI       string // of a KMS; empty when the key comes from a file or a text
	KEKAlso      []string
	KEKMaxOutage time.Duration
	KEKTimeout   time.Duration // of one call
	KEKToken     secret.Text
	KEKPIN       secret.Text
	KEK          secret.Text

	StoreURL             secret.Text
	StoreURLFile         string
	StoreReserve         int64
	StoreConnections     int
	StoreRequestRole     string
	StoreLoggedEpochKeys bool

	LogLevel  slog.Level
	LogFormat string

	CORSOrigins         []string
	TrustedProxies      []netip.Prefix
	RateLimitPerKey     float64
	RateLimitPerAddress float64

	// The rate limits of public keys and sessions. PublicRates returns them as
	// they are in force.
	RateLimitPublicRequests  float64
	RateLimitPublicTokens    float64
	RateLimitPublicKeyTokens float64

	RequestMemory         int64 // 0: a quarter of the machine's
	Connections           int   // 0: as many as open files allow
	ConnectionsPerAddress int

	MaxBody           int64
	MaxContainers     int
	MaxHeaderBytes    int
	ExpressionSteps   int
	ExpressionMemory  int
	ReadHeaderTimeout time.Duration
	ReadTimeout       time.Duration
	WriteTimeout      time.Duration
	IdleTimeout       time.Duration
	DrainDelay        time.Duration
	DrainTimeout      time.Duration

	MetricsAddr string
	APIPage     bool

	AllowHTTP     bool
	AllowHosts    []string
	AllowNetworks []netip.Prefix
	AllowPorts    []uint16
	ExtraCAFile   string

	QueuedJobs            int
	SandboxLevel          string
	SandboxRuntime        string
	SandboxNode           string
	SandboxPackages       string
	SandboxJIT            bool
	SandboxPerInvocation  bool
	SandboxBlank          int
	SandboxPerProgram     int
	SandboxGlobal         int
	SandboxQueue          int
	SandboxHeap           int
	SandboxMemory         int
	SandboxIdle           time.Duration
	SandboxMaxAge         time.Duration
	OptionalConfiguration bool

	// Dev relaxes what only a developer's own machine may relax. No setting
	// reaches it: the dev command sets it.
	Dev bool

	sources map[string]string // setting → where its value came from
}

// Error is a fault in the settings, in one sentence that names the setting.
type Error struct{ sentence string }

func (e *Error) Error() string { return "config: " + e.sentence }

func errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// PublicRates returns the rate limits of public keys and sessions: requests,
// tokens, and tokens of a whole public key, each a second. In development mode
// those that nobody set are off.
func (c *Config) PublicRates() (requests, tokens, keyTokens float64) {
	inForce := func(setting string, rate float64) float64 {
		if c.Dev && c.Source(setting) == "default" {
			return 0
		}
		return rate
	}
	return inForce("rate_limit.public_requests", c.RateLimitPublicRequests), inForce("rate_limit.public_tokens", c.RateLimitPublicTokens),
		inForce("rate_limit.public_key_tokens", c.RateLimitPublicKeyTokens)
}

// Source tells where the value of a setting came from: "default", the file,
// "environment" or "flag".
func (c *Config) Source(setting string) string {
	if s, ok := c.sources[setting]; ok {
		return s
	}
	return "default"
}
