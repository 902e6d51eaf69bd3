package broker

import "github.com/tidemark-log/tidemark/storage"

// Setting is one row of the table of all settings, which drives parsing,
// DescribeConfigs, AlterConfigs and the documentation.
type Setting struct {
	Name    string // as in server.properties
	Topic   string // as a topic's own setting; "": there is none
	Dynamic bool   // AlterConfigs may change it on a running broker
	Claim   string // the claim of SOURCE.md that it serves
	Doc     string

	field func(*Config) value
}

// Bounds that several rows share.
const (
	noLimit  = 1<<63 - 1
	intMax   = 1<<31 - 1
	batchMax = 1 << 30 // a batch's length is an int32 on disk, with room to spare
)

// settings is the table, in the order of the documentation.
var settings = []Setting{
	// Identity, places, metadata.
	{Name: "broker.id", Doc: "Number of this broker in its cluster.",
		field: func(c *Config) value { return number(&c.BrokerID, "", 0, intMax) }},
	{Name: "log.dirs", Doc: "Directories that hold partitions, comma-separated; a new partition goes where there are fewest.",
		field: func(c *Config) value { return list(&c.LogDirs) }},
	{Name: "log.dir", Doc: "The same, when there is one.",
		field: func(c *Config) value { return list(&c.LogDirs) }},
	{Name: "zookeeper.connect", Doc: "The ZooKeeper that keeps the cluster's metadata, as host:port,host:port/chroot; empty: a cluster of one that keeps it itself.",
		field: func(c *Config) value { return text(&c.ZooKeeperConnect) }},
	{Name: "zookeeper.session.timeout.ms", Claim: "C15", Doc: "A broker silent for so long is taken for dead; the service negotiates it.",
		field: func(c *Config) value { return millis(&c.ZooKeeperSessionTimeout, 1) }},
	{Name: "zookeeper.connection.timeout.ms", Doc: "How long a start waits for its first session.",
		field: func(c *Config) value { return millis(&c.ZooKeeperConnectTimeout, 1) }},
	{Name: "broker.rack", Claim: "C16", Doc: "Where this broker stands: replicas are spread over racks, and consumers may read in their own.",
		field: func(c *Config) value { return text(&c.Rack) }},

	// Sockets.
	{Name: "listeners", Doc: "Addresses to listen on, comma-separated, as PLAINTEXT://host:port; port 0 takes a free one.",
		field: func(c *Config) value { return list(&c.Listeners) }},
	{Name: "advertised.listeners", Doc: "Address that Metadata tells clients; empty: the one the client connected to.",
		field: func(c *Config) value { return list(&c.AdvertisedListeners) }},
	{Name: "lab.admin.listener", Doc: "Address, host:port, of Prometheus metrics and pprof; empty: none.",
		field: func(c *Config) value { return text(&c.AdminListener) }},
	{Name: "socket.request.max.bytes", Doc: "Longest request; a longer one closes its connection.",
		field: func(c *Config) value { return number(&c.SocketRequestMax, "bytes", 1024, intMax) }},
	{Name: "socket.send.buffer.bytes", Doc: "SO_SNDBUF; -1 leaves it to the kernel.",
		field: func(c *Config) value { return number(&c.SocketSendBuffer, "bytes", -1, intMax) }},
	{Name: "socket.receive.buffer.bytes", Doc: "SO_RCVBUF; -1 leaves it to the kernel.",
		field: func(c *Config) value { return number(&c.SocketReceiveBuffer, "bytes", -1, intMax) }},
	{Name: "max.connections", Doc: "Connections at one time; more are closed as they come.",
		field: func(c *Config) value { return number(&c.ConnectionsMax, "", 1, 1_000_000) }},
	{Name: "connections.max.idle.ms", Doc: "A connection without a request for so long is closed.",
		field: func(c *Config) value { return millis(&c.ConnectionsMaxIdle, 1) }},
	{Name: "lab.connection.inflight.requests", Doc: "Requests of one connection that wait for their answer; reading stops there.",
		field: func(c *Config) value { return number(&c.InflightRequestsMax, "", 1, 100_000) }},
	{Name: "lab.connection.inflight.bytes", Doc: "Bytes of one connection's requests and answers in flight; reading stops there.",
		field: func(c *Config) value { return number(&c.InflightBytesMax, "bytes", 1<<10, noLimit) }},

	{Name: "queued.max.request.bytes", Doc: "Bytes of requests, of all connections, that wait to be handled; reading stops there.",
		field: func(c *Config) value { return number(&c.QueuedBytesMax, "bytes", 1<<20, noLimit) }},

	// Topics.
	{Name: "num.partitions", Doc: "Partitions of a topic that does not say.",
		field: func(c *Config) value { return number(&c.NumPartitions, "", 1, 10_000) }},
	{Name: "default.replication.factor", Doc: "Replicas of a topic that does not say; 1 in a cluster of one.",
		field: func(c *Config) value { return number(&c.ReplicationFactor, "", 1, 32767) }},
	{Name: "min.insync.replicas", Topic: "min.insync.replicas", Dynamic: true, Claim: "C7", Doc: "In-sync replicas that acks=all needs; 1 in a cluster of one.",
		field: func(c *Config) value { return number(&c.MinISR, "", 1, intMax) }},
	{Name: "auto.create.topics.enable", Doc: "Metadata creates a topic it does not know.",
		field: func(c *Config) value { return boolean(&c.AutoCreateTopics) }},
	{Name: "delete.topic.enable", Doc: "DeleteTopics is allowed.",
		field: func(c *Config) value { return boolean(&c.DeleteTopicEnable) }},
	{Name: "lab.topic.partitions.max", Doc: "Partitions that one topic may have.",
		field: func(c *Config) value { return number(&c.MaxPartitionsPerTopic, "", 1, 50_000) }},
	{Name: "lab.partitions.max", Doc: "Partitions that the broker may have.",
		field: func(c *Config) value { return number(&c.MaxPartitions, "", 1, 1_000_000) }},

	// Log: segments and indexes.
	{Name: "log.segment.bytes", Topic: "segment.bytes", Dynamic: true, Doc: "Size at which a segment is rolled.",
		field: func(c *Config) value { return number(&c.Log.SegmentBytes, "bytes", 1024, intMax) }},
	{Name: "log.roll.ms", Topic: "segment.ms", Dynamic: true, Doc: "Age at which a segment is rolled.",
		field: func(c *Config) value { return number(&c.Log.SegmentMs, "ms", 1, noLimit) }},
	{Name: "log.roll.hours", Doc: "The same in hours; log.roll.ms wins.",
		field: func(c *Config) value { return number(&c.rollHours, "hours", 1, noLimit/3600_000) }},
	{Name: "log.roll.jitter.ms", Topic: "segment.jitter.ms", Dynamic: true, Doc: "A random part of the age, so that not all segments roll at once.",
		field: func(c *Config) value { return number(&c.Log.SegmentJitterMs, "ms", 0, noLimit) }},
	{Name: "log.index.interval.bytes", Topic: "index.interval.bytes", Dynamic: true, Claim: "C12", Doc: "Log bytes between two entries of the sparse index.",
		field: func(c *Config) value { return number(&c.Log.IndexIntervalBytes, "bytes", 0, intMax) }},
	{Name: "log.index.size.max.bytes", Topic: "segment.index.bytes", Dynamic: true, Doc: "Size an index never grows past: the segment rolls first.",
		field: func(c *Config) value { return number(&c.Log.SegmentIndexBytes, "bytes", 24, intMax) }},
	{Name: "log.preallocate", Topic: "preallocate", Dynamic: true, Doc: "Reserve a new segment's blocks at once.",
		field: func(c *Config) value { return boolean(&c.Log.Preallocate) }},

	// Log: retention.
	{Name: "log.retention.ms", Topic: "retention.ms", Dynamic: true, Claim: "C11", Doc: "Age at which a segment is deleted; -1: never.",
		field: func(c *Config) value { return number(&c.Log.RetentionMs, "ms", -1, noLimit) }},
	{Name: "log.retention.minutes", Doc: "The same in minutes; log.retention.ms wins.",
		field: func(c *Config) value { return number(&c.retentionMinutes, "minutes", -1, noLimit/60_000) }},
	{Name: "log.retention.hours", Doc: "The same in hours; log.retention.minutes wins.",
		field: func(c *Config) value { return number(&c.retentionHours, "hours", -1, noLimit/3600_000) }},
	{Name: "log.retention.bytes", Topic: "retention.bytes", Dynamic: true, Claim: "C11", Doc: "Size of a partition above which its oldest segments are deleted; -1: no limit.",
		field: func(c *Config) value { return number(&c.Log.RetentionBytes, "bytes", -1, noLimit) }},
	{Name: "log.retention.check.interval.ms", Doc: "Time between looks for segments to delete.",
		field: func(c *Config) value { return millis(&c.RetentionCheck, 1) }},
	{Name: "log.segment.delete.delay.ms", Topic: "file.delete.delay.ms", Dynamic: true, Doc: "Time between a segment's deletion and its files' removal.",
		field: func(c *Config) value { return number(&c.Log.FileDeleteDelayMs, "ms", 0, noLimit) }},
	{Name: "log.cleanup.policy", Topic: "cleanup.policy", Doc: "delete; compaction is not built.",
		field: func(*Config) value { return fixed("delete") }},

	// Log: what is accepted.
	{Name: "message.max.bytes", Topic: "max.message.bytes", Dynamic: true, Doc: "Longest record batch, header included.",
		field: func(c *Config) value { return number(&c.Log.MaxMessageBytes, "bytes", 0, batchMax) }},
	{Name: "log.message.timestamp.type", Topic: "message.timestamp.type", Dynamic: true, Doc: "Who sets a record's timestamp.",
		field: func(c *Config) value { return toggle(&c.Log.LogAppendTime, "CreateTime", "LogAppendTime") }},
	{Name: "log.message.timestamp.before.max.ms", Topic: "message.timestamp.before.max.ms", Dynamic: true, Doc: "How far in the past a record's timestamp may lie (CreateTime).",
		field: func(c *Config) value { return number(&c.Log.MessageTimestampBeforeMaxMs, "ms", 0, noLimit) }},
	{Name: "log.message.timestamp.after.max.ms", Topic: "message.timestamp.after.max.ms", Dynamic: true, Doc: "How far in the future a record's timestamp may lie (CreateTime).",
		field: func(c *Config) value { return number(&c.Log.MessageTimestampAfterMaxMs, "ms", 0, noLimit) }},
	{Name: "compression.type", Topic: "compression.type", Dynamic: true, Claim: "C6", Doc: "Codec on disk; anything but producer needs lab.compression.path=recompress.",
		field: func(c *Config) value {
			return choice(&c.Compression, "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
		}},
	{Name: "producer.id.expiration.ms", Doc: "An idempotent producer silent for so long is forgotten.",
		field: func(c *Config) value { return number(&c.Log.ProducerIDExpirationMs, "ms", 1, noLimit) }},
	{Name: "lab.producer.ids.max", Doc: "Idempotent producers that a partition remembers.",
		field: func(c *Config) value { return number(&c.Log.ProducerIDsMax, "", 1, 10_000_000) }},

	// Log: durability.
	{Name: "log.flush.interval.messages", Topic: "flush.messages", Dynamic: true, Claim: "C8", Doc: "Records after which a partition is synced; the append that fills the interval is acknowledged after that sync.",
		field: func(c *Config) value { return number(&c.Log.FlushMessages, "records", 1, noLimit) }},
	{Name: "log.flush.interval.ms", Topic: "flush.ms", Dynamic: true, Claim: "C8", Doc: "Age of an unsynced record at which its partition is synced.",
		field: func(c *Config) value { return number(&c.Log.FlushMs, "ms", 0, noLimit) }},
	{Name: "log.flush.offset.checkpoint.interval.ms", Doc: "Time between writes of the recovery points and high watermarks.",
		field: func(c *Config) value { return millis(&c.CheckpointInterval, 1) }},
	{Name: "log.flush.start.offset.checkpoint.interval.ms", Doc: "Time between writes of the log start offsets.",
		field: func(c *Config) value { return millis(&c.StartCheckpoint, 1) }},

	// The design switches.
	{Name: "lab.fetch.transfer", Claim: "C5", Doc: "How fetched bytes reach the socket.",
		field: func(c *Config) value {
			return choice(&c.Transfer, storage.TransferSendfile, storage.TransferCopy, storage.TransferMmap)
		}},
	{Name: "lab.cache", Claim: "C3", Doc: "Where recent data stays in memory: the page cache, an LRU above it, or O_DIRECT and an LRU.",
		field: func(c *Config) value {
			return choice(&c.Log.Cache, storage.CachePage, storage.CacheProcess, storage.CacheDirect)
		}},
	{Name: "lab.cache.bytes", Claim: "C3", Doc: "Size of that LRU, for the whole broker.",
		field: func(c *Config) value { return number(&c.Log.CacheBytes, "bytes", 1<<20, noLimit) }},
	{Name: "lab.storage.engine", Claim: "C2", Doc: "A log, or a B-tree as a database would use.",
		field: func(c *Config) value { return choice(&c.Log.Engine, storage.EngineLog, storage.EngineBTree) }},
	{Name: "lab.btree.key", Claim: "C2", Doc: "What the B-tree is ordered by.",
		field: func(c *Config) value {
			return choice(&c.Log.BTreeKey, storage.BTreeKeyOffset, storage.BTreeKeyMessageID)
		}},
	{Name: "lab.offsets", Claim: "C12", Doc: "What an offset counts: records, or bytes of the partition's stream.",
		field: func(c *Config) value { return choice(&c.Log.Offsets, storage.OffsetsLogical, storage.OffsetsByte) }},
	{Name: "lab.visibility", Claim: "C8, C15", Doc: "Up to where consumers read: the high watermark, what is durable, or everything written.",
		field: func(c *Config) value {
			return choice(&c.Visibility, VisibleCommitted, VisibleFlushed, VisibleAppended)
		}},
	{Name: "lab.flush.group", Claim: "C8", Doc: "on: every append with acks is acknowledged after a sync, which it shares with all that wait. off: a sync that log.flush.interval.messages asks for is one append's own, and the next append that asks is written after it.",
		field: func(c *Config) value { return toggle(&c.FlushGroup, "off", "on") }},
	{Name: "lab.validate", Claim: "C6", Doc: "batch checks header, CRC and counts; records also decompresses and reads each record, as Kafka does.",
		field: func(c *Config) value { return ordinal(&c.Validate, "batch", "records") }},
	{Name: "lab.validate.decompressed.max.bytes", Doc: "What one batch may become when the broker decompresses it.",
		field: func(c *Config) value { return number(&c.DecompressedMax, "bytes", 1<<10, noLimit) }},
	{Name: "lab.compression.path", Claim: "C6", Doc: "passthrough stores a batch as it came; recompress decodes and encodes it again.",
		field: func(c *Config) value { return toggle(&c.Recompress, "passthrough", "recompress") }},
	{Name: "lab.rules.off", Claim: "C15", Doc: "Replication rules to switch off, so that the failure each prevents can be seen; see package broker/rules.",
		field: func(c *Config) value { return list(&c.RulesOff) }},

	// Replication.
	{Name: "replica.lag.time.max.ms", Claim: "C15", Doc: "A follower that has not caught up for so long leaves the ISR.",
		field: func(c *Config) value { return millis(&c.ReplicaLagMax, 1) }},
	{Name: "replica.fetch.wait.max.ms", Doc: "How long a leader holds a follower's fetch that finds nothing.",
		field: func(c *Config) value { return millis(&c.ReplicaFetchWait, 1) }},
	{Name: "replica.fetch.backoff.ms", Doc: "A follower's pause after an error.",
		field: func(c *Config) value { return millis(&c.ReplicaFetchBackoff, 1) }},
	{Name: "replica.fetch.max.bytes", Doc: "Bytes that a follower asks for of one partition.",
		field: func(c *Config) value { return number(&c.ReplicaFetchBytes, "bytes", 1024, intMax) }},
	{Name: "replica.fetch.response.max.bytes", Doc: "Bytes that a follower asks for in one answer.",
		field: func(c *Config) value { return number(&c.ReplicaFetchAnswerBytes, "bytes", 1024, 64<<20) }},
	{Name: "unclean.leader.election.enable", Topic: "unclean.leader.election.enable", Dynamic: true, Claim: "C15", Doc: "Whether a replica that lacks committed records may lead when no other is left.",
		field: func(c *Config) value { return boolean(&c.UncleanElection) }},
	{Name: "lab.replica.replace.after.ms", Claim: "C15", Doc: "A broker away for so long has its replicas made anew on others; 0: never.",
		field: func(c *Config) value { return millis(&c.ReplaceAfter, 0) }},
	{Name: "auto.leader.rebalance.enable", Doc: "Whether leadership goes back to preferred replicas.",
		field: func(c *Config) value { return boolean(&c.AutoRebalance) }},
	{Name: "leader.imbalance.check.interval.seconds", Doc: "Time between looks at that.",
		field: func(c *Config) value { return seconds(&c.RebalanceCheck, 1) }},
	{Name: "leader.imbalance.per.broker.percentage", Doc: "Share of a broker's partitions that others may lead before that happens.",
		field: func(c *Config) value { return number(&c.ImbalancePercent, "percent", 0, 100) }},
	{Name: "controlled.shutdown.enable", Doc: "Whether a broker that stops gives its leaderships away first.",
		field: func(c *Config) value { return boolean(&c.ControlledShutdown) }},
	{Name: "lab.read.from", Claim: "C16", Doc: "Who serves consumers: the leader, or a follower in the consumer's rack (KIP-392).",
		field: func(c *Config) value { return choice(&c.ReadFrom, ReadLeader, ReadFollower) }},

	// Bounds.
	{Name: "fetch.max.bytes", Doc: "Longest fetch answer, whatever the client asks; one batch always fits.",
		field: func(c *Config) value { return number(&c.FetchMaxBytes, "bytes", 1024, intMax) }},
	{Name: "lab.fetch.waits.max", Doc: "Long polls that wait at one time; further ones are answered at once.",
		field: func(c *Config) value { return number(&c.FetchWaitsMax, "", 0, intMax) }},
}

// byName and byTopicName index the table.
var byName, byTopicName = indexSettings()

func indexSettings() (names, topics map[string]*Setting) {
	names, topics = map[string]*Setting{}, map[string]*Setting{}
	for i := range settings {
		s := &settings[i]
		if names[s.Name] != nil || s.Topic != "" && topics[s.Topic] != nil {
			panic("BUG: broker: setting twice in the table: " + s.Name)
		}
		names[s.Name] = s
		if s.Topic != "" {
			topics[s.Topic] = s
		}
	}
	return names, topics
}

// Settings is the table of all settings, for documentation.
func Settings() []Setting { return settings }

func settingByName(name string) *Setting      { return byName[name] }
func settingByTopicName(name string) *Setting { return byTopicName[name] }

func (s *Setting) set(c *Config, v string) error { return s.field(c).set(v) }

// Value is the setting's value in c, as server.properties would spell it.
func (s *Setting) Value(c *Config) string { return s.field(c).String() }

// Valid says in words what values are valid.
func (s *Setting) Valid() string { return s.field(new(Config)).valid() }

// Type is the setting's type in DescribeConfigs.
func (s *Setting) Type() string { return s.field(new(Config)).kind() }
