//go:build cgo && unix

package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/miekg/pkcs11"

	"github.com/tokenkeep/tokenkeep/internal/keyring/pkcs11/wire"
)

// token is a session with a token, and its key once that was looked for.
type token struct {
	target  wire.Target // without the PIN
	module  *pkcs11.Ctx
	session pkcs11.SessionHandle
	key     pkcs11.ObjectHandle
	found   bool
}

// openToken loads the module, finds the token and logs in. The PIN is tried once:
// tokens lock themselves after a few wrong ones.
func openToken(target wire.Target) (*token, wire.Kind) {
	t := &token{target: target, module: pkcs11.New(target.Module)}
	t.target.PIN = nil
	if t.module == nil {
		return nil, wire.NoModule
	}
	if err := t.module.Initialize(); err != nil {
		return nil, wire.Unavailable
	}
	slot, kind := t.slot()
	if kind != wire.OK {
		return nil, kind
	}
	var err error
	// Only sessions that may write can create keys; for all else none needs to.
	if t.session, err = t.module.OpenSession(slot, pkcs11.CKF_SERIAL_SESSION); err != nil {
		return nil, wire.Unavailable
	}
	if len(target.PIN) == 0 {
		return t, wire.OK
	}
	switch err := t.module.Login(t.session, pkcs11.CKU_USER, string(target.PIN)); {
	case err == nil, is(err, pkcs11.CKR_USER_ALREADY_LOGGED_IN):
		return t, wire.OK
	case is(err, pkcs11.CKR_PIN_INCORRECT, pkcs11.CKR_PIN_INVALID, pkcs11.CKR_PIN_LEN_RANGE, pkcs11.CKR_PIN_LOCKED, pkcs11.CKR_PIN_EXPIRED,
		pkcs11.CKR_USER_PIN_NOT_INITIALIZED):
		return nil, wire.WrongPIN
	}
	return nil, wire.Unavailable
}

// slot finds the one slot that has the token.
func (t *token) slot() (slot uint, kind wire.Kind) {
	slots, err := t.module.GetSlotList(true)
	if err != nil {
		return 0, wire.Unavailable
	}
	kind = wire.NoToken
	for _, s := range slots {
		info, err := t.module.GetTokenInfo(s)
		if err != nil || strings.TrimRight(info.Label, " \x00") != t.target.Token {
			continue
		}
		if t.target.Serial != "" && strings.TrimRight(info.SerialNumber, " \x00") != t.target.Serial {
			continue
		}
		if kind == wire.OK {
			return 0, wire.Ambiguous
		}
		slot, kind = s, wire.OK
	}
	return slot, kind
}

// do responds to a call.
func (t *token) do(call wire.Message) (wire.Kind, []byte) {
	kind := t.find()
	switch {
	case call.Kind == wire.Create && kind == wire.OK:
		return wire.Exists, nil
	case call.Kind == wire.Create && kind == wire.NoKey:
		return t.create(), nil
	case kind != wire.OK:
		return kind, nil
	}
	switch call.Kind {
	case wire.Encrypt:
		return t.encrypt(call.Payload)
	case wire.Decrypt:
		return t.decrypt(call.Payload)
	case wire.Probe:
		return t.probe(), nil
	}
	return wire.Unavailable, nil
}

// names are the attributes by which the key is found and created.
func (t *token) names() []*pkcs11.Attribute {
	names := []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_CLASS, pkcs11.CKO_SECRET_KEY),
		pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, pkcs11.CKK_AES),
		pkcs11.NewAttribute(pkcs11.CKA_LABEL, t.target.Object),
	}
	if len(t.target.ID) > 0 {
		names = append(names, pkcs11.NewAttribute(pkcs11.CKA_ID, t.target.ID))
	}
	return names
}

// find looks for the key, unless it is known. Labels need not be unique: of two
// keys it takes none, because each opens only what it encrypted itself.
func (t *token) find() wire.Kind {
	if t.found {
		return wire.OK
	}
	if err := t.module.FindObjectsInit(t.session, t.names()); err != nil {
		return wire.Unavailable
	}
	keys, _, err := t.module.FindObjects(t.session, 2)
	if err := errors.Join(err, t.module.FindObjectsFinal(t.session)); err != nil {
		return wire.Unavailable
	}
	switch len(keys) {
	case 0:
		return wire.NoKey
	case 1:
		t.key, t.found = keys[0], true
		return wire.OK
	}
	return wire.Ambiguous
}

// What Encrypt returns: a version, the length of the nonce, the nonce, and what
// AES-GCM makes of the key.
const (
	version   = 1
	nonceSize = 12
	tagBits   = 128
)

func (t *token) encrypt(key []byte) (wire.Kind, []byte) {
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // it never fails
	params := pkcs11.NewGCMParams(nonce, nil, tagBits)
	defer params.Free()
	err := t.module.EncryptInit(t.session, []*pkcs11.Mechanism{pkcs11.NewMechanism(pkcs11.CKM_AES_GCM, params)}, t.key)
	if err != nil {
		return classify(err), nil
	}
	sealed, err := t.module.Encrypt(t.session, key)
	if err != nil {
		return classify(err), nil
	}
	nonce = params.IV() // some tokens choose it themselves
	return wire.OK, append(append([]byte{version, byte(len(nonce))}, nonce...), sealed...)
}

func (t *token) decrypt(encrypted []byte) (wire.Kind, []byte) {
	if len(encrypted) < 2 || encrypted[0] != version || len(encrypted) < 2+int(encrypted[1])+tagBits/8 || encrypted[1] == 0 {
		return wire.NotOpened, nil
	}
	nonce, sealed := encrypted[2:2+encrypted[1]], encrypted[2+encrypted[1]:]
	key, err := t.open(nonce, sealed)
	if err == nil {
		return wire.OK, key
	}
	if classify(err) == wire.NotOpened {
		return wire.NotOpened, nil
	}
	// Some tokens report changed bytes as they report that they are broken or that
	// they refuse the key. One that opens what it encrypts a moment later is not
	// and does not.
	constant := make([]byte, 32)
	kind, again := t.encrypt(constant)
	if kind != wire.OK {
		return kind, nil
	}
	if got, err := t.open(again[2:2+again[1]], again[2+again[1]:]); err != nil || !bytes.Equal(got, constant) {
		return wire.Unavailable, nil
	}
	return wire.NotOpened, nil
}

func (t *token) open(nonce, sealed []byte) ([]byte, error) {
	params := pkcs11.NewGCMParams(nonce, nil, tagBits)
	defer params.Free()
	if err := t.module.DecryptInit(t.session, []*pkcs11.Mechanism{pkcs11.NewMechanism(pkcs11.CKM_AES_GCM, params)}, t.key); err != nil {
		return nil, err
	}
	return t.module.Decrypt(t.session, sealed)
}

// create generates a key that cannot leave the token and does nothing but encrypt
// and decrypt.
func (t *token) create() wire.Kind {
	slot, kind := t.slot()
	if kind != wire.OK {
		return kind
	}
	session, err := t.module.OpenSession(slot, pkcs11.CKF_SERIAL_SESSION|pkcs11.CKF_RW_SESSION) // the login is of all sessions
	if err != nil {
		return wire.Refused
	}
	attributes := t.names()
	for _, is := range []uint{pkcs11.CKA_TOKEN, pkcs11.CKA_PRIVATE, pkcs11.CKA_SENSITIVE, pkcs11.CKA_ENCRYPT, pkcs11.CKA_DECRYPT} {
		attributes = append(attributes, pkcs11.NewAttribute(is, true))
	}
	for _, not := range []uint{pkcs11.CKA_EXTRACTABLE, pkcs11.CKA_WRAP, pkcs11.CKA_UNWRAP, pkcs11.CKA_SIGN, pkcs11.CKA_VERIFY, pkcs11.CKA_DERIVE} {
		attributes = append(attributes, pkcs11.NewAttribute(not, false))
	}
	attributes = append(attributes, pkcs11.NewAttribute(pkcs11.CKA_VALUE_LEN, 32))
	if _, err := t.module.GenerateKey(session, []*pkcs11.Mechanism{pkcs11.NewMechanism(pkcs11.CKM_AES_KEY_GEN, nil)}, attributes); err != nil {
		return classify(err)
	}
	return wire.OK
}

// probe looks whether the key could be read out of the token.
func (t *token) probe() wire.Kind {
	values, err := t.module.GetAttributeValue(t.session, t.key, []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, nil), pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, nil),
	})
	switch {
	case err != nil || len(values) != 2:
		return wire.OK // a token that does not say gives nothing away
	case bytes.Equal(values[0].Value, []byte{0}), bytes.Equal(values[1].Value, []byte{1}):
		return wire.Extractable
	}
	return wire.OK
}

// refusals say that the token works and does not use the key.
var refusals = []uint{
	pkcs11.CKR_KEY_FUNCTION_NOT_PERMITTED, pkcs11.CKR_KEY_TYPE_INCONSISTENT, pkcs11.CKR_KEY_SIZE_RANGE, pkcs11.CKR_MECHANISM_INVALID,
	pkcs11.CKR_MECHANISM_PARAM_INVALID, pkcs11.CKR_ACTION_PROHIBITED, pkcs11.CKR_USER_NOT_LOGGED_IN, pkcs11.CKR_TOKEN_WRITE_PROTECTED,
	pkcs11.CKR_SESSION_READ_ONLY, pkcs11.CKR_ATTRIBUTE_VALUE_INVALID, pkcs11.CKR_TEMPLATE_INCONSISTENT, pkcs11.CKR_ATTRIBUTE_TYPE_INVALID,
}

// aeadDecryptFailed is CKR_AEAD_DECRYPT_FAILED of PKCS#11 3.0.
const aeadDecryptFailed = 0x42

// classify reads what an error means. Its text is not passed on.
func classify(err error) wire.Kind {
	switch {
	case is(err, pkcs11.CKR_ENCRYPTED_DATA_INVALID, pkcs11.CKR_ENCRYPTED_DATA_LEN_RANGE, aeadDecryptFailed):
		return wire.NotOpened
	case is(err, refusals...):
		return wire.Refused
	}
	return wire.Unavailable
}

func is(err error, codes ...uint) bool {
	var e pkcs11.Error
	if !errors.As(err, &e) {
		return false
	}
	for _, code := range codes {
		if uint(e) == code {
			return true
		}
	}
	return false
}
