package sut

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNoDiskRate says that a disk cannot be held to a rate here. The wrapped text says why.
var ErrNoDiskRate = errors.New("the disk cannot be held to a rate here")

// HeldDisk is a disk that takes no more than so many bytes per second. Release lets it go.
type HeldDisk struct{ release func() error }

// HoldDisk holds the disk below dir to rate bytes written per second, page cache included. Under version 1 of
// cgroups what the page cache writes back counts for the root, so the whole machine is held. Under version 2 this process and those it
// starts from now on are, in a cgroup of their own. It needs root. Whether the disk really is held shows in what a writer reaches: look at that too.
func HoldDisk(dir string, rate int64) (*HeldDisk, error) {
	device, err := wholeDisk(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDiskRate, err)
	}
	c := diskCgroups{root: "/sys/fs/cgroup", self: "/proc/self/cgroup", remove: removeCgroup}
	held, err2 := c.hold2(device, rate)
	if err2 == nil {
		return held, nil
	}
	held, err1 := c.hold1(device, rate)
	if err1 == nil {
		return held, nil
	}
	return nil, fmt.Errorf("%w: cgroup version 2: %w; version 1: %w", ErrNoDiskRate, err2, err1)
}

// Release takes the limit back. Once is enough.
func (h *HeldDisk) Release() error {
	if err := h.release(); err != nil {
		return fmt.Errorf("sut: let the disk go: %w", err)
	}
	return nil
}

// wholeDisk is the major:minor of the disk that holds dir; of a partition, that of the disk it lies on, which is what the kernel limits.
func wholeDisk(dir string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", fmt.Errorf("%s: %w", dir, err)
	}
	device := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	at, err := filepath.EvalSymlinks("/sys/dev/block/" + device)
	if err != nil {
		return "", fmt.Errorf("%s lies on no block device (%s)", dir, device)
	}
	if _, err := os.Stat(filepath.Join(at, "partition")); err == nil {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(at), "dev"))
		return strings.TrimSpace(string(b)), err
	}
	return device, nil
}

// diskCgroups is where the kernel shows its cgroups.
type diskCgroups struct {
	root   string // the mount
	self   string // the file that says which cgroups this process is in
	remove func(dir string) error
}

// hold1 sets the limit at the root, and leaves a watcher that takes it back: when it is told to, and when this process has died.
func (c diskCgroups) hold1(device string, rate int64) (*HeldDisk, error) {
	file := filepath.Join(c.root, "blkio/blkio.throttle.write_bps_device")
	before, err := limitOfDevice(file, device)
	if err != nil {
		return nil, err
	}
	// A session of its own: what interrupts us must not end the watcher before it has done its work.
	watcher := exec.Command("/bin/sh", "-c", `read -r _; echo "$0" > "$1"`, device+" "+before, file)
	watcher.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var said strings.Builder
	watcher.Stderr = &said
	told, err := watcher.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := watcher.Start(); err != nil {
		return nil, err
	}
	held := &HeldDisk{release: func() error {
		io.WriteString(told, "\n")
		if err := watcher.Wait(); err != nil {
			return fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
		}
		return nil
	}}
	if err := os.WriteFile(file, fmt.Appendf(nil, "%s %d", device, rate), 0o644); err != nil {
		return nil, errors.Join(err, held.Release())
	}
	return held, nil
}

// limitOfDevice is what a file of "major:minor limit" lines says of a device; without a line "0", which is no limit.
func limitOfDevice(file, device string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if of, limit, ok := strings.Cut(strings.TrimSpace(line), " "); ok && of == device {
			return limit, nil
		}
	}
	return "0", nil
}

// hold2 moves this process into a new cgroup that has the limit. Where this process dies the cgroup stays behind, empty, and limits nobody.
func (c diskCgroups) hold2(device string, rate int64) (*HeldDisk, error) {
	controllers, err := os.ReadFile(filepath.Join(c.root, "cgroup.controllers"))
	if err != nil {
		return nil, errors.New("not mounted at " + c.root)
	}
	// The page cache's writes count for the cgroup whose memory the page is: without the memory controller they would be the root's.
	for _, name := range []string{"io", "memory"} {
		if !strings.Contains(" "+strings.TrimSpace(string(controllers))+" ", " "+name+" ") {
			return nil, fmt.Errorf("no %s controller", name)
		}
	}
	ours, err := c.own2()
	if err != nil {
		return nil, err
	}
	os.WriteFile(filepath.Join(c.root, "cgroup.subtree_control"), []byte("+io +memory"), 0o644) // it may be so already, or not ours to ask
	dir := filepath.Join(c.root, fmt.Sprintf("tidemark-disk-%d-%d", os.Getpid(), cgroups.Add(1)))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	pid := strconv.AppendInt(nil, int64(os.Getpid()), 10)
	enter := func(cgroup string) error {
		return os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), pid, 0o644)
	}
	held := &HeldDisk{release: func() error {
		err := enter(ours)
		return errors.Join(err, c.remove(dir))
	}}
	err = os.WriteFile(filepath.Join(dir, "io.max"), fmt.Appendf(nil, "%s wbps=%d", device, rate), 0o644)
	if err == nil {
		err = enter(dir)
	}
	if err != nil {
		return nil, errors.Join(err, held.Release())
	}
	return held, nil
}

// own2 is the directory of the cgroup that this process is in.
func (c diskCgroups) own2() (string, error) {
	b, err := os.ReadFile(c.self)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return filepath.Join(c.root, path), nil
		}
	}
	return "", errors.New("this process is in no cgroup of it")
}
