package stdlib

import "testing"

func TestHash(t *testing.T) {
	const fox = "The quick brown fox jumps over the lazy dog"
	check(t, "hash", []call{
		{"md5", values{""}, values{"d41d8cd98f00b204e9800998ecf8427e"}, ""},
		{"md5", values{fox}, values{"9e107d9d372bb6826bd81d3542a419d6"}, ""},
		{"sha1", values{fox}, values{"2fd4e1c67a2d28fced849ee1bb76e7391b93eb12"}, ""},
		{"sha256", values{"abc"}, values{"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}, ""},
		{"sha256", values{"a\x00\xff"}, values{"2d28501a66adef190c7f5b220994e76d5cc30f1eb165a8ca6cab56dfd57092fe"}, ""},
		{"sha256", values{12.0}, values{"6b51d431df5d7f141cbececcf79edf3dd861c3b4069f0b11661a3eefacbba918"}, ""},
		{"sha512", values{"abc"}, values{"ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"}, ""},
		{"hmac", values{"sha256", "key", fox}, values{"f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8"}, ""},
		{"hmac", values{"sha1", "key", fox}, values{"de7c9b85b8b78aa6bc8a7a36f70a90701c9db4d9"}, ""},
		{"hmac", values{"md5", "key", fox}, values{"80070713463e7749b90c2dc24911e275"}, ""},
		{"hmac", values{"sha3", "key", fox}, nil, "unknown digest"},
		{"hmac", values{"md5", "key"}, nil, "argument 3"},
		{"crc32", values{"123456789"}, values{float64(0xcbf43926)}, ""},
		{"fnv1a", values{""}, values{float64(0x811c9dc5)}, ""},
		{"fnv1a", values{"foobar"}, values{float64(0xbf9cf968)}, ""},
		{"murmur3", values{""}, values{0.0}, ""},
		{"murmur3", values{"", 1.0}, values{float64(0x514e28b7)}, ""},
		{"murmur3", values{"", 4294967295.0}, values{float64(0x81f16f39)}, ""},
		{"murmur3", values{"\xff\xff\xff\xff"}, values{float64(0x76293b50)}, ""},
		{"murmur3", values{"\x21\x43\x65\x87"}, values{float64(0xf55b516b)}, ""},
		{"murmur3", values{"\x21\x43\x65\x87", float64(0x5082edee)}, values{float64(0x2362f9de)}, ""},
		{"murmur3", values{"\x21\x43\x65"}, values{float64(0x7e4a8634)}, ""},
		{"murmur3", values{"\x21\x43"}, values{float64(0xa0f7b07a)}, ""},
		{"murmur3", values{"\x21"}, values{float64(0x72661cf4)}, ""},
		{"murmur3", values{"aaaa", float64(0x9747b28c)}, values{float64(0x5a97808a)}, ""},
		{"murmur3", values{fox, float64(0x9747b28c)}, values{float64(0x2fa826cd)}, ""},
		{"murmur3", values{"a", -1.0}, nil, "seed"},
		{"murmur3", values{"a", 0.5}, nil, "seed"},
		{"murmur3", values{"a", 4294967296.0}, nil, "seed"},
		{"xxhash", values{""}, values{"ef46db3751d8e999"}, ""},
		{"xxhash", values{"a"}, values{"d24ec4f1a98c6e5b"}, ""},
		{"xxhash", values{"abc"}, values{"44bc2cf5ad770999"}, ""},
		{"xxhash", values{fox}, values{"0b242d361fda71bc"}, ""},
		{"xxhash", values{}, nil, "argument 1 must be a string, not nil"},
		{"md5", values{true}, nil, "not a boolean"},
		{"md5", values{map[string]any{}}, nil, "not a table"},
	})
}
