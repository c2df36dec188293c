package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// errDeclined ends a command that the user did not want after all.
var errDeclined = errors.New("nothing was changed")

// confirm asks a person on a terminal whether to go on. Where nobody can be
// asked, the flag --yes has to say so.
func (c *console) confirm(question string) error {
	file, ok := c.in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return usage(question + " Nobody can be asked here: say --yes")
	}
	fmt.Fprint(c.err, question+" [y/N] ")
	answer, _ := bufio.NewReader(c.in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errDeclined
}
