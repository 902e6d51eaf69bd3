package result

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/perf/benchfmt"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/stat"
)

func spec(t *testing.T, text string) *experiments.Spec {
	t.Helper()
	s, err := experiments.Parse("a-test", []byte("question = \"q\"\nprediction = \"p\"\nclaims = [\"C7\"]\nworkload = { kind = \"produce\" }\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const twoFactors = `vary = { acks = ["0", "1"], linger_ms = [0, 5] }
[[verdicts]]
claim = "C7"
test = "ratio(m, acks=0 / acks=1) > 2"
`

// A factor that the test does not name is averaged over, geometrically, within each repeat.
func TestAVerdictsRatioAveragesOverFactorsThatItDoesNotName(t *testing.T) {
	var samples []Sample
	for repeat := range 8 {
		drift := math.Pow(3, float64(repeat)) // of the machine: a pair shares it
		for cell, v := range map[string]float64{"acks=0/linger_ms=0": 4, "acks=1/linger_ms=0": 1, "acks=0/linger_ms=5": 18, "acks=1/linger_ms=5": 2} {
			samples = append(samples, Sample{Repeat: repeat, Cell: cell, Metrics: map[string]float64{"m": v * drift}})
		}
	}
	s, err := Summarize(spec(t, twoFactors), experiments.SizeDefault, samples)
	if err != nil {
		t.Fatal(err)
	}
	if e := s.Verdicts[0].Ratio.Estimate(); math.Abs(e.Value-6) > 1e-9 || e.N != 8 || s.Verdicts[0].Verdict != stat.Supported {
		t.Errorf("ratio %+v %s, want √(4·9) = 6 from 8 repeats", e, s.Verdicts[0].Verdict)
	}
}

// Pairing across repeats would drown the ratio in the drift.
func TestARepeatWithoutItsPartnerIsNotPairedWithAnother(t *testing.T) {
	one := strings.Replace(twoFactors, ", linger_ms = [0, 5]", "", 1)
	s, err := Summarize(spec(t, one), experiments.SizeDefault, []Sample{
		{Repeat: 0, Cell: "acks=0", Metrics: map[string]float64{"m": 100}},
		{Repeat: 1, Cell: "acks=1", Metrics: map[string]float64{"m": 1}},
		{Repeat: 2, Cell: "acks=0", Metrics: map[string]float64{"m": 3}},
		{Repeat: 2, Cell: "acks=1", Metrics: map[string]float64{"m": 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if e := s.Verdicts[0].Ratio.Estimate(); e.N != 1 || math.Abs(e.Value-3) > 1e-9 {
		t.Errorf("ratio %+v, want 3 from one repeat", e)
	}
}

// A repeat in which one of two pairs is missing would give the other's ratio, which is not their mean.
// A pair that the machine cannot run at all is left out of every repeat.
func TestARepeatThatLacksAPairIsLeftOutAndAPairThatCannotRunIsNotMissed(t *testing.T) {
	sample := func(repeat int, cell string, m float64) Sample {
		return Sample{Repeat: repeat, Cell: cell, Metrics: map[string]float64{"m": m}}
	}
	samples := []Sample{
		sample(0, "acks=0/linger_ms=0", 4), sample(0, "acks=1/linger_ms=0", 1), sample(0, "acks=0/linger_ms=5", 9), sample(0, "acks=1/linger_ms=5", 1),
		sample(1, "acks=0/linger_ms=0", 4), sample(1, "acks=1/linger_ms=0", 1), sample(1, "acks=0/linger_ms=5", 9), {Repeat: 1, Cell: "acks=1/linger_ms=5", Error: "broke"},
	}
	s, err := Summarize(spec(t, twoFactors), experiments.SizeDefault, samples)
	if err != nil {
		t.Fatal(err)
	}
	if e := s.Verdicts[0].Ratio.Estimate(); e.N != 1 || math.Abs(e.Value-6) > 1e-9 {
		t.Errorf("ratio %+v, want 6 from the whole repeat alone", e)
	}
	samples[7] = Sample{Repeat: 1, Cell: "acks=1/linger_ms=5", NotPossible: "no cgroup"}
	if s, err = Summarize(spec(t, twoFactors), experiments.SizeDefault, samples); err != nil {
		t.Fatal(err)
	}
	if e := s.Verdicts[0].Ratio.Estimate(); e.N != 2 || math.Abs(e.Value-4) > 1e-9 {
		t.Errorf("ratio %+v, want 4 from both repeats", e)
	}
}

func TestALaterSampleOfARepeatReplacesAnEarlierOne(t *testing.T) {
	s, err := Summarize(spec(t, twoFactors), experiments.SizeDefault, []Sample{
		{Cell: "acks=0/linger_ms=0", Error: "did not start"},
		{Cell: "acks=0/linger_ms=0", Metrics: map[string]float64{"m": 3}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Failures) != 0 || *s.Cells[0].Metrics["m"].Value != 3 {
		t.Errorf("%+v", s)
	}
}

func TestASummaryIsJSONAlsoWhereThereIsNoNumber(t *testing.T) {
	s, err := Summarize(spec(t, twoFactors), experiments.SizeDefault, []Sample{{Cell: "acks=0/linger_ms=0", Metrics: map[string]float64{"m": 0}}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"ratio":{"value":null,"n":0}`) {
		t.Errorf("%s", text)
	}
}

func TestATornLastLineIsCutAtEveryLength(t *testing.T) {
	name := filepath.Join(t.TempDir(), SamplesFile)
	if err := os.WriteFile(name, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w, _, err := AppendSamples(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := w.Append(Sample{Repeat: i, Cell: "c", Started: time.Unix(0, 0).UTC(), Metrics: map[string]float64{"m": 1.5}}); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	text, _ := os.ReadFile(name)
	line := len(text) / 3
	for size := 0; size <= len(text); size++ {
		if err := os.WriteFile(name, text[:size], 0o644); err != nil {
			t.Fatal(err)
		}
		w, samples, err := AppendSamples(name)
		if err != nil || len(samples) != size/line {
			t.Fatalf("%d bytes: %d samples, %v", size, len(samples), err)
		}
		for i := len(samples); i < 3; i++ {
			if err := w.Append(Sample{Repeat: i, Cell: "c", Started: time.Unix(0, 0).UTC(), Metrics: map[string]float64{"m": 1.5}}); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		if again, _ := os.ReadFile(name); string(again) != string(text) {
			t.Fatalf("%d bytes: the file did not become whole again:\n%s", size, again)
		}
	}
}

// A sample shorter than what is left of a torn line must not end in the rest of it.
func TestATornLongLineLeavesNothingBehindAShortOne(t *testing.T) {
	name := filepath.Join(t.TempDir(), SamplesFile)
	if err := os.WriteFile(name, []byte(`{"repeat":0,"cell":"`+strings.Repeat("x", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	w, _, err := AppendSamples(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(Sample{Cell: "c"}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if samples, _, err := ReadSamples(name); err != nil || len(samples) != 1 {
		t.Errorf("%d samples, %v", len(samples), err)
	}
	if text, _ := os.ReadFile(name); strings.Contains(string(text), "x") {
		t.Errorf("the torn line is still there: %s", text)
	}
}

func TestBenchstatsParserReadsBenchLines(t *testing.T) {
	env := Environment{GOOS: "linux", GOARCH: "amd64", CPU: "Some CPU", CPUs: 2, Commit: "abc"}
	text := Bench(spec(t, twoFactors), env, []Sample{
		{Cell: "acks=0/linger_ms=5", Metrics: map[string]float64{"p99-sec": 0.00123, "bytes/s": 1.5e9}},
		{Cell: "acks=1/linger_ms=5", Error: "no"},
	})
	r := benchfmt.NewReader(strings.NewReader(text), "bench.txt")
	found := 0
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.Result:
			found++
			if got := string(rec.Name.Full()); got != "ATest/acks=0/linger_ms=5" {
				t.Errorf("name %s", got)
			}
			if v, ok := rec.Value("p99-sec"); !ok || v != 0.00123 {
				t.Errorf("p99-sec %v %v", v, ok)
			}
			if rec.GetConfig("commit") != "abc" || rec.GetConfig("machine") == "" {
				t.Errorf("config lines are missing: %v", rec.Config)
			}
		case *benchfmt.SyntaxError:
			t.Error(rec)
		}
	}
	if found != 1 {
		t.Errorf("%d results, want 1:\n%s", found, text)
	}
}

func TestAPlanIsReadAsItWasWritten(t *testing.T) {
	p := Plan{Experiment: "a-test", Size: experiments.SizeQuick, Set: []string{"acks=1", "a.b=c: d"}, Command: "tidemark run a-test --quick"}
	got, err := parsePlan(p.text())
	if err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := parsePlan("tidemark run\n\nwhat: ever\n"); err == nil {
		t.Error("an unknown line was accepted")
	}
}

func TestAPlanSaysHowItIsRunAlone(t *testing.T) {
	for want, p := range map[string]Plan{
		"tidemark run flush":                             {Size: experiments.SizeDefault, Command: "tidemark reproduce --out results"},
		"tidemark run flush --quick":                     {Size: experiments.SizeQuick, Command: "tidemark reproduce --quick"},
		"tidemark run flush --full --set 'acks=a b'":     {Size: experiments.SizeFull, Set: []string{"acks=a b"}, Command: "tidemark reproduce --full --set 'acks=a b'"},
		"tidemark run flush.toml --set acks=1 --set x=y": {Size: experiments.SizeDefault, Set: []string{"acks=1", "x=y"}, Command: "tidemark run ../mine/flush.toml --set acks=1 --set x=y"},
	} {
		p.Experiment = "flush"
		if got := p.Alone(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestLatencyLogsKeepEachRepeatAndTheLastOfTwo(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, LatencyDir), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, v := range []int64{100, 200, 300} {
		h := hdrhistogram.New(1, 1e6, 3)
		_ = h.RecordValue(v)
		s := Sample{Repeat: min(i, 1), Cell: "acks=0/path=../../x", Started: time.Unix(1000, 0), Seconds: 1}
		if err := AppendLatency(dir, s, map[string]*hdrhistogram.Histogram{"produce": h}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := ReadLatency(dir, "acks=0/path=../../x")
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	for tag, want := range map[string]int64{"produce.r0": 100, "produce.r1": 300} {
		if got := all[tag].Max(); got < want || got > want+1 {
			t.Errorf("%s: %d, want %d", tag, got, want)
		}
	}
}

func TestASampleKeepsNoNumberThatJSONCannotHold(t *testing.T) {
	s := Sample{Metrics: map[string]float64{"a": math.NaN(), "b": math.Inf(1), "c": 1}}
	s.Clean()
	if len(s.Metrics) != 1 || len(s.Warnings) != 2 {
		t.Errorf("%+v", s)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}

func TestABusyMachineIsSaidToBeBusy(t *testing.T) {
	for load, busy := range map[string]bool{"": false, "0.10 0.2 0.3 1/100 5": false, "4.9 1 1 1/2 3": false, "17.26 15.16 11.79 19/214 26478": true} {
		if got := (Environment{Load: load, CPUs: 2}).Busy(); (got != "") != busy {
			t.Errorf("load %q: %q", load, got)
		}
	}
}

func TestTheEnvironmentNamesWhatMatters(t *testing.T) {
	e := ReadEnvironment(t.Context(), t.TempDir(), time.Now())
	if e.Kernel == "" || e.CPUs < 1 || e.Memory <= 0 || e.FS == "" || e.Commit == "" || e.Settings["vm.dirty_ratio"] == "" || e.Settings["free_page_reporting"] == "" {
		t.Errorf("%+v", e)
	}
	host, err := os.Hostname()
	text := fmt.Sprintf("%+v", e)
	if err == nil && len(host) > 3 && strings.Contains(text, host) {
		t.Error("the host's name is in the environment")
	}
	if d := e.Differences(e); len(d) != 0 {
		t.Errorf("it differs from itself: %v", d)
	}
}

// One sample that breaks what must never be refutes it, in whichever repeat and cell it is; one that is missing supports nothing.
func TestWhatMustNeverBeIsRefutedByOneSample(t *testing.T) {
	spec, err := experiments.Parse("t", []byte(`question = "q"
prediction = "p"
claims = ["C15"]
workload = { kind = "leader-kill" }
vary = { acks = ["1", "all"], idempotence = [true, false] }
[[verdicts]]
claim = "C15"
test = "every(lost where acks=all) <= 0"
`))
	if err != nil {
		t.Fatal(err)
	}
	cells, _, err := spec.Cells()
	if err != nil {
		t.Fatal(err)
	}
	verdict := func(size experiments.Size, repeats int, change func(*Sample)) VerdictSummary {
		var samples []Sample
		for repeat := range repeats {
			for _, c := range cells {
				s := Sample{Repeat: repeat, Cell: c.Name(), Metrics: map[string]float64{"lost": 0}}
				if c.Level("acks") == "1" {
					s.Metrics["lost"] = 5 // not asked for
				}
				change(&s)
				samples = append(samples, s)
			}
		}
		sum, err := Summarize(spec, size, samples)
		if err != nil {
			t.Fatal(err)
		}
		return sum.Verdicts[0]
	}
	at := func(repeat int, f func(*Sample)) func(*Sample) {
		return func(s *Sample) {
			if s.Repeat == repeat && s.Cell == "acks=all/idempotence=false" {
				f(s)
			}
		}
	}
	nothing := func(*Sample) {}
	lose := func(s *Sample) { s.Metrics["lost"] = 1 }
	for name, c := range map[string]struct {
		got  VerdictSummary
		want stat.Verdict
		n    int
	}{
		"kept":               {verdict(experiments.SizeDefault, 8, nothing), stat.Supported, 8},
		"kept, quick":        {verdict(experiments.SizeQuick, 8, nothing), stat.NoVerdict, 8},
		"too few":            {verdict(experiments.SizeDefault, 7, nothing), stat.NoVerdict, 7},
		"broken once":        {verdict(experiments.SizeDefault, 8, at(3, lose)), stat.Refuted, 8},
		"broken among few":   {verdict(experiments.SizeDefault, 2, at(1, lose)), stat.Refuted, 2},
		"one gave no number": {verdict(experiments.SizeDefault, 8, at(0, func(s *Sample) { s.Error = "x" })), stat.NoVerdict, 7},
		"one lacks it":       {verdict(experiments.SizeDefault, 8, at(7, func(s *Sample) { delete(s.Metrics, "lost") })), stat.NoVerdict, 7},
	} {
		if c.got.Verdict != c.want || c.got.Ratio.N != c.n {
			t.Errorf("%s: %s over %d repeats, want %s over %d", name, c.got.Verdict, c.got.Ratio.N, c.want, c.n)
		}
	}
}
