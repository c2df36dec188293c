package loader

import (
	"strings"
	"testing"
)

// TestAddressBehindAName: a listed name may lead to the open internet, and else
// only to addresses that are listed themselves.
func TestAddressBehindAName(t *testing.T) {
	for _, c := range []struct {
		allow, address string
		ok             bool
	}{
		{"example.com", "93.184.216.34", true},
		{"example.com", "2606:2800:220:1::1", true},
		{"example.com", "127.0.0.1", false},
		{"example.com", "10.1.2.3", false},
		{"example.com", "172.16.0.1", false},
		{"example.com", "192.168.1.1", false},
		{"example.com", "169.254.169.254", false},
		{"example.com", "100.64.0.1", false},
		{"example.com", "0.0.0.0", false},
		{"example.com", "224.0.0.1", false},
		{"example.com", "::1", false},
		{"example.com", "fd00::1", false},
		{"example.com", "fe80::1", false},
		{"example.com", "::ffff:127.0.0.1", false},
		{"example.com", "::ffff:198.18.0.1", false},
		{"example.com", "0.1.2.3", false},
		{"example.com", "192.0.0.8", false},
		{"example.com", "192.0.2.1", false},
		{"example.com", "198.18.0.1", false},
		{"example.com", "198.19.255.255", false},
		{"example.com", "198.51.100.1", false},
		{"example.com", "203.0.113.1", false},
		{"example.com", "240.0.0.1", false},
		{"example.com", "255.255.255.255", false},
		{"example.com", "64:ff9b::7f00:1", false},
		{"example.com", "64:ff9b:1::a00:1", false},
		{"example.com", "2002:7f00:1::1", false},
		{"example.com", "2001::1", false},
		{"example.com", "2001:db8::1", false},
		{"example.com", "::127.0.0.1", false},
		{"example.com", "::ffff:0:127.0.0.1", false},
		{"example.com", "100::1", false},
		{"example.com", "fec0::1", false},
		{"example.com", "ff02::1", false},
		{"example.com", "fe80::1%eth0", false},
		{"example.com", "100.128.0.1", true},
		{"example.com", "198.20.0.1", true},
		{"example.com", "2a00:1450::1", true},
		{"example.com 64:ff9b::/96", "64:ff9b::7f00:1", true},
		{"example.com 10.0.0.0/8", "10.1.2.3", true},
		{"example.com 10.1.2.3", "10.1.2.3", true},
		{"example.com 10.1.2.3:443", "10.1.2.3", true},
		{"example.com 10.1.2.3:80", "10.1.2.3", false},
		{"example.com 10.1.2.3", "10.1.2.4", false},
		{"localhost", "::1", true},
		{"localhost", "10.1.2.3", false},
	} {
		allow, err := ParseAllow(strings.Fields(c.allow))
		if err != nil {
			t.Fatal(err)
		}
		if err := allow.checkAddress(c.address, "443"); (err == nil) != c.ok {
			t.Errorf("allow %s, address %s: %v", c.allow, c.address, err)
		}
	}
}
