package storage

// Engine is how a partition's batches are kept (lab.storage.engine, claim C2).
type Engine string

const (
	EngineLog   Engine = "log"   // segments that are only appended to
	EngineBTree Engine = "btree" // a B+tree, go.etcd.io/bbolt: what a database would do
)

// BTreeKey is what the B-tree is ordered by (lab.btree.key).
type BTreeKey string

const (
	BTreeKeyOffset    BTreeKey = "offset"     // ascending: the tree's best case
	BTreeKeyMessageID BTreeKey = "message-id" // hashed: what a JMS store indexes, so inserts are random
)

// Cache is where recently used log data stays in memory (lab.cache, claim C3).
type Cache string

const (
	CachePage    Cache = "page"    // the kernel's page cache and nothing else
	CacheProcess Cache = "process" // an LRU of blocks over the page cache: everything is cached twice
	CacheDirect  Cache = "direct"  // O_DIRECT and an LRU: the cache a database would keep
)

// OffsetScheme is what an offset counts (lab.offsets, claim C12).
type OffsetScheme string

const (
	OffsetsLogical OffsetScheme = "logical" // records, found through a sparse index
	OffsetsByte    OffsetScheme = "byte"    // bytes of the partition's stream, found without any index (2011)
)

// LogConfig is one partition's storage configuration: broker defaults with the
// topic's own settings over them. Names in comments are Kafka's topic settings.
type LogConfig struct {
	Engine     Engine
	BTreeKey   BTreeKey
	Cache      Cache
	CacheBytes int64 // lab.cache.bytes: bound of the process-wide block cache
	Offsets    OffsetScheme

	SegmentBytes       int64 // segment.bytes
	SegmentMs          int64 // segment.ms: age at which a segment is rolled
	SegmentJitterMs    int64 // segment.jitter.ms
	IndexIntervalBytes int64 // index.interval.bytes: bytes between entries of the sparse index
	SegmentIndexBytes  int64 // segment.index.bytes: an index never grows past it
	Preallocate        bool  // preallocate

	RetentionMs       int64 // retention.ms; -1: no limit
	RetentionBytes    int64 // retention.bytes; -1: no limit
	FileDeleteDelayMs int64 // file.delete.delay.ms

	MaxMessageBytes int  // max.message.bytes, of one batch
	LogAppendTime   bool // message.timestamp.type = LogAppendTime
	// MessageTimestampBeforeMaxMs and …AfterMaxMs bound how far a record's timestamp may lie from wall time.
	MessageTimestampBeforeMaxMs int64
	MessageTimestampAfterMaxMs  int64

	FlushMessages int64 // flush.messages
	FlushMs       int64 // flush.ms

	ProducerIDExpirationMs int64 // producer.id.expiration.ms
	ProducerIDsMax         int   // bound of the producer state kept per partition

	// TrustTail is a planted fault, for tests and the simulator: recovery takes the
	// tail of a log as it stands and sums nothing. No setting reaches it.
	TrustTail bool
	// TrustPageCache is another: what a process before left is taken for durable once a
	// sync succeeds, though nothing of it was written again.
	TrustPageCache bool
}

// DefaultLogConfig holds Kafka's defaults, and the first value of each of our switches.
func DefaultLogConfig() LogConfig {
	const noLimit = 1<<63 - 1
	return LogConfig{
		Engine: EngineLog, BTreeKey: BTreeKeyOffset, Cache: CachePage, CacheBytes: 256 << 20, Offsets: OffsetsLogical,
		SegmentBytes: 1 << 30, SegmentMs: 7 * 24 * 3600 * 1000, IndexIntervalBytes: 4096, SegmentIndexBytes: 10 << 20,
		RetentionMs: 7 * 24 * 3600 * 1000, RetentionBytes: -1, FileDeleteDelayMs: 60_000,
		MaxMessageBytes: 1048588, MessageTimestampBeforeMaxMs: noLimit, MessageTimestampAfterMaxMs: 3600 * 1000,
		FlushMessages: noLimit, FlushMs: noLimit,
		ProducerIDExpirationMs: 24 * 3600 * 1000, ProducerIDsMax: 100_000,
	}
}

// Transfer is how fetched bytes reach the socket (lab.fetch.transfer, claim C5).
type Transfer string

const (
	TransferSendfile Transfer = "sendfile"
	TransferCopy     Transfer = "copy" // pread and write
	TransferMmap     Transfer = "mmap" // write from a mapping
)
