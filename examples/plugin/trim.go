// Package main is a Go plugin for Perigee that trims events: it removes fields that
// nobody reads. Each function does so with another signature. They share no mutable
// state, so they are safe for concurrent use.
package main

import (
	"bytes"
	"encoding/json"
	"slices"
)

// unread are the fields that go.
var unread = []string{"key1", "key2", "key3", "key4", "key5"}

// Main trims one event.
func Main(row map[string]any) (any, error) {
	for _, key := range unread {
		delete(row, key)
	}
	return row, nil
}

// Data computes one value from a row: what is left of it, as JSON.
func Data(row map[string]any) (any, error) {
	for _, key := range unread {
		delete(row, key)
	}
	return json.Marshal(row)
}

// Batch trims a batch of events, in place and without decoding them: what stays
// is spelled as it was.
func Batch(docs [][]byte, emit func(event int, doc []byte), _ func(event int, err error)) {
	for i, doc := range docs {
		emit(i, trim(doc))
	}
}

// trim moves the members of an object that stay together. It need not look for
// faults: the documents that a plugin gets are good.
func trim(doc []byte) []byte {
	at := bytes.IndexByte(doc, '{') + 1
	out := append(doc[:0], '{')
	for at < len(doc) {
		end := memberEnd(doc, at)
		if member := doc[at:end]; !isUnread(member) {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, member...)
		}
		at = end + 1
	}
	return append(out, '}')
}

// memberEnd returns where the member that starts at i ends: at a comma, or at the
// object's closing bracket.
func memberEnd(doc []byte, i int) int {
	for depth := 0; i < len(doc); i++ {
		switch doc[i] {
		case '"':
			for i++; doc[i] != '"'; i++ {
				if doc[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case ']':
			depth--
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

// isUnread looks at the key of a member. A key with escapes is not recognized.
func isUnread(member []byte) bool {
	member = bytes.TrimLeft(member, " \t\r\n")
	if len(member) == 0 {
		return true // of an empty object
	}
	key := member[1:]
	key = key[:bytes.IndexByte(key, '"')]
	return slices.Contains(unread, string(key))
}

func main() {}
