package engine

import (
	"fmt"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/datafolder"
)

// checkData refuses a configuration that would begin a data folder beside itself while the
// working folder has the one that earlier versions used. Without the positions in that
// folder every event would be delivered again.
func checkData(c *config.Config) error {
	former := c.FormerData()
	if former == "" || datafolder.Used(c.Data) || !datafolder.Used(former) {
		return nil
	}
	return event.WithHint(
		fmt.Errorf("the data folder %s does not exist, but %s does, which earlier versions took for the default", c.Data, former),
		fmt.Sprintf("to continue from the positions there, use --data %s, or set data to it; to start without positions, use --data %s", former, c.Data))
}

// logData tells that the data folder is new, and which folder is not the data folder
// although it was the default of earlier versions.
func (e *Engine) logData(c *config.Config) {
	if !datafolder.Used(c.Data) {
		e.log.Info("creating the data folder", "data", c.Data)
	}
	if former := c.FormerData(); former != "" && datafolder.Used(former) {
		e.log.Warn("not using the data folder in the working folder", "data", c.Data, "unused", former)
	}
}
