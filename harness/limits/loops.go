package limits

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/harness/sample"
	"github.com/tidemark-log/tidemark/harness/sut"
)

// Server is a running bare server.
type Server struct {
	proc *sut.Process
	Addr string
}

// StartServer starts a bare server in a process of binary.
func StartServer(ctx context.Context, binary string, c ServerConfig) (*Server, error) {
	args := []string{HiddenCommand, "--mode", string(c.Mode), "--file", c.File,
		"--file-bytes", fmt.Sprint(c.FileBytes), "--frame-max", fmt.Sprint(c.FrameMax), "--sync-bytes", fmt.Sprint(c.SyncBytes),
		"--segment-bytes", fmt.Sprint(c.SegmentBytes)}
	if c.Overwrite {
		args = append(args, "--overwrite")
	}
	proc, err := sut.Start(ctx, sut.ProcessSpec{
		Path: binary, Args: args, Ready: func(line string) bool { return strings.HasPrefix(line, readyPrefix) },
	})
	if err != nil {
		return nil, err
	}
	addr, err := addrOf(proc.ReadyLine())
	if err != nil {
		proc.Kill()
		return nil, err
	}
	return &Server{proc: proc, Addr: addr}, nil
}

// PID is the server's process id.
func (s *Server) PID() int { return s.proc.PID() }

// Stop ends the server.
func (s *Server) Stop() { s.proc.Kill() }

// Loop is one measurement of a bare loop.
type Loop struct {
	Binary string
	Dir    string // scratch, on the disk to measure
	Mode   Mode
	// Requests are whole frames to send by turns (discard, write).
	Requests [][]byte
	// FetchBytes is the chunk (sendfile, copy, memory). Let it be no multiple of the page size, as a log's batches
	// are none: a chunk that begins on a page is copied to a few bytes behind the start of one, and the processor
	// takes each load for one of the stores just before it (4 KiB aliasing), at a tenth of the speed and more.
	FetchBytes int
	FileBytes  int64 // of the file written or read
	// FillBytes is the size of the writes that lay out a file to read; 0: 1 MiB. It decides how
	// large the page cache's folios are, which may matter to sendfile.
	FillBytes int
	Depth     int
	Overwrite bool
	SyncBytes int64
	// SegmentBytes above zero puts a write loop into the disk regime: it writes files of that size, and Warmup,
	// MaxBytes and FileBytes have no meaning. See sut.DiskRegime.
	SegmentBytes int64
	Warmup       time.Duration
	Measure      time.Duration
	// MaxBytes bounds what is sent, warmup included, so that a write loop stays inside its file; 0: no bound.
	MaxBytes int64
}

// LoopStats is what a loop did, and what it cost its server.
type LoopStats struct {
	load.Stats
	ServerCPU time.Duration
	Reached   int64 // bytes that reached the disk; in the disk regime alone
	Warnings  []string
}

// CPUPerGB is CPU seconds of the server per gigabyte.
func (s LoopStats) CPUPerGB() float64 {
	return s.ServerCPU.Seconds() / (float64(max(1, s.Bytes)) / 1e9)
}

// Run measures the loop: record bytes per second.
func (l Loop) Run(ctx context.Context) (LoopStats, error) {
	c := ServerConfig{Mode: l.Mode, FileBytes: l.FileBytes, FrameMax: 4096, Overwrite: l.Overwrite, SyncBytes: l.SyncBytes, SegmentBytes: l.SegmentBytes}
	for _, r := range l.Requests {
		c.FrameMax = max(c.FrameMax, len(r))
	}
	if l.Mode == ModeWrite || l.FetchBytes > 0 {
		c.File = filepath.Join(l.Dir, "limits-"+string(l.Mode))
		defer os.RemoveAll(c.File) // also what a run that was killed has left
	}
	if err := l.layOut(c.File); err != nil {
		return LoopStats{}, err
	}
	server, err := StartServer(ctx, l.Binary, c)
	if err != nil {
		return LoopStats{}, err
	}
	defer server.Stop()
	if l.SegmentBytes == 0 {
		return l.drive(ctx, server, nil)
	}
	regime, err := sut.EnterDiskRegime(ctx, c.File)
	if err != nil {
		return LoopStats{}, err
	}
	defer sut.DropClean(c.File)()
	st, err := l.drive(ctx, server, regime)
	if err != nil {
		return st, err
	}
	st.Warnings = regime.Warnings("the bare server")
	st.Reached, err = regime.Reached(st.Bytes)
	return st, err
}

// layOut makes what the server wants to find.
func (l Loop) layOut(name string) error {
	if l.SegmentBytes > 0 {
		if err := os.MkdirAll(name, 0o755); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
		return nil
	}
	if err := sut.TouchMemory(l.FileBytes); err != nil {
		return err
	}
	if l.FetchBytes > 0 {
		return writeFile(name, l.FileBytes, l.FillBytes)
	}
	return nil
}

// drive sends to the server, and measures from when disk has begun; without one, from after the warmup.
func (l Loop) drive(ctx context.Context, server *Server, disk *sut.DiskRegime) (LoopStats, error) {
	sampler, err := sample.New(server.PID(), "")
	if err != nil {
		return LoopStats{}, err
	}
	var from, to sample.Snapshot
	w := &load.Window{
		Warmup: l.Warmup, Measure: l.Measure,
		OnOpen:  func() { from, _ = sampler.Take(ctx) }, // the same pause that a broker's sampler makes
		OnClose: func() { to, _ = sampler.Take(ctx) },
	}
	if disk != nil {
		w.Enter(disk)
	} else if l.MaxBytes > 0 {
		w.WarmupBytes, w.MeasureBytes = l.MaxBytes/5, l.MaxBytes-l.MaxBytes/5
	}
	b := load.Bare{Addr: server.Addr, Requests: l.Requests, FetchBytes: l.FetchBytes, FileBytes: l.FileBytes, Depth: l.Depth}
	st, err := b.Run(ctx, w)
	return LoopStats{Stats: st, ServerCPU: to.CPU - from.CPU}, err
}

// writeFile makes a file of n bytes that are in the page cache, by writes of fill bytes.
func writeFile(name string, n int64, fill int) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	defer f.Close()
	if fill == 0 {
		fill = 1 << 20
	}
	chunk := load.Payload(load.NewRand(1, 1), fill, 8)
	for off := int64(0); off < n; off += int64(len(chunk)) {
		if _, err := f.WriteAt(chunk[:min(int64(len(chunk)), n-off)], off); err != nil {
			return fmt.Errorf("limits: write %s: %w", name, err)
		}
	}
	return f.Close()
}
