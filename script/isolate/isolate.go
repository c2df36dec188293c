// Package isolate runs scripts of any language in child processes ("script: {isolate:
// process}"), for code whose author is not trusted.
//
// A child is the running program, started again as a script worker. It loads the code
// with the ordinary language, gives up what it does not need (network, files, other
// programs, memory beyond a limit), and takes batches through shared memory. What it
// returns is copied and then checked: a child that is taken over by its script can
// return any documents, and nothing else.
//
// A child that crashes, hangs or is killed costs the event that did it. The events of
// its batch run again in new children, in halves, until an event is alone; if that event
// ends two new children, it becomes a dead letter with stage "script". No event is lost
// or counted twice, because a result is handed on only when its run has ended. What a
// script remembers between events is lost with its child.
//
// The program calls Init at the start of main. A Launcher is safe for concurrent use, as
// are the scripts that it loads.
package isolate

import "github.com/perigeedb/perigee/script"

// Init makes a process that was started as a script worker serve its parent; it does not
// return then. In every other process it returns a Launcher of such workers.
//
// Call it first in main: what a program does before, its script workers do too.
// languages are those that workers can load.
func Init(languages ...script.Language) *Launcher {
	if isWorker() {
		serve(languages)
	}
	return &Launcher{languages: languages}
}

// Language returns a language whose scripts run in child processes. lang must be one
// of the languages of Init.
func (l *Launcher) Language(lang script.Language) script.Language {
	isolated := lang
	isolated.Load = l.loader(lang.Name)
	return isolated
}
