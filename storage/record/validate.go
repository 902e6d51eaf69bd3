package record

import "fmt"

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
	DecompressedBytesMax int64 // of one batch's records: a small frame must not become gigabytes
}

// Error says why a batch is refused, with Kafka's error code for it.
type Error struct {
	Code   int16 // 2 CORRUPT_MESSAGE, 10 MESSAGE_TOO_LARGE, 43 UNSUPPORTED_FOR_MESSAGE_FORMAT, 76 UNSUPPORTED_COMPRESSION_TYPE, 87 INVALID_RECORD
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("%s (error code %d)", e.Reason, e.Code) }
