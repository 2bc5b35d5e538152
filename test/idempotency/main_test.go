// Package idempotency_test calls whole servers, several at a time, some of
// which are killed: what must happen once happens once, and what has ended has
// ended everywhere.
package idempotency_test

import (
	"os"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }
