package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// memFile is a file in memory that counts its calls. With direct set it refuses
// what O_DIRECT refuses.
type memFile struct {
	mu            sync.Mutex
	data          []byte
	direct        bool
	reads, writes int
	fail          error // what the next write gives
}

func (m *memFile) check(p []byte, off int64) error {
	const a = vfs.DirectAlign
	if m.direct && (off%a != 0 || len(p)%a != 0 || uintptr(unsafe.Pointer(&p[0]))%a != 0) {
		return fmt.Errorf("EINVAL: unaligned direct I/O of %d bytes at %d", len(p), off)
	}
	return nil
}

func (m *memFile) ReadAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if err := m.check(p, off); err != nil {
		return 0, err
	}
	if off >= int64(len(m.data)) {
		return 0, io.EOF
	}
	n := copy(p, m.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (m *memFile) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	if err := m.check(p, off); err != nil {
		return 0, err
	}
	if m.fail != nil {
		return 0, m.fail
	}
	if grow := off + int64(len(p)) - int64(len(m.data)); grow > 0 {
		m.data = append(m.data, make([]byte, grow)...)
	}
	return copy(m.data[off:], p), nil
}

func (m *memFile) Truncate(size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if size > int64(len(m.data)) {
		m.data = append(m.data, make([]byte, size-int64(len(m.data)))...)
	}
	m.data = m.data[:size]
	return nil
}

func (m *memFile) Size() (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.data)), nil
}

func (m *memFile) Sync() error                  { return nil }
func (m *memFile) Close() error                 { return nil }
func (m *memFile) Preallocate(_, _ int64) error { return vfs.ErrUnsupported }
func (m *memFile) Name() string                 { return "mem" }

// memFS opens one memFile under every name.
type memFS struct {
	vfs.FS
	file *memFile
}

func (m memFS) Open(_ string, mode vfs.Mode) (vfs.File, error) {
	m.file.direct = mode&vfs.Direct != 0
	return m.file, nil
}

func openCached(t testing.TB, c *BlockCache, m *memFile, direct bool) *cachedFile {
	t.Helper()
	f, err := c.open(memFS{file: m}, "mem", vfs.Create, direct)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
	return b[:n]
}

// TestCachedFileIsTheFile appends, reads, truncates and reopens at random, with
// caches too small for the file, and holds every answer against plain bytes. The
// views that are still pinned are read again at the end: nothing may have changed them.
func TestCachedFileIsTheFile(t *testing.T) {
	for _, direct := range []bool{false, true} {
		for seed := range uint64(8) {
			t.Run(fmt.Sprintf("direct=%v/seed=%d", direct, seed), func(t *testing.T) {
				cachedFileAgainstModel(t, direct, rand.New(rand.NewPCG(seed, 1)))
			})
		}
	}
}

func cachedFileAgainstModel(t *testing.T, direct bool, rng *rand.Rand) {
	type pinned struct {
		got, want []byte
		pin       pin
	}
	var (
		cache = NewBlockCache(BlockSize * (1 + rng.Int64N(20)))
		disk  = &memFile{}
		f     = openCached(t, cache, disk, direct)
		model []byte
		held  []pinned
	)
	for range 200 {
		switch k := rng.IntN(20); {
		case k < 9: // append
			p := randomBytes(rng, 1+rng.IntN([]int{100, 5000, 3 * BlockSize}[rng.IntN(3)]))
			if _, err := f.WriteAt(p, int64(len(model))); err != nil {
				t.Fatal(err)
			}
			model = append(model, p...)
		case k < 14 && len(model) > 0: // view
			pos := rng.IntN(len(model))
			n := 1 + rng.IntN(min(len(model)-pos, 5*BlockSize))
			b, pin, err := f.view(int64(pos), n)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, pinned{b, bytes.Clone(model[pos : pos+n]), pin})
		case k < 17: // read, also past the end
			pos := rng.IntN(len(model) + 10)
			p := make([]byte, 1+rng.IntN(2*BlockSize))
			n, err := f.ReadAt(p, int64(pos))
			want := model[min(pos, len(model)):min(pos+len(p), len(model))]
			if !bytes.Equal(p[:n], want) || (err == io.EOF) != (len(want) < len(p)) {
				t.Fatalf("ReadAt %d bytes at %d of %d: %d bytes, %v", len(p), pos, len(model), n, err)
			}
		case k == 17: // truncate
			model = model[:rng.IntN(len(model)+1)]
			if err := f.Truncate(int64(len(model))); err != nil {
				t.Fatal(err)
			}
		case k == 18: // sync: the file has its exact size and content
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(disk.data, model) {
				t.Fatalf("after Sync the file holds %d bytes, not the log's %d, or other ones", len(disk.data), len(model))
			}
		default: // reopen
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if r := cache.Stats().Resident; r != 0 {
				t.Fatalf("%d bytes of a closed file stayed in the cache", r)
			}
			f = openCached(t, cache, disk, direct)
		}
	}
	for i, h := range held {
		if !bytes.Equal(h.got, h.want) {
			t.Fatalf("pinned view %d changed before its release", i)
		}
		h.pin.unpin()
	}
}

func TestKilledDirectFileEndsInZeros(t *testing.T) {
	disk := &memFile{}
	f := openCached(t, NewBlockCache(1<<20), disk, true)
	p := bytes.Repeat([]byte{7}, 5000)
	if _, err := f.WriteAt(p, 0); err != nil {
		t.Fatal(err)
	}
	// No Sync, no Close: a kill.
	if len(disk.data) != 8192 || !bytes.Equal(disk.data[:5000], p) || !bytes.Equal(disk.data[5000:], make([]byte, 3192)) {
		t.Fatalf("the killed file has %d bytes; want 5000 written ones and zeros up to 8192", len(disk.data))
	}
}

// TestSyncOfDirectFileKeepsLaterAppends cuts padding in a Sync that began before
// an append and ends after it.
func TestSyncOfDirectFileKeepsLaterAppends(t *testing.T) {
	disk := &memFile{}
	f := openCached(t, NewBlockCache(1<<20), disk, true)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = f.Sync()
			}
		}
	})
	var model []byte
	for i := range 2000 {
		p := bytes.Repeat([]byte{byte(i)}, 37)
		if _, err := f.WriteAt(p, int64(len(model))); err != nil {
			t.Error(err)
		}
		model = append(model, p...)
	}
	close(stop)
	wg.Wait()
	if err := f.Sync(); err != nil || !bytes.Equal(disk.data, model) {
		t.Fatalf("%d bytes on disk, %d appended (%v)", len(disk.data), len(model), err)
	}
}

func TestFailedWriteLeavesNothingInTheCache(t *testing.T) {
	disk := &memFile{}
	f := openCached(t, NewBlockCache(1<<20), disk, false)
	if _, err := f.WriteAt([]byte("durable"), 0); err != nil {
		t.Fatal(err)
	}
	disk.fail = vfs.ErrNoSpace
	if _, err := f.WriteAt([]byte(" lost"), 7); err == nil {
		t.Fatal("the write did not fail")
	}
	if size, _ := f.Size(); size != 7 {
		t.Fatalf("size %d after a failed write, want 7", size)
	}
	if b, _, err := f.view(0, 7); err != nil || string(b) != "durable" {
		t.Fatalf("%q %v", b, err)
	}
}

func TestCacheStaysWithinItsCapacity(t *testing.T) {
	cache := NewBlockCache(10 * BlockSize)
	f := openCached(t, cache, &memFile{data: make([]byte, 100*BlockSize)}, false)
	for i := range 100 {
		_, pin, err := f.view(int64(i)*BlockSize, BlockSize)
		if err != nil {
			t.Fatal(err)
		}
		pin.unpin()
		if r := cache.Stats().Resident; r > 10*BlockSize {
			t.Fatalf("%d bytes resident, the bound is %d", r, 10*BlockSize)
		}
	}
	if s := cache.Stats(); s.Evictions != 90 || s.Misses != 100 || s.LoadedBytes != 100*BlockSize {
		t.Fatalf("%+v", s)
	}
}

func TestLeastRecentlyUsedBlockGoesFirst(t *testing.T) {
	cache := NewBlockCache(3 * BlockSize)
	f := openCached(t, cache, &memFile{data: make([]byte, 4*BlockSize)}, false)
	for _, i := range []int64{0, 1, 2, 0, 3, 0, 2} { // 3 puts 1 out
		_, pin, _ := f.view(i*BlockSize, 1)
		pin.unpin()
	}
	if s := cache.Stats(); s.Misses != 4 || s.Hits != 3 {
		t.Fatalf("%d misses and %d hits, want 4 and 3", s.Misses, s.Hits)
	}
}

// TestMissingNeighboursAreReadInOneCall protects the cost of a cold read.
func TestMissingNeighboursAreReadInOneCall(t *testing.T) {
	for _, direct := range []bool{false, true} {
		disk := &memFile{data: make([]byte, 32*BlockSize)}
		f := openCached(t, NewBlockCache(64*BlockSize), disk, direct)
		_, pin, err := f.view(100, 1<<20)
		if err != nil || disk.reads != 1 {
			t.Fatalf("direct=%v: %d reads for a cold mebibyte (%v), want 1", direct, disk.reads, err)
		}
		pin.unpin()
		_, pin, err = f.view(100, 1<<20)
		if err != nil || disk.reads != 1 {
			t.Fatalf("direct=%v: a warm mebibyte was read again (%v)", direct, err)
		}
		pin.unpin()
	}
}

func TestReleasingTwicePanics(t *testing.T) {
	f := openCached(t, NewBlockCache(BlockSize), &memFile{data: make([]byte, 10)}, false)
	_, pin, _ := f.view(0, 10)
	f.Close()
	pin.unpin()
	defer func() {
		if recover() == nil {
			t.Fatal("the second release went unseen")
		}
	}()
	pin.unpin()
}

// TestFilesShareTheCacheSafely is for the race detector: files in parallel, pins released elsewhere.
func TestFilesShareTheCacheSafely(t *testing.T) {
	cache := NewBlockCache(8 * BlockSize)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 2))
			f := openCached(t, cache, &memFile{}, g%2 == 0)
			size := 0
			for range 300 {
				p := bytes.Repeat([]byte{byte(g)}, 1+rng.IntN(BlockSize))
				if _, err := f.WriteAt(p, int64(size)); err != nil {
					t.Error(err)
				}
				size += len(p)
				pos := rng.IntN(size)
				b, pin, err := f.view(int64(pos), min(size-pos, 1+rng.IntN(2*BlockSize)))
				if err != nil {
					t.Error(err)
					return
				}
				wg.Go(func() {
					if bytes.Count(b, []byte{byte(g)}) != len(b) {
						t.Error("a view shows bytes of another file")
					}
					pin.unpin()
				})
			}
		})
	}
	wg.Wait()
}

// BenchmarkView compares what a region costs out of the cache when it lies in
// one block, which is pinned, and when it spans blocks, which are copied.
func BenchmarkView(b *testing.B) {
	for _, n := range []int{4 << 10, 64 << 10, 1 << 20} {
		for _, how := range []string{"pin", "copy"} {
			b.Run(fmt.Sprintf("bytes=%d/%s", n, how), func(b *testing.B) {
				f := openCached(b, NewBlockCache(64<<20), &memFile{data: make([]byte, 16<<20)}, false)
				pos := int64(0)
				if how == "copy" {
					pos = BlockSize - 1
				}
				step := n
				if how == "pin" {
					step = min(n, BlockSize) // as many pins as blocks
				}
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					for at := 0; at < n; at += step {
						_, pin, err := f.view(pos+int64(at), step)
						if err != nil {
							b.Fatal(err)
						}
						pin.unpin()
					}
				}
			})
		}
	}
}

func TestOverwritingLeavesPinnedBytesAlone(t *testing.T) {
	f := openCached(t, NewBlockCache(1<<20), &memFile{}, false)
	if _, err := f.WriteAt([]byte("0123456789"), 0); err != nil {
		t.Fatal(err)
	}
	old, _, err := f.view(0, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("ab"), 3); err != nil {
		t.Fatal(err)
	}
	if string(old) != "0123456789" {
		t.Fatalf("pinned bytes became %q", old)
	}
	if b, _, err := f.view(0, 10); err != nil || string(b) != "012ab56789" {
		t.Fatalf("%q, %v", b, err)
	}
}
