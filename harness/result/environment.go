package result

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tidemark-log/tidemark/harness/sut"
)

// Environment is what a run ran on, as far as it can bear on a number. Names of
// hosts and users are left out on purpose.
type Environment struct {
	Started  time.Time         `json:"started"`
	GOOS     string            `json:"goos"`
	GOARCH   string            `json:"goarch"`
	Go       string            `json:"go"`
	Commit   string            `json:"commit"` // with -dirty when the tree had changes
	Kernel   string            `json:"kernel"`
	CPU      string            `json:"cpu"`
	CPUs     int               `json:"cpus"`
	Memory   int64             `json:"memory_bytes"`
	Disk     string            `json:"disk"` // device, model and kind under the scratch directory
	FS       string            `json:"file_system"`
	Cgroup   map[string]string `json:"cgroup"`   // limits of the process's own cgroup
	Settings map[string]string `json:"settings"` // of the kernel, where they matter
	Load     string            `json:"load_average"`
}

// Machine is the environment in a few words.
func (e Environment) Machine() string {
	return fmt.Sprintf("%d × %s, %.0f GiB, %s on %s, Linux %s", e.CPUs, e.CPU, float64(e.Memory)/(1<<30), e.FS, e.Disk, e.Kernel)
}

// Busy says that other work kept the machine busy when the run began, or "". The
// run itself, and one just before it, keep about as many tasks running as there are CPUs.
func (e Environment) Busy() string {
	var oneMinute float64
	if _, err := fmt.Sscan(e.Load, &oneMinute); err != nil || oneMinute <= 2*float64(e.CPUs)+1 {
		return ""
	}
	return fmt.Sprintf("The machine was busy with other work when the run began: a load of %.0f on %d CPUs. Pairs cancel what they share, but intervals are wider and single numbers mean little.", oneMinute, e.CPUs)
}

// Differences lists what two environments do not share, apart from when.
func (e Environment) Differences(other Environment) []string {
	var all []string
	compare := func(what, a, b string) {
		if a != b {
			all = append(all, fmt.Sprintf("%s: %s ↔ %s", what, a, b))
		}
	}
	compare("commit", e.Commit, other.Commit)
	compare("kernel", e.Kernel, other.Kernel)
	compare("CPU", fmt.Sprintf("%d × %s", e.CPUs, e.CPU), fmt.Sprintf("%d × %s", other.CPUs, other.CPU))
	compare("memory", fmt.Sprint(e.Memory), fmt.Sprint(other.Memory))
	compare("disk", e.Disk, other.Disk)
	compare("file system", e.FS, other.FS)
	compare("Go", e.Go, other.Go)
	for _, pair := range []struct {
		what string
		a, b map[string]string
	}{{"cgroup ", e.Cgroup, other.Cgroup}, {"setting ", e.Settings, other.Settings}} {
		for _, key := range keysOf(pair.a, pair.b) {
			compare(pair.what+key, pair.a[key], pair.b[key])
		}
	}
	return all
}

// ReadEnvironment looks around; what cannot be read is left empty. scratch is
// where data will be written.
func ReadEnvironment(ctx context.Context, scratch string, now time.Time) Environment {
	e := Environment{
		Started: now.UTC(), GOOS: runtime.GOOS, GOARCH: runtime.GOARCH, Go: runtime.Version(), Commit: commit(ctx),
		Kernel: readLine("/proc/sys/kernel/osrelease"), CPU: cpuModel(), CPUs: runtime.NumCPU(), Memory: memoryBytes(),
		Cgroup: map[string]string{}, Settings: map[string]string{}, Load: readLine("/proc/loadavg"),
	}
	e.Disk, e.FS = disk(scratch)
	for name, file := range map[string]string{
		"vm.dirty_ratio": "/proc/sys/vm/dirty_ratio", "vm.dirty_background_ratio": "/proc/sys/vm/dirty_background_ratio",
		"vm.dirty_bytes": "/proc/sys/vm/dirty_bytes", "vm.dirty_background_bytes": "/proc/sys/vm/dirty_background_bytes",
		"vm.dirty_expire_centisecs": "/proc/sys/vm/dirty_expire_centisecs", "vm.swappiness": "/proc/sys/vm/swappiness",
		"transparent_hugepage": "/sys/kernel/mm/transparent_hugepage/enabled",
		"cpu_governor":         "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
		"clocksource":          "/sys/devices/system/clocksource/clocksource0/current_clocksource",
	} {
		if v := readLine(file); v != "" {
			e.Settings[name] = v
		}
	}
	e.Settings["free_page_reporting"] = "off"
	if order, on := sut.PageReporting(); on {
		e.Settings["free_page_reporting"] = fmt.Sprintf("on, blocks of %d KiB and more", os.Getpagesize()<<order>>10)
	}
	for _, name := range []string{"GOMAXPROCS", "GOGC", "GOMEMLIMIT"} {
		if v := os.Getenv(name); v != "" {
			e.Settings[name] = v
		}
	}
	if dir := cgroupDir(); dir != "" {
		for _, name := range []string{"memory.max", "cpu.max", "io.max"} {
			if v := readLine(filepath.Join(dir, name)); v != "" {
				e.Cgroup[name] = v
			}
		}
	}
	return e
}

// commit is the revision that the binary was built from; `go run` leaves it out
// of the binary, so the working tree is asked, if it is this project's.
func commit(ctx context.Context) string {
	revision, dirty := "", false
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				revision = s.Value
			case "vcs.modified":
				dirty = s.Value == "true"
			}
		}
	}
	if revision == "" {
		if !inOwnTree(ctx) {
			return "unknown"
		}
		out, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
		if err != nil {
			return "unknown"
		}
		revision = strings.TrimSpace(string(out))
		out, err = exec.CommandContext(ctx, "git", append([]string{"status", "--porcelain", "--untracked-files=no", "--", ":/"}, notCode...)...).Output()
		dirty = err == nil && len(out) > 0
	}
	if len(revision) > 12 {
		revision = revision[:12]
	}
	if dirty {
		revision += "-dirty"
	}
	return revision
}

// inOwnTree says whether the working directory lies in a checkout of this project, and not of another.
func inOwnTree(ctx context.Context) bool {
	top, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return false
	}
	module := readLine(filepath.Join(strings.TrimSpace(string(top)), "go.mod"))
	return module == "module github.com/tidemark-log/tidemark"
}

// notCode is what a run itself writes: that of the experiment before makes no other code of it.
var notCode = []string{":(top,exclude)results", ":(top,exclude)PAPER.md"}

func cpuModel() string {
	for line := range lines("/proc/cpuinfo") {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return runtime.GOARCH
}

func memoryBytes() int64 {
	for line := range lines("/proc/meminfo") {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// disk finds the block device and file system that hold a path.
func disk(path string) (device, fsType string) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return "unknown", "unknown"
	}
	number := fmt.Sprintf("%d:%d", st.Dev>>8&0xfff|st.Dev>>32&^0xfff, st.Dev&0xff|st.Dev>>12&^0xff)
	for line := range lines("/proc/self/mountinfo") {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[2] != number {
			continue
		}
		_, after, _ := strings.Cut(line, " - ")
		if f := strings.Fields(after); len(f) > 0 {
			fsType = f[0]
		}
		break
	}
	device = "unknown"
	if target, err := filepath.EvalSymlinks("/sys/dev/block/" + number); err == nil {
		device = filepath.Base(target)
		for dir := target; strings.HasPrefix(dir, "/sys/devices"); dir = filepath.Dir(dir) { // a partition's queue is its disk's
			if rotational := readLine(filepath.Join(dir, "queue/rotational")); rotational != "" {
				kind := "no seeks"
				switch base := filepath.Base(dir); {
				case strings.HasPrefix(base, "vd"), strings.HasPrefix(base, "xvd"):
					kind = "virtual" // what it says of rotation is the hypervisor's default
				case rotational == "1":
					kind = "rotational"
				}
				device = strings.Join(strings.Fields(filepath.Base(dir)+" "+readLine(filepath.Join(dir, "device/model"))+" ("+kind+")"), " ")
				break
			}
		}
	}
	if fsType == "" {
		fsType = "unknown"
	}
	return device, fsType
}

func cgroupDir() string {
	for line := range lines("/proc/self/cgroup") {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return filepath.Join("/sys/fs/cgroup", path)
		}
	}
	return ""
}

func readLine(name string) string {
	for line := range lines(name) {
		return strings.TrimSpace(line)
	}
	return ""
}

func lines(name string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		f, err := os.Open(name)
		if err != nil {
			return
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if !yield(s.Text()) {
				return
			}
		}
	}
}
