package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	codecs   = []Codec{None, Gzip, Snappy, LZ4, Zstd}
	roomy    = Limits{BatchBytesMax: 16 << 20, DecompressedBytesMax: 64 << 20}
	sampleTs = int64(1_700_000_000_000)
)

// sample is a batch with every shape of record: null, empty and filled fields, headers, time going back.
func sample(c Codec) []byte {
	b := NewBuilder(c)
	b.Append(sampleTs, nil, nil)
	b.Append(sampleTs+7, []byte{}, []byte{})
	b.Append(sampleTs-3, []byte("key"), bytes.Repeat([]byte("value "), 500), RecordHeader{"h1", []byte("x")}, RecordHeader{"", nil})
	b.Append(sampleTs+5, nil, []byte("last"))
	return b.Build(nil)
}

func code(err error) int16 {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return -1
}

func TestRecordsComeBackAsBuiltUnderEveryCodec(t *testing.T) {
	for _, c := range codecs {
		t.Run(c.String(), func(t *testing.T) {
			raw := sample(c)
			h, err := Validate(raw, LevelRecords, roomy)
			if err != nil {
				t.Fatal(err)
			}
			if h.Codec() != c || h.RecordCount != 4 || h.MaxTimestamp != sampleTs+7 || h.Size() != len(raw) {
				t.Fatalf("header %+v", h)
			}
			SetBaseOffset(raw, 100)
			var got []string
			for r, err := range Records(raw, 0) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%d@%d %v %v %d", r.Offset, r.Timestamp-sampleTs, r.Key == nil, r.Value == nil, len(r.Value)))
				if r.Offset == 102 && (len(r.Headers) != 2 || r.Headers[0].Key != "h1" || string(r.Headers[0].Value) != "x" || r.Headers[1].Value != nil) {
					t.Errorf("headers %q", r.Headers)
				}
			}
			want := []string{"100@0 true true 0", "101@7 false false 0", "102@-3 false false 3000", "103@5 true false 4"}
			if !slices.Equal(got, want) {
				t.Errorf("records\n got %q\nwant %q", got, want)
			}
		})
	}
}

// kmsgBatch encodes by franz-go's own types, so that our reading does not only agree with our writing.
func kmsgBatch(n int) []byte {
	var records []byte
	for i := range n {
		r := kmsg.Record{
			TimestampDelta64: int64(i), OffsetDelta: int32(i),
			Key: []byte("k"), Value: []byte(strings.Repeat("v", i)),
			Headers: []kmsg.Header{{Key: "a", Value: []byte("b")}},
		}
		body := r.AppendTo(nil)[1:] // without the length, 0 as yet
		records = kbin.AppendVarint(records, int32(len(body)))
		records = append(records, body...)
	}
	rb := kmsg.RecordBatch{
		Length: int32(HeaderSize - LengthPrefix + len(records)), PartitionLeaderEpoch: -1, Magic: 2,
		LastOffsetDelta: int32(n - 1), FirstTimestamp: sampleTs, MaxTimestamp: sampleTs + int64(n-1),
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(n), Records: records,
	}
	raw := rb.AppendTo(nil)
	rb.CRC = int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return rb.AppendTo(nil)
}

func TestBatchesOfFranzGoAreRead(t *testing.T) {
	raw := kmsgBatch(130)
	h, err := Validate(raw, LevelRecords, roomy)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for r, err := range Records(raw, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Offset != int64(n) || r.Timestamp != sampleTs+int64(n) || len(r.Value) != n || r.Headers[0].Key != "a" {
			t.Fatalf("record %d: %+v", n, r)
		}
		n++
	}
	if n != 130 || h.RecordCount != 130 {
		t.Fatalf("%d records read, header says %d", n, h.RecordCount)
	}
}

func TestFranzGoReadsOurBatches(t *testing.T) {
	raw := sample(None)
	var rb kmsg.RecordBatch
	if err := rb.ReadFrom(raw); err != nil {
		t.Fatal(err)
	}
	if rb.NumRecords != 4 || rb.LastOffsetDelta != 3 || rb.MaxTimestamp != sampleTs+7 || rb.Magic != 2 || rb.ProducerID != -1 {
		t.Fatalf("%+v", rb)
	}
	var r kmsg.Record
	if err := r.ReadFrom(rb.Records); err != nil || r.Key != nil || r.Value != nil {
		t.Fatalf("%v %+v", err, r)
	}
}

// A case of TestValidateGivesKafkasCode changes a good batch; the CRC is made right again unless keepCRC.
type refusal struct {
	name    string
	change  func(b []byte) []byte
	level   Level
	codec   Codec
	keepCRC bool
	want    int16
}

func put32(at int, v int32) func([]byte) []byte {
	return func(b []byte) []byte { binary.BigEndian.PutUint32(b[at:], uint32(v)); return b }
}

func put16(at int, v int16) func([]byte) []byte {
	return func(b []byte) []byte { binary.BigEndian.PutUint16(b[at:], uint16(v)); return b }
}

func put64(at int, v int64) func([]byte) []byte {
	return func(b []byte) []byte { binary.BigEndian.PutUint64(b[at:], uint64(v)); return b }
}

var refusals = []refusal{
	{name: "nothing", change: func(b []byte) []byte { return nil }, keepCRC: true, want: 2},
	{name: "half a header", change: func(b []byte) []byte { return b[:30] }, keepCRC: true, want: 2},
	{name: "cut off", change: func(b []byte) []byte { return b[:len(b)-1] }, keepCRC: true, want: 2},
	{name: "length claims 2 GiB", change: put32(8, 1<<31-1), keepCRC: true, want: 2},
	{name: "negative length", change: put32(8, -1), keepCRC: true, want: 2},
	{name: "length below the header", change: put32(8, 48), keepCRC: true, want: 2},
	{name: "magic 0", change: func(b []byte) []byte { b[16] = 0; return b[:26] }, keepCRC: true, want: 43},
	{name: "magic 1", change: func(b []byte) []byte { b[16] = 1; return b }, keepCRC: true, want: 43},
	{name: "magic 3", change: func(b []byte) []byte { b[16] = 3; return b }, keepCRC: true, want: 2},
	{name: "a bit of the payload", change: func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, keepCRC: true, want: 2},
	{name: "a bit of the attributes", change: func(b []byte) []byte { b[22] ^= 1; return b }, keepCRC: true, want: 2},
	{name: "no records", change: put32(57, 0), want: 87},
	{name: "negative count", change: put32(57, -4), want: 87},
	{name: "count above the last offset", change: put32(57, 5), want: 87},
	{name: "last offset above the count", change: put32(23, 4), want: 87},
	{name: "count and offset agree on too many", change: func(b []byte) []byte { put32(57, 1<<30)(b); return put32(23, 1<<30-1)(b) }, want: 87},
	{name: "codec 5", change: put16(21, 5), want: 76},
	{name: "control batch", change: put16(21, attrControl), want: 87},
	{name: "append time is the broker's", change: put16(21, attrLogAppendTime), want: 32},
	{name: "producer id -2", change: put64(43, -2), want: 87},
	{name: "producer id without epoch", change: func(b []byte) []byte { put64(43, 7)(b); return put32(53, 0)(b) }, want: 87},
	{name: "producer id without sequence", change: func(b []byte) []byte { put64(43, 7)(b); return put16(51, 0)(b) }, want: 87},

	{name: "max timestamp is not the latest", change: put64(35, sampleTs+8), level: LevelRecords, want: 87},
	{name: "one record too few", change: func(b []byte) []byte { put32(57, 3)(b); return put32(23, 2)(b) }, level: LevelRecords, want: 87},
	{name: "one record too many", change: func(b []byte) []byte { put32(57, 5)(b); return put32(23, 4)(b) }, level: LevelRecords, want: 87},
	{name: "record length too long", change: func(b []byte) []byte { b[HeaderSize] += 2; return b }, level: LevelRecords, want: 87},
	{name: "record length too short", change: func(b []byte) []byte { b[HeaderSize] -= 2; return b }, level: LevelRecords, want: 87},
	{name: "offset delta not 0", change: func(b []byte) []byte { b[HeaderSize+3] = 2; return b }, level: LevelRecords, want: 87},
	{name: "key longer than its record", change: func(b []byte) []byte { b[HeaderSize+4] = 40; return b }, level: LevelRecords, want: 87},
	{name: "key length -2", change: func(b []byte) []byte { b[HeaderSize+4] = 3; return b }, level: LevelRecords, want: 87},
	{name: "headers that are not there", change: func(b []byte) []byte { b[HeaderSize+6] = 2; return b }, level: LevelRecords, want: 87},
	{name: "bad gzip", change: func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, codec: Gzip, level: LevelRecords, want: 87},
	{name: "bad snappy", change: func(b []byte) []byte { b[HeaderSize+21] ^= 0x7f; return b }, codec: Snappy, level: LevelRecords, want: 87},
	{name: "bad lz4", change: func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, codec: LZ4, level: LevelRecords, want: 87},
	{name: "bad zstd", change: func(b []byte) []byte { b[HeaderSize+8] ^= 0xff; return b }, codec: Zstd, level: LevelRecords, want: 87},
	{name: "none said to be gzip", change: put16(21, 1), level: LevelRecords, want: 87},
}

func TestValidateGivesKafkasCode(t *testing.T) {
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			b := r.change(sample(r.codec))
			if !r.keepCRC {
				FixCRC(b)
			}
			if _, err := Validate(b, r.level, roomy); code(err) != r.want {
				t.Errorf("got %v, want code %d", err, r.want)
			}
			if r.level == LevelRecords {
				// The documentation says that LevelBatch does not see these. Counts it may.
				if _, err := Validate(b, LevelBatch, roomy); err != nil {
					t.Errorf("LevelBatch saw it: %v", err)
				}
			}
		})
	}
}

func TestBatchOverMaxMessageBytesIsTooLarge(t *testing.T) {
	raw := sample(None)
	if _, err := Validate(raw, LevelBatch, Limits{BatchBytesMax: len(raw)}); err != nil {
		t.Errorf("exactly at the limit: %v", err)
	}
	if _, err := Validate(raw, LevelBatch, Limits{BatchBytesMax: len(raw) - 1}); code(err) != CodeMessageTooLarge {
		t.Errorf("one byte over: %v", err)
	}
}

func TestBytesAfterTheBatchAreNotLookedAt(t *testing.T) {
	raw := sample(Zstd)
	h, err := Validate(append(slices.Clone(raw), "noise"...), LevelRecords, roomy)
	if err != nil || h.Size() != len(raw) {
		t.Errorf("%v, size %d of %d", err, h.Size(), len(raw))
	}
}

// A batch of a few KB that decompresses to 64 MiB must stop at the bound.
func TestDecompressionStopsAtItsBound(t *testing.T) {
	big := NewBuilder(None)
	big.Append(sampleTs, nil, make([]byte, 8<<20))
	for _, c := range codecs[1:] {
		big.Codec = c
		raw := big.Build(nil)
		if _, err := Validate(raw, LevelRecords, Limits{BatchBytesMax: 16 << 20, DecompressedBytesMax: 9 << 20}); err != nil {
			t.Errorf("%s within the bound: %v", c, err)
		}
		_, err := Validate(raw, LevelRecords, Limits{BatchBytesMax: 16 << 20, DecompressedBytesMax: 1 << 20})
		if code(err) != CodeInvalidRecord || !strings.Contains(err.Error(), "over the bound") {
			t.Errorf("%s over the bound: %v", c, err)
		}
		out, err := Payload(nil, raw, 1<<20)
		if out != nil || err == nil {
			t.Errorf("%s: Payload gave %d bytes, %v", c, len(out), err)
		}
	}
	for _, c := range codecs[1:] {
		for _, size := range []int{1000, 300_000} {
			exact := NewBuilder(c)
			exact.Append(0, nil, make([]byte, size))
			raw := exact.Build(nil)
			n := int64(exact.Size() - HeaderSize)
			if _, err := Payload(nil, raw, n); err != nil {
				t.Errorf("%s, exactly at the bound: %v", c, err)
			}
			if _, err := Payload(nil, raw, n-1); err == nil {
				t.Errorf("%s: one byte over the bound passed", c)
			}
		}
	}
}

// A frame of 14 bytes may ask for a window of 128 MiB, or claim to hold 100 MB. Neither is memory that we take.
func TestAZstdFramesWordIsNotTakenForMemory(t *testing.T) {
	for name, frame := range map[string][]byte{
		"window":       {0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3, 0x01 | 5<<3, 0, 0, 'a', 'b', 'c', 'd', 'e'},
		"content size": {0x28, 0xb5, 0x2f, 0xfd, 0x80, 17 << 3, 0x00, 0xe1, 0xf5, 0x05, 0x01 | 5<<3, 0, 0, 'a', 'b', 'c', 'd', 'e'},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = decompress(nil, Zstd, frame, 1<<20)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%s: %d bytes allocated for a frame of %d", name, n, len(frame))
		}
	}
}

func TestASnappyClaimIsRefusedBeforeItsMemoryIsAskedFor(t *testing.T) {
	lie := binary.AppendUvarint(nil, 60<<20)
	lie = append(lie, 0)
	if n := testing.AllocsPerRun(1, func() {
		if _, err := decompress(nil, Snappy, lie, 64<<20); err == nil {
			t.Error("passed")
		}
	}); n > 10 {
		t.Errorf("%v allocations", n)
	}
}

func TestRawSnappyIsReadLikeXerial(t *testing.T) {
	b := NewBuilder(None)
	b.Append(sampleTs, nil, bytes.Repeat([]byte("abc"), 40_000)) // several xerial blocks
	plain := b.Build(nil)
	raw := append(plain[:HeaderSize:HeaderSize], snappy.Encode(nil, plain[HeaderSize:])...)
	put32(8, int32(len(raw)-LengthPrefix))(raw)
	put16(21, int16(Snappy))(raw)
	FixCRC(raw)
	b.Codec = Snappy
	xerial := b.Build(nil)
	if !bytes.HasPrefix(xerial[HeaderSize:], xerialMagic) {
		t.Error("what we write is not framed as the Java client's is")
	}
	for name, batch := range map[string][]byte{"raw": raw, "xerial": xerial} {
		got, err := Payload(nil, batch, 0)
		if err != nil || !bytes.Equal(got, plain[HeaderSize:]) {
			t.Errorf("%s: %v, %d bytes", name, err, len(got))
		}
	}
}

func TestRecompressKeepsEverythingButTheCodec(t *testing.T) {
	for _, from := range codecs {
		for _, to := range codecs {
			raw := sample(from)
			SetBaseOffset(raw, 55)
			SetLeaderEpoch(raw, 3)
			out, err := Recompress([]byte("before"), raw, to, 0)
			if err != nil {
				t.Fatal(err)
			}
			out = out[len("before"):]
			h, err := Validate(out, LevelRecords, roomy)
			if err != nil {
				t.Fatalf("%s to %s: %v", from, to, err)
			}
			want := ReadHeader(raw)
			if h.Codec() != to || h.BaseOffset != 55 || h.PartitionLeaderEpoch != 3 || h.MaxTimestamp != want.MaxTimestamp || h.RecordCount != want.RecordCount {
				t.Errorf("%s to %s: %+v", from, to, h)
			}
			a, _ := Payload(nil, raw, 0)
			b, _ := Payload(nil, out, 0)
			if !bytes.Equal(a, b) {
				t.Errorf("%s to %s changed the records", from, to)
			}
		}
	}
}

func TestAppendTimeIsEveryRecordsTimestamp(t *testing.T) {
	raw := sample(LZ4)
	SetAppendTime(raw, 12345)
	h, err := Check(raw)
	if err != nil || !h.LogAppendTime() || h.MaxTimestamp != 12345 || h.Codec() != LZ4 {
		t.Fatalf("%v %+v", err, h)
	}
	for r := range Records(raw, 0) {
		if r.Timestamp != 12345 {
			t.Errorf("offset %d has timestamp %d", r.Offset, r.Timestamp)
		}
	}
}

func TestByteOffsetsLeadToTheNextBatch(t *testing.T) {
	var stream []byte
	for i := range 3 {
		at := len(stream)
		stream = append(stream, sample(codecs[i])...)
		SetByteOffsets(stream[at:], int64(at))
	}
	next := int64(0)
	for h, raw := range Batches(stream) {
		if _, err := Check(raw); err != nil {
			t.Fatal(err)
		}
		if h.BaseOffset != next || h.NextOffset() != next+int64(len(raw)) {
			t.Errorf("batch at %d has offsets [%d, %d)", next, h.BaseOffset, h.NextOffset())
		}
		next = h.NextOffset()
		n := 0
		for r, err := range Records(raw, 0) {
			if err != nil || r.Offset != h.BaseOffset+int64(n) {
				t.Errorf("record %d: offset %d, %v", n, r.Offset, err)
			}
			n++
		}
		if n != 4 {
			t.Errorf("%d records", n)
		}
	}
	if next != int64(len(stream)) {
		t.Errorf("stopped at %d of %d", next, len(stream))
	}
	if _, err := Validate(stream, LevelBatch, roomy); code(err) != CodeInvalidRecord {
		t.Errorf("a producer may not send byte offsets: %v", err)
	}
}

func TestBatchesStopAtWhatIsCutOffAndNextSaysWhy(t *testing.T) {
	one := sample(None)
	b := append(slices.Clone(one), one[:len(one)-5]...)
	n := 0
	for range Batches(b) {
		n++
	}
	if n != 1 {
		t.Errorf("%d batches", n)
	}
	_, _, rest, err := Next(b)
	if err != nil || len(rest) != len(one)-5 {
		t.Fatalf("%v, rest %d", err, len(rest))
	}
	if _, _, _, err := Next(rest); code(err) != CodeCorruptMessage {
		t.Errorf("the cut-off batch: %v", err)
	}
}

func TestIdempotentBatchesCarryTheirSequence(t *testing.T) {
	b := NewBuilder(None)
	b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.Transactional = 9, 2, 1<<31-2, true
	for range 3 {
		b.Append(0, nil, nil)
	}
	h, err := Validate(b.Build(nil), LevelRecords, roomy)
	if err != nil || h.ProducerID != 9 || h.ProducerEpoch != 2 || !h.Transactional() {
		t.Fatalf("%v %+v", err, h)
	}
	if h.LastSequence() != 0 {
		t.Errorf("last sequence %d: it wraps to 0 after 2^31-1", h.LastSequence())
	}
}

// Any single flipped bit beyond base offset and leader epoch must be seen.
func TestEveryFlippedBitIsSeen(t *testing.T) {
	good := sample(None)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		bit := rng.IntN(len(good) * 8)
		at := bit / 8
		if at < 8 || at >= 12 && at < 16 {
			continue // base offset, leader epoch: the CRC does not cover them
		}
		b := slices.Clone(good)
		b[at] ^= 1 << (bit % 8)
		if _, err := Validate(b, LevelBatch, roomy); err == nil {
			t.Fatalf("bit %d of byte %d", bit%8, at)
		}
	}
}

// TestAZstdFrameWithoutItsLengthIsRead is what librdkafka and the Java client
// send: a stream whose header does not tell how long it will be. Compressed far
// below a quarter, its first block does not fit into the first guess.
func TestAZstdFrameWithoutItsLengthIsRead(t *testing.T) {
	for _, n := range []int{10, 20_000, 127_000, 132_000, 3_000_000} {
		b := NewBuilder(None)
		b.Append(1, nil, bytes.Repeat([]byte("all work and no play "), n/20))
		plain := b.Build(nil)
		var stream bytes.Buffer
		w, err := zstd.NewWriter(&stream)
		if err != nil {
			t.Fatal(err)
		}
		w.Write(plain[HeaderSize:])
		w.Flush() // before the end is known
		w.Close()
		var h zstd.Header
		if err := h.Decode(stream.Bytes()); err != nil || h.HasFCS {
			t.Fatalf("the frame tells its length (%v): it tests nothing", err)
		}
		got, err := decompress(nil, Zstd, stream.Bytes(), 64<<20)
		if err != nil || !bytes.Equal(got, plain[HeaderSize:]) {
			t.Errorf("%d bytes in a frame of %d: %d came back, %v", len(plain)-HeaderSize, stream.Len(), len(got), err)
		}
		if _, err := decompress(nil, Zstd, stream.Bytes(), int64(len(plain)-HeaderSize-1)); err != errTooLong {
			t.Errorf("%d bytes where one less is allowed: %v", len(plain)-HeaderSize, err)
		}
		if stream.Len() > 40 { // one flipped bit does not make it grow for ever
			damaged := bytes.Clone(stream.Bytes())
			damaged[stream.Len()/2] ^= 4
			if _, err := decompress(nil, Zstd, damaged, 64<<20); err == nil {
				t.Errorf("a damaged frame of %d bytes was read", stream.Len())
			}
		}
	}
}
