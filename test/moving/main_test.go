// Package moving_test brings tokens into a server in bulk and takes them out
// again.
package moving_test

import (
	"os"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }
