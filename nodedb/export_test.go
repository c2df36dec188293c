package nodedb

import "time"

// SliceNodes returns the options with another number of changes in one transaction of LMDB.
func (o UnitOptions) SliceNodes(n int) UnitOptions {
	o.sliceNodes = n
	return o
}

// SetViewTimeout changes the longest time of a view until restore is called.
func SetViewTimeout(d time.Duration) (restore func()) {
	before := viewTimeout
	viewTimeout = d
	return func() { viewTimeout = before }
}
