package storage

import (
	"errors"
	"fmt"
	"sync"

	"github.com/tidemark-log/tidemark/internal/crc32c"
	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// leftover is the part of a segment, [from, to), that an earlier process wrote and
// that no successful sync is known to cover. It is written once more, the same bytes in the same
// place, before a sync of this process counts for it.
//
// For a sync that succeeds says only that what was written since the last sync, failed or
// not, is on the disk. The race: a batch is appended; its sync fails, which Linux says
// once and then counts the pages as clean, though the disk never got them; the directory goes
// offline, and the process is started again; recovery reads the batch from the page
// cache, whole; its sync succeeds and writes nothing; the recovery point passes the batch; the
// power is cut. The process need not even have seen the failure: it may have been killed before its sync.
// No mark can tell that there was one, for it would lie on the disk that fails. So
// this is done after every unclean stop.
//
// It is a part of the flush and not of opening, whose time it would double: the
// flush that follows recovery reads what recovery has just read, so the
// cost is one write of the unflushed tail, however long the log is. Until that flush has
// succeeded nothing of it is called flushed.
//
// What is read has to be what recovery found whole: a page that a failed sync left
// clean may have been dropped from memory since, and then the disk's old bytes are
// read. So each batch is summed again, in the buffer that is then written. A power cut in
// the middle tears nothing, because no byte changes.
//
// Nor is the page cache dropped after a failed sync (posix_fadvise), so that the
// process would read what the disk has: it would drop the only copy there is.
//
// A file that is read and written by O_DIRECT needs none of this: recovery has read
// what the disk has.
type leftover struct {
	mu       sync.Mutex // held while a chunk is read and written, which a cut must not come between
	from, to int64
	next     int64 // no batch at from or behind it begins below this offset
	err      error // once it is set, nothing is written any more
}

// leftoverChunk is how much is read and written at once, at least: a batch is never divided.
const leftoverChunk = 1 << 20

// leave notes that the segment's batches from byte from on, where offset next is, are yet to be written again.
func (l *segmentLog) leave(s *segment, from, next int64) {
	s.left = nil
	if from < s.size && l.cfg.Cache != CacheDirect && !l.cfg.TrustPageCache {
		s.left = &leftover{from: from, to: s.size, next: next}
	}
}

// cut takes from the leftover what a truncation to pos removes, before it does.
func (o *leftover) cut(pos int64) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.from, o.to = min(o.from, pos), min(o.to, pos)
}

// syncLeftover is the step of a Flush for a segment with a leftover: it writes that again, and syncs the file.
type syncLeftover struct {
	left   *leftover
	file   vfs.File
	name   string
	summed bool
}

func (w syncLeftover) Sync() error {
	if err := w.left.rewrite(w.file, w.name, w.summed); err != nil {
		return err
	}
	return w.file.Sync()
}

// syncer is what makes the segment's .log file durable. The file is open.
func (l *segmentLog) syncer(s *segment) vfs.Syncer {
	if s.left == nil {
		return s.log
	}
	return syncLeftover{s.left, s.log, s.path(), !l.cfg.TrustTail}
}

// rewrite writes again what is left. Two flushes may do so at once, chunk by chunk.
func (o *leftover) rewrite(f vfs.File, name string, summed bool) error {
	if c, ok := f.(*cachedFile); ok {
		f = c.file // the blocks hold the same bytes, before and after
	}
	var buf []byte
	for {
		done, err := o.rewriteChunk(f, name, &buf, summed)
		if done || err != nil {
			return err
		}
	}
}

func (o *leftover) rewriteChunk(f vfs.File, name string, buf *[]byte, summed bool) (done bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil || o.from >= o.to {
		return true, o.err
	}
	b, next, err := o.read(f, name, buf, summed)
	if err == nil {
		_, err = f.WriteAt(b, o.from)
	}
	if errors.Is(err, vfs.ErrTooManyOpen) {
		return true, err // nothing was written, and the next flush tries again
	}
	if o.err = err; err == nil {
		o.from, o.next = o.from+int64(len(b)), next
	}
	return false, err
}

// read gives the whole batches at from, at least one, which must be as recovery found them, and where they end.
func (o *leftover) read(f vfs.File, name string, buf *[]byte, summed bool) (b []byte, next int64, err error) {
	for want := min(leftoverChunk, o.to-o.from); ; {
		if int64(cap(*buf)) < want {
			*buf = make([]byte, want)
		}
		b = (*buf)[:want]
		if err := readFull(f, b, o.from); err != nil {
			return nil, 0, fmt.Errorf("reading %s at byte %d: %w", name, o.from, err)
		}
		whole, next := 0, o.next
		for whole+record.HeaderSize <= len(b) {
			h := record.ReadHeader(b[whole:])
			if h.Size() < record.HeaderSize || h.BaseOffset < next || int64(whole+h.Size()) > o.to-o.from {
				return nil, 0, o.changed(name, whole, next)
			}
			end := whole + h.Size()
			if end > len(b) {
				want = int64(h.Size())
				break
			}
			if summed && crc32c.Checksum(b[whole+batchCRCFrom:end]) != h.CRC {
				return nil, 0, o.changed(name, whole, next)
			}
			whole, next = end, h.NextOffset()
		}
		switch {
		case whole > 0:
			return b[:whole], next, nil
		case want <= int64(len(b)):
			return nil, 0, o.changed(name, 0, next)
		}
	}
}

func (o *leftover) changed(name string, at int, next int64) error {
	return &CorruptionError{File: name, Pos: o.from + int64(at), Offset: next, Reason: "a batch that recovery found whole is no longer there: the disk never got it"}
}

// rewritePath writes a small file again, the same bytes in the same place, and syncs it; see
// leftover. A file that is gone needs nothing.
func rewritePath(fs vfs.FS, name string, max int64) error {
	f, err := fs.Open(name, vfs.ReadWrite)
	if err != nil {
		return ignoreNotExist(err)
	}
	size, err := f.Size()
	if err == nil && size > max {
		err = fmt.Errorf("%s has %d bytes, more than the %d that it may have", name, size, max)
	}
	if err == nil {
		b := make([]byte, size)
		if err = readFull(f, b, 0); err == nil {
			_, err = f.WriteAt(b, 0)
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// pathRewriter is a file to write again and sync, that nobody keeps open.
type pathRewriter struct {
	fs   vfs.FS
	name string
	max  int64
}

func (p pathRewriter) Sync() error { return rewritePath(p.fs, p.name, p.max) }
