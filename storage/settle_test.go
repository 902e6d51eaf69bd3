package storage

import (
	"testing"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// After a kill the first change makes durable what the process before had named, unless
// that was done ahead; a log that was closed cleanly, or is new, has nothing to settle.
func TestALogThatWasSettledAheadIsNotSyncedByItsFirstChange(t *testing.T) {
	for _, ahead := range []bool{false, true} {
		dirSyncs := 0
		disk := vfs.NewSim(nil)
		fs := vfs.WithHook(disk, func(op vfs.Op) error {
			if op.Kind == vfs.OpSyncDir {
				dirSyncs++
			}
			return nil
		})
		cfg := testConfig()
		l, _ := testOpen(t, testDir(t, fs), cfg)
		if l.BeginSettling() != nil {
			t.Error("a new log has something to settle")
		}
		fill(t, l, 2, batchSpec{})
		disk.Kill()
		l, _ = testOpen(t, testDir(t, fs), cfg)
		if ahead {
			f := l.BeginSettling()
			if f == nil {
				t.Fatal("nothing to settle after a kill")
			}
			flushed := l.FlushedOffset()
			err := f.Sync()
			l.EndFlush(f, err)
			if err != nil || l.FlushedOffset() != flushed {
				t.Errorf("settled: %v; flushed to %d, before %d", err, l.FlushedOffset(), flushed)
			}
		}
		dirSyncs = 0
		fill(t, l, 1, batchSpec{})
		if want := map[bool]int{false: 1, true: 0}[ahead]; dirSyncs != want {
			t.Errorf("settled ahead: %v; the first change synced %d directories, want %d", ahead, dirSyncs, want)
		}
		if l.BeginSettling() != nil {
			t.Error("something is left to settle")
		}
		testFlush(t, l)
		if err := l.dir.Close(true, 1); err != nil {
			t.Fatal(err)
		}
		if l, _ = testOpen(t, testDir(t, fs), cfg); l.BeginSettling() != nil {
			t.Error("a log that was closed cleanly has something to settle")
		}
	}
}

// A sync that fails ahead of the first change is no less a failed sync.
func TestALogThatCannotBeSettledTakesNothing(t *testing.T) {
	disk := vfs.NewSim(nil)
	cfg := testConfig()
	l, _ := testOpen(t, testDir(t, disk), cfg)
	fill(t, l, 2, batchSpec{})
	disk.Kill()
	failing := vfs.FailNth(1, nil, vfs.OpSyncDir)
	d := testDir(t, disk)
	d.fs = vfs.WithHook(disk, failing.Hook)
	l, _ = testOpen(t, d, cfg)
	f := l.BeginSettling()
	l.EndFlush(f, f.Sync())
	if _, err := l.Append(batchSpec{}.build(), AppendArgs{LeaderEpoch: 1, Now: 1}); err == nil {
		t.Error("appended")
	}
	if d.Offline() == nil {
		t.Error("the directory is not offline")
	}
}
