package vfs

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// failedSync is a file "a" with content before, synced, then after, whose sync fails.
func failedSync(t *testing.T, before, after string, kinds ...OpKind) (*Sim, File) {
	t.Helper()
	s := NewSim(nil)
	failing := false
	h := open(t, WithHook(s, func(op Op) error {
		if failing && slices.Contains(kinds, op.Kind) {
			return injected(op, nil)
		}
		return nil
	}), "a", Create)
	put(t, h, before, 0)
	syncAll(t, h, DirSyncer(s, "/"))
	put(t, h, after, 0)
	failing = true
	if err := h.(BeginSyncer).BeginSync()(); !errors.Is(err, ErrInjected) {
		t.Fatalf("sync: %v", err)
	}
	failing = false
	return s, h
}

func TestWhatAFailedSyncLostIsReadAndNeverWritten(t *testing.T) {
	for _, kind := range []OpKind{OpSync, OpSyncEnd} {
		t.Run(kind.String(), func(t *testing.T) {
			s, h := failedSync(t, "old", "new", kind)
			wantContent(t, s, "a", "new")
			syncAll(t, h)
			s.Kill()
			wantContent(t, s, "a", "new")
			again := open(t, s, "a", ReadWrite)
			syncAll(t, again)
			wantOutcomes(t, s, contentOrError("a"), "new", "old") // some of it may have been written before the failure

			c := s.Clone()
			if !c.DropCache("a") || c.DropCache("a") {
				t.Error("what was lost goes from memory once")
			}
			wantContent(t, c, "a", "old")
			wantOutcomes(t, c, contentOrError("a"), "old")
			wantContent(t, s, "a", "new")

			put(t, again, "new", 0) // the same bytes, but written
			if s.DropCache("a") {
				t.Error("a page that is to be written goes from memory")
			}
			wantOutcomes(t, s, contentOrError("a"), "new", "old")
			syncAll(t, again)
			wantOutcomes(t, s, contentOrError("a"), "new")
		})
	}
}

func TestALengthThatAFailedSyncLostIsDurableOnceTheEndIsWrittenAgain(t *testing.T) {
	long := strings.Repeat("x", 3*SectorBytes)
	s, h := failedSync(t, "x", long, OpSync)
	look := func(s *Sim) string {
		c, err := content(s, "a")
		switch {
		case err != nil:
			return err.Error()
		case c == long:
			return "whole"
		}
		return "less"
	}
	syncAll(t, h)
	wantOutcomes(t, s, look, "less", "whole")
	put(t, h, long[:2*SectorBytes], 0)
	syncAll(t, h)
	wantOutcomes(t, s, look, "less", "whole")
	put(t, h, long[2*SectorBytes:], 2*SectorBytes)
	syncAll(t, h)
	wantOutcomes(t, s, look, "whole")
}

func TestAFailedSyncThatDidNothingLosesNothing(t *testing.T) {
	s := NewSim(nil)
	h := open(t, WithHook(s, FailNth(1, ErrTooManyOpen, OpSync).Hook), "a", Create)
	put(t, h, "new", 0)
	if err := h.Sync(); !errors.Is(err, ErrTooManyOpen) {
		t.Fatal(err)
	}
	syncAll(t, h, DirSyncer(s, "/"))
	wantOutcomes(t, s, contentOrError("a"), "new")
}
