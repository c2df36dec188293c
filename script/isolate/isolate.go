// Package isolate runs scripts of any language in child processes ("script: {isolate:
// process}"), for code whose author is not trusted.
//
// A child is the running program, started again as a script worker. It gives up everything that it
// does not need (network, files, other programs, memory beyond a limit), loads the code with the
// ordinary language, and takes batches through shared memory. The parent copies its results and
// then checks the copy. A script that takes control of its child can return arbitrary documents,
// but can do nothing else.
//
// If a child crashes, hangs or is killed, the events of its batch run again in new children, in
// halves, until an event runs alone. If that event ends two new children, it becomes a dead letter
// with stage "script". No event is lost or counted twice, because the parent uses a result only
// when its run has ended. State that a script keeps between events is lost with its child.
//
// The program calls Init at the start of main. A Launcher, and the scripts that it loads, are safe
// for concurrent use.
package isolate

import "github.com/perigeedb/perigee/script"

// Init serves the parent, and does not return, in a process that was started as a script worker. In
// every other process it returns a Launcher of such workers.
//
// Call it first in main, because script workers also run everything that main does before.
// languages are the languages that workers can load.
func Init(languages ...script.Language) *Launcher {
	if isWorker() {
		serve(languages)
	}
	return &Launcher{languages: languages}
}

// Language returns a language whose scripts run in child processes. lang must be one of the
// languages passed to Init.
func (l *Launcher) Language(lang script.Language) script.Language {
	isolated := lang
	isolated.Load = l.loader(lang.Name)
	return isolated
}
