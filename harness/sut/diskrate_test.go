package sut

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/internal/need"
)

func fakeCgroups(t *testing.T, files map[string]string) diskCgroups {
	t.Helper()
	c := diskCgroups{root: t.TempDir(), remove: os.RemoveAll}
	c.self = filepath.Join(c.root, "self")
	for name, text := range files {
		file := filepath.Join(c.root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c diskCgroups) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.root, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

const throttleFile = "blkio/blkio.throttle.write_bps_device"

func TestReleasePutsBackWhatLimitThereWas(t *testing.T) {
	for before, after := range map[string]string{
		"":                   "8:0 0",
		"8:1 77\n9:0 5\n":    "8:0 0",
		"8:1 77\n8:0 4096\n": "8:0 4096",
	} {
		c := fakeCgroups(t, map[string]string{throttleFile: before})
		held, err := c.hold1("8:0", 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.read(t, throttleFile); got != "8:0 1048576" {
			t.Errorf("before %q: held by %q", before, got)
		}
		if err := held.Release(); err != nil {
			t.Fatal(err)
		}
		if got := c.read(t, throttleFile); got != after {
			t.Errorf("before %q: after release %q, want %q", before, got, after)
		}
	}
}

// A limit on the whole machine that a killed benchmark left behind would slow it until somebody wonders why.
func TestALimitDoesNotOutliveWhoSetIt(t *testing.T) {
	if root := os.Getenv("TIDEMARK_TEST_HOLD"); root != "" { // the process to kill
		if _, err := (diskCgroups{root: root}).hold1("8:0", 1<<20); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	c := fakeCgroups(t, map[string]string{throttleFile: ""})
	holder := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	holder.Env = append(os.Environ(), "TIDEMARK_TEST_HOLD="+c.root)
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return c.read(t, throttleFile) == "8:0 1048576" })
	holder.Process.Kill()
	holder.Wait()
	waitFor(t, func() bool { return c.read(t, throttleFile) == "8:0 0" })
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a minute has passed")
		}
	}
}

func TestAHeldProcessMovesIntoACgroupOfItsOwnAndBack(t *testing.T) {
	c := fakeCgroups(t, map[string]string{
		"cgroup.controllers": "cpuset cpu io memory pids\n", "self": "1:name=systemd:/\n0::/user.slice\n", "user.slice/cgroup.procs": "",
	})
	held, err := c.hold2("8:0", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	made, _ := filepath.Glob(filepath.Join(c.root, "tidemark-disk-*"))
	if len(made) != 1 {
		t.Fatalf("%d cgroups made", len(made))
	}
	dir, pid := filepath.Base(made[0]), strconv.Itoa(os.Getpid())
	if got := c.read(t, dir+"/io.max"); got != "8:0 wbps=1048576" {
		t.Errorf("io.max %q", got)
	}
	if c.read(t, dir+"/cgroup.procs") != pid || c.read(t, "cgroup.subtree_control") != "+io +memory" {
		t.Error("not moved")
	}
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	if c.read(t, "user.slice/cgroup.procs") != pid {
		t.Error("not moved back")
	}
	if _, err := os.Stat(made[0]); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func TestADiskThatCannotBeHeldSaysWhy(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"not mounted":             {},
		"no io controller":        {"cgroup.controllers": "cpu memory cpuio"},
		"no memory controller":    {"cgroup.controllers": "io"},
		"this process is in no c": {"cgroup.controllers": "io memory", "self": "1:blkio:/\n"},
	} {
		c := fakeCgroups(t, files)
		if _, err := c.hold2("8:0", 1<<20); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := c.hold1("8:0", 1<<20); !os.IsNotExist(err) {
			t.Errorf("no such file, and %v", err)
		}
	}
	for dir, want := range map[string]string{"/dev/shm": "lies on no block device", "/no/such": "no such file"} {
		if _, err := HoldDisk(dir, 1<<20); !errors.Is(err, ErrNoDiskRate) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
}

// On the real kernel, with a rate that slows nobody.
func TestTheKernelTakesTheLimitAndLetsGoOfIt(t *testing.T) {
	need.Root(t)
	held, err := HoldDisk(t.TempDir(), 1<<40)
	if err != nil {
		need.Skip(t, "disk-rate", err.Error())
	}
	set := func() bool {
		b, _ := os.ReadFile(filepath.Join("/sys/fs/cgroup", throttleFile))
		left, _ := filepath.Glob("/sys/fs/cgroup/tidemark-disk-*/io.max")
		return strings.Contains(string(b), strconv.Itoa(1<<40)) || len(left) > 0
	}
	if !set() {
		t.Error("no limit is set")
	}
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	if set() {
		t.Error("the limit is still set")
	}
}
