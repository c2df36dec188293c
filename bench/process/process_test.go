package process

import (
	"os"
	"testing"
	"time"
)

func TestProcessesAreMeasured(t *testing.T) {
	before := TreeTime(os.Getpid())
	for end := time.Now().Add(10 * time.Second); TreeTime(os.Getpid()) == before; {
		if time.Now().After(end) {
			t.Fatal("ten seconds of work took no processor time")
		}
	}
	for _, figure := range []string{PeakResident, Resident, ResidentAnonymous} {
		if Memory(os.Getpid(), figure) < 1<<20 {
			t.Errorf("%s of this process is less than a megabyte", figure)
		}
	}
	if !Read(1 << 30).Ended {
		t.Error("a process that never was has not ended")
	}
}
