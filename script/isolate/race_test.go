//go:build linux && race

package isolate

const raceDetector = true
