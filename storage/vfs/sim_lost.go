package vfs

import (
	"errors"
	"maps"
	"slices"
)

// SyncFailer is a File of the simulated disk. FailSync does to it what a failed sync does on
// Linux: what could not be written stays readable, is not on the disk, and counts as written, so
// that no later sync writes it. To write it once more is what makes it volatile again.
type SyncFailer interface {
	FailSync()
}

// failSync tells the file behind s that its sync was made to fail. A hook that has a sync skipped, or
// failed before it was asked for, injects no such failure.
func failSync(s Syncer, err error) {
	if f, ok := s.(SyncFailer); ok && errors.Is(err, ErrInjected) && !errors.Is(err, ErrTooManyOpen) {
		f.FailSync()
	}
}

var _ SyncFailer = (*simFile)(nil)

// FailSync takes all that is volatile of the file for lost.
func (f *simFile) FailSync() {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if len(f.ino.layers) > 0 && f.alive("fsync") == nil {
		f.ino.fail()
		f.s.forgetDurable(f.ino)
	}
}

// fail makes one lost layer of all layers, the first. Its size is what the disk knows; noSize when
// that is the file's.
func (d *simData) fail() {
	lost := layer{lost: true, size: noSize, low: noSize, sectors: map[int64]versions{}}
	for _, l := range d.layers {
		lost.mergeSize(l)
		for _, n := range slices.Sorted(maps.Keys(l.sectors)) {
			v, there := lost.sectors[n]
			if !there {
				lost.sectors[n] = l.sectors[n]
				continue
			}
			for _, w := range append([]*[SectorBytes]byte{l.sectors[n].first}, l.sectors[n].later...) {
				v = v.note(w)
			}
			lost.sectors[n] = v
		}
	}
	if lost.size == d.size && lost.low == d.size {
		lost.size, lost.low = noSize, noSize
	}
	d.layers, d.sealed = append(d.layers[:0:0], lost), true
}

// noSize is the size of a lost layer when no size was lost.
const noSize = -1

// mergeSize takes the sizes that a later layer would go back to.
func (l *layer) mergeSize(later layer) {
	switch {
	case later.size == noSize:
	case l.size == noSize:
		l.size, l.low = later.size, later.low
	default:
		l.low = min(l.low, later.low, later.size)
	}
}

// lost is the layer of what failed syncs lost, or nil.
func (d *simData) lost() *layer {
	if len(d.layers) > 0 && d.layers[0].lost {
		return &d.layers[0]
	}
	return nil
}

// rewriteSector makes a lost sector volatile again, in what is about to be written; ok is false when it is not lost.
func (d *simData) rewriteSector(n int64) (v versions, ok bool) {
	if lost := d.lost(); lost != nil {
		v, ok = lost.sectors[n]
		delete(lost.sectors, n)
	}
	return v, ok
}

// rewriteSize makes a lost size volatile again: the newest layer takes it.
func (d *simData) rewriteSize() {
	if lost := d.lost(); lost != nil && lost.size != noSize {
		l := &d.layers[len(d.layers)-1]
		l.low = min(l.low, lost.low, lost.size)
		lost.size, lost.low = noSize, noSize
	}
}

// forgetDurable drops a lost layer of which all was written again, and a file that has nothing to lose.
func (s *Sim) forgetDurable(ino *inode) {
	if lost := ino.lost(); lost != nil && len(lost.sectors) == 0 && lost.size == noSize {
		ino.layers = slices.Delete(ino.layers, 0, 1)
	}
	if len(ino.layers) == 0 {
		ino.sealed = false
		s.volatileFiles = slices.DeleteFunc(s.volatileFiles, func(f *inode) bool { return f == ino })
	}
}

// DropCache takes the clean pages of a file out of memory, as the kernel may at any time: what a
// failed sync lost is no longer to be read. The size stays, which is no page. It reports whether anything was lost.
func (s *Sim) DropCache(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ino, err := s.lookup(name)
	if err != nil || ino.lost() == nil {
		return false
	}
	sectors := ino.lost().sectors
	for _, n := range slices.Sorted(maps.Keys(sectors)) {
		ino.setSector(n, sectors[n].first)
	}
	ino.cut(ino.size)
	changed := len(sectors) > 0
	clear(sectors)
	s.forgetDurable(ino)
	return changed
}
