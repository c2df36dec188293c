//go:build !cgo

package pure_test

// addNative adds the reader in C, which is not there.
func addNative(map[string]reader) {}
