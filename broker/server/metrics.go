package server

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/vfs/syscount"
)

// keysMax bounds the api keys that are told apart; higher ones are never served.
const keysMax = 256

// metrics are the shell's own: requests and their latency by api. Series appear
// when an api is first used, so there are no more than are served.
type metrics struct {
	start    time.Time
	requests [keysMax]atomic.Int64
	latency  *prometheus.HistogramVec
	observer [keysMax]atomic.Pointer[prometheus.Observer]
}

func newMetrics() *metrics {
	return &metrics{start: time.Now(), latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "tidemark_request_seconds",
		Help:    "From the last byte of a request received to its answer written, by api.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18), // 0.1 ms to 13 s: long polls too
	}, []string{"api"})}
}

// now is the time since the start: half of what time.Now costs, which reads two clocks.
func (m *metrics) now() time.Duration { return time.Since(m.start) }

// answered notes requests whose answers were written at now.
func (m *metrics) answered(batch []*pending, now time.Duration) {
	for _, q := range batch {
		if q.key < 0 || q.key >= keysMax {
			continue
		}
		m.requests[q.key].Add(1)
		o := m.observer[q.key].Load()
		if o == nil {
			fresh := m.latency.WithLabelValues(kmsg.NameForKey(q.key))
			o = &fresh
			m.observer[q.key].Store(o)
		}
		(*o).Observe((now - q.began).Seconds())
	}
}

// Status is what the broker says of its partitions, added up: topics and
// partitions come and go by the thousand, and would be as many series.
type Status struct {
	ClusterID         string   `json:"cluster_id"`
	Partitions        int      `json:"partitions"`
	OfflinePartitions int      `json:"offline_partitions"`
	LogStartOffsets   int64    `json:"log_start_offsets"` // this and below: sums over partitions
	HighWatermarks    int64    `json:"high_watermarks"`
	LogEndOffsets     int64    `json:"log_end_offsets"`
	FlushedOffsets    int64    `json:"flushed_offsets"`
	LogBytes          int64    `json:"log_bytes"`
	OfflineDirs       []string `json:"offline_dirs"`
	FetchesWaiting    int      `json:"fetches_waiting"` // long polls

	BlockCache storage.BlockCacheStats `json:"block_cache"` // zero under lab.cache=page
}

// Snapshot is the answer of /counters: what an experiment samples.
type Snapshot struct {
	UptimeMs  int64            `json:"uptime_ms"`
	Syscalls  map[string]int64 `json:"syscalls"`           // attempts by strace's name
	ToUser    int64            `json:"bytes_to_user"`      // copied by the CPU, kernel to user space
	ToKernel  int64            `json:"bytes_to_kernel"`    // copied by the CPU, user space to kernel
	InKernel  int64            `json:"bytes_in_kernel"`    // page cache to socket by sendfile
	Delivered int64            `json:"bytes_delivered"`    // record bytes that reached a consumer's socket
	Requests  map[string]int64 `json:"requests"`           // answered, by api
	Conns     int              `json:"connections"`        // open now
	Rejected  int64            `json:"connections_closed"` // over max.connections, in all
	Panics    int64            `json:"panics"`             // recovered: each one is a bug
	Buffers   int64            `json:"receive_buffer_bytes"`
	Status    Status           `json:"status"`
}

// Snapshot reads the counters now. status and uptime come from the caller.
func (s *Server) Snapshot(uptime time.Duration, status Status) Snapshot {
	c := s.counters.Snapshot()
	snap := Snapshot{
		UptimeMs: uptime.Milliseconds(), Syscalls: map[string]int64{}, Requests: map[string]int64{},
		ToUser: c.ToUser, ToKernel: c.ToKernel, InKernel: c.InKernel, Delivered: c.Delivered,
		Conns: len(s.connections()), Rejected: s.rejected.Load(), Panics: s.panics.Load(), Buffers: s.buffers.lent.Load(),
		Status: status,
	}
	for _, k := range syscount.Kinds() {
		if n := c.Of(k); n > 0 {
			snap.Syscalls[k.String()] = n
		}
	}
	for key := range s.metrics.requests {
		if n := s.metrics.requests[key].Load(); n > 0 {
			snap.Requests[kmsg.NameForKey(int16(key))] = n
		}
	}
	return snap
}

// collector turns a Snapshot into Prometheus series at each scrape.
type collector struct{ snapshot func() Snapshot }

var (
	descSyscalls  = desc("tidemark_syscalls_total", "System calls that move data, attempts by kind.", "syscall")
	descCopied    = desc("tidemark_copied_bytes_total", "Bytes copied by the CPU between kernel and user space.", "direction")
	descInKernel  = desc("tidemark_sendfile_bytes_total", "Bytes moved from page cache to socket in the kernel.")
	descDelivered = desc("tidemark_delivered_bytes_total", "Record bytes that reached a consumer's socket.")
	descRequests  = desc("tidemark_requests_total", "Requests answered, by api.", "api")
	descConns     = desc("tidemark_connections", "Open client connections.")
	descRejected  = desc("tidemark_connections_rejected_total", "Connections closed because of max.connections.")
	descPanics    = desc("tidemark_panics_total", "Panics recovered while serving a request: each one is a bug.")
	descBuffers   = desc("tidemark_receive_buffer_bytes", "Pooled receive buffers in use.")
	descParts     = desc("tidemark_partitions", "Partitions hosted, by state.", "state")
	descLEO       = desc("tidemark_log_end_offset_sum", "Log end offsets, summed over partitions.")
	descHW        = desc("tidemark_high_watermark_sum", "High watermarks, summed over partitions.")
	descLogBytes  = desc("tidemark_log_bytes", "Bytes in log segments, summed over partitions.")
	descFlushed   = desc("tidemark_flushed_offset_sum", "Offsets below which everything is durable, summed over partitions.")
	descLogStart  = desc("tidemark_log_start_offset_sum", "Log start offsets, summed over partitions.")
	descWaiting   = desc("tidemark_fetches_waiting", "Long polls waiting for records.")
	descBlocks    = desc("tidemark_block_cache_blocks_total", "Blocks that the block cache found, did not find, and put out.", "what")
	descBlockBy   = desc("tidemark_block_cache_bytes_total", "Bytes served from blocks, read from files into blocks, and copied out of blocks.", "what")
	descResident  = desc("tidemark_block_cache_resident_bytes", "Bytes of blocks that the block cache holds.")
	descOffline   = desc("tidemark_offline_log_directories", "Log directories taken offline after a failed write or sync.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe sends nothing: the series depend on what is in use (an "unchecked" collector).
func (c collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c.snapshot()
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	for name, n := range s.Syscalls {
		counter(descSyscalls, n, name)
	}
	for name, n := range s.Requests {
		counter(descRequests, n, name)
	}
	counter(descCopied, s.ToUser, "to_user")
	counter(descCopied, s.ToKernel, "to_kernel")
	counter(descInKernel, s.InKernel)
	counter(descDelivered, s.Delivered)
	counter(descRejected, s.Rejected)
	counter(descPanics, s.Panics)
	gauge(descConns, int64(s.Conns))
	gauge(descBuffers, s.Buffers)
	gauge(descParts, int64(s.Status.Partitions-s.Status.OfflinePartitions), "online")
	gauge(descParts, int64(s.Status.OfflinePartitions), "offline")
	gauge(descLEO, s.Status.LogEndOffsets)
	gauge(descHW, s.Status.HighWatermarks)
	gauge(descFlushed, s.Status.FlushedOffsets)
	gauge(descLogStart, s.Status.LogStartOffsets)
	gauge(descWaiting, int64(s.Status.FetchesWaiting))
	gauge(descLogBytes, s.Status.LogBytes)
	cache := s.Status.BlockCache
	counter(descBlocks, cache.Hits, "hit")
	counter(descBlocks, cache.Misses, "miss")
	counter(descBlocks, cache.Evictions, "eviction")
	counter(descBlockBy, cache.HitBytes, "hit")
	counter(descBlockBy, cache.LoadedBytes, "loaded")
	counter(descBlockBy, cache.CopiedBytes, "copied")
	gauge(descResident, cache.Resident)
	gauge(descOffline, int64(len(s.Status.OfflineDirs)))
}

func (s *Server) registry(snapshot func() Snapshot) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(s.metrics.latency, collector{snapshot}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
