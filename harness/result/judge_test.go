package result

import (
	"testing"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/stat"
)

const everyCopy = `vary = { acks = ["0", "1"] }
check = ["no-acked-record-lost"]
[[verdicts]]
claim = "C7"
test = "every(lost) <= 0"
`

// lossless gives a sample of both cells in each of so many repeats, with nothing lost.
func lossless(repeats int) (all []Sample) {
	for repeat := range repeats {
		for _, cell := range []string{"acks=0", "acks=1"} {
			all = append(all, Sample{Repeat: repeat, Cell: cell, Metrics: map[string]float64{"lost": 0}, Checks: map[string]string{"no-acked-record-lost": ""}})
		}
	}
	return all
}

// A sample that breaks the test refutes it, whatever became of the other cells of its
// repeat and whether or not the sample's own check saw the same.
func TestASampleThatBreaksATestIsSeenBesideOneThatFailed(t *testing.T) {
	for name, spoil := range map[string]func(first, second *Sample){
		"after a cell that failed": func(first, second *Sample) {
			first.Error, first.Metrics = "did not start", nil
			second.Metrics["lost"] = 5
		},
		"after a cell without the metric": func(first, second *Sample) {
			delete(first.Metrics, "lost")
			second.Metrics["lost"] = 5
		},
		"when its own check failed": func(_, second *Sample) {
			second.Metrics["lost"], second.Checks["no-acked-record-lost"] = 5, "5 of 100 are gone"
		},
	} {
		samples := lossless(9)
		spoil(&samples[2*4], &samples[2*4+1])
		s, err := Summarize(spec(t, everyCopy), experiments.SizeDefault, samples)
		if err != nil {
			t.Fatal(err)
		}
		if v := s.Verdicts[0]; v.Verdict != stat.Refuted || *v.Ratio.Value != 5 || v.Ratio.N != 8 {
			t.Errorf("%s: %s, %v in %d repeats, want refuted by 5 with 8 whole repeats", name, v.Verdict, *v.Ratio.Value, v.Ratio.N)
		}
	}
}

// Zero over something is a ratio too, if one without a logarithm: to leave such
// repeats out and judge by the others would be to choose among the outcomes.
func TestRepeatsWithoutALogRatioAreNotJudgedByTheOthers(t *testing.T) {
	one := `vary = { acks = ["0", "1"] }
[[verdicts]]
claim = "C7"
test = "ratio(m, acks=0 / acks=1) > 2"
`
	var samples []Sample
	for repeat := range 12 {
		m := 4.0
		if repeat < 4 {
			m = 0
		}
		samples = append(samples, Sample{Repeat: repeat, Cell: "acks=0", Metrics: map[string]float64{"m": m}}, Sample{Repeat: repeat, Cell: "acks=1", Metrics: map[string]float64{"m": 1}})
	}
	s, err := Summarize(spec(t, one), experiments.SizeDefault, samples)
	if err != nil {
		t.Fatal(err)
	}
	if v := s.Verdicts[0]; v.Verdict != stat.NoVerdict || v.Ratio.N != 8 || len(v.Warnings) != 1 || v.Warnings[0] != (stat.Warning{Kind: stat.NotPositive, Count: 4}) {
		t.Errorf("%+v, want no verdict and 4 left out", v)
	}
}

// A warning says in how many repeats something happened: not once more for every pair that a cell is in.
func TestWarningsCountRepeatsAndNotPairs(t *testing.T) {
	const three = `vary = { acks = ["0", "1"], linger_ms = [0, 5, 9] }
check = ["whole"]
[[verdicts]]
claim = "C7"
test = "ratio(m, acks=0 / acks=1) > 2"
`
	var samples []Sample
	for repeat := range 10 {
		for _, linger := range []string{"0", "5", "9"} {
			for _, acks := range []string{"0", "1"} {
				s := Sample{Repeat: repeat, Cell: "acks=" + acks + "/linger_ms=" + linger, Metrics: map[string]float64{"m": 1}, Throttled: repeat == 3}
				if repeat == 7 {
					s.Checks = map[string]string{"whole": "torn"}
				}
				samples = append(samples, s)
			}
		}
	}
	s, err := Summarize(spec(t, three), experiments.SizeDefault, samples)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range s.Verdicts[0].Warnings {
		if w.Count != 1 {
			t.Errorf("%s: want one repeat", w)
		}
	}
	if len(s.Verdicts[0].Warnings) != 2 || s.Verdicts[0].Verdict != stat.NoVerdict {
		t.Errorf("%+v", s.Verdicts[0])
	}
}

// The figure beside a verdict shows the cells that the verdict is about, or there is none.
func TestAVerdictsFigureShowsItsCells(t *testing.T) {
	const figures = `vary = { acks = ["0", "1"], inflight = [1, 5] }
[[verdicts]]
claim = "C7"
test = "ratio(records/s, acks=0 / acks=1 where inflight=5) < 2"
[[verdicts]]
claim = "C7"
test = "ratio(p99-sec, acks=0 / acks=1 where inflight=1) < 2"
[[verdicts]]
claim = "C7"
test = "ratio(p99-sec, inflight=5 / inflight=1 where acks=1) < 2"
[[figures]]
name = "one"
metric = "bytes/s"
x = "acks"
kind = "bars"
where = { inflight = 1 }
[[figures]]
name = "five"
metric = "bytes/s"
x = "acks"
kind = "bars"
where = { inflight = 5 }
`
	s, err := Summarize(spec(t, figures), experiments.SizeDefault, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"five", "one", ""} {
		if got := s.Verdicts[i].Figure; got != want {
			t.Errorf("%s: figure %q, want %q", s.Verdicts[i].Test, got, want)
		}
	}
}
