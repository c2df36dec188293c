// Package ndjson writes documents one per line, for the sinks that do.
package ndjson

import "bytes"

// AppendLine appends doc as one line. In JSON a line break is never part of a string,
// so that a space means the same.
func AppendLine(buf, doc []byte) []byte {
	start := len(buf)
	buf = append(buf, doc...)
	if bytes.IndexByte(doc, '\n') >= 0 || bytes.IndexByte(doc, '\r') >= 0 {
		for i := start; i < len(buf); i++ {
			if buf[i] == '\n' || buf[i] == '\r' {
				buf[i] = ' '
			}
		}
	}
	return append(buf, '\n')
}
