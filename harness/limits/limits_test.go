package limits

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidemark-log/tidemark/harness/load"
)

// serve runs a bare server in this process; the real ones have their own.
func serve(t *testing.T, c ServerConfig) (addr string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := Serve(ctx, c, w)
		w.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() { cancel(); <-ended })
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if addr, err = addrOf(strings.TrimSpace(line)); err != nil {
		t.Fatal(err)
	}
	return addr
}

func window() *load.Window { return &load.Window{Measure: time.Minute, MeasureBytes: 1 << 20} }

func TestTheWriteLoopWritesWhatItReceives(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	requests := OpaqueRequests(10_000, 1)
	addr := serve(t, ServerConfig{Mode: ModeWrite, File: file, FileBytes: 2 << 20, FrameMax: 20_000, SyncBytes: 300_000})
	st, err := load.Bare{Addr: addr, Requests: requests, Depth: 3}.Run(t.Context(), window())
	if err != nil || st.Bytes < 1<<20 {
		t.Fatalf("%+v, %v", st.Tick, err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// Frames stand back to back without their lengths; what sets them apart is the payload behind 8 bytes of header.
	n := len(requests[0]) - 4
	for i := range requests {
		if string(got[i*n+8:(i+1)*n]) != string(requests[i][12:]) {
			t.Fatalf("request %d is not in the file as it was sent", i)
		}
	}
}

func TestTheReadLoopsSendTheChunkAskedFor(t *testing.T) {
	for _, mode := range []Mode{ModeSendfile, ModeCopy, ModeMemory} {
		t.Run(string(mode), func(t *testing.T) { sendsTheChunk(t, mode) })
	}
}

func sendsTheChunk(t *testing.T, mode Mode) {
	file := filepath.Join(t.TempDir(), "f")
	if err := writeFile(file, 1<<20, 10_000); err != nil {
		t.Fatal(err)
	}
	addr := serve(t, ServerConfig{Mode: mode, File: file})
	st, err := load.Bare{Addr: addr, FetchBytes: 100_000, FileBytes: 1 << 20, Depth: 2}.Run(t.Context(), window())
	if err != nil || st.Bytes < 1<<20 || st.Bytes%100_000 != 0 {
		t.Errorf("%+v, %v", st.Tick, err)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const pos, n = 4321, 300_000
	req := binary.BigEndian.AppendUint32(nil, load.BareFetchBytes-4)
	req = binary.BigEndian.AppendUint32(req, 77)
	req = binary.BigEndian.AppendUint64(req, pos)
	req = binary.BigEndian.AppendUint32(req, n)
	if _, err := conn.Write(req); err != nil {
		t.Fatal(err)
	}
	got, err := load.NewFrames(conn, 1<<20).Next()
	if err != nil || len(got) != n+4 || binary.BigEndian.Uint32(got) != 77 || !bytes.Equal(got[4:], want[pos:pos+n]) {
		t.Errorf("%d bytes came, %v, or not the right ones", len(got), err)
	}
	if _, err := (load.Bare{Addr: addr, FetchBytes: 2 << 20, FileBytes: 4 << 20, Depth: 1}).Run(t.Context(), window()); err == nil {
		t.Error("a chunk beyond the end of the file was answered")
	}
}

func TestTheSinkSatisfiesAClient(t *testing.T) {
	addr := serve(t, ServerConfig{Mode: ModeSink})
	for _, acks := range []int16{1, -1, 0} {
		k := load.KgoProduce{Addrs: []string{addr}, Topic: "t", Acks: acks, Codec: "lz4", RecordBytes: 100, Entropy: 4, Records: 5000}
		st, err := k.Run(t.Context(), &load.Window{Measure: time.Minute})
		if err != nil || st.Records != 5000 {
			t.Errorf("acks %d: %d records, %v", acks, st.Records, err)
		}
	}
	batches, err := load.BatchSpec{RecordBytes: 100, BatchRecords: 7, Codec: "none"}.Prepare(2)
	if err != nil {
		t.Fatal(err)
	}
	st, err := load.RawProduce{Addr: addr, Topic: "raw", Partitions: 4, Connections: 2, Acks: 1, Batches: batches, Depth: 3, Requests: 100}.Run(t.Context(), &load.Window{Measure: time.Minute})
	if err != nil || st.Gaps != 0 || st.Records != 1400 {
		t.Errorf("raw: %+v, %d gaps, %v", st.Tick, st.Gaps, err)
	}
}

func TestTheDiskIsMeasuredInEveryWay(t *testing.T) {
	for _, d := range []Disk{{}, {Random: true}, {Write: true}, {Random: true, Write: true}, {Direct: true}, {Direct: true, Random: true, Write: true}} {
		d.Dir, d.ChunkBytes, d.FileBytes, d.Measure = t.TempDir(), 8192, 1<<20, 20*time.Millisecond
		r, err := d.Run(t.Context())
		if errors.Is(err, ErrNoDirect) {
			continue
		}
		if err != nil || r.Ops == 0 || r.Bytes != r.Ops*8192 || r.Latency.TotalCount() != r.Ops {
			t.Errorf("%+v: %+v, %v", d, r, err)
		}
		if d.Write && !d.Direct && r.Ops > (1<<20)/8192 {
			t.Errorf("%+v: wrote pages again that were dirty: %d operations", d, r.Ops)
		}
		if left, _ := os.ReadDir(d.Dir); len(left) > 0 {
			t.Errorf("%+v left %v", d, left)
		}
	}
}

func TestRowsGiveOrderStatistics(t *testing.T) {
	r := Row{Values: []float64{3, 1, 2, 10}}
	if r.Min() != 1 || r.Median() != 2.5 || r.Max() != 10 {
		t.Errorf("%g %g %g", r.Min(), r.Median(), r.Max())
	}
	for v, want := range map[float64]string{0: "0 B/s", 999: "999 B/s", 1234: "1.23 kB/s", 1.5e9: "1.5 GB/s"} {
		if got := Rate(v, "bytes/s"); got != want {
			t.Errorf("Rate(%g) = %q, want %q", v, got, want)
		}
	}
}

// TestAMeasurementOfNothingIsNoLimit: a row of 0 B/s would say that the machine can do nothing.
func TestAMeasurementOfNothingIsNoLimit(t *testing.T) {
	for _, value := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		p := probe{name: "memory", unit: "bytes/s", run: func(context.Context) (float64, error) { return value, nil }}
		rows, err := Suite{Repeats: 1, Measure: time.Nanosecond}.run(t.Context(), []probe{p})
		if err == nil || !strings.Contains(err.Error(), "memory: nothing was done in 1ns") || len(rows[0].Values) > 0 {
			t.Errorf("%g: %v, %v", value, rows, err)
		}
	}
	d := Disk{Dir: t.TempDir(), ChunkBytes: 4096, FileBytes: 1 << 20, Measure: time.Nanosecond}
	if r, err := d.Run(t.Context()); err != nil || r.BytesPerS() > 0 {
		t.Errorf("the planted measurement of nothing: %+v, %v", r, err)
	}
}

// TestWhatCannotBeMeasuredIsRefusedBeforeAnythingIs: the loops that come first take many seconds.
func TestWhatCannotBeMeasuredIsRefusedBeforeAnythingIs(t *testing.T) {
	if err := DefaultSuite().Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Suite){
		"negative loop": func(s *Suite) { s.LoopBytes = -5 },
		"loop":          func(s *Suite) { s.LoopBytes = 4<<20 - 1 },
		"no disk":       func(s *Suite) { s.DiskBytes = 0 },
		"disk":          func(s *Suite) { s.DiskBytes = 1<<20 - 1 },
	} {
		s := DefaultSuite()
		change(&s)
		s.Progress = func(int, int, string) { t.Errorf("%s: it is measured", name) }
		if rows, err := s.Run(t.Context()); err == nil || rows != nil || !strings.Contains(err.Error(), "want at least") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestATableThatCannotBeWrittenIsAnError, as it is of JSON.
func TestATableThatCannotBeWrittenIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := WriteTable(full, []Row{{Name: "memory", Values: []float64{1}}}, false); !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
}
