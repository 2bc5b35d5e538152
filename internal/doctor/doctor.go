// Package doctor looks at a server and its machine and says what an operator
// should put right.
//
// It promises that every row says in one sentence what was found and, unless
// all is well, what to do about it, and that it changes nothing. What it cannot
// find out is unknown, never good. It never opens the store or a key: whatever
// lies behind the server is asked of the server, through its admin socket.
package doctor

import (
	"time"

	"github.com/tokenkeep/tokenkeep/internal/admin"
	"github.com/tokenkeep/tokenkeep/internal/config"
)

// State is how a row is doing.
type State string

// The states, best first. Unknown is no failure: say, of a server that is not
// running.
const (
	OK      State = "ok"
	Unknown State = "unknown"
	Warn    State = "warn"
	Fail    State = "fail"
)

// Finding is one row of what was found.
type Finding struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"` // unless all is well
}

// Patient is what is looked at.
type Patient struct {
	Config     *config.Config
	ConfigFile string // "" when there is none
	ConfigErr  error  // why a server would not start with it
	Now        func() time.Time
	// Status and Keys are what the running server says; nil when none runs.
	Status *admin.Status
	Keys   *admin.KeyStatus
	// PID is the process whose limits count: the server's, or our own.
	PID int
	// Proc is where the kernel tells of itself: /proc.
	Proc string
	// Schema tells the last migration that the embedded store has seen, -1 when
	// that cannot be told, and the last that this release knows.
	Schema func() (has, knows int, err error)
}

func (p Patient) embedded() bool { return p.Config.StoreURL.IsZero() && p.Config.StoreURLFile == "" }

// rows are what is looked at, in the order in which it is told.
var rows = []struct {
	name string
	look func(Patient) (State, string, string)
}{
	{"configuration", configuration},
	{"server", running},
	{"clock", clock},
	{"disk space", diskSpace},
	{"data folder", dataFolder},
	{"key-encryption key file", kekFile},
	{"configuration file", configFile},
	{"TLS certificate", certificate},
	{"public address", publicAddress},
	{"key-encryption key", kekAge},
	{"KMS", kmsUse},
	{"data keys", dataKeys},
	{"migrations", migrations},
	{"sandbox", sandbox},
	{"core dumps", coreDumps},
	{"swap", swap},
	{"open files", openFiles},
	{"limits", limitsReached},
}

// Names returns the names of the rows.
func Names() []string {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.name
	}
	return names
}

// Examine looks at every row.
func Examine(p Patient) []Finding {
	findings := make([]Finding, len(rows))
	for i, r := range rows {
		f := Finding{Name: r.name}
		f.State, f.Found, f.Do = r.look(p)
		findings[i] = f
	}
	return findings
}

// Worst returns the worst state of all.
func Worst(findings []Finding) State {
	order := map[State]int{OK: 0, Unknown: 1, Warn: 2, Fail: 3}
	worst := OK
	for _, f := range findings {
		if order[f.State] > order[worst] {
			worst = f.State
		}
	}
	return worst
}
