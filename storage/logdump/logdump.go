// Package logdump explains the files of a log directory, and says what is wrong
// with them: tidemark log dump and tidemark log verify. It also holds the copies of a partition
// against each other: tidemark log diff, and the end of a live run under faults.
//
// It reads Kafka's formats by code of its own, apart from the batch itself
// (storage/record), so that it is a check on the storage layer and not an echo of it. It changes
// nothing, takes no lock, and may look at a directory that a broker is writing
// to; then the last batch of an active segment can be cut off.
package logdump

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Options says what is wanted.
type Options struct {
	Records bool // dump: print each record, too
	JSON    bool // one object a line
	Color   bool // for a terminal
	Gaps    bool // gaps between offsets are no problem: a compacted topic of Kafka's
	Tails   bool // diff: the logs need not end at the same offset, since the brokers run or lag
	// Progress, unless nil, is called now and then with the bytes of segments read and to read.
	Progress func(done, total int64)
}

// Summary counts what was seen.
type Summary struct {
	Partitions int   `json:"partitions"`
	Segments   int   `json:"segments"`
	Batches    int64 `json:"batches"`
	Records    int64 `json:"records"` // as the headers count them
	Bytes      int64 `json:"bytes"`   // of segments
	Problems   int   `json:"problems"`
}

// Problem is something wrong, with its place.
type Problem struct {
	File   string `json:"file"`
	Pos    int64  `json:"pos"`    // byte position in the file
	Offset int64  `json:"offset"` // the offset there, -1 where none is known
	What   string `json:"what"`
}

// Dump explains target, a file or a directory (of a partition, or of logs), to w.
func Dump(fs vfs.FS, target string, w io.Writer, o Options) (Summary, error) {
	return run(fs, target, w, o, o.Records, false)
}

// Verify reads everything in target down to the records and prints problems and a summary.
func Verify(fs vfs.FS, target string, w io.Writer, o Options) (Summary, error) {
	return run(fs, target, w, o, true, true)
}

func run(fs vfs.FS, target string, w io.Writer, o Options, records, quiet bool) (Summary, error) {
	out := newPrinter(w, o, quiet)
	d := &dumper{fs: fs, out: out, o: o, records: records, verify: quiet, logEnds: map[string]int64{}}
	err := d.any(target)
	if err == nil {
		out.print(d.sum)
		err = out.flush()
	}
	return d.sum, err
}

// dumper is one run.
type dumper struct {
	fs      vfs.FS
	out     printer
	o       Options
	records bool // decode every record
	verify  bool
	sum     Summary
	done    int64            // bytes of segments read
	total   int64            // to read
	logEnds map[string]int64 // by partition directory's name: the offset after the last batch
}

// problem reports what is wrong.
func (d *dumper) problem(file string, pos, offset int64, format string, args ...any) {
	d.sum.Problems++
	d.out.print(Problem{file, pos, offset, fmt.Sprintf(format, args...)})
}

// progress is called after each piece of a segment.
func (d *dumper) progress(bytes int64) {
	d.done += bytes
	if d.o.Progress != nil {
		d.o.Progress(d.done, d.total)
	}
}

func (d *dumper) any(target string) error {
	info, err := d.fs.Stat(target)
	if err != nil {
		return err
	}
	if !info.Dir {
		if kindOf(path.Base(target)) == kindLog {
			d.total = info.Size
		}
		return d.file(target, nil)
	}
	names, err := d.fs.List(target)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(names, func(n string) bool { return kindOf(n) == kindLog }) {
		d.total, err = d.segmentBytes(target, names)
		if err == nil {
			err = d.partition(target, names)
		}
		return err
	}
	return d.logDir(target, names)
}

// logDir goes through a log directory: its partitions, then its own files,
// which are held against what the partitions hold.
func (d *dumper) logDir(dir string, names []string) error {
	type sub struct {
		path  string
		names []string
	}
	var partitions []sub
	known := false
	for _, name := range names {
		full := path.Join(dir, name)
		info, err := d.fs.Stat(full)
		if err != nil {
			return err
		}
		if !info.Dir {
			known = known || kindOf(name) != kindUnknown
			continue
		}
		inside, err := d.fs.List(full)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(inside, func(n string) bool { return kindOf(n) == kindLog || kindOf(n) == kindPartition }) {
			continue // metadata, or another's
		}
		n, err := d.segmentBytes(full, inside)
		if err != nil {
			return err
		}
		d.total += n
		partitions = append(partitions, sub{full, inside})
	}
	if len(partitions) == 0 && !known {
		return fmt.Errorf("%s holds no segments and no checkpoints: it is neither a partition's directory nor a log directory", dir)
	}
	for _, p := range partitions {
		if err := d.partition(p.path, p.names); err != nil {
			return err
		}
	}
	for _, name := range names {
		if k := kindOf(name); k != kindUnknown {
			if err := d.file(path.Join(dir, name), nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *dumper) segmentBytes(dir string, names []string) (total int64, err error) {
	for _, name := range names {
		if kindOf(name) != kindLog {
			continue
		}
		info, err := d.fs.Stat(path.Join(dir, name))
		if err != nil {
			return 0, err
		}
		total += info.Size
	}
	return total, nil
}

// partition goes through one partition: each segment with its indexes, then the other files.
func (d *dumper) partition(dir string, names []string) error {
	d.sum.Partitions++
	var after *segmentEnd
	for _, name := range names {
		if kindOf(name) != kindLog {
			continue
		}
		full := path.Join(dir, name)
		stem := strings.TrimSuffix(full, ".log")
		end, err := d.segment(full, after, d.loadIndex(stem+".index", kindIndex), d.loadIndex(stem+".timeindex", kindTimeIndex))
		if err != nil {
			return err
		}
		after = &end
	}
	if after != nil {
		d.logEnds[path.Base(dir)] = after.next
	}
	for _, name := range names {
		switch kindOf(name) {
		case kindLog, kindUnknown:
		case kindIndex, kindTimeIndex:
			// Held against its segment above; without one it is left over.
			if log := strings.TrimSuffix(strings.TrimSuffix(name, ".index"), ".timeindex") + ".log"; !slices.Contains(names, log) {
				d.problem(path.Join(dir, name), 0, -1, "an index without its segment %s", log)
			}
		default:
			if err := d.file(path.Join(dir, name), after); err != nil {
				return err
			}
		}
	}
	return nil
}

type fileKind int

const (
	kindUnknown fileKind = iota
	kindLog
	kindIndex
	kindTimeIndex
	kindSnapshot
	kindOffsets // recovery-point-, replication- and log-start-offset-checkpoint
	kindEpochs
	kindPartition
	kindMeta
)

func kindOf(name string) fileKind {
	if _, ok := baseOffset(name); ok {
		switch path.Ext(name) {
		case ".log":
			return kindLog
		case ".index":
			return kindIndex
		case ".timeindex":
			return kindTimeIndex
		case ".snapshot":
			return kindSnapshot
		}
		return kindUnknown
	}
	switch name {
	case "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint":
		return kindOffsets
	case "leader-epoch-checkpoint":
		return kindEpochs
	case "partition.metadata":
		return kindPartition
	case "meta.properties":
		return kindMeta
	}
	return kindUnknown
}

// baseOffset reads the offset that a file's name begins with: twenty digits and one suffix.
func baseOffset(name string) (offset int64, ok bool) {
	stem := strings.TrimSuffix(name, path.Ext(name))
	if len(stem) != 20 || stem == name {
		return 0, false
	}
	for _, c := range []byte(stem) {
		if c < '0' || c > '9' || offset > (1<<63-1-int64(c-'0'))/10 {
			return 0, false
		}
		offset = offset*10 + int64(c-'0')
	}
	return offset, true
}

// file explains one file. after is the end of its partition's log, nil where that is not known.
func (d *dumper) file(name string, after *segmentEnd) error {
	switch kindOf(path.Base(name)) {
	case kindLog:
		stem := strings.TrimSuffix(name, ".log")
		_, err := d.segment(name, nil, d.loadIndex(stem+".index", kindIndex), d.loadIndex(stem+".timeindex", kindTimeIndex))
		return err
	case kindIndex, kindTimeIndex:
		// An index means nothing without its segment.
		stem := strings.TrimSuffix(name, path.Ext(name))
		x := d.loadIndex(name, kindOf(path.Base(name)))
		if x == nil {
			return fmt.Errorf("%s cannot be read", name)
		}
		quiet := d.out
		if !d.verify {
			d.out = onlyProblems{quiet}
		}
		if info, err := d.fs.Stat(stem + ".log"); err != nil {
			d.problem(name, 0, -1, "an index without its segment %s.log", path.Base(stem))
		} else {
			d.total = info.Size
			if _, err := d.segment(stem+".log", nil, x); err != nil {
				return err
			}
		}
		d.out = quiet
		x.print(d)
		return nil
	case kindSnapshot:
		return d.snapshot(name, after)
	case kindOffsets:
		return d.offsets(name)
	case kindEpochs:
		return d.epochs(name, after)
	case kindPartition, kindMeta:
		return d.properties(name)
	}
	return fmt.Errorf("%s is no file of a log directory that this knows: a segment, an index, a producer snapshot, a checkpoint", name)
}

// fileBytesMax bounds the files that are read as a whole: all but segments.
const fileBytesMax = 1 << 30

func (d *dumper) read(name string) ([]byte, error) {
	f, err := d.fs.Open(name, vfs.ReadOnly)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > fileBytesMax {
		return nil, fmt.Errorf("%s has %d bytes, far more than such a file can have", name, size)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && int64(n) == size) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}
