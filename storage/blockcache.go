package storage

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// BlockSize is the unit of the block cache, in bytes: a multiple of what direct I/O needs.
const BlockSize = 64 << 10

// BlockCache keeps blocks of log files in the process, least recently used out
// first. lab.cache=process puts it over the page cache, so everything is cached
// twice, and lab.cache=direct in the page cache's place (claim C3). One cache
// serves the whole process.
//
// Its memory is bounded by its capacity, plus the blocks that live regions pin,
// plus freeBlocksMax spare buffers per shard. Blocks are ordinary Go memory:
// that the garbage collector knows of them is part of what C3 measures.
//
// It reads what it is asked for and nothing ahead: where the page cache has the
// kernel's read-ahead, a cold reader waits for each of its regions.
//
// It is cut into shards by block, each with a lock that is never held during
// I/O. A block is immutable below the length that a reader saw: appends extend
// it behind that, anything else replaces it.
type BlockCache struct {
	shards []blockShard
	files  atomic.Uint64 // file identities given out: one per opened file, never used again
	stats  struct{ hits, misses, hitBytes, loadedBytes, copiedBytes, evictions atomic.Int64 }
}

// Bounds of a BlockCache.
const (
	blockShardsMax   = 16
	blocksPerShard   = 8 // a smaller cache has fewer shards instead
	freeBlocksMax    = 4 // spare buffers a shard keeps for the next load
	blockCacheMinLen = 1 // a cache holds at least one block
)

type blockKey struct {
	file  uint64
	index int64 // position / BlockSize
}

// block is one cached block. refs counts the cache itself and every pin.
type block struct {
	shard      *blockShard
	key        blockKey
	data       []byte // BlockSize long, aligned for direct I/O
	n          int    // valid bytes; grows only, under the lock of the file that owns the block
	refs       atomic.Int32
	prev, next *block // the shard's LRU ring
}

type blockShard struct {
	mu     sync.Mutex
	max    int
	blocks map[blockKey]*block
	lru    block // ring: lru.next is the most recently used
	free   []*block
}

// NewBlockCache makes a cache of capacity bytes, rounded down to whole blocks, at least one.
func NewBlockCache(capacity int64) *BlockCache {
	blocks := max(int(capacity/BlockSize), blockCacheMinLen)
	shards := min(blockShardsMax, max(1, blocks/blocksPerShard))
	c := &BlockCache{shards: make([]blockShard, shards)}
	for i := range c.shards {
		s := &c.shards[i]
		s.max = blocks / shards
		if i < blocks%shards {
			s.max++
		}
		s.blocks = make(map[blockKey]*block)
		s.lru.prev, s.lru.next = &s.lru, &s.lru
	}
	return c
}

// BlockCacheStats is what a cache has done since it was made.
type BlockCacheStats struct {
	// Blocks.
	Hits      int64 `json:"hits"`
	Misses    int64 `json:"misses"`
	Evictions int64 `json:"evictions"`

	HitBytes    int64 `json:"hit_bytes"`      // served from blocks that were there
	LoadedBytes int64 `json:"loaded_bytes"`   // read from files into blocks
	CopiedBytes int64 `json:"copied_bytes"`   // copied out of blocks, because a region spans several
	Resident    int64 `json:"resident_bytes"` // of blocks held now, without pinned ones that were evicted
}

// Stats reads the counters.
func (c *BlockCache) Stats() BlockCacheStats {
	s := BlockCacheStats{
		Hits: c.stats.hits.Load(), Misses: c.stats.misses.Load(), Evictions: c.stats.evictions.Load(),
		HitBytes: c.stats.hitBytes.Load(), LoadedBytes: c.stats.loadedBytes.Load(), CopiedBytes: c.stats.copiedBytes.Load(),
	}
	for i := range c.shards {
		c.shards[i].mu.Lock()
		s.Resident += int64(len(c.shards[i].blocks)) * BlockSize
		c.shards[i].mu.Unlock()
	}
	return s
}

// shard deals a file's blocks out in turn, so that reading forward fills all
// shards alike. It is a fixed function, so that the simulator evicts alike in every process.
func (c *BlockCache) shard(k blockKey) *blockShard {
	h := (k.file * 0x9e3779b97f4a7c15) >> 33
	return &c.shards[(h+uint64(k.index))%uint64(len(c.shards))]
}

// get gives the block, pinned, or nil.
func (c *BlockCache) get(k blockKey) *block {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blocks[k]
	if b == nil {
		return nil
	}
	b.refs.Add(1)
	b.unlink()
	s.pushFront(b)
	return b
}

// blank gives a pinned block with no content, for the caller to fill and then put or unpin.
func (c *BlockCache) blank(k blockKey) *block {
	s := c.shard(k)
	s.mu.Lock()
	var b *block
	if last := len(s.free) - 1; last >= 0 {
		b, s.free = s.free[last], s.free[:last]
	}
	s.mu.Unlock()
	if b == nil {
		b = &block{shard: s, data: alignedBytes(BlockSize)}
	}
	b.key, b.n = k, 0
	b.refs.Store(1)
	return b
}

// put makes a filled block findable, in place of an older one with its key. The caller's pin stays.
func (c *BlockCache) put(b *block) {
	s := b.shard
	b.refs.Add(1)
	s.mu.Lock()
	out := s.remove(b.key)
	if out == nil && len(s.blocks) >= s.max {
		out = s.remove(s.lru.prev.key)
		c.stats.evictions.Add(1)
	}
	s.blocks[b.key] = b
	s.pushFront(b)
	s.mu.Unlock()
	if out != nil {
		out.unpin()
	}
}

// drop forgets a block. Pins keep its bytes.
func (c *BlockCache) drop(k blockKey) {
	s := c.shard(k)
	s.mu.Lock()
	b := s.remove(k)
	s.mu.Unlock()
	if b != nil {
		b.unpin()
	}
}

// remove takes a block out of map and ring; the cache's reference passes to the caller.
func (s *blockShard) remove(k blockKey) *block {
	b := s.blocks[k]
	if b != nil {
		delete(s.blocks, k)
		b.unlink()
	}
	return b
}

func (s *blockShard) pushFront(b *block) {
	b.prev, b.next = &s.lru, s.lru.next
	b.prev.next, b.next.prev = b, b
}

func (b *block) unlink() {
	b.prev.next, b.next.prev = b.next, b.prev
	b.prev, b.next = nil, nil
}

// unpin gives up one reference; the last one lets the buffer serve another block.
func (b *block) unpin() {
	refs := b.refs.Add(-1)
	if refs > 0 {
		return
	}
	if refs < 0 {
		panic("BUG: storage: block of the cache released twice")
	}
	s := b.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) < freeBlocksMax {
		s.free = append(s.free, b)
	}
}

// alignedBytes allocates n bytes at an address that direct I/O accepts.
func alignedBytes(n int) []byte {
	b := make([]byte, n+vfs.DirectAlign)
	skip := 0
	if r := int(uintptr(unsafe.Pointer(&b[0])) % vfs.DirectAlign); r != 0 {
		skip = vfs.DirectAlign - r
	}
	return b[skip : skip+n : skip+n]
}
