package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"
)

// conformance is what every FS must do alike. The storage layer is tested over
// the simulated disk and runs over the real one: this table is why that is sound.
var conformance = []struct {
	name string
	run  func(t *testing.T, f FS)
}{
	{"open of a missing file is ErrNotExist", func(t *testing.T, f FS) {
		for _, mode := range []Mode{ReadOnly, ReadWrite, ReadWrite | Truncate} {
			if _, err := f.Open("absent", mode); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("mode %b: %v", mode, err)
			}
		}
		if _, err := f.Open("no/such/dir/file", Create); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("create in a missing directory: %v", err)
		}
	}},
	{"exclusive create of an existing file is ErrExist", func(t *testing.T, f FS) {
		write(t, f, "a", "x")
		if _, err := f.Open("a", Create|Exclusive); !errors.Is(err, fs.ErrExist) {
			t.Error(err)
		}
	}},
	{"create keeps what is there, truncate empties it", func(t *testing.T, f FS) {
		write(t, f, "a", "old")
		h := open(t, f, "a", Create)
		wantContent(t, f, "a", "old")
		h2 := open(t, f, "a", ReadWrite|Truncate)
		wantContent(t, f, "a", "")
		closeAll(t, h, h2)
	}},
	{"a write is seen by every handle at once", func(t *testing.T, f FS) {
		h, h2 := open(t, f, "a", Create), open(t, f, "a", ReadOnly)
		put(t, h, "hello", 3)
		var b [5]byte
		if _, err := h2.ReadAt(b[:], 3); err != nil || string(b[:]) != "hello" {
			t.Errorf("%q, %v", b, err)
		}
		closeAll(t, h, h2)
	}},
	{"a hole reads as zeros", func(t *testing.T, f FS) {
		h := open(t, f, "a", Create)
		put(t, h, "end", 1<<20)
		b := bytes.Repeat([]byte{1}, 9000)
		if _, err := h.ReadAt(b, 4000); err != nil || !bytes.Equal(b, make([]byte, 9000)) {
			t.Errorf("not zeros, or %v", err)
		}
		wantSize(t, h, 1<<20+3)
		closeAll(t, h)
	}},
	{"a read past the end is short and io.EOF", func(t *testing.T, f FS) {
		write(t, f, "a", "abc")
		h := open(t, f, "a", ReadOnly)
		b := make([]byte, 10)
		for _, c := range []struct{ off, n int }{{0, 3}, {1, 2}, {3, 0}, {100, 0}} {
			if n, err := h.ReadAt(b, int64(c.off)); n != c.n || err != io.EOF {
				t.Errorf("at %d: %d, %v", c.off, n, err)
			}
		}
		if n, err := h.ReadAt(b[:3], 0); n != 3 || (err != nil && err != io.EOF) {
			t.Errorf("up to the end: %d, %v", n, err)
		}
		closeAll(t, h)
	}},
	{"a read-only handle does not write", func(t *testing.T, f FS) {
		write(t, f, "a", "abc")
		h := open(t, f, "a", ReadOnly)
		if _, err := h.WriteAt([]byte("x"), 0); err == nil {
			t.Error("write succeeded")
		}
		if err := h.Truncate(0); err == nil {
			t.Error("truncate succeeded")
		}
		closeAll(t, h)
		wantContent(t, f, "a", "abc")
	}},
	{"truncate cuts, and growth after it reads as zeros", func(t *testing.T, f FS) {
		h := open(t, f, "a", Create)
		put(t, h, "abcdef", 0)
		for _, size := range []int64{2, 5} {
			if err := h.Truncate(size); err != nil {
				t.Fatal(err)
			}
			wantSize(t, h, size)
		}
		closeAll(t, h)
		wantContent(t, f, "a", "ab\x00\x00\x00")
	}},
	{"preallocation keeps size and content", func(t *testing.T, f FS) {
		h := open(t, f, "a", Create)
		put(t, h, "abc", 0)
		if err := h.Preallocate(0, 1<<20); err != nil && !errors.Is(err, ErrUnsupported) {
			t.Fatal(err)
		}
		wantSize(t, h, 3)
		closeAll(t, h)
		wantContent(t, f, "a", "abc")
	}},
	{"rename replaces, and open handles follow the file", func(t *testing.T, f FS) {
		write(t, f, "new", "NEW")
		write(t, f, "a", "old")
		hNew, hOld := open(t, f, "new", ReadWrite), open(t, f, "a", ReadOnly)
		if err := f.Rename("new", "a"); err != nil {
			t.Fatal(err)
		}
		put(t, hNew, "!", 3)
		wantContent(t, f, "a", "NEW!")
		var b [3]byte
		if _, err := hOld.ReadAt(b[:], 0); err != nil || string(b[:]) != "old" {
			t.Errorf("the replaced file: %q, %v", b, err)
		}
		if _, err := f.Stat("new"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		if err := f.Rename("absent", "b"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		closeAll(t, hNew, hOld)
	}},
	{"a directory is renamed with what it holds", func(t *testing.T, f FS) {
		mkdir(t, f, "d/sub")
		write(t, f, "d/sub/a", "x")
		h := open(t, f, "d/sub/a", ReadWrite)
		if err := f.Rename("d", "e"); err != nil {
			t.Fatal(err)
		}
		put(t, h, "y", 1)
		closeAll(t, h)
		wantContent(t, f, "e/sub/a", "xy")
	}},
	{"a removed file stays readable through its handles", func(t *testing.T, f FS) {
		write(t, f, "a", "abc")
		h := open(t, f, "a", ReadOnly)
		if err := f.Remove("a"); err != nil {
			t.Fatal(err)
		}
		write(t, f, "a", "other")
		var b [3]byte
		if _, err := h.ReadAt(b[:], 0); err != nil || string(b[:]) != "abc" {
			t.Errorf("%q, %v", b, err)
		}
		closeAll(t, h)
	}},
	{"remove wants a file or an empty directory that is there", func(t *testing.T, f FS) {
		mkdir(t, f, "d")
		write(t, f, "d/a", "x")
		if err := f.Remove("d"); err == nil {
			t.Error("removed a directory that is not empty")
		}
		for _, name := range []string{"d/a", "d"} {
			if err := f.Remove(name); err != nil {
				t.Error(err)
			}
			if err := f.Remove(name); !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	}},
	{"remove all takes a whole tree, and nothing is no error", func(t *testing.T, f FS) {
		mkdir(t, f, "d/e/f")
		write(t, f, "d/e/f/a", "x")
		write(t, f, "d/b", "x")
		for range 2 {
			if err := f.RemoveAll("d"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.Stat("d"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}},
	{"list is ascending, stat tells size and kind", func(t *testing.T, f FS) {
		mkdir(t, f, "d/z")
		mkdir(t, f, "d/z") // again: no error
		write(t, f, "d/b", "bb")
		write(t, f, "d/a", "a")
		names, err := f.List("d")
		if err != nil || !slices.Equal(names, []string{"a", "b", "z"}) {
			t.Errorf("%q, %v", names, err)
		}
		if i, err := f.Stat("d/b"); err != nil || i.Size != 2 || i.Dir {
			t.Errorf("%+v, %v", i, err)
		}
		if i, err := f.Stat("d/z"); err != nil || !i.Dir {
			t.Errorf("%+v, %v", i, err)
		}
		if _, err := f.List("absent"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}},
	{"sync and sync of a directory succeed", func(t *testing.T, f FS) {
		mkdir(t, f, "d")
		h := open(t, f, "d/a", Create)
		put(t, h, "x", 0)
		for _, s := range []Syncer{h, DirSyncer(f, "d")} {
			if err := s.Sync(); err != nil {
				t.Error(err)
			}
		}
		closeAll(t, h)
		if err := f.SyncDir("absent"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}},
	{"a lock excludes until it is closed", func(t *testing.T, f FS) {
		l, err := f.Lock(".lock")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Lock(".lock"); !errors.Is(err, ErrLocked) {
			t.Error(err)
		}
		closeAll(t, l)
		if l, err = f.Lock(".lock"); err != nil {
			t.Fatal(err)
		}
		closeAll(t, l)
	}},
	{"a closed file answers ErrClosed", func(t *testing.T, f FS) {
		h := open(t, f, "a", Create)
		closeAll(t, h)
		_, readErr := h.ReadAt(make([]byte, 1), 0)
		_, writeErr := h.WriteAt(make([]byte, 1), 0)
		for _, err := range []error{readErr, writeErr, h.Sync(), h.Close(), h.Truncate(0)} {
			if !errors.Is(err, fs.ErrClosed) {
				t.Error(err)
			}
		}
	}},
}

func TestEveryFileSystemBehavesAlike(t *testing.T) {
	systems := []struct {
		name string
		make func(t *testing.T) FS
	}{
		{"real", func(t *testing.T) FS { return NewReal(t.TempDir(), nil) }},
		{"simulated", func(t *testing.T) FS { return NewSim(nil) }},
		{"hooked over simulated", func(t *testing.T) FS { return WithHook(NewSim(nil), func(Op) error { return nil }) }},
		{"descriptor cache over real", func(t *testing.T) FS { return WithDescriptorCache(NewReal(t.TempDir(), nil), 1) }},
		{"descriptor cache over simulated", func(t *testing.T) FS { return WithDescriptorCache(NewSim(nil), 1) }},
	}
	for _, s := range systems {
		t.Run(s.name, func(t *testing.T) {
			for _, c := range conformance {
				t.Run(c.name, func(t *testing.T) { c.run(t, s.make(t)) })
			}
		})
	}
}

func TestAbsoluteNamesDoNotLieUnderTheRoot(t *testing.T) {
	dir := t.TempDir()
	f := NewReal(t.TempDir(), nil)
	write(t, f, filepath.Join(dir, "a"), "x")
	wantContent(t, NewReal(dir, nil), "a", "x")
	if got := f.RealPath(dir + "/b"); got != dir+"/b" {
		t.Error(got)
	}
}

func open(t *testing.T, f FS, name string, mode Mode) File {
	t.Helper()
	h, err := f.Open(name, mode)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func put(t *testing.T, h File, s string, off int64) {
	t.Helper()
	if n, err := h.WriteAt([]byte(s), off); err != nil || n != len(s) {
		t.Fatalf("write: %d, %v", n, err)
	}
}

func write(t *testing.T, f FS, name, content string) {
	t.Helper()
	h := open(t, f, name, Create|Truncate)
	put(t, h, content, 0)
	closeAll(t, h)
}

func mkdir(t *testing.T, f FS, name string) {
	t.Helper()
	if err := f.MkdirAll(name); err != nil {
		t.Fatal(err)
	}
}

func content(f FS, name string) (string, error) {
	h, err := f.Open(name, ReadOnly)
	if err != nil {
		return "", err
	}
	defer h.Close()
	b, err := io.ReadAll(io.NewSectionReader(h, 0, 1<<30))
	return string(b), err
}

func wantContent(t *testing.T, f FS, name, want string) {
	t.Helper()
	if got, err := content(f, name); err != nil || got != want {
		t.Errorf("%s holds %q, want %q (%v)", name, got, want, err)
	}
}

func wantSize(t *testing.T, h File, want int64) {
	t.Helper()
	if got, err := h.Size(); err != nil || got != want {
		t.Errorf("size %d, want %d (%v)", got, want, err)
	}
}

func closeAll(t *testing.T, cs ...io.Closer) {
	t.Helper()
	for _, c := range cs {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
