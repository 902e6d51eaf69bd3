package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// SegmentBytes is when a writer in the disk regime begins a new file, as log.segment.bytes does by default.
const SegmentBytes = 1 << 30

// segmentsUnsyncedMax bounds the files that are finished and not yet synced. What they hold beyond the kernel's limit on dirty
// memory is on the disk already, and that limit slows the writer long before: this one it meets on no machine of less than a terabyte.
const segmentsUnsyncedMax = 256

// segments writes into a row of files, each of the same size. A finished file is synced while the next is written, one
// after the other, as a partition's are, and the writer does not wait for it: the order in which the kernel writes back is
// not the order of the files, and a disk that others' pages keep busy has nothing to do once the writer stands still for one file's.
// What slows the writer is the kernel alone, by the disk's rate.
type segments struct {
	dir      string
	max      int64 // bytes of a file
	base, at int64 // where the file begins in the row, and how much is in it
	file     *os.File
	sync     func(*os.File) error
	finished chan *os.File // to be synced and closed
	closing  atomic.Bool
	synced   chan struct{}         // closed when no sync will come any more
	failed   atomic.Pointer[error] // the first sync that failed
}

func newSegments(dir string, max int64) *segments {
	return newSegmentsSynced(dir, max, func(f *os.File) error { return unix.Fdatasync(int(f.Fd())) })
}

func newSegmentsSynced(dir string, max int64, sync func(*os.File) error) *segments {
	s := &segments{dir: dir, max: max, sync: sync, finished: make(chan *os.File, segmentsUnsyncedMax), synced: make(chan struct{})}
	go s.syncFinished()
	return s
}

func (s *segments) syncFinished() {
	defer close(s.synced)
	for f := range s.finished {
		if !s.closing.Load() {
			if err := s.sync(f); err != nil {
				err = fmt.Errorf("limits: sync %s: %w", f.Name(), err)
				s.failed.CompareAndSwap(nil, &err)
			}
		}
		f.Close()
	}
}

// write appends a chunk; it does not lie across two files.
func (s *segments) write(chunk []byte) error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	if s.file == nil || s.at > 0 && s.at+int64(len(chunk)) > s.max {
		if err := s.roll(); err != nil {
			return err
		}
	}
	n, err := s.file.WriteAt(chunk, s.at)
	s.at += int64(n)
	if err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	return nil
}

func (s *segments) roll() error {
	if s.file != nil {
		s.finished <- s.file
		s.file, s.base, s.at = nil, s.base+s.at, 0
	}
	f, err := os.Create(filepath.Join(s.dir, fmt.Sprintf("%020d", s.base)))
	if err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	s.file = f
	return nil
}

// close ends the writing. It waits for the sync that runs and begins none: the files are thrown away.
func (s *segments) close() {
	s.closing.Store(true)
	close(s.finished)
	<-s.synced
	if s.file != nil {
		s.file.Close()
	}
}
