package keyring

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/tink"
)

// The first byte of everything that the keyring stores: what it is in the high
// half, the version of its format in the low one. FORMAT.md has the rest.
const (
	formatData       = 0x11 // a value under a tenant's data key
	formatEpoch      = 0x21 // a value under an epoch key
	formatSet        = 0x31 // a keyset under the KEK
	formatKey        = 0x41 // an epoch key under a tenant's data key
	formatCheckValue = 0x51 // the check value under the KEK
)

// The labels keep what is bound for one use from being valid for another; the
// number in them is the version of the format.
const (
	dataLabel        = "tokenkeep data 1"
	epochLabel       = "tokenkeep short-lived 1"
	setLabel         = "tokenkeep keyset 1"
	epochKeyLabel    = "tokenkeep epoch key 1"
	checkLabel       = "tokenkeep check 1"
	fingerprintLabel = "tokenkeep fingerprint 2"
	indexLabel       = "tokenkeep index 1"
	keyLabel         = "tokenkeep key 1"
	holderLabel      = "tokenkeep key holder 1"
)

// The sizes that the formats fix.
const (
	epochHeader = 1 + 8 // format byte, epoch number
	tinkHeader  = 1 + 4 // Tink's own prefix: 0x01, key id
	tinkStart   = 0x01
)

var errFormat = errors.New("keyring: not a sealed value")

// bind encodes the parts so that no two lists of parts give the same bytes:
// each part follows its length.
func bind(label string, parts ...string) []byte {
	size := 4 + len(label)
	for _, p := range parts {
		size += 4 + len(p)
	}
	b := make([]byte, 0, size)
	b = binary.BigEndian.AppendUint32(b, uint32(len(label)))
	b = append(b, label...)
	for _, p := range parts {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return b
}

// seal encrypts and puts the header, which the associated data must cover, in front.
func seal(a tink.AEAD, header, plaintext, associated []byte) ([]byte, error) {
	sealed, err := a.Encrypt(plaintext, associated)
	if err != nil {
		return nil, err
	}
	return append(header, sealed...), nil
}

// KeyID returns the id of the key under which a value was sealed: a tenant's
// data key, or the key of an epoch. The id is a hint that anyone could have
// changed; only opening the value proves it.
func KeyID(sealed []byte) (uint32, error) {
	skip := 1
	switch {
	case len(sealed) == 0:
		return 0, errFormat
	case sealed[0] == formatEpoch:
		skip = epochHeader
	case sealed[0] != formatData && sealed[0] != formatKey:
		return 0, errFormat
	}
	if len(sealed) < skip+tinkHeader || sealed[skip] != tinkStart {
		return 0, errFormat
	}
	return binary.BigEndian.Uint32(sealed[skip+1:]), nil
}

// SealedEpoch returns the epoch under whose key a short-lived value was sealed.
func SealedEpoch(sealed []byte) (int64, error) {
	if len(sealed) < epochHeader || sealed[0] != formatEpoch {
		return 0, errFormat
	}
	return int64(binary.BigEndian.Uint64(sealed[1:])), nil
}

// formatCheck writes a check value with the id of the KEK that wrapped it.
func formatCheck(id string, wrapped []byte) []byte {
	b := append([]byte{formatCheckValue, byte(len(id))}, id...)
	return append(b, wrapped...)
}

// parseCheck reads what formatCheck wrote.
func parseCheck(value []byte) (id string, wrapped []byte, err error) {
	if len(value) < 2 || value[0] != formatCheckValue || len(value) < 2+int(value[1]) {
		return "", nil, fmt.Errorf("keyring: the check value: %w", ErrDamaged)
	}
	end := 2 + int(value[1])
	return string(value[2:end]), value[end:], nil
}
