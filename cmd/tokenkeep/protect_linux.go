package main

import "golang.org/x/sys/unix"

// protectMemory keeps the memory of this process out of core dumps, from other
// processes of the same user, and out of swap where that is allowed. All of it
// is as far as the system lets us.
func protectMemory() {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	var locked unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &locked) == nil && locked.Cur == unix.RLIM_INFINITY {
		// With a limit, memory that comes later could not be had.
		_ = unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT)
	}
}
