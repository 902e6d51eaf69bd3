package workload

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// binary is the tidemark executable, built once for all tests of the package.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "tidemark-workload-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "tidemark")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/tidemark-log/tidemark/cmd/tidemark").CombinedOutput(); err != nil {
		panic(string(out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// quick is a small cell of a kind, with changes.
func quick(t *testing.T, kind Kind, changes ...string) Cell {
	t.Helper()
	p := DefaultParams()
	p.Kind, p.Warmup, p.Measure, p.DataBytes = kind, 20*time.Millisecond, 200*time.Millisecond, 8<<20
	c := Cell{Dir: t.TempDir(), Binary: binary, Seed: 1, Broker: map[string]string{}, Workload: p}
	for _, change := range changes {
		key, value, _ := strings.Cut(change, "=")
		if strings.Contains(key, ".") {
			c.Broker[key] = value
		} else if err := c.Workload.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func run(t *testing.T, c Cell) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := Run(ctx, c)
	if errors.Is(err, ErrNotPossible) {
		t.Skip(err)
	} else if err != nil {
		t.Fatalf("%s: %v", c.Workload.Kind, err)
	}
	for name, problem := range r.Checks {
		if problem != "" && name != "rate-sustained" { // that one is about the machine
			t.Errorf("%s: check %s: %s", c.Workload.Kind, name, problem)
		}
	}
	if left, _ := os.ReadDir(c.Dir); len(left) > 0 {
		t.Errorf("%s left %v in its scratch directory", c.Workload.Kind, left)
	}
	return r
}

func TestEveryKindGivesTheMetricsItPromises(t *testing.T) {
	cells := map[string]Cell{
		"produce raw":        quick(t, Produce),
		"produce kgo":        quick(t, Produce, "driver=kgo"),
		"produce acks=0":     quick(t, Produce, "acks=0"),
		"produce at a rate":  quick(t, Produce, "records_per_s=20000", "batch_records=10"),
		"consume warm":       quick(t, Consume),
		"consume cold":       quick(t, Consume, "cache_state=cold"),
		"consume restarted":  quick(t, Consume, "cache_state=restarted"),
		"consume kgo":        quick(t, Consume, "driver=kgo"),
		"end to end raw":     quick(t, EndToEnd, "records_per_s=2000", "batch_records=10"),
		"end to end kgo":     quick(t, EndToEnd, "records_per_s=2000", "driver=kgo"),
		"compression":        quick(t, Compression, "codec=zstd", "entropy=3"),
		"compression, link":  quick(t, Compression, "codec=lz4", "entropy=3", "link_bytes_per_s=20000000"),
		"device":             quick(t, Device, "chunk_bytes=4KiB", "access=random"),
		"growth":             quick(t, Growth, "batch_records=16", "record_bytes=1000"),
		"loss acks=1":        quick(t, Loss, "batch_records=10", "inflight=5"),
		"loss acks=0":        quick(t, Loss, "batch_records=10", "acks=0"),
		"recovery":           quick(t, Recovery, "unflushed_bytes=2MiB", "batch_records=20"),
		"idle, 20 to reopen": quick(t, Idle, "partitions=20"),
	}
	for name, c := range cells {
		t.Run(name, func(t *testing.T) {
			r := run(t, c)
			for _, metric := range MetricNames(c.Workload.Kind) {
				idle := c.Workload.Kind == Idle && (metric == "cpu-sec/GB" || metric == "copied-bytes/byte" || metric == "syscalls/MB")
				noWindow := c.Workload.Kind == Recovery && !strings.HasSuffix(metric, "-sec") && !strings.HasPrefix(metric, "index") && metric != "log-bytes"
				if _, ok := r.Metrics[metric]; !ok && !idle && !noWindow {
					t.Errorf("metric %s is missing", metric)
				}
			}
			for _, w := range r.Warnings {
				t.Log(w)
			}
		})
	}
}
