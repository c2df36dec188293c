//go:build linux

package child

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HideMemory keeps other processes of the same user from reading this process's memory, environment
// and descriptors, and disables core dumps. An unrestricted root can still read them.
func HideMemory() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide memory: %w", err)
	}
	return nil
}

// fileCapabilities are the capabilities that a child of root keeps, to open files as this process
// does.
var fileCapabilities = []int{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER}

// restrictThread restricts the processes that the calling thread starts: they lose privileges,
// access to the memory of processes that are not their children, and access to files other than the
// readable ones. It cannot be undone. See Command.Readable.
func restrictThread(readable []string) (missing []string, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set no_new_privs: %w", err)
	}
	keep := fileCapabilities
	if readable != nil {
		keep = nil
	}
	ruleset, missing, err := newRuleset(readable)
	if err != nil {
		return nil, err
	}
	if err := dropCapabilities(keep); err != nil {
		return nil, err
	}
	if ruleset == nil {
		return missing, nil
	}
	defer func() { _ = ruleset.Close() }()
	if _, _, fault := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset.Fd(), 0, 0); fault != 0 {
		return nil, os.NewSyscallError("landlock_restrict_self", fault)
	}
	return missing, nil
}

// dropCapabilities drops all capabilities of the thread but those in keep, including those that
// root's programs would regain.
func dropCapabilities(keep []int) error {
	for capability := range 64 {
		if slices.Contains(keep, capability) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0)
		if err == unix.EINVAL || err == unix.EPERM { // the last one that the kernel knows, or none to drop
			break
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	var kept [2]uint32
	for _, capability := range keep {
		kept[capability/32] |= 1 << (capability % 32)
	}
	for i := range have {
		have[i] = unix.CapUserData{Effective: have[i].Effective & kept[i], Permitted: have[i].Permitted & kept[i]}
	}
	if err := unix.Capset(&header, &have[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// Access rights of Landlock.
const (
	readFile   = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE
	readFolder = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
	network    = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	scopes     = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
)

// newRuleset returns a Landlock ruleset, or nil if the kernel has no Landlock. Whatever its rules,
// a process under it cannot read the memory of a process that is not.
func newRuleset(readable []string) (ruleset *os.File, missing []string, err error) {
	version, _, fault := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if fault != 0 {
		return nil, []string{"this kernel has no Landlock (" + fault.Error() + "): only the system call filter keeps the process from files"}, nil
	}
	handled := unix.LandlockRulesetAttr{}
	if readable != nil {
		handled.Handled_access_fs = fileAccesses(int(version))
	}
	if version >= 4 {
		handled.Handled_access_net = network
	}
	if version >= 7 { // in older versions, a thread with scopes cannot signal other threads of its process
		handled.Scoped = scopes
	}
	if handled == (unix.LandlockRulesetAttr{}) {
		return nil, nil, nil
	}
	fd, _, fault := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&handled)), unsafe.Sizeof(handled), 0)
	if fault != 0 {
		return nil, nil, os.NewSyscallError("landlock_create_ruleset", fault)
	}
	ruleset = os.NewFile(fd, "landlock")
	if readable == nil {
		return ruleset, nil, nil
	}
	for _, path := range slices.Concat(readable, programFiles()) {
		if err := allowReading(ruleset, path); err != nil {
			_ = ruleset.Close()
			return nil, nil, err
		}
	}
	return ruleset, nil, nil
}

// fileAccesses returns all access rights to files in a version of Landlock.
func fileAccesses(version int) uint64 {
	accesses := uint64(unix.LANDLOCK_ACCESS_FS_MAKE_SYM)<<1 - 1 // the rights of version 1
	for since, access := range map[int]uint64{
		2: unix.LANDLOCK_ACCESS_FS_REFER, 3: unix.LANDLOCK_ACCESS_FS_TRUNCATE, 5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV,
	} {
		if version >= since {
			accesses |= access
		}
	}
	return accesses
}

// allowReading allows reading a file, or a folder with everything below it, if it exists.
func allowReading(ruleset *os.File, path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // it does not exist, so there is nothing to allow
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("allow reading %s: %w", path, err)
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: readFile, Parent_fd: int32(fd)}
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		rule.Allowed_access = readFolder
	}
	_, _, fault := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset.Fd(), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if fault != 0 {
		return fmt.Errorf("allow reading %s: %w", path, os.NewSyscallError("landlock_add_rule", fault))
	}
	return nil
}

// programFiles returns the files read when this program starts: the program itself, the folders and
// the cache of the loader, libraries in other places, and the page size file that Go's runtime
// reads.
func programFiles() []string {
	files := []string{
		"/proc/self/exe", "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache",
		"/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
	}
	maps, _ := os.ReadFile("/proc/self/maps") // without it, only libraries in the loader's folders work
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		isCode := len(fields) == 6 && strings.Contains(fields[1], "x")
		if isCode && filepath.IsAbs(fields[5]) && !slices.Contains(files, fields[5]) {
			files = append(files, fields[5])
		}
	}
	return files
}

var errDescriptors = errors.New("cannot tell which descriptors belong to Go's runtime")

// KeepDescriptors closes all descriptors beyond last except those of Go's runtime, which refer to a
// common anonymous file. It returns the highest one left open. It does not read /proc.
func KeepDescriptors(last int) (highest int, err error) {
	const near = 256 // descriptors of the runtime are below it
	anonymous, err := anonymousFile()
	if err != nil {
		return 0, err
	}
	highest = last
	for fd := last + 1; fd < near; fd++ {
		var stat unix.Stat_t
		switch err := unix.Fstat(fd, &stat); {
		case err != nil:
		case stat.Dev == anonymous.Dev && stat.Ino == anonymous.Ino:
			highest = fd
		default:
			_ = unix.Close(fd)
		}
	}
	if err := unix.CloseRange(near, ^uint(0)>>33, 0); err != nil && err != unix.ENOSYS && err != unix.EPERM {
		return 0, fmt.Errorf("close descriptors: %w", err)
	}
	return highest, nil
}

// anonymousFile returns the status of the anonymous file to which all event queues refer.
func anonymousFile() (stat unix.Stat_t, err error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return stat, errors.Join(errDescriptors, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Fstat(fd, &stat); err != nil {
		return stat, errors.Join(errDescriptors, err)
	}
	return stat, nil
}
