package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// errDeclined ends a command that the user did not confirm.
var errDeclined = errors.New("nothing was changed")

// asks reports whether a person can answer questions.
func (c *console) asks() bool {
	file, ok := c.in.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// confirm asks for confirmation on a terminal. Without a terminal it returns an error that
// asks for --yes.
func (c *console) confirm(question string) error {
	if !c.asks() {
		return usageError(question + " Standard input is not a terminal: confirm with --yes")
	}
	fmt.Fprint(c.err, question+" [y/N] ")
	answer, _ := bufio.NewReader(c.in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errDeclined
}
