package load

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/storage/record"
)

// fake is a broker of one partition in memory, with faults to plant.
type fake struct {
	mu      sync.Mutex
	batches [][]byte
	next    int64
	heard   int // produce requests

	segment    int   // a fetch does not cross a multiple of so many batches; 0: no bound
	skipOffset int64 // this offset is given to no batch, as if it were lost; 0: none
	stallAt    int   // produce request that is answered late
	stall      time.Duration
	corrupt    bool // flip a bit of what is fetched
}

func (f *fake) listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer conn.Close(); f.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

func (f *fake) serve(conn net.Conn) {
	frames := NewFrames(conn, 8<<20)
	for {
		frame, err := frames.Next()
		if err != nil {
			return
		}
		req := kmsg.RequestForKey(int16(binary.BigEndian.Uint16(frame)))
		req.SetVersion(int16(binary.BigEndian.Uint16(frame[2:])))
		body := frame[10+int(binary.BigEndian.Uint16(frame[8:])):]
		if err := req.ReadFrom(body); err != nil {
			panic(err)
		}
		var resp kmsg.Response
		switch req := req.(type) {
		case *kmsg.ProduceRequest:
			resp = f.produce(req)
			if req.Acks == 0 {
				continue
			}
		case *kmsg.FetchRequest:
			resp = f.fetch(req)
		}
		resp.SetVersion(req.GetVersion())
		out := append(make([]byte, 4), frame[4:8]...)
		out = resp.AppendTo(out)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

func (f *fake) produce(req *kmsg.ProduceRequest) kmsg.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.heard++; f.heard == f.stallAt {
		time.Sleep(f.stall) // the planted fault, not a way to wait
	}
	resp := kmsg.NewPtrProduceResponse()
	resp.Topics = []kmsg.ProduceResponseTopic{{Topic: req.Topics[0].Topic, Partitions: []kmsg.ProduceResponseTopicPartition{{
		Partition: req.Topics[0].Partitions[0].Partition, BaseOffset: f.append(req.Topics[0].Partitions[0].Records), LogAppendTime: -1,
	}}}}
	return resp
}

func (f *fake) append(batch []byte) int64 {
	if f.skipOffset > 0 && f.next >= f.skipOffset {
		f.next, f.skipOffset = f.next+1, 0
	}
	base := f.next
	b := append([]byte(nil), batch...)
	record.SetBaseOffset(b, base)
	f.batches = append(f.batches, b)
	f.next = record.ReadHeader(b).NextOffset()
	return base
}

func (f *fake) fetch(req *kmsg.FetchRequest) kmsg.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := req.Topics[0].Partitions[0]
	var out []byte
	for i, b := range f.batches {
		if record.ReadHeader(b).NextOffset() <= p.FetchOffset {
			continue
		}
		if len(out) > 0 && (len(out)+len(b) > int(p.PartitionMaxBytes) || f.segment > 0 && i%f.segment == 0) {
			break
		}
		out = append(out, b...)
	}
	if f.corrupt && len(out) > 0 {
		out[len(out)-1] ^= 1
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Topics = []kmsg.FetchResponseTopic{{Topic: req.Topics[0].Topic, Partitions: []kmsg.FetchResponseTopicPartition{{
		Partition: p.Partition, HighWatermark: f.next, LastStableOffset: f.next, PreferredReadReplica: -1, RecordBatches: out,
	}}}}
	return resp
}

// fill appends n batches of the spec.
func (f *fake) fill(t *testing.T, s BatchSpec, n int) (records int64) {
	t.Helper()
	batches, err := s.Prepare(4)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		f.append(batches[i%4].Bytes)
		records += int64(batches[i%4].Records)
	}
	return records
}

// forever is a window that measures everything and never closes by itself.
func forever() *Window { return &Window{Measure: time.Hour} }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
