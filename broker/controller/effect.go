package controller

// Effect is one of the types below, to be carried out in order. Effects of one kind may overlap;
// what must not is kept apart here. Slices are shared: do not change them.
type Effect any

// StateWrite replaces a partition's state if its node has that version.
type StateWrite struct {
	Partition TopicPartition
	Version   int32 // expected; -1 in CreateStates
	State     State
	// Join are the incarnations that come into the ISR by this write, elected from the ELR or as
	// the last leader. The transaction checks that /brokers/epochs/ID has each one's epoch as its
	// version: a newer incarnation may have lost what this one had (C3, S28).
	Join []BrokerEpoch
}

// WriteStates: each is a transaction of its own, multi[check /controller_epoch, check each of
// Join, set state].
// They may run side by side. Outcomes: StatesWritten.
type WriteStates struct {
	EpochVersion int32 // for the check; -1: no check (rule controller-epoch-check is off)
	Writes       []StateWrite
}

// CreateStates makes state nodes (and their parents, where missing) of a new topic's
// partitions in one transaction. Outcome: StatesCreated.
type CreateStates struct {
	EpochVersion int32
	Topic        string
	Writes       []StateWrite
}

// WriteTopic sets a topic's node and states of it in one transaction:
// multi[check /controller_epoch, set topic (Version), set state (its version)...]. Outcome: TopicWritten.
type WriteTopic struct {
	EpochVersion int32
	Topic        string
	ID           TopicID
	Version      int32
	Partitions   []Assignment // the whole node
	States       []StateWrite
}

// DeleteTopic removes the topic's nodes (states first, the topic's node, its settings, and last its mark in
// /admin/delete_topics), each transaction with the check. Outcome: TopicDeleted.
type DeleteTopic struct {
	EpochVersion int32
	Topic        string
}

// WriteHandled notes which incarnations were dealt with: the whole content of one node,
// only written by controllers (with the check) and read by the next one into Loaded.Handled. Without it a new controller
// could not tell whether a replica in ELR got there before or after its broker's
// unclean start. One at a time. Outcome: HandledWritten.
type WriteHandled struct {
	EpochVersion int32
	Handled      []BrokerEpoch // ascending by broker
}

// ReadBrokers asks for BrokersRead.
type ReadBrokers struct{}

// ReadTopics asks for TopicsRead of these.
type ReadTopics struct{ Topics []string }

// ReadStates asks for StatesRead of these. The driver tries until it has an answer (Failed is one).
type ReadStates struct{ Partitions []TopicPartition }

// Answer ends a request that waits.
type Answer struct {
	Request    uint64
	Code       int16
	Partitions []PartitionError // ControlledShutdown: those that it still leads; else one for each partition asked for, with its code
}

// Resign: this controller's term is over. The driver gives up /controller if it still has it, and drops the Controller.
type Resign struct{ Reason string }

// Send sends a command and reports CommandDone. One to a broker is in flight.
type Send struct {
	To              Broker // registration as it is now
	Seq             uint64 // ascending in the order of sending, over all brokers; one that was sent again has another
	ControllerEpoch int32
	BrokerEpoch     int64   // the receiver's; -1: not fenced (rule command-broker-epoch is off)
	Command         Command // *LeaderAndISR, *UpdateMetadata or *StopReplica
}

// Command is *LeaderAndISR, *UpdateMetadata or *StopReplica.
type Command any

// LeaderAndISR tells a broker what to do with replicas that it has.
//
// The receiver applies a partition whose (LeaderEpoch, PartitionEpoch) is not below what it has; changed
// replicas always come with a new leader epoch.
type LeaderAndISR struct {
	// Full: the list is complete. What else the broker has is stray: a replica that was
	// moved or a topic that was deleted while it was away.
	Full        bool
	Partitions  []PartitionInfo
	LiveLeaders []Broker
}

// UpdateMetadata tells a broker what clients may ask it. Brokers is the whole list of live ones.
type UpdateMetadata struct {
	Brokers    []Broker
	Partitions []PartitionInfo // changed ones; Leader LeaderDuringDelete removes
}

// PartitionInfo is an accepted state with its assignment. Only the controller elects by the ELR.
type PartitionInfo struct {
	Partition      TopicPartition
	TopicID        TopicID
	Leader         int32
	LeaderEpoch    int32
	ISR            []int32
	ELR            []int32 // LeaderAndISR only: the leader writes it along with the ISR
	LastKnownELR   []int32 // likewise
	PartitionEpoch int32
	Replicas       []int32
	Adding         []int32 // LeaderAndISR only
	Removing       []int32 // LeaderAndISR only
	Offline        []int32 // UpdateMetadata only
	// ControllerEpoch is that of the state, see State.
	ControllerEpoch int32
}

// StopReplica tells a broker to stop replicating, and to delete.
type StopReplica struct{ Partitions []StopPartition }

// StopPartition is refused by a replica of a newer LeaderEpoch (KIP-570).
type StopPartition struct {
	Partition   TopicPartition
	TopicID     TopicID
	LeaderEpoch int32
	Delete      bool
}

// Error codes of Kafka's protocol that the controller uses.
const (
	codeNone                        int16 = 0
	codeUnknownTopicOrPartition     int16 = 3
	codeStaleControllerEpoch        int16 = 11
	codeInvalidReplicaAssignment    int16 = 39
	codeKafkaStorageError           int16 = 56
	codeFencedLeaderEpoch           int16 = 74
	codeStaleBrokerEpoch            int16 = 77
	codePreferredLeaderNotAvailable int16 = 80
	codeEligibleLeadersNotAvailable int16 = 83
	codeElectionNotNeeded           int16 = 84
	codeNoReassignmentInProgress    int16 = 85
	codeBrokerIDNotRegistered       int16 = 102
)
