package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// receiveAll feeds stream to a recvBuffer in pieces of the sizes that chunk gives, and
// returns the frames and the error that ended it.
func receiveAll(r *recvBuffer, stream []byte, chunk func() int) (frames [][]byte, err error) {
	for {
		frame, err := r.frame()
		if err != nil {
			return frames, err
		}
		if frame != nil {
			frames = append(frames, bytes.Clone(frame))
			continue
		}
		if len(stream) == 0 {
			return frames, nil
		}
		space, err := r.space()
		if err != nil {
			return frames, err
		}
		n := copy(space[:min(len(space), chunk())], stream)
		if n == 0 {
			return frames, errors.New("BUG: no space offered")
		}
		stream = stream[n:]
		r.received(n)
		r.park()
	}
}

func TestFramesComeWholeHoweverTheBytesArrive(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	sizes := []int{0, 2, 90, smallBufferBytes - 5, smallBufferBytes - 4, smallBufferBytes, 70_000, 1 << 20, 3 << 20}
	for round := range 20 {
		pool := &bufferPool{max: 64 << 20}
		r := newRecvBuffer(pool, 8<<20)
		most := 1 << rng.IntN(24) // bytes that arrive at once
		sizes := sizes
		if most < 4096 {
			sizes = sizes[:6] // the large ones would take all day
		}
		var stream []byte
		var want [][]byte
		for range 1 + rng.IntN(12) {
			body := make([]byte, headerBytesMin+sizes[rng.IntN(len(sizes))])
			for i := range body[:headerBytesMin] {
				body[i] = byte(rng.Uint32())
			}
			body[len(body)-1] = byte(len(want))
			want = append(want, body)
			stream = binary.BigEndian.AppendUint32(stream, uint32(len(body)))
			stream = append(stream, body...)
		}
		got, err := receiveAll(&r, stream, func() int { return 1 + rng.IntN(most) })
		if err != nil || len(got) != len(want) {
			t.Fatalf("round %d: %d frames of %d, %v", round, len(got), len(want), err)
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("round %d: frame %d differs", round, i)
			}
		}
		r.release()
		if n := pool.lent.Load(); n != 0 {
			t.Fatalf("round %d: %d bytes still lent", round, n)
		}
	}
}

func TestMemoryFollowsBytesReceivedNotTheLengthClaimed(t *testing.T) {
	pool := &bufferPool{max: 1 << 40}
	r := newRecvBuffer(pool, 1<<30)
	stream := binary.BigEndian.AppendUint32(nil, 1<<30) // "a gigabyte follows"
	stream = append(stream, make([]byte, 300<<10)...)
	if _, err := receiveAll(&r, stream, func() int { return 1000 }); err != nil {
		t.Fatal(err)
	}
	if got := len(r.buf); got > 4*len(stream) {
		t.Errorf("%d bytes arrived and the buffer has %d", len(stream), got)
	}
}

func TestBufferBudgetRefusesTheOneWhoNeedsMore(t *testing.T) {
	pool := &bufferPool{max: 1 << 20}
	r := newRecvBuffer(pool, 100<<20)
	stream := append(binary.BigEndian.AppendUint32(nil, 8<<20), make([]byte, 4<<20)...)
	if _, err := receiveAll(&r, stream, func() int { return 1 << 20 }); !errors.Is(err, errBufferBudget) {
		t.Errorf("want errBufferBudget, got %v", err)
	}
}

func TestBadHeadersAreErrors(t *testing.T) {
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 9 // flexible
	good := encode(metadata, 5)[4:]
	for name, mutate := range map[string]func(b []byte) []byte{
		"too short":                  func(b []byte) []byte { return b[:9] },
		"client id past the end":     func(b []byte) []byte { binary.BigEndian.PutUint16(b[8:], 30000); return b },
		"client id of length -2":     func(b []byte) []byte { binary.BigEndian.PutUint16(b[8:], 0xfffe); return b },
		"a tag of four gigabytes":    func(b []byte) []byte { return append(b[:14], 1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f) },
		"four billion tags":          func(b []byte) []byte { return append(b[:14], 0xff, 0xff, 0xff, 0xff, 0x0f) },
		"tags that end in a varint":  func(b []byte) []byte { return append(b[:14], 0x80) },
		"body cut off":               func(b []byte) []byte { return b[:len(b)-1] },
		"an array of four gigabytes": func(b []byte) []byte { return append(b[:15], 0xff, 0xff, 0xff, 0xff, 0x0f) },
		"an api version it never was": func(b []byte) []byte {
			binary.BigEndian.PutUint16(b[2:], 99)
			return b
		},
		"a negative api version": func(b []byte) []byte { binary.BigEndian.PutUint16(b[2:], 0xffff); return b },
	} {
		t.Run(name, func(t *testing.T) {
			h, rest, err := parseHeader(mutate(bytes.Clone(good)))
			if err == nil {
				_, err = decodeBody(h, rest)
			}
			if !errors.Is(err, errFrameHeader) && !errors.Is(err, errFrameBody) && !errors.Is(err, errUnsupported) {
				t.Errorf("accepted, or a strange error: %v", err)
			}
		})
	}
	if h, rest, err := parseHeader(good); err != nil || h.correlationID != 5 || string(h.clientID) != "test" {
		t.Errorf("the good one: %+v %v", h, err)
	} else if _, err := decodeBody(h, rest); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

// FuzzFrame feeds arbitrary bytes in arbitrary pieces: no panic, no more memory
// than twice what came, and whatever is accepted is encoded again without one.
func FuzzFrame(f *testing.F) {
	for _, key := range []kmsg.Key{kmsg.Produce, kmsg.Fetch, kmsg.Metadata, kmsg.ApiVersions, kmsg.CreateTopics, kmsg.InitProducerID} {
		req := key.Request()
		for _, v := range []int16{0, req.MaxVersion()} {
			req.SetVersion(v)
			f.Add(encode(req, 1), uint16(3))
		}
	}
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0}, uint16(1))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint16(9))
	f.Fuzz(func(t *testing.T, stream []byte, piece uint16) {
		pool := &bufferPool{max: 1 << 30}
		r := newRecvBuffer(pool, 100<<20)
		frames, _ := receiveAll(&r, stream, func() int { return 1 + int(piece) })
		if got, most := pool.lent.Load(), max(1<<largeClassMin, 4*int64(len(stream))); got > most {
			t.Errorf("%d bytes came, %d are lent", len(stream), got)
		}
		r.release()
		var produces produceBuffer
		for _, frame := range frames {
			h, rest, err := parseHeader(frame)
			if err != nil {
				continue
			}
			body, err := decodeBody(h, rest)
			if h.key == produce {
				again, errAgain := produces.decode(h, rest)
				if (err == nil) != (errAgain == nil) || err == nil && !bytes.Equal(again.AppendTo(nil), body.AppendTo(nil)) {
					t.Errorf("a connection's own request was decoded differently: %v, and anew: %v", errAgain, err)
				}
				produces.clear()
			}
			if err == nil {
				body.AppendTo(nil)
			}
		}
	})
}
