//go:build !linux

package main

// releaseProgram does nothing.
func releaseProgram() error { return nil }
