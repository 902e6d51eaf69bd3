package coord

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// The journal is one file: entries back to back, the first a snapshot of the
// tree, the others the transactions since. Big-endian:
//
//	 0 magic   uint32  "TMCJ"
//	 4 length  uint32  of the body
//	 8 CRC     uint32  Castagnoli, of byte 12 to the end of the body
//	12 prev    uint32  CRC of the entry before, 0 in the first: entries of an earlier life of the file do not join
//	16 zxid    int64   of the tree after the entry
//	24 durable int64   bytes of this file that were known to be on disk when the entry was written
//	32 kind    uint8   snapshot, transaction, closed
//	33 body
//
// "durable" is what tells a torn tail from damage. Entries that were written but not yet synced
// may be lost in any pattern by a power cut, a later one kept and an earlier one not; none of them was
// acknowledged, so the tail is cut. But when an entry after the bad one says that the bad one's
// bytes were on disk, something acknowledged is gone: that is never skipped.
const (
	journalMagic      = 0x544d434a
	entryHeaderSize   = 33
	journalName       = "coord.journal"
	journalTmpName    = "coord.journal.tmp"
	journalBytesLimit = 2 << 30 // no journal of ours comes near it
)

type entryKind uint8

const (
	entrySnapshot entryKind = iota + 1
	entryTxn
	entryClosed // the last entry of a clean shutdown; vouches for all before it
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entry is a decoded journal entry. Its body aliases what was read.
type entry struct {
	kind    entryKind
	crc     uint32
	prev    uint32
	zxid    int64
	durable int64
	body    []byte
}

// beginEntry reserves room for the header of an entry whose body is appended next.
func beginEntry(dst []byte) []byte { return append(dst, make([]byte, entryHeaderSize)...) }

// endEntry fills in the header of the entry that begins at dst[at] and gives its CRC.
func endEntry(dst []byte, at int, kind entryKind, prev uint32, zxid, durable int64) uint32 {
	e := dst[at:]
	binary.BigEndian.PutUint32(e, journalMagic)
	binary.BigEndian.PutUint32(e[4:], uint32(len(e)-entryHeaderSize))
	binary.BigEndian.PutUint32(e[12:], prev)
	binary.BigEndian.PutUint64(e[16:], uint64(zxid))
	binary.BigEndian.PutUint64(e[24:], uint64(durable))
	e[32] = byte(kind)
	sum := crc32.Checksum(e[12:], castagnoli)
	binary.BigEndian.PutUint32(e[8:], sum)
	return sum
}

// readEntry decodes the entry at the start of b; n is its length in bytes. why
// says what is wrong with it, "" when nothing is.
func readEntry(b []byte) (e entry, n int, why string) {
	if e, n, why = readHeader(b); why != "" {
		return e, n, why
	}
	if sum := crc32.Checksum(b[12:n], castagnoli); sum != e.crc {
		return e, n, fmt.Sprintf("CRC is %08x, the entry says %08x", sum, e.crc)
	}
	return e, n, ""
}

// readHeader is readEntry that does not compute the CRC.
func readHeader(b []byte) (e entry, n int, why string) {
	if len(b) < entryHeaderSize {
		return e, 0, "the entry is cut off"
	}
	if binary.BigEndian.Uint32(b) != journalMagic {
		return e, 0, "no entry begins here"
	}
	length := int64(binary.BigEndian.Uint32(b[4:]))
	if length > int64(len(b)-entryHeaderSize) {
		return e, 0, "the entry is cut off"
	}
	n = entryHeaderSize + int(length)
	e = entry{
		kind:    entryKind(b[32]),
		crc:     binary.BigEndian.Uint32(b[8:]),
		prev:    binary.BigEndian.Uint32(b[12:]),
		zxid:    int64(binary.BigEndian.Uint64(b[16:])),
		durable: int64(binary.BigEndian.Uint64(b[24:])),
		body:    b[entryHeaderSize:n],
	}
	return e, n, ""
}

// CorruptionError is a journal that does not hold what was written and
// acknowledged. The broker must not start on it.
type CorruptionError struct {
	File   string
	Pos    int64 // byte position of the damaged entry
	Reason string
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("coord: damaged metadata journal %s at byte %d: %s", e.File, e.Pos, e.Reason)
}

// loaded is what a journal held.
type loaded struct {
	tree  *Tree
	clean bool   // it ends with a clean shutdown
	cutAt int64  // where a torn tail begins; -1: there is none
	why   string // what is wrong there
}

// readJournal rebuilds the tree from the journal in dir; where there is none it is the
// root alone. torn tells of a tail that was left out.
func readJournal(disk vfs.FS, dir string) (t *Tree, torn string, err error) {
	name := path.Join(dir, journalName)
	f, err := disk.Open(name, vfs.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return NewTree(), "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("coord: %w", err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, "", fmt.Errorf("coord: %w", err)
	}
	if size > journalBytesLimit {
		return nil, "", &CorruptionError{name, 0, fmt.Sprintf("%d bytes are too many for a journal", size)}
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); err != nil && !(err == io.EOF && int64(n) == size) {
		return nil, "", fmt.Errorf("coord: read %s: %w", name, err)
	}
	got, err := loadJournal(name, b)
	if err != nil {
		return nil, "", err
	}
	if got.cutAt >= 0 {
		torn = fmt.Sprintf("coord: %s: torn tail cut at byte %d of %d (%s): it was never acknowledged", name, got.cutAt, size, got.why)
	}
	return got.tree, torn, nil
}

// loadJournal rebuilds the tree. A torn tail is left out and told; damage is a *CorruptionError.
func loadJournal(file string, b []byte) (loaded, error) {
	l := loaded{cutAt: -1}
	var prev uint32
	for pos := int64(0); pos < int64(len(b)); {
		e, n, why := readEntry(b[pos:])
		if why == "" && e.prev != prev {
			why = "the entry does not follow the one before it"
		}
		if why != "" {
			// The snapshot was on disk before the journal got its name.
			if pos == 0 || newRanges(b).vouchedFor(pos) {
				return l, &CorruptionError{file, pos, why}
			}
			l.cutAt, l.why = pos, why
			return l, nil
		}
		if err := l.apply(e, pos == 0); err != nil {
			return l, &CorruptionError{file, pos, err.Error()}
		}
		prev = e.crc
		pos += int64(n)
	}
	if l.tree == nil {
		return l, &CorruptionError{file, 0, "the journal is empty"}
	}
	return l, nil
}

func (l *loaded) apply(e entry, first bool) error {
	if first != (e.kind == entrySnapshot) {
		return fmt.Errorf("entry of kind %d is out of place", e.kind)
	}
	l.clean = false
	switch e.kind {
	case entrySnapshot:
		t, err := decodeTree(e.body)
		if err != nil {
			return err
		}
		l.tree = t
	case entryTxn:
		txn, err := decodeTxn(e.body)
		if err != nil {
			return err
		}
		if _, _, err := l.tree.Apply(txn); err != nil {
			return fmt.Errorf("its transaction does not apply: %w", err)
		}
	case entryClosed:
		l.clean = true
	default:
		return fmt.Errorf("entry of unknown kind %d", e.kind)
	}
	if l.tree.zxid != e.zxid {
		return fmt.Errorf("the tree is at zxid %d after it, the entry says %d", l.tree.zxid, e.zxid)
	}
	return nil
}
