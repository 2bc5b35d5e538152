package sandbox

import (
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

//go:embed runner.js
var runnerSource []byte

//go:embed network.js
var networkSource []byte

const rootPrefix = "tokenkeep-root-"

// Modes of what is in a root. The files are open to every user, because as root
// each sandbox has one of its own. Node can be executed and not read, which
// makes its processes undumpable: nobody but root, or the ordinary user that
// the server is, looks into their memory.
const (
	folderMode = 0o755
	fileMode   = 0o444
	nodeMode   = 0o111
)

// static is all of /proc that a sandbox sees: enough for the functions of Node
// that would fail without.
var static = map[string]string{
	"proc/stat":      "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n",
	"proc/cpuinfo":   "processor\t: 0\nmodel name\t: cpu\ncpu MHz\t\t: 1000.000\n",
	"proc/meminfo":   "MemTotal:         262144 kB\nMemFree:          131072 kB\nMemAvailable:     131072 kB\n",
	"proc/uptime":    "1.00 1.00\n",
	"proc/loadavg":   "0.00 0.00 0.00 1/1 1\n",
	"proc/self/stat": "1 (node) R 0 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 11 0 0 268435456 8192 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
}

// preparedRoot is the folder that sandboxes have for a root.
type preparedRoot struct {
	folder    string
	libraries []string // what node is linked with, as paths of this machine
	lock      *os.File // held while the folder is in use
}

// prepareRoot builds the folder.
func prepareRoot(s Settings) (r preparedRoot, err error) {
	scratch := s.Scratch
	if scratch == "" {
		scratch = os.TempDir()
	}
	if scratch, err = filepath.Abs(scratch); err != nil {
		return r, err
	}
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return r, fmt.Errorf("make the scratch folder: %w", plainError(err))
	}
	if r.folder, r.lock, err = newRoot(scratch); err != nil {
		return r, fmt.Errorf("make the root of sandboxes: %w", plainError(err))
	}
	if r.libraries, err = fillRoot(r.folder, s); err != nil {
		return r, errors.Join(err, r.remove())
	}
	return r, nil
}

func (r preparedRoot) remove() error {
	err := os.RemoveAll(r.folder)
	return errors.Join(err, r.lock.Close())
}

// newRoot makes a folder and locks it, and removes those that servers left
// behind when they were killed: their locks went with them.
func newRoot(scratch string) (folder string, lock *os.File, err error) {
	// Between making and locking nobody else sweeps.
	if all, free := lockFolder(scratch); all != nil {
		defer all.Close()
		if free {
			sweepRoots(scratch)
		}
	}
	if folder, err = os.MkdirTemp(scratch, rootPrefix); err != nil {
		return "", nil, err
	}
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return "", nil, err
	}
	lock, free := lockFolder(folder)
	if !free {
		return "", nil, errors.New("it cannot be locked")
	}
	return folder, lock, nil
}

func sweepRoots(scratch string) {
	left, _ := filepath.Glob(filepath.Join(scratch, rootPrefix+"*"))
	for _, folder := range left {
		lock, free := lockFolder(folder)
		if free {
			_ = os.RemoveAll(folder)
		}
		if lock != nil {
			_ = lock.Close()
		}
	}
}

// lockFolder opens a folder and tells whether it could be locked.
func lockFolder(folder string) (lock *os.File, free bool) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, false
	}
	return f, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

func fillRoot(root string, s Settings) ([]string, error) {
	node := s.Node
	if node == "" {
		node = filepath.Join(s.Runtime, "bin", "node")
	}
	if _, err := os.Stat(node); err != nil {
		return nil, fmt.Errorf("the node binary of the runtime is not there: %w", plainError(err))
	}
	if _, err := os.Stat(filepath.Join(s.Runtime, "app", "runtime.js")); err != nil {
		return nil, fmt.Errorf("the runtime is not complete: app/runtime.js: %w", plainError(err))
	}
	for _, folder := range []string{".", "bin", "app", "run", "dev", "etc", "tmp", "proc/self"} {
		if err := makeFolder(filepath.Join(root, folder)); err != nil {
			return nil, err
		}
	}
	if err := copyFile(node, filepath.Join(root, "bin", "node"), nodeMode); err != nil {
		return nil, err
	}
	libraries, err := linkedWith(node)
	if err != nil {
		return nil, err
	}
	for _, l := range libraries {
		if err := copyFile(l, filepath.Join(root, l), fileMode|nodeMode); err != nil {
			return nil, err
		}
	}
	if err := copyTree(filepath.Join(s.Runtime, "app"), filepath.Join(root, "app")); err != nil {
		return nil, err
	}
	if s.Packages != "" {
		if err := copyTree(s.Packages, filepath.Join(root, "app", "extra")); err != nil {
			return nil, err
		}
	}
	files := map[string][]byte{"app/runner.js": runnerSource, "app/network.js": networkSource}
	for name, text := range static {
		files[name] = []byte(text)
	}
	for name, text := range files {
		if err := writeFile(filepath.Join(root, name), text); err != nil {
			return nil, err
		}
	}
	return libraries, nil
}

// makeFolder makes a folder with our mode, whatever the umask.
func makeFolder(name string) error {
	if err := os.MkdirAll(name, folderMode); err != nil { // must be open to the users of sandboxes
		return err
	}
	return os.Chmod(name, folderMode)
}

func writeFile(name string, text []byte) error {
	_ = os.Remove(name)
	if err := os.WriteFile(name, text, fileMode); err != nil { // holds nothing secret
		return err
	}
	return os.Chmod(name, fileMode)
}

// copyFile copies the content that a path leads to, through links.
func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	for folder := filepath.Dir(to); ; folder = filepath.Dir(folder) {
		if _, err := os.Stat(folder); err == nil {
			break
		}
		defer func() { _ = os.Chmod(folder, folderMode) }() // must be open to the users of sandboxes
	}
	if err := os.MkdirAll(filepath.Dir(to), folderMode); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(mode), out.Close())
}

// copyTree copies the plain files of a folder. Links are left out: they could
// lead anywhere. So is what is hidden at the top: npm keeps its passwords there.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(name, ".") && name != "." && !strings.ContainsRune(name, filepath.Separator)
		switch {
		case hidden && d.IsDir():
			return fs.SkipDir
		case hidden:
			return nil
		case d.IsDir():
			return makeFolder(filepath.Join(to, name))
		case d.Type().IsRegular():
			return copyFile(p, filepath.Join(to, name), fileMode)
		}
		return nil
	})
}

// libraryFolders are where loaders look without being told.
var libraryFolders = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
	"/lib64", "/usr/lib64", "/lib", "/usr/lib",
}

// linkedWith lists the loader and the libraries of a program, those of its
// libraries included. A static program has none.
func linkedWith(program string) ([]string, error) {
	var found []string
	wanted := []string{program}
	for len(wanted) > 0 {
		name := wanted[0]
		wanted = wanted[1:]
		f, err := elf.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read a library of node: %w", plainError(err))
		}
		libraries, err := f.ImportedLibraries()
		loader := interpreter(f)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("read a library of node: %w", err)
		}
		if loader != "" && !slices.Contains(found, loader) {
			found = append(found, loader)
		}
		for _, l := range libraries {
			known := slices.ContainsFunc(found, func(f string) bool { return filepath.Base(f) == l })
			if known {
				continue
			}
			at := slices.IndexFunc(libraryFolders, func(folder string) bool {
				_, err := os.Stat(filepath.Join(folder, l)) //nolint:gosec // the operator's node names it
				return err == nil
			})
			if at < 0 {
				return nil, fmt.Errorf("node needs the library %s, which is not installed", l)
			}
			found = append(found, filepath.Join(libraryFolders[at], l))
			wanted = append(wanted, found[len(found)-1])
		}
	}
	return found, nil
}

func interpreter(f *elf.File) string {
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			text, err := io.ReadAll(p.Open())
			if err == nil {
				return strings.TrimRight(string(text), "\x00")
			}
		}
	}
	return ""
}
