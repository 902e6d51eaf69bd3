package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/harness/limits"
	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/harness/workload"
)

func init() { commands = append(commands, benchCommand) }

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "One-off load on a running broker, and the broker against the machine's ceiling"}
	cmd.AddCommand(benchProduceCommand(), benchConsumeCommand(), benchLatencyCommand(), benchSweepCommand(), benchCeilingCommand(), benchPartitionsCommand())
	return cmd
}

// bench holds what the three loads have in common.
type bench struct {
	workload.Bench
	asJSON bool
	flags  []benchFlag
}

// benchFlag is a flag that sets a key of the workload.
type benchFlag struct {
	name, key string
	value     *string
}

func newBench(cmd *cobra.Command, kind workload.Kind) *bench {
	b := &bench{}
	b.Workload = workload.DefaultParams()
	b.Workload.Kind, b.Workload.Driver = kind, "kgo"
	f := cmd.Flags()
	f.StringSliceVar(&b.Bootstrap, "bootstrap", []string{"127.0.0.1:9092"}, "brokers to begin with, host:port")
	f.StringVar(&b.Topic, "topic", "bench", "topic")
	f.Uint64Var(&b.Seed, "seed", 1, "seed of the payloads")
	f.BoolVar(&b.asJSON, "json", false, "print JSON")
	return b
}

// flag makes a workload key a flag; bytes may be written as 64KiB, durations as 5s.
func (b *bench) flag(cmd *cobra.Command, name, key, value, usage string) {
	b.flags = append(b.flags, benchFlag{name, key, cmd.Flags().String(name, value, usage)})
}

func (b *bench) payloadFlags(cmd *cobra.Command) {
	b.flag(cmd, "driver", "driver", "kgo", "kgo (franz-go, as a program would) or raw (prepared batches)")
	b.flag(cmd, "partitions", "partitions", "1", "partitions, where the topic is created")
	b.flag(cmd, "record-bytes", "record_bytes", "100", "value of one record")
	b.flag(cmd, "batch-bytes", "batch_bytes", "64KiB", "largest batch")
	b.flag(cmd, "batch-records", "batch_records", "0", "records of a batch; 0: as many as fit")
	b.flag(cmd, "entropy", "entropy", "8", "bits per payload byte, 0 to 8")
	b.flag(cmd, "acks", "acks", "1", "0, 1 or all")
	b.flag(cmd, "codec", "codec", "none", "none, gzip, snappy, lz4 or zstd")
	b.flag(cmd, "linger-ms", "linger_ms", "0", "how long the client waits for a batch to fill")
	b.flag(cmd, "inflight", "inflight", "2", "requests in flight")
	b.flag(cmd, "warmup", "warmup", "1s", "time before measuring")
	b.flag(cmd, "duration", "measure", "10s", "time measured")
}

// apply sets the workload from the flags.
func (b *bench) apply() error {
	for _, f := range b.flags {
		if err := b.Workload.Set(f.key, *f.value); err != nil {
			return fmt.Errorf("--%s %s: %w", f.name, *f.value, cmp.Or(errors.Unwrap(err), err))
		}
	}
	return nil
}

func (b *bench) run(cmd *cobra.Command) error {
	if err := b.apply(); err != nil {
		return err
	}
	live := newLive(os.Stderr)
	b.OnTick = live.tick
	r, err := b.Bench.Run(cmd.Context())
	live.end()
	if err != nil {
		return err
	}
	for _, w := range r.Warnings {
		fmt.Fprintln(os.Stderr, "warning:", w)
	}
	if !b.asJSON {
		printMetrics(os.Stdout, r.Metrics)
	} else if err := printJSON(r.Metrics); err != nil {
		return err
	}
	var failed []string
	for name, why := range r.Checks {
		if why != "" {
			failed = append(failed, name+": "+why)
		}
	}
	if len(failed) > 0 {
		return errors.New("check failed: " + strings.Join(failed, "; "))
	}
	return nil
}

func benchProduceCommand() *cobra.Command {
	var b *bench
	cmd := &cobra.Command{
		Use: "produce", Short: "Produce as fast as it goes, or at a fixed rate", Args: cobra.NoArgs,
		Example: `  tidemark bench produce --topic t --record-bytes 100 --acks 1 --duration 10s
  tidemark bench produce --driver raw --batch-bytes 1MiB --inflight 2`,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd) },
	}
	b = newBench(cmd, workload.Produce)
	b.payloadFlags(cmd)
	b.flag(cmd, "rate", "records_per_s", "0", "records per second; 0: as fast as it goes")
	return cmd
}

func benchConsumeCommand() *cobra.Command {
	var b *bench
	cmd := &cobra.Command{
		Use: "consume", Short: "Consume what a topic holds, once", Args: cobra.NoArgs,
		Example: `  tidemark bench consume --topic t --driver raw --fetch-bytes 1MiB --inflight 2`,
		RunE:    func(cmd *cobra.Command, _ []string) error { return b.run(cmd) },
	}
	b = newBench(cmd, workload.Consume)
	b.flag(cmd, "driver", "driver", "kgo", "kgo (franz-go, as a program would) or raw (reads batch headers only)")
	b.flag(cmd, "fetch-bytes", "fetch_bytes", "1MiB", "largest answer to one fetch")
	b.flag(cmd, "inflight", "inflight", "2", "fetches in flight for each partition (raw)")
	b.flag(cmd, "verify", "verify", "false", "check the CRC of each batch (raw; franz-go always does)")
	cmd.Flags().Int64Var(&b.Records, "records", 0, "records to read (kgo); 0: all that is there now")
	return cmd
}

func benchLatencyCommand() *cobra.Command {
	var b *bench
	cmd := &cobra.Command{
		Use: "latency", Short: "Time from send to acknowledgement and to delivery, at a fixed rate", Args: cobra.NoArgs,
		Long: `Produce at a fixed rate and consume at the same time, with franz-go. Latency is
taken from the moment a record was meant to be sent, so a stall shows in every
record that was due meanwhile.`,
		Example: `  tidemark bench latency --topic t --rate 1000 --duration 10s`,
		RunE:    func(cmd *cobra.Command, _ []string) error { return b.run(cmd) },
	}
	b = newBench(cmd, workload.EndToEnd)
	b.payloadFlags(cmd)
	b.flag(cmd, "rate", "records_per_s", "1000", "records per second")
	cmd.Flags().MarkHidden("driver") // the raw driver knows only topics that it filled itself
	return cmd
}

func benchSweepCommand() *cobra.Command {
	var b *bench
	var low float64
	cmd := &cobra.Command{
		Use: "sweep", Short: "Produce faster and faster until the rate is no longer sustained", Args: cobra.NoArgs,
		Example: `  tidemark bench sweep --driver raw --batch-records 10 --inflight 16 --from 10000 --warmup 500ms --duration 2s`,
	}
	b = newBench(cmd, workload.Produce)
	b.payloadFlags(cmd)
	cmd.Flags().Float64Var(&low, "from", 1000, "records per second to begin with")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := b.apply(); err != nil {
			return err
		}
		if low <= 0 {
			return errors.New("--from must be more than 0")
		}
		var points []load.Point
		if !b.asJSON {
			fmt.Printf("%14s  %14s  %12s  %12s\n", "asked, rec/s", "reached", "p50", "p99")
		}
		knee, err := b.Sweep(cmd.Context(), low, func(p load.Point) {
			points = append(points, p)
			if !b.asJSON {
				fmt.Printf("%14.0f  %14.0f  %9.3f ms  %9.3f ms\n", p.Asked, p.Reached, p.P50.Seconds()*1e3, p.P99.Seconds()*1e3)
			}
		})
		if err != nil {
			return err
		}
		if b.asJSON {
			return printJSON(map[string]any{"points": points, "knee_records_per_s": knee})
		}
		fmt.Printf("the knee: %.0f records/s sustained\n", knee)
		return nil
	}
	return cmd
}

func benchCeilingCommand() *cobra.Command {
	var asJSON bool
	var only, diskRate string
	c := workload.Ceiling{Repeats: 8, Measure: time.Second, Seed: 1}
	cmd := &cobra.Command{
		Use: "ceiling", Short: "The broker against the machine's and the client's own ceiling, interleaved", Args: cobra.NoArgs,
		Long: `Start brokers and the bare loops they are held against, by turns and in random
order, and give the ratio of each pair with its 95 % interval (exact signed-rank,
from 6 repeats on). The bare loops serve in a process of their own, as the
broker does, and are driven by the same driver at the same depth.

With --disk the disk is left as fast as it is. One that takes more than the
processors can write shows them and not itself, and its row stays unclear. Hold
it to less with --disk-rate: that limits what the whole machine writes to it
(cgroup version 1) or what tidemark does (version 2) while it is measured.

Exit status 0 only when every interval lies on the right side of its target.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkMeasuring(c.Repeats, c.Measure); err != nil {
				return err
			}
			var err error
			if only != "" {
				if c.Only, err = regexp.Compile(only); err != nil {
					return fmt.Errorf("--only %s: %w", only, err)
				}
			}
			if diskRate != "" {
				if c.DiskRate, err = workload.ParseBytes(diskRate); err == nil && c.DiskRate < diskRateMin {
					err = errors.New("must be at least 1MiB")
				}
				if err != nil {
					return fmt.Errorf("--disk-rate %s: %w", diskRate, err)
				}
				c.Disk = true
			}
			dir, cleanup, err := scratchDir(c.Dir)
			if err != nil {
				return err
			}
			defer cleanup()
			c.Dir = dir
			if c.Binary, err = os.Executable(); err != nil {
				return err
			}
			bar := newProgress(os.Stderr)
			c.Progress = bar.step
			rows, err := c.Run(cmd.Context())
			bar.end()
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(rows)
			} else {
				printCeiling(os.Stdout, rows, isTerminal(os.Stdout))
			}
			count := map[string]int{}
			for _, r := range rows {
				count[r.Outcome]++
			}
			if err == nil && count["holds"] < len(rows) {
				err = fmt.Errorf("of %d targets %d hold, %d were missed and %d are unclear: more --repeats or a quieter machine narrow the intervals",
					len(rows), count["holds"], count["missed"], count["unclear"])
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print JSON, with every value")
	f.StringVar(&c.Dir, "dir", "", "directory on the disk to use (default: the current one)")
	f.StringVar(&only, "only", "", "measure only the rows whose name matches this regular expression")
	f.IntVar(&c.Repeats, "repeats", c.Repeats, "how often to measure each pair")
	f.DurationVar(&c.Measure, "measure", c.Measure, "how long one measurement takes")
	f.BoolVar(&c.Disk, "disk", false, "the disk regime too: three times a repeat, writes up to 2.5 times the kernel's dirty limit and for 10 s more; 10 to 30 GB each on a machine of 24 GB")
	f.StringVar(&diskRate, "disk-rate", "", "--disk with the disk held to so many bytes per second, like 500MiB; root and cgroups needed")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "seed of order and payloads")
	return cmd
}

// diskRateMin keeps a limit from being one under which nothing ends: at that rate the memory of a small machine is drained in hours.
const diskRateMin = 1 << 20

func printJSON(v any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// benchLines are the metrics that a load prints, in this order.
var benchLines = []struct{ metric, label string }{
	{"records/s", "records/s"}, {"bytes/s", "batch bytes/s"}, {"payload-bytes/s", "payload bytes/s"}, {"requests/s", "requests/s"},
	{"records/batch", "records in a batch"}, {"ack-p50-sec", "acknowledged, p50"}, {"ack-p99-sec", "acknowledged, p99"},
	{"p50-sec", "latency p50"}, {"p99-sec", "latency p99"}, {"p999-sec", "latency p99.9"}, {"max-sec", "latency max"},
}

func printMetrics(w io.Writer, m map[string]float64) {
	for _, line := range benchLines {
		v, ok := m[line.metric]
		if _, both := m["ack-p50-sec"]; both { // the other latencies are those of delivery
			line.label = strings.Replace(line.label, "latency", "delivered,", 1)
		}
		switch {
		case !ok:
		case strings.HasSuffix(line.metric, "-sec"):
			fmt.Fprintf(w, "%-20s %12.3f ms\n", line.label, v*1e3)
		case strings.HasSuffix(line.metric, "bytes/s"):
			fmt.Fprintf(w, "%-20s %12.1f MB/s\n", line.label, v/1e6)
		default:
			fmt.Fprintf(w, "%-20s %12.0f\n", line.label, v)
		}
	}
}

func printCeiling(w io.Writer, rows []workload.CeilingRow, colour bool) {
	for _, r := range rows {
		mark := fmt.Sprintf("%-7s", r.Outcome)
		if colour {
			mark = "\x1b[" + map[string]string{"holds": "32", "missed": "31", "unclear": "33"}[r.Outcome] + ";1m" + mark + "\x1b[0m"
		}
		relation := "≥"
		if r.AtMost {
			relation = "≤"
		}
		interval := "(too few repeats for an interval)"
		if r.Lo != nil {
			interval = fmt.Sprintf("[%.3g, %.3g]", *r.Lo, *r.Hi)
		}
		fmt.Fprintf(w, "%s  %s\n", mark, r.Name)
		if len(r.Limit) > 0 {
			fmt.Fprintf(w, "        ratio %.3g %s, target %s %g;  %s against %s (medians of %d)\n", r.Estimate, interval, relation, r.Target,
				quantity(median(r.Ours), r.Unit), quantity(median(r.Limit), r.Unit), len(r.Ours))
		} else {
			fmt.Fprintf(w, "        %s %s, target %s %s (median of %d)\n", quantity(r.Estimate, r.Unit), interval, relation, quantity(r.Target, r.Unit), len(r.Ours))
		}
		if len(r.OursCPU) > 0 && len(r.LimitCPU) > 0 {
			fmt.Fprintf(w, "        the server's CPU: %.3g against %.3g sec/GB\n", median(r.OursCPU), median(r.LimitCPU))
		}
		for _, warning := range distinct(r.Warnings) {
			fmt.Fprintf(w, "        warning: %s\n", warning)
		}
	}
}

func median(v []float64) float64 { return limits.Row{Values: v}.Median() }

func quantity(v float64, unit string) string {
	switch unit {
	case "sec":
		if v >= 1 {
			return fmt.Sprintf("%.0f ms", v*1e3)
		}
		return fmt.Sprintf("%.3g ms", v*1e3)
	case "bytes":
		return fmt.Sprintf("%.1f MB", v/1e6)
	}
	return limits.Rate(v, unit)
}

func distinct(lines []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, l := range lines {
		if !seen[l] && len(out) < 3 {
			out = append(out, l)
		}
		seen[l] = true
	}
	return out
}

// live shows a load's rate as it goes.
type live struct {
	out  *os.File
	last load.Tick
	line time.Time
}

func newLive(out *os.File) *live { return &live{out: out} }

func (l *live) tick(t load.Tick) {
	every := 250 * time.Millisecond
	if !isTerminal(l.out) {
		every = progressLineEvery
	}
	if time.Since(l.line) < every && l.last.Elapsed > 0 {
		return
	}
	seconds := (t.Elapsed - l.last.Elapsed).Seconds()
	text := fmt.Sprintf("%6.1fs  %12.0f records/s  %9.1f MB/s  %14d records", t.Elapsed.Seconds(),
		float64(t.Records-l.last.Records)/seconds, float64(t.Bytes-l.last.Bytes)/1e6/seconds, t.Records)
	if t.Phase == 0 {
		text += "  (warming up)"
	}
	l.last, l.line = t, time.Now()
	if isTerminal(l.out) {
		fmt.Fprintf(l.out, "\r\x1b[K%s", text)
	} else {
		fmt.Fprintln(l.out, text)
	}
}

func (l *live) end() {
	if isTerminal(l.out) {
		fmt.Fprint(l.out, "\r\x1b[K")
	}
}
