// Package main is a plugin that asks for another version of a module than the
// binary has.
package main

import "github.com/google/go-cmp/cmp"

// Main tells which module it got.
func Main(row map[string]any) (any, error) {
	if row["equal"] == cmp.Equal(1, 1) {
		return "the real one", nil
	}
	return "the other one", nil
}

func main() {}
