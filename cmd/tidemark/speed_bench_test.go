package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/tidemark-log/tidemark/harness/limits"
	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/harness/sut"
)

// Each iteration of these benchmarks runs every variant once, so that what the
// machine does meanwhile hits them alike; the ratios reported are medians of
// the ratios within iterations. Run them with, say,
//
//	go test ./cmd/tidemark -run '^$' -bench . -benchtime 9x
//
// and with TIDEMARK_BENCH_DIR on the disk to measure (default: the temporary directory).

// variants collects what each variant did, iteration by iteration.
type variants struct {
	names []string
	rates map[string][]float64 // bytes/s
	cpu   map[string][]float64 // of the server, seconds per GB: what remains comparable on a busy machine
	cpuAt [2]time.Duration
}

// measure gives the window of a run and notes the CPU time that the server process uses within it.
func (v *variants) measure(b *testing.B, pid int, w *load.Window) *load.Window {
	read := func(i int) func() {
		return func() {
			cpu, err := cpuTime(pid)
			if err != nil {
				b.Fatal(err)
			}
			v.cpuAt[i] = cpu
		}
	}
	w.OnOpen, w.OnClose = read(0), read(1)
	return w
}

// add takes the outcome of the run whose window was the last one from measure.
func (v *variants) add(b *testing.B, name string, st load.Stats, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	if v.rates == nil {
		v.rates, v.cpu = map[string][]float64{}, map[string][]float64{}
	}
	if v.rates[name] == nil {
		v.names = append(v.names, name)
	}
	v.rates[name] = append(v.rates[name], st.BytesPerS())
	v.cpu[name] = append(v.cpu[name], (v.cpuAt[1]-v.cpuAt[0]).Seconds()/(float64(st.Bytes)/1e9))
}

// cpuTime is what a process has used so far, user and system.
func cpuTime(pid int) (time.Duration, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	s, err := p.Stat()
	return time.Duration(s.CPUTime() * float64(time.Second)), err
}

func medianRate(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// report gives each variant's median rate and its median share of the baseline's,
// and the CPU time per byte that the baseline's server needs as a share of its own.
func (v *variants) report(b *testing.B, baseline string) {
	shares := func(values, of []float64) (s []float64) {
		for i := range values {
			s = append(s, values[i]/of[i])
		}
		return s
	}
	for _, name := range v.names {
		b.ReportMetric(medianRate(v.rates[name])/1e6, name+"-MB/s")
		b.ReportMetric(medianRate(v.cpu[name]), name+"-cpu-s/GB")
		if name != baseline {
			b.ReportMetric(medianRate(shares(v.rates[name], v.rates[baseline])), name+"/"+baseline)
			b.ReportMetric(medianRate(shares(v.cpu[baseline], v.cpu[name])), name+"/"+baseline+"-by-cpu")
		}
	}
	b.ReportMetric(0, "ns/op")
}

func benchDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp(os.Getenv("TIDEMARK_BENCH_DIR"), "tidemark-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// freshTopic makes a topic of one partition and returns how to delete it.
func freshTopic(b *testing.B, p *brokerProcess, topic string) (remove func()) {
	b.Helper()
	admin := kadm.NewClient(client(b, p))
	if _, err := admin.CreateTopic(context.Background(), 1, 1, map[string]*string{"file.delete.delay.ms": kadm.StringPtr("0")}, topic); err != nil {
		b.Fatal(err)
	}
	return func() {
		if _, err := admin.DeleteTopics(context.Background(), topic); err != nil {
			b.Fatal(err)
		}
	}
}

// produceBytes is what one produce measurement writes, warmup included: below
// the kernel's background writeback threshold, so that the disk takes no part.
const produceBytes = 768 << 20

// BenchmarkRawProduce holds the broker against a bare receive→pwrite loop: 100 B
// records, one partition, acks=1, new preallocated files, the cache regime.
func BenchmarkRawProduce(b *testing.B) {
	b.Setenv(asMain, "1")
	for _, batchBytes := range []int{64 << 10, 1 << 20} {
		for _, depth := range []int{1, 2, 5} {
			b.Run(fmt.Sprintf("batch=%dKiB/inflight=%d", batchBytes>>10, depth), func(b *testing.B) {
				dir, ctx := benchDir(b), context.Background()
				if err := sut.TouchMemory(dir, 2*produceBytes); err != nil {
					b.Fatal(err)
				}
				batches, err := load.BatchSpec{RecordBytes: 100, BatchBytes: batchBytes, Entropy: 8, Codec: "none", Timestamp: time.Now().UnixMilli(), Seed: 1}.Prepare(max(2, (4<<20)/batchBytes))
				if err != nil {
					b.Fatal(err)
				}
				brokers := map[string]*brokerProcess{}
				for _, level := range []string{"batch", "records"} {
					brokers[level] = startBroker(b, dir+"/"+level, "lab.validate="+level, "log.preallocate=true", "message.max.bytes=2000000")
				}
				var v variants
				for b.Loop() {
					bareProduce(b, &v, dir, batchBytes, depth)
					for _, level := range []string{"batch", "records"} {
						p := brokers[level]
						remove := freshTopic(b, p, "t")
						st, err := load.RawProduce{Addr: p.addr, Topic: "t", Partitions: 1, Acks: 1, Batches: batches, Depth: depth}.Run(ctx, v.measure(b, p.cmd.Process.Pid, produceWindow()))
						v.add(b, level, st, err)
						remove()
					}
				}
				v.report(b, "bare")
			})
		}
	}
}

func produceWindow() *load.Window {
	return &load.Window{Warmup: time.Minute, WarmupBytes: produceBytes / 5, Measure: time.Minute, MeasureBytes: produceBytes * 4 / 5}
}

// bareProduce runs the bare receive→pwrite loop, into a new file.
func bareProduce(b *testing.B, v *variants, dir string, batchBytes, depth int) {
	b.Helper()
	file := filepath.Join(dir, "bare")
	defer os.Remove(file)
	ctx := context.Background()
	s, err := limits.StartServer(ctx, os.Args[0], limits.ServerConfig{Mode: limits.ModeWrite, File: file, FileBytes: 2 * produceBytes, FrameMax: batchBytes + 4096})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Stop()
	st, err := load.Bare{Addr: s.Addr, Requests: limits.OpaqueRequests(batchBytes, 1), Depth: depth}.Run(ctx, v.measure(b, s.PID(), produceWindow()))
	v.add(b, "bare", st, err)
}

// BenchmarkRawConsume holds warm fetches of 1 MiB against a bare request→sendfile loop.
func BenchmarkRawConsume(b *testing.B) {
	b.Setenv(asMain, "1")
	const logBytes, fetchBytes = 256 << 20, 1 << 20
	dir, ctx := benchDir(b), context.Background()
	batches, err := load.BatchSpec{RecordBytes: 100, BatchBytes: 64 << 10, Entropy: 8, Codec: "none", Timestamp: time.Now().UnixMilli(), Seed: 1}.Prepare(64)
	if err != nil {
		b.Fatal(err)
	}
	brokers := map[string]*brokerProcess{}
	for _, how := range transfers {
		p := startBroker(b, dir+"/"+string(how), "lab.fetch.transfer="+string(how))
		brokers[string(how)] = p
		freshTopic(b, p, "t")
		fill := load.RawProduce{Addr: p.addr, Topic: "t", Partitions: 1, Acks: 1, Batches: batches, Depth: 2, Requests: logBytes / (64 << 10)}
		if _, err := fill.Run(ctx, &load.Window{Measure: time.Minute}); err != nil {
			b.Fatal(err)
		}
	}
	// The bare loop sends the very file that the sendfile broker sends.
	file := filepath.Join(dir, "sendfile", "t-0", "00000000000000000000.log")
	info, err := os.Stat(file)
	if err != nil {
		b.Fatal(err)
	}
	bare, err := limits.StartServer(ctx, os.Args[0], limits.ServerConfig{Mode: limits.ModeSendfile, File: file, FrameMax: 4096})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(bare.Stop)
	for _, depth := range []int{1, 2} {
		b.Run(fmt.Sprintf("inflight=%d", depth), func(b *testing.B) {
			var v variants
			for b.Loop() {
				w := func() *load.Window { return &load.Window{Warmup: 300 * time.Millisecond, Measure: time.Second} }
				st, err := load.Bare{Addr: bare.Addr, FetchBytes: fetchBytes, FileBytes: info.Size(), Depth: depth}.Run(ctx, v.measure(b, bare.PID(), w()))
				v.add(b, "bare", st, err)
				for _, how := range transfers {
					p := brokers[string(how)]
					st, err := load.RawFetch{Addr: p.addr, Topic: "t", Partitions: 1, FetchBytes: fetchBytes, Depth: depth, Loop: true, MaxWait: time.Second}.Run(ctx, v.measure(b, p.cmd.Process.Pid, w()))
					v.add(b, string(how), st, err)
				}
			}
			v.report(b, "bare")
		})
	}
}
