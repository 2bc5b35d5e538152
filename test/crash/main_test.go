// Package crash_test kills whole servers while every capability is in use, and
// holds what is there afterwards against what the callers were told.
//
// Each actor keeps a transcript. What it was told is there after the crash,
// what it was not told is wholly there or not at all, and whatever was answered
// or left the vault stands in the log.
package crash_test

import (
	"os"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }
