// Package backup is the form of a backup: a folder with a copy of the embedded
// store and a manifest that says what the copy is.
//
// It promises that a folder with a manifest is a whole backup, because the
// manifest is written last, and that a file which is not what the manifest
// says is noticed before anything is made of it. It never sees plaintext or
// keys: the database holds ciphertext, and the keys that live an hour are not
// in it. The hashes find damage; against somebody who changes file and
// manifest together stand the seals of values and the signatures of the log.
package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// ManifestFile is the name of the manifest in a backup.
const ManifestFile = "manifest.json"

// format is the number of the form that this release writes and reads.
const format = 1

// maxManifest bounds what is read of a manifest.
const maxManifest = 1 << 20

// What is wrong with a folder.
var (
	// ErrIncomplete says that a folder is no backup, or one that was never
	// finished.
	ErrIncomplete = errors.New("this is not a whole backup")
	// ErrDamaged says that a file is not the one that the manifest describes.
	ErrDamaged = errors.New("the backup is damaged")
	// ErrNewer says that a newer release made the backup.
	ErrNewer = errors.New("a newer release made this backup")
	// ErrNotEmpty says that a folder which must be empty holds something.
	ErrNotEmpty = errors.New("the folder is not empty")
)

// Manifest says what a backup is.
type Manifest struct {
	Format  int       `json:"format"`
	Release string    `json:"release"` // that made it
	MadeAt  time.Time `json:"made_at"`
	Schema  int       `json:"schema"` // number of the last migration
	// KEKs are the ids of the key-encryption keys that wrap the keysets in it:
	// keep these keys as long as the backup.
	KEKs []string         `json:"keks"`
	Rows map[string]int64 `json:"rows"` // by table
	File File             `json:"file"`
}

// File is a file of a backup.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Empty returns ErrNotEmpty for a folder that holds anything but what is
// named, and nil for one that is not there.
func Empty(dir string, besides ...string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("backup: look into the folder: %w", err)
	}
	for _, e := range entries {
		if !slices.Contains(besides, e.Name()) {
			return ErrNotEmpty
		}
	}
	return nil
}

// Create makes the folder of a new backup, or takes one that is empty. undo
// removes what was made of it since.
func Create(dir string) (undo func(), err error) {
	if err := Empty(dir); err != nil {
		return nil, err
	}
	_, err = os.Stat(dir)
	made := errors.Is(err, os.ErrNotExist)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("backup: make the folder: %w", err)
	}
	return func() {
		entries, _ := os.ReadDir(dir) // it was empty: what is here now is ours
		for _, e := range entries {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
		if made {
			_ = os.Remove(dir)
		}
	}, nil
}

// Finish describes the file in the manifest and writes the manifest, which
// makes the folder a backup.
func Finish(ctx context.Context, dir, file string, m Manifest) (Manifest, error) {
	f, err := os.Open(filepath.Join(dir, file))
	if err != nil {
		return m, fmt.Errorf("backup: open the copy: %w", err)
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	n, err := io.Copy(sum, reader{ctx, f})
	if err != nil {
		return m, fmt.Errorf("backup: read the copy: %w", err)
	}
	m.Format, m.File = format, File{Name: file, Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, fmt.Errorf("backup: encode the manifest: %w", err)
	}
	return m, writeWhole(filepath.Join(dir, ManifestFile), append(text, '\n'))
}

// writeWhole puts a file on disk, and its name last.
func writeWhole(path string, text []byte) error {
	part := path + ".part"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("backup: write the manifest: %w", err)
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("backup: write the manifest: %w", err)
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("backup: write the manifest: %w", err)
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder makes sure that the names in a folder are on disk.
func SyncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("backup: sync the folder: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// Read returns the manifest of a backup. It fails with ErrIncomplete when
// there is none, or when its file is not there or not of its size.
func Read(dir string) (m Manifest, err error) {
	f, err := os.Open(filepath.Join(dir, ManifestFile))
	if errors.Is(err, os.ErrNotExist) {
		return m, fmt.Errorf("%w: it has no manifest", ErrIncomplete)
	}
	if err != nil {
		return m, fmt.Errorf("backup: open the manifest: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return m, fmt.Errorf("backup: read the manifest: %w", err)
	}
	if err := json.Unmarshal(text, &m); err != nil || m.Format < 1 {
		return m, fmt.Errorf("%w: its manifest cannot be read", ErrIncomplete)
	}
	if m.Format > format {
		return m, ErrNewer
	}
	if m.File.Name == "" || m.File.Name != filepath.Base(m.File.Name) {
		return m, fmt.Errorf("%w: its manifest cannot be read", ErrIncomplete)
	}
	info, err := os.Stat(filepath.Join(dir, m.File.Name))
	if errors.Is(err, os.ErrNotExist) {
		return m, fmt.Errorf("%w: it has a manifest and no database", ErrIncomplete)
	}
	if err != nil {
		return m, fmt.Errorf("backup: look at the copy: %w", err)
	}
	if info.Size() != m.File.Bytes {
		return m, fmt.Errorf("%w: its database has %d bytes, and the manifest says %d", ErrIncomplete, info.Size(), m.File.Bytes)
	}
	return m, nil
}

// Check fails with ErrDamaged unless the file of a backup is the one that the
// manifest describes. It copies nothing.
func Check(ctx context.Context, dir string, m Manifest) error { return m.write(ctx, dir, io.Discard) }

// Copy copies the file of a backup to a path where there is none, and fails
// with ErrDamaged unless it is the file that the manifest describes.
func Copy(ctx context.Context, dir string, m Manifest, path string) error {
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("backup: make the file: %w", err)
	}
	err = m.write(ctx, dir, to)
	if err := errors.Join(to.Sync(), to.Close()); err != nil {
		return fmt.Errorf("backup: copy the file: %w", err)
	}
	return err
}

// write writes the file of a backup to w and compares it with the manifest.
func (m Manifest) write(ctx context.Context, dir string, w io.Writer) error {
	want, err := hex.DecodeString(m.File.SHA256)
	if err != nil {
		return fmt.Errorf("%w: its manifest has no hash", ErrIncomplete)
	}
	from, err := os.Open(filepath.Join(dir, m.File.Name))
	if err != nil {
		return fmt.Errorf("backup: open the copy: %w", err)
	}
	defer func() { _ = from.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, sum), reader{ctx, from}); err != nil {
		return fmt.Errorf("backup: copy the file: %w", err)
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return fmt.Errorf("%w: its database is not the one that the manifest describes", ErrDamaged)
	}
	return nil
}

// reader stops when its context ends.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(b)
}
