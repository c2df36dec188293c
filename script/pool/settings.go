package pool

import (
	"fmt"
	"runtime"
	"time"
)

// Settings set the number of VMs. The zero value is the adaptive pool. The strategies
// of thread pools are:
//
//	Settings{}                                          adaptive
//	Settings{Core: n, Max: n}                           fixed: callers wait for one of n VMs
//	Settings{Core: n, Max: m, Eager: true}              scaling: n VMs are kept, up to m are made
//	Settings{Core: n, Max: -1, Eager: true}             scaling without a bound
//	Settings{Core: -1, Max: -1, Eager: true}            cached: made on demand, closed when idle
//	Settings{Core: -1, Max: -1, Eager: true, Idle: -1}  per call: a new VM for each call
type Settings struct {
	// Core is the number of VMs of a script that are kept once they are open. 0 means
	// one per CPU core, a negative number none.
	Core int
	// Max is the maximum number of VMs of a script. 0 means eight per CPU core, a
	// negative number no bound. A larger Core takes precedence.
	Max int
	// Eager opens a VM beyond the core as soon as none is free. Without it, one is
	// opened only while callers wait and the VMs in use wait themselves, so that a CPU
	// core is idle.
	Eager bool
	// Idle is how long a VM beyond the core may be unused before it is closed. 0 means
	// ten seconds, a negative duration closes it on release.
	Idle time.Duration
	// Memory bounds the bytes of all VMs of the pool. 0 means 512 MiB, a negative number
	// no bound. A script can always have one VM.
	Memory int
}

const unbounded = int(^uint(0) >> 1)

// withDefaults replaces zero and negative fields by what they mean.
func (s Settings) withDefaults() Settings {
	cores := runtime.GOMAXPROCS(0)
	if s.Core == 0 {
		s.Core = cores
	}
	s.Core = max(s.Core, 0)
	if s.Max == 0 {
		s.Max = 8 * cores
	}
	if s.Max < 0 {
		s.Max = unbounded
	}
	s.Max = max(s.Max, s.Core, 1)
	if s.Idle == 0 {
		s.Idle = 10 * time.Second
	}
	if s.Memory == 0 {
		s.Memory = 512 << 20
	}
	if s.Memory < 0 {
		s.Memory = unbounded
	}
	return s
}

// String names the strategy, as in "fixed 16".
func (s Settings) String() string {
	full := s.withDefaults()
	switch {
	case s.Core < 0 && s.Max < 0 && s.Idle < 0:
		return "per call"
	case s.Core < 0 && s.Max < 0:
		return "cached"
	case s.Max < 0:
		return fmt.Sprintf("scaling from %d", full.Core)
	case s.Core > 0 && s.Max <= s.Core && s.Max != 0:
		return fmt.Sprintf("fixed %d", s.Core)
	case s.Eager:
		return fmt.Sprintf("scaling %d to %d", full.Core, full.Max)
	case s.Core == 0 && s.Max == 0:
		return "adaptive"
	}
	return fmt.Sprintf("adaptive %d to %d", full.Core, full.Max)
}
