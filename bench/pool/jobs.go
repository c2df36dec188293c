package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// script is the report's: a function of Lua that calls one of Go.
const (
	functionName = "helloLua"
	scriptText   = `function helloLua() goSayHello() end`
)

// A body is what happens in and around a call.
type body struct {
	name  string
	hello func()        // goSayHello
	waits bool          // it may wait
	limit time.Duration // of the context that each call gets, if any
	after func()        // every call
}

func bodies() []body {
	nothing := func() {}
	return []body{
		{name: "silent", hello: nothing, after: nothing},
		{
			name: "printing", hello: func() { fmt.Println("hello from Go") }, waits: true,
			limit: 30 * time.Second, after: func() { fmt.Println("called") },
		},
		{name: "waiting 1 ms", hello: func() { time.Sleep(time.Millisecond) }, waits: true, after: nothing},
	}
}

func bodyOf(name string) body {
	all := bodies()
	return all[slices.IndexFunc(all, func(b body) bool { return b.name == name })]
}

// around makes a call with what belongs around it.
func (b body) around(call func(ctx context.Context) error) func() error {
	return func() error {
		ctx := context.Background()
		if b.limit > 0 {
			limited, cancel := context.WithTimeout(ctx, b.limit)
			defer cancel()
			ctx = limited
		}
		err := call(ctx)
		b.after()
		return err
	}
}
