package broker

import (
	"errors"

	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/record"
)

// Kafka's error codes that this broker answers with, by Kafka's names.
const (
	codeNone                      int16 = 0
	codeUnknownServerError        int16 = -1
	codeOffsetOutOfRange          int16 = 1
	codeCorruptMessage            int16 = 2
	codeUnknownTopicOrPartition   int16 = 3
	codeLeaderNotAvailable        int16 = 5
	codeNotLeaderOrFollower       int16 = 6
	codeRequestTimedOut           int16 = 7
	codeReplicaNotAvailable       int16 = 9
	codeStaleControllerEpoch      int16 = 11
	codeCoordinatorNotAvailable   int16 = 15
	codeInvalidTopic              int16 = 17
	codeNotEnoughReplicas         int16 = 19
	codeNotEnoughReplicasAfter    int16 = 20
	codeInvalidRequiredAcks       int16 = 21
	codeInvalidTimestamp          int16 = 32
	codeUnsupportedVersion        int16 = 35
	codeTopicAlreadyExists        int16 = 36
	codeInvalidPartitions         int16 = 37
	codeInvalidReplicationFactor  int16 = 38
	codeInvalidReplicaAssignment  int16 = 39
	codeInvalidConfig             int16 = 40
	codeNotController             int16 = 41
	codeInvalidRequest            int16 = 42
	codeUnsupportedForFormat      int16 = 43
	codeInvalidTxnState           int16 = 48
	codeTransactionalIDAuthFailed int16 = 53
	codeStorageError              int16 = 56
	codeFetchSessionIDNotFound    int16 = 70
	codeTopicDeletionDisabled     int16 = 73
	codeFencedLeaderEpoch         int16 = 74
	codeUnknownLeaderEpoch        int16 = 75
	codeStaleBrokerEpoch          int16 = 77
	codeOffsetNotAvailable        int16 = 78
	codeInvalidRecord             int16 = 87
	codeUnknownTopicID            int16 = 100
)

// codeOf is the code that an error of the storage layer is answered with.
func codeOf(err error) int16 {
	if err == nil {
		return codeNone
	}
	if protocol, ok := errors.AsType[*storage.ProtocolError](err); ok {
		return protocol.Code
	}
	if invalid, ok := errors.AsType[*record.Error](err); ok {
		return invalid.Code
	}
	if _, ok := errors.AsType[*storage.CorruptionError](err); ok {
		return codeCorruptMessage
	}
	return codeStorageError
}

// ptr gives a text an address, as kmsg's nullable fields want.
func ptr(s string) *string { return &s }
