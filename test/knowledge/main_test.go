// Package knowledge_test guards what callers can find out about tokens.
//
// It runs sequences of calls, scripted and random, of applications, sessions
// and anonymous callers on a whole server, and checks after every call that no
// caller knows more about a token than its permissions allow, guesses included.
// What a caller is allowed to know is computed by an evaluator that is written
// from the description of the access rules and shares no code with the server.
//
// Two kinds of checks complement each other. A scan looks for protected values
// in everything that a caller receives, and for changes, log entries, replays
// and sessions that the rules do not allow. And every sequence runs twice, in
// two tenants that differ only in values that the attackers must not know:
// everything that the attackers receive must be equal in both, so that any
// difference is a leak, whatever the channel.
package knowledge_test

import (
	"os"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }
