package storage

import (
	"bytes"
	"fmt"
	"math/rand/v2"
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
// operations of the other cache are much the same.
func everyNth(cfg LogConfig) int64 {
	if cfg.Cache != CachePage {
		return 7
	}
	return 1
}

// recovered opens what a crash left and holds it against the model. Then the log
// must work like any other.
func (w *crashWorld) recovered(disk *vfs.Sim, power bool) {
	t := w.t
	t.Helper()
	w.disk, w.fs, w.l, w.d = disk, disk, nil, nil
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
	for _, c := range rep.Damage {
		if !power || c.Offset < w.certain() {
			t.Errorf("damage reported after a crash: %v (flushed to %d)", &c, w.flushed)
		}
	}
	w.adopt(power)
	if hw, ok := d.HighWatermark("orders", 0); ok && hw > w.l.LogEndOffset() {
		t.Errorf("high watermark %d above the log end %d", hw, w.l.LogEndOffset())
	}
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

func TestACrashAtAnyFileOperationLosesNothingFlushed(t *testing.T) {
	for name, cfg := range crashConfigs() {
		t.Run(name, func(t *testing.T) {
			w := newCrashWorld(t, cfg)
			operations, every := int64(0), everyNth(cfg)
			w.fs = vfs.WithHook(w.disk, func(op vfs.Op) error {
				operations = op.N
				// Reads change nothing: a crash at one is the crash at the next operation.
				if op.N%every != 0 || op.Kind == vfs.OpRead || op.Kind == vfs.OpSize || op.Kind == vfs.OpStat || op.Kind == vfs.OpList {
					return nil
				}
				for seed := range uint64(4) {
					t.Run(fmt.Sprintf("%v/%d", op, seed), func(t *testing.T) {
						v, disk := w.clone(t), w.disk.Clone()
						if seed == 0 {
							disk.Kill()
						} else {
							disk.Crash(rand.New(rand.NewPCG(uint64(op.N), seed)))
						}
						v.recovered(disk, seed > 0)
					})
				}
				if t.Failed() {
					t.FailNow()
				}
				return nil
			})
			if err := w.run(crashScript); err != nil {
				t.Fatal(err)
			}
			if operations < 500 {
				t.Errorf("only %d operations", operations)
			}
		})
	}
}

// clone copies the model, for another outcome of the same crash.
func (w *crashWorld) clone(t *testing.T) *crashWorld {
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
			for n := int64(1); ; n += everyNth(cfg) {
				w := newCrashWorld(t, cfg)
				nth := vfs.FailNth(n, nil)
				w.fs = vfs.WithHook(w.disk, nth.Hook)
				err := w.run(crashScript)
				if !nth.Met() {
					return
				}
				t.Run(nth.Op().String(), func(t *testing.T) {
					w.t = t
					w.afterFailure(err)
					for seed := range uint64(2) {
						v := w.clone(t)
						disk := w.disk.Clone()
						if seed == 0 {
							disk.Kill()
						} else {
							disk.Crash(rand.New(rand.NewPCG(uint64(n), seed)))
						}
						// A failed write may have left anything above what was flushed.
						v.recovered(disk, true)
					}
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}

// afterFailure checks what the process may still do after err.
func (w *crashWorld) afterFailure(err error) {
	t := w.t
	if w.d == nil || w.l == nil {
		return
	}
	sending := w.sending
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
	_ = sending
}
