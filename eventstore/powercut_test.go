//go:build linux && cgo

package eventstore

import (
	"fmt"
	"testing"

	"github.com/perigeedb/perigee/internal/powercut"
)

// TestPowerCut cuts the power while a process and its workers append, seal, merge, delete
// and remove.
func TestPowerCut(t *testing.T) {
	cuts := countFrom(t, "PERIGEE_STORE_POWERCUTS", 30)
	const cutsOfRecording = 100
	for done := 0; done < cuts; done += cutsOfRecording {
		t.Run(fmt.Sprintf("recording=%d", done/cutsOfRecording), func(t *testing.T) {
			folder := t.TempDir()
			recording := powercut.Record(t, folder, powercut.SelfRun("", powercutFolder+"="+folder))
			recording.EachCut(t, min(cutsOfRecording, cuts-done), func(t *testing.T, folder string, said []string) {
				s := openWork(t, workFolder(folder))
				figures.add(checkWork(t, s, said))
				figures.powercuts++
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
