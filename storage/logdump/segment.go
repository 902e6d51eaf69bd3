package logdump

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"path"

	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Segment begins the explanation of a .log file.
type Segment struct {
	File       string `json:"file"`
	BaseOffset int64  `json:"base_offset"`
	Bytes      int64  `json:"bytes"`
}

// Batch is one record batch.
type Batch struct {
	Pos           int64  `json:"pos"`
	BaseOffset    int64  `json:"base_offset"`
	LastOffset    int64  `json:"last_offset"`
	Records       int32  `json:"records"`
	Bytes         int    `json:"bytes"`
	Codec         string `json:"codec"`
	MaxTimestamp  int64  `json:"max_timestamp_ms"`
	TimestampType string `json:"timestamp_type"`
	LeaderEpoch   int32  `json:"leader_epoch"`
	ProducerID    int64  `json:"producer_id"` // -1: not idempotent
	ProducerEpoch int16  `json:"producer_epoch"`
	BaseSequence  int32  `json:"base_sequence"`
	Transactional bool   `json:"transactional,omitempty"`
	Control       bool   `json:"control,omitempty"`
	CRC           uint32 `json:"crc"`
	Damaged       bool   `json:"damaged,omitempty"`
}

// Record is one record of the batch before it.
type Record struct {
	Offset    int64          `json:"offset"`
	Timestamp int64          `json:"timestamp_ms"`
	Key       []byte         `json:"key"`   // base64; null where it is null
	Value     []byte         `json:"value"` // base64
	Headers   []RecordHeader `json:"headers,omitempty"`
}

// RecordHeader is a header of a record.
type RecordHeader struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Tail is what follows the last batch: space that was preallocated.
type Tail struct {
	Pos   int64 `json:"pos"`
	Bytes int64 `json:"zero_bytes"`
}

// segmentEnd is how far a log is known after a segment.
type segmentEnd struct {
	next  int64 // offset after the last batch
	epoch int32 // leader epoch of the last batch
}

// segmentScan walks over one segment.
type segmentScan struct {
	d      *dumper
	name   string
	base   int64
	file   vfs.File
	size   int64
	window []byte // bytes from at on
	at     int64
	end    segmentEnd
	// first: where the next batch should begin is unknown, after damage.
	first bool
	// instead is where the next batch begins if the last one's base offset, which
	// no CRC covers, is what is wrong; 0 when it fitted.
	instead int64
	latest  int64
	indexes []*index
}

// windowBytes is how much of a segment is read at once; a larger batch is read as a whole.
const windowBytes = 1 << 20

// segment explains a segment and holds its indexes against it. after is the end of the segment before, nil when there is none.
func (d *dumper) segment(name string, after *segmentEnd, indexes ...*index) (segmentEnd, error) {
	base, _ := baseOffset(path.Base(name))
	f, err := d.fs.Open(name, vfs.ReadOnly)
	if err != nil {
		return segmentEnd{}, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return segmentEnd{}, err
	}
	d.sum.Segments++
	d.sum.Bytes += size
	d.out.print(Segment{name, base, size})
	s := &segmentScan{d: d, name: name, base: base, file: f, size: size, end: segmentEnd{base, -1}, latest: -1 << 63}
	if after != nil {
		if after.next > base {
			d.problem(name, 0, base, "the segment begins at offset %d, but the one before it reaches to %d", base, after.next)
		}
		s.end = *after
	}
	for _, x := range indexes {
		if x != nil {
			s.indexes = append(s.indexes, x)
		}
	}
	if err := s.scan(); err != nil {
		return s.end, fmt.Errorf("read %s: %w", name, err)
	}
	for _, x := range s.indexes {
		x.finish(d, s.base)
		x.print(d)
	}
	return s.end, nil
}

func (s *segmentScan) scan() error {
	for pos := int64(0); pos < s.size; {
		h, raw, why, err := s.batchAt(pos)
		if err != nil {
			return err
		}
		next := pos + int64(len(raw))
		if why != "" {
			if next, err = s.damage(pos, h, why); err != nil {
				return err
			}
		} else {
			s.batch(pos, h, raw)
		}
		s.d.progress(next - pos)
		pos = next
	}
	return nil
}

// bytes gives n bytes at pos, which must be in the file.
func (s *segmentScan) bytes(pos int64, n int) ([]byte, error) {
	if pos >= s.at && pos+int64(n) <= s.at+int64(len(s.window)) {
		return s.window[pos-s.at:][:n], nil
	}
	want := int(min(int64(max(n, windowBytes)), s.size-pos))
	if cap(s.window) < want {
		s.window = make([]byte, want)
	}
	s.window, s.at = s.window[:want], pos
	got, err := s.file.ReadAt(s.window, pos)
	if got < n {
		s.window = s.window[:0]
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // the file became shorter meanwhile
		}
		return nil, err
	}
	s.window = s.window[:got]
	return s.window[:n], nil
}

// batchAt reads the batch at pos; why says what is wrong with it. h is set as far as it could be read.
func (s *segmentScan) batchAt(pos int64) (h record.Header, raw []byte, why string, err error) {
	left := s.size - pos
	head, err := s.bytes(pos, int(min(left, record.HeaderSize)))
	if err != nil {
		return h, nil, "", err
	}
	if len(head) == record.HeaderSize {
		h = record.ReadHeader(head)
		if n := int64(h.BatchLength) + record.LengthPrefix; n >= record.HeaderSize && n <= left {
			if head, err = s.bytes(pos, int(n)); err != nil {
				return h, nil, "", err
			}
		}
	}
	if h, err = record.Check(head); err != nil {
		var bad *record.Error
		errors.As(err, &bad)
		return h, nil, bad.Reason, nil
	}
	return h, head, "", nil
}

// batch takes in a batch whose CRC holds.
func (s *segmentScan) batch(pos int64, h record.Header, raw []byte) {
	d := s.d
	d.sum.Batches++
	d.sum.Records += int64(h.RecordCount)
	d.out.print(describe(pos, h, len(raw)))
	byBytes := int(h.LastOffsetDelta)+1 == len(raw) // a record takes seven bytes or more: no count of records is that high
	if s.instead != 0 && h.BaseOffset == s.instead {
		s.end.next = s.instead
	}
	s.instead = 0
	expected := s.end.next
	switch {
	case h.BaseOffset < s.base:
		d.problem(s.name, pos, h.BaseOffset, "its offset lies before the segment's first, %d", s.base)
	case h.BaseOffset-s.base > math.MaxInt32:
		d.problem(s.name, pos, h.BaseOffset, "its offset is more than 2^31 above the segment's first, %d", s.base)
	case byBytes && h.BaseOffset != s.base+pos:
		d.problem(s.name, pos, h.BaseOffset, "a batch under byte offsets belongs at byte %d", h.BaseOffset-s.base)
	case h.BaseOffset < expected:
		d.problem(s.name, pos, h.BaseOffset, "the log was already at offset %d", expected)
	case h.BaseOffset > expected && !s.first && !d.o.Gaps:
		d.problem(s.name, pos, h.BaseOffset, "offsets %d to %d are missing before it", expected, h.BaseOffset-1)
	}
	if h.BaseOffset != expected && !s.first {
		s.instead = expected + int64(h.LastOffsetDelta) + 1
	}
	if !byBytes && h.RecordCount != h.LastOffsetDelta+1 && !d.o.Gaps {
		d.problem(s.name, pos, h.BaseOffset, "it counts %d records and ends at offset delta %d", h.RecordCount, h.LastOffsetDelta)
	}
	if h.PartitionLeaderEpoch < s.end.epoch {
		d.problem(s.name, pos, h.BaseOffset, "leader epoch %d comes after %d", h.PartitionLeaderEpoch, s.end.epoch)
	}
	s.first = false
	next := s.end.next
	if h.BaseOffset-s.base <= math.MaxInt32 {
		next = max(next, h.NextOffset())
	}
	s.end = segmentEnd{next, max(s.end.epoch, h.PartitionLeaderEpoch)}
	if d.records {
		s.readRecords(pos, h, raw)
	}
	s.latest = max(s.latest, h.MaxTimestamp)
	for _, x := range s.indexes {
		x.batch(s.base, pos, h, s.latest)
	}
}

func describe(pos int64, h record.Header, bytes int) Batch {
	b := Batch{
		Pos: pos, BaseOffset: h.BaseOffset, LastOffset: h.LastOffset(), Records: h.RecordCount, Bytes: bytes,
		Codec: h.Codec().String(), MaxTimestamp: h.MaxTimestamp, TimestampType: "CreateTime", LeaderEpoch: h.PartitionLeaderEpoch,
		ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, BaseSequence: h.BaseSequence,
		Transactional: h.Transactional(), Control: h.Control(), CRC: h.CRC,
	}
	if h.LogAppendTime() {
		b.TimestampType = "LogAppendTime"
	}
	return b
}

// readRecords decodes every record of the batch: what the CRC does not prove.
func (s *segmentScan) readRecords(pos int64, h record.Header, raw []byte) {
	n, latest := int32(0), int64(-1<<63)
	for r, err := range record.Records(raw, 0) {
		if err != nil {
			var bad *record.Error
			errors.As(err, &bad)
			s.d.problem(s.name, pos, h.BaseOffset, "%s", bad.Reason)
			return
		}
		if want := h.BaseOffset + int64(n); r.Offset != want && !s.d.o.Gaps {
			s.d.problem(s.name, pos, want, "record %d of the batch has offset %d", n, r.Offset)
		}
		n++
		latest = max(latest, r.Timestamp)
		if s.d.verify {
			continue
		}
		out := Record{Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
		for _, rh := range r.Headers {
			out.Headers = append(out.Headers, RecordHeader(rh))
		}
		s.d.out.print(out)
	}
	if n > 0 && latest != h.MaxTimestamp {
		s.d.problem(s.name, pos, h.BaseOffset, "its latest record is of %d ms, its header says %d", latest, h.MaxTimestamp)
	}
}

// damage reports what stands at pos in place of a batch and finds where the log goes on.
func (s *segmentScan) damage(pos int64, h record.Header, why string) (next int64, err error) {
	zero, err := s.zeroFrom(pos)
	if err != nil {
		return 0, err
	}
	if zero {
		s.d.out.print(Tail{pos, s.size - pos})
		return s.size, nil
	}
	offset := s.end.next
	// The header may itself be sound, and then says where the next batch is.
	if n := int64(h.BatchLength) + record.LengthPrefix; h.Magic == 2 && n >= record.HeaderSize && n <= s.size-pos {
		at := pos + n
		_, _, bad, err := s.batchAt(min(at, s.size))
		if err != nil {
			return 0, err
		}
		tail := at == s.size
		if bad != "" && !tail {
			if tail, err = s.zeroFrom(at); err != nil {
				return 0, err
			}
		}
		if bad == "" || tail {
			b := describe(pos, h, int(n))
			b.Damaged = true
			s.d.out.print(b)
			s.d.problem(s.name, pos, offset, "damaged batch: %s", why)
			if h.BaseOffset == offset && h.LastOffsetDelta >= 0 {
				s.end.next = h.NextOffset()
			} else {
				s.first = true // unknown how many offsets it had
			}
			return at, nil
		}
	}
	next, err = s.resync(pos + 1)
	if err != nil {
		return 0, err
	}
	if next < 0 {
		s.d.problem(s.name, pos, offset, "no good batch in the last %d bytes: %s", s.size-pos, why)
		return s.size, nil
	}
	s.d.problem(s.name, pos, offset, "damaged: no good batch for %d bytes, until byte %d: %s", next-pos, next, why)
	s.first = true
	return next, nil
}

// zeroFrom is true when nothing but zeros follows.
func (s *segmentScan) zeroFrom(pos int64) (bool, error) {
	for pos < s.size {
		b, err := s.bytes(pos, int(min(s.size-pos, 64<<10)))
		if err != nil {
			return false, err
		}
		if len(bytes.Trim(b, "\x00")) > 0 {
			return false, nil
		}
		pos += int64(len(b))
	}
	return true, nil
}

// resync finds the next position at or after from at which a batch stands that
// can follow in this log, -1 when there is none. What is plausible costs a CRC, so a header must be it in every field.
func (s *segmentScan) resync(from int64) (int64, error) {
	for pos := from; pos+record.HeaderSize <= s.size; {
		b, err := s.bytes(pos, int(min(s.size-pos, windowBytes/2)))
		if err != nil {
			return 0, err
		}
		n := len(b) - record.HeaderSize + 1
		for i := range n {
			if b[i+16] != 2 {
				continue
			}
			h := record.ReadHeader(b[i:])
			at := pos + int64(i)
			if h.BaseOffset < s.end.next || h.BaseOffset-s.end.next > 1<<31 || h.RecordCount <= 0 || h.LastOffsetDelta < 0 ||
				h.BatchLength < record.HeaderSize-record.LengthPrefix || int64(h.Size()) > s.size-at || h.Codec() > record.Zstd {
				continue
			}
			if _, _, why, err := s.batchAt(at); err != nil || why == "" {
				return at, err
			}
			if b, err = s.bytes(pos, len(b)); err != nil { // batchAt may have moved the window
				return 0, err
			}
		}
		pos += int64(n)
	}
	return -1, nil
}
