// Package awskms encrypts keys with AWS Key Management Service.
//
// It promises to use the credential chain of the AWS SDK and nothing else, and
// to return when the context ends. It never sends anything but fresh keys of 32
// bytes, and never passes on what the service said.
package awskms

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/smithy-go"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/keyring/envelope"
)

// Options are what does not stand in the URI.
type Options struct {
	// Credentials replace the SDK's chain; nil means the chain.
	Credentials aws.CredentialsProvider
	// Envelope are the settings of calls.
	Envelope envelope.Options
}

const scheme = "awskms://"

// keyARN matches the ARN of a key. An alias is refused: it can be pointed at
// another key.
var keyARN = regexp.MustCompile(`^arn:aws[a-z-]*:kms:([a-z0-9-]+):\d{12}:key/[A-Za-z0-9-]{1,64}$`)

// service is one key.
type service struct {
	arn string
	kms *kms.Client
}

// Open returns the KMS of a key such as
// awskms://arn:aws:kms:eu-central-1:111122223333:key/UUID?profile=…&endpoint=….
// It calls nobody.
func Open(ctx context.Context, uri string, o Options) (*envelope.KMS, error) {
	arn, query, _ := strings.Cut(strings.TrimPrefix(uri, scheme), "?")
	parts := keyARN.FindStringSubmatch(arn)
	if !strings.HasPrefix(uri, scheme) || parts == nil {
		return nil, errors.New("must look like awskms://arn:aws:kms:REGION:ACCOUNT:key/ID; an alias is not taken, because it can be pointed at another key")
	}
	q, err := url.ParseQuery(query)
	for p := range q {
		if !slices.Contains([]string{"profile", "endpoint"}, p) {
			err = errors.New("unknown parameter")
		}
	}
	if err != nil {
		return nil, errors.New("unknown parameter in the query; it takes profile and endpoint")
	}
	options := []func(*config.LoadOptions) error{
		config.WithRegion(parts[1]),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }), // package envelope tries again
	}
	if p := q.Get("profile"); p != "" {
		options = append(options, config.WithSharedConfigProfile(p))
	}
	if o.Credentials != nil {
		options = append(options, config.WithCredentialsProvider(o.Credentials))
	}
	c, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, errors.New("the AWS configuration of this machine cannot be read")
	}
	s := &service{arn: arn, kms: kms.NewFromConfig(c, func(o *kms.Options) {
		if e := q.Get("endpoint"); e != "" {
			o.BaseEndpoint = aws.String(e)
		}
	})}
	return envelope.New(arn, s, o.Envelope), nil
}

// purpose shows in CloudTrail and can be named in a key policy.
var purpose = map[string]string{"application": "tokenkeep"}

// Encrypt encrypts a key.
func (s *service) Encrypt(ctx context.Context, key []byte) ([]byte, error) {
	out, err := s.kms.Encrypt(ctx, &kms.EncryptInput{KeyId: &s.arn, Plaintext: key, EncryptionContext: purpose})
	if err != nil {
		return nil, classify(err)
	}
	return out.CiphertextBlob, nil
}

// Decrypt decrypts a key.
func (s *service) Decrypt(ctx context.Context, encrypted []byte) ([]byte, error) {
	out, err := s.kms.Decrypt(ctx, &kms.DecryptInput{KeyId: &s.arn, CiphertextBlob: encrypted, EncryptionContext: purpose})
	if err != nil {
		return nil, classify(err)
	}
	return out.Plaintext, nil
}

// Advise names the commands of AWS.
func (s *service) Advise(what keyring.Operation) string {
	switch what {
	case keyring.Create:
		return fmt.Sprintf(`run 'aws kms create-key --description tokenkeep', and give the server's role this policy:
{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["kms:Encrypt","kms:Decrypt"],"Resource":%q,
 "Condition":{"StringEquals":{"kms:EncryptionContext:application":"tokenkeep"}}}]}`, s.arn)
	case keyring.Rotate:
		return "run 'aws kms rotate-key-on-demand --key-id " + s.arn + "', or name another key in kek and the old one in kek.also, and run 'tokenkeep key rotate-kek'"
	case keyring.Drop:
		return "remove the key from kek.also; 'aws kms schedule-key-deletion' deletes it at AWS, and with it every backup that needs it"
	}
	return ""
}

// meanings are the error codes that say something about the key or the bytes. All
// others say that the service is not available.
var meanings = map[string]error{
	"InvalidCiphertextException":  keyring.ErrUnwrap,
	"IncorrectKeyException":       keyring.ErrUnwrap,
	"ValidationException":         keyring.ErrUnwrap, // no length that a ciphertext has
	"DisabledException":           keyring.ErrKEKRefused,
	"KMSInvalidStateException":    keyring.ErrKEKRefused,
	"NotFoundException":           keyring.ErrKEKRefused,
	"InvalidKeyUsageException":    keyring.ErrKEKRefused,
	"AccessDeniedException":       keyring.ErrKEKRefused,
	"UnrecognizedClientException": keyring.ErrKEKRefused,
	"InvalidSignatureException":   keyring.ErrKEKRefused,
	"ExpiredTokenException":       keyring.ErrKEKRefused,
}

// classify reads what an error means. Nothing of its text is passed on.
func classify(err error) error {
	var api smithy.APIError
	if errors.As(err, &api) {
		if meaning, ok := meanings[api.ErrorCode()]; ok {
			return fmt.Errorf("awskms: %w", meaning)
		}
	}
	return fmt.Errorf("awskms: %w", keyring.ErrKMSUnavailable)
}
