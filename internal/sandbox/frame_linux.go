package sandbox

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
)

// Frames, each way: length of the rest (32 bits, little end first), type
// (8 bits), nonce (8 bytes), payload. A process answers with the nonce of the
// call, which differs for each: what an earlier call left behind cannot answer
// a later one.

const (
	nonceSize  = 8
	headerSize = 4 + 1 + nonceSize

	maxInput   = 5<<20 + 64<<10 // arguments up to 5 MiB, and the configuration
	maxResult  = 5 << 20
	maxConsole = 64 << 10
	firstRead  = 16 << 10
)

// Types of frames to a process.
const (
	frameProgram = 1
	frameCall    = 2
	frameCheck   = 3
)

// Types of frames from a process.
const (
	frameReady   = 0
	frameConsole = 1
	frameValue   = 2
	frameThrown  = 3
	frameFailed  = 4
	frameChecked = 5
	frameFatal   = 6 // thrown, and the process is of no more use
)

// Flags of a call.
const (
	flagHeaders = 1
	flagClient  = 2
)

type nonce [nonceSize]byte

// errProtocol says that a process sent what it should not.
var errProtocol = errors.New("sandbox: frame out of turn")

// writeFrame sends a frame whose payload comes in parts, without joining them.
func writeFrame(c net.Conn, kind byte, n nonce, parts ...[]byte) error {
	header := make([]byte, headerSize)
	size := 1 + nonceSize
	for _, p := range parts {
		size += len(p)
	}
	binary.LittleEndian.PutUint32(header, uint32(size))
	header[4] = kind
	copy(header[5:], n[:])
	buffers := append(net.Buffers{header}, parts...)
	_, err := buffers.WriteTo(c)
	return err
}

// readFrame reads a frame that must carry the nonce. The payload is bounded,
// and memory is taken as bytes arrive, not as they are announced.
func readFrame(r io.Reader, n nonce) (kind byte, payload []byte, err error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	size := int64(binary.LittleEndian.Uint32(header[:])) - 1 - nonceSize
	if size < 0 || size > maxResult || nonce(header[5:]) != n {
		return 0, nil, errProtocol
	}
	payload = make([]byte, 0, min(size, firstRead))
	for int64(len(payload)) < size {
		if len(payload) == cap(payload) {
			larger := make([]byte, len(payload), min(size, 2*int64(cap(payload))))
			copy(larger, payload)
			clear(payload)
			payload = larger
		}
		got, err := r.Read(payload[len(payload):cap(payload)])
		payload = payload[:len(payload)+got]
		if err != nil && int64(len(payload)) < size {
			clear(payload)
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
	}
	return header[4], payload, nil
}
