package dataset

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"
)

// Both renderings have the fields that move at fixed places: a document at its beginning, a
// line at its end.
const (
	idDigits   = 12
	hashDigits = 16
	timeLength = len("2026-01-01T00:00:00.000000Z")
	microsecs  = len("1767225600000000")

	documentID   = len(`{"id":`)
	documentTime = documentID + idDigits + len(`,"time":"`)
	documentHash = documentTime + timeLength + len(`","hash":"`)

	// From the end of a line.
	lineTime = microsecs + len("\n")
	lineHash = lineTime + len(`" `) + hashDigits
	lineID   = lineHash + len(`i,hash="`) + idDigits
)

func appendDocument(dst []byte, r row) []byte {
	dst = append(dst, `{"id":`...)
	dst = append(dst, strings.Repeat("0", idDigits)...)
	dst = append(dst, `,"time":"2026-01-01T00:00:00.000000Z","hash":"`...)
	dst = append(dst, strings.Repeat("0", hashDigits)...)
	dst = append(append(dst, `","event":"`...), r.event...)
	dst = strconv.AppendInt(append(dst, `","user_id":`...), r.user, 10)
	dst = append(append(dst, `,"country":"`...), r.country...)
	dst = append(append(dst, `","url":"`...), r.url...)
	dst = append(append(dst, `","value":`...), r.value...)
	dst = strconv.AppendInt(append(dst, `,"status":`...), r.status, 10)
	dst = append(append(dst, `,"meta":`...), r.meta...)
	return append(dst, '}')
}

// appendLine appends the row as InfluxDB's line protocol has it, with symbols for what
// repeats most.
func appendLine(dst []byte, r row) []byte {
	dst = append(append(dst, Table+`,event=`...), r.event...)
	dst = append(append(dst, `,country=`...), r.country...)
	dst = strconv.AppendInt(append(dst, ` user_id=`...), r.user, 10)
	dst = append(append(dst, `i,url="`...), r.url...)
	dst = append(append(dst, `",value=`...), r.value...)
	dst = strconv.AppendInt(append(dst, `,status=`...), r.status, 10)
	dst = append(append(dst, `i,meta="`...), strings.ReplaceAll(r.meta, `"`, `\"`)...)
	dst = append(dst, `",id=`...)
	dst = append(dst, strings.Repeat("0", idDigits)...)
	dst = append(dst, `i,hash="`...)
	dst = append(dst, strings.Repeat("0", hashDigits)...)
	dst = append(dst, `" `...)
	dst = append(dst, strings.Repeat("0", microsecs)...)
	return append(dst, '\n')
}

// pairs are the decimal digits of 0 to 99.
var pairs = func() (pairs [200]byte) {
	for i := range 100 {
		pairs[2*i], pairs[2*i+1] = '0'+byte(i/10), '0'+byte(i%10)
	}
	return pairs
}()

// putDigits fills dst, whose length is even, with the decimal digits of n.
func putDigits(dst []byte, n uint64) {
	for i := len(dst) - 2; i >= 0; i -= 2 {
		pair := n % 100 * 2
		n /= 100
		dst[i], dst[i+1] = pairs[pair], pairs[pair+1]
	}
}

// A timeWriter writes times as RFC 3339. It keeps the second that it wrote last, because
// consecutive times mostly share it.
type timeWriter struct {
	second int64
	text   []byte
}

const second = 1_000_000 // microseconds

func (w *timeWriter) put(dst []byte, us int64) {
	if at := us / second; at != w.second || w.text == nil {
		w.second, w.text = at, time.Unix(at, 0).UTC().AppendFormat(w.text[:0], "2006-01-02T15:04:05.000000Z")
	}
	copy(dst, w.text)
	putDigits(dst[len("2026-01-01T00:00:00."):timeLength-1], uint64(us%second))
}

const hexDigits = "0123456789abcdef"

func appendHash(dst []byte, position uint64) []byte {
	var text [hashDigits]byte
	putHash(text[:], position)
	return append(dst, text[:]...)
}

func putHash(dst []byte, position uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], mix(position))
	for i, x := range b {
		dst[2*i], dst[2*i+1] = hexDigits[x>>4], hexDigits[x&15]
	}
}
