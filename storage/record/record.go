// Package record is the record batch, version 2 ("magic 2", KIP-98): its header,
// its checks, its records, its codecs.
//
// A batch travels from producer to disk to consumer as it is. The broker changes
// two fields only, base offset and partition leader epoch, which the CRC does
// not cover; LogAppendTime and byte offsets change what it does cover, and
// rewrite it.
//
//	 0 BaseOffset            int64      21 Attributes       int16   51 ProducerEpoch int16
//	 8 BatchLength           int32      23 LastOffsetDelta  int32   53 BaseSequence  int32
//	12 PartitionLeaderEpoch  int32      27 BaseTimestamp    int64   57 RecordCount   int32
//	16 Magic                 int8       35 MaxTimestamp     int64   61 records, compressed as one
//	17 CRC (Castagnoli)      uint32     43 ProducerID       int64
//
// BatchLength counts from byte 12; the CRC covers byte 21 to the end.
package record

import "encoding/binary"

// HeaderSize is the length of a batch header, in bytes.
const HeaderSize = 61

// LengthPrefix is how many leading bytes BatchLength does not count.
const LengthPrefix = 12

// Codec is a batch's compression, the low three bits of its attributes.
type Codec int8

const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2
	LZ4    Codec = 3
	Zstd   Codec = 4
)

// Attribute bits beside the codec.
const (
	attrCodecMask     = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// NoProducerID marks a batch of a producer that is not idempotent.
const NoProducerID int64 = -1

// Header is a decoded batch header.
type Header struct {
	BaseOffset           int64
	BatchLength          int32
	PartitionLeaderEpoch int32
	Magic                int8
	CRC                  uint32
	Attributes           int16
	LastOffsetDelta      int32
	BaseTimestamp        int64 // ms
	MaxTimestamp         int64 // ms
	ProducerID           int64
	ProducerEpoch        int16
	BaseSequence         int32
	RecordCount          int32
}

// ReadHeader decodes the first HeaderSize bytes of b, which must be there. It checks nothing.
func ReadHeader(b []byte) Header {
	_ = b[HeaderSize-1]
	return Header{
		BaseOffset:           int64(binary.BigEndian.Uint64(b)),
		BatchLength:          int32(binary.BigEndian.Uint32(b[8:])),
		PartitionLeaderEpoch: int32(binary.BigEndian.Uint32(b[12:])),
		Magic:                int8(b[16]),
		CRC:                  binary.BigEndian.Uint32(b[17:]),
		Attributes:           int16(binary.BigEndian.Uint16(b[21:])),
		LastOffsetDelta:      int32(binary.BigEndian.Uint32(b[23:])),
		BaseTimestamp:        int64(binary.BigEndian.Uint64(b[27:])),
		MaxTimestamp:         int64(binary.BigEndian.Uint64(b[35:])),
		ProducerID:           int64(binary.BigEndian.Uint64(b[43:])),
		ProducerEpoch:        int16(binary.BigEndian.Uint16(b[51:])),
		BaseSequence:         int32(binary.BigEndian.Uint32(b[53:])),
		RecordCount:          int32(binary.BigEndian.Uint32(b[57:])),
	}
}

// Size is the whole batch's length in bytes, header included.
func (h Header) Size() int { return int(h.BatchLength) + LengthPrefix }

// LastOffset is the offset of the batch's last record.
func (h Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// NextOffset is the offset after the batch's last record.
func (h Header) NextOffset() int64 { return h.LastOffset() + 1 }

// LastSequence is the sequence number of the batch's last record; it wraps to 0 after 2^31-1.
func (h Header) LastSequence() int32 {
	return int32((int64(h.BaseSequence) + int64(h.RecordCount) - 1) & 0x7fffffff)
}

// Codec is the batch's compression.
func (h Header) Codec() Codec { return Codec(h.Attributes & attrCodecMask) }

// LogAppendTime is true when the broker set the timestamps.
func (h Header) LogAppendTime() bool { return h.Attributes&attrLogAppendTime != 0 }

// Transactional is true for a batch of a transaction.
func (h Header) Transactional() bool { return h.Attributes&attrTransactional != 0 }

// Control is true for a batch of markers that no consumer may see.
func (h Header) Control() bool { return h.Attributes&attrControl != 0 }

// SetBaseOffset writes the base offset, which the CRC does not cover.
func SetBaseOffset(b []byte, offset int64) { binary.BigEndian.PutUint64(b, uint64(offset)) }

// SetLeaderEpoch writes the partition leader epoch, which the CRC does not cover.
func SetLeaderEpoch(b []byte, epoch int32) { binary.BigEndian.PutUint32(b[12:], uint32(epoch)) }
