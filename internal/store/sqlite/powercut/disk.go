package powercut

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Loss says how much of what was not synced a power cut takes.
type Loss string

// The losses. Every file, and every name of a file, loses on its own.
const (
	LoseEverything Loss = "everything" // only what was synced is there
	LoseNothing    Loss = "nothing"    // as after a crash of the process alone
	LoseTail       Loss = "the tail"   // all from some operation on, which is torn
	LoseSectors    Loss = "sectors"    // any sectors of any write, any truncation
)

// Losses lists every Loss, for tests that take turns.
var Losses = []Loss{LoseEverything, LoseNothing, LoseTail, LoseSectors}

// Disk is the recorded folder at one instant. It may be written out many times.
type Disk struct {
	names map[string]*name // by path below the folder
}

// Write makes a fresh folder with a state in which the files could be after the
// cut and returns its path. The folder goes when the test ends. Losing
// everything or nothing leaves no choice and needs no rng.
func (d *Disk) Write(t testing.TB, loss Loss, rng *rand.Rand) string {
	t.Helper()
	dir := t.TempDir()
	// Sorted, so that one seed gives one outcome.
	for _, path := range slices.Sorted(maps.Keys(d.names)) {
		f := d.names[path].after(loss, rng)
		if f == nil {
			continue
		}
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatalf("powercut: make a folder: %v", err)
		}
		if err := os.WriteFile(path, f.after(loss, rng), 0o600); err != nil {
			t.Fatalf("powercut: write a file: %v", err)
		}
	}
	return dir
}

// name is one path and the files that it has stood for since it was last safe:
// the first is the safe one, the last what the running program sees, nil is no
// file.
type name struct {
	states []*file
}

func (n *name) now() *file    { return n.states[len(n.states)-1] }
func (n *name) point(f *file) { n.states = append(n.states, f) }
func (n *name) settle()       { n.states = []*file{n.now()} }

func (n *name) clone() *name {
	c := &name{}
	for _, f := range n.states {
		if f != nil {
			f = f.clone()
		}
		c.states = append(c.states, f)
	}
	return c
}

// after returns the file that the name stands for after the cut.
func (n *name) after(loss Loss, rng *rand.Rand) *file {
	switch loss {
	case LoseEverything:
		return n.states[0]
	case LoseNothing:
		return n.now()
	default:
		return n.states[rng.IntN(len(n.states))]
	}
}

// file is what a name points to: it outlives its name while it is open.
type file struct {
	durable []byte
	pending []operation // since the last sync
	synced  int         // operations ever moved from pending into durable
}

// operation is a write of data at an offset, or a truncation to that offset.
type operation struct {
	at       int64
	data     []byte
	truncate bool
}

// issued counts the operations so far: what a sync that begins now covers.
func (f *file) issued() int { return f.synced + len(f.pending) }

// sync makes the first issued operations durable. Another sync may have done so
// for some or all of them.
func (f *file) sync(issued int) {
	for f.synced < issued {
		f.durable = f.pending[0].apply(f.durable)
		f.pending = f.pending[1:]
		f.synced++
	}
}

func (f *file) clone() *file {
	// The data of operations never changes.
	return &file{durable: bytes.Clone(f.durable), pending: slices.Clone(f.pending)}
}

// after returns the content after the cut.
func (f *file) after(loss Loss, rng *rand.Rand) []byte {
	content := bytes.Clone(f.durable)
	switch loss {
	case LoseEverything:
	case LoseNothing:
		for _, op := range f.pending {
			content = op.apply(content)
		}
	case LoseTail:
		kept := rng.IntN(len(f.pending) + 1)
		for _, op := range f.pending[:kept] {
			content = op.apply(content)
		}
		if kept < len(f.pending) {
			content = f.pending[kept].tear(content, rng.Float64(), rng)
		}
	case LoseSectors:
		// Even odds for each of hundreds of sectors would make all outcomes
		// alike, so the odds are drawn too, and almost all or nothing is likely.
		odds := []float64{0, 0.02, 0.5, 0.98, 1, rng.Float64()}[rng.IntN(6)]
		longer := rng.IntN(2) == 0
		for _, op := range f.pending {
			if longer && !op.truncate {
				content = grow(content, op.at+int64(len(op.data)))
			}
			content = op.tear(content, odds, rng)
		}
	}
	return content
}

func (op operation) apply(content []byte) []byte {
	if op.truncate {
		return grow(content, op.at)[:op.at]
	}
	content = grow(content, op.at+int64(len(op.data)))
	copy(content[op.at:], op.data)
	return content
}

// tear applies each sector of a write, or a truncation, with the given odds.
func (op operation) tear(content []byte, odds float64, rng *rand.Rand) []byte {
	const sector = 512
	if op.truncate {
		if rng.Float64() < odds {
			content = op.apply(content)
		}
		return content
	}
	for len(op.data) > 0 {
		n := min(sector-op.at%sector, int64(len(op.data)))
		if rng.Float64() < odds {
			content = operation{at: op.at, data: op.data[:n]}.apply(content)
		}
		op.at, op.data = op.at+n, op.data[n:]
	}
	return content
}

// grow makes content at least size long, by zeros.
func grow(content []byte, size int64) []byte {
	if more := size - int64(len(content)); more > 0 {
		content = append(content, make([]byte, more)...)
	}
	return content
}
