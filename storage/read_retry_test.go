package storage

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// A read that failed says nothing about the next one: whichever of its operations fails, once, what is
// asked afterwards is answered as ever. The indexes are gone, or lead nowhere, so that they are made anew meanwhile.
func TestAReadThatFailedOnceLeavesNoTrace(t *testing.T) {
	for _, offsets := range []OffsetScheme{OffsetsLogical, OffsetsByte} {
		for _, harm := range []string{"gone", "zeros"} {
			for _, ask := range []string{"read", "timestamp"} {
				t.Run(fmt.Sprintf("%s/%s/%s", offsets, harm, ask), func(t *testing.T) {
					for _, fault := range []error{nil, vfs.ErrTooManyOpen} {
						for n := int64(1); readFailingOnce(t, n, fault, offsets, harm, ask); n++ {
						}
					}
				})
			}
		}
	}
}

// readFailingOnce fails operation n of a question to a log and asks again. It is false when there is no such operation.
func readFailingOnce(t *testing.T, n int64, fault error, offsets OffsetScheme, harm, ask string) (met bool) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes, cfg.Offsets, cfg.RetentionMs = 3000, 200, offsets, 5000
	w := newRotWorld(t, cfg)
	harmIndexes(t, w.disk, harm)
	var hook vfs.Hook
	d := testDir(t, vfs.WithHook(w.disk, func(op vfs.Op) error {
		if hook == nil {
			return nil
		}
		return hook(op)
	}))
	log, _, err := d.Open("orders", [16]byte{1, 2, 3}, 0, cfg, 1000)
	if err != nil {
		t.Fatal(err)
	}
	l := log.(*segmentLog)
	nth := vfs.FailNth(n, fault, vfs.OpRead, vfs.OpSize)
	hook = nth.Hook
	b := w.batches[len(w.batches)/2]
	if ask == "read" {
		var r Region
		r, err = l.Read(b.offset, l.LogEndOffset(), 1)
		r.Release()
	} else {
		_, _, _, _, err = l.OffsetForTimestamp(b.times[0])
	}
	hook = nil
	if !nth.Met() {
		return false
	}
	if err != nil && !errors.Is(err, vfs.ErrInjected) {
		t.Errorf("operation %d failed: %v", n, err)
	}
	if err := d.Offline(); err != nil {
		t.Errorf("operation %d failed, in a read: %v", n, err)
	}
	for _, b := range w.batches {
		r, err := l.Read(b.offset, l.LogEndOffset(), 1)
		if err != nil || !bytes.Equal(regionBytes(t, r), b.bytes) {
			t.Fatalf("operation %d failed: a read at %d is wrong since: %v", n, b.offset, err)
		}
		at, _, _, ok, err := l.OffsetForTimestamp(b.times[0])
		if err != nil || !ok || at != b.offset {
			t.Fatalf("operation %d failed: timestamp %d is found at %d, not %d, since: %v %v", n, b.times[0], at, b.offset, ok, err)
		}
	}
	oldest := int64(0) // the last timestamp of the oldest segment
	for _, b := range w.batches {
		if b.offset < w.bases[1] {
			oldest = b.times[len(b.times)-1]
		}
	}
	if gone, err := l.Retain(oldest+cfg.RetentionMs, l.LogEndOffset()); err != nil || len(gone) > 0 {
		t.Errorf("operation %d failed: retention takes %+v since: %v", n, gone, err)
	}
	return true
}

func harmIndexes(t *testing.T, disk *vfs.Sim, harm string) {
	names, err := disk.List("data/orders-0")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, indexSuffix) && !strings.HasSuffix(name, timeIndexSuffix) {
			continue
		}
		full := "data/orders-0/" + name
		info, err := disk.Stat(full)
		if err == nil {
			err = disk.Remove(full)
		}
		if err == nil && harm == "zeros" {
			err = writeFile(disk, full, make([]byte, info.Size))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
