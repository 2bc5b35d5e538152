package localkms

import (
	"os"
	"time"
)

// Private lets a test be another user than the one that runs it.
var Private = private

// Fill lets a test hand over a file that cannot be written.
func Fill(f *os.File, k *KMS) error { return fill(f, k.current()) }

// SetClock lets a test choose the time.
func (k *KMS) SetClock(now func() time.Time) { k.now = now }
