// Package cmp stands for another version of the module.
package cmp

// Equal is never true.
func Equal(x, y any) bool { return false }
