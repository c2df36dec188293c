package stdlib

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/perigeedb/perigee/script"
)

func netModule() script.Module {
	return script.Module{
		Name:      "net",
		Functions: map[string]script.Func{"addr": lookup},
		Pure:      map[string]script.Func{"contains": contains, "getmac": hardwareAddress, "parse": parseAddress},
	}
}

// hardwareAddress is getmac(): the hardware address of the first interface that has
// one.
func hardwareAddress(context.Context, []any) ([]any, error) {
	all, err := net.Interfaces()
	if err != nil {
		return failure(err), nil
	}
	for _, one := range all {
		if address := one.HardwareAddr.String(); address != "" {
			return []any{address}, nil
		}
	}
	return failure(errors.New("no network interface has a hardware address")), nil
}

// lookup is addr(host): the address of a host, preferably IPv4. host may have a port.
func lookup(ctx context.Context, args []any) ([]any, error) {
	host, err := text(args, 0)
	if err != nil {
		return nil, err
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return failure(err), nil
	}
	for _, address := range found {
		if address.Unmap().Is4() {
			return one(address.Unmap().String()), nil
		}
	}
	if len(found) == 0 {
		return failure(errors.New(host + " has no address")), nil
	}
	return one(found[0].String()), nil
}

// parseAddress is parse(text): the properties of an address or of a prefix such as
// 10.0.0.0/8.
func parseAddress(_ context.Context, args []any) ([]any, error) {
	s, err := text(args, 0)
	if err != nil {
		return nil, err
	}
	address, err := netip.ParseAddr(s)
	known := map[string]any{}
	if err != nil {
		prefix, failed := netip.ParsePrefix(s)
		if failed != nil {
			return failure(errors.New("invalid address or prefix: " + s)), nil
		}
		address = prefix.Addr()
		known["bits"] = float64(prefix.Bits())
		known["network"] = prefix.Masked().Addr().String()
	}
	address = address.Unmap()
	known["ip"] = address.String()
	known["version"] = 6.0
	if address.Is4() {
		known["version"] = 4.0
	}
	known["private"] = address.IsPrivate()
	known["loopback"] = address.IsLoopback()
	known["multicast"] = address.IsMulticast()
	known["link_local"] = address.IsLinkLocalUnicast()
	return one(known), nil
}

// contains is contains(prefix or list of prefixes, ip). An invalid address is in no
// prefix.
func contains(_ context.Context, args []any) ([]any, error) {
	s, err := text(args, 1)
	if err != nil {
		return nil, err
	}
	prefixes, isList := value(args, 0).([]any)
	if !isList {
		prefixes = args[:1]
	}
	address, err := netip.ParseAddr(s)
	if err != nil {
		return failure(errors.New("invalid address: " + s)), nil
	}
	for i := range prefixes {
		spelled, err := text(prefixes, i)
		if err != nil {
			return nil, errors.New("argument 1 must be a prefix such as 10.0.0.0/8, or a list of them")
		}
		prefix, err := netip.ParsePrefix(spelled)
		if err != nil {
			return nil, errors.New("argument 1: invalid prefix, want one such as 10.0.0.0/8: " + spelled)
		}
		if prefix.Contains(address.Unmap()) {
			return one(true), nil
		}
	}
	return one(false), nil
}
