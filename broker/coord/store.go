package coord

import (
	"fmt"
	"path"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Store keeps a Tree that a server shares between many sessions in the journal that
// Local has too. It waits for the disk, so it is for a live server with a goroutine
// to spare, and not safe for concurrent use. Sessions outlive it: they go on with the tree that OpenStore gives.
//
// The caller applies a transaction, adds it, and answers nobody before Commit has
// returned: then everything added is durable. After an error nothing is known; only Close may follow.
type Store struct {
	disk       vfs.FS
	dir        string
	compactMin int64 // compactBytesMin, less in tests
	bytesMax   int64 // journalBytesLimit, less in tests
	journal    journal
	failed     bool
}

// OpenStore reads the journal in dir, or makes the first one, and begins a new
// one. torn tells of a tail that was cut: it was never acknowledged. A
// *CorruptionError means that acknowledged metadata is damaged. Who may use dir is the caller's affair.
func OpenStore(disk vfs.FS, dir string) (s *Store, t *Tree, torn string, err error) {
	if err := disk.MkdirAll(dir); err != nil {
		return nil, nil, "", fmt.Errorf("coord: %w", err)
	}
	t, torn, err = readJournal(disk, dir)
	if err != nil {
		return nil, nil, "", err
	}
	s = &Store{disk: disk, dir: dir, compactMin: compactBytesMin, bytesMax: journalBytesLimit}
	if err := s.begin(t); err != nil {
		return nil, nil, "", err
	}
	return s, t, torn, nil
}

// Add writes down a transaction that t has just applied without an error.
func (s *Store) Add(txn Txn, t *Tree) {
	j := &s.journal
	at := len(j.buf)
	j.buf = appendTxn(beginEntry(j.buf), txn)
	j.crc = endEntry(j.buf, at, entryTxn, j.crc, t.zxid, j.durable)
}

// Pending is how many bytes were added since the last Commit.
func (s *Store) Pending() int { return len(s.journal.buf) }

// Commit makes durable what was added: one write, one sync.
func (s *Store) Commit(t *Tree) error {
	j := &s.journal
	if s.failed {
		return fmt.Errorf("coord: the metadata journal has failed before")
	}
	if len(j.buf) == 0 {
		return nil
	}
	if err := s.flush(); err != nil {
		s.failed = true
		return fmt.Errorf("coord: metadata journal: %w", err)
	}
	if j.size-j.snapshot <= max(s.compactMin, j.snapshot) {
		return nil
	}
	// Everything is durable in the old journal. If the new one cannot be begun, the old
	// goes on, and is compacted when it has grown by as much again; but once a rename
	// was tried nobody knows which of them a restart will find.
	if err := s.begin(t); err != nil {
		if s.failed {
			return err
		}
		j.snapshot = j.size
	}
	return nil
}

func (s *Store) flush() error {
	j := &s.journal
	if size := j.size + int64(len(j.buf)); size > s.bytesMax { // what is acknowledged must be read again
		return fmt.Errorf("%d bytes are more than a restart would read", size)
	}
	if _, err := j.file.WriteAt(j.buf, j.size); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	j.size += int64(len(j.buf))
	j.durable = j.size
	j.buf = j.buf[:0]
	if cap(j.buf) > 1<<20 { // one large batch is no reason to keep its room for ever
		j.buf = nil
	}
	return nil
}

// begin writes the tree into a new journal and puts it, durable, in the old one's place.
func (s *Store) begin(t *Tree) error {
	tmp := path.Join(s.dir, journalTmpName)
	f, err := s.disk.Open(tmp, vfs.Create|vfs.ReadWrite|vfs.Truncate)
	if err != nil {
		return fmt.Errorf("coord: begin a journal: %w", err)
	}
	buf := appendTree(beginEntry(nil), t)
	if int64(len(buf)) > s.bytesMax {
		_ = f.Close()
		return fmt.Errorf("coord: begin a journal: a snapshot of %d bytes is too large", len(buf))
	}
	next := journal{file: f, crc: endEntry(buf, 0, entrySnapshot, 0, t.zxid, 0)}
	_, err = f.WriteAt(buf, 0)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close()
		_ = s.disk.Remove(tmp) // it is overwritten next time anyway
		return fmt.Errorf("coord: write %s: %w", tmp, err)
	}
	next.size, next.snapshot, next.durable = int64(len(buf)), int64(len(buf)), int64(len(buf))
	err = s.disk.Rename(tmp, path.Join(s.dir, journalName))
	for _, dir := range []string{s.dir, path.Dir(s.dir)} { // the parent too: the directory itself may be new
		if err == nil {
			err = s.disk.SyncDir(dir)
		}
	}
	if err != nil {
		s.failed = true
		_ = f.Close()
		return fmt.Errorf("coord: rename %s: %w", tmp, err)
	}
	if s.journal.file != nil {
		_ = s.journal.file.Close() // nothing of it is needed any more
	}
	s.journal = next
	return nil
}

// Close commits, and ends the journal with the mark of a clean shutdown.
func (s *Store) Close(t *Tree) error {
	err := s.Commit(t)
	if err == nil {
		j := &s.journal
		j.buf = beginEntry(j.buf)
		j.crc = endEntry(j.buf, 0, entryClosed, j.crc, t.zxid, j.durable)
		err = s.flush()
	}
	if cerr := s.journal.file.Close(); err == nil {
		err = cerr
	}
	return err
}
