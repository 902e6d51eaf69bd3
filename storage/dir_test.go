package storage

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

func TestADirectoryOfAnotherBrokerOrClusterIsRefused(t *testing.T) {
	disk := vfs.NewSim(nil)
	d := testDir(t, disk)
	if _, err := OpenDir(disk, "data", Identity{ClusterID: "cluster", BrokerID: 1}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("while another has it: %v", err)
	}
	if err := d.Close(true, -1); err != nil {
		t.Fatal(err)
	}
	for _, id := range []Identity{{"other", 1}, {"cluster", 2}} {
		_, err := OpenDir(disk, "data", id)
		if err == nil || !strings.Contains(err.Error(), "belongs to broker 1 of cluster cluster") {
			t.Errorf("%+v: %v", id, err)
		}
	}
	if d, err := OpenDir(disk, "data", Identity{BrokerID: 1}); err != nil || d.ClusterID() != "cluster" || !d.Clean() {
		t.Errorf("without a cluster id: %v, clean %v", err, d.Clean())
	}
}

func TestAPartitionOfADeletedTopicOfTheSameNameIsRefused(t *testing.T) {
	d := testDir(t, vfs.NewSim(nil))
	testOpen(t, d, testConfig())
	if err := d.Close(true, -1); err != nil {
		t.Fatal(err)
	}
	d = testDir(t, d.fs)
	if _, _, err := d.Open("orders", [16]byte{9}, 0, testConfig(), 1); err == nil || !strings.Contains(err.Error(), "belongs to topic id") {
		t.Errorf("opened with another topic id: %v", err)
	}
}

func TestADeletedPartitionIsGoneAndItsFilesFollow(t *testing.T) {
	disk := vfs.NewSim(nil)
	d := testDir(t, disk)
	cfg := testConfig()
	cfg.FileDeleteDelayMs = 100
	l, _ := testOpen(t, d, cfg)
	testAppend(t, l, batchSpec{records: 3})
	r, err := l.Read(0, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	testFlush(t, l)
	if err := d.Checkpoint(func() []PartitionOffset { return []PartitionOffset{{"orders", 0, 3}} }); err != nil {
		t.Fatal(err)
	}
	if err := d.Delete("orders", 0, 1000); err != nil {
		t.Fatal(err)
	}
	if all, err := d.Partitions(); err != nil || len(all) != 0 {
		t.Errorf("partitions after the deletion: %v %v", all, err)
	}
	// The same name again is an empty log, of which no checkpoint tells.
	l2, _, err := d.Open("orders", [16]byte{2}, 0, cfg, 1000)
	if err != nil || l2.LogEndOffset() != 0 {
		t.Fatalf("created anew: %v", err)
	}
	if hw, ok := d.HighWatermark("orders", 0); ok {
		t.Errorf("high watermark %d of a new partition", hw)
	}
	waiting := func() (n int) {
		names, err := disk.List("data")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, deletedDirSuffix) {
				n++
			}
		}
		return n
	}
	for _, step := range []struct {
		now  int64
		left int
	}{{1099, 1}, {1100, 1}, {1101, 0}} {
		if step.left == 0 {
			if b := regionBytes(t, r); len(b) != r.Len {
				t.Error("a live region of a deleted partition is not whole")
			}
		}
		if err := d.RemoveExpired(step.now); err != nil {
			t.Fatal(err)
		}
		if n := waiting(); n != step.left {
			t.Errorf("at %d: %d directories wait, want %d", step.now, n, step.left)
		}
	}
	// A later process removes what an earlier one left.
	if err := d.Delete("orders", 0, 2000); err != nil {
		t.Fatal(err)
	}
	disk.Kill()
	if err := testDir(t, disk).RemoveExpired(0); err != nil || waiting() != 0 {
		t.Errorf("after a restart %d directories wait: %v", waiting(), err)
	}
}

func TestPartitionsAreListedInOrder(t *testing.T) {
	d := testDir(t, vfs.NewSim(nil))
	for _, p := range []PartitionDir{{"b-1", [16]byte{3}, 10}, {"b-1", [16]byte{3}, 9}, {"a", [16]byte{4}, 0}, {"a.b", [16]byte{5}, 2}} {
		if _, _, err := d.Open(p.Topic, p.TopicID, p.Partition, testConfig(), 1); err != nil {
			t.Fatal(err)
		}
	}
	all, err := d.Partitions()
	want := "[{a [4 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0] 0} {a.b [5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0] 2} {b-1 [3 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0] 9} {b-1 [3 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0] 10}]"
	if got := fmt.Sprint(all); err != nil || got != want {
		t.Errorf("%s %v, want %s", got, err, want)
	}
}

// Opening after a clean shutdown costs the same for a long log as for a short one.
func TestACleanReopeningReadsAHandfulOfBlocks(t *testing.T) {
	for _, offsets := range []OffsetScheme{OffsetsLogical, OffsetsByte} {
		disk := vfs.NewSim(nil)
		reads := 0
		fs := vfs.WithHook(disk, func(op vfs.Op) error {
			if op.Kind == vfs.OpRead {
				reads++
			}
			return nil
		})
		cfg := testConfig()
		cfg.SegmentBytes, cfg.Offsets = 1<<20, offsets
		d := testDir(t, fs)
		l, _ := testOpen(t, d, cfg)
		for range 4000 {
			testAppend(t, l, batchSpec{records: 3, valueSize: 300})
		}
		if err := d.Close(true, -1); err != nil {
			t.Fatal(err)
		}
		reads = 0
		if _, rep := testOpen(t, testDir(t, fs), cfg); !rep.Clean || reads > 20 {
			t.Errorf("offsets %s: %d reads, %+v", offsets, reads, rep)
		}
	}
}

// After a kill it costs what was not flushed.
func TestReopeningAfterAKillScansTheUnflushedTail(t *testing.T) {
	disk := vfs.NewSim(nil)
	cfg := testConfig()
	cfg.SegmentBytes = 1 << 20
	d := testDir(t, disk)
	l, _ := testOpen(t, d, cfg)
	for range 2000 {
		testAppend(t, l, batchSpec{records: 3, valueSize: 300})
	}
	testFlush(t, l)
	if err := d.Checkpoint(nil); err != nil {
		t.Fatal(err)
	}
	size := l.Size()
	for range 100 {
		testAppend(t, l, batchSpec{records: 3, valueSize: 300})
	}
	tail := l.Size() - size
	disk.Kill()
	if _, rep := testOpen(t, testDir(t, disk), cfg); rep.BytesScanned != tail {
		t.Errorf("scanned %d bytes, the unflushed tail has %d", rep.BytesScanned, tail)
	}
}

// BenchmarkReopen opens a directory of 1,000 partitions that was closed cleanly.
func BenchmarkReopen(b *testing.B) {
	fs := vfs.NewReal(b.TempDir(), nil)
	d := testDir(b, fs)
	cfg := DefaultLogConfig()
	const partitions = 1000
	for i := range int32(partitions) {
		l, _, err := d.Open("orders", [16]byte{1}, i, cfg, 1)
		if err != nil {
			b.Fatal(err)
		}
		testAppend(b, l, batchSpec{records: 10, valueSize: 100})
	}
	if err := d.Close(true, -1); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		start := time.Now()
		d := testDir(b, fs)
		all, err := d.Partitions()
		if err != nil || len(all) != partitions {
			b.Fatal(len(all), err)
		}
		for _, p := range all {
			if _, rep, err := d.Open(p.Topic, p.TopicID, p.Partition, cfg, 1); err != nil || !rep.Clean {
				b.Fatal(err, rep)
			}
		}
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "open-ms")
		b.StopTimer()
		if err := d.Close(true, -1); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// Thousands of partitions are opened right after they were found.
func TestAPartitionThatWasFoundIsNotReadAgainToBeOpened(t *testing.T) {
	disk := vfs.NewSim(nil)
	d := testDir(t, disk)
	testOpen(t, d, testConfig())
	if err := d.Close(true, -1); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(disk, "data/file-0", nil); err != nil { // no partition, for all its name
		t.Fatal(err)
	}
	reads := 0
	d = testDir(t, vfs.WithHook(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpOpen && strings.HasSuffix(op.Name, partitionFile) {
			reads++
		}
		return nil
	}))
	all, err := d.Partitions()
	if err != nil || len(all) != 1 || all[0].TopicID != [16]byte{1, 2, 3} {
		t.Fatal(all, err)
	}
	reads = 0
	if testOpen(t, d, testConfig()); reads != 0 {
		t.Errorf("its metadata were read %d times more", reads)
	}
	// Deleted and made again under the name it is another.
	if _, err := d.Partitions(); err != nil {
		t.Fatal(err)
	}
	if err := d.Delete("orders", 0, 1000); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Open("orders", [16]byte{9}, 0, testConfig(), 1); err != nil {
		t.Errorf("what was found of a deleted partition is taken for its successor's: %v", err)
	}
}

// A partition on another disk that is not mounted must not be taken for one that never was.
func TestALinkThatLeadsNowhereIsNoMissingPartition(t *testing.T) {
	fs := vfs.NewReal(t.TempDir(), nil)
	d := testDir(t, fs)
	if err := os.Symlink("/nowhere/orders-0", fs.RealPath("data/orders-0")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Partitions(); err == nil || !strings.Contains(err.Error(), "orders-0 is a link that leads nowhere") {
		t.Errorf("%v; want the link named", err)
	}
}
