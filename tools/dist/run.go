package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// run runs a command in a folder with additional variables of the environment.
func run(ctx context.Context, folder string, env []string, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Env = folder, append(os.Environ(), env...)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// output returns what a command prints, without the last newline.
func output(ctx context.Context, folder, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = folder
	var faults bytes.Buffer
	command.Stderr = &faults
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, faults.String())
	}
	return strings.TrimRight(string(out), "\n"), nil
}
