package postgres_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
)

// writerVariable makes this binary a second process that writes to the
// database of that URL.
const writerVariable = "KEEPTEST_WRITER"

func TestMain(m *testing.M) {
	if url := os.Getenv(writerVariable); url != "" {
		if err := writeUntilKilled(url); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(pgtest.Run(m))
}
