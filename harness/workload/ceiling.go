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
// all in one run, interleaved: every repeat measures each comparison once, in a random
// order, and the sides of a comparison right after each other, in a random order too.
type Ceiling struct {
	Binary   string
	Dir      string
	Repeats  int
	Measure  time.Duration
	Seed     uint64
	Disk     bool           // the disk regime too: it writes several times the kernel's dirty limit
	DiskRate int64          // what the disk is held to in the disk regime, bytes/s; 0: it is left as fast as it is
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
	// Void counts measurements that failed a check or were not in their regime; then the outcome is unclear.
	Void int `json:"void,omitempty"`
}

// comparison measures one thing of ours and what it is held against, each against in a row of its own.
type comparison struct {
	ours    measure
	against []against
	// note, when set, says of the judged rows what only all of them together show.
	note func(rows []CeilingRow)
}

// against is one limit. limit is nil for an absolute row.
type against struct {
	row   CeilingRow
	limit measure
}

type measure func(ctx context.Context, seed uint64) (measured, error)

type measured struct {
	value    float64
	cpu      float64 // sec/GB of the server; 0: not known
	warnings []string
	void     bool // it failed a check, or was not in its regime
}

// Run measures everything.
func (c Ceiling) Run(ctx context.Context) ([]CeilingRow, error) {
	all := slices.DeleteFunc(c.comparisons(), func(p comparison) bool { return !slices.ContainsFunc(p.against, c.wants) })
	if len(all) == 0 {
		return nil, fmt.Errorf("workload: no row of the ceiling matches %q", c.Only)
	}
	if err := c.canHold(); err != nil { // now, and not after minutes
		return nil, err
	}
	rng := load.NewRand(c.Seed, 0xce11)
	for repeat := range c.Repeats {
		for n, i := range rng.Perm(len(all)) {
			p := &all[i]
			if c.Progress != nil {
				c.Progress(repeat*len(all)+n, c.Repeats*len(all), p.against[0].row.Name)
			}
			if err := p.once(ctx, rng.Uint64(), rng.Perm(1+len(p.against))); err != nil {
				return nil, fmt.Errorf("%s: %w", p.against[0].row.Name, err)
			}
		}
	}
	var rows []CeilingRow
	for _, p := range all {
		p.judge()
		for _, a := range p.against {
			if c.wants(a) { // of rows that share a measurement, one may be asked for alone
				rows = append(rows, a.row)
			}
		}
	}
	return rows, nil
}

func (c Ceiling) wants(a against) bool { return c.Only == nil || c.Only.MatchString(a.row.Name) }

// once measures ours and each limit once. order has 0 for ours and n for the nth limit.
func (p *comparison) once(ctx context.Context, seed uint64, order []int) error {
	for _, n := range order {
		if n == 0 {
			m, err := p.ours.once(ctx, seed)
			if err != nil {
				return err
			}
			for i := range p.against {
				row := &p.against[i].row
				row.take(m, &row.Ours, &row.OursCPU)
			}
		} else if a := &p.against[n-1]; a.limit != nil {
			m, err := a.limit.once(ctx, seed)
			if err != nil {
				return err
			}
			a.row.take(m, &a.row.Limit, &a.row.LimitCPU)
		}
	}
	return nil
}

func (run measure) once(ctx context.Context, seed uint64) (measured, error) {
	m, err := run(ctx, seed)
	if err == nil && !(m.value > 0) {
		err = fmt.Errorf("a measurement gave no number: %v", m.value)
	}
	return m, err
}

// take adds one measurement to a side.
func (r *CeilingRow) take(m measured, values, cpu *[]float64) {
	if m.void {
		r.Void++
	}
	*values = append(*values, m.value)
	if m.cpu > 0 {
		*cpu = append(*cpu, m.cpu)
	}
	r.Warnings = append(r.Warnings, m.warnings...)
}

func (p *comparison) judge() {
	rows := make([]CeilingRow, len(p.against))
	for i := range rows {
		rows[i] = p.against[i].row
		rows[i].judge()
	}
	if p.note != nil {
		p.note(rows)
	}
	for i := range rows {
		p.against[i].row = rows[i]
	}
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

func (c Ceiling) comparisons() []comparison {
	var all []comparison
	for _, level := range []struct {
		validate string
		target   float64
	}{{"batch", bareWriteTarget}, {"records", 0.55}} {
		for _, batch := range []string{"64KiB", "1MiB"} {
			all = append(all, c.bare(fmt.Sprintf("raw produce, 100 B records, %s batches, lab.validate=%s / receive→pwrite", batch, level.validate), level.target,
				map[string]string{"lab.validate": level.validate}, "kind", "produce", "batch_bytes", batch))
		}
	}
	for _, depth := range []string{"1", "2"} {
		all = append(all, c.bare(fmt.Sprintf("raw consume, warm, sendfile, 1 MiB fetches, %s in flight / request→sendfile", depth), 0.90,
			nil, "kind", "consume", "inflight", depth, "data_bytes", "256MiB"))
	}
	all = append(all, c.kgoAgainstSink())
	if c.Disk {
		all = append(all, c.disk())
	}
	all = append(all,
		c.absolute("idle broker, resident", "bytes", "broker-rss-bytes", 30e6, nil, "kind", "idle", "partitions", "0"),
		c.absolute("idle broker, start to ready", "sec", "ready-sec", 0.1, nil, "kind", "idle", "partitions", "0"),
		c.absolute("1,000 partitions, reopen after a clean stop", "sec", "reopen-sec", 1, nil, "kind", "idle", "partitions", "1000"),
	)
	return append(all, c.recovery()...)
}

// single compares ours with one limit.
func single(row CeilingRow, ours, limit measure) comparison {
	return comparison{ours: ours, against: []against{{row, limit}}}
}

// bareWriteTarget is of the bare loop that receives and writes, whatever it writes to: what a broker does beside it is the same work for a request.
const bareWriteTarget = 0.80

// bare compares a cell with its bare loop, in bytes/s.
func (c Ceiling) bare(name string, target float64, broker map[string]string, keys ...string) comparison {
	return single(CeilingRow{Name: name, Unit: "bytes/s", Target: target}, c.cellMetric("bytes/s", broker, keys...), c.limitOf(Limit, "bytes/s", keys...))
}

// limitOf measures a cell's limit on a metric.
func (c Ceiling) limitOf(limit func(context.Context, Cell) (Result, error), metric string, keys ...string) measure {
	return func(ctx context.Context, seed uint64) (measured, error) {
		r, err := limit(ctx, c.cell(seed, nil, keys...))
		return measured{r.Limits[metric], r.Metrics["bare-loop-cpu-sec/GB"], r.Warnings, r.Throttled || r.Unfilled}, err
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

func (c Ceiling) kgoAgainstSink() comparison {
	keys := []string{"kind", "produce", "driver", "kgo", "batch_bytes", "1_000_012", "inflight", "1"}
	return single(
		CeilingRow{Name: "kgo produce, 100 B records / the same client against a sink", Unit: "records/s", Target: 0.90},
		c.cellMetric("records/s", nil, keys...),
		func(ctx context.Context, seed uint64) (measured, error) {
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
		})
}

// absolute is a row without a limit beside it: at most target.
func (c Ceiling) absolute(name, unit, metric string, target float64, broker map[string]string, keys ...string) comparison {
	return single(CeilingRow{Name: name, Unit: unit, Target: target, AtMost: true}, c.cellMetric(metric, broker, keys...), nil)
}

// recovery shows what the time to open after a kill depends on: with the same
// unflushed tail it must not grow with the log. The tail's own cost is shown beside it.
func (c Ceiling) recovery() []comparison {
	open := func(data, tail string) measure {
		return c.cellMetric("recovery-sec", map[string]string{"log.segment.bytes": "67108864"},
			"kind", "recovery", "data_bytes", data, "unflushed_bytes", tail, "measure", "50ms")
	}
	return []comparison{
		single(CeilingRow{Name: "open after kill -9, 32 MiB unflushed: 512 MiB log / 64 MiB log", Unit: "sec", Target: 1.5, AtMost: true},
			open("512MiB", "32MiB"), open("64MiB", "32MiB")),
		single(CeilingRow{Name: "open after kill -9, 512 MiB log: 256 MiB unflushed / 32 MiB", Unit: "sec", Target: 1},
			open("512MiB", "256MiB"), open("512MiB", "32MiB")),
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
