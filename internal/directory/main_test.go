package directory_test

import (
	"os"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }
