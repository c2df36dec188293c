package pool

import (
	"fmt"
	"runtime"
	"time"
)

// Settings say how many VMs there are. The zero value is the adaptive pool. One
// set of numbers expresses every other kind:
//
//	Settings{}                                   adaptive
//	Settings{Core: n, Max: n}                    a fixed number, callers wait
//	Settings{Core: n, Max: m, Eager: true}       a core, more up to a bound, then callers wait
//	Settings{Core: n, Max: -1, Eager: true}      a core, more without a bound
//	Settings{Core: -1, Max: -1, Eager: true}     no core and no bound
//	Settings{Core: -1, Max: -1, Eager: true, Idle: -1}  a VM for each call
type Settings struct {
	// Core is how many VMs of a script are kept, once made; 0 is one for each core
	// of the machine, negative is none.
	Core int
	// Max is how many VMs a script can have; 0 is eight for each core, negative is no
	// bound. When Core is larger, it counts.
	Max int
	// Eager makes a VM beyond the core as soon as none is free. Without it one is
	// made only while callers wait and VMs in use wait for something themselves, so
	// that a core of the machine has nothing to compute.
	Eager bool
	// Idle is after which rest a VM beyond the core is released; 0 is ten seconds,
	// negative is at once.
	Idle time.Duration
	// Memory bounds the bytes of all VMs of the pool; 0 is 512 MiB, negative is no
	// bound. A script can always have one VM.
	Memory int
}

const unbounded = int(^uint(0) >> 1)

// withDefaults replaces what stands for something else.
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

// String names the kind of pool, as in "fixed 16".
func (s Settings) String() string {
	switch {
	case s.Core < 0 && s.Max < 0 && s.Idle < 0:
		return "none"
	case s.Core < 0 && s.Max < 0:
		return "unbounded"
	case s.Max < 0:
		return fmt.Sprintf("core %d, unlimited", s.withDefaults().Core)
	case s.Core > 0 && s.Max <= s.Core && s.Max != 0:
		return fmt.Sprintf("fixed %d", s.Core)
	case s.Eager:
		full := s.withDefaults()
		return fmt.Sprintf("core %d, up to %d", full.Core, full.Max)
	case s.Core == 0 && s.Max == 0:
		return "adaptive"
	}
	full := s.withDefaults()
	return fmt.Sprintf("adaptive %d to %d", full.Core, full.Max)
}
