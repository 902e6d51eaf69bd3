package storage

import (
	"io"
	"sync"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// cachedFile is a file read and written through a BlockCache. It hides the
// descriptor of the file below, so no region of it can go by sendfile or mmap.
//
// Writes go through: to the file first, then to the blocks that hold their
// place, since who reads next is most often a consumer at the log's end. So the
// cache never holds what the file does not, and durability is the file's own.
type cachedFile struct {
	cache *BlockCache
	file  vfs.File
	id    uint64

	mu   sync.Mutex // guards size and the content of this file's blocks; held during reads and writes, not during Sync
	size int64
}

// open opens a file of the log through the cache, by O_DIRECT if direct.
func (c *BlockCache) open(fs vfs.FS, name string, mode vfs.Mode, direct bool) (*cachedFile, error) {
	if direct {
		mode |= vfs.Direct
	}
	f, err := fs.Open(name, mode)
	if err != nil {
		return nil, err
	}
	if direct {
		a, err := newAlignedFile(f)
		if err != nil {
			f.Close()
			return nil, err
		}
		f = a
	}
	size, err := f.Size()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &cachedFile{cache: c, file: f, id: c.files.Add(1), size: size}, nil
}

func (f *cachedFile) key(pos int64) blockKey { return blockKey{f.id, pos / BlockSize} }

// view gives the n bytes at pos, all of which must be in the file, and the pin
// that keeps them. Bytes within one block are the block's own; bytes that span
// blocks are copied into a pooled buffer, because a region is one piece and the
// blocks lie apart. BenchmarkView says what that costs: 45 µs per MiB where pins
// cost 2, beside the 150 or more that writing a MiB to a socket takes.
// Neighbouring blocks that are missing are read in one call.
func (f *cachedFile) view(pos int64, n int) ([]byte, pin, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if pos+int64(n) > f.size {
		return nil, nil, io.ErrUnexpectedEOF
	}
	in := int(pos % BlockSize)
	if in+n <= BlockSize {
		b, err := f.block(pos, in+n)
		if err != nil {
			return nil, nil, err
		}
		return b.data[in : in+n : in+n], b, nil
	}
	first := pos - int64(in)
	span := int(min(roundUp(pos+int64(n), BlockSize), roundUp(f.size, vfs.DirectAlign)) - first)
	p := newPooledBytes(span)
	if err := f.gather(p.data[:span], first, in, in+n); err != nil {
		p.unpin()
		return nil, nil, err
	}
	return p.data[in : in+n : in+n], p, nil
}

// gather fills [from, to) of dst, which begins at a block: from blocks where they
// are in the cache, else from the file into dst and from there into the cache.
func (f *cachedFile) gather(dst []byte, first int64, from, to int) error {
	missing := -1 // where in dst the run of missing blocks begins
	for at := 0; at < len(dst); at += BlockSize {
		lo, hi := max(from, at), min(to, at+BlockSize)
		b := f.lookup(first+int64(at), hi-at)
		if b == nil {
			if missing < 0 {
				missing = at
			}
			continue
		}
		f.cache.stats.copiedBytes.Add(int64(copy(dst[lo:hi], b.data[lo-at:])))
		b.unpin()
		if missing >= 0 {
			if err := f.loadRun(dst[missing:at], first+int64(missing)); err != nil {
				return err
			}
			missing = -1
		}
	}
	if missing >= 0 {
		return f.loadRun(dst[missing:], first+int64(missing))
	}
	return nil
}

// loadRun reads whole blocks at pos into dst and copies them into the cache.
func (f *cachedFile) loadRun(dst []byte, pos int64) error {
	n, err := f.file.ReadAt(dst, pos)
	want := int(min(int64(len(dst)), f.size-pos))
	if n < want {
		return shortRead(err)
	}
	f.cache.stats.loadedBytes.Add(int64(want))
	for at := 0; at < want; at += BlockSize {
		b := f.cache.blank(f.key(pos + int64(at)))
		b.n = copy(b.data, dst[at:want])
		f.cache.put(b)
		b.unpin()
	}
	return nil
}

// lookup gives the cached block at pos, pinned, if it holds need bytes; it counts the hit or miss.
func (f *cachedFile) lookup(pos int64, need int) *block {
	b := f.cache.get(f.key(pos))
	if b != nil && b.n < need {
		b.unpin()
		b = nil
	}
	if b == nil {
		f.cache.stats.misses.Add(1)
		return nil
	}
	f.cache.stats.hits.Add(1)
	f.cache.stats.hitBytes.Add(int64(need))
	return b
}

// block gives the block that holds pos, pinned, from the cache or the file, with at least need bytes in it.
func (f *cachedFile) block(pos int64, need int) (*block, error) {
	if b := f.lookup(pos, need); b != nil {
		return b, nil
	}
	k := f.key(pos)
	start := k.index * BlockSize
	b := f.cache.blank(k)
	n, err := f.file.ReadAt(b.data, start)
	want := int(min(BlockSize, f.size-start))
	if n < want {
		b.unpin()
		return nil, shortRead(err)
	}
	b.n = want
	f.cache.stats.loadedBytes.Add(int64(want))
	f.cache.put(b)
	return b, nil
}

// ReadAt copies out of blocks.
func (f *cachedFile) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	done := 0
	for done < len(p) {
		pos := off + int64(done)
		if pos >= f.size {
			return done, io.EOF
		}
		in := int(pos % BlockSize)
		n := int(min(int64(len(p)-done), int64(BlockSize-in), f.size-pos))
		b, err := f.block(pos, in+n)
		if err != nil {
			return done, err
		}
		copy(p[done:], b.data[in:in+n])
		b.unpin()
		done += n
	}
	return done, nil
}

// WriteAt writes to the file and then to the blocks. A block that the write
// continues is extended in place, which no reader of its older part can see; one
// that it begins is made; any other is dropped.
func (f *cachedFile) WriteAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.file.WriteAt(p, off)
	for at := 0; at < len(p); {
		pos := off + int64(at)
		in := int(pos % BlockSize)
		piece := min(len(p)-at, BlockSize-in)
		f.writeBlock(pos, in, p[at:at+piece], err == nil)
		at += piece
	}
	if err == nil {
		f.size = max(f.size, off+int64(len(p)))
	}
	return n, err
}

func (f *cachedFile) writeBlock(pos int64, in int, p []byte, written bool) {
	k := f.key(pos)
	b := f.cache.get(k)
	switch {
	case b == nil && written && in == 0 && pos >= f.size:
		b = f.cache.blank(k)
		b.n = copy(b.data, p)
		f.cache.put(b)
	case b == nil:
		return
	case written && b.n == in && pos >= f.size:
		b.n += copy(b.data[in:], p)
	default:
		f.cache.drop(k)
	}
	b.unpin()
}

// Truncate also forgets the blocks from size on. Regions that pin them keep the bytes as they were.
func (f *cachedFile) Truncate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropFrom(size)
	if err := f.file.Truncate(size); err != nil {
		return err
	}
	f.size = size
	return nil
}

func (f *cachedFile) dropFrom(pos int64) {
	for p := pos - pos%BlockSize; p < f.size; p += BlockSize {
		f.cache.drop(f.key(p))
	}
}

// Close forgets all blocks of the file: a deleted file leaves nothing in the cache.
func (f *cachedFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropFrom(0)
	f.size = 0
	return f.file.Close()
}

func (f *cachedFile) Size() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size, nil
}

func (f *cachedFile) Sync() error                       { return f.file.Sync() }
func (f *cachedFile) Preallocate(offset, n int64) error { return f.file.Preallocate(offset, n) }
func (f *cachedFile) Name() string                      { return f.file.Name() }

// BeginSync passes on what the simulated disk needs to know.
func (f *cachedFile) BeginSync() func() error {
	if b, ok := f.file.(vfs.BeginSyncer); ok {
		return b.BeginSync()
	}
	return f.file.Sync
}

func shortRead(err error) error {
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// roundUp gives the least multiple of unit that is >= n.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
