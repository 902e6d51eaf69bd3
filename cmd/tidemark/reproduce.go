package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness"
	"github.com/tidemark-log/tidemark/harness/report"
	"github.com/tidemark-log/tidemark/harness/result"
	"github.com/tidemark-log/tidemark/harness/workload"
	"github.com/tidemark-log/tidemark/internal/words"
)

func init() { commands = append(commands, reproduceCommand) }

const paperFile = "PAPER.md"

func reproduceCommand() *cobra.Command {
	var f runFlags
	var only []string
	c := &cobra.Command{
		Use:   "reproduce",
		Short: "Run the experiments, write results with figures and reports, and the claims table of PAPER.md",
		Long: `Reproduce runs every experiment on this machine, one after the other, and writes
for each a directory with samples, figures and a report, and a page over all of
them. In the default and full sizes it also refreshes the table of claims in
PAPER.md, if that file is here.

--quick takes a few minutes and gives estimates; the default size gives verdicts.
A stopped run goes on with --resume.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			return runAndTell(cmd.Context(), only, o, true)
		},
	}
	f.add(c)
	c.Flags().StringSliceVar(&only, "only", nil, "run only these experiments, by name: "+strings.Join(experiments.Names(), ", "))
	return c
}

// runFlags are those that reproduce and run share.
type runFlags struct {
	quick, full, resume bool
	out, scratch        string
	set                 []string
}

func (f *runFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.quick, "quick", false, "seconds for each experiment: estimates, no verdicts")
	c.Flags().BoolVar(&f.full, "full", false, "hours in all: more levels, longer and more repeats")
	c.Flags().BoolVar(&f.resume, "resume", false, "go on with the newest run of each experiment; what was sampled is kept")
	c.Flags().StringVar(&f.out, "out", "", `directory for results (default "results", for --quick "results/quick")`)
	c.Flags().StringVar(&f.scratch, "scratch", "", "directory on the file system to be measured (default: inside the run's directory)")
}

func (f *runFlags) options() (harness.Options, error) {
	if f.quick && f.full {
		return harness.Options{}, errors.New("--quick and --full: choose one")
	}
	binary, err := os.Executable()
	if err != nil {
		return harness.Options{}, fmt.Errorf("the broker runs this same program, which cannot be found: %w", err)
	}
	o := harness.Options{
		Root: f.out, Scratch: f.scratch, Binary: binary, Size: experiments.SizeDefault, Set: f.set, Resume: f.resume,
		Command: commandLine(), Log: os.Stderr, RunCell: workload.Run, Environment: result.ReadEnvironment, Now: time.Now,
	}
	switch {
	case f.quick:
		o.Size = experiments.SizeQuick
	case f.full:
		o.Size = experiments.SizeFull
	}
	if o.Root == "" {
		o.Root = "results"
		if f.quick {
			o.Root = filepath.Join("results", "quick")
		}
	}
	return o, nil
}

// commandLine is what the user typed, with the program's plain name.
func commandLine() string {
	args := []string{"tidemark"}
	for _, arg := range os.Args[1:] {
		if arg == "--resume" {
			continue
		}
		args = append(args, arg)
	}
	return words.Command(args...)
}

// runAndTell runs experiments and says where to read what came out.
func runAndTell(ctx context.Context, names []string, o harness.Options, paper bool) error {
	specs, err := harness.Specs(names, o.Size, o.Set)
	if err != nil {
		return err
	}
	page, err := harness.RunAll(ctx, specs, o)
	if page != "" {
		fmt.Printf("%s\n", page)
	}
	if errors.Is(err, harness.ErrInterrupted) || !paper || o.Size == experiments.SizeQuick {
		return err
	}
	switch paperErr := report.WritePaper(paperFile, o.Root); {
	case errors.Is(paperErr, fs.ErrNotExist):
		fmt.Fprintf(os.Stderr, "no %s in this directory, so its table was not written\n", paperFile)
	case paperErr != nil:
		return errors.Join(err, paperErr)
	}
	return err
}
