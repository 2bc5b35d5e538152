package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
)

// systemResolver resolves names with Go's resolver: the hosts file of the
// machine first, then its name servers, without search domains.
//
// Go finds a name of one label, such as localhost, in the hosts file only when
// the name has no dot at its end. Without the dot it would also try the search
// domains. So such names are first looked up by a resolver that reaches no name
// server. All addresses of a name come from one of the two.
type systemResolver struct {
	hostsFile, all *net.Resolver
}

var errNoNameServer = errors.New("egress: only the hosts file is read")

func newSystemResolver() systemResolver {
	return systemResolver{
		hostsFile: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errNoNameServer }},
		all:       &net.Resolver{PreferGo: true},
	}
}

// LookupNetIP implements Resolver.
func (r systemResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if label := strings.TrimSuffix(host, "."); !strings.Contains(label, ".") {
		if list, err := r.hostsFile.LookupNetIP(ctx, network, label); err == nil && len(list) > 0 {
			return list, nil
		}
	}
	return r.all.LookupNetIP(ctx, network, host)
}
