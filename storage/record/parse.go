package record

import (
	"encoding/binary"
	"errors"
	"iter"
)

// Record is one decoded record. Key and Value are nil where they are null; like
// the headers they alias what was read.
type Record struct {
	Offset    int64
	Timestamp int64 // ms
	Key       []byte
	Value     []byte
	Headers   []RecordHeader
}

// RecordHeader is one of a record's headers. Value is nil where it is null.
type RecordHeader struct {
	Key   string
	Value []byte
}

// Batches yields the whole batches that stand back to back in b, as Frame sees
// them: their CRC is not checked. It stops at the first bytes that are none, such as the batch
// that a fetch cut off; who must tell an end from damage walks with Next.
func Batches(b []byte) iter.Seq2[Header, []byte] {
	return func(yield func(Header, []byte) bool) {
		for len(b) > 0 {
			h, err := Frame(b)
			if err != nil || !yield(h, b[:h.Size():h.Size()]) {
				return
			}
			b = b[h.Size():]
		}
	}
}

// Next splits the first batch off b. The error is Frame's.
func Next(b []byte) (h Header, batch, rest []byte, err error) {
	if h, err = Frame(b); err != nil {
		return h, nil, b, err
	}
	return h, b[:h.Size():h.Size()], b[h.Size():], nil
}

// Records yields the records of one whole batch, under either offset scheme, in order, and at most
// one error, after which it stops. decompressedMax bounds the memory
// for a compressed batch, in bytes (0: DefaultDecompressedBytesMax). Records stay valid after the loop.
func Records(batch []byte, decompressedMax int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		h, err := Frame(batch)
		if err != nil {
			yield(Record{}, err)
			return
		}
		payload, err := Payload(nil, batch, decompressedMax)
		if err != nil {
			yield(Record{}, err)
			return
		}
		h.records(payload, yield)
	}
}

// records yields the records of an uncompressed payload.
func (h Header) records(payload []byte, yield func(Record, error) bool) {
	for i := int32(0); i < h.RecordCount; i++ {
		var raw rawRecord
		n, why := raw.parse(payload)
		if why != "" {
			yield(Record{}, errorf(CodeInvalidRecord, "record %d: %s", i, why))
			return
		}
		if !yield(raw.decode(h), nil) {
			return
		}
		payload = payload[n:]
	}
	if len(payload) > 0 {
		yield(Record{}, errorf(CodeInvalidRecord, "%d bytes after the last of %d records", len(payload), h.RecordCount))
	}
}

// AtTime finds the first record of a whole batch, from offset start on, whose timestamp is at least ts. Memory is bounded
// as in Validate: many lookups at once do not take that of as many large batches.
func AtTime(batch []byte, ts, start int64) (offset, timestamp int64, ok bool, err error) {
	h, err := Frame(batch)
	if err != nil {
		return 0, 0, false, err
	}
	find := func(payload []byte) (err error) {
		h.records(payload, func(r Record, e error) bool {
			if err = e; err == nil && r.Timestamp >= ts && r.Offset >= start {
				offset, timestamp, ok = r.Offset, r.Timestamp, true
			}
			return err == nil && !ok
		})
		return err
	}
	if payload := batch[HeaderSize:h.Size()]; h.Codec() == None {
		err = find(payload)
	} else {
		err = withDecompressed(h.Codec(), payload, boundOrDefault(0), find)
	}
	return offset, timestamp, ok, err
}

// Payload gives a batch's records in their uncompressed form: those of the batch itself when
// it is not compressed, else decompressed and appended to dst, decompressedMax bytes at most.
func Payload(dst, batch []byte, decompressedMax int64) ([]byte, error) {
	h, err := Frame(batch)
	if err != nil {
		return nil, err
	}
	payload := batch[HeaderSize:h.Size()]
	if h.Codec() == None {
		return payload, nil
	}
	out, err := decompress(dst, h.Codec(), payload, boundOrDefault(decompressedMax))
	if err != nil {
		return nil, payloadError(h.Codec(), err)
	}
	return out, nil
}

// payloadError gives a failed decompression its code.
func payloadError(c Codec, err error) error {
	switch {
	case errors.Is(err, errUnknownCodec):
		return errorf(CodeUnsupportedCompressionType, "compression codec %d: none, gzip, snappy, lz4, zstd are 0 to 4", c)
	case errors.Is(err, errTooLong):
		return errorf(CodeInvalidRecord, "%s payload: %v", c, err)
	}
	return errorf(CodeInvalidRecord, "%s payload does not decompress: %v", c, err)
}

// rawRecord is a record found but not decoded: nothing of it is allocated.
type rawRecord struct {
	timestampDelta int64
	offsetDelta    int32
	key, value     []byte
	headers        []byte // encoded
	headerCount    int32
}

// parse reads the record at the start of p strictly: every length must fit, and
// the fields must fill the record's own length to the byte. It gives the bytes used, or why it is none.
func (r *rawRecord) parse(p []byte) (n int, why string) {
	length, at := varint(p)
	if at <= 0 || length < recordBytesMin-1 || int64(length) > int64(len(p)-at) {
		return 0, "its length does not fit into the batch"
	}
	n = at + int(length)
	p = p[at+1 : n] // past the attributes, of which no bit has a meaning
	ts, at := varlong(p)
	if at <= 0 {
		return 0, "bad timestamp delta"
	}
	p = p[at:]
	delta, at := varint(p)
	if at <= 0 {
		return 0, "bad offset delta"
	}
	var ok bool
	if r.key, p, ok = nullable(p[at:]); !ok {
		return 0, "its key does not fit into it"
	}
	if r.value, p, ok = nullable(p); !ok {
		return 0, "its value does not fit into it"
	}
	count, at := varint(p)
	if at <= 0 || count < 0 || int64(count)*2 > int64(len(p)-at) {
		return 0, "bad header count"
	}
	p = p[at:]
	r.timestampDelta, r.offsetDelta, r.headers, r.headerCount = ts, delta, p, count
	for range count {
		if _, _, p, ok = recordHeader(p); !ok {
			return 0, "a header does not fit into it"
		}
	}
	if len(p) != 0 {
		return 0, "its fields do not fill its length"
	}
	return n, ""
}

// decode makes a Record of what parse found.
func (r *rawRecord) decode(h Header) Record {
	rec := Record{
		Offset:    h.BaseOffset + int64(r.offsetDelta),
		Timestamp: h.BaseTimestamp + r.timestampDelta,
		Key:       r.key,
		Value:     r.value,
	}
	if h.LogAppendTime() {
		rec.Timestamp = h.MaxTimestamp
	}
	if r.headerCount > 0 {
		rec.Headers = make([]RecordHeader, r.headerCount) // parse saw that many
		p := r.headers
		for i := range rec.Headers {
			var key []byte
			key, rec.Headers[i].Value, p, _ = recordHeader(p)
			rec.Headers[i].Key = string(key)
		}
	}
	return rec
}

func recordHeader(p []byte) (key, value, rest []byte, ok bool) {
	if key, p, ok = nullable(p); !ok || key == nil {
		return nil, nil, nil, false // a header's key may not be null
	}
	value, rest, ok = nullable(p)
	return key, value, rest, ok
}

// nullable reads a length (-1: null) and that many bytes.
func nullable(p []byte) (field, rest []byte, ok bool) {
	n, at := varint(p)
	switch {
	case at <= 0 || n < -1 || int64(n) > int64(len(p)-at):
		return nil, nil, false
	case n == -1:
		return nil, p[at:], true
	}
	end := at + int(n)
	return p[at:end:end], p[end:], true
}

// varint reads a zigzag varint of at most five bytes; n is 0 when it is cut off
// or too long.
func varint(p []byte) (v int32, n int) {
	var u uint32
	for i := 0; i < len(p) && i < 5; i++ {
		u |= uint32(p[i]&0x7f) << (7 * i)
		if p[i] < 0x80 {
			return int32(u>>1) ^ -int32(u&1), i + 1
		}
	}
	return 0, 0
}

// varlong reads a zigzag varint of at most ten bytes.
func varlong(p []byte) (v int64, n int) {
	var u uint64
	for i := 0; i < len(p) && i < 10; i++ {
		u |= uint64(p[i]&0x7f) << (7 * i)
		if p[i] < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i + 1
		}
	}
	return 0, 0
}

// validateRecords reads every record of a producer's batch: offset deltas 0, 1,
// 2 … in order, the header's maximum timestamp right, not a byte left over.
func validateRecords(h Header, payload []byte, decompressedMax int64) error {
	if h.Codec() == None {
		return h.validatePayload(payload)
	}
	return withDecompressed(h.Codec(), payload, decompressedMax, h.validatePayload)
}

// validatePayload is validateRecords of records that are not compressed, or no more.
func (h Header) validatePayload(payload []byte) error {
	var raw rawRecord
	var latest int64
	for i := range h.RecordCount {
		if n, ts, ok := quickRecord(payload, i); ok {
			if ts += h.BaseTimestamp; i == 0 || ts > latest {
				latest = ts
			}
			payload = payload[n:]
			continue
		}
		n, why := raw.parse(payload)
		if why != "" {
			return errorf(CodeInvalidRecord, "record %d of %d: %s", i, h.RecordCount, why)
		}
		if raw.offsetDelta != i {
			return errorf(CodeInvalidRecord, "record %d of %d has offset delta %d", i, h.RecordCount, raw.offsetDelta)
		}
		if ts := h.BaseTimestamp + raw.timestampDelta; i == 0 || ts > latest {
			latest = ts
		}
		payload = payload[n:]
	}
	if len(payload) > 0 {
		return errorf(CodeInvalidRecord, "%d bytes after the last of %d records", len(payload), h.RecordCount)
	}
	if latest != h.MaxTimestamp {
		return errorf(CodeInvalidRecord, "latest timestamp is %d, the batch header says %d", latest, h.MaxTimestamp)
	}
	return nil
}

// quickRecord checks a record as parse does, for the shapes that nearly all
// records have: varints of at most three bytes, no headers. ok is false for a bad
// record and for a shape it does not know: parse must look again. It exists
// because at 100 bytes a record the varints are the cost of LevelRecords.
func quickRecord(p []byte, offsetDelta int32) (n int, timestampDelta int64, ok bool) {
	last := len(p) - 4 // the last place where four bytes can be loaded
	if last < 0 {
		return 0, 0, false
	}
	u, at := quickVarint(binary.LittleEndian.Uint32(p))
	n = at + int(u>>1)
	if at++; at > last || u&1 != 0 || n > len(p) { // past the attributes
		return 0, 0, false
	}
	ts, used := quickVarint(binary.LittleEndian.Uint32(p[at:]))
	if at += used; at > last || used > 3 {
		return 0, 0, false
	}
	u, used = quickVarint(binary.LittleEndian.Uint32(p[at:]))
	if at += used; at > last || used > 3 || u != uint32(offsetDelta)<<1 {
		return 0, 0, false
	}
	for range 2 { // key, value
		u, used = quickVarint(binary.LittleEndian.Uint32(p[at:]))
		if at += used; u&1 == 0 {
			at += int(u >> 1)
		} else if u != 1 { // -1 is null
			return 0, 0, false
		}
		if at > last || used > 3 {
			return 0, 0, false
		}
	}
	// The lengths were held against p, not against the record: this is what keeps
	// the fields inside it. The last byte is the count of headers.
	if at != n-1 || p[at] != 0 {
		return 0, 0, false
	}
	return n, int64(int32(ts>>1) ^ -int32(ts&1)), true
}

// quickVarint reads an unsigned varint from its first four bytes, little-endian;
// n is 4 when it is longer than three. Small enough to be inlined.
func quickVarint(w uint32) (u uint32, n int) {
	if w&0x80 == 0 {
		return w & 0x7f, 1
	}
	u = w&0x7f | w>>1&0x3f80
	if w&0x8000 == 0 {
		return u, 2
	}
	if w&0x800000 == 0 {
		return u | w>>2&0x1fc000, 3
	}
	return 0, 4
}
