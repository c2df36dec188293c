package script

// A Handler computes one value from one row: the contract by which embedders
// of TalariaDB know user code. It is safe for concurrent use once loaded.
//
// A pipeline does not use it: a Script takes a whole batch in one crossing and
// leaves numbers exact.
type Handler interface {
	// Load makes a handler from code, from a path or from a URI.
	Load(uriOrCode string) (Handler, error)

	// String names the language: "lua" or "plugin".
	String() string

	// Value runs the code on a row. The row stays the caller's and is not changed.
	Value(row map[string]any) (any, error)
}
