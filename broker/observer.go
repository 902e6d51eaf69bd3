package broker

import (
	"errors"

	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/record"
)

// Observer sees what a broker does with its partitions, as it happens: the
// simulator's ghost state, which knows what no broker may know. An Env that is an
// Observer hears; any other costs nothing.
//
// Calls come right after the change, under the partition's lock and so in the
// order of the changes. They must not call the broker. Slices belong to the
// broker again when the call returns.
type Observer interface {
	// LogOpened: the log was opened, recovered or made.
	LogOpened(topic string, partition int32, at LogBounds)
	// LogAppended: batches, whole, lie in the log now as they are here, offsets and
	// leader epochs set. replica: they came from a leader.
	LogAppended(topic string, partition int32, batches []byte, replica bool)
	// LogChanged: the log was truncated, its start moved, or more of it became durable.
	// No bytes came.
	LogChanged(topic string, partition int32, at LogBounds)
	// LogTruncates: everything at offset and above is about to go. Until LogChanged a crash may leave it or not.
	LogTruncates(topic string, partition int32, to int64)
	// LogRemoves: the log is about to be deleted. Until LogRemoved a crash may leave it or not.
	LogRemoves(topic string, partition int32)
	// LogRemoved: this broker holds no replica any more.
	LogRemoved(topic string, partition int32)

	// HighWatermark moved, forward or back. As leader counting are the replicas whose
	// log end offsets it is the minimum of, current and proposed; as follower nil.
	HighWatermark(topic string, partition int32, to int64, counting []int32)
	// BecameLeader and BecameFollower: the partition took on this role. leader -1: none is known.
	BecameLeader(topic string, partition int32, leaderEpoch int32, isr []int32)
	BecameFollower(topic string, partition int32, leaderEpoch, leader int32)

	// ControllerElected: this broker acts as controller from now on.
	ControllerElected(controllerEpoch int32)
	// CommandApplied: a LeaderAndIsr, StopReplica or UpdateMetadata (by API key) of this controller epoch was accepted.
	CommandApplied(key int16, controllerEpoch int32)
}

// LogBounds is where a log begins and ends.
type LogBounds struct {
	LogStartOffset int64
	LogEndOffset   int64
	FlushedOffset  int64 // everything below is durable
	HighWatermark  int64 // when opened: as the checkpoint had it, or the log start if that is higher; otherwise -1
}

// observedLog tells an Observer of every change of a log.
type observedLog struct {
	storage.Log
	o         Observer
	topic     string
	partition int32
	lost      bool // a change failed half way
}

// observed puts the Env's Observer, if it is one, between p and its newly opened log.
func (p *partition) observed(log storage.Log, highWatermark int64) storage.Log {
	if p.b.observer == nil {
		return log
	}
	l := &observedLog{Log: log, o: p.b.observer, topic: p.topic, partition: p.index}
	at := l.bounds()
	at.HighWatermark = highWatermark
	l.o.LogOpened(p.topic, p.index, at)
	return l
}

func (l *observedLog) bounds() LogBounds {
	return LogBounds{l.LogStartOffset(), l.LogEndOffset(), l.FlushedOffset(), -1}
}

// changed tells what became of a change. How far one reached whose write failed nobody knows: the directory goes offline with it,
// and what is on the disk comes to light when the log opens again, as after a crash.
func (l *observedLog) changed(err error) {
	if l.lost = l.lost || errors.As(err, new(*storage.WriteError)); !l.lost {
		l.o.LogChanged(l.topic, l.partition, l.bounds())
	}
}

func (l *observedLog) Append(batches []byte, a storage.AppendArgs) (storage.Appended, error) {
	before := l.LogEndOffset()
	done, err := l.Log.Append(batches, a)
	if l.LogEndOffset() > before { // also when a later part of it failed
		l.o.LogAppended(l.topic, l.partition, upTo(batches, l.LogEndOffset()), a.Replica)
	}
	return done, err
}

func (l *observedLog) EndFlush(f *storage.Flush, err error) {
	l.Log.EndFlush(f, err)
	l.changed(nil)
}

func (l *observedLog) Truncate(offset int64) error {
	l.o.LogTruncates(l.topic, l.partition, offset)
	err := l.Log.Truncate(offset)
	l.changed(err)
	return err
}

func (l *observedLog) TruncateFullyAndStartAt(offset int64) error {
	l.o.LogTruncates(l.topic, l.partition, 0)
	err := l.Log.TruncateFullyAndStartAt(offset)
	l.changed(err)
	return err
}

func (l *observedLog) AdvanceLogStart(offset, limit int64) error {
	err := l.Log.AdvanceLogStart(offset, limit)
	l.changed(err)
	return err
}

func (l *observedLog) Retain(now, limit int64) ([]storage.DeletedSegment, error) {
	deleted, err := l.Log.Retain(now, limit)
	if len(deleted) > 0 {
		l.changed(err)
	}
	return deleted, err
}

// upTo gives the leading batches that end at offset; a leader's answer may end inside the next.
func upTo(batches []byte, offset int64) []byte {
	n := 0
	for n+record.HeaderSize <= len(batches) {
		h := record.ReadHeader(batches[n:])
		if h.BaseOffset >= offset {
			break
		}
		n += h.Size()
	}
	return batches[:n]
}
