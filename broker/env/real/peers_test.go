package real

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/env"
)

// startPeer is a broker that answers each request with what answer makes of its frame; none: it
// closes. It tells of each connection.
func startPeer(t *testing.T, answer func(request []byte) []byte) (env.Peer, <-chan struct{}) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	taken := make(chan struct{}, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			taken <- struct{}{}
			go func() {
				defer c.Close()
				var head [4]byte
				for {
					if _, err := io.ReadFull(c, head[:]); err != nil {
						return
					}
					b := make([]byte, binary.BigEndian.Uint32(head[:]))
					if _, err := io.ReadFull(c, b); err != nil {
						return
					}
					if b = answer(b); b == nil {
						return
					}
					c.Write(b)
				}
			}()
		}
	}()
	addr := l.Addr().(*net.TCPAddr)
	return env.Peer{ID: 7, Host: "127.0.0.1", Port: int32(addr.Port)}, taken
}

// metadataVersion is one whose answers are all tags and compact lengths, so that noise does not decode.
const metadataVersion = 9

func metadataRequest() *kmsg.MetadataRequest {
	r := kmsg.NewPtrMetadataRequest()
	r.Version = metadataVersion
	return r
}

// metadataAnswer is a good answer to a request's frame.
func metadataAnswer(request []byte) []byte {
	r := kmsg.NewPtrMetadataResponse()
	r.Version = metadataVersion
	r.ControllerID = 3
	b := append([]byte{0, 0, 0, 0}, request[4:8]...) // its correlation id
	b = append(b, 0)                                 // no tags
	b = r.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// TestGarbageOfAPeerIsAnErrorAndOneLine: each kind is an error at once, ends its connection and no
// more; it is reported once. The next good answer is taken.
func TestGarbageOfAPeerIsAnErrorAndOneLine(t *testing.T) {
	for name, spoil := range map[string]func(b []byte) []byte{
		"noise":             func(b []byte) []byte { return append(b[:8], bytes.Repeat([]byte{0xff}, len(b)-8)...) },
		"another request's": func(b []byte) []byte { b[7]++; return b },
		"a length without end": func(b []byte) []byte {
			binary.BigEndian.PutUint32(b, 1<<31-1)
			return b
		},
		"a negative length": func(b []byte) []byte { b[0] = 0x80; return b },
		"a short one":       func(b []byte) []byte { binary.BigEndian.PutUint32(b, uint32(len(b)-5)); return b[:len(b)-1] },
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			e := New(nil, slog.New(slog.NewTextHandler(&log, nil)))
			var bad atomic.Bool
			to, taken := startPeer(t, func(request []byte) []byte {
				if b := metadataAnswer(request); !bad.Load() {
					return b
				} else {
					return spoil(b)
				}
			})
			ask := func() error {
				done := make(chan error)
				e.Send(to, metadataRequest(), time.Minute, func(r kmsg.Response, err error) {
					if err == nil && r.(*kmsg.MetadataResponse).ControllerID != 3 {
						t.Errorf("the answer is %+v", r)
					}
					done <- err
				})
				return <-done
			}
			bad.Store(false)
			if err := ask(); err != nil {
				t.Fatal(err)
			}
			bad.Store(true)
			for range 3 {
				if err := ask(); err == nil || !strings.Contains(err.Error(), "garbage") || !strings.Contains(err.Error(), "broker 7") {
					t.Errorf("the error is %v", err)
				}
			}
			bad.Store(false)
			if err := ask(); err != nil {
				t.Error(err)
			}
			if n := len(taken); n != 4 { // the first brought a good answer before the first garbage
				t.Errorf("%d connections", n)
			}
			if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "broker 7 at 127.0.0.1") {
				t.Errorf("it says %s", log.String())
			}
		})
	}
}

// TestAConnectionThatWasClosedWhileIdleIsNoFailure: another is made.
func TestAConnectionThatWasClosedWhileIdleIsNoFailure(t *testing.T) {
	e := New(nil, slog.Default())
	var answered atomic.Int32
	to, taken := startPeer(t, func(request []byte) []byte {
		if answered.Add(1) == 2 {
			return nil
		}
		return metadataAnswer(request)
	})
	for range 2 {
		done := make(chan error)
		e.Send(to, metadataRequest(), time.Minute, func(_ kmsg.Response, err error) { done <- err })
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := len(taken); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// fetchAnswer is a good answer to a request's frame, with n bytes of records, each byte as fill says.
func fetchAnswer(request []byte, n int, fill byte) []byte {
	p := kmsg.NewFetchResponseTopicPartition()
	p.RecordBatches = bytes.Repeat([]byte{fill}, n)
	topic := kmsg.NewFetchResponseTopic()
	topic.Topic, topic.Partitions = "t", append(topic.Partitions, p)
	r := kmsg.NewPtrFetchResponse()
	r.Version = 11
	r.Topics = append(r.Topics, topic)
	b := r.AppendTo(append([]byte{0, 0, 0, 0}, request[4:8]...))
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// TestAnswersOfAnySizeAreReadWhole: whatever the memory of the answer before was, and some of them at the same time.
func TestAnswersOfAnySizeAreReadWhole(t *testing.T) {
	sizes := []int{0, 1, answerMin - 100, answerMin, 3 * answerMin, 100, answerKeptMax, 3 * answerKeptMax, 7}
	to, _ := startPeer(t, func(request []byte) []byte {
		n := int(request[len(request)-1]) // of the rack
		return fetchAnswer(request, sizes[n], byte(n))
	})
	e := New(nil, slog.New(slog.DiscardHandler))
	for range 3 {
		done := make(chan error)
		for i, n := range sizes {
			req := kmsg.NewPtrFetchRequest()
			req.Version, req.Rack = 11, string(rune(i))
			e.Send(to, req, time.Minute, func(r kmsg.Response, err error) {
				if err == nil {
					if got := r.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches; !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, n)) {
						t.Errorf("of %d bytes %d came, or others", n, len(got))
					}
				}
				done <- err
			})
		}
		for range sizes {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}
