package vfs

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// work uses every kind of operation but Lock, and stops at the first error.
func work(f FS) error {
	if err := f.MkdirAll("d"); err != nil {
		return err
	}
	h, err := f.Open("d/a", Create)
	if err != nil {
		return err
	}
	if err := workFile(f, h); err != nil {
		_ = h.Close()
		return err
	}
	if err := h.Close(); err != nil {
		return err
	}
	if err := f.Rename("d/a", "d/b"); err != nil {
		return err
	}
	if _, err := f.List("d"); err != nil {
		return err
	}
	if _, err := f.Stat("d/b"); err != nil {
		return err
	}
	if err := f.Remove("d/b"); err != nil {
		return err
	}
	return f.RemoveAll("d")
}

func workFile(f FS, h File) error {
	if _, err := h.WriteAt([]byte("hello"), 0); err != nil {
		return err
	}
	if _, err := h.ReadAt(make([]byte, 5), 0); err != nil {
		return err
	}
	if _, err := h.Size(); err != nil {
		return err
	}
	for _, err := range []error{h.Preallocate(0, 9), h.Truncate(2), h.Sync(), DirSyncer(f, "d").Sync()} {
		if err != nil {
			return err
		}
	}
	return DirSyncer(f, "d").(BeginSyncer).BeginSync()()
}

func TestFailingOperationOneTwoThreeReachesEachOnce(t *testing.T) {
	var kinds []string
	for n := int64(1); ; n++ {
		nth := FailNth(n, nil)
		err := work(WithHook(NewSim(nil), nth.Hook))
		if !nth.Met() {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if !errors.Is(err, ErrInjected) {
			t.Errorf("operation %d: %v", n, err)
		}
		if nth.Op().Kind != OpPreallocate && !strings.Contains(err.Error(), nth.Op().Kind.String()) {
			t.Errorf("%v does not name %v", err, nth.Op())
		}
		kinds = append(kinds, nth.Op().Kind.String())
	}
	const want = "[mkdir-all open write read size preallocate truncate sync sync-dir sync-dir sync-dir-end close rename list stat remove remove-all]"
	if got := fmt.Sprint(kinds); got != want {
		t.Errorf("operations\n%s, want\n%s", got, want)
	}
}

func TestAShortWriteLeavesItsFirstBytes(t *testing.T) {
	s := NewSim(nil)
	nth := ShortWrite(2, 3)
	h := open(t, WithHook(s, nth.Hook), "a", Create)
	put(t, h, "one", 0)
	if n, err := h.WriteAt([]byte("twotwo"), 3); n != 3 || !errors.Is(err, ErrInjected) {
		t.Errorf("%d, %v", n, err)
	}
	wantContent(t, s, "a", "onetwo")
}

func TestAFullDiskCutsTheWriteWhereSpaceEnds(t *testing.T) {
	s := NewSim(nil)
	h := open(t, WithHook(s, DiskFull(5)), "a", Create)
	put(t, h, "abc", 0)
	for _, want := range []int{2, 0} {
		if n, err := h.WriteAt([]byte("def"), 3); n != want || !errors.Is(err, ErrNoSpace) || !errors.Is(err, ErrInjected) {
			t.Errorf("%d, %v", n, err)
		}
	}
	wantContent(t, s, "a", "abcde")
}

func TestASyncThatFailsLeavesItsBytesVolatile(t *testing.T) {
	for _, kind := range []OpKind{OpSync, OpSyncEnd} {
		s := NewSim(nil)
		h := open(t, WithHook(s, FailNth(1, nil, kind).Hook), "a", Create)
		syncAll(t, DirSyncer(s, "/"))
		put(t, h, "x", 0)
		if err := h.(BeginSyncer).BeginSync()(); !errors.Is(err, ErrInjected) {
			t.Errorf("%v: %v", kind, err)
		}
		if got := outcomes(s, contentOrError("a")); len(got) < 2 {
			t.Errorf("%v: durable all the same: %q", kind, got)
		}
	}
}

func TestAHookMayCrashInTheMiddleOfAWrite(t *testing.T) {
	s := NewSim(nil)
	type mark struct{}
	f := WithHook(s, func(op Op) error {
		if op.Kind != OpWrite {
			return nil
		}
		return &Partial{Bytes: 2, Then: func() { panic(mark{}) }}
	})
	h := open(t, f, "a", Create)
	func() {
		defer func() {
			if _, ok := recover().(mark); !ok {
				t.Error("no crash mark came out")
			}
		}()
		_, _ = h.WriteAt([]byte("abcd"), 0)
	}()
	wantContent(t, s, "a", "ab")
}

func TestRealPathSeesThroughWrappers(t *testing.T) {
	f := WithHook(NewReal("/x", nil), nil)
	if p, ok := RealPath(f, "a"); !ok || p != "/x/a" {
		t.Error(p, ok)
	}
	if _, ok := RealPath(WithHook(NewSim(nil), nil), "a"); ok {
		t.Error("a simulated file has a real path")
	}
}
