//go:build !cgo

package pure_test

// addNative does nothing: this build has no reader in C.
func addNative(map[string]reader) {}
