package logdump

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/tidemark-log/tidemark/internal/words"
	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Copy is the directory of one replica of a partition. Name is what a difference calls it.
type Copy struct {
	Name, Dir string
}

// Difference is an offset at which copies are not the same, and who has what there.
type Difference struct {
	Offset int64  `json:"offset"`
	What   string `json:"what"`
}

func (d Difference) String() string { return fmt.Sprintf("at offset %d: %s", d.Offset, d.What) }

// Comparison is what came of one.
type Comparison struct {
	Copies      int          `json:"copies"`
	Batches     int64        `json:"batches"` // that every copy has
	Bytes       int64        `json:"bytes"`   // of one copy
	From        int64        `json:"from"`    // the highest offset at which a copy begins
	To          int64        `json:"to"`      // the lowest at which one ends
	Count       int          `json:"difference_count"`
	Differences []Difference `json:"-"` // the first of them
}

// differencesMax bounds the differences that are kept: after the first there can be as many as there are batches.
const differencesMax = 20

// Diff compares copies of a partition and prints the differences and a summary.
func Diff(fs vfs.FS, copies []Copy, w io.Writer, o Options) (Comparison, error) {
	result, err := Compare(fs, copies, o)
	if err != nil {
		return result, err
	}
	out := newPrinter(w, o, false)
	for _, d := range result.Differences {
		out.print(d)
	}
	out.print(result)
	return result, out.flush()
}

// Compare holds copies of a partition against each other, batch by batch: segments may begin elsewhere in each, and
// each may have lost its oldest ones. From the highest start on each batch must be the same in all, to the byte: its leader
// gave it its offset and its leader epoch, and followers copy. Of each copy no more than a window or one batch is in memory.
func Compare(fs vfs.FS, copies []Copy, o Options) (Comparison, error) {
	if len(copies) < 2 {
		return Comparison{}, fmt.Errorf("%s: it takes two to compare", words.Count(len(copies), "copy"))
	}
	c := &comparer{result: Comparison{Copies: len(copies)}, progress: o.Progress}
	defer c.close()
	for _, one := range copies {
		r, err := openCopy(fs, one)
		if err != nil {
			return c.result, err
		}
		c.readers = append(c.readers, r)
		c.result.From = max(c.result.From, r.end)
		c.total += r.bytes
	}
	for _, r := range c.readers {
		for start, more := r.end, true; more; more = r.live && r.h.BaseOffset >= start && r.h.NextOffset() <= c.result.From {
			if err := c.next(r); err != nil {
				return c.result, err
			}
		}
	}
	if err := c.merge(); err != nil {
		return c.result, err
	}
	c.ends(o.Tails)
	return c.result, nil
}

// comparer is one comparison.
type comparer struct {
	readers     []*copyReader
	result      Comparison
	done, total int64 // bytes of all copies
	progress    func(done, total int64)
}

func (c *comparer) close() {
	for _, r := range c.readers {
		r.close()
	}
}

func (c *comparer) differ(offset int64, what string) {
	if c.result.Count++; c.result.Count <= differencesMax {
		c.result.Differences = append(c.result.Differences, Difference{offset, what})
	}
}

// next takes a copy to its next batch. What is no batch ends the copy, and is a difference.
func (c *comparer) next(r *copyReader) error {
	err := r.next()
	if c.done += int64(len(r.raw)); c.progress != nil {
		c.progress(c.done, c.total)
	}
	if err == nil && r.broken {
		c.differ(r.end, fmt.Sprintf("no batch stands at byte %d of %s: %s", r.pos, r.file, r.why))
	}
	return err
}

// merge goes through all copies in the order of offsets.
func (c *comparer) merge() error {
	for {
		var live, here []*copyReader // here: those that have a batch at the lowest offset that any has
		for _, r := range c.readers {
			if !r.live {
				continue
			}
			live = append(live, r)
			if len(here) > 0 && r.h.BaseOffset < here[0].h.BaseOffset {
				here = here[:0]
			}
			if len(here) == 0 || r.h.BaseOffset == here[0].h.BaseOffset {
				here = append(here, r)
			}
		}
		if len(live) == 0 {
			return nil
		}
		if len(live) > 1 { // the rest of the longest log has nothing beside it
			c.same(live, here)
		}
		for _, r := range here {
			if err := c.next(r); err != nil {
				return err
			}
		}
	}
}

// same holds the batches at one offset against each other.
func (c *comparer) same(live, here []*copyReader) {
	offset := here[0].h.BaseOffset
	if len(here) == len(c.readers) {
		c.result.Batches++
		c.result.Bytes += int64(len(here[0].raw))
	}
	var whats []string
	if len(here) < len(live) {
		whats = append(whats, whoHas("batch", live, func(r *copyReader) string {
			if slices.Contains(here, r) {
				return "there"
			}
			return fmt.Sprintf("missing, the next is at %d", r.h.BaseOffset)
		}))
	}
	for _, r := range here {
		if r.why != "" {
			whats = append(whats, fmt.Sprintf("damaged in %s: %s", r.copy.Name, r.why))
		}
	}
	if slices.ContainsFunc(here, func(r *copyReader) bool { return !bytes.Equal(r.raw, here[0].raw) }) {
		before := len(whats)
		for _, f := range batchFields {
			if slices.ContainsFunc(here, func(r *copyReader) bool { return f.of(r) != f.of(here[0]) }) {
				whats = append(whats, whoHas(f.name, here, f.of))
			}
		}
		if len(whats) == before {
			whats = append(whats, whoHas("first other byte", here, func(r *copyReader) string { return firstOther(r.raw, here[0].raw) }))
		}
	}
	if len(whats) > 0 {
		c.differ(offset, strings.Join(whats, "; "))
	}
}

// batchFields are what tells two batches of one offset apart. The CRC stands for the records and the rest of the header.
var batchFields = []struct {
	name string
	of   func(*copyReader) string
}{
	{"leader epoch", func(r *copyReader) string { return fmt.Sprint(r.h.PartitionLeaderEpoch) }},
	{"length", func(r *copyReader) string { return fmt.Sprint(len(r.raw)) }},
	{"CRC", func(r *copyReader) string { return fmt.Sprintf("%08x", r.h.CRC) }},
}

// firstOther is where a batch differs that has the same length; it or the other is damaged.
func firstOther(raw, than []byte) string {
	for i := range min(len(raw), len(than)) {
		if raw[i] != than[i] {
			return fmt.Sprintf("%d", i)
		}
	}
	return "none"
}

// whoHas says which copies have what: "leader epoch 3 in broker 1, broker 2 and 4 in broker 3".
func whoHas(field string, readers []*copyReader, of func(*copyReader) string) string {
	var values []string
	names := map[string][]string{}
	for _, r := range readers {
		v := of(r)
		if names[v] == nil {
			values = append(values, v)
		}
		names[v] = append(names[v], r.copy.Name)
	}
	var parts []string
	for _, v := range values {
		parts = append(parts, v+" in "+strings.Join(names[v], ", "))
	}
	return field + " " + strings.Join(parts, " and ")
}

// ends compares where the logs end, of those that could be read until there.
func (c *comparer) ends(mayDiffer bool) {
	whole := slices.DeleteFunc(slices.Clone(c.readers), func(r *copyReader) bool { return r.broken })
	c.result.To = c.readers[0].end
	for _, r := range c.readers {
		c.result.To = min(c.result.To, r.end)
	}
	if mayDiffer || !slices.ContainsFunc(whole, func(r *copyReader) bool { return r.end != whole[0].end }) {
		return
	}
	lowest := whole[0].end
	for _, r := range whole {
		lowest = min(lowest, r.end)
	}
	c.differ(lowest, whoHas("log end", whole, func(r *copyReader) string { return fmt.Sprint(r.end) }))
}

// copyReader reads a copy batch by batch, over the boundaries of segments.
type copyReader struct {
	copy     Copy
	fs       vfs.FS
	bytes    int64    // of all segments
	segments []string // not yet begun
	file     string   // the segment under way
	scan     *segmentScan
	pos      int64 // in file, of what comes next
	end      int64 // the offset after the last batch; before the first the log's start

	live   bool // there is a batch at hand
	broken bool // what came next was none
	h      record.Header
	raw    []byte // valid until the next one
	why    string // what is wrong with it
}

func openCopy(fs vfs.FS, c Copy) (*copyReader, error) {
	names, err := fs.List(c.Dir)
	if err != nil {
		return nil, err
	}
	r := &copyReader{copy: c, fs: fs}
	if r.bytes, err = (&dumper{fs: fs}).segmentBytes(c.Dir, names); err != nil {
		return nil, err
	}
	for _, name := range names {
		if kindOf(name) == kindLog {
			r.segments = append(r.segments, path.Join(c.Dir, name))
		}
	}
	if len(r.segments) == 0 {
		return nil, fmt.Errorf("%s holds no segments: it is no partition's directory", c.Dir)
	}
	r.end, _ = baseOffset(path.Base(r.segments[0]))
	return r, nil
}

// next reads the next batch; live is false at the end of the log.
func (r *copyReader) next() error {
	r.live, r.raw, r.why = false, nil, ""
	for {
		if r.scan == nil {
			if len(r.segments) == 0 {
				return nil
			}
			if err := r.open(); err != nil {
				return err
			}
		}
		if r.pos < r.scan.size {
			read, err := r.batch()
			if err != nil {
				return fmt.Errorf("read %s: %w", r.file, err)
			}
			if read {
				return nil
			}
		}
		r.close()
	}
}

func (r *copyReader) open() error {
	r.file, r.segments = r.segments[0], r.segments[1:]
	f, err := r.fs.Open(r.file, vfs.ReadOnly)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil {
		f.Close()
		return err
	}
	r.scan, r.pos = &segmentScan{name: r.file, file: f, size: size}, 0
	return nil
}

func (r *copyReader) close() {
	if r.scan != nil {
		r.scan.file.Close()
		r.scan = nil
	}
}

// batch reads what stands at pos; read is false when it is space that was preallocated. A damaged batch counts if its length leads on.
func (r *copyReader) batch() (read bool, err error) {
	if r.h, r.raw, r.why, err = r.scan.batchAt(r.pos); err != nil {
		return false, err
	}
	if r.why != "" {
		zero, err := r.scan.zeroFrom(r.pos)
		if err != nil || zero {
			return false, err
		}
		n := int64(r.h.BatchLength) + record.LengthPrefix
		if r.h.Magic != 2 || n < record.HeaderSize || n > r.scan.size-r.pos {
			r.broken, r.segments = true, nil
			r.close()
			return true, nil
		}
		if r.raw, err = r.scan.bytes(r.pos, int(n)); err != nil {
			return false, err
		}
	}
	r.live = true
	r.pos += int64(len(r.raw))
	r.end = max(r.end, r.h.NextOffset())
	return true, nil
}
