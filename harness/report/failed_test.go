package report

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/result"
)

// spoil lets samples of a run fail a check of its experiment, with a number that would stand out.
func spoil(t *testing.T, dir, check, metric string, v float64, which func(result.Sample) bool) {
	t.Helper()
	name := filepath.Join(dir, result.SamplesFile)
	samples, _, err := result.ReadSamples(name)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, s := range samples {
		if which(s) {
			s.Checks, s.Metrics[metric] = map[string]string{check: "it did not hold"}, v
		}
		line, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(line, '\n'))
	}
	if err := os.WriteFile(name, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A sample that failed a check is left out of every estimate: those of a comparison of
// runs, the rings of a figure and what benchstat reads as well as the summary's.
func TestASampleThatFailedACheckCountsNowhere(t *testing.T) {
	const odd = 123456789
	a := writeRun(t, t.TempDir(), "follower-reads", experiments.SizeDefault, 12, flat)
	b := writeRun(t, t.TempDir(), "follower-reads", experiments.SizeDefault, 12, flat)
	spoil(t, b, "offsets-contiguous", "bytes/s", odd, func(s result.Sample) bool { return s.Repeat%2 == 0 })
	for _, paired := range []bool{false, true} {
		c, err := Compare(a, b, paired)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range c.Rows {
			if e := r.Ratio.Estimate(); math.Abs(e.Value-1) > 0.02 || e.N != 6 {
				t.Errorf("paired %v: %s %s: %v, want 1 from the 6 repeats that count", paired, r.Cell, r.Metric, e)
			}
		}
	}
	if _, err := Write(b); err != nil {
		t.Fatal(err)
	}
	bench, err := os.ReadFile(filepath.Join(b, result.BenchFile))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(bench), "1.2345679e+08") {
		t.Error("bench.txt holds a sample that failed a check")
	}
	r, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range r.values(r.summary.Cells[0].Cell, "bytes/s") {
		if v == odd {
			t.Error("a figure's rings hold a sample that failed a check")
		}
	}
}

// remake changes how a run was asked for, and drops its last samples.
func remake(t *testing.T, dir string, drop int, command func(string) string) {
	t.Helper()
	for name, change := range map[string]func(string) string{
		result.CommandFile: command,
		result.SamplesFile: func(text string) string {
			lines := strings.SplitAfter(text, "\n")
			return strings.Join(lines[:len(lines)-1-drop], "")
		},
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(change(string(text))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Write(dir); err != nil {
		t.Fatal(err)
	}
}

// The claims stand on whole runs of the experiments as they are: not on a newer one that was
// quick, had a setting changed or was stopped when its numbers looked well.
func TestClaimsStandOnWholeRunsAsTheExperimentsAre(t *testing.T) {
	same := func(s string) string { return s }
	for name, spoiled := range map[string]func(root string) string{
		"stopped": func(root string) string {
			dir := writeRun(t, root, "batch-size", experiments.SizeDefault, 11, flat)
			remake(t, dir, 2*11, same) // two repeats and two samples less than the 10 that were asked for
			return dir
		},
		"with a setting": func(root string) string {
			dir := writeRun(t, root, "batch-size", experiments.SizeDefault, 11, flat)
			remake(t, dir, 0, func(s string) string { return s + "set: acks=1\n" })
			return dir
		},
		"quick": func(root string) string { return writeRun(t, root, "batch-size", experiments.SizeQuick, 11, flat) },
	} {
		root := t.TempDir()
		whole := writeRun(t, root, "batch-size", experiments.SizeDefault, 10, batches)
		bad := spoiled(root)
		r, err := read(bad)
		if err != nil {
			t.Fatal(err)
		}
		if said := strings.Join(r.summary.Warnings, " "); name == "stopped" && !strings.Contains(said, "12 samples are missing") {
			t.Errorf("%s: the report says %q", name, said)
		}
		runs, err := newest(root)
		if err != nil || len(runs) != 1 || runs[0].dir != whole {
			t.Errorf("%s: the paper's claims stand on %v, %v", name, runs, err)
		}
		if got := WithOthers(root, nil); len(got) != 1 || got[0] != whole {
			t.Errorf("%s: the page shows %q, want %q", name, got, whole)
		}
		if size := r.sizeText(); name == "with a setting" && !strings.Contains(size, "acks=1") {
			t.Errorf("the page calls it %q", size)
		}
	}
}

// A reader must see where and by which commit each row was measured, where that was not one place for all.
func TestThePaperSaysWhereEachExperimentWasMeasured(t *testing.T) {
	root := t.TempDir()
	writeRun(t, root, "batch-size", experiments.SizeDefault, 10, batches)
	other := writeRun(t, root, "sendfile", experiments.SizeDefault, 10, flat)
	elsewhere := env
	elsewhere.CPU, elsewhere.Commit = "Other CPU", "ba9876543210-dirty"
	if err := result.WriteJSON(filepath.Join(other, result.EnvironmentFile), elsewhere); err != nil {
		t.Fatal(err)
	}
	paper := filepath.Join(root, "PAPER.md")
	if err := os.WriteFile(paper, []byte(paperText), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WritePaper(paper, root); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(paper)
	for _, want := range []string{"\n- batch-size: commit 0123456789ab, 2 × Some CPU", "\n- sendfile: commit ba9876543210-dirty, 2 × Other CPU"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the paper does not say %q:\n%s", want, text)
		}
	}
}

// A disk that fills while a file is written leaves the file that was there: PAPER.md holds prose that nothing makes again.
func TestWhatIsWrittenAgainIsReplacedWholeOrNotAtAll(t *testing.T) {
	root := t.TempDir()
	dir := writeRun(t, root, "batch-size", experiments.SizeDefault, 10, batches)
	paper := filepath.Join(root, "PAPER.md")
	if err := os.WriteFile(paper, []byte(paperText), 0o640); err != nil {
		t.Fatal(err)
	}
	again := map[string]func() error{paper: func() error { return WritePaper(paper, root) }}
	for _, name := range []string{result.SummaryFile, result.BenchFile, result.ReportFile, result.PageFile, "throughput.svg", "throughput.png"} {
		again[filepath.Join(dir, name)] = func() error { _, err := Write(dir); return err }
	}
	for name, write := range again {
		before, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		old, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer old.Close()
		first, _ := old.Stat()
		if err := write(); err != nil {
			t.Fatal(err)
		}
		now, err := os.Stat(name)
		if err != nil || os.SameFile(first, now) || now.Mode() != first.Mode() {
			t.Errorf("%s was written in place, or its mode changed: %v", name, err)
		}
		kept, err := io.ReadAll(old)
		if err != nil || !bytes.Equal(kept, before) {
			t.Errorf("%s: what was there changed under its reader", name)
		}
	}
	left, err := filepath.Glob(filepath.Join(root, "*", "*", ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
