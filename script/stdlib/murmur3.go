package stdlib

import (
	"encoding/binary"
	"math/bits"
)

// murmur3 is MurmurHash3 for x86 with 32 bits.
func murmur3(data []byte, seed uint32) uint32 {
	h, length := seed, uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		h ^= murmurMix(binary.LittleEndian.Uint32(data))
		h = bits.RotateLeft32(h, 13)*5 + 0xe6546b64
	}
	var rest uint32
	for i := len(data) - 1; i >= 0; i-- {
		rest = rest<<8 | uint32(data[i])
	}
	h ^= murmurMix(rest) // 0 stays 0
	h ^= length
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

func murmurMix(k uint32) uint32 { return bits.RotateLeft32(k*0xcc9e2d51, 15) * 0x1b873593 }
