package broker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/brokertest"
	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
	"github.com/tidemark-log/tidemark/storage/vfs/syscount"
)

// batchOfBytes is a batch of 100-byte records, about so long.
func batchOfBytes(bytes int) []byte {
	b := record.NewBuilder(record.None)
	value := make([]byte, 100)
	for b.Size() < bytes-120 {
		b.Append(brokertest.Start.UnixMilli(), nil, value)
	}
	return b.Build(nil)
}

// segmentBytes keeps what a benchmark dirties below the kernel's writeback limits.
const segmentBytes = 64 << 20

// onDisk is a broker on the real file system that keeps no more than a segment or two.
func onDisk(b *testing.B, settings ...string) *broker.Broker {
	b.Helper()
	settings = append(settings, "log.dirs="+b.TempDir(), fmt.Sprintf("log.segment.bytes=%d", segmentBytes), "message.max.bytes=2000000")
	cfg, err := broker.ParseConfig(nil, settings)
	if err != nil {
		b.Fatal(err)
	}
	e := brokertest.New(vfs.NewReal("", new(syscount.Counters)), 1)
	e.HoldSyncs = true
	br := broker.New(e, cfg)
	br.Start(func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	})
	for br.Status().ClusterID == "" {
		e.Run()
		for e.SyncsPending() > 0 {
			e.FinishSync(nil)
		}
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "t", NumPartitions: 1, ReplicationFactor: 1}}
	br.Handle(broker.Request{Body: req}, func(broker.Answer) {})
	for len(br.Status().Partitions) == 0 {
		e.Run()
		for e.SyncsPending() > 0 {
			e.FinishSync(nil)
		}
	}
	return br
}

// BenchmarkProduce against BenchmarkPwrite is the cost of everything but the write.
func BenchmarkProduce(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		for _, validate := range []string{"batch", "records"} {
			b.Run(fmt.Sprintf("bytes=%d/validate=%s", size, validate), func(b *testing.B) {
				br := onDisk(b, "lab.validate="+validate)
				batch := batchOfBytes(size)
				req := produceRequest(batch)
				reply := func(a broker.Answer) {
					if code := a.Body.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
						b.Fatalf("error code %d", code)
					}
				}
				b.SetBytes(int64(len(batch)))
				b.ReportAllocs()
				for b.Loop() {
					br.Handle(broker.Request{Body: req}, reply)
				}
			})
		}
	}
}

func BenchmarkPwrite(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			batch := batchOfBytes(size)
			var f *os.File
			at := int64(segmentBytes)
			n := 0
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				if at+int64(len(batch)) > segmentBytes {
					var err error
					if f, err = os.Create(filepath.Join(b.TempDir(), fmt.Sprint(n))); err != nil {
						b.Fatal(err)
					}
					n++
					at = 0
				}
				if _, err := f.WriteAt(batch, at); err != nil {
					b.Fatal(err)
				}
				at += int64(len(batch))
			}
		})
	}
}

func BenchmarkFetch(b *testing.B) {
	br := onDisk(b)
	batch := batchOfBytes(64 << 10)
	for range 1000 {
		br.Handle(broker.Request{Body: produceRequest(batch)}, func(broker.Answer) {})
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxBytes, req.MinBytes = 11, 1<<20, 1
	p := kmsg.NewFetchRequestTopicPartition()
	p.PartitionMaxBytes = 1 << 20
	req.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	records := int64(record.ReadHeader(batch).RecordCount)
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		req.Topics[0].Partitions[0].FetchOffset = i * 15 % 980 * records
		br.Handle(broker.Request{Body: req}, func(a broker.Answer) {
			if a.Fetch.Parts[0].Region.Len < 900_000 {
				b.Fatalf("%d bytes", a.Fetch.Parts[0].Region.Len)
			}
			a.Fetch.Release()
		})
	}
}
