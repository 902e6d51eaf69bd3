package sut

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// ErrNoCgroup says that memory cannot be limited here. The wrapped text says why.
var ErrNoCgroup = errors.New("memory cannot be limited here")

// Cgroup limits the memory of the processes started in it, page cache included.
type Cgroup struct {
	dir    string
	memory string // file with the current use, relative to dir
}

var cgroups atomic.Int64

// NewCgroup makes a memory cgroup with a limit in bytes, under version 2 where
// the memory controller is there, else version 1. Swap is not limited apart.
func NewCgroup(limit int64) (*Cgroup, error) {
	name := fmt.Sprintf("tidemark-%d-%d", os.Getpid(), cgroups.Add(1))
	if c, err := newCgroup2(name, limit); err == nil {
		return c, nil
	} else if c, err1 := newCgroup1(name, limit); err1 == nil {
		return c, nil
	} else {
		return nil, fmt.Errorf("%w: version 2: %v; version 1: %v", ErrNoCgroup, err, err1)
	}
}

func newCgroup2(name string, limit int64) (*Cgroup, error) {
	const root = "/sys/fs/cgroup"
	controllers, err := os.ReadFile(root + "/cgroup.controllers")
	if err != nil {
		return nil, errors.New("not mounted at " + root)
	}
	if !strings.Contains(string(controllers), "memory") {
		return nil, errors.New("no memory controller")
	}
	// The root's children get the controller only when asked to; it may be so already, or not ours to ask.
	os.WriteFile(root+"/cgroup.subtree_control", []byte("+memory"), 0o644)
	return makeCgroup(filepath.Join(root, name), "memory.max", "memory.current", limit)
}

func newCgroup1(name string, limit int64) (*Cgroup, error) {
	const root = "/sys/fs/cgroup/memory"
	if _, err := os.Stat(root + "/memory.limit_in_bytes"); err != nil {
		return nil, errors.New("not mounted at " + root)
	}
	return makeCgroup(filepath.Join(root, name), "memory.limit_in_bytes", "memory.usage_in_bytes", limit)
}

func makeCgroup(dir, limitFile, memory string, limit int64) (*Cgroup, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, limitFile), strconv.AppendInt(nil, limit, 10), 0o644); err != nil {
		os.Remove(dir)
		return nil, err
	}
	return &Cgroup{dir: dir, memory: memory}, nil
}

// wrap gives the command that enters the cgroup and then becomes path: what the
// process allocates and reads is charged from its first page on.
func (c *Cgroup) wrap(path string, args []string) (string, []string) {
	return "/bin/sh", append([]string{"-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(c.dir, "cgroup.procs"), path}, args...)
}

// Used is the memory in use, page cache included.
func (c *Cgroup) Used() (int64, error) {
	b, err := os.ReadFile(filepath.Join(c.dir, c.memory))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// Close removes the cgroup. Its processes must have ended.
func (c *Cgroup) Close() error {
	if err := removeCgroup(c.dir); err != nil {
		return fmt.Errorf("sut: remove cgroup: %w", err)
	}
	return nil
}

// removeCgroup removes an empty cgroup. The kernel may need a moment to notice that its processes have ended.
func removeCgroup(dir string) error {
	var err error
	for range 50 {
		if err = os.Remove(dir); err == nil || os.IsNotExist(err) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}
