package wire_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenkeep/tokenkeep/internal/keyring/pkcs11/wire"
)

func TestMessagesComeBack(t *testing.T) {
	var b bytes.Buffer
	sent := []wire.Message{
		{ID: 1, Kind: wire.Encrypt, Payload: bytes.Repeat([]byte{7}, 32)},
		{ID: 1<<32 - 1, Kind: wire.OK, Payload: []byte{}},
		{ID: 3, Kind: wire.Extractable, Payload: make([]byte, wire.MaxPayload)},
	}
	for _, m := range sent {
		if err := wire.Write(&b, m); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range sent {
		if got, err := wire.Read(&b); err != nil || !cmp.Equal(got, want) {
			t.Errorf("Read = %v, %v; want %v", got, err, want)
		}
	}
	if _, err := wire.Read(&b); !errors.Is(err, io.EOF) {
		t.Errorf("Read at the end = %v, want io.EOF", err)
	}
	if err := wire.Write(&b, wire.Message{Kind: wire.OK, Payload: make([]byte, wire.MaxPayload+1)}); !errors.Is(err, wire.ErrFrame) {
		t.Errorf("Write of a long payload = %v, want ErrFrame", err)
	}
}

func TestOtherBytesAreNoMessage(t *testing.T) {
	for name, b := range map[string][]byte{
		"text":            []byte("<html>a page"),
		"too short":       {0, 0, 0, 4, 1, 2, 3, 4},
		"too long":        {0, 0, 16, 6, 0, 0, 0, 1, 0x80},
		"an unknown kind": {0, 0, 0, 5, 0, 0, 0, 1, 0x7f},
		"one kind beyond": {0, 0, 0, 5, 0, 0, 0, 1, 0x8b},
		"cut in its head": {0, 0, 0, 5, 0, 0},
		"cut in its body": {0, 0, 0, 9, 0, 0, 0, 1, 0x80, 1},
	} {
		if _, err := wire.Read(bytes.NewReader(b)); !errors.Is(err, wire.ErrFrame) {
			t.Errorf("%s: Read = %v, want ErrFrame", name, err)
		}
	}
}

func TestATargetComesBackAndNothingElseDoes(t *testing.T) {
	want := wire.Target{Module: "/m.so", Token: "t", Serial: "s", Object: "o", ID: []byte{1}, PIN: []byte("0000")}
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := wire.DecodeTarget(b); err != nil || !cmp.Equal(got, want) {
		t.Errorf("DecodeTarget = %v, %v; want %v", got, err, want)
	}
	if _, err := wire.DecodeTarget([]byte("{")); !errors.Is(err, wire.ErrFrame) {
		t.Errorf("DecodeTarget of half a text = %v, want ErrFrame", err)
	}
	if _, err := (wire.Target{Object: string(make([]byte, wire.MaxPayload))}).Encode(); !errors.Is(err, wire.ErrFrame) {
		t.Errorf("Encode of a long name = %v, want ErrFrame", err)
	}
}

func FuzzAMessageIsReadAsItWasWritten(f *testing.F) {
	f.Add([]byte{0, 0, 0, 6, 0, 0, 0, 1, 0x80, 7})
	f.Add([]byte("<html>"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		m, err := wire.Read(r)
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := wire.Write(&again, m); err != nil || !bytes.Equal(again.Bytes(), b[:len(b)-r.Len()]) {
			t.Errorf("Write of what was read = %v, %v; want %v", again.Bytes(), err, b)
		}
	})
}
