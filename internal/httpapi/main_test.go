package httpapi_test

import (
	"flag"
	"os"
	"testing"
)

// Those that run at once wait for time-outs, not for a processor.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
