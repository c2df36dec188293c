package pipeline

import "github.com/perigeedb/perigee/pipeline/state"

// A Point is a step that batches pass. Tests stop the process at points and check
// that nothing is lost or duplicated.
type Point string

const (
	AfterRead        Point = "after-read"         // a batch was read; nothing was done with it
	AfterScript      Point = "after-script"       // the script ran; nothing is durable
	AfterDeadLetters Point = "after-dead-letters" // dead letters are durable
	AfterOutbox      Point = "after-outbox"       // outputs are durable in the outbox; only with several sinks
	BeforeWrite      Point = "before-write"       // before each write to a sink
	AfterCommit      Point = "after-commit"       // after each write to a sink
	AfterNote        Point = "after-note"         // the home has rows, range and note, and the copy the note; only with a state
	BeforeAck        Point = "before-ack"         // every sink has the batch
	AfterAck         Point = "after-ack"          // the source knows
	BeforeReplay     Point = "before-replay"      // an entry of the outbox was found after a crash
)

// Points returns the points of a pipeline without a state.
func Points() []Point {
	return []Point{
		AfterRead, AfterScript, AfterDeadLetters, AfterOutbox, BeforeWrite, AfterCommit, BeforeAck, AfterAck, BeforeReplay,
	}
}

// StatePoints returns the points of a pipeline with a state, which are also the steps of its units.
func StatePoints() []Point {
	points := []Point{AfterRead, AfterScript, AfterDeadLetters, BeforeWrite, AfterCommit, AfterNote, BeforeAck, AfterAck, BeforeReplay}
	for _, step := range state.Steps() {
		points = append(points, Point(step))
	}
	return points
}
