package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

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

// variants collects bytes/s of named variants, iteration by iteration.
type variants struct {
	names  []string
	values map[string][]float64
}

func (v *variants) add(name string, bytesPerS float64) {
	if v.values == nil {
		v.values = map[string][]float64{}
	}
	if v.values[name] == nil {
		v.names = append(v.names, name)
	}
	v.values[name] = append(v.values[name], bytesPerS)
}

func medianRate(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// report gives each variant's median in MB/s and the median of its share of the baseline.
func (v *variants) report(b *testing.B, baseline string) {
	for _, name := range v.names {
		b.ReportMetric(medianRate(v.values[name])/1e6, name+"-MB/s")
		if name == baseline {
			continue
		}
		var shares []float64
		for i, value := range v.values[name] {
			shares = append(shares, value/v.values[baseline][i])
		}
		b.ReportMetric(medianRate(shares), name+"/"+baseline)
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
					bare, err := limits.Loop{Binary: os.Args[0], Dir: dir, Mode: limits.ModeWrite, Requests: limits.OpaqueRequests(batchBytes, 1),
						Depth: depth, FileBytes: produceBytes, MaxBytes: produceBytes, Warmup: time.Minute, Measure: time.Minute}.Run(ctx)
					if err != nil {
						b.Fatal(err)
					}
					v.add("bare", bare.BytesPerS())
					for _, level := range []string{"batch", "records"} {
						remove := freshTopic(b, brokers[level], "t")
						w := &load.Window{Warmup: time.Minute, WarmupBytes: produceBytes / 5, Measure: time.Minute, MeasureBytes: produceBytes * 4 / 5}
						st, err := load.RawProduce{Addr: brokers[level].addr, Topic: "t", Partitions: 1, Acks: 1, Batches: batches, Depth: depth}.Run(ctx, w)
						if err != nil {
							b.Fatal(err)
						}
						v.add(level, st.BytesPerS())
						remove()
					}
				}
				v.report(b, "bare")
			})
		}
	}
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
	for _, depth := range []int{1, 2} {
		b.Run(fmt.Sprintf("inflight=%d", depth), func(b *testing.B) {
			var v variants
			for b.Loop() {
				bare, err := limits.Loop{Binary: os.Args[0], Dir: dir, Mode: limits.ModeSendfile, FetchBytes: fetchBytes, Depth: depth,
					FileBytes: logBytes, Warmup: 300 * time.Millisecond, Measure: time.Second}.Run(ctx)
				if err != nil {
					b.Fatal(err)
				}
				v.add("bare", bare.BytesPerS())
				for _, how := range transfers {
					w := &load.Window{Warmup: 300 * time.Millisecond, Measure: time.Second}
					st, err := load.RawFetch{Addr: brokers[string(how)].addr, Topic: "t", Partitions: 1, FetchBytes: fetchBytes, Depth: depth, Loop: true, MaxWait: time.Second}.Run(ctx, w)
					if err != nil {
						b.Fatal(err)
					}
					v.add(string(how), st.BytesPerS())
				}
			}
			v.report(b, "bare")
		})
	}
}
