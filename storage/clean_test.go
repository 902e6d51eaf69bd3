package storage

import (
	"errors"
	"sync"
	"testing"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

func TestTheMarkProvesWhichIncarnationEndedCleanly(t *testing.T) {
	disk, cfg := vfs.NewSim(nil), testConfig()
	d := testDir(t, disk)
	if d.CleanEpoch() != -1 || d.Clean() {
		t.Errorf("a new directory: %d, %v", d.CleanEpoch(), d.Clean())
	}
	l, _ := testOpen(t, d, cfg)
	testAppend(t, l, batchSpec{records: 3})
	if err := d.Close(true, 41); err != nil {
		t.Fatal(err)
	}
	mark, err := readFile(disk, "data/"+cleanFile, 100)
	if err != nil || string(mark) != `{"version":0,"brokerEpoch":41}` {
		t.Errorf("mark %q, %v", mark, err)
	}
	for _, c := range []struct {
		name  string
		after func(disk *vfs.Sim) error
		clean bool
		epoch int64
	}{
		{"as it was left", func(*vfs.Sim) error { return nil }, true, 41},
		{"an empty mark, as old brokers leave it", func(d *vfs.Sim) error { return writeFile(d, "data/"+cleanFile, nil) }, true, -1},
		{"a damaged mark", func(d *vfs.Sim) error { return writeFile(d, "data/"+cleanFile, []byte(`{"version":0,"brok`)) }, true, -1},
		{"a mark of another version", func(d *vfs.Sim) error {
			return writeFile(d, "data/"+cleanFile, []byte(`{"version":7,"brokerEpoch":41}`))
		}, true, -1},
		{"no mark", func(d *vfs.Sim) error { return d.Remove("data/" + cleanFile) }, false, -1},
		{"damaged recovery points", func(d *vfs.Sim) error { return writeFile(d, "data/"+recoveryPointFile, []byte("?")) }, false, -1},
		{"a log that is cut off", func(d *vfs.Sim) error {
			f, err := d.Open(l.path+"/00000000000000000000.log", vfs.ReadWrite)
			if err != nil {
				return err
			}
			return errors.Join(f.Truncate(20), f.Close())
		}, true, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := disk.Clone()
			if err := c.after(disk); err != nil {
				t.Fatal(err)
			}
			d := testDir(t, disk)
			testOpen(t, d, cfg)
			if d.Clean() != c.clean || d.CleanEpoch() != c.epoch {
				t.Errorf("clean %v, broker epoch %d; want %v, %d", d.Clean(), d.CleanEpoch(), c.clean, c.epoch)
			}
			disk.Kill()
			if d := testDir(t, disk); d.Clean() || d.CleanEpoch() != -1 {
				t.Errorf("after a kill: clean %v, broker epoch %d", d.Clean(), d.CleanEpoch())
			}
		})
	}
}

// A step of a clean stop that fails leaves no mark, whoever looks at its error.
func TestAFailedStepOfACleanStopLeavesNoMark(t *testing.T) {
	cfg := testConfig()
	for n := int64(1); ; n++ {
		disk := vfs.NewSim(nil)
		nth := vfs.FailNth(n, nil, vfs.OpSync, vfs.OpSyncDir, vfs.OpWrite, vfs.OpOpen, vfs.OpRename)
		armed := false
		d := testDir(t, vfs.WithHook(disk, func(op vfs.Op) error {
			if !armed {
				return nil
			}
			return nth.Hook(op)
		}))
		logs := make([]Log, 3)
		for i := range logs {
			var err error
			if logs[i], _, err = d.Open("orders", [16]byte{1}, int32(i), cfg, 1000); err != nil {
				t.Fatal(err)
			}
			testAppend(t, logs[i], batchSpec{records: 3})
		}
		armed = true
		for _, s := range d.Closing() {
			_ = s.Sync()
		}
		inSteps := nth.Met()
		err := d.Close(true, 1)
		disk.Kill()
		if !inSteps {
			if n < 15 {
				t.Errorf("only %d operations", n)
			}
			return
		}
		again := testDir(t, disk)
		if err == nil && again.CleanEpoch() == 1 || again.Clean() {
			t.Errorf("%v failed: %v, and the directory counts as closed cleanly", nth.Op(), err)
		}
	}
}

// Steps side by side leave what a clean stop in order leaves.
func TestACleanStopSideBySideIsClean(t *testing.T) {
	disk, cfg := vfs.NewSim(nil), testConfig()
	d := testDir(t, disk)
	var all sync.WaitGroup
	for i := range int32(50) {
		all.Go(func() {
			l, _, err := d.Open("orders", [16]byte{1}, i, cfg, 1000)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := l.Append(batchSpec{records: 3}.build(), AppendArgs{Now: 1000}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, s := range d.Closing() {
		all.Go(func() {
			if err := s.Sync(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := d.Close(true, 5); err != nil {
		t.Fatal(err)
	}
	disk.Kill()
	d = testDir(t, disk)
	for i := range int32(50) {
		l, rep, err := d.Open("orders", [16]byte{1}, i, cfg, 1000)
		if err != nil || !rep.Clean || l.LogEndOffset() != 3 {
			t.Fatalf("partition %d: %+v, %v", i, rep, err)
		}
	}
	if d.CleanEpoch() != 5 {
		t.Errorf("broker epoch %d", d.CleanEpoch())
	}
}

func TestCreatingPartitionsAnewWritesTheCheckpointsOnce(t *testing.T) {
	disk, cfg := vfs.NewSim(nil), testConfig()
	renames, dirSyncs := 0, 0
	d := testDir(t, vfs.WithHook(disk, func(op vfs.Op) error {
		switch {
		case op.Kind == vfs.OpRename:
			renames++
		case op.Kind == vfs.OpSyncDir && op.Name == "data":
			dirSyncs++
		}
		return nil
	}))
	const n = 100
	create := func(id byte) {
		t.Helper()
		for i := range int32(n) {
			if _, _, err := d.Open("orders", [16]byte{id}, i, cfg, 1000); err != nil {
				t.Fatal(err)
			}
		}
	}
	create(1)
	if err := d.Checkpoint(func() []PartitionOffset { return []PartitionOffset{{"orders", 7, 0}} }); err != nil {
		t.Fatal(err)
	}
	for i := range int32(n) {
		if err := d.Delete("orders", i, 1000); err != nil {
			t.Fatal(err)
		}
	}
	renames, dirSyncs = 0, 0
	create(2)
	if renames > 3 || dirSyncs > n+3 {
		t.Errorf("%d renames and %d syncs of the directory for %d partitions", renames, dirSyncs, n)
	}
	disk.Kill()
	d = testDir(t, disk)
	if hw, ok := d.HighWatermark("orders", 7); ok || hw != 0 {
		t.Errorf("high watermark %d of a new partition", hw)
	}
}

// Who comes while a sync is under way is not served by that one, which may have
// passed its change already.
func TestASharedSyncBeginsAfterTheChange(t *testing.T) {
	disk := vfs.NewSim(nil)
	if err := disk.MkdirAll("data"); err != nil {
		t.Fatal(err)
	}
	var s sharedSync
	syncs := 0
	fs := vfs.WithHook(disk, func(op vfs.Op) error {
		if syncs++; syncs == 1 {
			s.made.Add(1) // another's name is made now
		}
		return nil
	})
	for want := int64(1); want <= 3; want += 2 {
		if err := s.sync(fs, "data"); err != nil || s.durable != want {
			t.Errorf("%d of %d changes are durable: %v", s.durable, s.made.Load(), err)
		}
	}
	failing := errors.New("no")
	if err := s.sync(vfs.WithHook(disk, func(vfs.Op) error { return failing }), "data"); !errors.Is(err, failing) || s.durable != 3 {
		t.Errorf("%v, %d changes are durable", err, s.durable)
	}
}

// Of a log with few batches a clean stop makes durable what says that they are there, and no more:
// there may be thousands. Opening it finds the rest by walking the batches.
func TestACleanStopOfASmallLogLeavesNoIndexes(t *testing.T) {
	for _, offsets := range []OffsetScheme{OffsetsLogical, OffsetsByte} {
		disk, syncs := vfs.NewSim(nil), 0
		fs := vfs.WithHook(disk, func(op vfs.Op) error {
			if op.Kind == vfs.OpSync || op.Kind == vfs.OpSyncDir {
				syncs++
			}
			return nil
		})
		cfg := DefaultLogConfig()
		cfg.Offsets = offsets
		d := testDir(t, fs)
		l, _ := testOpen(t, d, cfg)
		first := testAppend(t, l, batchSpec{records: 3, timestamp: 5000, producer: 7})
		testAppend(t, l, batchSpec{records: 3, timestamp: 4000, producer: 7, sequence: 3})
		end := l.LogEndOffset()
		syncs = 0
		for _, s := range d.Closing() {
			if err := s.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		if syncs != 3 { // batches, leader epochs, names
			t.Errorf("offsets %s: %d syncs", offsets, syncs)
		}
		if err := d.Close(true, -1); err != nil {
			t.Fatal(err)
		}
		names, err := disk.List("data/orders-0")
		if err != nil || len(names) != 3 { // batches, leader epochs, topic id
			t.Errorf("offsets %s: %v, %v", offsets, names, err)
		}

		d = testDir(t, fs)
		l, rep := testOpen(t, d, cfg)
		if !rep.Clean || l.LogEndOffset() != end || l.LatestEpoch() != 0 {
			t.Errorf("offsets %s: %+v, end %d, epoch %d", offsets, rep, l.LogEndOffset(), l.LatestEpoch())
		}
		if _, ts, _, ok, err := l.OffsetForTimestamp(5002); !ok || err != nil || ts != 5002 {
			t.Errorf("offsets %s: the largest timestamp is not found: %d, %v, %v", offsets, ts, ok, err)
		}
		if again := testAppend(t, l, batchSpec{records: 3, timestamp: 5000, producer: 7}); !again.Duplicate || again.BaseOffset != first.BaseOffset {
			t.Errorf("offsets %s: a batch from before the stop is no duplicate: %+v", offsets, again)
		}
		// An idle log has nothing to make durable.
		syncs = 0
		for _, s := range d.Closing() {
			if err := s.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		if syncs != 0 {
			t.Errorf("offsets %s: %d syncs of an idle log", offsets, syncs)
		}
	}
}

// The state of a producer whose batches have gone with earlier segments is in a snapshot alone.
func TestACleanStopKeepsProducersWithoutBatches(t *testing.T) {
	disk, cfg := vfs.NewSim(nil), testConfig()
	d := testDir(t, disk)
	l, _ := testOpen(t, d, cfg)
	testAppend(t, l, batchSpec{records: 3, producer: 7})
	for l.active().base == 0 {
		testAppend(t, l, batchSpec{records: 3, valueSize: 300})
	}
	testFlush(t, l)
	if err := l.AdvanceLogStart(l.active().base, l.LogEndOffset()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Retain(2000, l.LogEndOffset()); err != nil {
		t.Fatal(err)
	}
	if l.segments[0].base == 0 {
		t.Fatal("the first segment is still there")
	}
	if err := d.Close(true, -1); err != nil {
		t.Fatal(err)
	}
	l, rep := testOpen(t, testDir(t, disk), cfg)
	if again := testAppend(t, l, batchSpec{records: 3, producer: 7}); !rep.Clean || !again.Duplicate {
		t.Errorf("%+v: its last batch again is no duplicate: %+v", rep, again)
	}
}

// TestACleanStopAfterARecoveryKeepsTheLargestTimestamp: the process before was killed, and this one has not touched the log.
// A first batch has no index entry, so opening finds nothing to gather, and gives the files back.
func TestACleanStopAfterARecoveryKeepsTheLargestTimestamp(t *testing.T) {
	for _, offsets := range []OffsetScheme{OffsetsLogical, OffsetsByte} {
		for _, size := range []int{1000, 9000} {
			disk, cfg := vfs.NewSim(nil), DefaultLogConfig()
			cfg.Offsets = offsets
			d := testDir(t, disk)
			l, _ := testOpen(t, d, cfg)
			testAppend(t, l, batchSpec{valueSize: size, timestamp: 5000})
			testFlush(t, l)
			if err := d.Checkpoint(nil); err != nil {
				t.Fatal(err)
			}
			disk.Kill()
			d = testDir(t, disk)
			testOpen(t, d, cfg)
			if err := d.Close(true, -1); err != nil {
				t.Fatal(err)
			}
			l, rep := testOpen(t, testDir(t, disk), cfg)
			if _, ts, _, ok, err := l.OffsetForTimestamp(5000); !rep.Clean || !ok || err != nil || ts != 5000 {
				t.Errorf("offsets %s, %d bytes: clean %v; timestamp %d, %v, %v", offsets, size, rep.Clean, ts, ok, err)
			}
		}
	}
}
