package vfs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// Lost says what a crash kept and took of what was volatile.
type Lost struct {
	SectorsKept, SectorsLost int
	NamesKept, NamesLost     int // creates, removes and renames
}

// String is for traces.
func (l Lost) String() string {
	return fmt.Sprintf("sectors %d kept %d lost, names %d kept %d lost", l.SectorsKept, l.SectorsLost, l.NamesKept, l.NamesLost)
}

// Kill ends the process and spares the page cache: all that was written is
// there, still volatile; open files and locks of the process are no more.
func (s *Sim) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
}

func (s *Sim) kill() {
	s.incarnation++
	clear(s.locks)
}

// Boots counts the power cuts: a machine's boot id.
func (s *Sim) Boots() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.boots
}

// Crash cuts the power. What was synced stays. Of each sector written since, one
// of its versions since then stays, those between two writes too, so a batch can be torn and a later write can
// survive an earlier one. Of the changes of names either the oldest few stay, as
// with a journal, or any of them; a change within one directory stays whole or
// not at all. What is left is durable. The cost is in proportion to what was
// volatile, not to what the disk holds.
func (s *Sim) Crash(rng *rand.Rand) Lost {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lost Lost
	s.boots++
	s.kill()
	s.crashNames(rng, &lost)
	for _, ino := range s.volatileFiles {
		if !ino.gone {
			ino.crash(rng, &lost)
		}
	}
	clear(s.volatileFiles)
	s.volatileFiles, s.unlinked = s.volatileFiles[:0], nil
	return lost
}

func (s *Sim) crashNames(rng *rand.Rand, lost *Lost) {
	ops := s.volatileNames
	journal := rng.IntN(2) == 0
	oldest := rng.IntN(len(ops) + 1)
	for i, op := range ops {
		keep := i < oldest
		if !journal {
			keep = rng.IntN(2) == 0
		}
		if !keep {
			lost.NamesLost++
			continue
		}
		lost.NamesKept++
		for _, c := range op.changes {
			bind(c.dir.stable, c.name, c.ino)
		}
	}
	for _, op := range ops {
		for _, c := range op.changes {
			bind(c.dir.names, c.name, c.dir.stable[c.name])
		}
	}
	clear(ops)
	s.volatileNames = ops[:0]
}

// crash picks one version of each volatile sector, and of the size. What failed syncs lost goes
// as a whole, or in part: some of it may have reached the disk before the failure.
func (d *simData) crash(rng *rand.Rand, lost *Lost) {
	if l := d.lost(); l != nil && rng.IntN(2) == 0 {
		for _, n := range slices.Sorted(maps.Keys(l.sectors)) {
			d.setSector(n, l.sectors[n].first)
			lost.SectorsLost++
		}
		if l.size != noSize {
			size := l.size
			d.cut(min(d.size, size))
			d.size = size
		}
		d.layers = d.layers[1:]
	}
	were := map[int64][]*[SectorBytes]byte{} // oldest first, without the present one
	for _, l := range d.layers {
		for _, n := range slices.Sorted(maps.Keys(l.sectors)) {
			were[n] = append(append(were[n], l.sectors[n].first), l.sectors[n].later...)
		}
	}
	sizes, low := []int64{d.size}, d.size
	for _, l := range d.layers {
		if l.size == noSize {
			continue
		}
		if sizes = append(sizes, l.size); l.low < l.size {
			sizes = append(sizes, l.low)
		}
		low = min(low, l.low)
	}
	// A file that grew may also have got part of the way.
	if grown := d.size - low; grown > 0 {
		sizes = append(sizes, low+rng.Int64N(grown))
	}
	size := sizes[rng.IntN(len(sizes))]
	for _, n := range slices.Sorted(maps.Keys(were)) {
		v := were[n]
		if i := rng.IntN(len(v) + 1); i < len(v) {
			d.setSector(n, v[i])
			lost.SectorsLost++
		} else {
			lost.SectorsKept++
		}
	}
	d.size = slices.Max(sizes) // sectors may have come back past what was the end
	d.cut(size)
	d.layers, d.sealed = nil, false
}

// Rot flips the bits of mask in the byte at off: on the disk, with no error to see.
// It reports whether name is a file that long.
func (s *Sim) Rot(name string, off int64, mask byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ino, err := s.lookup(name)
	if err != nil || ino.dir || off < 0 || off >= ino.size {
		return false
	}
	ino.page(off / simPage)[off%simPage] ^= mask
	return true
}

// Clone copies the disk, volatile state and all. Open files stay with the original.
func (s *Sim) Clone() *Sim {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := map[*inode]*inode{nil: nil}
	c := &Sim{now: s.now, root: s.root.clone(done), incarnation: s.incarnation, boots: s.boots, locks: map[string]bool{}, lastOp: s.lastOp}
	for _, op := range s.volatileNames {
		changes := slices.Clone(op.changes)
		for i := range changes {
			changes[i].dir, changes[i].ino = changes[i].dir.clone(done), changes[i].ino.clone(done)
		}
		c.volatileNames = append(c.volatileNames, nameOp{op.n, changes, op.loses.clone(done)})
	}
	for _, ino := range s.volatileFiles {
		c.volatileFiles = append(c.volatileFiles, ino.clone(done))
	}
	for _, ino := range s.unlinked {
		c.unlinked = append(c.unlinked, ino.clone(done))
	}
	return c
}

func (ino *inode) clone(done map[*inode]*inode) *inode {
	if c, ok := done[ino]; ok {
		return c
	}
	c := new(inode)
	*c = *ino
	done[ino] = c
	c.names, c.stable = cloneNames(ino.names, done), cloneNames(ino.stable, done)
	c.pages = maps.Clone(ino.pages)
	for _, n := range slices.Sorted(maps.Keys(c.pages)) {
		p := *c.pages[n]
		c.pages[n] = &p
	}
	c.layers = slices.Clone(ino.layers)
	for i := range c.layers {
		sectors := maps.Clone(c.layers[i].sectors)
		for _, n := range slices.Sorted(maps.Keys(sectors)) {
			v := sectors[n]
			sectors[n] = versions{v.first, slices.Clone(v.later)} // sectors themselves never change
		}
		c.layers[i].sectors = sectors
	}
	return c
}

func cloneNames(names map[string]*inode, done map[*inode]*inode) map[string]*inode {
	c := maps.Clone(names)
	for _, n := range slices.Sorted(maps.Keys(c)) {
		c[n] = c[n].clone(done)
	}
	return c
}
