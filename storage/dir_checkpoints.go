package storage

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"path"
	"slices"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// loadCheckpoints reads the three offset checkpoints. A damaged one costs what it
// would have told: without recovery points everything is scanned, without high
// watermarks none is known, without log starts the first segment's base counts.
func (d *Dir) loadCheckpoints() error {
	for _, c := range []struct {
		file    string
		into    *map[topicPartition]int64
		without string
	}{
		{recoveryPointFile, &d.recovery, "every partition is recovered from its log start"},
		{highWatermarkFile, &d.watermarks, "no high watermark is known"},
		{logStartFile, &d.starts, "each log starts at its first segment, records deleted by DeleteRecords may be back"},
	} {
		*c.into = make(map[topicPartition]int64)
		b, err := readFile(d.fs, d.file(c.file), checkpointBytesMax)
		if errors.Is(err, iofs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("log directory %s: reading %s: %w", d.path, c.file, err)
		}
		offsets, err := decodeOffsets(b)
		if err != nil {
			d.warnings = append(d.warnings, fmt.Sprintf("%s is damaged (%v): %s", d.file(c.file), err, c.without))
			if c.file == recoveryPointFile {
				d.clean = false
			}
			continue
		}
		*c.into = offsets
	}
	return nil
}

// HighWatermark is the checkpointed high watermark of a partition; ok is false when none is known.
func (d *Dir) HighWatermark(topic string, partition int32) (offset int64, ok bool) {
	d.checkpoint.Lock()
	defer d.checkpoint.Unlock()
	offset, ok = d.watermarks[topicPartition{topic, partition}]
	return offset, ok
}

// Checkpoint makes durable, for every open partition, where recovery has to
// begin and where its log starts, and the high watermarks that it is given (a partition
// that is not given keeps its last one). It asks for them itself, so that it sees what
// is truncated after that: see watermarksOf. It waits for the disk: hold no partition's lock.
func (d *Dir) Checkpoint(highWatermarks func() []PartitionOffset) error {
	if err := d.Offline(); err != nil {
		return err
	}
	d.checkpointing.Lock()
	defer d.checkpointing.Unlock()
	marks := d.watermarksOf(highWatermarks)
	d.checkpoint.Lock()
	defer d.checkpoint.Unlock()
	cutSince := d.cutSince
	d.cutSince = nil
	d.dropGone()
	if err := d.writeRecoveryPoints(); err != nil {
		return err
	}
	for _, w := range marks {
		tp := topicPartition{w.Topic, w.Partition}
		if end, cut := cutSince[tp]; !cut || w.Offset <= end {
			d.watermarks[tp] = w.Offset
		}
	}
	if err := d.writeOffsets(highWatermarkFile, d.watermarks); err != nil {
		return err
	}
	if err := d.writeLogStarts(); err != nil {
		return err
	}
	d.unwritten, d.unsettled = false, false
	return nil
}

// watermarksOf asks for the high watermarks. That takes the lock of each partition,
// so it cannot be done under the checkpoint lock, which a truncation takes while it
// holds its partition's. Hence the race: the high watermark of a partition is read, 5;
// its log is cut to 2, and the watermark with it, durably; records are appended at 2 to
// 5, which nobody has committed; the checkpoint writes 5. So cuts are noted from before the first is read.
func (d *Dir) watermarksOf(highWatermarks func() []PartitionOffset) []PartitionOffset {
	if highWatermarks == nil {
		return nil
	}
	d.checkpoint.Lock()
	d.cutSince = make(map[topicPartition]int64)
	d.checkpoint.Unlock()
	return highWatermarks()
}

// noteCut is for what lowers a high watermark: it was end at most. Call with the checkpoint lock held.
func (d *Dir) noteCut(tp topicPartition, end int64) {
	if d.cutSince == nil {
		return
	}
	if before, cut := d.cutSince[tp]; !cut || end < before {
		d.cutSince[tp] = end
	}
}

// noteGone is noteCut for a partition that was deleted: what was read of it is nothing that one of the same name may have.
func (d *Dir) noteGone(tp topicPartition) { d.noteCut(tp, -1) }

// writeRecoveryPoints takes what is flushed now. The values are read under the
// checkpoint lock, so that an older one never overwrites one that a truncation lowered.
func (d *Dir) writeRecoveryPoints() error {
	open := d.openLogs()
	points := make([]int64, len(open))
	for i, o := range open {
		points[i] = o.log.FlushedOffset()
		d.recovery[o.tp] = points[i]
	}
	if err := d.writeOffsets(recoveryPointFile, d.recovery); err != nil {
		return err
	}
	for i, o := range open {
		if s, ok := o.log.(*segmentLog); ok {
			s.checkpointed.Store(points[i])
		}
	}
	return nil
}

func (d *Dir) writeLogStarts() error {
	for _, o := range d.openLogs() {
		d.starts[o.tp] = o.log.LogStartOffset()
	}
	return d.writeOffsets(logStartFile, d.starts)
}

// lowerRecoveryPointOf is for a truncation, which has lowered what is flushed of l: no recovery point above durable may
// stay. Whether there is one is asked under the lock: a checkpoint that is under way has read the old
// offset, and has yet to write it.
func (d *Dir) lowerRecoveryPointOf(l *segmentLog, durable int64) error {
	d.checkpoint.Lock()
	defer d.checkpoint.Unlock()
	if l.checkpointed.Load() <= durable {
		return nil
	}
	return d.writeRecoveryPoints()
}

// saveLogStarts is for a deletion of segments.
func (d *Dir) saveLogStarts() error {
	d.checkpoint.Lock()
	defer d.checkpoint.Unlock()
	return d.writeLogStarts()
}

// lowerRecoveryPoint is for recovery, when the log in dir ends below its recovery point.
func (d *Dir) lowerRecoveryPoint(dir string, offset int64) error {
	tp, _ := parsePartitionDir(path.Base(dir))
	d.checkpoint.Lock()
	defer d.checkpoint.Unlock()
	d.recovery[tp] = offset
	return d.writeOffsets(recoveryPointFile, d.recovery)
}

// forget removes a partition from the checkpoints, durably, and with it all that are
// gone: of ten thousand that are created anew only the first writes the files.
func (d *Dir) forget(tp topicPartition) error {
	d.checkpoint.Lock()
	defer d.checkpoint.Unlock()
	d.noteGone(tp)
	known := slices.ContainsFunc(d.offsets(), func(c checkpointFile) bool { _, there := c.all[tp]; return there })
	if !known && !d.unwritten {
		d.gone = slices.DeleteFunc(d.gone, func(g topicPartition) bool { return g == tp })
		return nil
	}
	d.gone = append(d.gone, tp)
	d.dropGone()
	for _, c := range d.offsets() {
		if err := d.writeOffsets(c.name, c.all); err != nil {
			return err
		}
	}
	d.unwritten = false
	return nil
}

// checkpointFile is one of the three, with its content.
type checkpointFile struct {
	name string
	all  map[topicPartition]int64
}

func (d *Dir) offsets() []checkpointFile {
	return []checkpointFile{{recoveryPointFile, d.recovery}, {highWatermarkFile, d.watermarks}, {logStartFile, d.starts}}
}

// dropGone takes deleted partitions out of the maps.
func (d *Dir) dropGone() {
	d.unwritten = d.unwritten || len(d.gone) > 0
	for _, tp := range d.gone {
		for _, c := range d.offsets() {
			delete(c.all, tp)
		}
	}
	d.gone = nil
}

// lowerWatermark is for a truncation: a checkpointed high watermark above the log's
// end would call committed what is yet to be appended there (S26).
func (d *Dir) lowerWatermark(dir string, end int64) error {
	tp, _ := parsePartitionDir(path.Base(dir))
	d.checkpoint.Lock()
	defer d.checkpoint.Unlock()
	d.noteCut(tp, end)
	if w, ok := d.watermarks[tp]; !ok || w <= end {
		return nil
	}
	d.watermarks[tp] = end
	return d.writeOffsets(highWatermarkFile, d.watermarks)
}

// fit keeps a checkpointed high watermark and log start from lying above the log's
// ends, which recovery may have lowered. due says that they did: settle must make that
// durable before anything is appended, which they would hide or call committed at
// the next start. Not at once: after a power cut that may be so of thousands of partitions.
func (d *Dir) fit(tp topicPartition, start, end int64) (due bool) {
	d.checkpoint.Lock()
	defer d.checkpoint.Unlock()
	if w, ok := d.watermarks[tp]; ok && w > end {
		d.watermarks[tp], due = end, true
	}
	if s, ok := d.starts[tp]; ok && s > start {
		d.starts[tp], due = start, true
	}
	d.unsettled = d.unsettled || due
	return due
}

// settle makes durable what fit lowered until now, for all partitions.
func (d *Dir) settle() error {
	d.checkpoint.Lock()
	defer d.checkpoint.Unlock()
	if !d.unsettled {
		return nil
	}
	err := d.writeOffsets(highWatermarkFile, d.watermarks)
	if err == nil {
		err = d.writeLogStarts()
	}
	d.unsettled = err != nil
	if errors.Is(err, vfs.ErrTooManyOpen) {
		return errors.Unwrap(err) // no write has failed
	}
	return err
}

func (d *Dir) openLogs() []openLog {
	d.mu.Lock()
	defer d.mu.Unlock()
	return sortedLogs(d.logs)
}

func (d *Dir) writeOffsets(file string, offsets map[topicPartition]int64) error {
	all := make([]PartitionOffset, 0, len(offsets))
	for _, tp := range slices.SortedFunc(maps.Keys(offsets), compareTopicPartition) {
		all = append(all, PartitionOffset{tp.topic, tp.partition, offsets[tp]})
	}
	content := string(encodeOffsets(all))
	if content == d.written[file] {
		return nil
	}
	if err := replaceFileDurably(d.fs, d.file(file), []byte(content)); err != nil {
		err = &WriteError{Op: "checkpoint", File: d.file(file), Err: err}
		if !errors.Is(err, vfs.ErrTooManyOpen) { // then the old one stands, and the next attempt writes it
			d.Fail(err)
		}
		return err
	}
	d.written[file] = content
	return nil
}
