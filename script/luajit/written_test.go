//go:build cgo && luajit

package luajit_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
)

// TestWrittenDocuments writes to fields anywhere in documents of about as many values
// as the encoder remembers in one word. The first letter of a key says what becomes of
// its field: k stays, x is removed, w is written, r is removed and then written.
func TestWrittenDocuments(t *testing.T) {
	const text = `
local function change(object)
  object.xadded = 1
  for key, value in pairs(object) do
    if type(value) == "table" then change(value) end
    local what = key:sub(1, 1)
    if what == "x" or what == "r" then object[key] = nil end
    if what == "w" or what == "r" then object[key] = "new" end
  end
end
function main(event)
  change(event)
  return event
end`

	random := rand.New(rand.NewPCG(3, 4))
	in, want := &event.Batch{}, []string{}
	for range 1000 {
		left := 60 + random.IntN(10)
		doc, written := writtenObject(random, &left)
		for range 1 + random.IntN(7) { // of one form
			in.Append([]byte(doc))
			want = append(want, canonical(t, []byte(written)))
		}
	}
	in.Range.Count = uint64(len(want))
	for _, lang := range []script.Language{luajit.Language, luajit.Interpreted} {
		testAlike(t, lang, text, in, want)
	}
}

// writtenObject makes an object of at most as many values as are left, and says what
// the script makes of it.
func writtenObject(random *rand.Rand, left *int) (before, after string) {
	var fields, kept []string
	what := 'k'
	for *left > 0 && random.IntN(100) > 0 {
		if random.IntN(3) == 0 { // else as the one before
			what = rune("kxwr"[random.IntN(4)])
		}
		*left--
		key := fmt.Sprintf(`"%c%d":`, what, *left)
		value, changed := "1", "1"
		if random.IntN(6) == 0 {
			value, changed = writtenObject(random, left)
		}
		fields = append(fields, key+value)
		switch what {
		case 'k':
			kept = append(kept, key+changed)
		case 'w', 'r':
			kept = append(kept, key+`"new"`)
		}
	}
	return "{" + strings.Join(fields, ",") + "}", "{" + strings.Join(kept, ",") + "}"
}
