package load

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-log/tidemark/storage/record"
)

// BatchSpec says what prepared batches look like.
type BatchSpec struct {
	RecordBytes  int     // of the value of each record
	BatchRecords int     // 0: as many as BatchBytes holds, at least one
	BatchBytes   int     // of the whole batch before compression; not used with BatchRecords
	Entropy      float64 // bits per payload byte
	Codec        string  // none, gzip, snappy, lz4, zstd
	Timestamp    int64   // ms, of every record
	Seed         uint64
}

// Batch is one record batch as it goes over the wire, base offset 0, no producer id.
type Batch struct {
	Bytes   []byte
	Records int
	Payload int // bytes of all values, before compression
}

// CRC is the checksum in the batch's header, by which it can be found again.
func (b *Batch) CRC() uint32 { return record.ReadHeader(b.Bytes).CRC }

// Prepare builds n different batches of one shape.
func (s BatchSpec) Prepare(n int) ([]Batch, error) {
	codec, err := record.ParseCodec(s.Codec)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	rng := NewRand(s.Seed, 0xba7c4)
	builder := record.NewBuilder(codec)
	batches := make([]Batch, n)
	for i := range batches {
		builder.Reset()
		batches[i] = s.build(rng, builder)
	}
	return batches, nil
}

func (s BatchSpec) build(rng *rand.Rand, b *record.Builder) Batch {
	recordSize := 0 // of one record, once known
	for {
		before := b.Size()
		b.Append(s.Timestamp, nil, Payload(rng, s.RecordBytes, s.Entropy))
		recordSize = max(recordSize, b.Size()-before)
		if s.BatchRecords > 0 && b.Count() >= s.BatchRecords {
			break
		}
		if s.BatchRecords == 0 && b.Size()+recordSize+1 > s.BatchBytes { // a later offset delta may take a byte more
			break
		}
	}
	return Batch{Bytes: b.Build(nil), Records: b.Count(), Payload: b.Count() * s.RecordBytes}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// kgoCodec is franz-go's name for a codec.
func kgoCodec(codec string) (kgo.CompressionCodec, error) {
	c, err := record.ParseCodec(codec)
	if err != nil {
		return kgo.CompressionCodec{}, fmt.Errorf("load: %w", err)
	}
	return map[record.Codec]kgo.CompressionCodec{
		record.None: kgo.NoCompression(), record.Gzip: kgo.GzipCompression(), record.Snappy: kgo.SnappyCompression(),
		record.LZ4: kgo.Lz4Compression(), record.Zstd: kgo.ZstdCompression(),
	}[c], nil
}
