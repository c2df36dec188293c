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

// shared is the carrier-grade NAT network.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// isPublic reports whether an address belongs to the public internet.
func isPublic(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !a.IsPrivate() && !shared.Contains(a)
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
