package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAWrongCommandLineFailsAndSaysHowToPutItRight(t *testing.T) {
	for _, c := range []struct{ line, says string }{
		{"log foo", `unknown command "foo" for "tidemark log"; see tidemark log --help`},
		{"topic foo", "see tidemark topic --help"},
		{"sim sweeep", "see tidemark sim --help"},
		{"log diff one", "usage: tidemark log diff DIR DIR… [flags]"},
		{"run", "usage: tidemark run FILE|NAME… [flags]"},
		{"compare one", "usage: tidemark compare RUN RUN [flags]"},
		{"sim run B1 B2", "usage: tidemark sim run SCENARIO|--seed N [flags]"},
		{"sim run B99", `no scenario "B99"`},
		{"sim run C14", "C14, Foreign id in the ISR, has no scenario: "},
		{"sim run absent.toml", "scenario absent.toml: no such file or directory"},
		{"sim run B1 --seed 3", "--seed: has no meaning for a scenario"},
		{"sim run --seed 3 --fixed-only", "--fixed-only: has no meaning for a seed"},
		{"sim run B1 --vector-only --fixed-only", "--vector-only and --fixed-only: choose one"},
		{"sim run chaos-kills --vector-only", "chaos-kills has no vector"},
		{"sim run --seed 3 --unclean --retention", "--unclean and --retention: choose one"},
		{"sim sweep --unclean --brokers 0", "--unclean: a broker alone elects nobody"},
		{"sim run --seed 3 --brokers 0 --save x.toml", "--save: a broker alone is its seed"},
		{"sim replay absent.toml", "absent.toml: no such file or directory"},
		{"sim replay usage_test.go", "usage_test.go: it is no trace that can be read, line 1: "},
		{"sim shrink absent.toml --runs-max 0", "--runs-max 0: want at least 1"},
		{"sim catalogue Z1", `no entry "Z1": there are A1, A2,`},
		{"sim run --seed x", "see tidemark sim run --help"},
		{"run batch-size --quik", "see tidemark run --help"},
		{"run batch-size --quick --full", "--quick and --full: choose one"},
		{"limits --repeats 0", "--repeats 0: want at least 1"},
		{"bench produce --duration 5", "--duration 5: must be a duration like 500ms or 3s"},
		{"bench consume --fetch-bytes 1GB", "--fetch-bytes 1GB: must be a whole number, like 65536 or 64KiB"},
		{"bench ceiling --repeats 0", "--repeats 0: want at least 1"},
		{"bench ceiling --disk-rate fast", "--disk-rate fast: must be a whole number"},
		{"bench ceiling --disk-rate 100", "--disk-rate 100: must be at least 1MiB"},
		{"bench ceiling --disk-rate 1GiB --dir /dev/shm", "lies on no block device"},
	} {
		root := rootCommand()
		root.SetArgs(strings.Fields(c.line))
		err := root.ExecuteContext(context.Background())
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("tidemark %s: %v, and not one line that says %q", c.line, err, c.says)
		}
	}
}

func TestResultsThatCannotBeWrittenAreRefusedOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := tidemark(patient(t), "reproduce", "--quick", "--out", filepath.Join(file, "results")).CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "--out") {
		t.Errorf("%v, and not one line that names --out:\n%s", err, out)
	}
}

func TestASweepThatIsInterruptedFailsAndSaysHowFarItCame(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	root := rootCommand()
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	root.SetArgs([]string{"sim", "sweep", "--seeds", "1-6"})
	if err := root.ExecuteContext(ctx); err == nil || err.Error() != "stopped after 1 of 6 seeds" {
		t.Errorf("%v", err)
	}
}

func TestBenchSaysWhichLatencyIsOfDeliveryWhereItMeasuresBoth(t *testing.T) {
	for _, c := range []struct {
		metrics map[string]float64
		says    string
	}{
		{map[string]float64{"p50-sec": 0.002}, "latency p50                 2.000 ms\n"},
		{map[string]float64{"p50-sec": 0.002, "ack-p50-sec": 0.001}, "acknowledged, p50           1.000 ms\ndelivered, p50              2.000 ms\n"},
	} {
		var out strings.Builder
		if printMetrics(&out, c.metrics); out.String() != c.says {
			t.Errorf("got\n%swant\n%s", out.String(), c.says)
		}
	}
}

func TestMillisecondsAreWrittenOut(t *testing.T) {
	for v, want := range map[float64]string{1: "1000 ms", 1.5: "1500 ms", 0.1: "100 ms", 0.0213: "21.3 ms"} {
		if got := quantity(v, "sec"); got != want {
			t.Errorf("%g s: %q, want %q", v, got, want)
		}
	}
}
