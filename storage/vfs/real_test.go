package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tidemark-log/tidemark/internal/need"
	"github.com/tidemark-log/tidemark/storage/vfs/syscount"
)

func TestEverySystemCallOfAFileIsCounted(t *testing.T) {
	var c syscount.Counters
	dir := t.TempDir()
	f := NewReal(dir, &c)
	h := open(t, f, "a", Create)
	put(t, h, "hello", 0)
	if _, err := h.ReadAt(make([]byte, 5), 0); err != nil { // exactly the file: one pread, no second for the end
		t.Fatal(err)
	}
	if _, err := h.ReadAt(make([]byte, 8), 2); err != io.EOF { // short: a second pread finds the end
		t.Fatal(err)
	}
	w := h.(WriteBacker)
	for _, err := range []error{h.Sync(), w.BeginWriteBack(), w.WriteBack(), h.Truncate(2), f.SyncDir("."), f.Rename("a", "b"), f.Remove("b"), h.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := map[syscount.Kind]int64{
		syscount.Open: 2, syscount.Close: 2, syscount.Pwrite: 1, syscount.Pread: 3, syscount.Fdatasync: 1,
		syscount.Ftruncate: 1, syscount.Fsync: 1, syscount.Rename: 1, syscount.Unlink: 1, syscount.SyncFileRange: 2,
	}
	if !writesBack[typeOf(t, dir)] { // then writing back is a sync
		want[syscount.Fdatasync], want[syscount.SyncFileRange] = 2, 0
	}
	s := c.Snapshot()
	for _, k := range syscount.Kinds() {
		if s.Of(k) != want[k] {
			t.Errorf("%s: %d, want %d", k, s.Of(k), want[k])
		}
	}
	if s.ToKernel != 5 || s.ToUser != 5+3 {
		t.Errorf("to kernel %d, to user %d", s.ToKernel, s.ToUser)
	}
}

func TestALockSaysWhoHoldsIt(t *testing.T) {
	f := NewReal(t.TempDir(), nil)
	l, err := f.Lock(".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = f.Lock(".lock")
	if want := fmt.Sprintf("pid %d", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s in it", err, want)
	}
}

func TestAFullDiskAndASpentQuotaAreNoSpace(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOSPC, unix.EDQUOT} {
		if err := pathError("write", "a", errno); !errors.Is(err, ErrNoSpace) || !errors.Is(err, errno) {
			t.Error(err)
		}
	}
	h, err := NewReal("", nil).Open("/dev/full", ReadWrite)
	if err != nil {
		need.Skip(t, "dev-full", err.Error())
	}
	defer h.Close()
	if _, err := h.WriteAt([]byte("x"), 0); !errors.Is(err, ErrNoSpace) {
		t.Error(err)
	}
}

func TestADescriptorOutlivesCloseWhileItIsUsed(t *testing.T) {
	f := NewReal(t.TempDir(), nil)
	h := open(t, f, "a", Create)
	err := h.(FDHolder).WithFD(func(fd uintptr) error {
		closeAll(t, h)
		if _, err := unix.Pwrite(int(fd), []byte("x"), 0); err != nil {
			t.Error(err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Sync(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	wantContent(t, f, "a", "x")
}

func TestDirectFilesReadAndWriteAligned(t *testing.T) {
	f := NewReal(t.TempDir(), nil)
	h, err := f.Open("a", Create|Direct)
	if errors.Is(err, ErrUnsupported) {
		need.Skip(t, "o_direct", err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	b := make([]byte, 3*DirectAlign)
	b = b[DirectAlign-int(uintptr(unsafe.Pointer(&b[0]))%DirectAlign):][:DirectAlign]
	copy(b, "direct")
	if _, err := h.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	clear(b)
	if _, err := h.ReadAt(b, 0); err != nil || string(b[:6]) != "direct" {
		t.Errorf("%q, %v", b[:6], err)
	}
}

// TestAFileOfAnOverlayIsSyncedToBeWrittenBack: sync_file_range would succeed there and write nothing.
func TestAFileOfAnOverlayIsSyncedToBeWrittenBack(t *testing.T) {
	need.Root(t)
	dir, refused, done := t.TempDir(), error(nil), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread, and its mounts, end with the goroutine
		if dir, refused = overlay(t, dir); refused != nil {
			return
		}
		c := new(syscount.Counters)
		f, err := NewReal(dir, c).Open("a", Create)
		if err != nil {
			t.Error(err)
			return
		}
		_, err = f.WriteAt([]byte("1"), 0)
		w := f.(WriteBacker)
		if err := errors.Join(err, w.BeginWriteBack(), w.WriteBack(), f.Close()); err != nil {
			t.Error(err)
		}
		if n := c.Snapshot(); n.Of(syscount.Fdatasync) != 1 || n.Of(syscount.SyncFileRange) != 0 {
			t.Errorf("%d syncs, %d calls of sync_file_range", n.Of(syscount.Fdatasync), n.Of(syscount.SyncFileRange))
		}
	}()
	if <-done; refused != nil {
		need.Skip(t, "overlay", refused.Error())
	}
}

func typeOf(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Error(err)
	}
	return int64(st.Type)
}

// overlay gives a directory below dir that is an overlay's, for the calling thread alone.
func overlay(t *testing.T, dir string) (string, error) {
	if typeOf(t, dir) == unix.OVERLAYFS_SUPER_MAGIC {
		return dir, nil // one upon another may not be
	}
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return "", err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return "", err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", err
	}
	merged := filepath.Join(dir, "merged")
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)
	return merged, unix.Mount("overlay", merged, "overlay", 0, options)
}
