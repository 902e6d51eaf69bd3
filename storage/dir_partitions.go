package storage

import (
	"encoding/base64"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Open opens the partition's log, or creates it. cfg.Engine says with which
// engine. A zero topicID asks for no check; otherwise a directory that another
// topic of the same name left is refused (D18).
func (d *Dir) Open(topic string, topicID [16]byte, partition int32, cfg LogConfig, now int64) (Log, RecoveryReport, error) {
	tp := topicPartition{topic, partition}
	if err := d.Offline(); err != nil {
		return nil, RecoveryReport{}, err
	}
	d.mu.Lock()
	_, twice := d.logs[tp]
	d.mu.Unlock()
	if twice {
		return nil, RecoveryReport{}, fmt.Errorf("partition %s is open already", tp.dirName())
	}
	saved, err := d.prepare(tp, topicID)
	if err != nil {
		return nil, RecoveryReport{}, err
	}
	var l Log
	var rep RecoveryReport
	switch cfg.Engine {
	case EngineLog:
		l, rep, err = openSegmentLog(d, d.file(tp.dirName()), cfg, saved, now)
	case EngineBTree:
		if !saved.created && !saved.clean { // as segmentLog.settle: the process before may have been killed before its sync
			err = rewritePath(d.fs, path.Join(d.file(tp.dirName()), partitionFile), checkpointBytesMax)
		}
		if err == nil {
			l, rep, err = openBTree(d, d.file(tp.dirName()), cfg, now)
		}
	default:
		err = fmt.Errorf("lab.storage.engine=%s: log and btree are the engines", cfg.Engine)
	}
	if err == nil && saved.created {
		err = d.keepCreated(tp, l)
	}
	if err != nil {
		return nil, rep, err
	}
	if saved.clean && !rep.Clean {
		d.unlike.Store(true)
	}
	if d.fit(tp, l.LogStartOffset(), l.LogEndOffset()) {
		if s, ok := l.(*segmentLog); ok {
			s.unsettled = true
		} else if err := d.settle(); err != nil {
			return nil, rep, errors.Join(err, l.Close())
		}
	}
	d.mu.Lock()
	d.logs[tp] = l
	d.mu.Unlock()
	return l, rep, nil
}

// prepare makes sure of the partition's directory and says what is known of it.
func (d *Dir) prepare(tp topicPartition, topicID [16]byte) (savedState, error) {
	name := tp.dirName()
	found, known := d.takeFound(tp)
	if !known {
		_, err := d.fs.Stat(d.file(name))
		switch {
		case errors.Is(err, iofs.ErrNotExist):
			return savedState{created: true}, d.create(tp, topicID)
		case err != nil:
			return savedState{}, fmt.Errorf("partition directory %s: %w", d.file(name), err)
		}
		if found, _, err = d.topicID(name); err != nil {
			return savedState{}, err
		}
	}
	switch {
	case found == topicID, topicID == [16]byte{}:
	case found == [16]byte{}:
		if err := d.writeTopicID(name, topicID); err != nil {
			return savedState{}, err
		}
	default:
		return savedState{}, fmt.Errorf("partition directory %s belongs to topic id %s and not %s: it is of a deleted topic of the same name; move it away",
			d.file(name), encodeTopicID(found), encodeTopicID(topicID))
	}
	d.checkpoint.Lock()
	defer d.checkpoint.Unlock()
	return savedState{clean: d.clean, recoveryPoint: d.recovery[tp], logStart: d.starts[tp]}, nil
}

// takeFound gives the topic id that Partitions has found in tp's directory, once.
func (d *Dir) takeFound(tp topicPartition) (id [16]byte, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id, known = d.found[tp]
	delete(d.found, tp)
	return id, known
}

// create makes a new partition's directory. What the checkpoints say of an
// earlier partition of that name must not be taken for this one's.
func (d *Dir) create(tp topicPartition, topicID [16]byte) error {
	if err := d.forget(tp); err != nil {
		return err
	}
	name := tp.dirName()
	err := d.fs.MkdirAll(d.file(name))
	if err == nil && topicID != [16]byte{} {
		err = writeFile(d.fs, path.Join(d.file(name), partitionFile), encodeMetadata(topicID))
	}
	return d.created(name, err)
}

func (d *Dir) created(name string, err error) error {
	if err != nil {
		err = &WriteError{Op: "create", File: d.file(name), Err: err}
		d.Fail(err)
	}
	return err
}

// keepCreated makes a new partition durable: its id, the names in its directory, and
// the directory's own. One after the other for all that was made: the first sync
// then carries the names to the disk of most file systems, and the others find them there.
func (d *Dir) keepCreated(tp topicPartition, l Log) error {
	name := tp.dirName()
	err := syncPath(d.fs, path.Join(d.file(name), partitionFile))
	if err == nil {
		err = d.fs.SyncDir(d.file(name))
	}
	if err == nil {
		err = d.names.sync(d.fs, d.path)
	}
	if err = d.created(name, err); err != nil {
		if s, ok := l.(*segmentLog); ok {
			s.abandon()
			return err
		}
		return errors.Join(err, l.Close())
	}
	if s, ok := l.(*segmentLog); ok {
		s.namesDurable = s.names
	}
	return nil
}

// sharedSync syncs a directory once for all that wait for it: who comes while a sync
// is under way shares the next one. So partitions that are created side by side do
// not stand in line for a sync each.
type sharedSync struct {
	made    atomic.Int64 // changes of names that want to be durable
	mu      sync.Mutex   // held during a sync
	durable int64        // so many of made are
}

func (s *sharedSync) sync(fs vfs.FS, dir string) error {
	mine := s.made.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.durable >= mine {
		return nil // by a sync that began after this change was made
	}
	upTo := s.made.Load()
	if err := fs.SyncDir(dir); err != nil {
		return err
	}
	s.durable = upTo
	return nil
}

// topicID reads partition.metadata; zero when there is none. A damaged one counts as
// none: a power cut at the partition's creation can leave it. there is false where the file is not.
func (d *Dir) topicID(name string) (id [16]byte, there bool, err error) {
	b, err := readFile(d.fs, path.Join(d.file(name), partitionFile), checkpointBytesMax)
	if errors.Is(err, iofs.ErrNotExist) {
		return id, false, nil
	}
	if err != nil {
		return id, false, fmt.Errorf("partition directory %s: %w", d.file(name), err)
	}
	p, err := parseProperties(b, ":")
	if err != nil || p["version"] != "0" {
		return [16]byte{}, true, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(p["topic_id"])
	if err != nil || len(raw) != len(id) {
		return [16]byte{}, true, nil
	}
	copy(id[:], raw)
	return id, true, nil
}

func (d *Dir) writeTopicID(name string, id [16]byte) error {
	return replaceFileDurably(d.fs, path.Join(d.file(name), partitionFile), encodeMetadata(id))
}

func encodeMetadata(id [16]byte) []byte {
	return fmt.Appendf(nil, "version: 0\ntopic_id: %s", encodeTopicID(id))
}

// encodeTopicID writes a topic id as Kafka's Uuid does.
func encodeTopicID(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// dirNameMax is how long a directory's name may be.
const dirNameMax = 255

// Delete takes a partition out of service: its log is closed and its directory
// renamed at once, and removed by RemoveExpired after its file.delete.delay.ms,
// also by a later process. Live regions keep their bytes.
func (d *Dir) Delete(topic string, partition int32, now int64) error {
	tp := topicPartition{topic, partition}
	d.mu.Lock()
	l := d.logs[tp]
	delete(d.logs, tp)
	delete(d.found, tp)
	id := d.uniqueID(now)
	d.mu.Unlock()
	del := deletedPartition{at: now}
	switch s := l.(type) {
	case nil:
	case *segmentLog:
		del.delay = s.cfg.FileDeleteDelayMs
		del.segments = s.abandon()
	default:
		if err := l.Close(); err != nil {
			return err
		}
	}
	if err := d.Offline(); err != nil {
		return err
	}
	name := tp.dirName()
	suffix := "." + id + deletedDirSuffix
	// Kafka shortens the topic's name where the whole would be too long.
	to := d.file(name[:min(len(name), dirNameMax-len(suffix))] + suffix)
	err := d.fs.Rename(d.file(name), to)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = d.fs.SyncDir(d.path)
	}
	if err != nil {
		err = &WriteError{Op: "rename", File: d.file(name), Err: err}
		d.Fail(err)
		return err
	}
	del.path = to
	d.checkpoint.Lock()
	d.gone = append(d.gone, tp)
	d.noteGone(tp)
	d.checkpoint.Unlock()
	d.mu.Lock()
	d.deleted = append(d.deleted, del)
	d.mu.Unlock()
	return nil
}

// RemoveExpired removes the directories of deleted partitions whose delay has
// passed and of which no region is live.
func (d *Dir) RemoveExpired(now int64) error {
	if d.Offline() != nil {
		return nil
	}
	d.mu.Lock()
	var due []deletedPartition
	kept := d.deleted[:0]
	for _, del := range d.deleted {
		if now-del.at < del.delay || del.pinned() {
			kept = append(kept, del)
			continue
		}
		due = append(due, del)
	}
	clear(d.deleted[len(kept):])
	d.deleted = kept
	d.mu.Unlock()
	for _, del := range due {
		if err := d.fs.RemoveAll(del.path); err != nil {
			err = &WriteError{Op: "remove", File: del.path, Err: err}
			d.Fail(err)
			return err
		}
	}
	return nil
}

// pinned is true while a region of the partition is live: the log itself has let go.
func (p *deletedPartition) pinned() bool {
	for _, s := range p.segments {
		if s.refs.Load() > 0 {
			return true
		}
	}
	return false
}

// abandon lets go of all files as they are and gives the segments, which live regions may still hold.
func (l *segmentLog) abandon() []*segment {
	all := append([]*segment(nil), l.segments...)
	for _, d := range l.deleted {
		all = append(all, d.segment)
	}
	if l.closed {
		return nil
	}
	l.closed = true
	for _, s := range all {
		s.unpin()
	}
	return all
}

// IsPartitionDir says whether name is that of a partition's directory, "topic-partition".
func IsPartitionDir(name string) bool {
	_, ok := parsePartitionDir(name)
	return ok && !strings.HasSuffix(name, deletedDirSuffix)
}
