//go:build cgo && luajit

package luajit

import (
	"testing"
	"time"
)

// TestCompiledPairsEnd runs loops over tables until they are compiled, including loops that other
// traces lead to.
func TestCompiledPairsEnd(t *testing.T) {
	w := NewWatchdog()
	defer w.Close()
	vm, err := Open(w, Options{EventTime: time.Minute, BatchTime: time.Minute, Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	err = vm.Load("pairs.lua", []byte(`
local function sum(t)
  local n = 0
  for _, v in pairs(t) do n = n + v end
  return n
end
function main()
  for i = 1, 1000 do
    assert(sum({a = 1, b = 2}) == 3)
    assert(sum({1, 2, 3, x = i}) == i + 6)
    assert(sum({}) == 0)
    for k, v in pairs({[i] = i}) do assert(k == i and v == i) end
  end
end`))
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := vm.Call("main"); err != nil {
		t.Fatalf("after %v: %v", time.Since(begun), err)
	}
}
