package resp

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// DeniedCommand returns why the user may not run one of the commands. It returns "" when
// all are allowed, and when the server does not say: before Redis 7, or because the user
// may not ask.
func (c *Conn) DeniedCommand(ctx context.Context, commands ...[]string) (string, error) {
	who, err := c.Do(ctx, "ACL", "WHOAMI")
	if err != nil {
		return "", ignoreReplyError(err)
	}
	for _, command := range commands {
		v, err := c.Do(ctx, append([]string{"ACL", "DRYRUN", fmt.Sprint(who)}, command...)...)
		if err != nil {
			return "", ignoreReplyError(err)
		}
		if v != "OK" {
			return fmt.Sprint(v), nil
		}
	}
	return "", nil
}

func ignoreReplyError(err error) error {
	if errors.As(err, new(ReplyError)) {
		return nil
	}
	return err
}

// Info returns a section of the server's INFO.
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

// Version returns the server's major and minor version as one number, 700 for 7.0, or 0
// when the user may not ask.
func (c *Conn) Version(ctx context.Context) (int, error) {
	info, err := c.Info(ctx, "server")
	if err != nil {
		return 0, ignoreReplyError(err)
	}
	parts := strings.Split(info["redis_version"], ".")
	if len(parts) < 2 {
		return 0, nil
	}
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[1])
	return 100*major + minor, nil
}
