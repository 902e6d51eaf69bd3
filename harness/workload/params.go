package workload

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is what a cell does.
type Kind string

// The kinds, and the metrics each gives (MetricNames has the whole list). Where a
// part is measured over time, all also give what the sampler saw of the broker
// process meanwhile: "cpu-sec/GB", "cpu-share", "broker-rss-bytes", "ctx-switches/s",
// "device-read-bytes/s", "device-write-bytes/s", and from the broker's own
// counters "copied-bytes/byte", "syscalls/MB". What a bare loop cost its server
// is "bare-loop-cpu-sec/GB".
const (
	// Produce sends for Warmup+Measure: "bytes/s" (record batches as sent),
	// "payload-bytes/s" (before compression), "records/s", "requests/s", "p50-sec", "p99-sec", "p999-sec", "max-sec".
	// Limits: "bytes/s" of the bare receive→pwrite loop at the same request size and depth.
	Produce Kind = "produce"
	// Consume fills DataBytes, brings the cache into CacheState and reads it all
	// once (warm: again and again until Measure has passed): "bytes/s", "records/s", "requests/s", "p50-sec", "p99-sec".
	// Limits: "bytes/s" of the bare request→sendfile loop at the same FetchBytes and depth, or of the loop that
	// does pread and write, or write from memory, where that is what the cell's transfer and cache do.
	Consume Kind = "consume"
	// EndToEnd produces at RecordsPerS and consumes at the same time: "bytes/s", "records/s", the
	// time from intended send to delivery "p50-sec", "p99-sec", "p999-sec", and to acknowledgement "ack-p50-sec", "ack-p99-sec".
	EndToEnd Kind = "end-to-end"
	// Compression produces with Codec and Entropy through a link of LinkBytesPerS: metrics of
	// Produce, and "wire-bytes/payload-byte", "disk-bytes/payload-byte", "client-cpu-sec/GB".
	Compression Kind = "compression"
	// Device reads or writes a preallocated file: Access sequential|random, Direction read|write, IO buffered|direct,
	// ChunkBytes, DataBytes: "bytes/s", "ops/s", "p50-sec", "p99-sec". No broker.
	Device Kind = "device"
	// Growth appends DataBytes and measures its end, a tenth or 16 MiB (half at most): "append-bytes/s", "append-records/s", "append-p99-sec",
	// then reads at random offsets: "read-p50-sec", "read-p99-sec", "reads/s", and "disk-bytes/byte".
	// Checks: "offsets-contiguous", "size-reached" (nine tenths of DataBytes, in the time that filling may take).
	Growth Kind = "growth"
	// Loss produces numbered records with Acks, kills the broker with -9 at a random moment, starts it again
	// and reads back: "records/s", "acked-records", "lost-acked-records", "lost-sent-records", "recovery-sec".
	// Checks: "no-acked-record-lost" (acks=0 acknowledges nothing), "offsets-contiguous".
	Loss Kind = "loss"
	// Recovery fills DataBytes, of which UnflushedBytes after the last flush, kills the broker and starts it again:
	// "recovery-sec", "index-bytes", "log-bytes", "index-bytes/GB"; then fetches single batches at random offsets: "seek-p50-sec", "seek-p99-sec".
	Recovery Kind = "recovery"
	// Idle starts a broker and lets it be; with Partitions > 0 it creates them, closes cleanly and opens again:
	// "broker-rss-bytes", "ready-sec", "reopen-sec".
	Idle Kind = "idle"

	// The last three run on clusters alone.

	// LeaderKill produces numbered records at RecordsPerS for Measure, through one client that retries, to partitions that one broker leads.
	// After KillAfter that broker is killed with -9, and RestartAfter later started again: "unavailable-sec" (the longest time without an
	// acknowledgement), "unavailable/bound" (its ratio to the session timeout, a tick and half a second), "lost-acked-records", "duplicated-records", "acked-records",
	// "sent-records", "failed-records" (given up by the client), "in-sync-again-sec" (from the second start until all copies are in the ISR), "under-replicated-sec" (from the
	// kill until then), "p50-sec" … "max-sec". Timeline: "acked-records/s". Check: "no-acked-record-lost". The broker killed is not the controller.
	LeaderKill Kind = "leader-kill"
	// Failover kills with -9 the Victim, which leads all partitions and has no load, and asks the others: "failover-sec" (until every partition
	// is served by a new leader), "failover/bound", "detect-sec" (until the victim's session has ended), "first-leader-sec", "election-sec" (from
	// the end of the session to the last partition served), "election-sec/partition", "election/published" (to 5 ms a partition), "create-sec".
	Failover Kind = "failover"
	// RackRead has one franz-go consumer in each broker's rack. Without RecordsPerS each reads DataBytes/ReplicationFactor again and
	// again: metrics of Consume over all of them, "busiest-share" (the largest share of one broker in the bytes delivered), "broker-N-bytes/s". With RecordsPerS they
	// wait at the end of the log: the age of records at delivery, from the intended send, to consumers in followers' racks "p50-sec", "p99-sec", and to the one in the leader's "near-p50-sec", "near-p99-sec".
	RackRead Kind = "rack-read"
)

// Who is killed.
const (
	VictimBroker     = "broker" // one that is not the controller
	VictimController = "controller"
)

// CacheState is what a consumer finds.
type CacheState string

const (
	Warm      CacheState = "warm"      // all of it is in the page cache, the broker has run on
	Cold      CacheState = "cold"      // the broker was restarted and the log files' pages were dropped: no cache holds anything
	Restarted CacheState = "restarted" // the broker was stopped cleanly and started, the page cache was left alone
)

// Regime is what a produce cell writes against.
type Regime string

const (
	// RegimeCache writes into preallocated, pre-touched files, in total below the
	// kernel's background writeback limit: the disk takes no part.
	RegimeCache Regime = "cache"
	// RegimeDisk writes several times the dirty limit: the disk is the limit.
	RegimeDisk Regime = "disk"
)

// Params describes a workload. Keys (see Set) are those of a spec's workload
// and vary tables.
type Params struct {
	Kind Kind // kind

	Driver       string  // driver: raw, kgo; empty: kgo for compression (its client must compress while it is timed), else raw
	Partitions   int     // partitions
	RecordBytes  int     // record_bytes: value of one record
	BatchRecords int     // batch_records: records per batch; 0: what BatchBytes holds
	BatchBytes   int     // batch_bytes: bytes of one batch before compression
	Entropy      float64 // entropy: bits per payload byte, 0…8
	Acks         string  // acks: 0, 1, all
	Codec        string  // codec: none, gzip, snappy, lz4, zstd
	Linger       time.Duration
	Inflight     int     // inflight: requests in flight per connection
	FetchBytes   int     // fetch_bytes: max bytes of one fetch
	DataBytes    int64   // data_bytes: how much there is, or is written
	RecordsPerS  float64 // records_per_s: open loop at this rate; 0: closed loop
	Warmup       time.Duration
	Measure      time.Duration
	CacheState   CacheState // cache_state: warm, cold, restarted
	Regime       Regime     // regime: cache, disk
	MemoryLimit  int64      // memory_limit: bytes, by cgroup, page cache included; 0: none
	Verify       bool       // verify: check the CRC of every batch consumed

	LinkBytesPerS  int64 // link_bytes_per_s: a token bucket in the driver's connection; 0: none
	UnflushedBytes int64 // unflushed_bytes: written after the last flush (recovery)

	Access     string // access: sequential, random (device)
	Direction  string // direction: read, write (device)
	IO         string // io: buffered, direct (device)
	ChunkBytes int    // chunk_bytes (device)

	// Brokers is the size of the cluster, which is a spec's [cluster] brokers and no workload key; above 1, the
	// brokers coordinate through the embedded ZooKeeper, broker N stands in rack N, and the topic's leaders are spread over them.
	Brokers           int
	ReplicationFactor int // replication_factor: copies of each partition; as a key it replaces [cluster] replication_factor

	Idempotence  bool          // idempotence: of the producer (leader-kill)
	KillAfter    time.Duration // kill_after: from the first record (leader-kill)
	RestartAfter time.Duration // restart_after: from the kill (leader-kill)
	Victim       string        // victim: broker, controller (failover)

	// Limits off saves the time of measuring the machine's limit next to the cell. limits: true, false
	NoLimits bool
}

// DefaultParams is what keys that are not set stand for.
func DefaultParams() Params {
	return Params{
		Partitions: 1, RecordBytes: 100, BatchBytes: 64 << 10, Entropy: 8, Acks: "1", Codec: "none",
		Inflight: 2, FetchBytes: 1 << 20, DataBytes: 256 << 20, Warmup: 500 * time.Millisecond, Measure: 2 * time.Second,
		Brokers: 1, ReplicationFactor: 1, Idempotence: true, KillAfter: time.Second, RestartAfter: 7 * time.Second, Victim: VictimBroker,
		CacheState: Warm, Regime: RegimeCache, Access: "sequential", Direction: "read", IO: "buffered", ChunkBytes: 1 << 20,
	}
}

// setters is the one table of keys.
var setters = map[string]func(p *Params, v string) error{
	"kind":          func(p *Params, v string) error { return oneOf((*string)(&p.Kind), v, kinds()...) },
	"driver":        func(p *Params, v string) error { return oneOf(&p.Driver, v, "raw", "kgo") },
	"partitions":    func(p *Params, v string) error { return setInt(&p.Partitions, v, 0, 10_000) },
	"record_bytes":  func(p *Params, v string) error { return setInt(&p.RecordBytes, v, 8, 16<<20) },
	"batch_records": func(p *Params, v string) error { return setInt(&p.BatchRecords, v, 0, 1_000_000) },
	"batch_bytes":   func(p *Params, v string) error { return setInt(&p.BatchBytes, v, 128, 64<<20) },
	"entropy":       func(p *Params, v string) error { return setFloat(&p.Entropy, v, 0, 8) },
	"acks":          func(p *Params, v string) error { return oneOf(&p.Acks, v, "0", "1", "all") },
	"codec":         func(p *Params, v string) error { return oneOf(&p.Codec, v, "none", "gzip", "snappy", "lz4", "zstd") },
	"linger_ms":     setLinger,
	"inflight":      func(p *Params, v string) error { return setInt(&p.Inflight, v, 1, 1000) },
	"fetch_bytes":   func(p *Params, v string) error { return setInt(&p.FetchBytes, v, 1, 64<<20) },
	"data_bytes":    func(p *Params, v string) error { return setBytes(&p.DataBytes, v) },
	"records_per_s": func(p *Params, v string) error { return setFloat(&p.RecordsPerS, v, 0, 1e9) },
	"warmup":        func(p *Params, v string) error { return setDuration(&p.Warmup, v) },
	"measure":       func(p *Params, v string) error { return setDuration(&p.Measure, v) },
	"cache_state": func(p *Params, v string) error {
		return oneOf((*string)(&p.CacheState), v, "warm", "cold", "restarted")
	},
	"regime":           func(p *Params, v string) error { return oneOf((*string)(&p.Regime), v, "cache", "disk") },
	"memory_limit":     func(p *Params, v string) error { return setBytes(&p.MemoryLimit, v) },
	"verify":           func(p *Params, v string) error { return setBool(&p.Verify, v) },
	"link_bytes_per_s": func(p *Params, v string) error { return setBytes(&p.LinkBytesPerS, v) },
	"unflushed_bytes":  func(p *Params, v string) error { return setBytes(&p.UnflushedBytes, v) },
	"access":           func(p *Params, v string) error { return oneOf(&p.Access, v, "sequential", "random") },
	"direction":        func(p *Params, v string) error { return oneOf(&p.Direction, v, "read", "write") },
	"io":               func(p *Params, v string) error { return oneOf(&p.IO, v, "buffered", "direct") },
	"chunk_bytes":      func(p *Params, v string) error { return setInt(&p.ChunkBytes, v, 512, 64<<20) },
	"limits":           setLimits,

	"idempotence":   func(p *Params, v string) error { return setBool(&p.Idempotence, v) },
	"kill_after":    func(p *Params, v string) error { return setDuration(&p.KillAfter, v) },
	"restart_after": func(p *Params, v string) error { return setDuration(&p.RestartAfter, v) },
	"victim":        func(p *Params, v string) error { return oneOf(&p.Victim, v, VictimBroker, VictimController) },

	"replication_factor": func(p *Params, v string) error { return setInt(&p.ReplicationFactor, v, 1, BrokersMax) },
}

// Keys lists the keys that Set knows, ascending.
func Keys() []string { return slices.Sorted(maps.Keys(setters)) }

// Set gives one parameter its value, written as in a spec ("64MiB" and "3s" work
// where bytes and durations do). An unknown key is an error that names the key and lists the known ones.
func (p *Params) Set(key, value string) error {
	set, ok := setters[key]
	if !ok {
		return fmt.Errorf("workload: unknown key %q; known are %s", key, strings.Join(Keys(), ", "))
	}
	if err := set(p, value); err != nil {
		return fmt.Errorf("workload: %s = %s: %w", key, value, err)
	}
	return nil
}

// Check says what is wrong with the parameters as a whole, or nil.
func (p *Params) Check() error {
	switch {
	case !slices.Contains(kinds(), string(p.Kind)):
		return fmt.Errorf("workload: kind %q is none of %s", p.Kind, strings.Join(kinds(), ", "))
	case p.Kind != Idle && p.Kind != Device && p.Partitions < 1:
		return fmt.Errorf("workload: kind %s needs partitions >= 1, not %d", p.Kind, p.Partitions)
	case p.Kind == EndToEnd && p.RecordsPerS <= 0:
		return fmt.Errorf("workload: kind %s needs records_per_s: without a rate the queue is what is measured", p.Kind)
	case p.Brokers < 1 || p.Brokers > BrokersMax:
		return fmt.Errorf("workload: a cluster of %d brokers: must be from 1 to %d", p.Brokers, BrokersMax)
	case p.ReplicationFactor > p.Brokers:
		return fmt.Errorf("workload: replication_factor %d: the cluster has %d brokers", p.ReplicationFactor, p.Brokers)
	case p.Brokers > 1 && !slices.Contains(clusterKinds, p.Kind):
		return fmt.Errorf("workload: kind %s runs on a cluster of one, not of %d brokers; on a cluster run %v", p.Kind, p.Brokers, clusterKinds)
	case p.Brokers == 1 && slices.Contains(clusterKinds, p.Kind) && p.Kind != Produce:
		return fmt.Errorf("workload: kind %s needs a cluster: brokers = 3 in [cluster], say", p.Kind)
	case slices.Contains(placingKinds, p.Kind) && p.ReplicationFactor < 2:
		return fmt.Errorf("workload: kind %s needs replication_factor >= 2: nobody else could lead", p.Kind)
	case p.Kind == LeaderKill && (p.Acks == "0" || p.RecordsPerS <= 0):
		return fmt.Errorf("workload: kind %s needs records_per_s, and acks 1 or all", p.Kind)
	case p.Kind == LeaderKill && p.KillAfter+p.RestartAfter >= p.Measure:
		return fmt.Errorf("workload: kill_after %s and restart_after %s must lie within measure %s", p.KillAfter, p.RestartAfter, p.Measure)
	case p.UnflushedBytes > p.DataBytes:
		return fmt.Errorf("workload: unflushed_bytes %d > data_bytes %d", p.UnflushedBytes, p.DataBytes)
	}
	return nil
}

// BrokersMax bounds a cell's cluster: each broker is a process on this machine.
const BrokersMax = 20

// clusterKinds are those that know of more than one broker.
var clusterKinds = []Kind{Produce, LeaderKill, Failover, RackRead}

// placingKinds create the topic themselves, where the broker that they kill leads it.
var placingKinds = []Kind{LeaderKill, Failover}

// copies is how many times each byte is written.
func (p *Params) copies() int { return max(1, p.ReplicationFactor) }

func kinds() []string {
	return []string{string(Produce), string(Consume), string(EndToEnd), string(Compression), string(Device), string(Growth), string(Loss), string(Recovery), string(Idle),
		string(LeaderKill), string(Failover), string(RackRead)}
}

func oneOf(field *string, v string, allowed ...string) error {
	if !slices.Contains(allowed, v) {
		return fmt.Errorf("must be one of %s", strings.Join(allowed, ", "))
	}
	*field = v
	return nil
}

func setInt(field *int, v string, low, high int64) error {
	var n int64
	if err := setBytes(&n, v); err != nil {
		return err
	}
	if n < low || n > high {
		return fmt.Errorf("must be from %d to %d", low, high)
	}
	*field = int(n)
	return nil
}

func setFloat(field *float64, v string, low, high float64) error {
	f, err := strconv.ParseFloat(strings.ReplaceAll(v, "_", ""), 64)
	if err != nil {
		return fmt.Errorf("must be a number")
	}
	if f < low || f > high {
		return fmt.Errorf("must be from %g to %g", low, high)
	}
	*field = f
	return nil
}

func setBool(field *bool, v string) error {
	b, err := strconv.ParseBool(v)
	if err != nil {
		return fmt.Errorf("must be true or false")
	}
	*field = b
	return nil
}

func setDuration(field *time.Duration, v string) error {
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return fmt.Errorf("must be a duration like 500ms or 3s")
	}
	*field = d
	return nil
}

func setLinger(p *Params, v string) error {
	var ms float64
	if err := setFloat(&ms, v, 0, 60_000); err != nil {
		return err
	}
	p.Linger = time.Duration(ms * float64(time.Millisecond))
	return nil
}

func setLimits(p *Params, v string) error {
	var on bool
	err := setBool(&on, v)
	p.NoLimits = !on
	return err
}

func setBytes(field *int64, v string) error {
	n, err := ParseBytes(v)
	if err == nil {
		*field = n
	}
	return err
}

// ParseBytes reads an integer, with underscores and KiB, MiB or GiB allowed.
func ParseBytes(v string) (int64, error) {
	digits, shift := strings.ReplaceAll(v, "_", ""), 0
	for i, suffix := range []string{"KiB", "MiB", "GiB"} {
		if d, ok := strings.CutSuffix(digits, suffix); ok {
			digits, shift = d, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || n < 0 || n > 1<<62>>shift {
		return 0, errors.New("must be a whole number, like 65536 or 64KiB")
	}
	return n << shift, nil
}
