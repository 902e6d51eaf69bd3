package record

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Builder encodes one record batch. Set the exported fields before the first
// Append; Reset makes it ready for the next batch and keeps its memory. The zero Builder is
// an uncompressed batch of a producer that is idempotent with id 0: use NewBuilder.
type Builder struct {
	Codec         Codec
	ProducerID    int64 // NoProducerID: not idempotent
	ProducerEpoch int16
	BaseSequence  int32
	Transactional bool
	Control       bool

	records       []byte // encoded, not compressed
	count         int32
	baseTimestamp int64
	maxTimestamp  int64
}

// NewBuilder makes a Builder of batches without a producer id.
func NewBuilder(c Codec) *Builder {
	return &Builder{Codec: c, ProducerID: NoProducerID, ProducerEpoch: -1, BaseSequence: -1}
}

// Reset forgets the records.
func (b *Builder) Reset() {
	b.records, b.count, b.baseTimestamp, b.maxTimestamp = b.records[:0], 0, 0, 0
}

// Count is the number of records appended since Reset.
func (b *Builder) Count() int { return int(b.count) }

// Size is the length in bytes that the batch would have without compression.
func (b *Builder) Size() int { return HeaderSize + len(b.records) }

// Append adds a record. timestamp is in ms; nil key and value are null. What it is given is copied.
func (b *Builder) Append(timestamp int64, key, value []byte, headers ...RecordHeader) {
	if b.count == 0 {
		b.baseTimestamp, b.maxTimestamp = timestamp, timestamp
	}
	b.maxTimestamp = max(b.maxTimestamp, timestamp)
	body := 1 + varlongSize(timestamp-b.baseTimestamp) + varlongSize(int64(b.count)) + nullableSize(key) + nullableSize(value) + varlongSize(int64(len(headers)))
	for _, h := range headers {
		body += varlongSize(int64(len(h.Key))) + len(h.Key) + nullableSize(h.Value)
	}
	p := appendVarlong(b.records, int64(body))
	p = append(p, 0) // attributes
	p = appendVarlong(p, timestamp-b.baseTimestamp)
	p = appendVarlong(p, int64(b.count))
	p = appendNullable(p, key)
	p = appendNullable(p, value)
	p = appendVarlong(p, int64(len(headers)))
	for _, h := range headers {
		p = appendVarlong(p, int64(len(h.Key)))
		p = append(p, h.Key...)
		p = appendNullable(p, h.Value)
	}
	b.records = p
	b.count++
}

// Build appends the encoded batch to dst, with base offset 0 and no leader
// epoch, as a producer sends it. The records stay; Reset forgets them.
func (b *Builder) Build(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	dst = compress(dst, b.Codec, b.records)
	size := len(dst) - at
	if size-LengthPrefix > math.MaxInt32 {
		panic(fmt.Sprintf("BUG: record: batch of %d bytes: its length is an int32", size))
	}
	attributes := int16(b.Codec)
	if b.Transactional {
		attributes |= attrTransactional
	}
	if b.Control {
		attributes |= attrControl
	}
	Header{
		BatchLength:          int32(size - LengthPrefix),
		PartitionLeaderEpoch: -1,
		Magic:                2,
		Attributes:           attributes,
		LastOffsetDelta:      b.count - 1,
		BaseTimestamp:        b.baseTimestamp,
		MaxTimestamp:         b.maxTimestamp,
		ProducerID:           b.ProducerID,
		ProducerEpoch:        b.ProducerEpoch,
		BaseSequence:         b.BaseSequence,
		RecordCount:          b.count,
	}.put(dst[at:])
	FixCRC(dst[at:])
	return dst
}

// put encodes the header into the first HeaderSize bytes of b.
func (h Header) put(b []byte) {
	_ = b[HeaderSize-1]
	binary.BigEndian.PutUint64(b, uint64(h.BaseOffset))
	binary.BigEndian.PutUint32(b[8:], uint32(h.BatchLength))
	binary.BigEndian.PutUint32(b[12:], uint32(h.PartitionLeaderEpoch))
	b[16] = byte(h.Magic)
	binary.BigEndian.PutUint32(b[17:], h.CRC)
	binary.BigEndian.PutUint16(b[21:], uint16(h.Attributes))
	binary.BigEndian.PutUint32(b[23:], uint32(h.LastOffsetDelta))
	binary.BigEndian.PutUint64(b[27:], uint64(h.BaseTimestamp))
	binary.BigEndian.PutUint64(b[35:], uint64(h.MaxTimestamp))
	binary.BigEndian.PutUint64(b[43:], uint64(h.ProducerID))
	binary.BigEndian.PutUint16(b[51:], uint16(h.ProducerEpoch))
	binary.BigEndian.PutUint32(b[53:], uint32(h.BaseSequence))
	binary.BigEndian.PutUint32(b[57:], uint32(h.RecordCount))
}

// Recompress appends the batch to dst with its records compressed anew by c, as
// a broker does whose compression.type is not the producer's
// (lab.compression.path=recompress). All else is kept; the CRC is new.
// decompressedMax is as in Payload. The batch has been validated.
func Recompress(dst, batch []byte, c Codec, decompressedMax int64) ([]byte, error) {
	h, err := Frame(batch)
	if err != nil {
		return dst, err
	}
	at := len(dst)
	dst = append(dst, batch[:HeaderSize]...)
	payload := batch[HeaderSize:h.Size()]
	if h.Codec() == None {
		dst = compress(dst, c, payload)
	} else if err := withDecompressed(h.Codec(), payload, boundOrDefault(decompressedMax), func(payload []byte) error {
		dst = compress(dst, c, payload)
		return nil
	}); err != nil {
		return dst[:at], err
	}
	h.Attributes = h.Attributes&^attrCodecMask | int16(c)
	h.BatchLength = int32(len(dst) - at - LengthPrefix)
	h.put(dst[at:])
	FixCRC(dst[at:])
	return dst, nil
}

func appendVarlong(p []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		p = append(p, byte(u)|0x80)
		u >>= 7
	}
	return append(p, byte(u))
}

func varlongSize(v int64) int {
	u := uint64(v)<<1 ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}

func appendNullable(p, field []byte) []byte {
	if field == nil {
		return append(p, 1) // -1
	}
	return append(appendVarlong(p, int64(len(field))), field...)
}

func nullableSize(field []byte) int {
	if field == nil {
		return 1
	}
	return varlongSize(int64(len(field))) + len(field)
}
