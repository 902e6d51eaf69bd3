package controller

// TopicID is a topic's UUID.
type TopicID = [16]byte

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// NoLeader as a leader says that there is none.
const NoLeader int32 = -1

// LeaderDuringDelete is what metadata says of a topic that is being deleted: brokers forget it.
const LeaderDuringDelete int32 = -2

// State is the content of a partition's state node. The node's version is the partition epoch.
type State struct {
	ControllerEpoch int32 // of the controller that wrote it last
	Leader          int32 // or NoLeader
	LeaderEpoch     int32
	ISR             []int32
	ELR             []int32 // KIP-966: out of the ISR, but with everything that is committed
	LastLeader      int32   // who led last while there is no leader, else NoLeader
	// LastKnownELR (KIP-966) are, while the ISR is below min.insync.replicas, those that were in ISR or ELR and
	// lost that by an unclean start. One of them may still have everything.
	LastKnownELR []int32
}

// Broker is a registration in /brokers/ids.
type Broker struct {
	ID         int32
	Epoch      int64 // version of /brokers/epochs/ID
	CleanEpoch int64 // the epoch that its disk proves was shut down cleanly; -1: none
	// CleanRun: that incarnation and so many before it had each begun after a clean stop of
	// the one before. A start that begins clean notes one more than it found, any other 0. With it a replica keeps
	// its place in the ELR though an incarnation in between came and went unseen; 0 is safe.
	CleanRun int64
	Host     string
	Port     int32
	Rack     string
}

// Topic is what a topic's node and its settings say.
type Topic struct {
	Name       string
	ID         TopicID
	Version    int32        // of the topic's node
	Partitions []Assignment // by partition number

	MinISR  int  // min.insync.replicas of the topic
	Unclean bool // unclean.leader.election.enable of the topic
}

// Assignment says who replicates a partition: KIP-455's fields of the topic's node.
// While a reassignment runs, Replicas are the old and the new ones, the new first.
type Assignment struct {
	Replicas []int32 // preferred leader first
	Adding   []int32
	Removing []int32
}

// BrokerEpoch names an incarnation of a broker.
type BrokerEpoch struct {
	Broker int32
	Epoch  int64
}

// Input is one of the types below.
type Input any

// Loaded is the first input: everything that a newly elected controller reads, after
// it has raised the controller epoch. The driver sets its watches before it reads.
type Loaded struct {
	ControllerEpoch int32
	EpochVersion    int32 // version of /controller_epoch after raising it
	Brokers         []Broker
	Topics          []Topic
	States          []StateRead
	Delete          []string      // children of /admin/delete_topics
	Handled         []BrokerEpoch // content of the node that WriteHandled writes; empty if it is not there
}

// BrokersRead is the whole list of registrations, after each change of /brokers/ids or a ReadBrokers effect.
type BrokersRead struct{ Brokers []Broker }

// TopicsRead are topic nodes (and settings) that were read: new topics, changed
// assignments (more partitions), changed settings, or those of a ReadTopics effect. A topic older than
// what the controller knows is ignored. Topics vanish only by DeleteTopic.
type TopicsRead struct {
	Topics  []Topic
	Missing []string // asked for by ReadTopics, and not there
}

// DeleteTopics are the children of /admin/delete_topics. A name of no topic is answered
// with DeleteTopic at once, which clears the mark.
type DeleteTopics struct{ Topics []string }

// StateRead is what became of reading a state node.
type StateRead struct {
	Partition TopicPartition
	Failed    bool // could not be read: ask again later
	Found     bool
	State     State
	Version   int32
}

// StatesRead answers ReadStates, or follows an ISR change notification.
type StatesRead struct{ States []StateRead }

// Outcome of a write.
type Outcome uint8

const (
	Accepted Outcome = iota
	Conflict         // bad version, node exists, no node: nothing was written
	Unknown          // connection lost or any other error: it may have been written
	Fenced           // the check of /controller_epoch failed, or the session expired: somebody else is controller
)

// StateWritten is the outcome for one partition. Version is the node's after it, when accepted.
type StateWritten struct {
	Partition TopicPartition
	Outcome   Outcome
	Version   int32
}

// StatesWritten are outcomes of writes in WriteStates effects, in any grouping. Several at once make for fewer commands.
type StatesWritten struct{ Results []StateWritten }

// StatesCreated is the outcome of one CreateStates effect; all or nothing.
type StatesCreated struct {
	Topic      string
	Partitions []int32
	Outcome    Outcome
}

// TopicWritten is the outcome of one WriteTopic effect.
type TopicWritten struct {
	Topic   string
	Outcome Outcome
	Version int32   // of the topic's node
	States  []int32 // versions of the states, in the order of the effect
}

// TopicDeleted is the outcome of DeleteTopic. Nodes that were gone already count as deleted.
type TopicDeleted struct {
	Topic   string
	Outcome Outcome
}

// HandledWritten is the outcome of WriteHandled.
type HandledWritten struct{ Outcome Outcome }

// CommandDone ends a Send. Seq is the Send's.
type CommandDone struct {
	Broker int32
	Seq    uint64
	Failed bool  // no response: timeout or connection error. It may have been carried out
	Code   int16 // of the whole response
	// Errors are the partitions whose code is not 0.
	Errors []PartitionError
	// Logs are of a LeaderAndISR's partitions without a leader: where the replica's log ends.
	Logs []ReplicaLog
}

// ReplicaLog says how far a replica's log reaches. A log is ahead of another by the epoch
// of its last record, and then by its end, as votes in Raft compare them; and one that ends below another's start is behind it.
type ReplicaLog struct {
	Partition   TopicPartition
	LeaderEpoch int32 // of the state that the replica was told: with no leader since, its log stands still
	LastEpoch   int32 // leader epoch of the last record; -1: none
	Start       int64 // log start offset: below it all was committed, and deleted for its age
	End         int64 // log end offset
}

// PartitionError is one partition's error code.
type PartitionError struct {
	Partition TopicPartition
	Code      int16
}

// LogDirFailed: a running broker has lost a log directory. It is sent a LeaderAndISR of all its
// partitions; those that it answers with KAFKA_STORAGE_ERROR count as dead until the broker starts anew.
type LogDirFailed struct{ Broker int32 }

// ControlledShutdown asks that a broker may stop: its leaderships move, its replicas leave the ISR.
// The Answer, when all writes are done, names in Partitions those it still leads.
type ControlledShutdown struct {
	Request uint64
	Broker  int32
	Epoch   int64
}

// ElectLeaders asks for the preferred leader of each partition, or with Unclean for any at
// all where there is none (KIP-460). No partitions: all. It is also what /admin/preferred_replica_election asks (Request 0).
type ElectLeaders struct {
	Request    uint64
	Unclean    bool
	Partitions []TopicPartition
}

// Reassign asks for other replicas (KIP-455), answered when the topics' nodes say so.
type Reassign struct {
	Request    uint64
	Partitions []Reassignment
}

// Reassignment of one partition. No replicas: cancel what is running.
type Reassignment struct {
	Partition TopicPartition
	Replicas  []int32
}

// Tick says that time has passed.
type Tick struct{}
