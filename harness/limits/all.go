package limits

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tidemark-log/tidemark/harness/load"
)

// Row is one limit, over its repeats.
type Row struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"` // bytes/s or records/s
	Values []float64 `json:"values"`
	// Note says why there is no value, or how to read it.
	Note string `json:"note,omitempty"`
}

// Min, Median and Max of the values; 0 when there are none.
func (r Row) Min() float64 { return r.quantile(0) }

// Median of the values.
func (r Row) Median() float64 { return r.quantile(0.5) }

// Max of the values.
func (r Row) Max() float64 { return r.quantile(1) }

func (r Row) quantile(q float64) float64 {
	if len(r.Values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(r.Values))
	at := q * float64(len(v)-1)
	low := int(at)
	high := min(low+1, len(v)-1)
	return v[low] + (at-float64(low))*(v[high]-v[low])
}

// Suite says how to measure all limits.
type Suite struct {
	Binary     string // the tidemark executable
	Dir        string // scratch on the disk to measure
	Repeats    int
	Measure    time.Duration // of one repeat
	LoopBytes  int64         // file of the write and sendfile loops
	DiskBytes  int64         // file of the disk measurements
	ChunkBytes []int         // of the loops
	Depths     []int         // requests in flight
	Seed       uint64
	Progress   func(done, total int, what string)
}

// DefaultSuite takes about a minute.
func DefaultSuite() Suite {
	return Suite{
		Repeats: 3, Measure: 500 * time.Millisecond, LoopBytes: 1 << 30, DiskBytes: 512 << 20,
		ChunkBytes: []int{64 << 10, 1 << 20}, Depths: []int{1, 2, 5}, Seed: 1,
	}
}

// diskChunkBytes is what sequential disk accesses move at a time.
const diskChunkBytes = 1 << 20

// Check refuses what could not be measured, before anything is.
func (s Suite) Check() error {
	chunk := int64(0)
	for _, n := range s.ChunkBytes {
		chunk = max(chunk, int64(n))
	}
	if least := 4 * (chunk + requestHeaderBytes); s.LoopBytes < least { // a quarter is read, and must hold a chunk
		return fmt.Errorf("limits: a loop's file of %d bytes is too small: want at least %d", s.LoopBytes, least)
	}
	if s.DiskBytes < diskChunkBytes {
		return fmt.Errorf("limits: a disk file of %d bytes is too small: want at least %d", s.DiskBytes, diskChunkBytes)
	}
	return nil
}

type probe struct {
	name, unit, note string
	run              func(context.Context) (float64, error)
}

// Run measures every limit Repeats times, interleaved, and tells onRow, when not nil, nothing until the end.
func (s Suite) Run(ctx context.Context) ([]Row, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	return s.run(ctx, s.probes())
}

func (s Suite) run(ctx context.Context, probes []probe) ([]Row, error) {
	rows := make([]Row, len(probes))
	for i, p := range probes {
		rows[i] = Row{Name: p.name, Unit: p.unit, Note: p.note}
	}
	for repeat := range s.Repeats {
		for i, p := range probes {
			if s.Progress != nil {
				s.Progress(repeat*len(probes)+i, s.Repeats*len(probes), p.name)
			}
			value, err := p.run(ctx)
			switch {
			case errors.Is(err, ErrNoDirect):
				rows[i].Note = err.Error()
			case err != nil:
				return rows, fmt.Errorf("%s: %w", p.name, err)
			case !(value > 0 && value <= math.MaxFloat64): // no limit of this machine, and JSON has no word for some
				return rows, fmt.Errorf("limits: %s: nothing was done in %v: measure for longer", p.name, s.Measure)
			default:
				rows[i].Values = append(rows[i].Values, value)
			}
		}
	}
	return rows, nil
}

// unaligned is what chunks read are short of their size, so that they begin anywhere in a page; see Loop.FetchBytes.
const unaligned = 10

func (s Suite) probes() []probe {
	probes := []probe{{"memory copy, one core", "bytes/s", "256 MiB buffers", func(ctx context.Context) (float64, error) {
		return MemoryCopy(ctx, s.Measure), ctx.Err()
	}}}
	for _, chunk := range s.ChunkBytes {
		probes = append(probes, s.loop("loopback TCP, receive and answer", Loop{Mode: ModeDiscard, Requests: OpaqueRequests(chunk, s.Seed), Depth: 2}, chunk))
	}
	for _, chunk := range s.ChunkBytes {
		for _, depth := range s.Depths {
			probes = append(probes, s.loop("receive → pwrite, new file", Loop{Mode: ModeWrite, Requests: OpaqueRequests(chunk, s.Seed), Depth: depth, FileBytes: s.LoopBytes, MaxBytes: s.LoopBytes}, chunk))
		}
	}
	for _, chunk := range s.ChunkBytes {
		for _, depth := range s.Depths {
			probes = append(probes, s.loop("request → sendfile, warm", Loop{Mode: ModeSendfile, FetchBytes: chunk - unaligned, Depth: depth, FileBytes: s.LoopBytes / 4}, chunk))
		}
	}
	for _, chunk := range s.ChunkBytes {
		probes = append(probes, s.loop("request → pread + write, warm", Loop{Mode: ModeCopy, FetchBytes: chunk - unaligned, Depth: 2, FileBytes: s.LoopBytes / 4}, chunk))
		probes = append(probes, s.loop("request → write from memory", Loop{Mode: ModeMemory, FetchBytes: chunk - unaligned, Depth: 2, FileBytes: s.LoopBytes / 4}, chunk))
	}
	for _, random := range []bool{false, true} {
		for _, write := range []bool{false, true} {
			for _, direct := range []bool{false, true} {
				probes = append(probes, s.disk(random, write, direct))
			}
		}
	}
	return append(probes, probe{"kgo produce 100 B to a sink", "records/s", "the client's own ceiling", s.kgoSink})
}

func (s Suite) loop(what string, l Loop, chunk int) probe {
	l.Binary, l.Dir, l.Warmup, l.Measure = s.Binary, s.Dir, s.Measure/5, s.Measure
	return probe{fmt.Sprintf("%s, %s, %d in flight", what, sizeName(chunk), l.Depth), "bytes/s", "", func(ctx context.Context) (float64, error) {
		st, err := l.Run(ctx)
		return st.BytesPerS(), err
	}}
}

func (s Suite) disk(random, write, direct bool) probe {
	d := Disk{Dir: s.Dir, Random: random, Write: write, Direct: direct, FileBytes: s.DiskBytes, ChunkBytes: diskChunkBytes, Measure: s.Measure, Seed: s.Seed}
	access, op, io := "sequential", "read", "buffered"
	if random {
		access, d.ChunkBytes = "random", 4096
	}
	if write {
		op = "write"
	}
	if direct {
		io = "O_DIRECT"
	}
	note := ""
	if write && !direct {
		note = "with the fsync at the end"
	}
	return probe{fmt.Sprintf("disk %s %s, %s, %s", access, op, sizeName(d.ChunkBytes), io), "bytes/s", note, func(ctx context.Context) (float64, error) {
		r, err := d.Run(ctx)
		if err != nil {
			return 0, err
		}
		return r.BytesPerS(), nil
	}}
}

func (s Suite) kgoSink(ctx context.Context) (float64, error) {
	server, err := StartServer(ctx, s.Binary, ServerConfig{Mode: ModeSink})
	if err != nil {
		return 0, err
	}
	defer server.Stop()
	k := load.KgoProduce{Addrs: []string{server.Addr}, Topic: "limit", Acks: 1, Codec: "none", RecordBytes: 100, Entropy: 8, Seed: s.Seed}
	st, err := k.Run(ctx, &load.Window{Warmup: s.Measure, Measure: 2 * s.Measure})
	return st.RecordsPerS(), err
}

// requestHeaderBytes precede the bytes of an opaque request: length, correlation id, number.
const requestHeaderBytes = 12

// OpaqueRequests are frames of n bytes that a bare loop takes for produce
// requests: a few of them, so that the sender's cache helps no more than it does for a driver.
func OpaqueRequests(n int, seed uint64) [][]byte {
	rng := load.NewRand(seed, 0x0fa)
	frames := make([][]byte, max(2, min(16, (4<<20)/n)))
	for i := range frames {
		f := append(make([]byte, requestHeaderBytes), load.Payload(rng, n, 8)...)
		f[0], f[1], f[2], f[3] = byte((n+8)>>24), byte((n+8)>>16), byte((n+8)>>8), byte(n+8)
		frames[i] = f
	}
	return frames
}

func sizeName(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
