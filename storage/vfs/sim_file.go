package vfs

import (
	"io"
	iofs "io/fs"
	"maps"
	"slices"
)

const (
	simPage = 4096 // unit of memory
	// SectorBytes is the unit in which a crash keeps or loses bytes: what a disk writes whole.
	SectorBytes = 512
)

// simData is the content of a file: pages as the process sees them, and for what
// is not yet durable the bytes that were there before.
//
// Invariant: bytes of a page at or past size are zero.
type simData struct {
	size  int64
	pages map[int64]*[simPage]byte // by offset / simPage; a missing page is zeros

	// layers are the volatile writes, oldest first. A BeginSync seals the newest,
	// and its finish makes the sealed one and those before it durable. The first may be
	// of what failed syncs lost, which stays.
	layers    []layer
	lastLayer int64 // number of the newest layer
	sealed    bool  // the next write begins a layer
}

// layer is what was written between two BeginSyncs. The kernel may write a page back between any two writes to
// it, so what was there in between may be what a crash leaves.
type layer struct {
	n       int64
	lost    bool               // by a failed sync: no later one makes it durable
	size    int64              // of the file when the layer began
	low     int64              // the smallest since
	sectors map[int64]versions // of written sectors
}

// versions is what a sector held before each write to it; nil is zeros.
type versions struct {
	first *[SectorBytes]byte
	later []*[SectorBytes]byte // the latest laterMax, oldest first
}

const laterMax = 3

func (v versions) note(now *[SectorBytes]byte) versions {
	last := v.first
	if n := len(v.later); n > 0 {
		last = v.later[n-1]
	}
	if sameSector(last, now) {
		return v
	}
	if len(v.later) == laterMax {
		v.later = slices.Delete(v.later, 0, 1)
	}
	v.later = append(v.later, now)
	return v
}

// touch notes the sectors that [off, end) covers as about to change.
func (s *Sim) touch(ino *inode, off, end int64) {
	ino.modTime = s.now()
	if ino.gone {
		return
	}
	if len(ino.layers) == 0 {
		s.volatileFiles = append(s.volatileFiles, ino)
	}
	if n := len(ino.layers); n == 0 || ino.sealed || ino.layers[n-1].lost {
		ino.lastLayer++
		ino.layers = append(ino.layers, layer{n: ino.lastLayer, size: ino.size, low: ino.size, sectors: map[int64]versions{}})
		ino.sealed = false
	}
	sectors := ino.layers[len(ino.layers)-1].sectors
	for n := off / SectorBytes; n*SectorBytes < end; n++ {
		if v, written := sectors[n]; written {
			sectors[n] = v.note(ino.sector(n))
		} else if v, lost := ino.rewriteSector(n); lost {
			sectors[n] = v.note(ino.sector(n))
		} else {
			sectors[n] = versions{first: ino.sector(n)}
		}
	}
}

func sameSector(a, b *[SectorBytes]byte) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// sector copies one; nil is zeros.
func (d *simData) sector(n int64) *[SectorBytes]byte {
	off := n * SectorBytes
	p := d.pages[off/simPage]
	if p == nil || off >= d.size {
		return nil
	}
	b := [SectorBytes]byte(p[off%simPage:])
	return &b
}

func (d *simData) setSector(n int64, b *[SectorBytes]byte) {
	off := n * SectorBytes
	p := d.pages[off/simPage]
	switch {
	case b == nil && p == nil:
	case b == nil:
		clear(p[off%simPage:][:SectorBytes])
	default:
		copy(d.page(off / simPage)[off%simPage:], b[:])
	}
}

// page gives page n for writing.
func (d *simData) page(n int64) *[simPage]byte {
	p := d.pages[n]
	if p == nil {
		if d.pages == nil {
			d.pages = map[int64]*[simPage]byte{}
		}
		p = new([simPage]byte)
		d.pages[n] = p
	}
	return p
}

// setSize truncates or extends, as the process sees it; volatile.
func (s *Sim) setSize(ino *inode, size int64) {
	s.touch(ino, 0, 0)
	if !ino.gone {
		l := &ino.layers[len(ino.layers)-1]
		l.low = min(l.low, size)
		ino.rewriteSize()
	}
	for _, n := range ino.pagesFrom(size) {
		s.touch(ino, max(size, n*simPage), min((n+1)*simPage, ino.size))
	}
	ino.cut(size)
}

// cut sets the size and zeroes what lies past it.
func (d *simData) cut(size int64) {
	for _, n := range d.pagesFrom(size) {
		if n*simPage >= size {
			delete(d.pages, n)
		} else {
			clear(d.pages[n][size-n*simPage:])
		}
	}
	d.size = size
}

// pagesFrom gives the pages that hold bytes in [off, size), ascending. Its cost
// is the smaller of that range and of what the file holds.
func (d *simData) pagesFrom(off int64) []int64 {
	var all []int64
	if (d.size-off)/simPage > int64(len(d.pages)) {
		all = slices.Sorted(maps.Keys(d.pages))
	} else {
		for n := off / simPage; n*simPage < d.size; n++ {
			if d.pages[n] != nil {
				all = append(all, n)
			}
		}
	}
	return slices.DeleteFunc(all, func(n int64) bool { return (n+1)*simPage <= off })
}

// settle makes the layers up to a number durable.
func (s *Sim) settle(ino *inode, upTo int64) {
	if len(ino.layers) == 0 {
		return
	}
	ino.layers = slices.DeleteFunc(ino.layers, func(l layer) bool { return l.n <= upTo && !l.lost })
	s.forgetDurable(ino)
}

// simFile is one open file of one incarnation of the process.
type simFile struct {
	s           *Sim
	ino         *inode
	name        string
	writable    bool
	closed      bool
	incarnation int
}

var (
	_ File        = (*simFile)(nil)
	_ BeginSyncer = (*simFile)(nil)
)

// alive is called with s.mu held.
func (f *simFile) alive(op string) error {
	if f.closed || f.incarnation != f.s.incarnation {
		return simError(op, f.name, iofs.ErrClosed)
	}
	return nil
}

func (f *simFile) changeable(op string, off int64) error {
	err := f.alive(op)
	switch {
	case err == nil && !f.writable:
		err = simError(op, f.name, iofs.ErrPermission)
	case err == nil && off < 0:
		err = simError(op, f.name, iofs.ErrInvalid)
	}
	return err
}

func (f *simFile) Name() string { return f.name }

func (f *simFile) ReadAt(b []byte, off int64) (int, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if err := f.alive("read"); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, simError("read", f.name, iofs.ErrInvalid)
	}
	want := len(b)
	b = b[:max(0, min(int64(want), f.ino.size-off))]
	for done := 0; done < len(b); {
		at := off + int64(done)
		chunk := b[done:min(len(b), done+int(simPage-at%simPage))]
		if p := f.ino.pages[at/simPage]; p != nil {
			copy(chunk, p[at%simPage:])
		} else {
			clear(chunk)
		}
		done += len(chunk)
	}
	if len(b) < want {
		return len(b), io.EOF
	}
	return want, nil
}

func (f *simFile) WriteAt(b []byte, off int64) (int, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if err := f.changeable("write", off); err != nil {
		return 0, err
	}
	if len(b) == 0 {
		return 0, nil
	}
	end := off + int64(len(b))
	f.s.touch(f.ino, off, end)
	for done := 0; done < len(b); {
		at := off + int64(done)
		done += copy(f.ino.page(at / simPage)[at%simPage:], b[done:])
	}
	if end >= f.ino.size {
		f.ino.size = end
		f.ino.rewriteSize()
	}
	return len(b), nil
}

func (f *simFile) Truncate(size int64) error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if err := f.changeable("truncate", size); err != nil {
		return err
	}
	if size != f.ino.size {
		f.s.setSize(f.ino, size)
	}
	return nil
}

func (f *simFile) Size() (int64, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return f.ino.size, f.alive("stat")
}

// Preallocate has nothing to reserve: missing pages are zeros.
func (f *simFile) Preallocate(offset, n int64) error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return f.changeable("fallocate", min(offset, n))
}

func (f *simFile) Sync() error { return f.BeginSync()() }

// BeginSync notes what is volatile now; finish makes just that durable. A finish
// that comes after a crash or kill does nothing: the process it would tell is gone.
func (f *simFile) BeginSync() (finish func() error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	err := f.alive("fsync")
	upTo := f.ino.lastLayer
	if err == nil {
		f.ino.sealed = true
	}
	return func() error {
		f.s.mu.Lock()
		defer f.s.mu.Unlock()
		if err != nil {
			return err
		}
		if f.incarnation != f.s.incarnation {
			return simError("fsync", f.name, iofs.ErrClosed)
		}
		f.s.settle(f.ino, upTo)
		return nil
	}
}

func (f *simFile) Close() error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if err := f.alive("close"); err != nil {
		return err
	}
	f.closed = true
	return nil
}
