//go:build !linux

package main

func favourThroughput() {}
