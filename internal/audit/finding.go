package audit

import "time"

// Kind is what was done to a log.
type Kind string

// The kinds of findings.
const (
	Removed      Kind = "removed"       // an entry is not there any more
	Changed      Kind = "changed"       // an entry says something else than when it was sealed
	Inserted     Kind = "inserted"      // an entry is in no batch and does not wait for one
	Doubled      Kind = "doubled"       // an entry is in two batches
	BatchRemoved Kind = "batch removed" // the record of a batch is not there any more
	BatchChanged Kind = "batch changed" // the record of a batch is not the one that was signed
	Truncated    Kind = "truncated"     // the log ends before the checkpoint
	Forked       Kind = "forked"        // the log went another way than the checkpoint says
)

// Finding is one thing that is wrong with a log.
type Finding struct {
	Kind Kind `json:"kind"`
	// Batch is the one concerned; 0 for an entry that belongs to none.
	Batch int64 `json:"batch,omitempty"`
	// ID and CreatedAt name the entry: for a batch, its first as far as known.
	ID        string     `json:"id,omitempty"`
	CreatedAt *time.Time `json:"created_at,omitempty"`
	// Line is that of an export.
	Line   int64  `json:"line,omitempty"`
	Detail string `json:"detail,omitempty"`

	order place // where it stands among others
}

func (f Finding) String() string {
	s := string(f.Kind)
	for _, part := range []struct{ name, value string }{
		{"batch", nonZero(f.Batch)}, {"line", nonZero(f.Line)}, {"entry", f.ID}, {"of", stamp(f.CreatedAt)},
	} {
		if part.value != "" {
			s += ", " + part.name + " " + part.value
		}
	}
	if f.Detail != "" {
		s += ": " + f.Detail
	}
	return s
}

func nonZero(n int64) string {
	if n == 0 {
		return ""
	}
	return decimal(n)
}

func stamp(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

// about is a finding that names an entry.
func about(kind Kind, number int64, p place, detail string) Finding {
	f := Finding{Kind: kind, Batch: number, Detail: detail, order: p}
	if p != (place{}) {
		at := p.at.Time()
		f.ID, f.CreatedAt = p.id.String(), &at
	}
	return f
}
