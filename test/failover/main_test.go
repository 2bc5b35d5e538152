// Package failover_test runs whole servers over a PostgreSQL that fails: lines
// that are cut, slow or silent, a pool that is used up, and a primary that is
// killed while its standby takes over.
//
// It promises that nothing which a client was told is forgotten or wrong, and
// that errors end after their cause: soon, when all rounds are run. Clients keep
// a transcript, and the log must have an entry for everything in it.
package failover_test

import (
	"os"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// soon is how long after a fault has ended an error may still come, on a machine
// that serves at once; a busy one has slack times longer than it takes to serve
// every client without a fault.
const (
	soon  = 10 * time.Second
	slack = 50
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }

// every says whether all rounds are run, as make does.
func every() bool { return storetest.All() && !testing.Short() }
