package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// script is the script of the report: a Lua function that calls a Go function.
const (
	functionName = "helloLua"
	scriptText   = `function helloLua() goSayHello() end`
)

// A body describes what happens in and around a call.
type body struct {
	name  string
	hello func()        // the Go function goSayHello
	waits bool          // hello may wait
	limit time.Duration // timeout of each call's context, if any
	after func()        // runs after every call
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

// wrapCall returns a call with its context and what runs after it.
func (b body) wrapCall(call func(ctx context.Context) error) func() error {
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
