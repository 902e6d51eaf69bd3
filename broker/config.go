package broker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-log/tidemark/broker/rules"
	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/record"
)

// Config is everything a server.properties can say. Each field is one row of the
// table in settings.go, which gives its name, its default and its meaning.
//
// A Config is a value: topics and dynamic changes work on copies of it.
type Config struct {
	BrokerID int32
	LogDirs  []string

	// For the shell (broker/server).
	Listeners             []string
	AdvertisedListeners   []string
	AdminListener         string
	SocketRequestMax      int // bytes of one request frame
	SocketSendBuffer      int // bytes; -1: the kernel's
	SocketReceiveBuffer   int // bytes; -1: the kernel's
	ConnectionsMax        int
	ConnectionsMaxIdle    time.Duration
	InflightRequestsMax   int   // per connection
	InflightBytesMax      int64 // per connection
	QueuedBytesMax        int64 // of requests, of all connections
	Transfer              storage.Transfer
	RulesOff              []string
	FetchWaitsMax         int // long polls waiting at one time
	FetchMaxBytes         int // of one fetch answer
	MaxPartitionsPerTopic int32
	MaxPartitions         int32 // of the broker

	// The cluster. ZooKeeperConnect empty: a cluster of one.
	ZooKeeperConnect        string
	ZooKeeperSessionTimeout time.Duration // asked for; the service negotiates
	ZooKeeperConnectTimeout time.Duration
	Rack                    string
	ReplicaLagMax           time.Duration
	ReplicaFetchWait        time.Duration
	ReplicaFetchBackoff     time.Duration
	ReplicaFetchBytes       int // of one partition
	ReplicaFetchAnswerBytes int // of one answer
	UncleanElection         bool
	ReplaceAfter            time.Duration // lab.replica.replace.after.ms; 0: never
	AutoRebalance           bool
	RebalanceCheck          time.Duration
	ImbalancePercent        int
	ControlledShutdown      bool
	ReadFrom                ReadFrom

	NumPartitions      int32
	ReplicationFactor  int16
	AutoCreateTopics   bool
	DeleteTopicEnable  bool
	RetentionCheck     time.Duration
	CheckpointInterval time.Duration // of recovery points
	StartCheckpoint    time.Duration // of log start offsets

	Visibility  Visibility
	FlushGroup  bool
	Validate    record.Level
	Recompress  bool
	Compression string // compression.type
	MinISR      int32

	// DecompressedMax bounds what one batch may become when the broker reads its records, in bytes.
	DecompressedMax int64

	Log storage.LogConfig

	// Kafka's coarser names for two of Log's fields; -1: not given.
	retentionMinutes, retentionHours, rollHours int64

	// static and dynamic hold the settings given by file or command line, and by
	// AlterConfigs, by name. The maps are never changed once a Config holds them.
	static, dynamic map[string]string

	// Faults take safety rules back, for tests that must fail then. No setting reaches them.
	Faults Faults
}

// Faults are planted faults: each takes back one rule of this broker, so that a
// test can show that its checks see what happens without the rule.
type Faults struct {
	AckBeforeSync    bool // acks leave at once where the flush policy asks for a sync first
	ShareSyncs       bool // without group commit, appends still share the next sync
	ShareEarlierSync bool // an append is acknowledged by the sync in flight, which began before it
	TrustFailedSync  bool // a failed sync counts as done
	AckResendEarly   bool // a resend is acknowledged although the sync of its first send is under way
	ServeUnflushed   bool // lab.visibility=flushed shows consumers what is not durable
	UnpinRegions     bool // an answer's regions are not pinned until it is sent
}

// Visibility is up to where consumers may read (lab.visibility, claims C8 and C15).
type Visibility string

const (
	VisibleCommitted Visibility = "committed" // the high watermark
	VisibleFlushed   Visibility = "flushed"   // what is durable (2011)
	VisibleAppended  Visibility = "appended"  // everything written, committed or not: unsafe
)

// ReadFrom is who serves consumers (lab.read.from, claim C16).
type ReadFrom string

const (
	ReadLeader   ReadFrom = "leader"
	ReadFollower ReadFrom = "follower" // in the consumer's rack (KIP-392)
)

// preferredCheck is how often leadership goes back to preferred replicas; 0: never.
func (c *Config) preferredCheck() time.Duration {
	if !c.AutoRebalance {
		return 0
	}
	return c.RebalanceCheck
}

// DefaultConfig is the configuration of an empty server.properties.
func DefaultConfig() Config {
	return Config{
		LogDirs:             []string{"tidemark-data"},
		Listeners:           []string{"PLAINTEXT://127.0.0.1:9092"},
		SocketRequestMax:    100 << 20,
		SocketSendBuffer:    -1,
		SocketReceiveBuffer: -1,
		ConnectionsMax:      10_000,
		ConnectionsMaxIdle:  10 * time.Minute,
		InflightRequestsMax: 64,
		InflightBytesMax:    64 << 20,
		QueuedBytesMax:      1 << 30,
		Transfer:            storage.TransferSendfile,
		FetchWaitsMax:       100_000,
		FetchMaxBytes:       55 << 20,

		ZooKeeperSessionTimeout: 18 * time.Second,
		ZooKeeperConnectTimeout: 18 * time.Second,
		ReplicaLagMax:           30 * time.Second,
		ReplicaFetchWait:        500 * time.Millisecond,
		ReplicaFetchBackoff:     time.Second,
		ReplicaFetchBytes:       1 << 20,
		ReplicaFetchAnswerBytes: 10 << 20,
		AutoRebalance:           true,
		RebalanceCheck:          300 * time.Second,
		ImbalancePercent:        10,
		ControlledShutdown:      true,
		ReadFrom:                ReadLeader,

		MaxPartitionsPerTopic: 10_000,
		MaxPartitions:         50_000,
		NumPartitions:         1,
		ReplicationFactor:     1,
		AutoCreateTopics:      true,
		DeleteTopicEnable:     true,
		RetentionCheck:        5 * time.Minute,
		CheckpointInterval:    time.Minute,
		StartCheckpoint:       time.Minute,

		Visibility:      VisibleCommitted,
		Compression:     "producer",
		MinISR:          1,
		DecompressedMax: 1 << 30,
		Log:             storage.DefaultLogConfig(),

		retentionMinutes: -1, retentionHours: -1, rollHours: -1,
	}
}

// Combination is this configuration's choice of the switches that exclude each other.
func (c *Config) Combination() storage.Combination {
	return storage.Combination{Engine: c.Log.Engine, Cache: c.Log.Cache, Offsets: c.Log.Offsets, Transfer: c.Transfer}
}

// check looks at settings that depend on each other. keys names the settings an
// error is about, so that the parser can point at a line.
func (c *Config) check() (keys []string, err error) {
	if err := c.Combination().Check(); err != nil {
		for i := range settings {
			if strings.Contains(err.Error(), settings[i].Name) {
				keys = append(keys, settings[i].Name)
			}
		}
		return keys, err
	}
	if _, err := rules.Parse(c.RulesOff); err != nil {
		return []string{"lab.rules.off"}, fmt.Errorf("lab.rules.off: %w", err)
	}
	switch {
	case c.Compression != "producer" && !c.Recompress:
		return []string{"compression.type", "lab.compression.path"}, fmt.Errorf("compression.type=%s needs lab.compression.path=recompress: otherwise batches are stored as the producer compressed them", c.Compression)
	case c.ZooKeeperConnect == "" && c.ReplicationFactor != 1:
		return []string{"default.replication.factor"}, fmt.Errorf("default.replication.factor=%d: without zookeeper.connect this broker is a cluster of one; the only valid value is 1", c.ReplicationFactor)
	case c.ZooKeeperConnect == "" && c.MinISR != 1:
		return []string{"min.insync.replicas"}, fmt.Errorf("min.insync.replicas=%d: without zookeeper.connect this broker is a cluster of one; the only valid value is 1", c.MinISR)
	case c.ZooKeeperConnect != "" && c.Log.Engine != storage.EngineLog:
		return []string{"zookeeper.connect", "lab.storage.engine"}, fmt.Errorf("lab.storage.engine=%s is not replicated: it needs a cluster of one, so leave zookeeper.connect empty", c.Log.Engine)
	case c.ZooKeeperConnect != "" && c.ReplicaFetchWait > c.ReplicaLagMax:
		return []string{"replica.fetch.wait.max.ms", "replica.lag.time.max.ms"}, fmt.Errorf("replica.fetch.wait.max.ms=%d is more than replica.lag.time.max.ms=%d: followers would leave the ISR while they wait for records; make it smaller",
			c.ReplicaFetchWait.Milliseconds(), c.ReplicaLagMax.Milliseconds())
	case len(c.LogDirs) == 0:
		return []string{"log.dirs", "log.dir"}, fmt.Errorf("log.dirs is empty: name at least one directory")
	case len(c.Listeners) == 0:
		return []string{"listeners"}, fmt.Errorf("listeners is empty: name at least one, as in PLAINTEXT://127.0.0.1:9092")
	}
	seen := slices.Sorted(slices.Values(c.LogDirs))
	if d := slices.Compact(slices.Clone(seen)); len(d) != len(seen) {
		return []string{"log.dirs", "log.dir"}, fmt.Errorf("log.dirs names a directory twice")
	}
	return nil, nil
}

// resolve applies Kafka's precedence between names of one thing: ms before minutes before hours.
func (c *Config) resolve() {
	if _, given := c.static["log.retention.ms"]; !given {
		switch {
		case c.retentionMinutes >= 0:
			c.Log.RetentionMs = c.retentionMinutes * 60_000
		case c.retentionHours >= 0:
			c.Log.RetentionMs = c.retentionHours * 3600_000
		case c.static["log.retention.minutes"] != "" || c.static["log.retention.hours"] != "":
			c.Log.RetentionMs = -1
		}
	}
	if _, given := c.static["log.roll.ms"]; !given && c.rollHours >= 0 {
		c.Log.SegmentMs = c.rollHours * 3600_000
	}
}
