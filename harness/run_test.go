package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/report"
	"github.com/tidemark-log/tidemark/harness/result"
	"github.com/tidemark-log/tidemark/harness/stat"
	"github.com/tidemark-log/tidemark/harness/workload"
)

const testSpec = `question = "Does batching help?"
prediction = "By about 20 times."
claims = ["C4"]
workload = { kind = "produce", measure = "1s" }
vary = { acks = ["0", "1"], batch_records = [1, 100] }
run = { seed = 3, repeats = 9 }
check = ["offsets-contiguous"]
[[verdicts]]
claim = "C4"
says = "batches of 100 are at least 10 times as fast"
test = "ratio(records/s, batch_records=100 / batch_records=1) > 10"
[[figures]]
name = "rate"
title = "How much?"
metric = "records/s"
x = "batch_records"
series = "acks"
kind = "line"
log = "xy"
limit = "bare loop"
[quick]
run = { repeats = 2 }
`

// fakeCell measures nothing: its numbers follow from the cell alone, so that two
// runs that ran the same cells have the same numbers.
func fakeCell(_ context.Context, c workload.Cell) (workload.Result, error) {
	rng := rand.New(rand.NewPCG(c.Seed, uint64(c.Workload.BatchRecords)))
	noise := math.Exp(0.05 * rng.NormFloat64())
	h := hdrhistogram.New(1, 1e7, 3)
	_ = h.RecordValue(int64(100 * noise))
	rate := 1000 * noise * (1 + 0.2*float64(c.Workload.BatchRecords))
	return workload.Result{
		Metrics: map[string]float64{"records/s": rate, "bytes/s": rate * 100, "p99-sec": 1e-4 * noise},
		Limits:  map[string]float64{"records/s": 3e4}, Latency: map[string]*hdrhistogram.Histogram{"produce": h},
		Checks: map[string]string{"offsets-contiguous": ""},
	}, nil
}

func testOptions(t *testing.T) Options {
	t.Helper()
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return Options{Root: t.TempDir(), Size: experiments.SizeDefault, Command: "tidemark run test.toml", Log: io.Discard, RunCell: fakeCell,
		Environment: func(context.Context, string, time.Time) result.Environment {
			return result.Environment{CPUs: 2, CPU: "fake"}
		},
		Now: func() time.Time { clock = clock.Add(time.Second); return clock }}
}

func parse(t *testing.T, text string) *experiments.Spec {
	t.Helper()
	spec, err := experiments.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestARunLeavesEveryFileAndAVerdict(t *testing.T) {
	o := testOptions(t)
	out, err := Run(t.Context(), parse(t, testSpec), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{result.SpecFile, result.CommandFile, result.EnvironmentFile, result.SamplesFile, result.BenchFile, result.SummaryFile, result.ReportFile, result.PageFile, "rate.svg", "rate.png", "latency/acks=0,batch_records=1.hlog"} {
		if info, err := os.Stat(filepath.Join(out.Dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s is missing or empty: %v", name, err)
		}
	}
	v := out.Summary.Verdicts[0]
	if v.Verdict != stat.Supported || v.Ratio.N != 9 {
		t.Errorf("verdict %+v", v)
	}
	if e := v.Ratio.Estimate(); e.Lo > 17.5 || e.Hi < 17.5 {
		t.Errorf("ratio %.3f (%.3f–%.3f), the fake's is 21/1.2 = 17.5", e.Value, e.Lo, e.Hi)
	}
	latency, err := result.ReadLatency(out.Dir, "acks=0/batch_records=1")
	if err != nil || len(latency) != 9 || latency["produce.r8"] == nil {
		t.Errorf("latency logs: %v, %v", latency, err)
	}
	bench, _ := os.ReadFile(filepath.Join(out.Dir, result.BenchFile))
	if !strings.Contains(string(bench), "BenchmarkTest/acks=1/batch_records=100 1 ") || !strings.Contains(string(bench), "\ncommit: ") || !strings.Contains(string(bench), "\nmachine: ") {
		t.Errorf("bench.txt:\n%s", bench)
	}
	if _, err := os.Stat(filepath.Join(out.Dir, "scratch")); err == nil {
		t.Error("the scratch directory was left behind")
	}
}

// stopAfter runs n cells and then ends the context in the middle of the next.
func stopAfter(n int, cancel func()) func(context.Context, workload.Cell) (workload.Result, error) {
	return func(ctx context.Context, c workload.Cell) (workload.Result, error) {
		if n--; n < 0 {
			cancel()
			return workload.Result{}, ctx.Err()
		}
		return fakeCell(ctx, c)
	}
}

// A run that is stopped again and again, each time with a torn last line, ends
// with the same samples and the same summary as one that was not.
func TestAResumedRunEndsAsOneThatWasNotStopped(t *testing.T) {
	spec := parse(t, testSpec)
	whole, err := Run(t.Context(), spec, testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(t)
	var out Outcome
	for attempt := 0; ; attempt++ {
		ctx, cancel := context.WithCancel(t.Context())
		o.RunCell, o.Resume = stopAfter(7, cancel), attempt > 0
		out, err = Run(ctx, spec, o)
		cancel()
		if err == nil {
			break
		}
		if !errors.Is(err, ErrInterrupted) || attempt > 10 {
			t.Fatal(err)
		}
		tear(t, filepath.Join(out.Dir, result.SamplesFile))
	}
	want, got := summaryOf(t, whole.Dir), summaryOf(t, out.Dir)
	if want != got {
		t.Errorf("summaries differ:\n%s\n%s", want, got)
	}
	samples, _, err := result.ReadSamples(filepath.Join(out.Dir, result.SamplesFile))
	if err != nil || len(samples) != 36 {
		t.Errorf("%d samples, want 36: %v", len(samples), err)
	}
}

func TestAResumeWithNothingToGoOnWithSaysSo(t *testing.T) {
	var said bytes.Buffer
	o := testOptions(t)
	o.Resume, o.Log = true, &said
	out, err := Run(t.Context(), parse(t, testSpec), o)
	if err != nil || !strings.Contains(said.String(), "nothing to go on with under "+o.Root) {
		t.Errorf("%+v, %v, said:\n%s", out, err, &said)
	}
}

// tear cuts the last line as a kill in the middle of a write would, at half its length; the sample is lost.
func tear(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	end := len(text) - 1
	begin := bytes.LastIndexByte(text[:end], '\n') + 1
	if err := os.WriteFile(name, text[:begin+(end-begin)/2], 0o644); err != nil {
		t.Fatal(err)
	}
}

func summaryOf(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, result.SummaryFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestADamagedLineInTheMiddleIsAnErrorAndNotSkipped(t *testing.T) {
	o := testOptions(t)
	out, err := Run(t.Context(), parse(t, testSpec), o)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(out.Dir, result.SamplesFile)
	text, _ := os.ReadFile(name)
	text[10] = '}'
	if err := os.WriteFile(name, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := report.Write(out.Dir); err == nil || !strings.Contains(err.Error(), result.SamplesFile+":1:") {
		t.Errorf("got %v, want an error that names the line", err)
	}
}

func TestAReportMadeAgainIsTheSame(t *testing.T) {
	out, err := Run(t.Context(), parse(t, testSpec), testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	files := []string{result.SummaryFile, result.BenchFile, result.ReportFile, result.PageFile, "rate.svg", "rate.png"}
	before := map[string][]byte{}
	for _, f := range files {
		before[f], _ = os.ReadFile(filepath.Join(out.Dir, f))
	}
	if _, err := report.Write(out.Dir); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if after, _ := os.ReadFile(filepath.Join(out.Dir, f)); !bytes.Equal(before[f], after) {
			t.Errorf("%s came out differently", f)
		}
	}
}

func TestRepeatsAreInterleavedInAnOrderThatTheSeedDecides(t *testing.T) {
	orders := func() []string {
		o := testOptions(t)
		var seen []string
		o.RunCell = func(ctx context.Context, c workload.Cell) (workload.Result, error) {
			seen = append(seen, fmt.Sprintf("%s/%d/%x", c.Workload.Acks, c.Workload.BatchRecords, c.Seed))
			return fakeCell(ctx, c)
		}
		if _, err := Run(t.Context(), parse(t, testSpec), o); err != nil {
			t.Fatal(err)
		}
		return seen
	}
	a, b := orders(), orders()
	if !slices.Equal(a, b) {
		t.Error("the same seed gave two orders")
	}
	blocks := map[string]bool{}
	for i := 0; i < len(a); i += 4 {
		var names, seeds []string
		for _, s := range a[i : i+4] {
			names = append(names, s[:strings.LastIndex(s, "/")])
			seeds = append(seeds, s[strings.LastIndex(s, "/"):])
		}
		blocks[strings.Join(names, " ")] = true
		slices.Sort(names)
		if want := []string{"0/1", "0/100", "1/1", "1/100"}; !slices.Equal(names, want) {
			t.Errorf("repeat %d ran %v", i/4, names)
		}
		if seeds[0] != seeds[1] || seeds[0] != seeds[3] {
			t.Errorf("repeat %d: cells of a pair had different seeds: %v", i/4, seeds)
		}
	}
	if len(blocks) < 2 {
		t.Error("every repeat ran its cells in the same order")
	}
}

func TestASampleThatFailedACheckIsShownAndLeftOut(t *testing.T) {
	o := testOptions(t)
	n := 0
	o.RunCell = func(ctx context.Context, c workload.Cell) (workload.Result, error) {
		r, err := fakeCell(ctx, c)
		if n++; n == 5 {
			r.Checks["offsets-contiguous"] = "sent 100, read 99"
			r.Metrics["records/s"] = 1e12 // would be seen in any estimate
		}
		return r, err
	}
	out, err := Run(t.Context(), parse(t, testSpec), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Summary.Failures) != 1 || !strings.Contains(out.Summary.Failures[0], "sent 100, read 99") {
		t.Errorf("failures %v", out.Summary.Failures)
	}
	if e := out.Summary.Verdicts[0].Ratio.Estimate(); e.N != 8 || e.Value > 19 || e.Value < 16 {
		t.Errorf("the failed sample reached the estimate: %v", e)
	}
	repeats := 0
	for _, c := range out.Summary.Cells {
		repeats += c.Repeats
	}
	if repeats != 35 {
		t.Errorf("%d samples count, want 36 less the failed one", repeats)
	}
	if !slices.Contains(out.Summary.Verdicts[0].Warnings, stat.Warning{Kind: stat.FailedCheck, Count: 1}) {
		t.Errorf("warnings %v", out.Summary.Verdicts[0].Warnings)
	}
}

func TestAThrottledCellGivesNoVerdict(t *testing.T) {
	o := testOptions(t)
	n := 0
	o.RunCell = func(ctx context.Context, c workload.Cell) (workload.Result, error) {
		r, err := fakeCell(ctx, c)
		n++
		r.Throttled = n == 7
		return r, err
	}
	out, err := Run(t.Context(), parse(t, testSpec), o)
	if err != nil {
		t.Fatal(err)
	}
	if v := out.Summary.Verdicts[0]; v.Verdict != stat.NoVerdict || v.Warnings[0].Kind != stat.Throttled {
		t.Errorf("verdict %+v", v)
	}
}

func TestQuickGivesEstimatesAndNoVerdicts(t *testing.T) {
	o := testOptions(t)
	o.Size = experiments.SizeQuick
	out, err := Run(t.Context(), parse(t, strings.Replace(testSpec, "repeats = 2", "repeats = 12", 1)), o)
	if err != nil {
		t.Fatal(err)
	}
	if v := out.Summary.Verdicts[0]; v.Verdict != stat.NoVerdict || v.Ratio.Value == nil {
		t.Errorf("verdict %+v", v)
	}
}

func TestACellThatThisMachineCannotRunIsTriedOnceAndSaidSo(t *testing.T) {
	o := testOptions(t)
	tries := 0
	o.RunCell = func(ctx context.Context, c workload.Cell) (workload.Result, error) {
		if c.Workload.Acks == "0" && c.Workload.BatchRecords == 1 {
			tries++
			return workload.Result{}, fmt.Errorf("no cgroup: %w", workload.ErrNotPossible)
		}
		return fakeCell(ctx, c)
	}
	out, err := Run(t.Context(), parse(t, testSpec), o)
	if err != nil {
		t.Fatal(err)
	}
	if tries != 1 || len(out.Summary.Warnings) != 1 || !strings.Contains(out.Summary.Warnings[0], "no cgroup") {
		t.Errorf("%d tries, warnings %v", tries, out.Summary.Warnings)
	}
	if len(out.Summary.Failures) != 0 {
		t.Errorf("what a machine lacks is no failure: %v", out.Summary.Failures)
	}
}

func TestACellThatFailsIsTriedTwiceAndFailsTheRun(t *testing.T) {
	o := testOptions(t)
	tries := 0
	o.RunCell = func(ctx context.Context, c workload.Cell) (workload.Result, error) {
		if c.Workload.Acks == "0" && c.Workload.BatchRecords == 1 {
			tries++
			return workload.Result{}, errors.New("broker did not start")
		}
		return fakeCell(ctx, c)
	}
	page, err := RunAll(t.Context(), []*experiments.Spec{parse(t, testSpec)}, o)
	if !errors.Is(err, ErrFailures) || tries != cellFailuresMax || page == "" {
		t.Errorf("%d tries, page %q, error %v", tries, page, err)
	}
}

// Stopping depends on the interval's width alone: with noise that never narrows
// it goes on to the bound, with little it stops at once, whatever the ratio.
func TestARunStopsOnWidthAndNeverOnVerdict(t *testing.T) {
	for _, c := range []struct {
		width string
		want  int
	}{{"10.0", 8}, {"0.0001", 15}} {
		text := strings.Replace(testSpec, "repeats = 9", "repeats = 8, max_repeats = 15, width = "+c.width, 1)
		out, err := Run(t.Context(), parse(t, text), testOptions(t))
		if err != nil {
			t.Fatal(err)
		}
		if out.Summary.Repeats != c.want {
			t.Errorf("width %s: %d repeats, want %d", c.width, out.Summary.Repeats, c.want)
		}
	}
}

func TestMistakesAreFoundBeforeAnythingRuns(t *testing.T) {
	for want, change := range map[string][2]string{
		"test.toml:4: workload: unknown key \"size\"":                                             {`measure = "1s"`, `size = 3`},
		"test.toml:4: workload: measure = soon":                                                   {`"1s"`, `"soon"`},
		"test.toml:5: workload: acks = 2":                                                         {`["0", "1"]`, `["0", "2"]`},
		"test.toml:11: metric \"records/min\" is given by none":                                   {`ratio(records/s`, `ratio(records/min`},
		"test.toml:7: check \"offsets-continuous\" is made by none":                               {`check = ["offsets-contiguous"]`, `check = ["offsets-continuous"]`},
		"test.toml:15: metric \"records/hour\" is given by none":                                  {`metric = "records/s"`, `metric = "records/hour"`},
		"test.toml: cell acks=0/batch_records=1: --set: unknown setting log.flush.intervall.ms=1": {`workload =`, "cluster = { settings = { \"log.flush.intervall.ms\" = 1 } }\nworkload ="},
		"test.toml: cell acks=0/batch_records=1: log.dirs is set by the harness":                  {`workload =`, "cluster = { settings = { \"log.dirs\" = \"data\" } }\nworkload ="},
		"test.toml:5: cell acks=0/batch_records=1: workload: kind loss runs on a cluster of one":  {`workload = { kind = "produce"`, "cluster = { brokers = 3 }\nworkload = { kind = \"loss\""},
		"test.toml:4: workload: replication_factor = 0":                                           {`measure = "1s"`, `replication_factor = 0`},
		"test.toml: cell acks=0/batch_records=1: broker.id is set by the harness":                 {`workload =`, "cluster = { brokers = 3, settings = { \"broker.id\" = 7 } }\nworkload ="},
	} {
		o := testOptions(t)
		o.RunCell = func(context.Context, workload.Cell) (workload.Result, error) {
			t.Error("a cell was run")
			return workload.Result{}, nil
		}
		text := strings.Replace(testSpec, change[0], change[1], 1)
		_, err := Run(t.Context(), parse(t, text), o)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s…", err, want)
		}
		if left, _ := os.ReadDir(o.Root); len(left) > 0 {
			t.Errorf("%s: a directory was left", want)
		}
	}
}

func TestAMistakeInSetIsNotBlamedOnTheFileAlone(t *testing.T) {
	_, err := Specs([]string{"batch-size"}, experiments.SizeQuick, []string{"nofactor=1"})
	if err == nil || !strings.HasPrefix(err.Error(), "with --set nofactor=1: ") {
		t.Errorf("%v", err)
	}
}

// Cells that are about a size give no verdict where they did not reach it.
func TestNoVerdictCountsAGrowthThatFellShort(t *testing.T) {
	specs, err := Specs(nil, experiments.SizeDefault, nil)
	if err != nil {
		t.Fatal(err)
	}
	grows := 0
	for _, spec := range specs {
		plan, err := makePlan(spec)
		if err != nil {
			t.Fatal(err)
		}
		cells := plan.cells
		if len(spec.Verdicts) == 0 || !slices.ContainsFunc(plan.params, func(p workload.Params) bool { return p.Kind == workload.Growth }) {
			continue
		}
		grows++
		samples := func(short string) (all []result.Sample) {
			for repeat := range max(spec.Run.Repeats, stat.VerdictRepeats) {
				for _, c := range cells {
					s := result.Sample{Cell: c.Name(), Repeat: repeat, Metrics: map[string]float64{}, Checks: map[string]string{"size-reached": ""}}
					for _, v := range spec.Verdicts {
						s.Metrics[v.Parsed().Metric] = 1 + float64(repeat)/100
					}
					if c.Name() == short {
						s.Checks["size-reached"] = "it grew to 10 MB of 192 MB in the time allowed"
					}
					all = append(all, s)
				}
			}
			return all
		}
		judge := func(short string) []result.VerdictSummary {
			sum, err := result.Summarize(spec, experiments.SizeDefault, samples(short))
			if err != nil {
				t.Fatal(err)
			}
			return sum.Verdicts
		}
		seen := make([]bool, len(spec.Verdicts))
		whole := judge("")
		for _, c := range cells {
			for i, v := range judge(c.Name()) {
				seen[i] = seen[i] || v.Verdict == stat.NoVerdict && whole[i].Verdict != stat.NoVerdict
			}
		}
		for i, v := range spec.Verdicts {
			if !seen[i] {
				t.Errorf("%s: %s: is given whatever size was reached", spec.Name, v.Says)
			}
		}
	}
	if grows == 0 {
		t.Error("no experiment grows")
	}
}

func TestEveryEmbeddedExperimentCanBePlannedInEverySize(t *testing.T) {
	for _, size := range []experiments.Size{experiments.SizeQuick, experiments.SizeDefault, experiments.SizeFull} {
		if _, err := Specs(nil, size, nil); err != nil {
			t.Errorf("size %s: %v", size, err)
		}
	}
}

// A pair is of one commit and one machine: what is missing is not filled in by
// another. What is complete needs nothing, and is only said to be from elsewhere.
func TestARunIsNotGoneOnWithByAnotherCommitOrMachine(t *testing.T) {
	for name, change := range map[string]func(*result.Environment){
		"commit: one ↔ two":              func(e *result.Environment) { e.Commit = "two" },
		"CPU: 2 × fake ↔ 2 × other":      func(e *result.Environment) { e.CPU = "other" },
		"cgroup memory.max:  ↔ 64000000": func(e *result.Environment) { e.Cgroup = map[string]string{"memory.max": "64000000"} },
	} {
		for _, complete := range []bool{false, true} {
			o := testOptions(t)
			env := result.Environment{CPUs: 2, CPU: "fake", Commit: "one", Load: "0.1"}
			o.Environment = func(context.Context, string, time.Time) result.Environment { return env }
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if !complete {
				o.RunCell = stopAfter(7, cancel)
			}
			first, err := Run(ctx, parse(t, testSpec), o)
			if complete == (err != nil) {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(filepath.Join(first.Dir, result.SamplesFile))
			change(&env)
			env.Load = "3.1"
			var said bytes.Buffer
			o.RunCell, o.Resume, o.Log = fakeCell, true, &said
			_, err = Run(t.Context(), parse(t, testSpec), o)
			after, _ := os.ReadFile(filepath.Join(first.Dir, result.SamplesFile))
			if !bytes.Equal(before, after) {
				t.Errorf("%s: samples were added to those of another", name)
			}
			if complete && (err != nil || !strings.Contains(said.String(), name)) {
				t.Errorf("%s: complete: %v, said:\n%s", name, err, &said)
			} else if !complete && (err == nil || !strings.Contains(err.Error(), name)) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
