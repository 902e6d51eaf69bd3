package storage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// afterFailedSync runs the script, fails each sync of it in turn, and goes on as an
// operator would: the process is started again on the same boot, its syncs succeed, and later the
// power is cut. What was called flushed must be there.
func afterFailedSync(t *testing.T, cfg LogConfig, script []string, seeds uint64) (bad []outcome, syncs int64) {
	for n := int64(1); ; n++ {
		rec := &recorder{TB: t}
		w := newCrashWorld(rec, cfg)
		nth := vfs.FailNth(n, nil, vfs.OpSync, vfs.OpSyncEnd)
		w.faulty = true
		w.fs = vfs.WithHook(w.disk, nth.Hook)
		rec.try(func() { _ = w.run(script) })
		if !nth.Met() {
			return bad, n - 1
		}
		w.disk.Kill()
		for seed := range seeds {
			rec := &recorder{TB: t}
			v, disk := w.clone(rec), w.disk.Clone()
			// A cut that failed may yet be undone, until a sync of what stands behind it succeeds.
			appends := seed%2 == 1 || w.cutTo >= 0
			rec.try(func() { v.startedAgainThenPower(disk, rand.New(rand.NewPCG(uint64(n), seed)), appends) })
			if len(rec.problems) > 0 {
				bad = append(bad, outcome{nth.Op(), seed, rec.problems})
				break
			}
		}
	}
}

func (w *crashWorld) startedAgainThenPower(disk *vfs.Sim, rng *rand.Rand, appends bool) {
	w.opened(disk, true) // what the failed operation did is not known
	for _, id := range []int64{7, 8, 9} {
		w.recallProducer(id)
	}
	w.pinned, w.pending, w.finish, w.sending, w.cutTo = nil, nil, nil, nil, -1
	script := []string{"flush", "checkpoint"}
	if appends {
		script = []string{"append 2", "flush", "append 1"}
	}
	if err := w.run(script); err != nil {
		w.t.Fatalf("after a failed sync and a restart: %v", err)
	}
	disk.Crash(rng)
	w.recovered(disk, true)
}

func TestWhatIsFlushedAfterAFailedSyncIsThereAfterAPowerCut(t *testing.T) {
	for name, cfg := range crashConfigs() {
		t.Run(name, func(t *testing.T) {
			bad, syncs := afterFailedSync(t, cfg, crashScript, 8)
			for _, o := range bad {
				t.Error(o)
			}
			if syncs < 100 {
				t.Errorf("only %d syncs", syncs)
			}
		})
	}
}

func TestTheFailedSyncTestSeesThePageCacheTrusted(t *testing.T) {
	cfg := crashConfigs()["page/logical"]
	cfg.TrustPageCache = true
	bad, syncs := afterFailedSync(t, cfg, crashScript, 8)
	if len(bad) == 0 {
		t.Fatalf("not seen in %d syncs", syncs)
	}
	t.Logf("%d of %d syncs, the first: %v", len(bad), syncs, bad[0])
}

// leftBySyncFailure is a disk on which the sync of six batches failed and the process ended.
func leftBySyncFailure(t *testing.T, cfg LogConfig, batch batchSpec) *vfs.Sim {
	t.Helper()
	disk := vfs.NewSim(nil)
	failing := false
	d := testDir(t, vfs.WithHook(disk, func(op vfs.Op) error {
		if failing && op.Kind == vfs.OpSync {
			return fmt.Errorf("%w: %v", vfs.ErrInjected, op)
		}
		return nil
	}))
	l, _ := testOpen(t, d, cfg)
	fill(t, l, 2, batch)
	testFlush(t, l)
	fill(t, l, 6, batch)
	failing = true
	if err := flushNow(l); !errors.Is(err, vfs.ErrInjected) || l.FlushedOffset() != 2 {
		t.Fatalf("flush: %v, flushed to %d", err, l.FlushedOffset())
	}
	disk.Kill()
	return disk
}

// A page that a failed sync left clean may go from memory between recovery, which found its
// batches whole, and the flush: then the disk's old bytes must not be written and called flushed.
func TestAFlushFailsWhenWhatRecoveryFoundIsGone(t *testing.T) {
	for name, change := range map[string]func(disk *vfs.Sim, file string, batch int64) bool{
		"all of it":       func(disk *vfs.Sim, file string, _ int64) bool { return disk.DropCache(file) },
		"a record":        func(disk *vfs.Sim, file string, batch int64) bool { return disk.Rot(file, 4*batch+100, 1) },
		"the base offset": func(disk *vfs.Sim, file string, batch int64) bool { return disk.Rot(file, 4*batch+7, 4) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			disk := leftBySyncFailure(t, cfg, batchSpec{valueSize: 100})
			d := testDir(t, disk)
			l, _ := testOpen(t, d, cfg)
			if l.LogEndOffset() != 8 || l.FlushedOffset() > 2 {
				t.Fatalf("log end offset %d of 8, flushed to %d of 2", l.LogEndOffset(), l.FlushedOffset())
			}
			if s := l.active(); !change(disk, s.path(), s.size/8) {
				t.Fatal("nothing was lost")
			}
			if err := flushNow(l); !isDamage(err) || d.Offline() == nil || l.FlushedOffset() > 2 {
				t.Errorf("flush: %v, directory offline: %v, flushed to %d", err, d.Offline(), l.FlushedOffset())
			}
			disk.Kill()
			if l, _ := testOpen(t, testDir(t, disk), cfg); l.LogEndOffset() > 4 {
				t.Errorf("log end offset %d; the batch at 4 is gone", l.LogEndOffset())
			}
		})
	}
}

// Batches larger than a chunk, and many in one.
func TestALeftoverIsWrittenAgainWhateverItsBatchesSizes(t *testing.T) {
	for _, size := range []int{10, 10_000, leftoverChunk / 2, leftoverChunk + 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			cfg := testConfig()
			cfg.SegmentBytes, cfg.MaxMessageBytes = 1<<30, 1<<30
			disk := leftBySyncFailure(t, cfg, batchSpec{valueSize: size})
			l, _ := testOpen(t, testDir(t, disk), cfg)
			testFlush(t, l)
			if l.FlushedOffset() != 8 || l.active().left != nil {
				t.Errorf("flushed to %d of 8, left %v", l.FlushedOffset(), l.active().left)
			}
			afterPowerCuts(t, disk, cfg, func(t *testing.T, l *segmentLog) {
				if n := len(readAll(t, l, 0, 1<<20)); n != 8 {
					t.Errorf("%d batches of 8", n)
				}
			})
		})
	}
}

// The race: a flush writes again what the process before left, and a truncation cuts the
// log meanwhile. What is appended then must not be overwritten by what was cut.
func TestACutComesBetweenAFlushAndItsLeftover(t *testing.T) {
	cfg := testConfig()
	disk := leftBySyncFailure(t, cfg, batchSpec{valueSize: 100})
	l, _ := testOpen(t, testDir(t, disk), cfg)
	f := l.BeginFlush()
	if err := l.Truncate(4); err != nil {
		t.Fatal(err)
	}
	fill(t, l, 1, batchSpec{valueSize: 300, timestamp: 5000})
	want := readAll(t, l, 0, 1<<20)
	err := f.Sync()
	l.EndFlush(f, err)
	if err != nil {
		t.Fatal(err)
	}
	if l.FlushedOffset() > 4 {
		t.Errorf("flushed to %d by a flush that was begun before the cut to 4", l.FlushedOffset())
	}
	testFlush(t, l)
	afterPowerCuts(t, disk, cfg, func(t *testing.T, l *segmentLog) {
		if got := readAll(t, l, 0, 1<<20); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d batches, and not the %d that were flushed", len(got), len(want))
		}
	})
}

// afterFailedSyncOf fails the first sync of a file with that suffix, in script, and ends the process.
func afterFailedSyncOf(t *testing.T, suffix string, script func(d *Dir) error) *vfs.Sim {
	t.Helper()
	disk, failed := vfs.NewSim(nil), false
	d := testDir(t, vfs.WithHook(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, suffix) && !failed {
			failed = true
			return fmt.Errorf("%w: %v", vfs.ErrInjected, op)
		}
		return nil
	}))
	if err := script(d); !errors.Is(err, vfs.ErrInjected) {
		t.Fatalf("no sync failed: %v", err)
	}
	disk.Kill()
	return disk
}

func TestATopicIDWhoseSyncFailedIsThereAfterAPowerCut(t *testing.T) {
	cfg := testConfig()
	disk := afterFailedSyncOf(t, partitionFile, func(d *Dir) error {
		_, _, err := d.Open("orders", [16]byte{1, 2, 3}, 0, cfg, 1000)
		return err
	})
	l, _ := testOpen(t, testDir(t, disk), cfg)
	fill(t, l, 1, batchSpec{})
	testFlush(t, l)
	for seed := range uint64(20) {
		c := disk.Clone()
		c.Crash(rand.New(rand.NewPCG(seed, 1)))
		if id, _, err := testDir(t, c).topicID("orders-0"); err != nil || id != [16]byte{1, 2, 3} {
			t.Fatalf("seed %d: topic id %v, %v", seed, id, err)
		}
	}
}

// The snapshot at the base of the first segment that stays is all that is known of a producer whose batches went.
func TestAProducerIsKnownThoughTheSyncOfItsSnapshotFailed(t *testing.T) {
	cfg := testConfig()
	disk := afterFailedSyncOf(t, snapshotSuffix, func(d *Dir) error {
		l, _ := testOpen(t, d, cfg)
		fill(t, l, 2, batchSpec{producer: 7})
		testFlush(t, l)
		if err := l.roll(1000); err != nil {
			t.Fatal(err)
		}
		fill(t, l, 2, batchSpec{})
		return flushNow(l)
	})
	l, _ := testOpen(t, testDir(t, disk), cfg)
	testFlush(t, l)
	if err := l.AdvanceLogStart(2, 4); err != nil || len(l.segments) != 1 {
		t.Fatalf("%v, %d segments", err, len(l.segments))
	}
	testFlush(t, l)
	afterPowerCuts(t, disk, cfg, func(t *testing.T, l *segmentLog) {
		if l.LogStartOffset() == 2 && l.producers.byID[7] == nil {
			t.Error("the producer is not known")
		}
	})
}
