package wire

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Abilities that server and client tell each other of, as numbers of bits. The
// last is among those of MariaDB, which stand elsewhere.
const (
	isMySQL     = 1 << 0 // there are no abilities of MariaDB
	compresses  = 1 << 5
	encrypts    = 1 << 11
	noEnds      = 1 << 24 // lists of columns have no EOF packet behind them
	takesArrays = 1 << 2
)

const header = 4 // bytes before each packet: three of its length, one of its number

// offersArrays reads the greeting of a server. Whatever is no such greeting
// offers nothing.
func offersArrays(greeting []byte) bool {
	if len(greeting) < header {
		return false
	}
	rest := greeting[header:]
	if n := size(greeting); n < len(rest) {
		rest = rest[:n]
	}
	// The version of the protocol, that of the server and a zero; then thread (4),
	// scramble (8), a zero, abilities (2), character set, status (2), abilities
	// (2), length of the scramble, reserved (6), abilities of MariaDB (4).
	const abilities, more, ours = 13, 18, 27
	end := bytes.IndexByte(rest, 0)
	if len(rest) == 0 || rest[0] != 10 || end < 0 || len(rest) < end+1+ours+4 {
		return false
	}
	rest = rest[end+1:]
	common := uint32(binary.LittleEndian.Uint16(rest[abilities:])) | uint32(binary.LittleEndian.Uint16(rest[more:]))<<16
	return common&isMySQL == 0 && binary.LittleEndian.Uint32(rest[ours:])&takesArrays != 0
}

// Places in what the client answers.
const (
	answerAbilities = header
	answerOurs      = header + 4 + 4 + 1 + 19
	leastAnswer     = answerOurs + 4
)

// acceptArrays adds to the answer to a greeting that we may send arrays, unless
// what follows will not be in the open.
func acceptArrays(answer []byte) ([]byte, bool) {
	if len(answer) < leastAnswer || binary.LittleEndian.Uint32(answer[answerAbilities:])&(isMySQL|compresses|encrypts) != 0 {
		return answer, false
	}
	answer = slices.Clone(answer)
	answer[answerOurs] |= takesArrays
	return answer, true
}

// hidesEnds tells whether the client has asked for lists without EOF packets.
func hidesEnds(answer []byte) bool {
	return len(answer) >= leastAnswer && binary.LittleEndian.Uint32(answer[answerAbilities:])&noEnds != 0
}

// size is the length of the packet that a header announces.
func size(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }
