// Package sample reads what a process and the machine did between two moments:
// /proc, the broker's own counters, the state of writeback.
package sample

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/blockdevice"
	"golang.org/x/sys/unix"

	"os"
)

// Counters is the part of the broker's /counters answer that is used.
type Counters struct {
	Syscalls  map[string]int64 `json:"syscalls"`
	ToUser    int64            `json:"bytes_to_user"`
	ToKernel  int64            `json:"bytes_to_kernel"`
	InKernel  int64            `json:"bytes_in_kernel"`
	Delivered int64            `json:"bytes_delivered"`
	Requests  map[string]int64 `json:"requests"`
	Status    struct {
		HighWatermarks int64 `json:"high_watermarks"` // sums over partitions
		LogEndOffsets  int64 `json:"log_end_offsets"`
	} `json:"status"`
}

// Calls is the number of system calls of all kinds.
func (c *Counters) Calls() int64 {
	var n int64
	for _, calls := range c.Syscalls {
		n += calls
	}
	return n
}

// Syncs is the number of system calls that make files durable.
func (c *Counters) Syncs() int64 { return c.Syscalls["fsync"] + c.Syscalls["fdatasync"] }

// Snapshot is one moment.
type Snapshot struct {
	At       time.Time
	CPU      time.Duration // user and system, of all live threads
	RSS      int64         // bytes resident, file mappings included
	RSSAnon  int64         // bytes resident that no file backs
	Switches int64         // context switches, voluntary and not
	Read     int64         // bytes the process caused to be read from the device
	Written  int64         // bytes it caused to be written to it
	Broker   *Counters     // nil when there is no admin listener
	System   System
}

// System is the machine's part of a snapshot.
type System struct {
	Dirty, Writeback int64 // bytes in these states now
	WrittenBack      int64 // bytes written back since boot
	DiskRead         int64 // bytes, all disks, since boot
	DiskWritten      int64
	Stall            map[string]time.Duration // PSI "some": time in which a task waited for cpu, io, memory; empty where the kernel has none
}

// Sampler takes snapshots of one process.
type Sampler struct {
	fs    procfs.FS
	proc  procfs.Proc
	admin string
	http  http.Client
}

// New samples the process pid; admin is the broker's admin address ("host:port"), or empty.
func New(pid int, admin string) (*Sampler, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	proc, err := fs.Proc(pid)
	if err != nil {
		return nil, fmt.Errorf("sample: process %d: %w", pid, err)
	}
	return &Sampler{fs: fs, proc: proc, admin: admin, http: http.Client{Timeout: 5 * time.Second}}, nil
}

// Take reads everything now.
func (s *Sampler) Take(ctx context.Context) (Snapshot, error) {
	snap := Snapshot{At: time.Now()}
	if err := s.process(&snap); err != nil {
		return snap, fmt.Errorf("sample: process %d: %w", s.proc.PID, err)
	}
	if s.admin != "" {
		c, err := s.Counters(ctx)
		if err != nil {
			return snap, err
		}
		snap.Broker = c
	}
	var err error
	snap.System, err = TakeSystem()
	return snap, err
}

func (s *Sampler) process(snap *Snapshot) error {
	status, err := s.proc.NewStatus()
	if err != nil {
		return err
	}
	snap.RSS, snap.RSSAnon = int64(status.VmRSS), int64(status.RssAnon)
	// The process's own stat counts CPU in ticks of 10 ms; the threads' schedstat in ns.
	threads, err := s.fs.AllThreads(s.proc.PID)
	if err != nil {
		return err
	}
	for _, t := range threads {
		if sched, err := t.Schedstat(); err == nil {
			snap.CPU += time.Duration(sched.RunningNanoseconds)
		}
		if st, err := t.NewStatus(); err == nil {
			snap.Switches += int64(st.VoluntaryCtxtSwitches + st.NonVoluntaryCtxtSwitches)
		}
	}
	io, err := s.proc.IO()
	if err != nil {
		return err
	}
	snap.Read, snap.Written = int64(io.ReadBytes), int64(io.WriteBytes)
	return nil
}

// RSS is the process's resident set now, in bytes.
func (s *Sampler) RSS() (int64, error) {
	status, err := s.proc.NewStatus()
	return int64(status.VmRSS), err
}

// Counters asks the broker for its counters.
func (s *Sampler) Counters(ctx context.Context) (*Counters, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+"/counters", nil)
	if err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("sample: the broker's counters: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("sample: the broker's counters: %s", resp.Status)
	}
	c := &Counters{}
	if err := json.NewDecoder(resp.Body).Decode(c); err != nil {
		return nil, fmt.Errorf("sample: the broker's counters: %w", err)
	}
	return c, nil
}

// TakeSystem reads the machine's part alone.
func TakeSystem() (System, error) {
	var sys System
	pages, err := VMStat("nr_dirty", "nr_writeback", "nr_written")
	if err != nil {
		return sys, err
	}
	page := int64(os.Getpagesize())
	sys.Dirty, sys.Writeback, sys.WrittenBack = pages[0]*page, pages[1]*page, pages[2]*page
	if disks, err := blockdevice.NewDefaultFS(); err == nil {
		stats, _ := disks.ProcDiskstats()
		for _, d := range stats {
			if d.MinorNumber == 0 { // whole disks, roughly; partitions repeat them
				sys.DiskRead += int64(d.ReadSectors) * 512
				sys.DiskWritten += int64(d.WriteSectors) * 512
			}
		}
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return sys, err
	}
	sys.Stall = map[string]time.Duration{}
	for _, resource := range []string{"cpu", "io", "memory"} {
		if psi, err := fs.PSIStatsForResource(resource); err == nil && psi.Some != nil {
			sys.Stall[resource] = time.Duration(psi.Some.Total) * time.Microsecond
		}
	}
	return sys, nil
}

// OwnCPU is the CPU time that this process has used, user and system.
func OwnCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
