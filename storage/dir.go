package storage

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// LockFile is locked by the process that a log directory belongs to, for as long as it lives.
const LockFile = ".lock"

// Files of a log directory, Kafka's.
const (
	metaFile          = "meta.properties"
	cleanFile         = ".kafka_cleanshutdown"
	recoveryPointFile = "recovery-point-offset-checkpoint"
	highWatermarkFile = "replication-offset-checkpoint"
	logStartFile      = "log-start-offset-checkpoint"
	partitionFile     = "partition.metadata"
	deletedDirSuffix  = "-delete"
)

// Identity is whose a log directory is.
type Identity struct {
	ClusterID string // "": whatever the directory says
	BrokerID  int32
}

// Dir is a log directory: the partitions in it, what is known of them across
// restarts, and whether it can still be written. Its methods may be called from
// several goroutines.
//
// Lock order: checkpointing, the locks of the callers' partitions, checkpoint, mu. Neither of the last two is held while a partition opens.
type Dir struct {
	fs       vfs.FS
	path     string
	id       Identity
	lock     io.Closer
	clean    bool        // the last process closed it cleanly
	epoch    int64       // the broker epoch in its mark; -1: none
	unlike   atomic.Bool // a log was not as its mark promised
	warnings []string
	offline  atomic.Pointer[error]

	stopFailed atomic.Bool // a step of Closing failed: no mark

	names         sharedSync // of the partitions' directories
	checkpointing sync.Mutex // one Checkpoint at a time
	checkpoint    sync.Mutex // guards what follows up to written, and the files of the three maps
	recovery      map[topicPartition]int64
	watermarks    map[topicPartition]int64
	starts        map[topicPartition]int64
	cutSince      map[topicPartition]int64 // where the logs end that were cut since Checkpoint began to ask for high watermarks; nil: it does not
	gone          []topicPartition         // deleted, and perhaps still in the files
	unsettled     bool                     // recovery lowered some of the offsets, and the files may not know
	unwritten     bool                     // some of gone are out of the maps and perhaps not out of the files
	written       map[string]string        // each file's content as last written: an idle directory is not synced for nothing

	mu      sync.Mutex // guards what follows
	logs    map[topicPartition]Log
	deleted []deletedPartition
	deletes int                         // partitions deleted, for names that differ
	found   map[topicPartition][16]byte // topic ids that Partitions has read and Open has not used yet
	cache   *BlockCache
}

// deletedPartition is a renamed directory that waits for its removal.
type deletedPartition struct {
	path     string
	at       int64 // wall ms of the deletion
	delay    int64 // ms
	segments []*segment
}

// OpenDir takes a log directory for this process, creating it when it is missing.
// What it finds wrong and can live with, Warnings tells.
func OpenDir(fs vfs.FS, dir string, id Identity) (*Dir, error) {
	if err := makeDir(fs, path.Clean(dir)); err != nil {
		return nil, fmt.Errorf("log directory %s: %w", dir, err)
	}
	lock, err := fs.Lock(path.Join(dir, LockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("log directory %s is in use: %w; stop the other broker, or choose another directory in log.dirs", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("log directory %s: %w", dir, err)
	}
	d := &Dir{fs: fs, path: dir, id: id, lock: lock, logs: make(map[topicPartition]Log), written: make(map[string]string)}
	if err := d.load(); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return d, nil
}

// makeDir makes a directory and those above it that are missing, durably.
func makeDir(fs vfs.FS, dir string) error {
	_, err := fs.Stat(dir)
	missing := errors.Is(err, iofs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	parent := path.Dir(dir)
	if missing {
		if parent != dir && parent != "." {
			if err := makeDir(fs, parent); err != nil {
				return err
			}
		}
		if err := fs.MkdirAll(dir); err != nil {
			return err
		}
	}
	// Also when it is there: a crash may have come between its making and this. Who
	// may not read the parent did not make it.
	if err := fs.SyncDir(parent); err != nil && (missing || !errors.Is(err, iofs.ErrPermission)) {
		return err
	}
	return nil
}

func (d *Dir) load() error {
	if err := d.checkIdentity(); err != nil {
		return err
	}
	if err := d.takeMark(); err != nil {
		return err
	}
	if err := d.loadCheckpoints(); err != nil {
		return err
	}
	names, err := d.fs.List(d.path)
	if err != nil {
		return fmt.Errorf("log directory %s: %w", d.path, err)
	}
	here := make(map[topicPartition]bool)
	for _, name := range names {
		if tp, ok := parsePartitionDir(name); ok {
			here[tp] = true
		}
		if strings.HasSuffix(name, deletedDirSuffix) && strings.Contains(name, ".") {
			d.deleted = append(d.deleted, deletedPartition{path: d.file(name)})
		}
	}
	if len(here) > 0 && !d.clean {
		// A process that was killed may have made a partition and not come to sync its
		// name: whoever finds it opens it as one that is there to stay.
		if err := d.fs.SyncDir(d.path); err != nil {
			return fmt.Errorf("log directory %s: %w", d.path, err)
		}
	}
	for _, offsets := range []map[topicPartition]int64{d.recovery, d.watermarks, d.starts} {
		for _, tp := range slices.SortedFunc(maps.Keys(offsets), compareTopicPartition) {
			if !here[tp] {
				d.gone = append(d.gone, tp)
			}
		}
	}
	return nil
}

// takeMark reads the mark of a clean shutdown and removes it, before anything else is
// read or changed: a crash from here on must not find the mark of the process before (H2).
func (d *Dir) takeMark() error {
	d.epoch = -1
	b, err := readFile(d.fs, d.file(cleanFile), checkpointBytesMax)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err == nil {
		if err = d.fs.Remove(d.file(cleanFile)); err == nil {
			err = d.fs.SyncDir(d.path)
		}
	}
	if err != nil {
		return fmt.Errorf("log directory %s: taking the clean shutdown mark: %w", d.path, err)
	}
	d.clean = true
	// Old brokers leave it empty. Without an epoch it proves a clean shutdown, but not whose.
	mark := cleanMark{BrokerEpoch: -1}
	if json.Unmarshal(b, &mark) == nil && mark.Version == 0 {
		d.epoch = mark.BrokerEpoch
	}
	return nil
}

// cleanMark is the content of the mark, Kafka's.
type cleanMark struct {
	Version     int   `json:"version"`
	BrokerEpoch int64 `json:"brokerEpoch"`
}

func (d *Dir) file(name string) string { return path.Join(d.path, name) }

// checkIdentity compares meta.properties with whose the directory should be, and writes it when it is missing.
func (d *Dir) checkIdentity() error {
	b, err := readFile(d.fs, d.file(metaFile), checkpointBytesMax)
	if errors.Is(err, iofs.ErrNotExist) {
		if d.id.ClusterID == "" {
			return nil // SetClusterID will write it
		}
		return d.writeIdentity()
	}
	if err != nil {
		return fmt.Errorf("log directory %s: reading %s: %w", d.path, metaFile, err)
	}
	p, err := parseProperties(b, "=")
	broker, err2 := strconv.ParseInt(p["broker.id"], 10, 32)
	if err != nil || err2 != nil || p["version"] != "0" || p["cluster.id"] == "" {
		return fmt.Errorf("log directory %s: %s needs version=0, cluster.id and broker.id: restore it, or choose another directory in log.dirs", d.path, metaFile)
	}
	if d.id.ClusterID == "" {
		d.id.ClusterID = p["cluster.id"]
	}
	if d.id.ClusterID != p["cluster.id"] || d.id.BrokerID != int32(broker) {
		return fmt.Errorf("log directory %s belongs to broker %d of cluster %s, and this is broker %d of cluster %s: choose another directory in log.dirs, or correct broker.id",
			d.path, broker, p["cluster.id"], d.id.BrokerID, d.id.ClusterID)
	}
	return nil
}

func (d *Dir) writeIdentity() error {
	content := fmt.Appendf(nil, "version=0\ncluster.id=%s\nbroker.id=%d\n", d.id.ClusterID, d.id.BrokerID)
	if err := replaceFileDurably(d.fs, d.file(metaFile), content); err != nil {
		return fmt.Errorf("log directory %s: writing %s: %w", d.path, metaFile, err)
	}
	return nil
}

// ClusterID is the cluster that the directory belongs to; "" while it belongs to none.
func (d *Dir) ClusterID() string { return d.id.ClusterID }

// SetClusterID gives a directory that belongs to no cluster yet to this one.
func (d *Dir) SetClusterID(id string) error {
	if d.id.ClusterID != "" {
		return fmt.Errorf("log directory %s belongs to cluster %s already", d.path, d.id.ClusterID)
	}
	d.id.ClusterID = id
	return d.writeIdentity()
}

// Clean says whether the last process to use the directory closed it cleanly.
func (d *Dir) Clean() bool { return d.clean }

// CleanEpoch is the broker epoch that the last process to use the directory was shut
// down cleanly in; -1 when that is not proven. It is lost when a log turns out to be
// not what a clean shutdown leaves, so ask when all logs are open.
func (d *Dir) CleanEpoch() int64 {
	if !d.clean || d.unlike.Load() {
		return -1
	}
	return d.epoch
}

// Path is the directory's name.
func (d *Dir) Path() string { return d.path }

// Warnings is what opening found damaged and did without, one line each.
func (d *Dir) Warnings() []string { return d.warnings }

// Fail takes the directory offline: a write or sync failed, so what its files hold is unknown.
func (d *Dir) Fail(err error) {
	if d.offline.CompareAndSwap(nil, &err) {
		d.disown()
	}
}

// Offline is why the directory is not written any more, or nil.
func (d *Dir) Offline() error {
	if p := d.offline.Load(); p != nil {
		return *p
	}
	return nil
}

// SetBlockCache makes c the cache of logs with lab.cache=process or direct. Without it the directory makes its own.
func (d *Dir) SetBlockCache(c *BlockCache) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cache = c
}

func (d *Dir) blockCache(capacity int64) *BlockCache {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cache == nil {
		d.cache = NewBlockCache(capacity)
	}
	return d.cache
}

// PartitionDir is a partition found in a log directory.
type PartitionDir struct {
	Topic     string
	TopicID   [16]byte // zero: not known
	Partition int32
}

// Partitions lists the partitions, ascending by topic and number. What it reads of each
// the next Open of it need not read again.
func (d *Dir) Partitions() ([]PartitionDir, error) {
	names, err := d.fs.List(d.path)
	if err != nil {
		return nil, fmt.Errorf("log directory %s: %w", d.path, err)
	}
	var all []PartitionDir
	found := make(map[topicPartition][16]byte)
	for _, name := range names {
		tp, ok := parsePartitionDir(name)
		if !ok {
			continue
		}
		id, there, err := d.topicID(name)
		if !there { // perhaps it is no directory
			info, err := d.fs.Stat(d.file(name))
			if errors.Is(err, iofs.ErrNotExist) { // it was listed
				return nil, fmt.Errorf("log directory %s: %s is a link that leads nowhere: bring back what it led to, or remove it, and with it this copy of the partition", d.path, name)
			}
			if err != nil {
				return nil, fmt.Errorf("log directory %s: %w", d.path, err)
			}
			if !info.Dir {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		found[tp] = id
		all = append(all, PartitionDir{Topic: tp.topic, TopicID: id, Partition: tp.partition})
	}
	d.mu.Lock()
	d.found = found
	d.mu.Unlock()
	slices.SortFunc(all, func(a, b PartitionDir) int {
		return compareTopicPartition(topicPartition{a.Topic, a.Partition}, topicPartition{b.Topic, b.Partition})
	})
	return all, nil
}

func compareTopicPartition(a, b topicPartition) int {
	if c := strings.Compare(a.topic, b.topic); c != 0 {
		return c
	}
	return int(a.partition) - int(b.partition)
}

// parsePartitionDir takes topic-partition apart.
func parsePartitionDir(name string) (topicPartition, bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return topicPartition{}, false
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != name[i+1:] {
		return topicPartition{}, false
	}
	return topicPartition{name[:i], int32(n)}, true
}

func (tp topicPartition) dirName() string { return fmt.Sprintf("%s-%d", tp.topic, tp.partition) }

// Closing gives a step for each open log, which flushes it and closes it as a clean
// shutdown does. Its steps may run side by side, in any order, when nobody uses the logs
// any more; Close(true) then does what is left: checkpoints and the mark.
func (d *Dir) Closing() []vfs.Syncer {
	open := d.openLogs()
	steps := make([]vfs.Syncer, len(open))
	for i, o := range open {
		steps[i] = closing{d, o.log}
	}
	return steps
}

type closing struct {
	d   *Dir
	log Log
}

func (c closing) Sync() error {
	err := flushNow(c.log)
	if e := c.log.Close(); err == nil {
		err = e
	}
	if err != nil {
		c.d.stopFailed.Store(true)
	}
	return err
}

// Close closes all logs and gives the directory back. Under clean it flushes
// them first and leaves what a clean shutdown leaves, the mark last of all; it
// carries brokerEpoch (-1: none), so that the next incarnation can prove which one ended cleanly.
func (d *Dir) Close(clean bool, brokerEpoch int64) error {
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	for _, o := range d.openLogs() {
		if s, ok := o.log.(*segmentLog); ok && !clean {
			s.abandon()
			continue
		}
		if clean {
			keep(closing{d, o.log}.Sync())
		} else {
			keep(o.log.Close())
		}
		whole := o.log.FlushedOffset() == o.log.LogEndOffset()
		if !whole || d.cutsPending(o.log) {
			clean = false
		}
	}
	if clean && first == nil && d.Offline() == nil && !d.stopFailed.Load() {
		keep(d.Checkpoint(nil))
		if first == nil {
			keep(replaceFileDurably(d.fs, d.file(cleanFile), fmt.Appendf(nil, `{"version":0,"brokerEpoch":%d}`, brokerEpoch)))
		}
	}
	d.mu.Lock()
	clear(d.logs)
	d.mu.Unlock()
	keep(d.lock.Close())
	return first
}

func (d *Dir) cutsPending(l Log) bool {
	s, ok := l.(*segmentLog)
	return ok && s.cutsPending
}

// flushNow flushes a log within the call: at a shutdown there is nothing else to do.
func flushNow(l Log) error {
	f := l.BeginFlush()
	if f == nil {
		return nil
	}
	err := f.Sync()
	l.EndFlush(f, err)
	return err
}

type openLog struct {
	tp  topicPartition
	log Log
}

func sortedLogs(logs map[topicPartition]Log) []openLog {
	all := make([]openLog, 0, len(logs))
	for _, tp := range slices.SortedFunc(maps.Keys(logs), compareTopicPartition) {
		all = append(all, openLog{tp, logs[tp]})
	}
	return all
}

// uniqueID names a deleted directory so that it differs from any other.
func (d *Dir) uniqueID(now int64) string {
	d.deletes++
	return hex.EncodeToString(fmt.Appendf(nil, "%x", now)) + strconv.Itoa(d.deletes)
}
