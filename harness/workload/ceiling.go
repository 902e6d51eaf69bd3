package workload

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/tidemark-log/tidemark/harness/limits"
	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/harness/stat"
)

// Ceiling compares the broker with what the machine or the client can do alone,
// all in one run, interleaved: every repeat measures each pair once, in a random
// order, and the two sides of a pair right after each other, in a random order too.
type Ceiling struct {
	Binary   string
	Dir      string
	Repeats  int
	Measure  time.Duration
	Seed     uint64
	Disk     bool           // the disk regime too: it writes several times the kernel's dirty limit
	Only     *regexp.Regexp // only rows whose name it matches; nil: all
	Progress func(done, total int, what string)
}

// CeilingRow is one line of the outcome.
type CeilingRow struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`   // of Ours and Limit
	Target float64 `json:"target"` // of the ratio, or of Ours where there is no limit
	AtMost bool    `json:"at_most,omitempty"`
	// Ours and Limit hold one value for each repeat; Limit is empty for an absolute row.
	Ours  []float64 `json:"ours"`
	Limit []float64 `json:"limit,omitempty"`
	// Estimate is of Ours/Limit, or the median of Ours; Lo and Hi are its 95 % interval, absent with too few repeats.
	Estimate float64  `json:"estimate"`
	Lo       *float64 `json:"lo,omitempty"`
	Hi       *float64 `json:"hi,omitempty"`
	// Outcome is "holds" or "missed" when the whole interval lies on that side of the target and nothing is void, else "unclear".
	Outcome string `json:"outcome"`
	// CPU seconds of the server per gigabyte on both sides; empty where that says nothing.
	OursCPU  []float64 `json:"ours_cpu_sec_per_gb,omitempty"`
	LimitCPU []float64 `json:"limit_cpu_sec_per_gb,omitempty"`
	Warnings []string  `json:"warnings,omitempty"`
	// Void counts measurements that failed a check or that writeback throttled; then the outcome is unclear.
	Void int `json:"void,omitempty"`
}

// pair is one comparison. limit is nil for an absolute row.
type pair struct {
	row         CeilingRow
	ours, limit measure
}

type measure func(ctx context.Context, seed uint64) (measured, error)

type measured struct {
	value    float64
	cpu      float64 // sec/GB of the server; 0: not known
	warnings []string
	void     bool // it failed a check, or was throttled
}

// Run measures everything.
func (c Ceiling) Run(ctx context.Context) ([]CeilingRow, error) {
	pairs := slices.DeleteFunc(c.pairs(), func(p pair) bool { return c.Only != nil && !c.Only.MatchString(p.row.Name) })
	if len(pairs) == 0 {
		return nil, fmt.Errorf("workload: no row of the ceiling matches %q", c.Only)
	}
	rng := load.NewRand(c.Seed, 0xce11)
	for repeat := range c.Repeats {
		for n, i := range rng.Perm(len(pairs)) {
			p := &pairs[i]
			if c.Progress != nil {
				c.Progress(repeat*len(pairs)+n, c.Repeats*len(pairs), p.row.Name)
			}
			if err := p.once(ctx, rng.Uint64(), rng.IntN(2) == 0); err != nil {
				return nil, fmt.Errorf("%s: %w", p.row.Name, err)
			}
		}
	}
	rows := make([]CeilingRow, len(pairs))
	for i := range pairs {
		pairs[i].row.judge()
		rows[i] = pairs[i].row
	}
	return rows, nil
}

func (p *pair) once(ctx context.Context, seed uint64, limitFirst bool) error {
	type side struct {
		run         measure
		values, cpu *[]float64
	}
	sides := []side{{p.ours, &p.row.Ours, &p.row.OursCPU}, {p.limit, &p.row.Limit, &p.row.LimitCPU}}
	if limitFirst {
		sides[0], sides[1] = sides[1], sides[0]
	}
	for _, side := range sides {
		if side.run == nil {
			continue
		}
		m, err := side.run(ctx, seed)
		if err != nil {
			return err
		}
		if !(m.value > 0) {
			return fmt.Errorf("a measurement gave no number: %v %s", m.value, p.row.Unit)
		}
		if m.void {
			p.row.Void++
		}
		*side.values = append(*side.values, m.value)
		if m.cpu > 0 {
			*side.cpu = append(*side.cpu, m.cpu)
		}
		p.row.Warnings = append(p.row.Warnings, m.warnings...)
	}
	return nil
}

func (r *CeilingRow) judge() {
	e := stat.Median(r.Ours)
	if len(r.Limit) > 0 {
		e, _ = stat.PairedRatio(r.Ours, r.Limit)
	}
	r.Estimate, r.Outcome = e.Value, "unclear"
	if !e.HasInterval() {
		return
	}
	r.Lo, r.Hi = &e.Lo, &e.Hi
	above, below := "holds", "missed"
	if r.AtMost {
		above, below = below, above
	}
	switch {
	case r.Void > 0:
	case e.Lo >= r.Target:
		r.Outcome = above
	case e.Hi < r.Target:
		r.Outcome = below
	}
}

// cell is a small cell with some keys set; they are written here, so a wrong one is a bug.
func (c Ceiling) cell(seed uint64, broker map[string]string, keys ...string) Cell {
	p := DefaultParams()
	p.Measure, p.Warmup, p.NoLimits, p.DataBytes = c.Measure, c.Measure/5, true, 1<<30
	for i := 0; i < len(keys); i += 2 {
		if err := p.Set(keys[i], keys[i+1]); err != nil {
			panic("BUG: " + err.Error())
		}
	}
	return Cell{Workload: p, Broker: broker, Dir: c.Dir, Binary: c.Binary, Seed: seed}
}

func (c Ceiling) pairs() []pair {
	var pairs []pair
	for _, level := range []struct {
		validate string
		target   float64
	}{{"batch", 0.80}, {"records", 0.55}} {
		for _, batch := range []string{"64KiB", "1MiB"} {
			pairs = append(pairs, c.bare(fmt.Sprintf("raw produce, 100 B records, %s batches, lab.validate=%s / receive→pwrite", batch, level.validate), level.target,
				map[string]string{"lab.validate": level.validate}, "kind", "produce", "batch_bytes", batch))
		}
	}
	for _, depth := range []string{"1", "2"} {
		pairs = append(pairs, c.bare(fmt.Sprintf("raw consume, warm, sendfile, 1 MiB fetches, %s in flight / request→sendfile", depth), 0.90,
			nil, "kind", "consume", "inflight", depth, "data_bytes", "256MiB"))
	}
	pairs = append(pairs, c.kgoAgainstSink())
	if c.Disk {
		measure := max(c.Measure, 10*time.Second).String() // a disk's rate comes in bursts and pauses of seconds
		pairs = append(pairs, c.bare("raw produce, 1 MiB batches, disk regime / sequential writes", 0.90, nil, "kind", "produce", "batch_bytes", "1MiB", "regime", "disk", "measure", measure))
	}
	pairs = append(pairs,
		c.absolute("idle broker, resident", "bytes", "broker-rss-bytes", 30e6, nil, "kind", "idle", "partitions", "0"),
		c.absolute("idle broker, start to ready", "sec", "ready-sec", 0.1, nil, "kind", "idle", "partitions", "0"),
		c.absolute("1,000 partitions, reopen after a clean stop", "sec", "reopen-sec", 1, nil, "kind", "idle", "partitions", "1000"),
	)
	return append(pairs, c.recovery()...)
}

// bare compares a cell with its bare loop, in bytes/s.
func (c Ceiling) bare(name string, target float64, broker map[string]string, keys ...string) pair {
	return pair{
		row:  CeilingRow{Name: name, Unit: "bytes/s", Target: target},
		ours: c.cellMetric("bytes/s", broker, keys...),
		limit: func(ctx context.Context, seed uint64) (measured, error) {
			r, err := Limit(ctx, c.cell(seed, nil, keys...))
			return measured{r.Limits["bytes/s"], r.Metrics["bare-loop-cpu-sec/GB"], r.Warnings, r.Throttled}, err
		},
	}
}

// cellMetric runs a cell for one of its metrics.
func (c Ceiling) cellMetric(metric string, broker map[string]string, keys ...string) measure {
	return func(ctx context.Context, seed uint64) (measured, error) {
		r, err := Run(ctx, c.cell(seed, broker, keys...))
		failed := r.failed()
		return measured{r.Metrics[metric], r.Metrics["cpu-sec/GB"], append(r.Warnings, failed...), r.Throttled || len(failed) > 0}, err
	}
}

func (c Ceiling) kgoAgainstSink() pair {
	keys := []string{"kind", "produce", "driver", "kgo", "batch_bytes", "1_000_012", "inflight", "1"}
	return pair{
		row:  CeilingRow{Name: "kgo produce, 100 B records / the same client against a sink", Unit: "records/s", Target: 0.90},
		ours: c.cellMetric("records/s", nil, keys...),
		limit: func(ctx context.Context, seed uint64) (measured, error) {
			cell := c.cell(seed, nil, keys...)
			server, err := limits.StartServer(ctx, c.Binary, limits.ServerConfig{Mode: limits.ModeSink})
			if err != nil {
				return measured{}, err
			}
			defer server.Stop()
			p := &cell.Workload
			w := &load.Window{Warmup: p.Warmup, Measure: p.Measure}
			st, err := p.kgoProduce([]string{server.Addr}, topic, seed, nil).Run(ctx, w)
			return measured{value: st.RecordsPerS()}, err
		},
	}
}

// absolute is a row without a limit beside it: at most target.
func (c Ceiling) absolute(name, unit, metric string, target float64, broker map[string]string, keys ...string) pair {
	return pair{
		row:  CeilingRow{Name: name, Unit: unit, Target: target, AtMost: true},
		ours: c.cellMetric(metric, broker, keys...),
	}
}

// recovery shows what the time to open after a kill depends on: with the same
// unflushed tail it must not grow with the log. The tail's own cost is shown beside it.
func (c Ceiling) recovery() []pair {
	open := func(data, tail string) measure {
		return c.cellMetric("recovery-sec", map[string]string{"log.segment.bytes": "67108864"},
			"kind", "recovery", "data_bytes", data, "unflushed_bytes", tail, "measure", "50ms")
	}
	return []pair{
		{row: CeilingRow{Name: "open after kill -9, 32 MiB unflushed: 512 MiB log / 64 MiB log", Unit: "sec", Target: 1.5, AtMost: true},
			ours: open("512MiB", "32MiB"), limit: open("64MiB", "32MiB")},
		{row: CeilingRow{Name: "open after kill -9, 512 MiB log: 256 MiB unflushed / 32 MiB", Unit: "sec", Target: 1},
			ours: open("512MiB", "256MiB"), limit: open("512MiB", "32MiB")},
	}
}

// failed lists the checks that did not hold.
func (r *Result) failed() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.Checks)) {
		if why := r.Checks[name]; why != "" {
			out = append(out, "check "+name+" failed: "+why)
		}
	}
	return out
}
