package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/harness/sut"
)

// ErrNoDirect says that the file system refuses O_DIRECT.
var ErrNoDirect = errors.New("this file system does not do O_DIRECT")

// Disk is one measurement of the device below Dir, one operation at a time, as a
// broker's append or a consumer's cold read is.
type Disk struct {
	Dir        string
	Random     bool
	Write      bool
	Direct     bool  // O_DIRECT: ChunkBytes must be a multiple of 4096
	ChunkBytes int   // of one operation
	FileBytes  int64 // of the preallocated, written file
	Measure    time.Duration
	Seed       uint64
	Progress   func(string)
}

// DiskResult is what a Disk measurement saw.
type DiskResult struct {
	Bytes   int64
	Ops     int64
	Elapsed time.Duration // buffered writes: with the final fsync
	Latency *hdrhistogram.Histogram
}

// BytesPerS is bytes moved per second.
func (r DiskResult) BytesPerS() float64 { return float64(r.Bytes) / r.Elapsed.Seconds() }

// OpsPerS is operations per second.
func (r DiskResult) OpsPerS() float64 { return float64(r.Ops) / r.Elapsed.Seconds() }

// Run lays out the file (on disk, not in the page cache) and moves chunks until
// Measure is over. Sequential access wraps at the end of the file. Buffered reads
// start cold, and random ones tell the kernel not to read ahead; buffered writes go
// over the file once at most and end with an fsync inside the measured time.
func (d Disk) Run(ctx context.Context) (DiskResult, error) {
	name := filepath.Join(d.Dir, "limits-disk")
	defer os.Remove(name)
	if d.Progress != nil {
		d.Progress("laying out the file")
	}
	if err := sut.TouchMemory(d.FileBytes); err != nil {
		return DiskResult{}, err
	}
	if err := layOut(ctx, name, d.FileBytes); err != nil {
		return DiskResult{}, err
	}
	flags := unix.O_RDWR | unix.O_CLOEXEC
	if d.Direct {
		flags |= unix.O_DIRECT
	}
	fd, err := unix.Open(name, flags, 0)
	if d.Direct && err == unix.EINVAL {
		return DiskResult{}, ErrNoDirect
	} else if err != nil {
		return DiskResult{}, fmt.Errorf("limits: open %s: %w", name, err)
	}
	defer unix.Close(fd)
	if d.Random {
		unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM)
	} else {
		unix.Fadvise(fd, 0, 0, unix.FADV_SEQUENTIAL)
	}
	return d.loop(ctx, fd)
}

func (d Disk) loop(ctx context.Context, fd int) (DiskResult, error) {
	rng := load.NewRand(d.Seed, 0xd15c)
	buf := alignedBuffer(rng, d.ChunkBytes)
	chunks := d.FileBytes / int64(d.ChunkBytes)
	if chunks == 0 {
		return DiskResult{}, fmt.Errorf("limits: a file of %d bytes holds no chunk of %d", d.FileBytes, d.ChunkBytes)
	}
	r := DiskResult{Latency: load.NewHistogram()}
	began := time.Now()
	for at := int64(0); ; at++ {
		before := time.Now()
		if before.Sub(began) >= d.Measure || d.Write && !d.Direct && at == chunks {
			break // dirtying a page again would not reach the device
		}
		if err := ctx.Err(); err != nil {
			return r, err
		}
		chunk := at % chunks
		if d.Random {
			chunk = rng.Int64N(chunks)
		} else if chunk == 0 && at > 0 && !d.Write && !d.Direct {
			unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) // the second round must be cold too
		}
		if err := d.move(fd, buf, chunk*int64(d.ChunkBytes)); err != nil {
			return r, err
		}
		r.Latency.RecordValue(max(1, time.Since(before).Microseconds()))
		r.Ops++
		r.Bytes += int64(d.ChunkBytes)
	}
	if d.Write {
		if err := unix.Fdatasync(fd); err != nil {
			return r, fmt.Errorf("limits: fdatasync: %w", err)
		}
	}
	r.Elapsed = time.Since(began)
	return r, nil
}

func (d Disk) move(fd int, buf []byte, off int64) error {
	op, call := "read", unix.Pread
	if d.Write {
		op, call = "write", unix.Pwrite
	}
	for {
		n, err := call(fd, buf, off)
		switch {
		case err == unix.EINTR:
			continue
		case d.Direct && err == unix.EINVAL:
			return ErrNoDirect
		case err != nil:
			return fmt.Errorf("limits: %s at %d: %w", op, off, err)
		case n != len(buf):
			return fmt.Errorf("limits: %s at %d moved %d of %d bytes", op, off, n, len(buf))
		}
		return nil
	}
}

// layOut writes a file of n bytes, makes it durable and drops it from the page
// cache: blocks that were only reserved would read as zeros without the disk.
func layOut(ctx context.Context, name string, n int64) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, n); err != nil && err != unix.EOPNOTSUPP {
		return fmt.Errorf("limits: preallocate %s: %w", name, err)
	}
	chunk := load.Payload(load.NewRand(1, 1), 1<<20, 8)
	for off := int64(0); off < n; off += int64(len(chunk)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := f.WriteAt(chunk[:min(int64(len(chunk)), n-off)], off); err != nil {
			return fmt.Errorf("limits: write %s: %w", name, err)
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// directAlign is what O_DIRECT wants of buffer addresses.
const directAlign = 4096

// alignedBuffer is n random bytes at an address that O_DIRECT accepts.
func alignedBuffer(rng *rand.Rand, n int) []byte {
	b := make([]byte, n+directAlign)
	skip := 0
	if over := int(uintptr(unsafe.Pointer(&b[0])) % directAlign); over > 0 {
		skip = directAlign - over
	}
	b = b[skip : skip+n]
	copy(b, load.Payload(rng, n, 8))
	return b
}

// MemoryCopy copies a buffer far larger than the processor's caches for about d
// and gives bytes copied per second, on one core.
func MemoryCopy(ctx context.Context, d time.Duration) float64 {
	const size = 256 << 20
	src, dst := make([]byte, size), make([]byte, size)
	for i := 0; i < size; i += 4096 {
		src[i], dst[i] = 1, 1 // first touch is not what is measured
	}
	var copied int64
	began := time.Now()
	for time.Since(began) < d && ctx.Err() == nil {
		copied += int64(copy(dst, src))
	}
	return float64(copied) / time.Since(began).Seconds()
}
