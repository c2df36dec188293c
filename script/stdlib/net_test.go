package stdlib

import (
	"context"
	"net"
	"testing"
)

func TestNet(t *testing.T) {
	private := func(ip string, version float64) map[string]any {
		return map[string]any{"ip": ip, "version": version, "private": true, "loopback": false, "multicast": false, "link_local": false}
	}
	network := private("10.1.2.3", 4)
	network["bits"], network["network"] = 8.0, "10.0.0.0"
	check(t, "net", []call{
		{"parse", values{"10.1.2.3"}, values{private("10.1.2.3", 4)}, ""},
		{"parse", values{"::ffff:10.1.2.3"}, values{private("10.1.2.3", 4)}, ""},
		{"parse", values{"fd00::1"}, values{private("fd00::1", 6)}, ""},
		{"parse", values{"10.1.2.3/8"}, values{network}, ""},
		{"parse", values{"10.1.2"}, values{nil, "invalid address or prefix: 10.1.2"}, ""},
		{"parse", values{}, nil, "argument 1"},
		{"contains", values{"10.0.0.0/8", "10.9.9.9"}, values{true}, ""},
		{"contains", values{"10.0.0.0/8", "11.0.0.1"}, values{false}, ""},
		{"contains", values{"10.0.0.0/8", "::ffff:10.0.0.1"}, values{true}, ""},
		{"contains", values{values{"10.0.0.0/8", "2001:db8::/32"}, "2001:db8::5"}, values{true}, ""},
		{"contains", values{values{}, "10.0.0.1"}, values{false}, ""},
		{"contains", values{"10.0.0.0/8", "here"}, values{nil, "invalid address: here"}, ""},
		{"contains", values{"10.0.0.0", "10.0.0.1"}, nil, "invalid prefix"},
		{"contains", values{values{true}, "10.0.0.1"}, nil, "argument 1"},
		{"addr", values{"localhost"}, values{"127.0.0.1"}, ""},
		{"addr", values{"localhost:80"}, values{"127.0.0.1"}, ""},
		{"addr", values{"192.0.2.7"}, values{"192.0.2.7"}, ""},
		{"addr", values{"::1"}, values{"::1"}, ""},
		{"addr", values{}, nil, "argument 1"},
	})
}

func TestNetWithoutAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := function(t, "net", "addr")(ctx, values{"nowhere.invalid"})
	if err != nil || len(got) != 2 || got[0] != nil {
		t.Errorf("got %v, %v; want nil and why", got, err)
	}
}

func TestHardwareAddress(t *testing.T) {
	got, err := function(t, "net", "getmac")(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got[0] == nil {
		if len(got) != 2 {
			t.Errorf("got %v, want nil and why", got)
		}
		return
	}
	if _, err := net.ParseMAC(got[0].(string)); err != nil {
		t.Error(err)
	}
}
