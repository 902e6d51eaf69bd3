package storage

import (
	"fmt"
	"testing"

	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// batchSpec describes a batch for tests.
type batchSpec struct {
	records   int
	valueSize int
	timestamp int64 // of the first record; each next is one later
	producer  int64 // 0: not idempotent
	epoch     int16
	sequence  int32
	codec     record.Codec
}

func (s batchSpec) build() []byte {
	b := record.NewBuilder(s.codec)
	if s.producer != 0 {
		b.ProducerID, b.ProducerEpoch, b.BaseSequence = s.producer, s.epoch, s.sequence
	}
	for i := range max(s.records, 1) {
		b.Append(s.timestamp+int64(i), nil, fmt.Appendf(nil, "%0*d", max(s.valueSize, 1), i))
	}
	return b.Build(nil)
}

func testConfig() LogConfig {
	cfg := DefaultLogConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 4096, 256
	cfg.RetentionMs, cfg.FileDeleteDelayMs = -1, 0
	return cfg
}

// testDir opens a log directory, which must work.
func testDir(t testing.TB, fs vfs.FS) *Dir {
	t.Helper()
	d, err := OpenDir(fs, "data", Identity{ClusterID: "cluster", BrokerID: 1})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func testOpen(t testing.TB, d *Dir, cfg LogConfig) (*segmentLog, RecoveryReport) {
	t.Helper()
	l, rep, err := d.Open("orders", [16]byte{1, 2, 3}, 0, cfg, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return l.(*segmentLog), rep
}

func testAppend(t testing.TB, l Log, s batchSpec) Appended {
	t.Helper()
	a, err := l.Append(s.build(), AppendArgs{Now: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func testFlush(t testing.TB, l Log) {
	t.Helper()
	if err := flushNow(l); err != nil {
		t.Fatal(err)
	}
}

// regionBytes reads a region out and releases it.
func regionBytes(t testing.TB, r Region) []byte {
	t.Helper()
	defer r.Release()
	if r.File == nil {
		return append([]byte(nil), r.Bytes...)
	}
	b := make([]byte, r.Len)
	if err := readFull(r.File, b, r.Pos); err != nil {
		t.Fatal(err)
	}
	return b
}

// readAll reads the log from offset to its end and gives each batch.
func readAll(t testing.TB, l Log, offset int64, maxBytes int) (batches [][]byte) {
	t.Helper()
	for {
		r, err := l.Read(offset, l.LogEndOffset(), maxBytes)
		if err != nil {
			t.Fatalf("read at %d: %v", offset, err)
		}
		b := regionBytes(t, r)
		if len(b) == 0 {
			return batches
		}
		for len(b) > 0 {
			h, err := record.Check(b)
			if err != nil {
				t.Fatalf("read at %d: %v", offset, err)
			}
			batches = append(batches, b[:h.Size()])
			offset = h.NextOffset()
			b = b[h.Size():]
		}
	}
}
