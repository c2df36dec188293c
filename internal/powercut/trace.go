package powercut

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// tracedCalls are those that change files or names, those that say to which file a descriptor
// belongs and its offset there, and those that begin threads and processes.
const tracedCalls = "open,openat,creat,close,dup,dup2,dup3,fcntl,read,lseek," +
	"write,writev,pwrite64,pwritev,pwritev2,truncate,ftruncate,fallocate,mmap,copy_file_range,sendfile,splice," +
	"rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,mkdir,mkdirat,rmdir," +
	"fsync,fdatasync,sync,syncfs,sync_file_range," +
	"clone,clone3,fork,vfork"

// A call is one system call of a trace. Other threads may have called in between.
type call struct {
	begin, end int // lines of the trace
	thread     string
	process    string // the thread that it began with
	isFirst    bool   // it is the process that was recorded
	name       string
	args       []string
	result     int64
	failed     bool
	injected   bool // the kernel has not executed it
	cut        bool // the process ended before the call did; it may have happened, see disk.left
}

// parseTrace reads what strace -f -y -xx has written. It counts lines from first on.
func parseTrace(trace []byte, first int) (calls []call, end int, err error) {
	pending := map[string]call{} // by thread
	text := map[string]string{}  // of pending calls
	lines := strings.Split(string(bytes.TrimSuffix(trace, []byte("\n"))), "\n")
	end = first + len(lines)
	for i, line := range lines {
		n := first + i
		thread, what, _ := strings.Cut(line, " ")
		what = strings.TrimSpace(what)
		if what == "" || strings.HasPrefix(what, "+++") || strings.HasPrefix(what, "---") || strings.HasPrefix(what, "???") {
			continue
		}
		c := call{begin: n, end: n, thread: thread}
		if rest, resumed := strings.CutPrefix(what, "<... "); resumed {
			_, rest, _ = strings.Cut(rest, " resumed>")
			c, what = pending[thread], text[thread]+rest
			c.end = n
		}
		begun, unfinished := strings.CutSuffix(what, " <unfinished ...>")
		if !unfinished {
			begun, unfinished = strings.CutSuffix(what, " <detached ...>") // by the end of the process
		}
		if unfinished {
			pending[thread], text[thread] = c, begun
			continue
		}
		delete(pending, thread)
		if err := c.parse(what); err != nil {
			return nil, 0, fmt.Errorf("line %d of the trace: %w", i+1, err)
		}
		calls = append(calls, c)
	}
	for thread, c := range pending {
		c.end = end
		if err := c.parse(text[thread] + ") = ?"); err != nil {
			return nil, 0, err
		}
		calls = append(calls, c)
	}
	return calls, end + 1, nil
}

// findProcesses tells of each call which process made it. A process that another has begun
// has no descriptors of files: the library that begins it closes them.
func findProcesses(calls []call) {
	begun := slices.Clone(calls)
	slices.SortStableFunc(begun, func(a, b call) int { return a.begin - b.begin })
	process := map[string]string{}
	for _, c := range begun {
		if len(process) == 0 {
			process[c.thread] = c.thread
		}
		if (strings.HasPrefix(c.name, "clone") || strings.HasSuffix(c.name, "fork")) && c.result > 0 {
			child := strconv.FormatInt(c.result, 10)
			process[child] = child
			if strings.Contains(strings.Join(c.args, ","), "CLONE_THREAD") {
				process[child] = process[c.thread]
			}
		}
	}
	for i := range calls {
		calls[i].process = process[calls[i].thread]
		calls[i].isFirst = calls[i].process == begun[0].thread
	}
}

// parse parses NAME(ARGUMENTS) = RESULT.
func (c *call) parse(text string) error {
	open, result := strings.IndexByte(text, '('), strings.LastIndex(text, " = ")
	if open < 0 || result < 0 {
		return fmt.Errorf("no call: %.80s", text)
	}
	c.name = text[:open]
	c.args = splitArguments(strings.TrimSuffix(strings.TrimSpace(text[open+1:result]), ")"))
	answer := text[result+len(" = "):]
	c.injected = strings.Contains(answer, "(INJECTED)")
	number, _, _ := strings.Cut(answer, " ")
	number, _, _ = strings.Cut(number, "<")
	n, err := strconv.ParseInt(number, 0, 64)
	c.result, c.failed = n, err == nil && n < 0 || strings.Contains(answer, "ERESTART")
	c.cut = c.cut || err != nil && !c.failed
	return nil
}

// splitArguments splits at the commas that are in no brackets. Strings have none: all
// their characters are escaped.
func splitArguments(text string) (args []string) {
	depth, begin := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case ',':
			if depth == 0 {
				args = append(args, strings.TrimSpace(text[begin:i]))
				begin = i + 1
			}
		}
	}
	return append(args, strings.TrimSpace(text[begin:]))
}

func (c *call) arg(i int) string {
	if i < len(c.args) {
		return c.args[i]
	}
	return ""
}

func (c *call) number(i int) (int64, error) {
	n, err := strconv.ParseInt(c.arg(i), 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a number", c.name, c.arg(i))
	}
	return n, nil
}

// descriptor returns the descriptor of an argument such as 5</a/path>; its number is -1 if the
// argument is not a descriptor.
func (c *call) descriptor(i int) descriptor {
	text, _, _ := strings.Cut(c.arg(i), "<")
	n, err := strconv.Atoi(text)
	if err != nil {
		n = -1
	}
	return descriptor{c.process, n}
}

// path returns the path of argument i, which is relative to the folder of argument at, or
// absolute if at is negative.
func (c *call) path(at, i int) (string, error) {
	name, err := unescape(c.arg(i))
	if err != nil || filepath.IsAbs(string(name)) {
		return string(name), err
	}
	if at < 0 {
		return "", fmt.Errorf("%s: the path %q is relative", c.name, name)
	}
	folder, err := c.openedPath(at)
	return filepath.Join(folder, string(name)), err
}

// openedPath returns what the descriptor of an argument has open.
func (c *call) openedPath(i int) (string, error) {
	_, path, _ := strings.Cut(c.arg(i), "<")
	name, err := unescape(`"` + strings.TrimSuffix(path, ">") + `"`)
	return string(name), err
}

// written returns the bytes that a write wrote.
func (c *call) written() (data []byte, err error) {
	text := c.arg(1)
	if strings.Contains(c.name, "writev") {
		for {
			_, rest, found := strings.Cut(text, "iov_base=")
			if !found {
				break
			}
			end := strings.IndexByte(rest[1:], '"') + 2
			one, err := unescape(rest[:end])
			if err != nil {
				return nil, err
			}
			data, text = append(data, one...), rest[end:]
		}
	} else if data, err = unescape(text); err != nil {
		return nil, err
	}
	if c.result > int64(len(data)) {
		return nil, fmt.Errorf("%s: the trace has %d of the %d bytes", c.name, len(data), c.result)
	}
	if !c.cut {
		data = data[:c.result]
	}
	return data, nil
}

// unescape decodes "\x61\x62".
func unescape(text string) ([]byte, error) {
	digits, quoted := strings.CutPrefix(text, `"`)
	digits, closed := strings.CutSuffix(digits, `"`)
	data := make([]byte, len(digits)/4)
	_, err := hex.Decode(data, []byte(strings.ReplaceAll(digits, `\x`, "")))
	if !quoted || !closed || err != nil {
		return nil, fmt.Errorf("%.80s is not a whole string", text)
	}
	return data, nil
}
