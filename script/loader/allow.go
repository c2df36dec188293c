package loader

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Allow is a list of allowed hosts.
type Allow struct {
	hosts    []string // lower case, with or without a port
	networks []netip.Prefix
}

// ParseAllow parses a list of hosts. An entry is a host name or an address, with or
// without a port, or a network such as 10.0.0.0/8. Without a port, all ports are
// allowed.
func ParseAllow(list []string) (*Allow, error) {
	a := &Allow{}
	for _, one := range list {
		if network, err := netip.ParsePrefix(one); err == nil {
			a.networks = append(a.networks, network)
			continue
		}
		if address, err := netip.ParseAddr(strings.Trim(one, "[]")); err == nil {
			a.networks = append(a.networks, netip.PrefixFrom(address, address.BitLen()))
			continue
		}
		if one == "" || strings.ContainsAny(one, "/@*? \t") {
			return nil, fmt.Errorf("invalid host %q; use a name, a name with a port, an address or a network such as 10.0.0.0/8", one)
		}
		a.hosts = append(a.hosts, canonical(one))
	}
	return a, nil
}

func canonical(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

// checkURL returns an error if the host of a URL is not allowed.
func (a *Allow) checkURL(u *url.URL) error {
	host, port := canonical(u.Hostname()), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if slices.Contains(a.hosts, host) || slices.Contains(a.hosts, net.JoinHostPort(host, port)) {
		return nil
	}
	if address, err := netip.ParseAddr(host); err == nil && a.listsAddress(address, port) {
		return nil
	}
	return &Refused{Host: host}
}

// checkAddress returns an error if an address that an allowed name resolves to is
// private and not allowed itself.
func (a *Allow) checkAddress(host, port string) error {
	address, err := netip.ParseAddr(host)
	if err != nil {
		return err
	}
	address = address.Unmap()
	switch {
	case isPublic(address), a.listsAddress(address, port):
		return nil
	case address.IsLoopback() && (slices.Contains(a.hosts, "localhost") || slices.Contains(a.hosts, net.JoinHostPort("localhost", port))):
		return nil
	}
	return &Refused{Host: address.String(), Private: true}
}

func (a *Allow) listsAddress(address netip.Addr, port string) bool {
	contains := func(n netip.Prefix) bool { return n.Contains(address.Unmap()) }
	return slices.ContainsFunc(a.networks, contains) || slices.Contains(a.hosts, net.JoinHostPort(address.String(), port))
}

// special are the networks of the registries of special-purpose addresses (RFC 6890)
// that netip does not know. Those that carry an IPv4 address inside lead to it: NAT64,
// 6to4 and Teredo.
var special = parsePrefixes(
	"0.0.0.0/8",       // this network
	"100.64.0.0/10",   // shared by carriers
	"192.0.0.0/24",    // protocol assignments
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // relays of 6to4
	"198.18.0.0/15",   // benchmarks
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"240.0.0.0/4",     // reserved, and broadcast
	"::/96",           // IPv4-compatible
	"::ffff:0:0:0/96", // IPv4-translated
	"64:ff9b::/96",    // NAT64
	"64:ff9b:1::/48",  // NAT64 in a network of one's own
	"100::/64",        // discarded
	"2001::/23",       // protocol assignments, Teredo among them
	"2001:db8::/32",   // documentation
	"2002::/16",       // 6to4
	"3fff::/20",       // documentation
	"5f00::/16",       // segment routing
	"fec0::/10",       // site-local
)

func parsePrefixes(all ...string) (networks []netip.Prefix) {
	for _, text := range all {
		networks = append(networks, netip.MustParsePrefix(text))
	}
	return networks
}

// isPublic reports whether an address belongs to the public internet.
func isPublic(a netip.Addr) bool {
	inside := func(n netip.Prefix) bool { return n.Contains(a.WithZone("")) }
	return a.IsGlobalUnicast() && !a.IsPrivate() && !slices.ContainsFunc(special, inside)
}

// Refused is the error for a host that is not allowed.
type Refused struct {
	Host    string
	Private bool // it is an address that a listed name stands for
}

func (r *Refused) Error() string {
	if r.Private {
		return fmt.Sprintf("the name resolves to %s, a private address that is not in the allow list", r.Host)
	}
	return fmt.Sprintf("host %s is not in the allow list", r.Host)
}

// ErrorHint implements event.Hinter.
func (r *Refused) ErrorHint() string {
	return fmt.Sprintf("to allow code from there, add it: allow: [%s]", r.Host)
}
