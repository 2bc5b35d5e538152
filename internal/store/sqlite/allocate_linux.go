package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate gives a new file so much room on the disk.
func allocate(f *os.File, bytes int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, bytes)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fill(f, bytes)
	}
	return err
}
