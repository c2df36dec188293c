//go:build !cgo || !lmdb

package nodedb

import "unsafe"

// Version returns the names and versions of the database's libraries, or "" in a build without the
// database.
func Version() string { return "" }

// Format returns "": this build has no core.
func Format() string { return "" }

// Functions returns nil: this build has no core.
func Functions() unsafe.Pointer { return nil }

func openCore(string, Options) (nativeStore, error) { return nil, &Error{Err: ErrUnavailable} }

func openUnitCore(string, UnitOptions, int) (nativeUnit, error) {
	return nil, &Error{Err: ErrUnavailable}
}

func openMemory() (nativeSession, error) { return nil, &Error{Err: ErrUnavailable} }

func compactCore(string) error { return &Error{Err: ErrUnavailable} }

func keyOfName(string) (string, error) { return "", &Error{Op: "make path", Err: ErrUnavailable} }

func appendKey(key []byte, _ Value) ([]byte, error) { return key, nil }

func keyText(string) string { return "" }

func scalarText(Value) string { return "" }

func parseKey(string) (string, int, error) {
	return "", 0, &Error{Op: "read path", Err: ErrUnavailable}
}

func decodeKey(string, int) (Value, int) { return Value{}, 0 }

func parentLen(string) int { return 0 }

func nativeAddress(nativeStore) unsafe.Pointer { return nil }

func sessionAddress(nativeSession) unsafe.Pointer { return nil }
