package limits

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/harness/sut"
)

// sustainedFileBytes is when Sustained begins a new file, as log.segment.bytes does by default.
const sustainedFileBytes = 1 << 30

// Sustained appends through the page cache and gives the rate in bytes per second over
// measure, from when the kernel throttles on: that is what the disk takes and no longer what memory does. It does as a broker in the disk regime
// does: files of a segment's size, each synced when the next is begun, and pages that have reached the disk
// are dropped meanwhile. It begins when the disk has come to rest.
func Sustained(ctx context.Context, dir string, measure time.Duration) (float64, error) {
	dir, err := os.MkdirTemp(dir, "limits-sustained-")
	if err != nil {
		return 0, fmt.Errorf("limits: %w", err)
	}
	defer os.RemoveAll(dir)
	limit, err := sut.DirtyLimit()
	if err != nil {
		return 0, err
	}
	if err := sut.TouchMemory(limit); err != nil {
		return 0, err
	}
	if _, err := sut.SettleDisk(ctx, dir); err != nil {
		return 0, err
	}
	throttling, err := sut.NewThrottling()
	if err != nil {
		return 0, err
	}
	w := &segments{dir: dir}
	defer w.close()
	defer sut.DropClean(dir)()
	chunk := load.Payload(load.NewRand(1, 1), 1<<20, 8)
	var began time.Time
	var from int64
	for at := int64(0); ; at += int64(len(chunk)) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if began.IsZero() && throttling.Begun(time.Now(), at) {
			began, from = time.Now(), at
		} else if !began.IsZero() && time.Since(began) >= measure {
			return float64(at-from) / time.Since(began).Seconds(), nil
		}
		if err := w.write(chunk, at); err != nil {
			return 0, err
		}
	}
}

// segments is a row of files that are written one after the other.
type segments struct {
	dir    string
	file   *os.File
	synced chan error // one sync runs at a time
}

// write writes at a position of the row; a chunk does not lie across two files.
func (s *segments) write(chunk []byte, at int64) error {
	if at%sustainedFileBytes == 0 {
		if err := s.roll(at); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
	}
	if _, err := s.file.WriteAt(chunk, at%sustainedFileBytes); err != nil {
		return fmt.Errorf("limits: write %s: %w", s.file.Name(), err)
	}
	return nil
}

func (s *segments) roll(at int64) error {
	if err := s.wait(); err != nil {
		return err
	}
	if old := s.file; old != nil {
		s.synced = make(chan error, 1)
		go func() {
			err := unix.Fdatasync(int(old.Fd()))
			old.Close()
			s.synced <- err
		}()
	}
	var err error
	s.file, err = os.Create(filepath.Join(s.dir, fmt.Sprintf("%020d", at)))
	return err
}

// wait waits for the sync of the file before the last.
func (s *segments) wait() error {
	if s.synced == nil {
		return nil
	}
	err := <-s.synced
	s.synced = nil
	return err
}

func (s *segments) close() {
	s.wait()
	if s.file != nil {
		s.file.Close()
	}
}
