package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/report"
	"github.com/tidemark-log/tidemark/harness/result"
	"github.com/tidemark-log/tidemark/harness/workload"
)

// ErrInterrupted marks a run that was stopped and can be resumed.
var ErrInterrupted = errors.New("stopped before the end")

// cellFailuresMax bounds how often a run tries a cell that gives errors: one that
// failed twice will fail again, and each attempt may cost a time-out.
const cellFailuresMax = 2

// Options says how to run.
type Options struct {
	Root    string // under which run directories are made
	Scratch string // on the file system to be measured; empty: inside the run's directory
	Binary  string // the tidemark executable, started as broker
	Size    experiments.Size
	Set     []string // key=value
	Resume  bool     // go on with the newest run of the experiment under Root
	Command string   // what the user typed, for command.txt
	Log     io.Writer

	// What tests replace. RunCell measures one cell: workload.Run.
	RunCell     func(context.Context, workload.Cell) (workload.Result, error)
	Environment func(ctx context.Context, scratch string, now time.Time) result.Environment // result.ReadEnvironment
	Now         func() time.Time
}

// Outcome is what a run left.
type Outcome struct {
	Dir     string
	Summary *result.Summary
}

// Run runs one experiment from its first missing sample to its report.
func Run(ctx context.Context, spec *experiments.Spec, o Options) (Outcome, error) {
	dir, sized, elsewhere, err := prepare(ctx, spec, o)
	if err != nil {
		return Outcome{}, err
	}
	p, err := makePlan(sized)
	if err != nil {
		return Outcome{}, err
	}
	scratch := o.Scratch
	if scratch == "" {
		scratch = filepath.Join(dir, "scratch")
	}
	if scratch, err = filepath.Abs(scratch); err != nil {
		return Outcome{}, err
	}
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return Outcome{}, err
	}
	r := &run{plan: p, options: o, dir: dir, scratch: scratch, elsewhere: elsewhere}
	err = r.sampleAll(ctx)
	if o.Scratch == "" {
		err = errors.Join(err, os.RemoveAll(scratch))
	}
	if err != nil {
		return Outcome{Dir: dir}, err
	}
	summary, err := report.Write(dir)
	return Outcome{dir, summary}, err
}

// prepare makes the run's directory or, to resume, finds it. The spec of a
// resumed run is the one in its directory, and elsewhere is in what this machine and commit differ from its own.
func prepare(ctx context.Context, spec *experiments.Spec, o Options) (dir string, sized *experiments.Spec, elsewhere []string, err error) {
	measured := o.Root
	if o.Scratch != "" {
		measured = o.Scratch
	}
	if o.Resume {
		dir, err := result.Latest(o.Root, spec.Name)
		if err == nil {
			kept, was, env, err := result.Open(dir)
			if err != nil {
				return "", nil, nil, err
			}
			if was.Size != o.Size || !slices.Equal(was.Set, o.Set) {
				return "", nil, nil, fmt.Errorf("%s was begun with size %s and settings %v; resume it with the same", dir, was.Size, was.Set)
			}
			if kept.Text != spec.Text {
				fmt.Fprintf(o.Log, "%s: the experiment's file has changed since; going on with the one in %s\n", spec.Name, dir)
			}
			if elsewhere = env.Differences(o.Environment(ctx, measured, o.Now())); len(elsewhere) > 0 {
				fmt.Fprintf(o.Log, "%s: %s was measured elsewhere (there ↔ here): %s\n", spec.Name, dir, strings.Join(elsewhere, "; "))
			}
			return dir, kept, elsewhere, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", nil, nil, err
		}
		fmt.Fprintf(o.Log, "%s: nothing to go on with under %s, so it begins anew\n", spec.Name, o.Root)
	}
	plan := result.Plan{Experiment: spec.Name, Size: o.Size, Set: o.Set, Command: o.Command}
	sized, err = plan.Apply(spec)
	if err != nil {
		return "", nil, nil, err
	}
	if _, err := makePlan(sized); err != nil { // before anything is written
		return "", nil, nil, err
	}
	if err := os.MkdirAll(o.Root, 0o755); err != nil {
		return "", nil, nil, err
	}
	now := o.Now()
	dir, err = result.Create(o.Root, spec, plan, o.Environment(ctx, measured, now), now)
	return dir, sized, nil, err
}

// run is one experiment under way.
type run struct {
	plan    *plan
	options Options
	dir     string
	scratch string
	// elsewhere is not empty when the samples that are there were taken by another commit or machine. Then none is
	// added: the two sides of a pair would differ in more than their cells, and environment.json would name one of two.
	elsewhere []string

	writer  *result.SampleWriter
	samples []result.Sample
	failed  map[string]int // attempts of this run that gave an error, by cell
}

func (r *run) sampleAll(ctx context.Context) (err error) {
	r.failed = map[string]int{}
	r.writer, r.samples, err = result.AppendSamples(filepath.Join(r.dir, result.SamplesFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.writer.Close()) }()

	spec := r.plan.spec
	progress := newProgress(r.options.Log, spec.Name, len(r.plan.cells), spec.Run.Repeats)
	defer progress.close()
	progress.begin(r.plan.pruned, len(r.samples))
	for repeat := range max(spec.Run.Repeats, spec.Run.MaxRepeats) {
		if repeat >= spec.Run.Repeats {
			enough, err := r.narrowEnough()
			if err != nil || enough {
				return err
			}
		}
		for _, i := range r.plan.order(repeat) {
			if err := r.sampleOne(ctx, i, repeat, progress); err != nil {
				return err
			}
		}
		progress.repeatDone(repeat)
	}
	return nil
}

// sampleOne runs a cell once, unless that is done already.
func (r *run) sampleOne(ctx context.Context, i, repeat int, progress *progress) error {
	cell := r.plan.cells[i]
	if r.done(cell.Name(), repeat) {
		progress.cellDone()
		return nil
	}
	if err := ctx.Err(); err != nil {
		return r.interrupted()
	}
	if len(r.elsewhere) > 0 {
		return fmt.Errorf("%s is not complete and was begun elsewhere (there ↔ here): %s; begin a new run, without --resume", r.dir, strings.Join(r.elsewhere, "; "))
	}
	progress.cell(cell.Name(), repeat)
	started := r.options.Now()
	res, err := r.options.RunCell(ctx, workload.Cell{
		Workload: r.plan.params[i], Broker: cell.Settings, Dir: r.scratch, Binary: r.options.Binary,
		Seed: r.plan.seed(repeat), Progress: progress.step,
	})
	if ctx.Err() != nil {
		return r.interrupted() // whatever it measured was cut short
	}
	s := result.Sample{
		Repeat: repeat, Cell: cell.Name(), Started: started.UTC(), Seconds: r.options.Now().Sub(started).Seconds(),
		Metrics: res.Metrics, Limits: res.Limits, Checks: res.Checks, Warnings: res.Warnings, Throttled: res.Throttled, Timeline: res.Timeline,
	}
	switch {
	case errors.Is(err, workload.ErrNotPossible):
		s.NotPossible, s.Metrics, s.Limits = err.Error(), nil, nil
	case err != nil:
		s.Error, s.Metrics, s.Limits = err.Error(), nil, nil
		r.failed[s.Cell]++
		progress.say("%s: %v", s.Cell, err)
	}
	s.Clean()
	if err := r.writer.Append(s); err != nil {
		return err
	}
	r.samples = append(r.samples, s)
	progress.cellDone()
	if err != nil {
		return nil
	}
	return result.AppendLatency(r.dir, s, res.Latency)
}

// done reports whether a cell needs no run in this repeat.
func (r *run) done(cell string, repeat int) bool {
	if r.failed[cell] >= cellFailuresMax {
		return true
	}
	return slices.ContainsFunc(r.samples, func(s result.Sample) bool {
		return s.Cell == cell && (s.NotPossible != "" || s.Repeat == repeat && s.OK())
	})
}

func (r *run) interrupted() error {
	return fmt.Errorf("%s: %w; what was sampled is in %s: the same command with --resume goes on", r.plan.spec.Name, ErrInterrupted, r.dir)
}

// narrowEnough reports whether the interval of every verdict's ratio is at most
// run.width wide. What the ratio is plays no part.
func (r *run) narrowEnough() (bool, error) {
	summary, err := result.Summarize(r.plan.spec, r.options.Size, r.samples)
	if err != nil {
		return false, err
	}
	for _, v := range summary.Verdicts {
		if v.Ratio.N > 0 && v.Ratio.Estimate().RelativeWidth() > r.plan.spec.Run.Width {
			return false, nil
		}
	}
	return true, nil
}
