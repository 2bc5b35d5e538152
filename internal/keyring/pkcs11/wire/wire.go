// Package wire is how the server and the program tokenkeep-pkcs11 talk to each
// other over a pair of pipes.
//
// It promises that a message is read whole or not at all and that no length from
// outside makes it allocate more than MaxPayload. It never carries text of a
// module: results are numbers.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxPayload bounds the payload of a message.
const MaxPayload = 4 << 10

// header is the length of the rest of the message in four bytes, the id of the
// call in four, and the kind in one.
const header = 4 + 4 + 1

// ErrFrame says that bytes are no message.
var ErrFrame = errors.New("wire: not a message")

// Kind says what a message is.
type Kind byte

// What the server sends. Open comes first, once, and has no response; every other
// message has one, in the same order.
const (
	Open    Kind = 1 + iota // the payload is a Target in JSON
	Encrypt                 // the payload is a key
	Decrypt                 // the payload is what Encrypt returned
	Create                  // makes the key of the Target
	Probe                   // looks at the attributes of the key
)

// What the program responds. Only OK has a payload.
const (
	OK          Kind = 0x80 + iota
	NotOpened        // the key does not open the bytes
	Refused          // the token refuses to use the key
	Unavailable      // the token or the module does not work; the program ends
	NoModule         // the module cannot be loaded
	NoToken          // no slot has the token
	NoKey            // the token has no such key
	Ambiguous        // several tokens or keys match
	WrongPIN         // the token refuses the PIN
	Exists           // Create found the key
	Extractable      // Probe found a key that can leave the token
	last             // no kind
)

// Failed reports whether a response says that the program could not reach the
// key, so that only another run of it can.
func (k Kind) Failed() bool { return k >= Unavailable && k <= WrongPIN }

// Message is one message.
type Message struct {
	ID      uint32 // of the call, the same in the response
	Kind    Kind
	Payload []byte
}

// Target is the key that a run of the program is about.
type Target struct {
	Module string `json:"module"`
	Token  string `json:"token"`
	Serial string `json:"serial,omitempty"`
	Object string `json:"object"`
	ID     []byte `json:"id,omitempty"`
	PIN    []byte `json:"pin,omitempty"`
}

// Encode returns the payload of an Open message.
func (t Target) Encode() ([]byte, error) {
	b, err := json.Marshal(t)
	if err != nil || len(b) > MaxPayload {
		return nil, fmt.Errorf("%w: the names of the key are too long", ErrFrame)
	}
	return b, nil
}

// DecodeTarget reads the payload of an Open message.
func DecodeTarget(payload []byte) (t Target, err error) {
	if json.Unmarshal(payload, &t) != nil {
		return Target{}, ErrFrame // its text could repeat the PIN
	}
	return t, nil
}

// Write writes a message in one call of w.
func Write(w io.Writer, m Message) error {
	if len(m.Payload) > MaxPayload {
		return ErrFrame
	}
	b := make([]byte, header, header+len(m.Payload))
	binary.BigEndian.PutUint32(b, uint32(header-4+len(m.Payload)))
	binary.BigEndian.PutUint32(b[4:], m.ID)
	b[8] = byte(m.Kind)
	b = append(b, m.Payload...)
	defer clear(b)
	_, err := w.Write(b)
	return err
}

// Read reads a message. It returns io.EOF when there is none, and ErrFrame for
// bytes that are none.
func Read(r io.Reader) (m Message, err error) {
	var h [header]byte
	if _, err := io.ReadFull(r, h[:4]); err != nil {
		return m, err
	}
	size := binary.BigEndian.Uint32(h[:])
	if size < header-4 || size > header-4+MaxPayload {
		return m, ErrFrame
	}
	if _, err := io.ReadFull(r, h[4:]); err != nil {
		return m, ErrFrame
	}
	m = Message{ID: binary.BigEndian.Uint32(h[4:]), Kind: Kind(h[8])}
	if known := m.Kind >= Open && m.Kind <= Probe || m.Kind >= OK && m.Kind < last; !known {
		return Message{}, ErrFrame
	}
	m.Payload = make([]byte, size-(header-4))
	if _, err := io.ReadFull(r, m.Payload); err != nil {
		return Message{}, ErrFrame
	}
	return m, nil
}
