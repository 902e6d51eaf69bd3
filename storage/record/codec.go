package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

var codecNames = [...]string{None: "none", Gzip: "gzip", Snappy: "snappy", LZ4: "lz4", Zstd: "zstd"}

// String is Kafka's name of the codec (compression.type).
func (c Codec) String() string {
	if c >= 0 && int(c) < len(codecNames) {
		return codecNames[c]
	}
	return fmt.Sprintf("codec(%d)", int8(c))
}

// ParseCodec reads a name as in compression.type.
func ParseCodec(name string) (Codec, error) {
	for c, n := range codecNames {
		if n == name {
			return Codec(c), nil
		}
	}
	return None, fmt.Errorf("unknown compression codec %q: use none, gzip, snappy, lz4 or zstd", name)
}

var (
	errTooLong      = errors.New("decompressed records are over the bound")
	errUnknownCodec = errors.New("unknown compression codec")
)

// zstdWindowMax is the history a zstd frame may ask for: what the Java client's highest level does.
const zstdWindowMax = 128 << 20

// Compressors and decompressors are costly to make and hold no state between
// uses, so they are kept.
var (
	gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}
	lz4Readers  = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
	zstdReaders = sync.Pool{New: func() any {
		// One at a time: the decoder then starts no goroutine of its own.
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindowMax), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			panic("BUG: record: zstd decoder options: " + err.Error())
		}
		return d
	}}
	gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}
	lz4Writers  = sync.Pool{New: func() any { return lz4.NewWriter(nil) }}
	zstdWriters = sync.Pool{New: func() any {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
		if err != nil {
			panic("BUG: record: zstd encoder options: " + err.Error())
		}
		return e
	}}
	buffers = sync.Pool{New: func() any { return new(buffer) }}
)

// buffer is memory for one batch's decompressed records.
type buffer struct{ b []byte }

// bufferKeepMax bounds what an idle buffer may hold: one huge batch must not
// leave its memory behind.
const bufferKeepMax = 4 << 20

func takeBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) release() {
	if cap(b.b) <= bufferKeepMax {
		buffers.Put(b)
	}
}

// large is held by who decompresses a batch of more than bufferKeepMax bytes. A
// hundred connections that each send one that unpacks to a gigabyte then take the memory of one.
var large sync.Mutex

// withDecompressed calls use with the decompressed form of src, which lasts as long as the call.
// Memory: bufferKeepMax bytes for each caller that runs, and max bytes for one of them.
func withDecompressed(c Codec, src []byte, max int64, use func(payload []byte) error) error {
	small := min(max, bufferKeepMax)
	fits, err := decompressAndUse(c, src, small, use)
	if fits || small == max {
		return err
	}
	large.Lock()
	defer large.Unlock()
	_, err = decompressAndUse(c, src, max, use)
	return err
}

// decompressAndUse is withDecompressed for one bound; fits is false when src decompresses to more.
func decompressAndUse(c Codec, src []byte, max int64, use func(payload []byte) error) (fits bool, err error) {
	buf := takeBuffer()
	defer buf.release()
	buf.b, err = decompress(buf.b[:0], c, src, max)
	if err != nil {
		return !errors.Is(err, errTooLong), payloadError(c, err)
	}
	return true, use(buf.b)
}

// decompress appends the decompressed form of src to dst. errTooLong when that
// is more than max bytes; memory beyond max is never asked for. It returns dst's buffer,
// perhaps grown, in any case.
func decompress(dst []byte, c Codec, src []byte, max int64) ([]byte, error) {
	switch c {
	case Gzip:
		r := gzipReaders.Get().(*gzip.Reader)
		defer gzipReaders.Put(r)
		if err := r.Reset(bytes.NewReader(src)); err != nil {
			return dst, err
		}
		return readBounded(dst, r, len(src), max)
	case Snappy:
		return decompressSnappy(dst, src, max)
	case LZ4:
		r := lz4Readers.Get().(*lz4.Reader)
		defer lz4Readers.Put(r)
		r.Reset(bytes.NewReader(src))
		return readBounded(dst, r, len(src), max)
	case Zstd:
		return decompressZstd(dst, src, max)
	}
	return dst, errUnknownCodec
}

// zstdBlockMax is what one block of a zstd frame may decompress to, in bytes (RFC 8878).
const zstdBlockMax = 128 << 10

// decompressZstd decodes into dst itself, which then also serves as the window:
// a stream decoder would take the window's memory at a frame's word, 128 MiB for
// a dozen bytes. When dst is too small it is grown, and decoding begins anew.
func decompressZstd(dst, src []byte, max int64) ([]byte, error) {
	r := zstdReaders.Get().(*zstd.Decoder)
	defer zstdReaders.Put(r)
	start := len(dst)
	room := min(int64(len(src))*4+512, max)
	var h zstd.Header
	if h.Decode(src) == nil && h.HasFCS {
		// Believed only as far as a batch usually compresses.
		room = min(int64(min(h.FrameContentSize, math.MaxInt32)), int64(len(src))*64, max)
	}
	for {
		if int64(cap(dst)-start) < room {
			grown := make([]byte, start, start+int(room))
			copy(grown, dst)
			dst = grown
		}
		room = min(int64(cap(dst)-start), max)
		out, err := r.DecodeAll(src, dst[:start:start+int(room)])
		switch {
		case err == nil && int64(len(out)-start) > max:
			return dst, errTooLong
		case err == nil:
			return out, nil
		case !errors.Is(err, zstd.ErrDecoderSizeExceeded) && room-int64(len(out)-start) > zstdBlockMax:
			return dst, err
		case room == max:
			return dst, errTooLong
		}
		// A frame that does not tell its length, as a stream encoder's does not, fails
		// with many an error where a block does not fit: only room for a whole one tells.
		room = min(room*4+zstdBlockMax, max)
	}
}

// readBounded appends all of r to dst, of which it adds at most max bytes. The
// first guess is that the source was compressed fourfold.
func readBounded(dst []byte, r io.Reader, srcLen int, max int64) ([]byte, error) {
	start := len(dst)
	guess := min(int64(srcLen)*4+512, max+1)
	for idle := 0; ; {
		if int64(len(dst)-start) > max {
			return dst, errTooLong
		}
		if len(dst) == cap(dst) {
			grown := make([]byte, len(dst), len(dst)+int(guess))
			copy(grown, dst)
			dst = grown
			guess = min(int64(len(dst)-start)*2+512, max+1-int64(len(dst)-start))
		}
		room := dst[len(dst):min(cap(dst), start+int(max)+1)]
		n, err := r.Read(room)
		dst = dst[:len(dst)+n]
		if n > 0 {
			idle = 0
		} else if idle++; idle > 100 && err == nil {
			return dst, io.ErrNoProgress
		}
		if err == io.EOF {
			if int64(len(dst)-start) > max {
				return dst, errTooLong
			}
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

// xerialMagic begins the snappy stream that the Java client and Kafka write: 16
// bytes of header (the magic, version, compatible version), then blocks, each a
// length (int32) and a raw snappy block. librdkafka and franz-go write one raw block.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const (
	xerialHeaderSize = 16
	xerialBlockSize  = 32 << 10 // of uncompressed bytes, as the Java client's
)

func decompressSnappy(dst, src []byte, max int64) ([]byte, error) {
	if !bytes.HasPrefix(src, xerialMagic) {
		return appendSnappyBlock(dst, src, max)
	}
	if len(src) < xerialHeaderSize {
		return dst, errors.New("xerial header is cut off")
	}
	start := len(dst)
	for src = src[xerialHeaderSize:]; len(src) > 0; {
		if len(src) < 4 {
			return dst, errors.New("xerial block length is cut off")
		}
		n := int64(binary.BigEndian.Uint32(src))
		if n > int64(len(src)-4) {
			return dst, fmt.Errorf("xerial block claims %d bytes, %d are there", n, len(src)-4)
		}
		var err error
		if dst, err = appendSnappyBlock(dst, src[4:4+n], max-int64(len(dst)-start)); err != nil {
			return dst, err
		}
		src = src[4+n:]
	}
	return dst, nil
}

// snappyRatioMax is more than snappy can compress: 64 bytes from a copy element
// of three. A larger claim is a lie that would cost its memory before it is found out.
const snappyRatioMax = 22

func appendSnappyBlock(dst, src []byte, max int64) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return dst, err
	}
	if int64(n) > int64(len(src))*snappyRatioMax {
		return dst, fmt.Errorf("snappy block of %d bytes claims to hold %d", len(src), n)
	}
	if int64(n) > max {
		return dst, errTooLong
	}
	at := len(dst)
	if cap(dst)-at < n {
		grown := make([]byte, at, at+n+at/2)
		copy(grown, dst)
		dst = grown
	}
	if n == 0 {
		_, err = snappy.Decode(nil, src)
		return dst, err
	}
	if _, err := snappy.Decode(dst[at:at+n:at+n], src); err != nil {
		return dst, err
	}
	return dst[:at+n], nil
}

// sliceWriter is an io.Writer that appends.
type sliceWriter struct{ b []byte }

func (w *sliceWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// compress appends the compressed form of src to dst. The codec must be known.
func compress(dst []byte, c Codec, src []byte) []byte {
	w := sliceWriter{dst}
	switch c {
	case None:
		return append(dst, src...)
	case Gzip:
		g := gzipWriters.Get().(*gzip.Writer)
		defer gzipWriters.Put(g)
		g.Reset(&w)
		writeAll(g, src)
		return w.b
	case Snappy:
		return compressXerial(dst, src)
	case LZ4:
		l := lz4Writers.Get().(*lz4.Writer)
		defer lz4Writers.Put(l)
		l.Reset(&w)
		writeAll(l, src)
		return w.b
	case Zstd:
		e := zstdWriters.Get().(*zstd.Encoder)
		defer zstdWriters.Put(e)
		return e.EncodeAll(src, dst)
	}
	panic(fmt.Sprintf("BUG: record: compress with %s", c))
}

// writeAll compresses src. The sink is memory, so it cannot fail.
func writeAll(w io.WriteCloser, src []byte) {
	if _, err := w.Write(src); err != nil {
		panic("BUG: record: compressing into memory: " + err.Error())
	}
	if err := w.Close(); err != nil {
		panic("BUG: record: compressing into memory: " + err.Error())
	}
}

func compressXerial(dst, src []byte) []byte {
	dst = append(dst, xerialMagic...)
	dst = append(dst, 0, 0, 0, 1, 0, 0, 0, 1)
	for len(src) > 0 {
		n := min(len(src), xerialBlockSize)
		at := len(dst)
		need := 4 + snappy.MaxEncodedLen(n)
		if cap(dst)-at < need {
			dst = append(dst, make([]byte, need)...)
		}
		dst = dst[:at+need]
		block := snappy.Encode(dst[at+4:], src[:n])
		binary.BigEndian.PutUint32(dst[at:], uint32(len(block)))
		dst = dst[:at+4+len(block)]
		src = src[n:]
	}
	return dst
}
