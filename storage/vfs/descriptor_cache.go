package vfs

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
)

// DescriptorCache bounds how many files of a file system are really open, so
// that thousands of segments need no thousands of descriptors. A file that is
// there already is opened at its first use, and may be closed and reopened at
// any time between two uses.
//
// A descriptor with writes since its last successful Sync is not closed as it
// is: if writing them back failed meanwhile, the error would go to nobody, and a
// sync of a new descriptor would call lost bytes durable. Where only such are left
// to close, the kernel is asked to write them back first, and says how that went
// (see WriteBacker): nothing is durable by that, and no error is lost. Should it fail, the file
// keeps its descriptor, and every later Sync and write of it the error. So what the
// bound counts can pass it only by the files in use, those that could not be
// written back, and those removed while open.
//
// A file is reopened by name, so all renames and removals of files open through
// the cache must go through it as well.
type DescriptorCache struct {
	fs      FS
	openMax int

	// mu is taken before any cachedFile's, and held over operations that change names.
	mu   sync.Mutex
	live liveFiles     // files not closed by their users
	open []*cachedFile // those that hold a descriptor, for the clock
	hand int
}

// WithDescriptorCache keeps at most openMax files of fs open; see DescriptorCache.
func WithDescriptorCache(fs FS, openMax int) *DescriptorCache {
	return &DescriptorCache{fs: fs, openMax: max(1, openMax), live: liveFiles{}}
}

var _ FS = (*DescriptorCache)(nil)

// Unwrap is the file system underneath.
func (c *DescriptorCache) Unwrap() FS { return c.fs }

// Open is FS's. Without Create and Truncate it only looks whether the file is there.
func (c *DescriptorCache) Open(name string, mode Mode) (File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &cachedFile{c: c, slot: -1, opened: name, name: path.Clean(name), mode: mode &^ (Create | Exclusive | Truncate)}
	if mode&Create != 0 {
		f.mode |= ReadWrite
	}
	if mode&(Create|Truncate|Direct) != 0 { // Direct: whether the file system can is known only now
		inner, err := c.fs.Open(name, mode)
		if errors.Is(err, ErrTooManyOpen) {
			c.giveBack()
			inner, err = c.fs.Open(name, mode)
		}
		if err != nil {
			return nil, err
		}
		f.inner, f.dirty = inner, mode&Truncate != 0
		c.admit(f)
	} else if info, err := c.fs.Stat(name); err != nil {
		return nil, err
	} else if info.Dir {
		return nil, &iofs.PathError{Op: "open", Path: name, Err: errIsDir}
	}
	c.live.add(f)
	if _, descriptors := RealPath(c.fs, name); !descriptors {
		return f, nil
	}
	return &cachedFDFile{f}, nil
}

// looksMax bounds the work of one shrink when most open files cannot be closed;
// the next one goes on where this one stopped.
const looksMax = 128

// admit counts f among the open and closes others while there are too many.
func (c *DescriptorCache) admit(f *cachedFile) {
	f.mu.Lock()
	closed := f.closed // by another goroutine since f was opened
	f.mu.Unlock()
	if closed {
		return
	}
	f.slot = len(c.open)
	c.open = append(c.open, f)
	c.shrink(c.openMax, f)
}

// shrink closes files, but not keep, while more than most are open: the clock
// algorithm, in which the first look at a file forgets its last use. c.mu is held.
func (c *DescriptorCache) shrink(most int, keep *cachedFile) {
	for looks := min(2*len(c.open), looksMax); looks > 0 && len(c.open) > most; looks-- {
		c.hand %= len(c.open)
		if g := c.open[c.hand]; g != keep && g.evict() {
			c.take(g)
		} else {
			c.hand++
		}
	}
	if len(c.open) > most {
		c.writeBackAndEvict(len(c.open)-most, keep)
	}
}

// writtenBackAtOnce is how many files are written back together to be closed, where at least one must be.
const writtenBackAtOnce = 32

// writeBackAndEvict closes files with unsynced writes: n of them, and some more that a disk
// takes along, so that the next files to be opened need not wait. c.mu is held.
func (c *DescriptorCache) writeBackAndEvict(n int, keep *cachedFile) {
	n = max(n, min(writtenBackAtOnce, c.openMax/8))
	var picked []*cachedFile
	for looks := min(len(c.open), looksMax); looks > 0 && len(picked) < n; looks-- {
		c.hand %= len(c.open)
		g := c.open[c.hand]
		c.hand++
		if g != keep && g.lockIfIdle() {
			picked = append(picked, g)
			g.beginWriteBack()
		}
	}
	for _, g := range picked {
		g.writeBackAndClose()
		if g.inner == nil {
			c.take(g)
		}
		g.mu.Unlock()
	}
}

// take takes f off the list of those that hold a descriptor. The last of them takes its place. c.mu is held.
func (c *DescriptorCache) take(f *cachedFile) {
	last := len(c.open) - 1
	c.open[f.slot] = c.open[last]
	c.open[f.slot].slot = f.slot
	c.open[last] = nil
	c.open = c.open[:last]
	f.slot = -1
}

// giveBackMax is how many files are closed when the process may open no more.
const giveBackMax = 8

// giveBack closes some files, since somebody else has taken all other descriptors. c.mu is held.
func (c *DescriptorCache) giveBack() { c.shrink(max(0, len(c.open)-giveBackMax), nil) }

// forget takes a closed file out of the books. c.mu is held.
func (c *DescriptorCache) forget(f *cachedFile) {
	if f.slot >= 0 {
		c.take(f)
	}
	c.live.remove(f)
}

// liveFiles are files by directory and then by name, so that a directory among thousands can be renamed fast.
type liveFiles map[string]map[string][]*cachedFile

func (l liveFiles) add(f *cachedFile) {
	dir := path.Dir(f.name)
	if l[dir] == nil {
		l[dir] = map[string][]*cachedFile{}
	}
	l[dir][f.name] = append(l[dir][f.name], f)
}

func (l liveFiles) remove(f *cachedFile) {
	dir := path.Dir(f.name)
	rest := slices.DeleteFunc(l[dir][f.name], func(g *cachedFile) bool { return g == f })
	switch {
	case len(rest) > 0:
		l[dir][f.name] = rest
	case len(l[dir]) <= 1:
		delete(l, dir)
	default:
		delete(l[dir], f.name)
	}
}

// below gives the files in dir and in the directories below it, by name.
func (l liveFiles) below(dir string) (found []*cachedFile) {
	inside := dir + "/"
	within := maps.Clone(l) // left out before sorting: there may be thousands of others
	maps.DeleteFunc(within, func(d string, _ map[string][]*cachedFile) bool { return d != dir && !strings.HasPrefix(d, inside) })
	for _, d := range slices.Sorted(maps.Keys(within)) {
		for _, name := range slices.Sorted(maps.Keys(l[d])) {
			found = append(found, l[d][name]...)
		}
	}
	return found
}

// under gives the live files that are name or lie below it.
func (c *DescriptorCache) under(name string) []*cachedFile {
	name = path.Clean(name)
	if files := c.live[path.Dir(name)][name]; len(files) > 0 {
		return slices.Clone(files)
	}
	if info, err := c.fs.Stat(name); err != nil || !info.Dir {
		return nil
	}
	return c.live.below(name)
}

// detach opens the files that are about to lose their name, for good.
func (c *DescriptorCache) detach(name string) error {
	for _, f := range c.under(name) {
		if err := f.acquire(true); err != nil {
			return err
		}
		f.mu.Lock()
		f.detached = true
		f.mu.Unlock()
		f.release(false)
	}
	return nil
}

// Remove removes name; files open through the cache stay readable.
func (c *DescriptorCache) Remove(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.detach(name); err != nil {
		return err
	}
	return c.fs.Remove(name)
}

// RemoveAll removes name and what it holds; files open through the cache stay readable.
func (c *DescriptorCache) RemoveAll(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.detach(name); err != nil {
		return err
	}
	return c.fs.RemoveAll(name)
}

// Rename renames; files open through the cache follow.
func (c *DescriptorCache) Rename(oldName, newName string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	oldName, newName = path.Clean(oldName), path.Clean(newName)
	if oldName != newName {
		if err := c.detach(newName); err != nil { // replaced
			return err
		}
	}
	moved := c.under(oldName)
	for _, f := range moved { // none may reopen by its old name meanwhile
		f.mu.Lock()
		defer f.mu.Unlock()
	}
	if err := c.fs.Rename(oldName, newName); err != nil {
		return err
	}
	for _, f := range moved {
		if !f.detached {
			c.live.remove(f)
			f.name = newName + strings.TrimPrefix(f.name, oldName)
			c.live.add(f)
		}
	}
	return nil
}

// MkdirAll is FS's.
func (c *DescriptorCache) MkdirAll(name string) error { return c.fs.MkdirAll(name) }

// List is FS's.
func (c *DescriptorCache) List(dir string) ([]string, error) { return c.fs.List(dir) }

// Stat is FS's.
func (c *DescriptorCache) Stat(name string) (Info, error) { return c.fs.Stat(name) }

// SyncDir is FS's.
func (c *DescriptorCache) SyncDir(dir string) error {
	err := c.fs.SyncDir(dir)
	if errors.Is(err, ErrTooManyOpen) { // it takes a descriptor, too
		c.mu.Lock()
		c.giveBack()
		c.mu.Unlock()
		err = c.fs.SyncDir(dir)
	}
	return err
}

// Lock is FS's; a lock keeps its descriptor and is not counted.
func (c *DescriptorCache) Lock(name string) (io.Closer, error) { return c.fs.Lock(name) }

// cachedFile is a File whose descriptor comes and goes.
type cachedFile struct {
	c      *DescriptorCache
	opened string // the name given to Open
	mode   Mode   // to reopen with
	slot   int    // in c.open; -1: not there. Under c.mu

	mu       sync.Mutex
	name     string // where the file is now; changed under c.mu and mu
	inner    File   // nil while no descriptor is held
	users    int    // calls under way: the descriptor stays
	recent   bool   // used since the clock last looked
	writes   int64  // done so far
	dirty    bool   // some of them came after the last successful sync or write-back began
	failed   error  // of the write-back that was to let the descriptor go: what was written may be lost
	detached bool   // the name is another file's by now: the descriptor stays
	closed   bool
}

// acquire gives f a descriptor and keeps it until release. locked says that c.mu is held.
func (f *cachedFile) acquire(locked bool) error {
	fresh, err := f.hold()
	if !locked && (fresh || errors.Is(err, ErrTooManyOpen)) {
		// Without f.mu, which shrink may want of another file that is as far as we are.
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
	}
	if errors.Is(err, ErrTooManyOpen) {
		f.c.giveBack()
		fresh, err = f.hold()
	}
	if err == nil && fresh {
		f.c.admit(f)
	}
	return err
}

// hold counts a user of f and opens it where it is not; fresh says so.
func (f *cachedFile) hold() (fresh bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false, &iofs.PathError{Op: "use", Path: f.opened, Err: iofs.ErrClosed}
	}
	if f.inner == nil {
		if f.inner, err = f.c.fs.Open(f.name, f.mode); err != nil {
			f.inner = nil
			return false, fmt.Errorf("reopen: %w", err)
		}
		fresh = true
	}
	f.users++
	f.recent = true
	return fresh, nil
}

func (f *cachedFile) release(wrote bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users--
	if wrote {
		f.writes++
		f.dirty = true
	}
}

// evict closes the descriptor if it may be. c.mu is held.
func (f *cachedFile) evict() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users > 0 || f.dirty || f.detached || f.recent || f.inner == nil {
		f.recent = false
		return false
	}
	_ = f.inner.Close() // nothing unsynced is behind it
	f.inner = nil
	return true
}

// lockIfIdle takes f's lock if its descriptor may be closed, written back or not. c.mu is held.
func (f *cachedFile) lockIfIdle() bool {
	f.mu.Lock()
	if f.users > 0 || f.detached || f.inner == nil || f.failed != nil {
		f.mu.Unlock()
		return false
	}
	return true
}

// beginWriteBack lets the disk begin with what writeBackAndClose waits for. f.mu is held.
func (f *cachedFile) beginWriteBack() {
	if w, ok := f.inner.(WriteBacker); ok && f.dirty {
		f.failed = w.BeginWriteBack()
	}
}

// writeBackAndClose closes the descriptor unless writing back fails. f.mu is held.
func (f *cachedFile) writeBackAndClose() {
	if f.dirty && f.failed == nil {
		if w, ok := f.inner.(WriteBacker); ok {
			f.failed = w.WriteBack()
		} else {
			f.failed = f.inner.Sync()
		}
	}
	if f.failed != nil {
		return
	}
	f.dirty = false
	_ = f.inner.Close()
	f.inner = nil
}

// failure is what a write-back on nobody's behalf met.
func (f *cachedFile) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

func (f *cachedFile) Name() string { return f.opened }

func (f *cachedFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.acquire(false); err != nil {
		return 0, err
	}
	defer f.release(false)
	return f.inner.ReadAt(b, off)
}

func (f *cachedFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.acquire(false); err != nil {
		return 0, err
	}
	defer f.release(true)
	if err := f.failure(); err != nil {
		return 0, err
	}
	return f.inner.WriteAt(b, off)
}

func (f *cachedFile) Truncate(size int64) error {
	if err := f.acquire(false); err != nil {
		return err
	}
	defer f.release(true)
	return f.inner.Truncate(size)
}

func (f *cachedFile) Preallocate(offset, n int64) error {
	if err := f.acquire(false); err != nil {
		return err
	}
	defer f.release(true)
	return f.inner.Preallocate(offset, n)
}

func (f *cachedFile) Size() (int64, error) {
	if err := f.acquire(false); err != nil {
		return 0, err
	}
	defer f.release(false)
	return f.inner.Size()
}

// Sync syncs the file even if this descriptor has written nothing: an earlier
// process may have. A write that ends while it runs leaves the file dirty.
func (f *cachedFile) Sync() error { return f.BeginSync()() }

// BeginSync is for a simulated file underneath; for a real one all happens in finish.
func (f *cachedFile) BeginSync() (finish func() error) {
	if err := f.acquire(false); err != nil {
		return func() error { return err }
	}
	f.mu.Lock()
	writes, failed := f.writes, f.failed
	f.mu.Unlock()
	if failed != nil {
		f.release(false)
		return func() error { return failed }
	}
	inner := f.inner.Sync
	if b, ok := f.inner.(BeginSyncer); ok {
		inner = b.BeginSync()
	}
	return func() error {
		defer f.release(false)
		err := inner()
		f.mu.Lock()
		defer f.mu.Unlock()
		if err == nil && f.writes == writes {
			f.dirty = false
		}
		return err
	}
}

func (f *cachedFile) Close() error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return &iofs.PathError{Op: "close", Path: f.opened, Err: iofs.ErrClosed}
	}
	f.closed = true
	f.c.forget(f)
	if f.inner == nil {
		return nil
	}
	return f.inner.Close() // calls under way keep a real descriptor to their end
}

// cachedFDFile is a cachedFile over a file system with descriptors.
type cachedFDFile struct{ *cachedFile }

// WithFD runs fn with the descriptor, which stays open meanwhile.
func (f *cachedFDFile) WithFD(fn func(fd uintptr) error) error {
	if err := f.acquire(false); err != nil {
		return err
	}
	defer f.release(false)
	h, ok := f.inner.(FDHolder)
	if !ok {
		return fmt.Errorf("%w: %s has no descriptor", ErrUnsupported, f.opened)
	}
	return h.WithFD(fn)
}
