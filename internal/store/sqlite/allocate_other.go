//go:build !linux

package sqlite

import "os"

// allocate gives a new file so much room on the disk.
func allocate(f *os.File, bytes int64) error { return fill(f, bytes) }
