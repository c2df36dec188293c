package systemtable

import "testing"

func TestIsNamed(t *testing.T) {
	for sql, want := range map[string]bool{
		`FROM log`: true, `SELECT * FROM perigee."LOG"x`: true, `SELECT log(1)`: true, `FROM(log)`: true,
		`FROM catalog`: false, `FROM log_1`: false, `FROM logé`: false, ``: false,
	} {
		if got := IsNamed(sql, "log"); got != want {
			t.Errorf("%q names the table: %t", sql, got)
		}
	}
}
