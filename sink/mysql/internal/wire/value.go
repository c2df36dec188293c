package wire

import (
	"encoding/binary"
	"time"
)

// AppendLength appends the length of a text.
func AppendLength(b []byte, n int) []byte {
	switch {
	case n < 251:
		return append(b, byte(n))
	case n < 1<<16:
		return append(b, 252, byte(n), byte(n>>8))
	case n < 1<<24:
		return append(b, 253, byte(n), byte(n>>8), byte(n>>16))
	}
	return binary.LittleEndian.AppendUint64(append(b, 254), uint64(n))
}

// A Calendar writes times. It caches the last day, because most times fall on the
// same day as the one before. Its zero value is ready to use.
type Calendar struct {
	day  int64   // since 1970
	date [4]byte // of day, as the protocol writes it; zero: no day is cached
}

const (
	perSecond = 1_000_000
	perDay    = 24 * 60 * 60 * perSecond
)

// AppendDatetime appends microseconds since 1970, of a year from 1 to 9999.
func (c *Calendar) AppendDatetime(b []byte, micros int64) []byte {
	day, rest := micros/perDay, micros%perDay
	if rest < 0 {
		day, rest = day-1, rest+perDay
	}
	if day != c.day || c.date == [4]byte{} {
		year, month, date := time.UnixMicro(micros).UTC().Date()
		c.day, c.date = day, [4]byte{byte(year), byte(year >> 8), byte(month), byte(date)}
	}
	second, fraction := uint32(rest/perSecond), uint32(rest%perSecond)
	b = append(b, 11, c.date[0], c.date[1], c.date[2], c.date[3], byte(second/3600), byte(second/60%60), byte(second%60))
	return binary.LittleEndian.AppendUint32(b, fraction)
}
