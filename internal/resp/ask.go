package resp

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Denied returns why the user who is logged in may not run one of the commands;
// empty when all are allowed, or when the server cannot be asked: before Redis 7,
// or because the user may not.
func (c *Conn) Denied(ctx context.Context, commands ...[]string) (string, error) {
	who, err := c.Do(ctx, "ACL", "WHOAMI")
	if err != nil {
		return "", unlessRefused(err)
	}
	for _, command := range commands {
		v, err := c.Do(ctx, append([]string{"ACL", "DRYRUN", fmt.Sprint(who)}, command...)...)
		if err != nil {
			return "", unlessRefused(err)
		}
		if v != "OK" {
			return fmt.Sprint(v), nil
		}
	}
	return "", nil
}

func unlessRefused(err error) error {
	if errors.As(err, new(Refused)) {
		return nil
	}
	return err
}

// Info returns a section of what the server says about itself.
func (c *Conn) Info(ctx context.Context, section string) (map[string]string, error) {
	v, err := c.Do(ctx, "INFO", section)
	if err != nil {
		return nil, err
	}
	info := make(map[string]string)
	for line := range strings.Lines(fmt.Sprint(v)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}

// Version returns the first two numbers of the server's version, as 7.0 is 700;
// 0 when it does not say.
func (c *Conn) Version(ctx context.Context) (int, error) {
	info, err := c.Info(ctx, "server")
	if err != nil {
		return 0, unlessRefused(err)
	}
	parts := strings.Split(info["redis_version"], ".")
	if len(parts) < 2 {
		return 0, nil
	}
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[1])
	return 100*major + minor, nil
}
