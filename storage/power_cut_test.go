package storage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"runtime"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// The tests of this file are the shortest form of what the simulator found: each
// a few steps and then a power cut, under many seeds.

// afterPowerCuts cuts the power of copies of disk and opens the log on each.
func afterPowerCuts(t *testing.T, disk *vfs.Sim, cfg LogConfig, check func(t *testing.T, l *segmentLog)) {
	t.Helper()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c := disk.Clone()
			c.Crash(rand.New(rand.NewPCG(seed, 1)))
			l, _ := testOpen(t, testDir(t, c), cfg)
			check(t, l)
		})
	}
}

func fill(t *testing.T, l *segmentLog, batches int, spec batchSpec) {
	t.Helper()
	for range batches {
		testAppend(t, l, spec)
		if spec.producer != 0 {
			spec.sequence += int32(max(spec.records, 1))
		}
	}
}

func TestALogDirectoryIsThereAfterAPowerCut(t *testing.T) {
	for _, again := range []bool{false, true} {
		disk := vfs.NewSim(nil)
		if again { // a crash came between the making of the directory and the sync of its name
			if err := disk.MkdirAll("data"); err != nil {
				t.Fatal(err)
			}
		}
		cfg := testConfig()
		l, _ := testOpen(t, testDir(t, disk), cfg)
		fill(t, l, 3, batchSpec{valueSize: 100})
		testFlush(t, l)
		afterPowerCuts(t, disk, cfg, func(t *testing.T, l *segmentLog) {
			if l.LogEndOffset() != 3 {
				t.Errorf("log end offset %d of 3", l.LogEndOffset())
			}
		})
	}
}

func TestANewPartitionIsThereAfterAPowerCut(t *testing.T) {
	disk, cfg := vfs.NewSim(nil), testConfig()
	testOpen(t, testDir(t, disk), cfg)
	for seed := range uint64(40) {
		c := disk.Clone()
		c.Crash(rand.New(rand.NewPCG(seed, 1)))
		d := testDir(t, c)
		if _, _, err := d.Open("orders", [16]byte{9}, 0, cfg, 1000); err == nil {
			t.Fatalf("seed %d: a topic of another id has it", seed)
		}
		l, _ := testOpen(t, d, cfg)
		if _, err := l.Append(batchSpec{}.build(), AppendArgs{LeaderEpoch: -1, Now: 1000}); err != nil { // no epoch, whose file would sync the names
			t.Fatal(err)
		}
		testFlush(t, l)
		c.Crash(rand.New(rand.NewPCG(seed, 2)))
		if l, _ := testOpen(t, testDir(t, c), cfg); l.LogEndOffset() != 1 {
			t.Fatalf("seed %d: log end offset %d, 1 was flushed", seed, l.LogEndOffset())
		}
	}
}

func TestTheFirstFlushAfterAKillSyncsNamesMadeBefore(t *testing.T) {
	disk, cfg := vfs.NewSim(nil), testConfig()
	l, _ := testOpen(t, testDir(t, disk), cfg)
	fill(t, l, 3, batchSpec{valueSize: 1000})
	testFlush(t, l)
	if err := l.dir.Checkpoint(nil); err != nil {
		t.Fatal(err)
	}
	fill(t, l, 1, batchSpec{valueSize: 1000}) // rolls
	if len(l.segments) != 2 {
		t.Fatalf("%d segments", len(l.segments))
	}
	l.BeginFlush() // makes the index files, and is cut short
	disk.Kill()
	l, _ = testOpen(t, testDir(t, disk), cfg)
	testFlush(t, l)
	afterPowerCuts(t, disk, cfg, func(t *testing.T, l *segmentLog) {
		if l.LogEndOffset() != 4 {
			t.Errorf("log end offset %d of 4, all flushed", l.LogEndOffset())
		}
	})
}

func TestARetainedLogNeverEndsWhereItHasBeenBefore(t *testing.T) {
	disk, cfg := vfs.NewSim(nil), testConfig()
	cfg.RetentionMs = 0
	l, _ := testOpen(t, testDir(t, disk), cfg)
	fill(t, l, 12, batchSpec{valueSize: 1000, timestamp: 1})
	testFlush(t, l)
	if gone, err := l.Retain(1_000_000, l.LogEndOffset()); err != nil || len(gone) == 0 || l.LogStartOffset() != 12 {
		t.Fatalf("%v, %v, log start %d", gone, err, l.LogStartOffset())
	}
	afterPowerCuts(t, disk, cfg, func(t *testing.T, l *segmentLog) {
		if l.LogStartOffset() != 12 || l.LogEndOffset() != 12 {
			t.Errorf("log [%d, %d), want [12, 12)", l.LogStartOffset(), l.LogEndOffset())
		}
	})
}

// TestAnEmptiedLogKnowsItsLastEpoch: all batches are deleted for their age, and then the broker stops, is killed or loses power. By its
// last epoch an election that compares logs judges this one's age.
func TestAnEmptiedLogKnowsItsLastEpoch(t *testing.T) {
	for _, engine := range []Engine{EngineLog, EngineBTree} {
		for _, end := range []string{"stop", "kill", "power"} {
			if engine == EngineBTree && end != "stop" {
				continue // its database is a real file
			}
			var fs vfs.FS = vfs.NewSim(nil)
			if engine == EngineBTree {
				fs = vfs.NewReal(t.TempDir(), nil)
			}
			cfg := testConfig()
			cfg.Engine, cfg.RetentionMs = engine, 0
			d := testDir(t, fs)
			open := func(d *Dir) Log {
				l, _, err := d.Open("orders", [16]byte{1, 2, 3}, 0, cfg, 1000)
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			l := open(d)
			for _, epoch := range []int32{2, 5} {
				if _, err := l.Append(batchSpec{timestamp: 1}.build(), AppendArgs{LeaderEpoch: epoch, Now: 1000}); err != nil {
					t.Fatal(err)
				}
			}
			testFlush(t, l)
			if err := d.Checkpoint(nil); err != nil { // from here on recovery knows of no more than the first epochs
				t.Fatal(err)
			}
			if _, err := l.Append(batchSpec{timestamp: 1}.build(), AppendArgs{LeaderEpoch: 7, Now: 1000}); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Retain(1_000_000, 3); err != nil || l.LogStartOffset() != 3 {
				t.Fatalf("%s: %v, log start %d", engine, err, l.LogStartOffset())
			}
			check := func(t *testing.T, l Log) {
				epoch, offset := l.EndOffsetForEpoch(7)
				if l.LatestEpoch() != 7 || epoch != 7 || offset != 3 {
					t.Errorf("%s, %s: latest epoch %d, epoch %d ends at %d; want epoch 7, which ends at 3", engine, end, l.LatestEpoch(), epoch, offset)
				}
			}
			switch end {
			case "stop":
				if err := d.Close(true, -1); err != nil {
					t.Fatal(err)
				}
				check(t, open(testDir(t, fs)))
			case "kill":
				fs.(*vfs.Sim).Kill()
				check(t, open(testDir(t, fs)))
			case "power":
				afterPowerCuts(t, fs.(*vfs.Sim), cfg, func(t *testing.T, l *segmentLog) { check(t, l) })
			}
		}
	}
}

func TestProducersAreKnownAfterRetentionAndAPowerCut(t *testing.T) {
	for _, emptied := range []bool{false, true} {
		disk, cfg := vfs.NewSim(nil), testConfig()
		cfg.RetentionBytes = 6000
		l, _ := testOpen(t, testDir(t, disk), cfg)
		fill(t, l, 1, batchSpec{producer: 7, timestamp: 1})
		fill(t, l, 12, batchSpec{valueSize: 1000, timestamp: 1})
		testFlush(t, l)
		if emptied { // as a power cut may leave snapshots that were not durable yet
			disk.Kill()
			for _, o := range l.snapshots.offsets {
				f, err := disk.Open(path.Join(l.path, offsetName(o, snapshotSuffix)), vfs.ReadWrite|vfs.Truncate)
				if err != nil {
					t.Fatal(err)
				}
				_ = f.Close()
			}
			l, _ = testOpen(t, testDir(t, disk), cfg)
		}
		if gone, err := l.Retain(1_000_000, l.LogEndOffset()); err != nil || len(gone) == 0 {
			t.Fatal(gone, err)
		}
		afterPowerCuts(t, disk, cfg, func(t *testing.T, l *segmentLog) {
			if _, err := l.Append(batchSpec{producer: 7, sequence: 1}.build(), AppendArgs{Now: 1000}); err != nil {
				t.Errorf("snapshots emptied %v: the producer's next batch: %v", emptied, err)
			}
		})
	}
}

func TestATimeIndexThatAPowerCutZeroedIsMadeAnewUnderByteOffsets(t *testing.T) {
	disk, cfg := vfs.NewSim(nil), testConfig()
	cfg.Offsets = OffsetsByte
	l, _ := testOpen(t, testDir(t, disk), cfg)
	for i := range 3 {
		fill(t, l, 1, batchSpec{valueSize: 500, timestamp: int64(i)})
	}
	if err := l.dir.Close(true, -1); err != nil { // leaves a snapshot from which the next recovery begins
		t.Fatal(err)
	}
	l, _ = testOpen(t, testDir(t, disk), cfg)
	fill(t, l, 1, batchSpec{valueSize: 500, timestamp: 3})
	testFlush(t, l)
	end := l.LogEndOffset()
	if err := l.dir.Checkpoint(nil); err != nil {
		t.Fatal(err)
	}
	disk.Kill()
	f, err := disk.Open(path.Join(l.path, offsetName(0, timeIndexSuffix)), vfs.Create|vfs.Truncate)
	if err == nil {
		_, err = f.WriteAt(make([]byte, timeEntrySize), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, _ = testOpen(t, testDir(t, disk), cfg)
	if l.LogEndOffset() != end || len(readAll(t, l, 0, 1<<20)) != 4 {
		t.Errorf("log end offset %d of %d", l.LogEndOffset(), end)
	}
	if _, ts, _, ok, err := l.OffsetForTimestamp(2); err != nil || !ok || ts != 2 {
		t.Errorf("offset for a timestamp: %d, %v, %v", ts, ok, err)
	}
}

func TestAFailedRemovalDuringRecoveryIsAnError(t *testing.T) {
	disk, cfg := vfs.NewSim(nil), testConfig()
	l, _ := testOpen(t, testDir(t, disk), cfg)
	fill(t, l, 12, batchSpec{valueSize: 1000})
	disk.Kill()
	if !disk.Rot(l.segments[0].path(), 200, 1) { // so that the later segments do not follow, and go
		t.Fatal("nothing to damage")
	}
	for n := int64(1); ; n++ {
		c := disk.Clone()
		nth := vfs.FailNth(n, nil, vfs.OpRemove)
		d := testDir(t, vfs.WithHook(c, nth.Hook))
		_, _, err := d.Open("orders", [16]byte{1, 2, 3}, 0, cfg, 1000)
		if !nth.Met() {
			if err != nil || n < 6 {
				t.Fatalf("%d removals, %v", n-1, err)
			}
			return
		}
		if err == nil {
			t.Errorf("removal %d failed, and the log opened", n)
		}
	}
}

func TestWhatACutLeavesUnderAReaderDoesNotEndTheLog(t *testing.T) {
	disk, cfg := vfs.NewSim(nil), testConfig()
	l, _ := testOpen(t, testDir(t, disk), cfg)
	fill(t, l, 2, batchSpec{valueSize: 100})
	testFlush(t, l)
	fill(t, l, 1, batchSpec{valueSize: 3000}) // of more sectors than one, and none durable
	read, err := l.Read(0, l.LogEndOffset(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Release()
	if err := l.Truncate(2); err != nil {
		t.Fatal(err)
	}
	fill(t, l, 2, batchSpec{valueSize: 100}) // in a new file, as the reader holds the old one
	testFlush(t, l)
	for _, checkpoint := range []bool{false, true} {
		if checkpoint { // the old file lies below the recovery point then
			if err := l.dir.Checkpoint(nil); err != nil {
				t.Fatal(err)
			}
		}
		afterPowerCuts(t, disk, cfg, func(t *testing.T, l *segmentLog) {
			if l.LogEndOffset() != 4 {
				t.Errorf("log end offset %d of 4, all flushed (checkpoint: %v)", l.LogEndOffset(), checkpoint)
			}
			if got := len(readAll(t, l, 0, 1<<20)); got != 4 {
				t.Errorf("%d batches are read, of 4", got)
			}
		})
	}
}

func TestAPartitionThatAKilledProcessMadeIsThereAfterAPowerCut(t *testing.T) {
	disk, cfg := vfs.NewSim(nil), testConfig()
	testDir(t, disk)
	if err := disk.MkdirAll("data/orders-0"); err != nil { // and then it was killed
		t.Fatal(err)
	}
	disk.Kill()
	l, _ := testOpen(t, testDir(t, disk), cfg)
	fill(t, l, 3, batchSpec{valueSize: 100})
	testFlush(t, l)
	afterPowerCuts(t, disk, cfg, func(t *testing.T, l *segmentLog) {
		if l.LogEndOffset() != 3 {
			t.Errorf("log end offset %d of 3, all flushed", l.LogEndOffset())
		}
	})
}

// A process writes partition.metadata and is killed before it syncs it. The next one puts
// durable records there: a power cut must not leave them without the id of their topic, or those of a deleted one are taken for its successor's (D18).
func TestATopicIDThatAKilledProcessWroteOutlivesAPowerCut(t *testing.T) {
	cfg, id := testConfig(), [16]byte{1, 2, 3}
	fillAndFlush := func(t *testing.T, _ *Dir, l *segmentLog) {
		fill(t, l, 3, batchSpec{valueSize: 100})
		testFlush(t, l)
	}
	for name, c := range map[string]struct {
		whole bool // it came to make the segment
		then  []func(*testing.T, *Dir, *segmentLog)
	}{
		"before its segment":    {false, []func(*testing.T, *Dir, *segmentLog){fillAndFlush}},
		"before it was synced":  {true, []func(*testing.T, *Dir, *segmentLog){fillAndFlush}},
		"closed cleanly, since": {true, []func(*testing.T, *Dir, *segmentLog){func(*testing.T, *Dir, *segmentLog) {}, fillAndFlush}},
		"settled ahead": {true, []func(*testing.T, *Dir, *segmentLog){func(t *testing.T, d *Dir, l *segmentLog) {
			f := l.BeginSettling()
			l.EndFlush(f, f.Sync())
			fillAndFlush(t, d, l)
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewSim(nil)
			fs := vfs.WithHook(disk, func(op vfs.Op) error {
				if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, partitionFile) || !c.whole && op.Kind == vfs.OpOpen && strings.HasSuffix(op.Name, ".log") {
					return vfs.ErrInjected // where it is killed
				}
				return nil
			})
			if _, _, err := testDir(t, fs).Open("orders", id, 0, cfg, 1000); err == nil {
				t.Fatal("the partition was made")
			}
			disk.Kill()
			for i, then := range c.then {
				d := testDir(t, disk)
				l, _ := testOpen(t, d, cfg)
				then(t, d, l)
				if i < len(c.then)-1 {
					if err := d.Close(true, -1); err != nil {
						t.Fatal(err)
					}
				}
			}
			for seed := range uint64(40) {
				after := disk.Clone()
				after.Crash(rand.New(rand.NewPCG(seed, 1)))
				d := testDir(t, after)
				found, err := d.Partitions()
				if err != nil || len(found) != 1 || found[0].TopicID != id {
					t.Fatalf("seed %d: %v, %v", seed, found, err)
				}
				if _, _, err := d.Open("orders", [16]byte{9}, 0, cfg, 1000); err == nil {
					t.Errorf("seed %d: another topic has the records now", seed)
				}
			}
		})
	}
}

// A B-tree needs a real disk, which loses no power here: what can be seen is the sync.
func TestABTreesTopicIDIsSyncedByTheNextProcess(t *testing.T) {
	for _, clean := range []bool{false, true} {
		synced := 0
		fs := vfs.WithHook(vfs.NewReal(t.TempDir(), nil), func(op vfs.Op) error {
			if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, partitionFile) {
				synced++
			}
			return nil
		})
		cfg := testConfig()
		cfg.Engine = EngineBTree
		open := func() *Dir {
			d := testDir(t, fs)
			if _, _, err := d.Open("orders", [16]byte{1}, 0, cfg, 1000); err != nil {
				t.Fatal(err)
			}
			return d
		}
		if err := open().Close(clean, -1); err != nil {
			t.Fatal(err)
		}
		synced = 0
		d := open()
		if want := map[bool]int{true: 0, false: 1}[clean]; synced != want {
			t.Errorf("closed cleanly: %t; synced %d times, want %d", clean, synced, want)
		}
		if err := d.Close(true, -1); err != nil {
			t.Fatal(err)
		}
	}
}

// TestACutDuringACheckpointLowersItsRecoveryPoint: the checkpoint has read up to where the log is flushed, and writes that when the log
// is cut already. What is appended then lies below it and is not durable.
func TestACutDuringACheckpointLowersItsRecoveryPoint(t *testing.T) {
	for range 20 {
		var during func()
		fs := vfs.WithHook(vfs.NewReal(t.TempDir(), nil), func(op vfs.Op) error {
			if f := during; f != nil && op.Kind == vfs.OpWrite && strings.Contains(op.Name, recoveryPointFile) {
				during = nil
				f()
			}
			return nil
		})
		l, _ := testOpen(t, testDir(t, fs), testConfig())
		fill(t, l, 4, batchSpec{valueSize: 100})
		testFlush(t, l)
		cut := make(chan error)
		during = func() {
			go func() { cut <- l.Truncate(2) }()
			for l.FlushedOffset() > 2 {
				runtime.Gosched()
			}
		}
		if err := errors.Join(l.dir.Checkpoint(nil), <-cut); err != nil {
			t.Fatal(err)
		}
		b, err := readFile(fs, l.dir.file(recoveryPointFile), checkpointBytesMax)
		if err != nil {
			t.Fatal(err)
		}
		if points, err := decodeOffsets(b); err != nil || points[topicPartition{"orders", 0}] > 2 {
			t.Fatalf("the recovery point is %v, %v; flushed is %d", points, err, l.FlushedOffset())
		}
	}
}

// TestIndexesThatRecoveryMadeAnewAreDurableBelowASnapshot: a clean stop leaves a snapshot, a killed process after it makes the next one
// begin the indexes anew, by another index.interval.bytes, and then the recovery point passes the snapshot. After a
// power cut the indexes below it are believed: zeros there would lead past the first record.
func TestIndexesThatRecoveryMadeAnewAreDurableBelowASnapshot(t *testing.T) {
	disk, cfg := vfs.NewSim(nil), testConfig()
	fillAt := func(l *segmentLog, ts int64) {
		testAppend(t, l, batchSpec{valueSize: 300, timestamp: ts})
		testAppend(t, l, batchSpec{valueSize: 300, timestamp: ts + 10})
		testFlush(t, l)
	}
	d := testDir(t, disk)
	l, _ := testOpen(t, d, cfg)
	fillAt(l, 1000)
	if err := d.Close(true, -1); err != nil {
		t.Fatal(err)
	}
	testOpen(t, testDir(t, disk), cfg)
	disk.Kill()
	cfg.IndexIntervalBytes = 100_000
	l, _ = testOpen(t, testDir(t, disk), cfg)
	fillAt(l, 1020)
	if err := l.dir.Checkpoint(nil); err != nil {
		t.Fatal(err)
	}
	afterPowerCuts(t, disk, cfg, func(t *testing.T, l *segmentLog) {
		for ts := int64(1000); ts <= 1030; ts += 10 {
			if _, found, _, ok, err := l.OffsetForTimestamp(ts); !ok || err != nil || found != ts {
				t.Errorf("timestamp %d: %d, %v, %v", ts, found, ok, err)
			}
		}
	})
}
