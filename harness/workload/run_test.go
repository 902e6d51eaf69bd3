package workload

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/internal/need"
	"time"

	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/harness/sut"
	"github.com/tidemark-log/tidemark/storage/record"
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

// rackReadHasNot says which metrics only the other of its two loads has.
func rackReadHasNot(tail bool, metric string) bool {
	if tail {
		return metric == "busiest-share"
	}
	return strings.HasPrefix(metric, "near-") || strings.HasPrefix(metric, "ack-")
}

// onCluster runs a cell on three brokers.
func onCluster(c Cell) Cell {
	c.Workload.Brokers = 3
	return c
}

func run(t *testing.T, c Cell) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := Run(ctx, c)
	if errors.Is(err, ErrNotPossible) {
		need.Skip(t, "cgroup", err.Error())
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
		"produce, cluster":   onCluster(quick(t, Produce, "acks=all", "partitions=4", "replication_factor=3", "min.insync.replicas=3")),
		"leader kill":        onCluster(quick(t, LeaderKill, "acks=all", "replication_factor=3", "min.insync.replicas=2", "records_per_s=500", "measure=10s", "zookeeper.session.timeout.ms=4000")),
		"failover":           onCluster(quick(t, Failover, "partitions=20", "replication_factor=3", "victim=controller", "zookeeper.session.timeout.ms=4000")),
		"read in racks":      onCluster(quick(t, RackRead, "replication_factor=3", "lab.read.from=follower")),
		"tail in racks":      onCluster(quick(t, RackRead, "replication_factor=3", "lab.read.from=follower", "records_per_s=2000")),
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
				if _, ok := r.Metrics[metric]; !ok && c.Workload.Kind == RackRead && rackReadHasNot(c.Workload.RecordsPerS > 0, metric) {
					continue
				} else if !ok {
					t.Errorf("metric %s is missing", metric)
				}
			}
			if c.Workload.Kind == Consume && c.Workload.Driver == "kgo" && (r.Metrics["payload-bytes/s"] <= 0 || r.Metrics["bytes/s"] < 1.02*r.Metrics["payload-bytes/s"]) {
				t.Errorf("batches of %v B/s with values of %v B/s", r.Metrics["bytes/s"], r.Metrics["payload-bytes/s"])
			}
			for check := range r.Checks {
				if !slices.Contains(CheckNames(c.Workload.Kind), check) {
					t.Errorf("check %s is made and not promised", check)
				}
			}
			for _, check := range CheckNames(c.Workload.Kind) {
				if _, ok := r.Checks[check]; !ok && !checkIsNotFor(&c.Workload, check) {
					t.Errorf("check %s is missing", check)
				}
			}
			for _, w := range r.Warnings {
				t.Log(w)
			}
		})
	}
}

// checkIsNotFor says of a check that its kind does not make it for this cell.
func checkIsNotFor(p *Params, check string) bool {
	switch check {
	case "rate-sustained":
		return p.RecordsPerS == 0
	case "counts-match":
		return p.CacheState == Warm
	}
	return check == "offsets-contiguous" && p.Kind != Loss && p.Acks == "0"
}

func TestBenchDrivesABrokerThatRunsAlready(t *testing.T) {
	b, err := sut.StartBroker(t.Context(), sut.BrokerSpec{Binary: binary, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Kill()
	bench := func(kind Kind, driver string) Result {
		c := quick(t, kind, "records_per_s=2000", "driver="+driver, "partitions=3")
		r, err := Bench{Bootstrap: []string{b.Addr}, Topic: "bench", Workload: c.Workload}.Run(t.Context())
		if err != nil {
			t.Fatalf("%s %s: %v", kind, driver, err)
		}
		return r
	}
	if _, err := (Bench{Bootstrap: []string{b.Addr}, Topic: "bench", Workload: quick(t, Consume).Workload}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("consuming a topic that is not there: %v", err)
	}
	for _, driver := range []string{"kgo", "raw"} {
		if m := bench(Produce, driver).Metrics; m["records/s"] <= 0 {
			t.Errorf("%s: %v", driver, m)
		}
		m := bench(Consume, driver).Metrics
		if m["records/s"] <= 0 {
			t.Errorf("%s: %v", driver, m)
		}
		// What a driver counts, values or whole batches, is under its own name.
		counts, other := "bytes/s", "payload-bytes/s"
		if driver == "kgo" {
			counts, other = other, counts
		}
		if _, both := m[other]; both || m[counts] <= 0 {
			t.Errorf("%s: want %s and no %s: %v", driver, counts, other, m)
		}
	}
	if m := bench(EndToEnd, "kgo").Metrics; m["p50-sec"] <= 0 || m["ack-p50-sec"] <= 0 {
		t.Errorf("%v", m)
	}
}

// The data of a run that was killed must not become part of the next.
func TestWhatAKilledRunLeftIsNotFoundAgain(t *testing.T) {
	c := quick(t, Consume, "cache_state=cold", "data_bytes=2MiB")
	b, err := sut.StartBroker(t.Context(), sut.BrokerSpec{Binary: binary, Dir: filepath.Join(c.Dir, "cell")})
	if err != nil {
		t.Fatal(err)
	}
	left := &bed{c: &c, p: &c.Workload, r: &Result{}, topic: topic, broker: b}
	if err := left.createTopic(t.Context(), topic, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := left.fill(t.Context(), 1<<20); err != nil {
		t.Fatal(err)
	}
	b.Kill()
	run(t, c)
}

// A lost batch must be found: what is not read back stays on the ledger.
func TestLedgerMissesABatchThatIsGoneOrChanged(t *testing.T) {
	batches, err := load.BatchSpec{RecordBytes: 50, BatchRecords: 10, Codec: "none", Entropy: 8, Timestamp: 1}.Prepare(2)
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger(batches, 1)
	for i := range 4 {
		l.onSent(0, i%2)
		l.onAck(0, i%2, int64(10*i))
	}
	read := func(base int64, batch []byte) {
		b := append([]byte(nil), batch...)
		record.SetBaseOffset(b, base)
		l.found(0, record.ReadHeader(b), b)
	}
	read(0, batches[0].Bytes)
	read(10, batches[1].Bytes)
	read(20, batches[1].Bytes) // not what was acknowledged there
	if l.lost() != 20 || l.ackedN != 40 || l.sent != 40 {
		t.Errorf("lost %d of %d acknowledged, %d sent; want 20 of 40 of 40", l.lost(), l.ackedN, l.sent)
	}
}

func TestACancelledCellLeavesNoProcessBehind(t *testing.T) {
	c := quick(t, Produce, "measure=1h", "data_bytes=1GiB", "records_per_s=1000", "batch_records=10")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Progress = func(what string) {
		if strings.HasPrefix(what, "measuring") {
			cancel()
		}
	}
	if _, err := Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(c.Dir); len(left) > 0 {
		t.Errorf("scratch was left: %v", left)
	}
	for _, cmdline := range commandLines(t) {
		if strings.Contains(cmdline, c.Dir) {
			t.Errorf("still running: %s", cmdline)
		}
	}
}

func commandLines(t *testing.T) (all []string) {
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if b, err := os.ReadFile(p); err == nil {
			all = append(all, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return all
}

// A process cache that stayed warm would serve a cold read with one copy for each byte; filled from the log it makes two.
func TestColdIsColdForAProcessCacheToo(t *testing.T) {
	for state, warm := range map[string]bool{"warm": true, "restarted": false, "cold": false} {
		r := run(t, quick(t, Consume, "cache_state="+state, "lab.cache=process", "lab.fetch.transfer=copy"))
		if copies := r.Metrics["copied-bytes/byte"]; (copies < 1.5) != warm {
			t.Errorf("%s: %.2f bytes copied for each byte", state, copies)
		}
	}
}
