package record

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tidemark-log/tidemark/internal/crc32c"
)

// Level is how much of a batch the broker checks before it appends it (lab.validate).
type Level int

const (
	// LevelBatch checks header, CRC and counts. It does not see what is inside a
	// compressed payload, nor whether the records of a batch are well formed.
	LevelBatch Level = iota
	// LevelRecords also decompresses and reads each record, as Kafka does.
	LevelRecords
)

// Limits bound what Validate accepts.
type Limits struct {
	BatchBytesMax        int   // max.message.bytes, of the whole batch
	DecompressedBytesMax int64 // of one batch's records: a small frame must not become gigabytes. 0: DefaultDecompressedBytesMax
}

// DefaultDecompressedBytesMax bounds one batch's decompressed records where the caller states no bound.
const DefaultDecompressedBytesMax = 128 << 20

func boundOrDefault(bytes int64) int64 {
	if bytes <= 0 {
		return DefaultDecompressedBytesMax
	}
	return min(bytes, math.MaxInt32)
}

// Kafka's error codes that a refused batch can have.
const (
	CodeCorruptMessage              int16 = 2
	CodeMessageTooLarge             int16 = 10
	CodeInvalidTimestamp            int16 = 32
	CodeUnsupportedForMessageFormat int16 = 43
	CodeUnsupportedCompressionType  int16 = 76
	CodeInvalidRecord               int16 = 87
)

// Error says why a batch is refused, with Kafka's error code for it.
type Error struct {
	Code   int16 // one of the Code constants
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("%s (error code %d)", e.Reason, e.Code) }

func errorf(code int16, format string, args ...any) *Error {
	return &Error{Code: code, Reason: fmt.Sprintf(format, args...)}
}

// crcFrom is the first byte that the CRC covers.
const crcFrom = 21

// recordBytesMin is the shortest record: six one-byte fields after a length of one byte.
const recordBytesMin = 7

// Frame reads the header of the batch at the start of b and checks its magic and
// that the whole batch is there. It is all that may be trusted to step from
// batch to batch; it does not look at the CRC. The error is an *Error.
func Frame(b []byte) (Header, error) {
	// The magic byte stands at the same place in every format, and a message of
	// format 0 is shorter than our header: look at it first.
	if len(b) > 16 && (b[16] == 0 || b[16] == 1) {
		return Header{}, errorf(CodeUnsupportedForMessageFormat, "message format %d: only record batches (magic 2) are served", b[16])
	}
	if len(b) < HeaderSize {
		return Header{}, errorf(CodeCorruptMessage, "%d bytes cannot hold a batch header of %d", len(b), HeaderSize)
	}
	h := ReadHeader(b)
	switch {
	case h.Magic != 2:
		return h, errorf(CodeCorruptMessage, "magic %d: no such format", h.Magic)
	case h.BatchLength < HeaderSize-LengthPrefix:
		return h, errorf(CodeCorruptMessage, "batch length %d is below the header's own %d", h.BatchLength, HeaderSize-LengthPrefix)
	case int64(h.BatchLength)+LengthPrefix > int64(len(b)):
		return h, errorf(CodeCorruptMessage, "batch claims %d bytes but only %d are there", int64(h.BatchLength)+LengthPrefix, len(b))
	}
	return h, nil
}

// Check is what every batch on disk must pass, under either offset scheme and
// whoever wrote it: Frame, the CRC, and counts that are not absurd. It does not allocate
// unless it fails. The error is an *Error.
func Check(b []byte) (Header, error) {
	h, err := Frame(b)
	if err != nil {
		return h, err
	}
	if sum := crc32c.Checksum(b[crcFrom:h.Size()]); sum != h.CRC {
		return h, errorf(CodeCorruptMessage, "CRC is %08x, the header says %08x", sum, h.CRC)
	}
	if h.RecordCount < 0 || h.LastOffsetDelta < 0 {
		return h, errorf(CodeInvalidRecord, "record count %d, last offset delta %d: neither may be negative", h.RecordCount, h.LastOffsetDelta)
	}
	return h, nil
}

// Validate checks the batch at the start of b as a producer sent it. It does not
// allocate at LevelBatch unless it fails. The error is an *Error with the code
// that the producer gets:
//
//	 2 CORRUPT_MESSAGE                 the length claims more than is there, the CRC does not hold
//	10 MESSAGE_TOO_LARGE               larger than BatchBytesMax
//	32 INVALID_TIMESTAMP               the producer says LogAppendTime, which is the broker's to say
//	43 UNSUPPORTED_FOR_MESSAGE_FORMAT  magic 0 or 1
//	76 UNSUPPORTED_COMPRESSION_TYPE    codec bits that mean nothing
//	87 INVALID_RECORD                  counts that do not match, a control batch, a bad sequence; at LevelRecords any bad record
//
// Whether a transactional batch is welcome is the caller's to decide.
func Validate(b []byte, level Level, lim Limits) (Header, error) {
	h, err := Frame(b)
	if err != nil {
		return h, err
	}
	// Before the CRC: what is too large is not worth summing.
	if h.Size() > lim.BatchBytesMax {
		return h, errorf(CodeMessageTooLarge, "batch of %d bytes is over max.message.bytes=%d", h.Size(), lim.BatchBytesMax)
	}
	if h, err = Check(b); err != nil {
		return h, err
	}
	if err := h.validateAsProduced(); err != nil {
		return h, err
	}
	if level < LevelRecords {
		return h, nil
	}
	if err := validateRecords(h, b[HeaderSize:h.Size()], boundOrDefault(lim.DecompressedBytesMax)); err != nil {
		return h, err
	}
	return h, nil
}

// validateAsProduced holds the rules that the header of a producer's batch must keep.
func (h Header) validateAsProduced() error {
	switch {
	case h.Control():
		return errorf(CodeInvalidRecord, "control batches are the broker's to write")
	case h.RecordCount == 0:
		return errorf(CodeInvalidRecord, "batch without records")
	case h.LastOffsetDelta != h.RecordCount-1:
		return errorf(CodeInvalidRecord, "batch of %d records ends at offset delta %d, not %d", h.RecordCount, h.LastOffsetDelta, h.RecordCount-1)
	case h.Codec() > Zstd:
		return errorf(CodeUnsupportedCompressionType, "compression codec %d: none, gzip, snappy, lz4, zstd are 0 to 4", h.Codec())
	case h.LogAppendTime():
		return errorf(CodeInvalidTimestamp, "timestamp type LogAppendTime is the broker's to set")
	case h.ProducerID < NoProducerID:
		return errorf(CodeInvalidRecord, "producer id %d", h.ProducerID)
	case h.ProducerID >= 0 && h.ProducerEpoch < 0:
		return errorf(CodeInvalidRecord, "producer id %d with epoch %d", h.ProducerID, h.ProducerEpoch)
	case h.ProducerID >= 0 && h.BaseSequence < 0:
		return errorf(CodeInvalidRecord, "producer id %d with base sequence %d", h.ProducerID, h.BaseSequence)
	case h.Codec() == None && int64(h.RecordCount)*recordBytesMin > int64(h.Size()-HeaderSize):
		return errorf(CodeInvalidRecord, "%d records do not fit into %d bytes", h.RecordCount, h.Size()-HeaderSize)
	}
	return nil
}

// FixCRC writes the CRC that the batch's bytes have now. b starts with a whole batch.
func FixCRC(b []byte) {
	h := ReadHeader(b)
	binary.BigEndian.PutUint32(b[17:], crc32c.Checksum(b[crcFrom:h.Size()]))
}

// SetAppendTime makes ms the timestamp of every record of the batch (message.timestamp.type=LogAppendTime) and rewrites the CRC.
func SetAppendTime(b []byte, ms int64) {
	attributes := binary.BigEndian.Uint16(b[21:])
	binary.BigEndian.PutUint16(b[21:], attributes|attrLogAppendTime)
	binary.BigEndian.PutUint64(b[35:], uint64(ms))
	FixCRC(b)
}

// SetByteOffsets gives the batch the offset position of its first byte in the
// partition's stream and makes its last offset that of its last byte
// (lab.offsets=byte), so that consumers step to the next batch. It rewrites the
// CRC. Afterwards RecordCount and LastOffsetDelta no longer agree.
func SetByteOffsets(b []byte, position int64) {
	h := ReadHeader(b)
	SetBaseOffset(b, position)
	binary.BigEndian.PutUint32(b[23:], uint32(h.Size()-1))
	FixCRC(b)
}
