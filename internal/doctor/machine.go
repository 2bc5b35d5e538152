package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The bounds of what a machine should have.
const (
	lowSpace   = 1 << 30   // bytes that are free
	noSpace    = 256 << 20 // the log alone may take a good part of that
	lowPercent = 10
	fewFiles   = 4096 // each connection takes one
)

func inData(p Patient, name string) string { return filepath.Join(p.Config.Data, name) }

func diskSpace(p Patient) (State, string, string) {
	dir := p.Config.Data
	if _, err := os.Stat(dir); err != nil {
		dir = filepath.Dir(dir) // it will be made there
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Blocks == 0 {
		return Unknown, "the file system of the data folder does not tell", "look with df"
	}
	free := int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // the types differ between systems
	return judgeSpace(free, float64(st.Bavail)/float64(st.Blocks)*100)
}

func judgeSpace(free int64, percent float64) (State, string, string) {
	found := fmt.Sprintf("%.1f GB free, %.0f %% of the disk", float64(free)/1e9, percent)
	switch {
	case free < noSpace:
		return Fail, found, "make room now: writes are refused when the disk is full; docs/runbooks.md says how"
	case free < lowSpace || percent < lowPercent:
		return Warn, found, "make room, or move the data folder to a larger disk"
	}
	return OK, found, ""
}

// dataFolder looks at the modes of the folder and of the files in it.
func dataFolder(p Patient) (State, string, string) {
	info, err := os.Stat(p.Config.Data)
	if errors.Is(err, os.ErrNotExist) {
		return Unknown, "it is not there yet", startIt
	}
	if err != nil {
		return Fail, "it cannot be read", "run this as the server's user"
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Fail, fmt.Sprintf("its mode is %04o, which lets others in", info.Mode().Perm()), "run chmod 0700 on it"
	}
	entries, err := os.ReadDir(p.Config.Data)
	if err != nil {
		return Fail, "it cannot be read", "run this as the server's user"
	}
	open := 0
	for _, e := range entries {
		// A file that went away meanwhile is no finding.
		if info, err := e.Info(); err == nil && !e.IsDir() && info.Mode().Perm()&0o077 != 0 {
			open++
		}
	}
	if open > 0 {
		return Fail, fmt.Sprintf("%d files in it let others in", open), "run chmod go-rwx on them"
	}
	return OK, "it lets nobody else in", ""
}

func kekFile(p Patient) (State, string, string) {
	if p.Config.KEKFile == "" {
		return Unknown, "the key does not come from a file", "make sure that nobody else can read it where it comes from"
	}
	info, err := os.Stat(p.Config.KEKFile)
	if err != nil {
		return Fail, "it cannot be read", "without it nothing opens: put it back from your copy"
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Fail, fmt.Sprintf("its mode is %04o, which lets others in", info.Mode().Perm()), "run chmod 0600 on it, and rotate the key if somebody may have read it"
	}
	if inside(p.Config.KEKFile, p.Config.Data) {
		return Warn, "it lies in the data folder, beside what it protects", "move it elsewhere: a copy of the folder opens everything"
	}
	return OK, "it lets nobody else in", ""
}

// inside tells whether a path lies below a folder.
func inside(path, dir string) bool {
	path, err1 := filepath.Abs(path)
	dir, err2 := filepath.Abs(dir)
	rest, err3 := filepath.Rel(dir, path)
	return errors.Join(err1, err2, err3) == nil && rest != ".." && !strings.HasPrefix(rest, ".."+string(filepath.Separator))
}

// configFile may be read by others, for it holds no secrets; who can write it
// decides what is served.
func configFile(p Patient) (State, string, string) {
	if p.ConfigFile == "" {
		return OK, "there is none", ""
	}
	info, err := os.Stat(p.ConfigFile)
	if err != nil {
		return Fail, "it cannot be read", "run this as the server's user"
	}
	mode := info.Mode().Perm()
	switch {
	case mode&0o022 != 0:
		return Fail, fmt.Sprintf("its mode is %04o: others can change what the server does", mode), "run chmod go-w on it"
	case mode&0o044 != 0 && p.Config.Source("kek.value") == "file":
		return Fail, fmt.Sprintf("it holds the key-encryption key, and its mode is %04o", mode), "run chmod 0600 on it, and rotate the key"
	}
	return OK, "nobody else can change it", ""
}

// limit reads a line of a process's limits: what is in force. -1 is no limit.
func (p Patient) limit(name string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(p.Proc, strconv.Itoa(p.PID), "limits"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		rest, found := strings.CutPrefix(line, name)
		fields := strings.Fields(rest)
		if !found || len(fields) < 2 {
			continue
		}
		if fields[0] == "unlimited" {
			return -1, nil
		}
		return strconv.ParseInt(fields[0], 10, 64)
	}
	return 0, errors.New("doctor: no such limit")
}

const notHere = "this system does not tell"

// coreDumps: a dump of the server's memory has keys and values in it. A limit
// of 0 does not keep them from a program that the kernel pipes them to; 1 does.
func coreDumps(p Patient) (State, string, string) {
	const put = "set LimitCORE=1 for the server, as deploy/systemd does"
	size, err := p.limit("Max core file size")
	pattern, errPattern := os.ReadFile(filepath.Join(p.Proc, "sys/kernel/core_pattern"))
	switch {
	case err != nil || errPattern != nil:
		return Unknown, notHere, "make sure that a crash writes no memory to disk"
	case size == 1:
		return OK, "a crash writes no memory to disk", ""
	case size == 0 && strings.HasPrefix(string(pattern), "|"):
		return Warn, "the kernel pipes dumps to a program, whatever the limit", put
	case size == 0:
		return OK, "a crash writes no memory to disk", ""
	}
	return Warn, "a crash writes the server's memory to disk, keys and values included", put
}

func swap(p Patient) (State, string, string) {
	b, err := os.ReadFile(filepath.Join(p.Proc, "swaps"))
	if err != nil {
		return Unknown, notHere, "turn swap off, or encrypt it"
	}
	if strings.Count(strings.TrimSpace(string(b)), "\n") > 0 { // the first line is a heading
		return Warn, "this machine swaps, so keys in memory may come to its disk", "turn swap off, encrypt it, or set MemorySwapMax=0 for the server"
	}
	return OK, "this machine does not swap", ""
}

func openFiles(p Patient) (State, string, string) {
	n, err := p.limit("Max open files")
	switch {
	case err != nil:
		return Unknown, notHere, "look with ulimit -n"
	case n >= 0 && n < fewFiles:
		return Warn, fmt.Sprintf("%d, and each connection takes one", n), fmt.Sprintf("set LimitNOFILE to %d or more", 4*fewFiles)
	case n < 0:
		return OK, "no limit", ""
	}
	return OK, strconv.FormatInt(n, 10), ""
}
