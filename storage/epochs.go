package storage

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// epochStart says that a leader epoch's first batch here has that offset.
type epochStart struct {
	epoch int32
	start int64
}

// epochCache is a log's leader epochs, from which a follower learns where it
// parted from its leader (KIP-101). It is kept in leader-epoch-checkpoint:
//
//	0
//	<entries>
//	<epoch> <start offset>
//
// Invariant: epochs and start offsets both rise.
type epochCache struct {
	entries []epochStart
	// begun is an epoch that this replica leads and that has no batch here yet; it
	// begins at the log end. It is not in the file: an epoch without a batch is
	// forgotten when a log opens, as in Kafka, and its first batch names it. So a
	// change of leadership costs no disk, and nothing of an epoch outlives its start (KAFKA-7415).
	begun    int32
	hasBegun bool
	version  int64 // counts changes
	durable  int64 // version that is durable in the file
	file     epochFile
}

const epochFileName = "leader-epoch-checkpoint"

// assign notes that a batch of that epoch stands at offset.
func (c *epochCache) assign(epoch int32, offset int64) {
	c.hasBegun = false
	if epoch < 0 {
		return
	}
	n := len(c.entries)
	if n > 0 && c.entries[n-1].epoch >= epoch {
		return
	}
	for n > 0 && c.entries[n-1].start >= offset {
		n--
	}
	c.entries = append(c.entries[:n], epochStart{epoch, offset})
	c.version++
}

// begin notes that a leader begins an epoch at the log end.
func (c *epochCache) begin(epoch int32) error {
	switch newest := c.newest(); {
	case epoch < newest:
		return fmt.Errorf("leader epoch %d begins in a log that knows epoch %d", epoch, newest)
	case epoch > newest:
		c.begun, c.hasBegun = epoch, true
	}
	return nil
}

// newest is the newest epoch, also one without a batch; or -1.
func (c *epochCache) newest() int32 {
	if c.hasBegun {
		return c.begun
	}
	return c.latest()
}

// latest is the newest epoch that has a batch, or -1.
func (c *epochCache) latest() int32 {
	if n := len(c.entries); n > 0 {
		return c.entries[n-1].epoch
	}
	return -1
}

// endOffset gives the largest epoch <= asked and where it ends: where the next
// one starts, or at the log end (KIP-279: the start of a larger epoch alone
// would let two logs differ below it, B3). One older than all that are known ends
// where the first of those starts, as in Kafka: its batches are gone from here, and
// nothing that a follower has above is of this log.
func (c *epochCache) endOffset(asked int32, logEnd int64) (epoch int32, end int64) {
	if c.hasBegun && c.begun <= asked {
		return c.begun, logEnd
	}
	epoch, end = -1, logEnd
	for i := len(c.entries) - 1; i >= 0; i-- {
		if c.entries[i].epoch <= asked {
			return c.entries[i].epoch, end
		}
		end = c.entries[i].start
	}
	if len(c.entries) == 0 && !c.hasBegun || asked < 0 {
		return -1, -1
	}
	return asked, end // with none but the begun one, that is the log end, where it starts
}

// endByNext is the rule before KIP-279: the start of the first epoch larger than
// the one asked, which need not be known here; -1 when there is no answer.
func (c *epochCache) endByNext(asked int32, logEnd int64) int64 {
	if asked >= 0 && asked == c.newest() {
		return logEnd
	}
	if len(c.entries) == 0 || asked < c.entries[0].epoch {
		return -1
	}
	for _, e := range c.entries {
		if e.epoch > asked {
			return e.start
		}
	}
	if c.hasBegun && c.begun > asked {
		return logEnd
	}
	return -1
}

// truncateEnd forgets epochs that start at offset or above, also when the log ends
// there already: one that this replica began as leader and that got no batch must
// not be taken for what it fetches next.
func (c *epochCache) truncateEnd(offset int64) {
	c.hasBegun = false
	n := len(c.entries)
	for n > 0 && c.entries[n-1].start >= offset {
		n--
	}
	if n < len(c.entries) {
		c.entries = c.entries[:n]
		c.version++
	}
}

// truncateStart forgets epochs that ended below offset; the one that spans it begins there now.
func (c *epochCache) truncateStart(offset int64) {
	n := 0
	for n+1 < len(c.entries) && c.entries[n+1].start <= offset {
		n++
	}
	if len(c.entries) == 0 || (n == 0 && c.entries[0].start >= offset) {
		return
	}
	c.entries = append(c.entries[:0:0], c.entries[n:]...)
	c.entries[0].start = max(c.entries[0].start, offset)
	c.version++
}

// spanning is the entry of the epoch that offset lies in.
func (c *epochCache) spanning(offset int64) (e epochStart, ok bool) {
	for _, e := range slices.Backward(c.entries) {
		if e.start <= offset {
			return e, true
		}
	}
	return e, false
}

// at is the epoch that offset lies in, -1 when it is not known.
func (c *epochCache) at(offset int64) int32 {
	if e, ok := c.spanning(offset); ok {
		return e.epoch
	}
	return -1
}

// keepLast is for a log that opens empty: of all epochs without a batch, which are forgotten then, the one whose batches were
// deleted from below the log end stays. By it the log's age is judged, and its end without it would tell of nothing: an election
// among replicas that are not in sync preferred one that lacked most of what had been committed. Kafka forgets it.
func (c *epochCache) keepLast(e epochStart, logEnd int64) {
	if e.epoch > c.latest() && e.start <= logEnd {
		c.entries = []epochStart{{e.epoch, logEnd}}
		c.version++
	}
}

// clear forgets all.
func (c *epochCache) clear() {
	c.hasBegun = false
	if len(c.entries) > 0 {
		c.entries = nil
		c.version++
	}
}

func (c *epochCache) encode() []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(c.entries))
	for _, e := range c.entries {
		b = fmt.Appendf(b, "%d %d\n", e.epoch, e.start)
	}
	return b
}

// decode replaces the cache by the file's content; an error leaves it empty.
func (c *epochCache) decode(b []byte) error {
	c.entries = nil
	var entries []epochStart
	err := readCheckpoint(b, func(fields []string) error {
		if len(fields) != 2 {
			return fmt.Errorf("%q is not an epoch and an offset", strings.Join(fields, " "))
		}
		epoch, err1 := strconv.ParseInt(fields[0], 10, 32)
		start, err2 := strconv.ParseInt(fields[1], 10, 64)
		if err1 != nil || err2 != nil || epoch < 0 || start < 0 {
			return fmt.Errorf("%q is not an epoch and an offset", strings.Join(fields, " "))
		}
		if n := len(entries); n > 0 && (entries[n-1].epoch >= int32(epoch) || entries[n-1].start >= start) {
			return fmt.Errorf("epoch %d at offset %d does not follow epoch %d at offset %d", epoch, start, entries[n-1].epoch, entries[n-1].start)
		}
		entries = append(entries, epochStart{int32(epoch), start})
		return nil
	})
	if err == nil {
		c.entries = entries
	}
	return err
}

// epochFile writes leader-epoch-checkpoint. Flushes may overlap in the pool that
// carries them out: a lock keeps their writes apart, and the version keeps an
// older flush from undoing what a newer one wrote.
type epochFile struct {
	mu      sync.Mutex
	fs      vfs.FS
	path    string
	written int64
}

// epochWrite is one version on its way to the file, a step of a Flush. It syncs
// the directory itself: a driver may begin all steps' syncs before it ends one, and
// a directory sync begun before the rename does not cover it.
type epochWrite struct {
	file    *epochFile
	version int64
	content []byte
	names   bool // other names in the directory changed too: it is synced also where the file is newer already
}

func (w *epochWrite) Sync() error {
	w.file.mu.Lock()
	defer w.file.mu.Unlock()
	if w.file.written >= w.version {
		if w.names {
			return w.file.fs.SyncDir(path.Dir(w.file.path))
		}
		return nil
	}
	if err := replaceFileDurably(w.file.fs, w.file.path, w.content); err != nil {
		return err
	}
	w.file.written = w.version
	return nil
}
