package coord

import (
	"strconv"
	"strings"
)

// Every path of the tree that Kafka knows, in one place. What stands in the
// nodes is in kafka.go.
const (
	ClusterIDPath             = "/cluster/id"
	BrokersPath               = "/brokers"
	BrokerIDsPath             = "/brokers/ids"
	BrokerSeqIDPath           = "/brokers/seqid"
	BrokerEpochsPath          = "/brokers/epochs"  // ours: bumped by every registration (DESIGN, Replication)
	BrokersHandledPath        = "/brokers/handled" // ours: which incarnations controllers have dealt with
	TopicsPath                = "/brokers/topics"
	ControllerPath            = "/controller"
	ControllerEpochPath       = "/controller_epoch"
	ISRChangeNotificationPath = "/isr_change_notification"
	LogDirEventPath           = "/log_dir_event_notification"
	ConfigPath                = "/config"
	TopicConfigsPath          = "/config/topics"
	BrokerConfigsPath         = "/config/brokers"
	ConfigChangesPath         = "/config/changes"
	AdminPath                 = "/admin"
	DeleteTopicsPath          = "/admin/delete_topics"
	ReassignPartitionsPath    = "/admin/reassign_partitions"        // not there: none is asked for
	PreferredElectionPath     = "/admin/preferred_replica_election" // not there: none is asked for
	LatestProducerIDBlockPath = "/latest_producer_id_block"
	ConsumersPath             = "/consumers"
	StorageFormatPath         = "/lab_storage_format" // ours: the settings that its partitions were written with, see EncodeConfig
)

// DefaultBroker is the name under BrokerConfigsPath of what holds for every broker.
const DefaultBroker = "<default>"

// PersistentPaths are made at the first start, in this order; each parent comes first.
var PersistentPaths = []string{
	"/cluster",
	BrokersPath, BrokerIDsPath, BrokerSeqIDPath, BrokerEpochsPath, TopicsPath,
	ISRChangeNotificationPath, LogDirEventPath,
	ConfigPath, TopicConfigsPath, BrokerConfigsPath, ConfigChangesPath,
	AdminPath, DeleteTopicsPath,
	ConsumersPath,
}

// BrokerIDPath holds a BrokerRegistration; ephemeral.
func BrokerIDPath(id int32) string { return BrokerIDsPath + "/" + strconv.Itoa(int(id)) }

// BrokerEpochPath is the persistent node whose version counts a broker's registrations.
func BrokerEpochPath(id int32) string { return BrokerEpochsPath + "/" + strconv.Itoa(int(id)) }

// TopicPath holds a TopicAssignment.
func TopicPath(topic string) string { return TopicsPath + "/" + topic }

// PartitionsPath is the parent of a topic's partitions.
func PartitionsPath(topic string) string { return TopicPath(topic) + "/partitions" }

// PartitionPath is the parent of a partition's state.
func PartitionPath(topic string, partition int32) string {
	return PartitionsPath(topic) + "/" + strconv.Itoa(int(partition))
}

// PartitionStatePath holds a PartitionState.
func PartitionStatePath(topic string, partition int32) string {
	return PartitionPath(topic, partition) + "/state"
}

// TopicConfigPath holds a topic's own settings, see EncodeConfig.
func TopicConfigPath(topic string) string { return TopicConfigsPath + "/" + topic }

// BrokerConfigPath holds a broker's dynamic settings, see EncodeConfig. broker is an id or DefaultBroker.
func BrokerConfigPath(broker string) string { return BrokerConfigsPath + "/" + broker }

// ISRChangePrefix is what a sequential ISRChange node is created with.
const ISRChangePrefix = ISRChangeNotificationPath + "/isr_change_"

// LogDirEventPrefix is what a sequential log directory event is created with.
const LogDirEventPrefix = LogDirEventPath + "/log_dir_event_"

// ConfigChangePrefix is what a sequential ConfigChange node is created with.
const ConfigChangePrefix = ConfigChangesPath + "/config_change_"

// DeleteTopicPath marks a topic whose deletion has begun. It has no data.
func DeleteTopicPath(topic string) string { return DeleteTopicsPath + "/" + topic }

// ParseSequence gives the number at the end of a sequential node's name.
func ParseSequence(name string) (number int64, ok bool) {
	const digits = 10
	if len(name) < digits {
		return 0, false
	}
	for _, c := range []byte(name[len(name)-digits:]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		number = number*10 + int64(c-'0')
	}
	return number, true
}

// ParsePartitionStatePath takes PartitionStatePath apart.
func ParsePartitionStatePath(path string) (topic string, partition int32, ok bool) {
	rest, ok := strings.CutPrefix(path, TopicsPath+"/")
	if !ok {
		return "", 0, false
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 4 || parts[1] != "partitions" || parts[3] != "state" {
		return "", 0, false
	}
	n, err := strconv.ParseInt(parts[2], 10, 32)
	return parts[0], int32(n), err == nil && n >= 0
}
