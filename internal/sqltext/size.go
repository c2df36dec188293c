package sqltext

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseSize reads a number of bytes with an optional unit: KiB, MiB or GiB.
func ParseSize(text string) (int64, error) {
	number, factor := text, int64(1)
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if before, ok := strings.CutSuffix(text, unit); ok {
			number, factor = strings.TrimSpace(before), 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > (1<<62)/factor {
		return 0, fmt.Errorf("%q is not a size such as 64MiB", text)
	}
	return n * factor, nil
}
