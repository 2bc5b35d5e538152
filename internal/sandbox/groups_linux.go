package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Control groups are a second bound on memory and threads, where the server was
// given a part of the tree to manage: version 2, with the memory and pids
// controllers ("Delegate=yes" and "DelegateSubgroup=server" of systemd). Without
// them the limits of the process itself hold the same line.

const (
	groupRoot   = "/sys/fs/cgroup"
	groupPrefix = "tokenkeep-sandbox-"
	groupSpare  = 64 // MiB beyond private memory, for what the kernel counts besides
)

// groups is a folder of the tree in which sandboxes get one each. A nil groups
// does nothing.
type groups struct{ folder string }

// findGroups looks for a folder with the controllers above the group of this
// process.
func findGroups() *groups {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	own, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "0::")
	if !ok || strings.Contains(own, "\n") {
		return nil // not version 2 alone
	}
	return groupsAbove(groupRoot, filepath.Join(groupRoot, own), delegated)
}

// groupsAbove takes the nearest group above the own that was given to us. It is
// never the own one: a group that holds processes cannot pass controllers on.
func groupsAbove(top, own string, ours func(folder string) bool) *groups {
	for folder := own; strings.HasPrefix(folder, top+"/"); folder = filepath.Dir(folder) {
		if folder == own || !ours(folder) {
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, "cgroup.subtree_control"), []byte("+memory +pids"), 0o600); err != nil { //nolint:gosec // the kernel says where
			return nil
		}
		g := &groups{folder: folder}
		g.sweep()
		return g
	}
	return nil
}

// delegated tells whether systemd gave a group away. Root may write to others
// too, and must not.
func delegated(folder string) bool {
	value := make([]byte, 8)
	for _, attribute := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(folder, attribute, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// sweep removes groups whose launcher was killed.
func (g *groups) sweep() {
	left, _ := filepath.Glob(filepath.Join(g.folder, groupPrefix+"*"))
	for _, folder := range left {
		launcher, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), groupPrefix), "-")
		if pid, err := strconv.Atoi(launcher); err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = os.Remove(folder)
		}
	}
}

// enter puts a process into a group of its own, as far as that works, and
// returns what removes the group when the process is gone.
func (g *groups) enter(pid, dataMiB int) (leave func()) {
	if g == nil {
		return func() {}
	}
	folder := filepath.Join(g.folder, groupPrefix+strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(pid))
	if os.Mkdir(folder, 0o755) != nil { //nolint:gosec // the kernel's tree, with its usual mode
		return func() {}
	}
	for _, set := range []struct{ name, value string }{
		{"memory.max", strconv.Itoa((dataMiB + groupSpare) << 20)},
		{"memory.swap.max", "0"}, // card data stays off the disk
		{"memory.oom.group", "1"},
		{"pids.max", strconv.Itoa(2 * maxThreads)},
		{"cgroup.procs", strconv.Itoa(pid)},
	} {
		_ = os.WriteFile(filepath.Join(folder, set.name), []byte(set.value), 0o600)
	}
	return func() { _ = os.Remove(folder) }
}
