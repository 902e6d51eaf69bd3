package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tidemark-log/tidemark/harness/limits"
)

func init() { commands = append(commands, limitsCommand, limitsServerCommand) }

func limitsCommand() *cobra.Command {
	var asJSON bool
	s := limits.DefaultSuite()
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "Measure what this machine can do: memory, loopback, bare loops, disk, client",
		Long: `Measure what this machine itself can do in the shapes that a broker's work has.

The bare loops (receive→pwrite, request→sendfile) serve in a process of their
own, as the broker does, over loopback TCP; the client is the raw load driver.
Needs about 2 GB of space below --dir while it runs.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkMeasuring(s.Repeats, s.Measure); err != nil {
				return err
			}
			if err := s.Check(); err != nil {
				return err
			}
			dir, cleanup, err := scratchDir(s.Dir)
			if err != nil {
				return err
			}
			defer cleanup()
			s.Dir = dir
			if s.Binary, err = os.Executable(); err != nil {
				return err
			}
			bar := newProgress(os.Stderr)
			s.Progress = bar.step
			rows, err := s.Run(cmd.Context())
			bar.end()
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(os.Stdout)
				enc.SetIndent("", "  ")
				return enc.Encode(rows)
			}
			return limits.WriteTable(os.Stdout, rows, isTerminal(os.Stdout))
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.StringVar(&s.Dir, "dir", "", "directory on the disk to measure (default: the current one)")
	f.IntVar(&s.Repeats, "repeats", s.Repeats, "how often to measure each limit")
	f.DurationVar(&s.Measure, "measure", s.Measure, "how long one measurement takes")
	f.Int64Var(&s.LoopBytes, "loop-bytes", s.LoopBytes, "size of the bare loops' file, in bytes")
	f.Int64Var(&s.DiskBytes, "disk-bytes", s.DiskBytes, "size of the disk measurements' file, in bytes")
	f.Uint64Var(&s.Seed, "seed", s.Seed, "seed of payloads and random positions")
	return cmd
}

// limitsServerCommand is how a bare server comes to run in a process of its own.
func limitsServerCommand() *cobra.Command {
	var c limits.ServerConfig
	cmd := &cobra.Command{
		Use:    limits.HiddenCommand,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return limits.Serve(cmd.Context(), c, os.Stdout) },
	}
	f := cmd.Flags()
	f.StringVar((*string)(&c.Mode), "mode", "", "")
	f.StringVar(&c.File, "file", "", "")
	f.Int64Var(&c.FileBytes, "file-bytes", 0, "")
	f.IntVar(&c.FrameMax, "frame-max", 1<<20, "")
	f.BoolVar(&c.Overwrite, "overwrite", false, "")
	f.Int64Var(&c.SyncBytes, "sync-bytes", 0, "")
	f.Int64Var(&c.SegmentBytes, "segment-bytes", 0, "")
	return cmd
}

// checkMeasuring refuses what would measure nothing.
func checkMeasuring(repeats int, measure time.Duration) error {
	switch {
	case repeats < 1:
		return fmt.Errorf("--repeats %d: want at least 1", repeats)
	case measure <= 0:
		return fmt.Errorf("--measure %v: want a time longer than 0", measure)
	}
	return nil
}

// scratchDir makes a directory of our own below dir and says how to remove it.
func scratchDir(dir string) (string, func(), error) {
	if dir == "" {
		dir = "."
	}
	scratch, err := os.MkdirTemp(dir, "tidemark-scratch-")
	if err != nil {
		return "", nil, fmt.Errorf("scratch directory: %w; choose another with --dir", err)
	}
	return scratch, func() { os.RemoveAll(scratch) }, nil
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" }

// progress shows how far something is: a bar on a terminal, else a line every few seconds.
type progress struct {
	out      *os.File
	bar      *progressbar.ProgressBar
	lastLine time.Time
}

const progressLineEvery = 5 * time.Second

func newProgress(out *os.File) *progress { return &progress{out: out, lastLine: time.Now()} }

func (p *progress) step(done, total int, what string) {
	if !isTerminal(p.out) {
		if time.Since(p.lastLine) >= progressLineEvery {
			p.lastLine = time.Now()
			fmt.Fprintf(p.out, "%d of %d: %s\n", done, total, what)
		}
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(io.Writer(p.out)), progressbar.OptionSetWidth(30),
			progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
	}
	p.bar.Describe(fmt.Sprintf("%-50.50s", what))
	p.bar.Set(done)
}

func (p *progress) end() {
	if p.bar != nil {
		p.bar.Finish()
	}
}
