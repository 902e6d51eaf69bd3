package report

import (
	"bytes"
	"encoding/json"
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
