package audit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// The first byte of what is stored in a batch: what it is in the high half,
// the version of its format in the low one. FORMAT.md has the rest.
const (
	formatLeaves    = 0x61
	formatSignature = 0x71
)

// The labels keep what is hashed or signed for one use from being valid for
// another; the number in them is the version of the format.
const (
	entryLabel = "tokenkeep audit entry 1"
	laterLabel = "tokenkeep audit entry 2" // of entries with fields that came later
	linkLabel  = "tokenkeep audit link 1"
	headLabel  = "tokenkeep audit head 1"
)

// The sizes that the formats fix.
const (
	placeSize     = 8 + 16
	leafSize      = placeSize + sha256.Size
	signatureSize = 64
)

// bind encodes the parts so that no two lists of parts give the same bytes:
// each part follows its length.
func bind(label string, parts ...string) []byte {
	b := make([]byte, 0, 512)
	b = binary.BigEndian.AppendUint32(b, uint32(len(label)))
	b = append(b, label...)
	for _, p := range parts {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return b
}

func decimal[N ~int | ~int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// hashEntry covers every field of an entry and the tenant whose it is. The
// fields that came later are bound with their names, when they are not empty,
// under a label of their own: an entry without them has the hash that it had.
func hashEntry(tenant string, e store.LogEntry) Hash {
	parts := []string{tenant, decimal(e.CreatedAt), e.ID, e.ActorID, e.ActorType, e.SessionID,
		e.EntityType, e.EntityID, e.Operation, e.Outcome, e.Message, e.TraceID, e.ClientAddress}
	label := entryLabel
	for _, later := range [...]struct{ name, value string }{{"actor_name", e.ActorName}, {"reason", e.Reason}} {
		if later.value != "" {
			label = laterLabel
			parts = append(parts, later.name, later.value)
		}
	}
	return sha256.Sum256(bind(label, parts...))
}

// place is the position of an entry as it stands in keys.
type place struct {
	at store.Time
	id uuid.UUID
}

func placeOf(at store.Time, id string) (place, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return place{}, errors.New("audit: an entry's id must be a UUID")
	}
	return place{at, parsed}, nil
}

func (p place) position() store.Position {
	return store.Position{CreatedAt: p.at, ID: p.id.String()}
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.at, q.at), bytes.Compare(p.id[:], q.id[:]))
}

// leaf is an entry in a batch: where it stands and what it says.
type leaf struct {
	place
	entry Hash
}

func (l leaf) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(l.at))
	b = append(b, l.id[:]...)
	return append(b, l.entry[:]...)
}

func (l leaf) hash() Hash { return hashLeaf(l.append(make([]byte, 0, leafSize))) }

func hashLeaves(leaves []leaf) []Hash {
	hashes := make([]Hash, len(leaves))
	for i, l := range leaves {
		hashes[i] = l.hash()
	}
	return hashes
}

func formatLeafList(leaves []leaf) []byte {
	b := make([]byte, 1, 1+len(leaves)*leafSize)
	b[0] = formatLeaves
	for _, l := range leaves {
		b = l.append(b)
	}
	return b
}

// parseLeaves reads what formatLeafList wrote. A batch has at least one entry,
// and each stands behind the one before.
func parseLeaves(b []byte) ([]leaf, bool) {
	if len(b) < 1+leafSize || b[0] != formatLeaves || (len(b)-1)%leafSize != 0 {
		return nil, false
	}
	b = b[1:]
	leaves := make([]leaf, 0, len(b)/leafSize)
	for ; len(b) > 0; b = b[leafSize:] {
		l := leaf{place{store.Time(binary.BigEndian.Uint64(b)), uuid.UUID(b[8:placeSize])}, Hash(b[placeSize:leafSize])}
		if n := len(leaves); n > 0 && leaves[n-1].compare(l.place) >= 0 {
			return nil, false
		}
		leaves = append(leaves, l)
	}
	return leaves, true
}

// signed is what store.LogBatch.Signature holds. The public key stands there
// so that a batch can be verified when the tenant's keys are destroyed, and
// the link of the batch before so that each batch can be verified by itself.
type signed struct {
	previous  Hash
	signature []byte
	public    []byte // DER, as in a PEM file
}

func (s signed) format() []byte {
	b := append([]byte{formatSignature}, s.previous[:]...)
	b = append(b, s.signature...)
	return append(b, s.public...)
}

func parseSigned(b []byte) (signed, bool) {
	const head = 1 + sha256.Size + signatureSize
	if len(b) <= head || b[0] != formatSignature {
		return signed{}, false
	}
	return signed{Hash(b[1 : 1+sha256.Size]), b[1+sha256.Size : head], b[head:]}, true
}

// pemType is what keyring.Verifier writes.
const pemType = "PUBLIC KEY"

func publicPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der})
}

func publicDER(v *keyring.Verifier) ([]byte, error) {
	block, _ := pem.Decode(v.PEM())
	if block == nil {
		return nil, errors.New("audit: the public key is not PEM")
	}
	return block.Bytes, nil
}

// canonical returns a tenant's id as the store writes it: it is hashed.
func canonical(tenant string) (string, error) {
	id, err := uuid.Parse(tenant)
	if err != nil {
		return "", fmt.Errorf("audit: not the id of a tenant: %w", store.ErrNoTenant)
	}
	return id.String(), nil
}
