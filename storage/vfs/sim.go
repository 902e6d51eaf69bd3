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
	"time"
)

// Sim is a disk in memory that loses power as a real one may.
//
// It keeps two states of everything: what the process sees, and what the disk is
// sure to hold. Bytes reach the second by Sync of their file, names by SyncDir of
// their directory. Crash leaves what is sure and a random part of the rest, as it is
// now or was between two writes, for the kernel writes back when it likes; Kill
// leaves all of it, as the page cache outlives a process. A Sync that a hook fails loses what it was to write, as
// on Linux: see SyncFailer. The same calls and the
// same random source give the same disk, always.
//
// Files are sparse: a preallocated or truncated-up gigabyte costs nothing. Names
// with and without a leading slash are the same.
type Sim struct {
	mu          sync.Mutex
	now         func() time.Time
	root        *inode
	incarnation int // of the process; handles of earlier ones are dead
	boots       int // power cuts so far
	locks       map[string]bool

	// What a crash may take back. Bounded by what was changed since the last
	// syncs: a change leaves the list when it is durable.
	volatileNames []nameOp // oldest first
	lastOp        int64    // number of the newest nameOp
	volatileFiles []*inode // in the order in which they became so
	unlinked      []*inode // no name leads there; after a crash one may
}

// inode is a file or directory, whatever its name.
type inode struct {
	dir     bool
	modTime time.Time
	// gone: no durable name leads here any more, so a crash need not care.
	gone bool

	names  map[string]*inode // of a directory, as the process sees it
	stable map[string]*inode // and as the disk is sure to hold it

	simData // of a file
}

// nameOp is one change of names: a create, remove, mkdir or rename. A crash
// keeps it whole or not at all, but for a rename between directories of which
// one was synced.
type nameOp struct {
	n       int64
	changes []nameChange
	loses   *inode // what has no name once this is durable
}

// nameChange binds name in dir to ino, or unbinds it when ino is nil.
type nameChange struct {
	dir  *inode
	name string
	ino  *inode
}

var (
	errNotEmpty = errors.New("directory not empty")
	errIsDir    = errors.New("is a directory")
	errNotDir   = errors.New("not a directory")
)

// NewSim gives an empty disk. now gives modification times; nil is the epoch, always.
func NewSim(now func() time.Time) *Sim {
	if now == nil {
		now = func() time.Time { return time.Unix(0, 0) }
	}
	return &Sim{now: now, root: newDir(), locks: map[string]bool{}}
}

var _ FS = (*Sim)(nil)

func newDir() *inode {
	return &inode{dir: true, names: map[string]*inode{}, stable: map[string]*inode{}}
}

func simError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &iofs.PathError{Op: op, Path: name, Err: err}
}

// lookup walks to name. Sim's methods below hold s.mu.
func (s *Sim) lookup(name string) (*inode, error) {
	at := s.root
	for part := range strings.SplitSeq(clean(name), "/") {
		if part == "" {
			continue
		}
		if !at.dir {
			return nil, errNotDir
		}
		next := at.names[part]
		if next == nil {
			return nil, iofs.ErrNotExist
		}
		at = next
	}
	return at, nil
}

// parent gives the directory that holds name, and name's last part.
func (s *Sim) parent(name string) (dir *inode, base string, err error) {
	dirName, base := path.Split(clean(name))
	if base == "" {
		return nil, "", iofs.ErrInvalid // the root itself
	}
	if dir, err = s.lookup(dirName); err == nil && !dir.dir {
		err = errNotDir
	}
	return dir, base, err
}

// clean makes name absolute, without dots.
func clean(name string) string { return path.Clean("/" + name) }

// change makes a change of names, visible now and volatile. loses may be nil.
func (s *Sim) change(loses *inode, changes ...nameChange) {
	s.lastOp++
	s.volatileNames = append(s.volatileNames, nameOp{s.lastOp, changes, loses})
	for _, c := range changes {
		bind(c.dir.names, c.name, c.ino)
		c.dir.modTime = s.now()
	}
}

func bind(names map[string]*inode, name string, ino *inode) {
	if ino == nil {
		delete(names, name)
	} else {
		names[name] = ino
	}
}

// Open opens name; see FS.
func (s *Sim) Open(name string, mode Mode) (File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.open(name, mode)
	return f, simError("open", name, err)
}

func (s *Sim) open(name string, mode Mode) (File, error) {
	if mode&Direct != 0 {
		return nil, fmt.Errorf("%w: direct I/O", ErrUnsupported)
	}
	dir, base, err := s.parent(name)
	if err != nil {
		return nil, err
	}
	ino := dir.names[base]
	switch {
	case ino == nil && mode&Create == 0:
		return nil, iofs.ErrNotExist
	case ino == nil:
		ino = &inode{modTime: s.now()}
		s.change(nil, nameChange{dir, base, ino})
	case mode&Create != 0 && mode&Exclusive != 0:
		return nil, iofs.ErrExist
	case ino.dir:
		return nil, errIsDir
	}
	f := &simFile{s: s, ino: ino, name: name, writable: mode&(ReadWrite|Create) != 0, incarnation: s.incarnation}
	if mode&Truncate != 0 && ino.size > 0 {
		s.setSize(ino, 0)
	}
	return f, nil
}

// Remove removes a file or an empty directory.
func (s *Sim) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return simError("remove", name, s.remove(name))
}

func (s *Sim) remove(name string) error {
	dir, base, err := s.parent(name)
	if err != nil {
		return err
	}
	ino := dir.names[base]
	switch {
	case ino == nil:
		return iofs.ErrNotExist
	case len(ino.names) > 0:
		return errNotEmpty
	}
	s.change(ino, nameChange{dir, base, nil})
	return nil
}

// RemoveAll removes name and what it holds, one name at a time, as a real one does.
func (s *Sim) RemoveAll(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return simError("remove", name, s.removeAll(name))
}

func (s *Sim) removeAll(name string) error {
	ino, err := s.lookup(name)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, n := range slices.Sorted(maps.Keys(ino.names)) {
		if err := s.removeAll(path.Join(name, n)); err != nil {
			return err
		}
	}
	return s.remove(name)
}

// Rename renames atomically; see FS.
func (s *Sim) Rename(oldName, newName string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return simError("rename", oldName+" to "+newName, s.rename(oldName, newName))
}

func (s *Sim) rename(oldName, newName string) error {
	oldDir, oldBase, err := s.parent(oldName)
	if err != nil {
		return err
	}
	newDir, newBase, err := s.parent(newName)
	if err != nil {
		return err
	}
	ino, replaced := oldDir.names[oldBase], newDir.names[newBase]
	switch {
	case ino == nil:
		return iofs.ErrNotExist
	case ino == replaced:
		return nil
	case ino.dir && strings.HasPrefix(clean(newName), clean(oldName)+"/"):
		return iofs.ErrInvalid
	case replaced != nil && replaced.dir && !ino.dir:
		return errIsDir
	case replaced != nil && len(replaced.names) > 0:
		return errNotEmpty
	case replaced != nil && ino.dir && !replaced.dir:
		return errNotDir
	}
	s.change(replaced, nameChange{oldDir, oldBase, nil}, nameChange{newDir, newBase, ino})
	return nil
}

// MkdirAll makes name and its missing parents; each new name is volatile until
// its own parent is synced.
func (s *Sim) MkdirAll(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.root
	for part := range strings.SplitSeq(clean(name), "/") {
		if part == "" {
			continue
		}
		next := at.names[part]
		if next == nil {
			next = newDir()
			next.modTime = s.now()
			s.change(nil, nameChange{at, part, next})
		}
		if !next.dir {
			return simError("mkdir", name, errNotDir)
		}
		at = next
	}
	return nil
}

// List gives the names in dir, ascending.
func (s *Sim) List(dir string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ino, err := s.lookup(dir)
	if err == nil && !ino.dir {
		err = errNotDir
	}
	if err != nil {
		return nil, simError("list", dir, err)
	}
	return slices.Sorted(maps.Keys(ino.names)), nil
}

// Stat describes name.
func (s *Sim) Stat(name string) (Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ino, err := s.lookup(name)
	if err != nil {
		return Info{}, simError("stat", name, err)
	}
	return Info{Size: ino.size, Dir: ino.dir, ModTime: ino.modTime}, nil
}

// SyncDir makes the names in dir durable.
func (s *Sim) SyncDir(dir string) error { return s.BeginSyncDir(dir)() }

// BeginSyncDir notes the names of dir as they are now; finish makes just those durable.
func (s *Sim) BeginSyncDir(dir string) (finish func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ino, err := s.lookup(dir)
	if err == nil && !ino.dir {
		err = errNotDir
	}
	upTo, incarnation := s.lastOp, s.incarnation
	return func() error {
		if err != nil {
			return simError("fsync", dir, err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.incarnation != incarnation {
			return simError("fsync", dir, iofs.ErrClosed)
		}
		s.settleNames(ino, upTo)
		return nil
	}
}

// settleNames makes the changes of dir up to a number durable, and forgets them.
func (s *Sim) settleNames(dir *inode, upTo int64) {
	var lost []*inode
	for i := range s.volatileNames {
		op := &s.volatileNames[i]
		if op.n > upTo {
			break
		}
		op.changes = slices.DeleteFunc(op.changes, func(c nameChange) bool {
			if c.dir == dir {
				bind(dir.stable, c.name, c.ino)
			}
			return c.dir == dir || c.dir.gone
		})
		if len(op.changes) == 0 && op.loses != nil {
			lost = append(lost, op.loses)
		}
	}
	s.volatileNames = slices.DeleteFunc(s.volatileNames, func(op nameOp) bool { return len(op.changes) == 0 })
	s.unlinked = slices.DeleteFunc(append(s.unlinked, lost...), func(ino *inode) bool {
		ino.gone = !s.mentioned(ino)
		if ino.gone && len(ino.layers) > 0 { // nobody can look at what a crash would leave
			ino.layers, ino.sealed = nil, false
			s.volatileFiles = slices.DeleteFunc(s.volatileFiles, func(f *inode) bool { return f == ino })
		}
		return ino.gone
	})
}

// mentioned is true when a crash could still give ino a name: by a change that it keeps, or by one that it takes back.
func (s *Sim) mentioned(ino *inode) bool {
	return slices.ContainsFunc(s.volatileNames, func(op nameOp) bool {
		return op.loses == ino || slices.ContainsFunc(op.changes, func(c nameChange) bool {
			return c.ino == ino || c.dir.stable[c.name] == ino
		})
	})
}

// Lock takes the lock file name for this incarnation of the process.
func (s *Sim) Lock(name string) (io.Closer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks[clean(name)] {
		return nil, simError("lock", name, ErrLocked)
	}
	f, err := s.open(name, Create)
	if err != nil {
		return nil, simError("lock", name, err)
	}
	s.locks[clean(name)] = true
	return &simLock{f.(*simFile)}, nil
}

type simLock struct{ *simFile }

func (l *simLock) Close() error {
	err := l.simFile.Close()
	if err == nil {
		l.s.mu.Lock()
		defer l.s.mu.Unlock()
		delete(l.s.locks, clean(l.name))
	}
	return err
}
