package vfs

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// descriptors counts how many of its files a cache holds open.
func (c *DescriptorCache) descriptors() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.open {
		f.mu.Lock()
		if f.inner == nil {
			panic("BUG: vfs: closed file among the open")
		}
		f.mu.Unlock()
		n++
	}
	return n
}

func TestCleanDescriptorsStayWithinTheBound(t *testing.T) {
	for name, under := range map[string]FS{"real": NewReal(t.TempDir(), nil), "simulated": NewSim(nil)} {
		t.Run(name, func(t *testing.T) {
			c := WithDescriptorCache(under, 3)
			var files []File
			for i := range 10 {
				n := fmt.Sprint(i)
				write(t, under, n, n)
				files = append(files, open(t, c, n, ReadOnly))
			}
			if n := c.descriptors(); n != 0 {
				t.Errorf("%d open before any use", n)
			}
			for round := range 3 {
				for i, f := range files {
					var b [1]byte
					if _, err := f.ReadAt(b[:], 0); err != nil || string(b[:]) != fmt.Sprint(i) {
						t.Fatalf("%q, %v", b, err)
					}
				}
				if n := c.descriptors(); n > 3 {
					t.Errorf("round %d: %d open", round, n)
				}
			}
			for _, f := range files {
				closeAll(t, f)
			}
			if len(c.open)+len(c.live) != 0 {
				t.Error("closed files are remembered")
			}
		})
	}
}

func TestADescriptorWithUnsyncedWritesIsSyncedBeforeItIsClosed(t *testing.T) {
	synced := map[string]bool{}
	c := WithDescriptorCache(WithHook(NewSim(nil), func(op Op) error {
		if op.Kind == OpSync {
			synced[op.Name] = true
		}
		return nil
	}), 2)
	var files []File
	for i := range 5 {
		f := open(t, c, fmt.Sprint(i), Create)
		put(t, f, "x", 0)
		files = append(files, f)
	}
	if n := c.descriptors(); n > 2 {
		t.Errorf("%d open, 2 are allowed", n)
	}
	for i, f := range files {
		cached := f.(*cachedFile)
		if cached.inner == nil && (cached.dirty || !synced[fmt.Sprint(i)]) {
			t.Errorf("file %d was closed with unsynced writes", i)
		}
		put(t, f, "y", 1)
		var b [2]byte
		if _, err := f.ReadAt(b[:], 0); err != nil || string(b[:]) != "xy" {
			t.Errorf("file %d: %q, %v", i, b, err)
		}
	}
	for _, f := range files {
		closeAll(t, f)
	}
}

// backFS is a file system whose files can be written back.
type backFS struct {
	FS
	begun, waited, synced int
	fail                  error // of the next WriteBack
	together              int   // most that were begun and not waited for
}

type backFile struct {
	File
	fs *backFS
}

func (b *backFS) Open(name string, mode Mode) (File, error) {
	f, err := b.FS.Open(name, mode)
	return &backFile{f, b}, err
}

func (f *backFile) BeginWriteBack() error {
	f.fs.begun++
	f.fs.together = max(f.fs.together, f.fs.begun-f.fs.waited)
	return nil
}

func (f *backFile) WriteBack() (err error) {
	f.fs.waited++
	err, f.fs.fail = f.fs.fail, nil
	return err
}

func (f *backFile) Sync() error {
	f.fs.synced++
	return f.File.Sync()
}

// Where only files with unsynced writes are left to close, several are written back together, and
// none is synced: that is for whoever wants it durable, who still gets it.
func TestUnsyncedDescriptorsAreWrittenBackTogether(t *testing.T) {
	disk := NewSim(nil)
	under := &backFS{FS: disk}
	c := WithDescriptorCache(under, 64)
	var files []File
	for i := range 200 {
		f := open(t, c, fmt.Sprint(i), Create)
		put(t, f, "x", 0)
		files = append(files, f)
		if n := c.descriptors(); n > 64 || n != len(c.open) {
			t.Fatalf("%d open, 64 are allowed, %d are counted", n, len(c.open))
		}
	}
	if under.begun != under.waited || under.waited < 200-64 || under.together < 4 || under.synced != 0 {
		t.Errorf("%d begun, %d waited for, at most %d together, %d syncs", under.begun, under.waited, under.together, under.synced)
	}
	if err := c.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		closeAll(t, f)
	}
	if len(c.open)+len(c.live) != 0 {
		t.Error("closed files are remembered")
	}
	disk.Crash(rand.New(rand.NewPCG(1, 1)))
	for i := range files {
		if info, err := disk.Stat(fmt.Sprint(i)); err != nil || info.Size != 1 {
			t.Fatalf("file %d was synced and is lost: %+v, %v", i, info, err)
		}
	}
}

// A descriptor is not closed over a failed write-back, whose error the kernel tells once.
func TestAFailedWriteBackIsToldLater(t *testing.T) {
	under := &backFS{FS: NewSim(nil), fail: ErrInjected}
	c := WithDescriptorCache(under, 1)
	f := open(t, c, "a", Create)
	put(t, f, "1", 0)
	g := open(t, c, "b", Create) // a has to go, and cannot
	for range 2 {
		if err := f.Sync(); !errors.Is(err, ErrInjected) {
			t.Errorf("sync: %v", err)
		}
	}
	if f.(*cachedFile).inner == nil {
		t.Error("closed")
	}
	closeAll(t, f, g)
}

// The sync that lets a descriptor go is asked for by nobody: its failure is told to
// whoever writes or syncs the file next, for good, since the kernel tells it once.
func TestAFailedSyncBeforeClosingIsToldLater(t *testing.T) {
	failing := FailNth(1, nil, OpSync)
	c := WithDescriptorCache(WithHook(NewSim(nil), failing.Hook), 1)
	f := open(t, c, "a", Create)
	put(t, f, "1", 0)
	g := open(t, c, "b", Create) // a has to go, and cannot
	put(t, g, "1", 0)
	for range 2 {
		if err := f.Sync(); !errors.Is(err, ErrInjected) {
			t.Errorf("sync: %v", err)
		}
		if _, err := f.WriteAt([]byte("2"), 1); !errors.Is(err, ErrInjected) {
			t.Errorf("write: %v", err)
		}
	}
	if f.(*cachedFile).inner == nil {
		t.Error("closed")
	}
	closeAll(t, f, g)
}

// Connections, say, can take all descriptors that the process has.
func TestWhereNoDescriptorIsLeftTheCacheGivesSomeBack(t *testing.T) {
	under, free := NewReal(t.TempDir(), nil), 3
	c := WithDescriptorCache(under, 100)
	c.fs = WithHook(under, func(op Op) error {
		if open := len(c.open); (op.Kind == OpOpen || op.Kind == OpSyncDir) && open >= free {
			return &iofs.PathError{Op: "open", Path: op.Name, Err: ErrTooManyOpen}
		}
		return nil
	})
	var files []File
	for i := range 6 {
		f := open(t, c, fmt.Sprint(i), Create)
		put(t, f, fmt.Sprint(i), 0)
		files = append(files, f)
	}
	if err := c.SyncDir("."); err != nil {
		t.Error(err)
	}
	for i, f := range files {
		var b [1]byte
		if _, err := f.ReadAt(b[:], 0); err != nil || string(b[:]) != fmt.Sprint(i) {
			t.Errorf("file %d: %q, %v", i, b, err)
		}
		syncAll(t, f)
	}
	for _, f := range files {
		closeAll(t, f)
	}
}

func TestAWriteThatEndsDuringASyncLeavesTheFileDirty(t *testing.T) {
	c := WithDescriptorCache(NewSim(nil), 1)
	f := open(t, c, "a", Create)
	put(t, f, "1", 0)
	finish := f.(BeginSyncer).BeginSync()
	put(t, f, "2", 0)
	if err := finish(); err != nil || !f.(*cachedFile).dirty {
		t.Errorf("dirty %v, %v", f.(*cachedFile).dirty, err)
	}
	syncAll(t, f)
	if f.(*cachedFile).dirty {
		t.Error("dirty after a sync that nothing overlapped")
	}
}

func TestAFailedSyncLeavesTheFileDirty(t *testing.T) {
	c := WithDescriptorCache(WithHook(NewSim(nil), FailNth(1, nil, OpSync).Hook), 1)
	f := open(t, c, "a", Create)
	put(t, f, "1", 0)
	if err := f.Sync(); !errors.Is(err, ErrInjected) || !f.(*cachedFile).dirty {
		t.Errorf("dirty %v, %v", f.(*cachedFile).dirty, err)
	}
}

func TestClosedDescriptorsFollowRenamesAndRemovals(t *testing.T) {
	c := WithDescriptorCache(NewReal(t.TempDir(), nil), 1)
	mkdir(t, c, "d")
	for _, n := range []string{"d/a", "d/b", "d/c"} {
		write(t, c, n, n)
	}
	a, b, cc := open(t, c, "d/a", ReadOnly), open(t, c, "d/b", ReadOnly), open(t, c, "d/c", ReadOnly) // all without descriptor
	for _, err := range []error{c.Rename("d", "e"), c.Rename("e/a", "e/x"), c.Remove("e/b"), c.Rename("e/x", "e/c")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, c, "e/x", "other")
	write(t, c, "e/b", "other")
	for f, want := range map[File]string{a: "d/a", b: "d/b", cc: "d/c"} {
		got := make([]byte, 3)
		if _, err := f.ReadAt(got, 0); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", want, got, err)
		}
	}
	closeAll(t, a, b, cc)
}

func TestADescriptorInUseIsNotClosed(t *testing.T) {
	under := NewReal(t.TempDir(), nil)
	write(t, under, "a", "a")
	write(t, under, "b", "b")
	c := WithDescriptorCache(under, 1)
	a, b := open(t, c, "a", ReadOnly), open(t, c, "b", ReadOnly)
	err := a.(FDHolder).WithFD(func(fd uintptr) error {
		for range 5 {
			if _, err := b.ReadAt(make([]byte, 1), 0); err != nil {
				t.Error(err)
			}
		}
		var got [1]byte
		if _, err := unix.Pread(int(fd), got[:], 0); err != nil || got[0] != 'a' {
			t.Errorf("%q, %v", got, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	closeAll(t, a, b)
}

func TestTheDescriptorCacheUnderManyGoroutines(t *testing.T) {
	under := NewReal(t.TempDir(), nil)
	c := WithDescriptorCache(under, 4)
	mkdir(t, c, "d")
	var files []File
	for i := range 12 {
		files = append(files, open(t, c, fmt.Sprint("d/", i), Create))
		put(t, files[i], fmt.Sprintf("%02d", i), 0)
		syncAll(t, files[i])
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for n := range 300 {
				i := (g*31 + n*7) % len(files)
				var b [2]byte
				if _, err := files[i].ReadAt(b[:], 0); err != nil || string(b[:]) != fmt.Sprintf("%02d", i) {
					t.Errorf("%q, %v", b, err)
					return
				}
				switch n % 50 {
				case 10:
					if _, err := files[i].WriteAt(b[:], 0); err != nil {
						t.Error(err)
					}
				case 20:
					if err := files[i].Sync(); err != nil {
						t.Error(err)
					}
				case 30:
					name := fmt.Sprintf("d/tmp-%d-%d", g, n)
					f, err := c.Open(name, Create)
					if err == nil {
						err = errors.Join(c.Rename(name, name+"x"), f.Close(), c.Remove(name+"x"))
					}
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, f := range files {
		syncAll(t, f)
		closeAll(t, f)
	}
	if len(c.open)+len(c.live) != 0 {
		t.Error("closed files are remembered")
	}
}
