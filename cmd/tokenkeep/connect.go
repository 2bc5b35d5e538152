package main

import (
	"cmp"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/admin"
)

// Whether a call takes the key of an application.
const (
	keyNeeded = true
	keyIfAny  = false
)

// apiFlags gives a command what says where the server is and who calls. The
// key is in the environment, in a file or in a profile: arguments are seen by
// every process.
//
// Flags win, then a profile that a flag names, then variables, then the profile
// in use.
func apiFlags(c *cobra.Command) (connect func(needsKey bool) (*client.Client, error)) {
	address := c.Flags().String("url", "", "address of the server (default $TOKENKEEP_URL, or that of the profile)")
	data := c.Flags().String("data", "", "data folder of a server that runs on this machine, to find its address")
	keyFile := c.Flags().String("key-file", "", "file with the API key (default $TOKENKEEP_API_KEY, or that of the profile)")
	prefix := c.Flags().String("header-prefix", "", "prefix of the server's own headers (default $TOKENKEEP_HEADER_PREFIX, or that of the profile, or SVC)")
	caFile := c.Flags().String("ca-file", "", "file with the certificates of authorities to trust, in PEM (default $TOKENKEEP_CA_FILE, or that of the profile)")
	name := c.Flags().String("profile", "", "profile to call with, before any variable (default $TOKENKEEP_PROFILE, or the one in use)")
	_ = c.RegisterFlagCompletionFunc("profile", completeProfiles)
	inClear := c.Flags().Bool("in-clear", false, "call an http address that is not on this machine")
	return func(needsKey bool) (*client.Client, error) {
		variable := func(v string) string {
			if *name != "" {
				return "" // a flag named the profile
			}
			return os.Getenv(v)
		}
		key, err := keyOf(*keyFile, variable("TOKENKEEP_API_KEY"))
		if err != nil {
			return nil, err
		}
		var p profile
		elsewhere, foreign := cmp.Or(*address, *data, variable("TOKENKEEP_URL")), false
		if *name != "" || elsewhere == "" || key == "" && needsKey { // otherwise nothing of it would count
			if p, err = chosenProfile(*name); err != nil {
				return nil, err
			}
		}
		if elsewhere != "" && elsewhere != p.URL {
			foreign = p.Key != ""
			p = profile{} // it is about another server
		}
		w := way{
			key: cmp.Or(key, p.Key), prefix: cmp.Or(*prefix, variable("TOKENKEEP_HEADER_PREFIX"), p.HeaderPrefix),
			caFile: cmp.Or(*caFile, variable("TOKENKEEP_CA_FILE"), p.CAFile),
		}
		if *address == "" && *data != "" {
			w.address, err = addressOf(c, *data)
		} else {
			w.address, err = checkedAddress(cmp.Or(elsewhere, p.URL), *inClear || p.InClear)
		}
		if err != nil {
			return nil, err
		}
		if w.key == "" && needsKey {
			if foreign {
				return nil, errKeyElsewhere
			}
			return nil, errNoKey
		}
		return w.open()
	}
}

// keyOf returns the key of a file or, without one, that of a variable.
func keyOf(file, variable string) (string, error) {
	if file == "" {
		return variable, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", &usageError{errors.New("the file given with --key-file cannot be read")}
	}
	key := strings.TrimSpace(string(b))
	if key == "" {
		return "", errNoKey
	}
	return key, nil
}

// way is how a server is called.
type way struct{ address, key, prefix, caFile string }

func (w way) open() (*client.Client, error) {
	var options []client.Option
	if w.key != "" {
		options = append(options, client.WithKey(w.key))
	}
	if w.prefix != "" {
		options = append(options, client.WithHeaderPrefix(w.prefix))
	}
	if w.caFile != "" {
		b, err := os.ReadFile(w.caFile)
		pool := x509.NewCertPool()
		if err != nil || !pool.AppendCertsFromPEM(b) {
			return nil, errCAFile
		}
		options = append(options, client.WithRootCAs(pool))
	}
	call, err := client.New(w.address, options...)
	if err != nil {
		return nil, &usageError{withoutClient(err)}
	}
	return call, nil
}

var (
	errNoKey        = &usageError{errors.New("there is no key: set TOKENKEEP_API_KEY, name a file with --key-file, or use a profile")}
	errNoAddress    = &usageError{errors.New("there is no address: give --url, set TOKENKEEP_URL, use a profile, or name the folder of a server on this machine with --data")}
	errInClear      = &usageError{errors.New("the address is http and not on this machine, so that key and values would travel in clear: use https, or add --in-clear")}
	errKeyElsewhere = &usageError{errors.New("the key of a profile goes to the address of that profile alone: give a key for this address with --key-file or TOKENKEEP_API_KEY")}
	errCAFile       = &usageError{errors.New("the file with the certificates of authorities cannot be read, or has none in PEM")}
)

// addressOf asks the server of a folder where it is, by way of its admin
// socket, which a server that is gone cannot have left behind.
func addressOf(c *cobra.Command, data string) (string, error) {
	var s admin.Status
	err := admin.NewClient(data).Call(c.Context(), http.MethodGet, "/status", nil, &s)
	return s.BaseURL, err
}

func checkedAddress(address string, inClear bool) (string, error) {
	if address == "" {
		return "", errNoAddress
	}
	if u, err := url.Parse(address); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) && !inClear {
		return "", errInClear
	}
	return address, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
