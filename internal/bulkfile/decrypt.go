package bulkfile

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"filippo.io/age"
	agearmor "filippo.io/age/armor"
	"github.com/ProtonMail/go-crypto/openpgp"
	pgparmor "github.com/ProtonMail/go-crypto/openpgp/armor"
)

// Keys open files. The zero Keys open none.
type Keys struct {
	identities []age.Identity
	ring       openpgp.EntityList
}

var (
	errIdentity   = errors.New("a file with a key holds neither an age identity nor an OpenPGP private key")
	errPassphrase = errors.New("the OpenPGP private key is locked, and the passphrase does not open it")
	errNoKey      = errors.New("the file is encrypted, and no key that was given with --identity opens it")
	errDamaged    = errors.New("the file is encrypted and damaged, or of a form that is not supported")
)

// Add adds the keys of a file: identities of age, or private keys of OpenPGP,
// which the passphrase opens if they are locked.
func (k *Keys) Add(text, passphrase []byte) error {
	if bytes.Contains(text, []byte("AGE-SECRET-KEY-")) {
		list, err := age.ParseIdentities(bytes.NewReader(text))
		if err != nil {
			return errIdentity // the library's words may quote the file
		}
		k.identities = append(k.identities, list...)
		return nil
	}
	list, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(text))
	if err != nil {
		list, err = openpgp.ReadKeyRing(bytes.NewReader(text))
	}
	if err != nil || len(list.DecryptionKeys()) == 0 {
		return errIdentity
	}
	for _, e := range list {
		if e.PrivateKey != nil && e.PrivateKey.Encrypted && e.DecryptPrivateKeys(passphrase) != nil {
			return errPassphrase
		}
	}
	k.ring = append(k.ring, list...)
	return nil
}

// Identities returns the identities of age.
func (k *Keys) Identities() []age.Identity { return k.identities }

const (
	ageMagic = "age-encryption.org/"
	pgpArmor = "-----BEGIN PGP MESSAGE-----"
)

// Decrypt returns the plaintext of a file, as a stream; a file that is not
// encrypted is returned as it is. What age authenticates it authenticates chunk
// by chunk; of OpenPGP, the reader fails at its end if the file was changed.
func (k *Keys) Decrypt(in io.Reader) (plaintext io.Reader, encrypted bool, err error) {
	b := bufio.NewReaderSize(in, 64<<10)
	head, _ := b.Peek(64)
	switch {
	case bytes.HasPrefix(head, []byte(ageMagic)):
		plaintext, err = k.openAge(b)
	case bytes.HasPrefix(head, []byte(agearmor.Header)):
		plaintext, err = k.openAge(agearmor.NewReader(b))
	case bytes.HasPrefix(head, []byte(pgpArmor)):
		block, armorErr := pgparmor.Decode(b)
		if armorErr != nil {
			return nil, true, errDamaged
		}
		plaintext, err = k.openPGP(block.Body)
	case len(head) > 0 && head[0]&0x80 != 0 && !bytes.HasPrefix(head, []byte("\xef\xbb\xbf")): // every packet of OpenPGP begins so
		plaintext, err = k.openPGP(b)
	default:
		return b, false, nil
	}
	return plaintext, true, err
}

func (k *Keys) openAge(in io.Reader) (io.Reader, error) {
	if len(k.identities) == 0 {
		return nil, errNoKey
	}
	out, err := age.Decrypt(in, k.identities...)
	if errors.As(err, new(*age.NoIdentityMatchError)) {
		return nil, errNoKey
	}
	if err != nil {
		return nil, errDamaged
	}
	return out, nil
}

func (k *Keys) openPGP(in io.Reader) (io.Reader, error) {
	if len(k.ring) == 0 {
		return nil, errNoKey
	}
	message, err := openpgp.ReadMessage(in, k.ring, nil, nil)
	if err != nil || !message.IsEncrypted {
		return nil, errNoKey
	}
	return message.UnverifiedBody, nil
}
