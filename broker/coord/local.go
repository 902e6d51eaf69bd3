package coord

import (
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Local is the Client of a cluster of one: a Tree in memory and its journal on disk.
//
// A change is applied to the tree and written to the journal at once, and
// answered when the journal has been synced; changes that wait share one sync. A read sees
// the tree as it is now and is answered when what it saw is durable, so nobody acts on
// a state that a power cut can take back. Watches fire then, too. Answers come in the order of the calls.
//
// Opening always begins a new journal: the sessions of the last life end there, and a torn tail is left behind.
type Local struct {
	env        World
	dir        string
	compactMin int64 // compactBytesMin, less in tests

	mu      sync.Mutex
	tree    *Tree
	session SessionID
	journal journal
	watch   map[watchKey][]func(Event)

	// waiting are the answers not yet given, in order; each may go once seq
	// transactions are durable. Bound: waitingMax.
	waiting []answer
	written int64 // transactions written to the journal in this life
	durable int64 // of them, how many survive a power cut
	syncing bool  // a sync, or a change of journals, is in flight
	failed  error // a write or sync failed: nothing is known, everything is refused
	closed  bool

	ready       []func() // may run now, in order
	dispatching bool     // somebody runs them
}

// World is what Local asks of its environment, as env.Env has it. A package of its own
// cannot be named here, since env speaks of coord.
type World interface {
	Disk() vfs.FS
	Wall() time.Time
	After(d time.Duration, f func()) (stop func() bool)
	Sync(s []vfs.Syncer, done func(error))
	// Warn and Error tell the operator.
	Warn(text string)
	Error(text string)
}

// journal is the file that is written to.
type journal struct {
	file     vfs.File
	size     int64 // bytes written
	durable  int64 // bytes known to be on disk
	snapshot int64 // bytes of the first entry
	crc      uint32
	buf      []byte
}

type answer struct {
	seq int64
	run func(error)
}

type watchKey struct {
	kind WatchKind
	path string
}

const (
	waitingMax = 1 << 18 // answers not yet given; more calls get ErrThrottled
	// A journal is begun anew when its transactions take more than its snapshot and this.
	compactBytesMin = 4 << 20
)

var _ Client = (*Local)(nil)

// OpenLocal reads the journal in dir, or makes the first one. All reading is
// done when it returns; the new journal is synced behind the first answers. A
// *CorruptionError means that acknowledged metadata is damaged.
func OpenLocal(e World, dir string) (*Local, error) { return openLocal(e, dir, compactBytesMin) }

func openLocal(e World, dir string, compactMin int64) (*Local, error) {
	l := &Local{env: e, dir: dir, compactMin: compactMin, tree: NewTree(), watch: map[watchKey][]func(Event){}}
	if err := e.Disk().MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("coord: %w", err)
	}
	if err := l.load(); err != nil {
		return nil, err
	}
	now := e.Wall().UnixMilli()
	for _, dead := range l.tree.Sessions() {
		l.tree.mustApply(Txn{Kind: TxnCloseSession, Session: dead, Time: now})
	}
	l.session = SessionID(l.tree.zxid + 1)
	l.tree.mustApply(Txn{Kind: TxnOpenSession, Session: l.session, Time: now})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.beginJournal(); err != nil {
		return nil, err
	}
	return l, nil
}

func (t *Tree) mustApply(txn Txn) {
	if _, _, err := t.Apply(txn); err != nil {
		panic(fmt.Sprintf("BUG: coord: transaction %+v: %v", txn, err))
	}
}

func (l *Local) load() error {
	t, torn, err := readJournal(l.env.Disk(), l.dir)
	if err != nil {
		return err
	}
	if torn != "" {
		l.env.Warn(torn)
	}
	l.tree = t
	return nil
}

// beginJournal writes the tree into a new file, to which everything from now on
// is appended, and lets it take the old one's place once it is durable.
// Until then nothing is answered, so either file is a true end of this life.
// Called with the lock, when no sync is in flight.
func (l *Local) beginJournal() error {
	tmp := path.Join(l.dir, journalTmpName)
	f, err := l.env.Disk().Open(tmp, vfs.Create|vfs.ReadWrite|vfs.Truncate)
	if err != nil {
		return fmt.Errorf("coord: begin a journal: %w", err)
	}
	next := journal{file: f, buf: beginEntry(l.journal.buf[:0])}
	next.buf = appendTree(next.buf, l.tree)
	next.crc = endEntry(next.buf, 0, entrySnapshot, 0, l.tree.zxid, 0)
	if _, err := f.WriteAt(next.buf, 0); err != nil {
		f.Close()
		_ = l.env.Disk().Remove(tmp) // it is overwritten next time anyway
		return fmt.Errorf("coord: write %s: %w", tmp, err)
	}
	next.size = int64(len(next.buf))
	next.buf = nil // a snapshot's size is no measure for transactions
	next.snapshot = next.size
	old := l.journal.file
	l.journal = next
	l.syncing = true
	upTo, bytes := l.written, next.size
	l.env.Sync([]vfs.Syncer{f}, func(err error) { l.renameJournal(err, old, upTo, bytes) })
	return nil
}

// renameJournal is the second step: the new journal is on disk, now its name.
func (l *Local) renameJournal(err error, old vfs.File, upTo, bytes int64) {
	l.mu.Lock()
	if err == nil {
		err = l.env.Disk().Rename(path.Join(l.dir, journalTmpName), path.Join(l.dir, journalName))
	}
	l.mu.Unlock()
	if err != nil {
		l.synced(err, upTo, bytes)
		return
	}
	// The parent too: the directory itself may be new.
	dirs := []vfs.Syncer{vfs.DirSyncer(l.env.Disk(), l.dir), vfs.DirSyncer(l.env.Disk(), path.Dir(l.dir))}
	l.env.Sync(dirs, func(err error) {
		if old != nil {
			_ = old.Close() // nothing of it is needed any more
		}
		l.synced(err, upTo, bytes)
	})
}

// startSync makes durable what is written, unless something in flight will come
// back here. Called with the lock.
func (l *Local) startSync() {
	if l.syncing || l.failed != nil || l.durable == l.written {
		return
	}
	if l.journal.size-l.journal.snapshot > max(l.compactMin, l.journal.snapshot) {
		err := l.beginJournal()
		if err == nil {
			return
		}
		// The old journal still holds everything: go on with it, and try again
		// when it has grown by as much again.
		l.env.Warn(fmt.Sprintf("coord: the metadata journal could not be compacted and goes on growing: %v", err))
		l.journal.snapshot = l.journal.size
	}
	l.syncing = true
	upTo, bytes := l.written, l.journal.size
	l.env.Sync([]vfs.Syncer{l.journal.file}, func(err error) { l.synced(err, upTo, bytes) })
}

// synced is the end of a sync: what waited for it is answered.
func (l *Local) synced(err error, upTo, bytes int64) {
	l.mu.Lock()
	l.syncing = false
	if err != nil {
		l.fail(fmt.Errorf("coord: sync of the metadata journal: %w", err))
	} else {
		l.durable, l.journal.durable = upTo, bytes
		l.startSync()
	}
	l.release()
	l.mu.Unlock()
	l.dispatch()
}

// fail refuses everything from now on: after a failed write or sync nobody knows
// what the file holds. Called with the lock.
func (l *Local) fail(err error) {
	if l.failed == nil {
		l.failed = err
		l.env.Error(err.Error() + ": metadata can no longer be changed or read")
	}
}

// release moves to ready the answers whose time has come. Called with the lock.
func (l *Local) release() {
	if l.failed == nil && len(l.waiting) > 0 && l.waiting[0].seq > l.durable {
		return
	}
	n := 0
	for ; n < len(l.waiting); n++ {
		a := l.waiting[n]
		if l.failed == nil && a.seq > l.durable {
			break
		}
		err := l.failed
		if a.seq <= l.durable {
			err = nil
		}
		l.ready = append(l.ready, func() { a.run(err) })
	}
	left := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[left:]) // what was answered is not held on to
	l.waiting = l.waiting[:left]
}

// answerLater queues an answer that holds once all that is written now is durable. Called with the lock.
func (l *Local) answerLater(run func(error)) {
	l.waiting = append(l.waiting, answer{l.written, run})
	l.startSync()
	l.release()
	l.wake()
}

// answerNow queues the answer of a call that was not taken. Called with the lock.
func (l *Local) answerNow(run func()) {
	l.ready = append(l.ready, run)
	l.wake()
}

func (l *Local) wake() {
	if len(l.ready) > 0 && !l.dispatching {
		l.dispatching = true
		l.env.After(0, l.run)
	}
}

// dispatch runs what is ready, unless somebody does already. Called without the lock.
func (l *Local) dispatch() {
	l.mu.Lock()
	if l.dispatching {
		l.mu.Unlock()
		return
	}
	l.dispatching = true
	l.mu.Unlock()
	l.run()
}

func (l *Local) run() {
	for {
		l.mu.Lock()
		batch := l.ready
		l.ready = nil
		if len(batch) == 0 {
			l.dispatching = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		for _, f := range batch {
			f()
		}
	}
}
