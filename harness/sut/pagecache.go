package sut

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tidemark-log/tidemark/harness/sample"
)

// DropCache writes back every file below dir and drops its pages from the page
// cache. Pages that a process has mapped stay.
func DropCache(dir string) error {
	return eachFile(dir, func(f *os.File) error {
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return fmt.Errorf("sut: sync %s: %w", f.Name(), err)
		}
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			return fmt.Errorf("sut: drop the cache of %s: %w", f.Name(), err)
		}
		return nil
	})
}

// DropClean drops the clean pages of every file below dir again and again until
// the returned stop is called. Dirty pages stay. With it, a long write
// reuses the memory of what has reached the disk instead of taking the machine's
// last unused page; see TouchMemory for why that matters.
func DropClean(dir string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(dropCleanEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				// An error here costs speed, not truth: the next round tries again.
				eachFile(dir, func(f *os.File) error { return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) })
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

const dropCleanEvery = 250 * time.Millisecond

// WriteBack makes every file below dir durable and keeps its pages.
func WriteBack(dir string) error {
	return eachFile(dir, func(f *os.File) error { return unix.Fdatasync(int(f.Fd())) })
}

// WarmCache reads every file below dir once.
func WarmCache(dir string) error {
	buf := make([]byte, 1<<20)
	return eachFile(dir, func(f *os.File) error {
		for off := int64(0); ; {
			n, err := f.ReadAt(buf, off)
			off += int64(n)
			if n == 0 || err != nil {
				return nil
			}
		}
	})
}

// CacheState is what the page cache holds of some files, in bytes.
type CacheState struct {
	Size      int64 // of the files
	Cached    int64
	Dirty     int64
	Writeback int64 // under writeback now
}

// Cached looks at the files below dir. ok is false where the kernel cannot tell (before Linux 6.5).
func Cached(dir string) (st CacheState, ok bool) {
	page := int64(os.Getpagesize())
	err := eachFile(dir, func(f *os.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		c, err := cachestat(f)
		st.Size += info.Size()
		st.Cached += int64(c.cache) * page
		st.Dirty += int64(c.dirty) * page
		st.Writeback += int64(c.writeback) * page
		return err
	})
	return st, err == nil
}

// cachestatResult is struct cachestat of linux/mman.h, in pages.
type cachestatResult struct{ cache, dirty, writeback, evicted, recentlyEvicted uint64 }

// sysCachestat is the number of cachestat(2) on every architecture.
const sysCachestat = 451

func cachestat(f *os.File) (cachestatResult, error) {
	whole := [2]uint64{0, 0} // offset, length; length 0: to the end
	var st cachestatResult
	_, _, errno := unix.Syscall6(sysCachestat, f.Fd(), uintptr(unsafe.Pointer(&whole)), uintptr(unsafe.Pointer(&st)), 0, 0, 0)
	if errno != 0 {
		return st, errno
	}
	return st, nil
}

func eachFile(dir string, do func(*os.File) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			if os.IsNotExist(err) {
				return nil
			}
			return err
		}
		f, err := os.Open(path)
		if os.IsNotExist(err) {
			return nil // deleted meanwhile
		} else if err != nil {
			return err
		}
		defer f.Close()
		return do(f)
	})
}

// WritebackRoom is how many bytes may be dirtied before the kernel begins to
// write back in the background, as things stand.
func WritebackRoom() (int64, error) {
	v, err := sample.VMStat("nr_dirty_background_threshold", "nr_dirty", "nr_writeback")
	if err != nil {
		return 0, err
	}
	return (v[0] - v[1] - v[2]) * int64(os.Getpagesize()), nil
}

// DirtyLimit is how many dirty bytes make the kernel throttle who writes.
func DirtyLimit() (int64, error) {
	v, err := sample.VMStat("nr_dirty_threshold")
	if err != nil {
		return 0, err
	}
	return v[0] * int64(os.Getpagesize()), nil
}
