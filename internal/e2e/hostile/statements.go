package main

import (
	"context"
	_ "embed"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// statementTime is how long a client waits for a statement. It cancels one that takes
// longer, which must end it in the engine.
const statementTime = 3 * time.Second

//go:embed statements.sql
var statements string

// repetition is «text*count» in a statement.
var repetition = regexp.MustCompile(`«([^»]*)\*(\d+)»`)

// statementCases parses the collection: a statement in each line that is neither empty
// nor a comment.
func statementCases() (all []attackCase) {
	for line := range strings.Lines(statements) {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "--") {
			continue
		}
		sql := repetition.ReplaceAllStringFunc(text, func(text string) string {
			parts := repetition.FindStringSubmatch(text)
			count, _ := strconv.Atoi(parts[2])
			return strings.Repeat(parts[1], count)
		})
		all = append(all, attackCase{name: "sql: " + text[:min(len(text), 100)], run: func(ctx context.Context, t *target) (string, error) {
			return runStatement(ctx, t, sql), nil
		}})
	}
	return all
}

// runStatement sends a statement and returns the answer, cut to one line.
func runStatement(ctx context.Context, t *target, sql string) string {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	client := t.socketClient()
	defer client.CloseIdleConnections()
	answer, err := query(ctx, client, sql)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "given up"
	case err != nil:
		answer = err.Error()
	}
	answer = strings.Join(strings.Fields(answer), " ")
	return answer[:min(len(answer), 150)]
}
