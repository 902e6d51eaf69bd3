package report

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/plots"
	"github.com/tidemark-log/tidemark/harness/result"
	"github.com/tidemark-log/tidemark/harness/stat"
	"github.com/tidemark-log/tidemark/internal/words"
)

// quantity is how people call a metric, and its unit.
type quantity struct {
	name string
	unit plots.Unit
}

// quantities names the metrics that need more than their suffix says.
var quantities = map[string]quantity{
	"bytes/s":                 {"Throughput", plots.Unit{Symbol: "B/s"}},
	"payload-bytes/s":         {"Payload throughput", plots.Unit{Symbol: "B/s"}},
	"append-bytes/s":          {"Append throughput", plots.Unit{Symbol: "B/s"}},
	"records/s":               {"Records per second", plots.Unit{}},
	"append-records/s":        {"Records appended per second", plots.Unit{}},
	"requests/s":              {"Requests per second", plots.Unit{}},
	"reads/s":                 {"Reads per second", plots.Unit{}},
	"ops/s":                   {"Operations per second", plots.Unit{}},
	"p50-sec":                 {"Latency, median", plots.Unit{Symbol: "s"}},
	"p99-sec":                 {"Latency, 99th percentile", plots.Unit{Symbol: "s"}},
	"p999-sec":                {"Latency, 99.9th percentile", plots.Unit{Symbol: "s"}},
	"max-sec":                 {"Latency, largest", plots.Unit{Symbol: "s"}},
	"ack-p50-sec":             {"Time to acknowledgement, median", plots.Unit{Symbol: "s"}},
	"ack-p99-sec":             {"Time to acknowledgement, 99th percentile", plots.Unit{Symbol: "s"}},
	"append-p99-sec":          {"Append latency, 99th percentile", plots.Unit{Symbol: "s"}},
	"read-p50-sec":            {"Read latency, median", plots.Unit{Symbol: "s"}},
	"read-p99-sec":            {"Read latency, 99th percentile", plots.Unit{Symbol: "s"}},
	"seek-p50-sec":            {"Time to find and fetch, median", plots.Unit{Symbol: "s"}},
	"seek-p99-sec":            {"Time to find and fetch, 99th percentile", plots.Unit{Symbol: "s"}},
	"recovery-sec":            {"Time from start to ready", plots.Unit{Symbol: "s"}},
	"ready-sec":               {"Time from start to ready", plots.Unit{Symbol: "s"}},
	"reopen-sec":              {"Time to open again", plots.Unit{Symbol: "s"}},
	"cpu-sec/GB":              {"Broker CPU time per gigabyte", plots.Unit{Symbol: "s/GB", Prefix: plots.None}},
	"client-cpu-sec/GB":       {"Client CPU time per gigabyte", plots.Unit{Symbol: "s/GB", Prefix: plots.None}},
	"cpu-share":               {"CPUs the broker kept busy", plots.Unit{Prefix: plots.None}},
	"copied-bytes/byte":       {"Bytes copied per byte produced or delivered", plots.Unit{Prefix: plots.None}},
	"syscalls/MB":             {"System calls per megabyte", plots.Unit{}},
	"ctx-switches/s":          {"Context switches per second", plots.Unit{}},
	"broker-rss-bytes":        {"Resident memory of the broker", plots.Unit{Symbol: "B", Prefix: plots.IEC}},
	"device-read-bytes/s":     {"Read from the device", plots.Unit{Symbol: "B/s"}},
	"device-write-bytes/s":    {"Written to the device", plots.Unit{Symbol: "B/s"}},
	"wire-bytes/payload-byte": {"Bytes on the wire per byte of payload", plots.Unit{Prefix: plots.None}},
	"disk-bytes/payload-byte": {"Bytes on disk per byte of payload", plots.Unit{Prefix: plots.None}},
	"disk-bytes/byte":         {"Bytes on disk per byte appended", plots.Unit{Prefix: plots.None}},
	"index-bytes":             {"Index on disk", plots.Unit{Symbol: "B", Prefix: plots.IEC}},
	"index-bytes/GB":          {"Index per gigabyte of log", plots.Unit{Symbol: "B"}},
	"log-bytes":               {"Log on disk", plots.Unit{Symbol: "B", Prefix: plots.IEC}},
	"acked-records":           {"Records acknowledged", plots.Unit{Prefix: plots.None}},
	"lost-acked-records":      {"Acknowledged records lost", plots.Unit{Prefix: plots.None}},
	"lost-sent-records":       {"Records lost", plots.Unit{Prefix: plots.None}},
	"duplicated-records":      {"Records duplicated", plots.Unit{Prefix: plots.None}},
	"acked-records/s":         {"Records acknowledged per second", plots.Unit{}},
	"unavailable-sec":         {"Longest time without an acknowledgement", plots.Unit{Symbol: "s"}},
	"unavailable/bound":       {"Unavailable time / (session timeout + tick + 0.5 s)", plots.Unit{Prefix: plots.None}},
	"in-sync-again-sec":       {"From the second start to all copies in sync", plots.Unit{Symbol: "s"}},
	"under-replicated-sec":    {"From the kill to all copies in sync", plots.Unit{Symbol: "s"}},
	"failover-sec":            {"From the kill to the last partition served", plots.Unit{Symbol: "s"}},
	"failover/bound":          {"Failover time / (session timeout + tick + 0.5 s)", plots.Unit{Prefix: plots.None}},
	"detect-sec":              {"From the kill to the end of its session", plots.Unit{Symbol: "s"}},
	"election-sec":            {"From the end of the session to the last partition served", plots.Unit{Symbol: "s"}},
	"election-sec/partition":  {"Election time per partition", plots.Unit{Symbol: "s"}},
	"election/published":      {"Election time / 5 ms a partition (published in 2015)", plots.Unit{Prefix: plots.None}},
	"create-sec":              {"Time to create the topic", plots.Unit{Symbol: "s"}},
	"busiest-share":           {"Share of the busiest broker", plots.Unit{Prefix: plots.None}},
	"near-p50-sec":            {"Age at the leader's side, median", plots.Unit{Symbol: "s"}},
	"near-p99-sec":            {"Age at the leader's side, 99th percentile", plots.Unit{Symbol: "s"}},
}

// noteWords says a metric in few words, before its value.
var noteWords = map[string]string{
	"unavailable-sec": "nobody could write for", "lost-acked-records": "lost:", "duplicated-records": "twice:", "in-sync-again-sec": "in sync again after",
}

// noteOf writes a metric's value for the side of a strip.
func noteOf(metric string, v float64) string {
	q := quantityOf(metric)
	return cmp.Or(noteWords[metric], q.name+":") + " " + q.unit.Format(v)
}

// quantityOf names a metric; one that has no entry speaks for itself.
func quantityOf(metric string) quantity {
	if q, ok := quantities[metric]; ok {
		return q
	}
	switch {
	case strings.HasSuffix(metric, "bytes/s"):
		return quantity{metric, plots.Unit{Symbol: "B/s"}}
	case strings.HasSuffix(metric, "-sec"):
		return quantity{metric, plots.Unit{Symbol: "s"}}
	case strings.HasSuffix(metric, "-bytes"):
		return quantity{metric, plots.Unit{Symbol: "B", Prefix: plots.IEC}}
	}
	return quantity{metric, plots.Unit{}}
}

// factorNames says how people call a factor.
var factorNames = map[string]string{
	"batch_records": "records per batch", "batch_bytes": "bytes per batch", "record_bytes": "bytes per record",
	"fetch_bytes": "bytes per fetch", "data_bytes": "data", "chunk_bytes": "bytes per request", "inflight": "requests in flight",
	"linger_ms": "linger (ms)", "entropy": "entropy of the payload (bits per byte)", "acks": "acks", "codec": "codec",
	"cache_state": "state of the cache", "memory_limit": "memory limit", "partitions": "partitions", "driver": "driver",
	"lab.fetch.transfer": "transfer", "lab.cache": "cache", "lab.offsets": "offsets", "lab.visibility": "visible",
	"lab.storage.engine": "engine", "lab.validate": "validation", "log.index.interval.bytes": "bytes between index entries",
	"lab.read.from": "read from", "replication_factor": "copies of each partition", "victim": "who is killed", "producer": "producer",
	"flush": "flush policy", "store": "store", "broker": "broker", "link": "link", "load": "load", "kind": "what runs",
}

func factorName(factor string) string {
	if name, ok := factorNames[factor]; ok {
		return name
	}
	return factor
}

// number writes an estimate with its interval: "1.23 GB/s (1.2–1.26)".
func number(unit plots.Unit, n result.Number) string {
	e := n.Estimate()
	return unit.FormatInterval(e.Value, e.Lo, e.Hi)
}

var times = plots.Unit{Symbol: "×", Prefix: plots.None}

// Ratio writes a verdict's ratio with its interval.
func Ratio(n result.Number) string { return number(times, n) }

// Outcome writes what a verdict rests on: a ratio with its interval, or the worst of all samples.
func Outcome(v result.VerdictSummary) string {
	test, err := experiments.ParseTest(v.Test)
	if err != nil || !test.Every {
		return Ratio(v.Ratio)
	}
	return number(quantityOf(test.Metric).unit, v.Ratio) + " at worst in " + words.Count(v.Ratio.N, "repeat")
}

// levelName writes a factor's level as text for people: 4096 of a size is 4 KiB.
func levelName(factor, level string) string {
	if !strings.HasSuffix(factor, "bytes") || strings.HasPrefix(factor, "link") {
		return group(level)
	}
	if v, ok := numeric(level); ok && v >= 1024 {
		return plots.Unit{Symbol: "B", Prefix: plots.IEC}.Format(v)
	}
	for _, unit := range []string{"KiB", "MiB", "GiB"} {
		if n, ok := strings.CutSuffix(level, unit); ok {
			return n + "\u00a0" + unit
		}
	}
	return level
}

func group(level string) string {
	if v, err := strconv.ParseInt(level, 10, 64); err == nil && v >= 10_000 {
		return plots.Unit{Prefix: plots.None}.Format(float64(v))
	}
	return level
}

// numeric reads a level as a number: 100, 2.5, 64KiB.
func numeric(level string) (float64, bool) {
	factor := 1.0
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if n, ok := strings.CutSuffix(level, unit); ok {
			level, factor = n, float64(int64(1)<<(10*(i+1)))
		}
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(level), 64)
	return v * factor, err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// badge is a verdict's class and word in the page.
func badge(v stat.Verdict) string {
	switch v {
	case stat.Supported:
		return "supported"
	case stat.Refuted:
		return "refuted"
	case stat.Inconclusive:
		return "inconclusive"
	}
	return "estimate"
}
