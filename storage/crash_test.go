package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// crashConfigs are the forms of the log that the simulated disk can carry.
func crashConfigs() map[string]LogConfig {
	all := map[string]LogConfig{}
	for _, cache := range []Cache{CachePage, CacheProcess} {
		for _, offsets := range []OffsetScheme{OffsetsLogical, OffsetsByte} {
			cfg := testConfig()
			cfg.Cache, cfg.Offsets, cfg.CacheBytes = cache, offsets, 1<<20
			cfg.SegmentBytes, cfg.IndexIntervalBytes = 1500, 300
			all[fmt.Sprintf("%s/%s", cache, offsets)] = cfg
		}
	}
	return all
}

// everyNth says how many of the operations are tried: all, but where the file
// operations of the other cache are much the same, and under -short.
func everyNth(cfg LogConfig) int64 {
	every := int64(1)
	if cfg.Cache != CachePage {
		every = 7
	}
	if testing.Short() {
		every *= 4
	}
	return every
}

// opened opens what a crash left and holds it against the model.
func (w *crashWorld) opened(disk *vfs.Sim, power bool) {
	t := w.t
	t.Helper()
	w.disk, w.fs, w.l, w.d = disk, disk, nil, nil
	if w.plant == trustedTail {
		_ = writeFile(disk, "data/"+cleanFile, nil) // where there is a directory yet
	}
	d, err := OpenDir(disk, "data", Identity{ClusterID: "cluster", BrokerID: 1})
	if err != nil {
		t.Fatalf("opening the directory: %v", err)
	}
	for _, line := range d.Warnings() {
		t.Errorf("warning: %s", line)
	}
	w.d = d
	l, rep, err := d.Open("orders", [16]byte{1}, 0, w.cfg, w.now)
	if err != nil {
		t.Fatalf("opening the log: %v", err)
	}
	w.l = l.(*segmentLog)
	if e := d.CleanEpoch(); e != -1 && (e != w.closing || w.l.LogEndOffset() != w.end()) {
		t.Errorf("the mark of broker epoch %d over a log that ends at %d; %d was shut down, and ended at %d", e, w.l.LogEndOffset(), w.closing, w.end())
	}
	w.closing = -1
	for _, c := range rep.Damage {
		if !power || c.Offset < w.certain() {
			t.Errorf("damage reported after a crash: %v (flushed to %d)", &c, w.flushed)
		}
	}
	w.adopt(power)
	if hw, ok := d.HighWatermark("orders", 0); ok && hw > min(w.l.LogEndOffset(), w.watermark) {
		t.Errorf("high watermark %d; the log ends at %d, and it was %d", hw, w.l.LogEndOffset(), w.watermark)
	}
}

// recovered opens what a crash left. Then the log must work like any other.
func (w *crashWorld) recovered(disk *vfs.Sim, power bool) {
	t := w.t
	t.Helper()
	w.opened(disk, power)
	w.verifyReads()
	w.verifyTimes()
	for _, id := range []int64{7, 8, 9} {
		if w.recallProducer(id); w.producers[id] != nil && w.producers[id].base >= w.l.segments[0].base {
			if err := w.duplicate(id); err != nil {
				t.Errorf("resend of producer %d: %v", id, err)
			}
		}
	}
	w.pinned, w.pending, w.sending, w.cutTo = nil, nil, nil, -1
	if err := w.run([]string{"append 4", "flush", "append 3", "close", "open", "read", "append 1", "flush"}); err != nil {
		t.Fatalf("after recovery: %v", err)
	}
	w.verifyTimes()
}

// certain is below what everything must be there: what was flushed, and not being removed.
func (w *crashWorld) certain() int64 {
	switch {
	case w.dropped:
		return 0
	case w.cutTo >= 0:
		return min(w.flushed, w.cutTo)
	}
	return w.flushed
}

// adopt checks that the content is a run of what was appended that covers what
// was flushed, and makes it the model's.
func (w *crashWorld) adopt(power bool) {
	t := w.t
	t.Helper()
	certain, flushed := w.end(), w.certain()
	if w.sending != nil {
		next := w.end()
		for h, b := range record.Batches(w.sending) {
			if h.BaseOffset == next { // stamped: it may have been written
				w.log = append(w.log, modelBatch{h.BaseOffset, h.NextOffset(), bytes.Clone(b)})
				next = h.NextOffset()
			}
		}
	}
	if w.cutTo >= 0 {
		certain = min(certain, w.cutTo)
	}
	if w.dropped {
		certain = 0
	}
	start, end := w.l.LogStartOffset(), w.l.LogEndOffset()
	if end < flushed {
		t.Fatalf("log ends at %d, flushed to %d", end, flushed)
	}
	if !power && end < certain {
		t.Fatalf("log ends at %d after a kill, appended to %d", end, certain)
	}
	if start > max(w.start, w.startTo) && start > 0 {
		t.Fatalf("log starts at %d, which nobody asked for (%d, %d)", start, w.start, w.startTo)
	}
	if w.dropped && start == end {
		// All of the old content may be gone already, and the new beginning not be there yet.
		if end != w.emptyAt && end > w.start && (len(w.log) > 0 || end != w.base) {
			t.Fatalf("log [%d, %d) after a crash while it was emptied to begin at %d", start, end, w.emptyAt)
		}
		w.emptied(end)
		w.dropped = false
		w.epoch++
		return
	}
	at := 0
	for _, b := range readAll(t, w.l, start, 1<<20) {
		for at < len(w.log) && w.log[at].next <= start {
			at++
		}
		if at == len(w.log) || !bytes.Equal(w.log[at].bytes, b) {
			t.Fatalf("batch at offset %d is none that was appended there", record.ReadHeader(b).BaseOffset)
		}
		at++
	}
	for at < len(w.log) && w.log[at].next <= end {
		at++
	}
	w.log = w.log[:at]
	if w.end() != end && end != start {
		t.Fatalf("log ends at %d, its last batch at %d", end, w.end())
	}
	w.start, w.startTo, w.flushed = start, start, min(w.flushed, end)
	w.dropped = false
	for _, b := range w.log {
		w.epoch = max(w.epoch, record.ReadHeader(b.bytes).PartitionLeaderEpoch)
	}
	w.epoch++
}

// outcome is what one end of a run showed: where it ended, and what was wrong.
type outcome struct {
	op       vfs.Op
	seed     uint64 // 0: killed; else the power was cut
	problems []string
}

func (o outcome) String() string {
	return fmt.Sprintf("%v, seed %d: %s", o.op, o.seed, strings.Join(o.problems, "; "))
}

// crashEverywhere runs the script once and lets it end at every file operation,
// by a kill and by power cuts. It stops after the first operation with a problem.
func crashEverywhere(t *testing.T, cfg LogConfig, plant plantedFault) (bad []outcome, operations int64) {
	rec := &recorder{TB: t}
	w := newCrashWorld(rec, cfg)
	w.plant = plant
	every := everyNth(cfg)
	rec.try(func() {
		w.fs = vfs.WithHook(w.disk, func(op vfs.Op) error {
			operations = op.N
			// Reads change nothing: a crash at one is the crash at the next operation.
			if op.N%every == 0 && op.Kind != vfs.OpRead && op.Kind != vfs.OpSize && op.Kind != vfs.OpStat && op.Kind != vfs.OpList {
				for seed := range uint64(4) {
					if problems := w.endHere(t, op, seed); len(problems) > 0 {
						bad = append(bad, outcome{op, seed, problems})
					}
				}
			}
			if len(bad) > 0 {
				rec.Fatalf("found")
			}
			return plant.hook(op)
		})
		if plant != "" {
			w.fs = skippingFS{w.fs}
		}
		if err := w.run(crashScript); err != nil {
			rec.Fatalf("%v", err)
		}
	})
	if len(bad) == 0 && len(rec.problems) > 0 {
		bad = append(bad, outcome{problems: rec.problems})
	}
	return bad, operations
}

// endHere lets a copy of the world end and recover.
func (w *crashWorld) endHere(t *testing.T, op vfs.Op, seed uint64) (problems []string) {
	rec := &recorder{TB: t}
	v, disk := w.clone(rec), w.disk.Clone()
	if seed == 0 {
		disk.Kill()
	} else {
		disk.Crash(rand.New(rand.NewPCG(uint64(op.N), seed)))
	}
	rec.try(func() {
		if seed == 0 && op.Kind <= vfs.OpMkdirAll {
			v.powerCutSoonAfter(disk.Clone(), op.N)
		}
		v.recovered(disk, seed > 0)
	})
	return rec.problems
}

// powerCutSoonAfter lets the process that follows a kill write before the power is
// cut: names that the killed one had changed may come back then.
func (w *crashWorld) powerCutSoonAfter(disk *vfs.Sim, seed int64) {
	v := w.clone(w.t)
	v.opened(disk, false)
	for _, id := range []int64{7, 8, 9} {
		v.recallProducer(id)
	}
	v.pinned, v.pending, v.sending, v.cutTo, v.faulty = nil, nil, nil, -1, true
	if err := v.run([]string{"append 3"}); err != nil {
		w.t.Fatalf("after a kill: %v", err)
	}
	disk.Crash(rand.New(rand.NewPCG(uint64(seed), 9)))
	v.recovered(disk, true)
}

func TestACrashAtAnyFileOperationLosesNothingFlushed(t *testing.T) {
	for name, cfg := range crashConfigs() {
		t.Run(name, func(t *testing.T) {
			bad, operations := crashEverywhere(t, cfg, "")
			for _, o := range bad {
				t.Error(o)
			}
			if operations < 500 {
				t.Errorf("only %d operations", operations)
			}
		})
	}
}

// plantedFault is a fault of the log, put in from outside, that the crash test must see.
type plantedFault string

const (
	watermarkStays   plantedFault = "high watermark stays above a truncation"
	markStays        plantedFault = "clean mark stays" // H2
	noPartitionSync  plantedFault = "no sync of the partition's directory"
	noDirectorySync  plantedFault = "no directory sync"           // H5
	noSegmentSync    plantedFault = "no sync of segments"         // A5
	noIndexSync      plantedFault = "no sync of indexes"          // H6
	noCheckpointSync plantedFault = "no sync before rename"       // H4
	ackBeforeSync    plantedFault = "flush noted before its sync" // H3
	trustedTail      plantedFault = "clean mark after a crash"    // H2
	unpinnedRegion   plantedFault = "region without a pin"
)

// hook is the part of a fault that lies in the disk: syncs that do nothing.
func (p plantedFault) hook(op vfs.Op) error {
	skip := false
	switch op.Kind {
	case vfs.OpRemove:
		skip = p == markStays && strings.HasSuffix(op.Name, cleanFile)
	case vfs.OpSyncDir:
		skip = p == noDirectorySync || p == noPartitionSync && strings.HasSuffix(op.Name, "orders-0")
	case vfs.OpSync:
		skip = (p == noSegmentSync && strings.HasSuffix(op.Name, logSuffix)) ||
			(p == noIndexSync && strings.HasSuffix(op.Name, "index")) ||
			(p == noCheckpointSync && strings.HasSuffix(op.Name, tmpSuffix))
	}
	if skip {
		return errSkipped
	}
	return nil
}

var errSkipped = errors.New("skipped")

// skippingFS answers success to what a hook skipped.
type skippingFS struct{ vfs.FS }

func (f skippingFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	file, err := f.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return skippingFile{file}, nil
}

func (f skippingFS) Remove(name string) error { return notSkipped(f.FS.Remove(name)) }

func (f skippingFS) SyncDir(dir string) error { return notSkipped(f.FS.SyncDir(dir)) }

type skippingFile struct{ vfs.File }

func (f skippingFile) Sync() error { return notSkipped(f.File.Sync()) }

func notSkipped(err error) error {
	if errors.Is(err, errSkipped) {
		return nil
	}
	return err
}

func TestTheCrashTestSeesPlantedFaults(t *testing.T) {
	for _, plant := range []plantedFault{watermarkStays, markStays, noPartitionSync, noDirectorySync, noSegmentSync, noIndexSync, noCheckpointSync, ackBeforeSync, trustedTail, unpinnedRegion} {
		t.Run(string(plant), func(t *testing.T) {
			bad, _ := crashEverywhere(t, crashConfigs()["page/logical"], plant)
			if len(bad) == 0 {
				t.Fatal("not seen")
			}
			t.Log(bad[0])
		})
	}
}

// recorder is a testing.TB that keeps what is wrong instead of failing the test.
type recorder struct {
	testing.TB
	problems []string
}

type stopped struct{}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(stopped{})
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// try runs f up to its first Fatal.
func (r *recorder) try(f func()) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(stopped); !ok {
				panic(p)
			}
		}
	}()
	f()
}

// clone copies the model, for another outcome of the same crash.
func (w *crashWorld) clone(t testing.TB) *crashWorld {
	v := *w
	v.t = t
	v.log = append([]modelBatch(nil), w.log...)
	v.producers = map[int64]*modelProducer{}
	v.rng = rand.New(rand.NewPCG(5, 6))
	return &v
}

func TestNothingIsAcknowledgedAfterAFailedFileOperation(t *testing.T) {
	for name, cfg := range crashConfigs() {
		t.Run(name, func(t *testing.T) {
			failEverywhere(t, cfg, everyNth(cfg), changes...)
			failEverywhere(t, cfg, 5*everyNth(cfg), vfs.OpRead, vfs.OpSize, vfs.OpStat, vfs.OpList, vfs.OpClose)
		})
	}
}

// changes are the operations that change what a disk holds.
var changes = []vfs.OpKind{
	vfs.OpOpen, vfs.OpRemove, vfs.OpRemoveAll, vfs.OpRename, vfs.OpMkdirAll, vfs.OpSyncDir, vfs.OpSyncDirEnd,
	vfs.OpLock, vfs.OpWrite, vfs.OpTruncate, vfs.OpPreallocate, vfs.OpSync, vfs.OpSyncEnd,
}

// failEverywhere runs the script over and over, and fails another operation of the kinds each time.
func failEverywhere(t *testing.T, cfg LogConfig, step int64, kinds ...vfs.OpKind) {
	for n := int64(1); !t.Failed(); n += step {
		rec := &recorder{TB: t}
		w := newCrashWorld(rec, cfg)
		nth := vfs.FailNth(n, nil, kinds...)
		w.faulty = true
		w.fs = vfs.WithHook(w.disk, nth.Hook)
		var err error
		rec.try(func() { err = w.run(crashScript) })
		if !nth.Met() {
			return
		}
		rec.try(func() { w.afterFailure(err) })
		problems := rec.problems
		for seed := range uint64(2) {
			problems = append(problems, w.afterFailureRecovers(t, n, seed)...)
		}
		if len(problems) > 0 {
			t.Error(outcome{op: nth.Op(), problems: problems})
		}
	}
}

// afterFailureRecovers lets the process that met a failure end. What the failed
// operation did is unknown, so as little is certain as after a power cut.
func (w *crashWorld) afterFailureRecovers(t *testing.T, n int64, seed uint64) []string {
	rec := &recorder{TB: t}
	v, disk := w.clone(rec), w.disk.Clone()
	if seed == 0 {
		disk.Kill()
	} else {
		disk.Crash(rand.New(rand.NewPCG(uint64(n), seed)))
	}
	rec.try(func() { v.recovered(disk, true) })
	return rec.problems
}

// afterFailure checks what the process may still do after err.
func (w *crashWorld) afterFailure(err error) {
	t := w.t
	if w.d == nil || w.l == nil {
		return
	}
	if w.d.Offline() != nil {
		if a, err := w.l.Append(batchSpec{}.build(), AppendArgs{LeaderEpoch: w.epoch, Now: w.now}); err == nil {
			t.Errorf("appended at %d after the directory went offline", a.BaseOffset)
		}
		before := w.l.FlushedOffset()
		if f := w.l.BeginFlush(); f != nil {
			err := f.Sync()
			w.l.EndFlush(f, err)
		}
		if got := w.l.FlushedOffset(); got != before {
			t.Errorf("flushed offset went from %d to %d after the directory went offline", before, got)
		}
		if err := w.d.Checkpoint(nil); err == nil {
			t.Error("checkpoint written after the directory went offline")
		}
		return
	}
	if err == nil || w.l.closed {
		return
	}
	// Not a write: the operation has not happened, and the log goes on.
	if w.l.LogEndOffset() != w.end() {
		t.Errorf("log end offset %d after %v, %d before", w.l.LogEndOffset(), err, w.end())
	}
	w.sending = nil
	if err := w.step("append 2"); err != nil {
		t.Errorf("append after %v: %v", err, err)
	}
	if err := w.step("flush"); err != nil {
		t.Errorf("flush after %v: %v", err, err)
	}
}

// Indexes of the active segment are written and not synced, so a power cut may
// leave anything in them; the recovery point may by then stand at a producer
// snapshot, or at the end of a segment that was rolled since.
func TestIndexesAreBelievedOnlyWhereAFlushMadeThemDurable(t *testing.T) {
	for name, script := range map[string][]string{
		"snapshot at the flushed end": {"open", "idem 7", "append 9", "flush", "append 3", "flush", "retain 900", "checkpoint"},
		"rolled after the flush":      {"open", "idem 7", "append 3", "flush", "checkpoint", "roll", "checkpoint"},
	} {
		for _, offsets := range []OffsetScheme{OffsetsLogical, OffsetsByte} {
			t.Run(name+"/"+string(offsets), func(t *testing.T) {
				cfg := crashConfigs()["page/"+string(offsets)]
				cfg.IndexIntervalBytes = 100
				w := newCrashWorld(t, cfg)
				w.fs = w.disk
				if err := w.run(script); err != nil {
					t.Fatal(err)
				}
				for seed := range uint64(300) {
					rec := &recorder{TB: t}
					v, disk := w.clone(rec), w.disk.Clone()
					disk.Crash(rand.New(rand.NewPCG(seed, 1)))
					rec.try(func() { v.recovered(disk, true) })
					if len(rec.problems) > 0 {
						t.Fatalf("seed %d: %v", seed, rec.problems)
					}
				}
			})
		}
	}
}
