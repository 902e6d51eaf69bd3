package coord

import (
	"reflect"
	"testing"
)

// What stands in the nodes is what Kafka 3.x in ZooKeeper mode writes, byte for byte up to the order of keys.
func TestNodesHoldKafkasJSON(t *testing.T) {
	id := UUID{0: 1, 15: 255}
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"cluster id", EncodeClusterID("x_y-z"), `{"version":"1","id":"x_y-z"}`},
		{"broker", BrokerRegistration{Host: "localhost", Port: 9092, Timestamp: 17, CleanEpoch: -1}.Encode(), `{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://localhost:9092"],"jmx_port":-1,"features":{},"host":"localhost","timestamp":"17","port":9092,"version":5,"broker_epoch":0,"clean_epoch":-1,"clean_run":0}`},
		{"broker on IPv6", BrokerRegistration{Host: "::1", Port: 1, Rack: "r", BrokerEpoch: 7, CleanEpoch: 6}.Encode(), `{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://[::1]:1"],"jmx_port":-1,"features":{},"host":"::1","timestamp":"0","port":1,"version":5,"rack":"r","broker_epoch":7,"clean_epoch":6,"clean_run":0}`},
		{"topic", TopicAssignment{TopicID: id, Replicas: [][]int32{{1, 2}, {2}}}.Encode(), `{"removing_replicas":{},"partitions":{"0":[1,2],"1":[2]},"topic_id":"AQAAAAAAAAAAAAAAAAAA_w","adding_replicas":{},"version":3}`},
		{"topic on the move", TopicAssignment{TopicID: id, Replicas: [][]int32{{1, 2}}, Adding: map[int32][]int32{0: {2}}, Removing: map[int32][]int32{0: {1}}}.Encode(), `{"removing_replicas":{"0":[1]},"partitions":{"0":[1,2]},"topic_id":"AQAAAAAAAAAAAAAAAAAA_w","adding_replicas":{"0":[2]},"version":3}`},
		{"partition", PartitionState{ControllerEpoch: 3, Leader: 1, LeaderEpoch: 2, LastLeader: -1}.Encode(), `{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":2,"isr":[],"elr":[],"last_leader":-1,"last_known_elr":[]}`},
		{"controller", Controller{2, 17}.Encode(), `{"version":2,"brokerid":2,"timestamp":"17"}`},
		{"controller epoch", EncodeControllerEpoch(12), `12`},
		{"ISR change", EncodeISRChange([]TopicPartition{{"t", 0}, {"u", 3}}), `{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"u","partition":3}]}`},
		{"log directory event", EncodeLogDirEvent(2), `{"version":1,"broker":2,"event":1}`},
		{"preferred election", EncodePreferredElection([]TopicPartition{{"t", 0}}), `{"version":1,"partitions":[{"topic":"t","partition":0}]}`},
		{"reassignment", EncodeReassignments([]Reassignment{{TopicPartition{"t", 0}, []int32{2, 1}}}), `{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,1]}]}`},
		{"config change", EncodeConfigChange("topics/t"), `{"version":2,"entity_path":"topics/t"}`},
		{"config", EncodeConfig(map[string]string{"b": "<&>", "a": "1"}), `{"version":1,"config":{"a":"1","b":"<&>"}}`},
		{"no config", EncodeConfig(nil), `{"version":1,"config":{}}`},
		{"producer ids", ProducerIDBlock{1, 1000, 1999}.Encode(), `{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}`},
	} {
		if string(c.got) != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.name, c.got, c.want)
		}
	}
}

func TestNodesAreReadBack(t *testing.T) {
	topic := TopicAssignment{TopicID: UUID{3}, Replicas: make([][]int32, 12), Adding: map[int32][]int32{3: {7}, 11: {8}}, Removing: map[int32][]int32{0: {0}}}
	for p := range topic.Replicas {
		topic.Replicas[p] = []int32{int32(p)}
	}
	if got, err := DecodeTopicAssignment(topic.Encode()); err != nil || !reflect.DeepEqual(got, topic) {
		t.Errorf("topic: %v, %v", got, err)
	}
	state := PartitionState{ControllerEpoch: 3, Leader: -1, LeaderEpoch: 2, ISR: []int32{4, 5}, ELR: []int32{1}, LastLeader: 4, LastKnownELR: []int32{6}}
	if got, err := DecodePartitionState(state.Encode()); err != nil || !reflect.DeepEqual(got, state) {
		t.Errorf("partition: %v, %v", got, err)
	}
	broker := BrokerRegistration{"h", 9, 17, "rack", 5, 4, 2}
	if got, err := DecodeBrokerRegistration(broker.Encode()); err != nil || got != broker {
		t.Errorf("broker: %v, %v", got, err)
	}
	config := map[string]string{"a": "1"}
	if got, err := DecodeConfig(EncodeConfig(config)); err != nil || !reflect.DeepEqual(got, config) {
		t.Errorf("config: %v, %v", got, err)
	}
	block := ProducerIDBlock{1, 1000, 1999}
	if got, err := DecodeProducerIDBlock(block.Encode()); err != nil || got != block {
		t.Errorf("producer ids: %v, %v", got, err)
	}
	if got, err := DecodeClusterID(EncodeClusterID("c")); err != nil || got != "c" {
		t.Errorf("cluster id: %v, %v", got, err)
	}
	if got, err := DecodeController(Controller{2, 17}.Encode()); err != nil || got != (Controller{2, 17}) {
		t.Errorf("controller: %v, %v", got, err)
	}
	if got, err := DecodeControllerEpoch(EncodeControllerEpoch(12)); err != nil || got != 12 {
		t.Errorf("controller epoch: %v, %v", got, err)
	}
	partitions := []TopicPartition{{"t", 0}, {"u", 3}}
	if got, err := DecodeISRChange(EncodeISRChange(partitions)); err != nil || !reflect.DeepEqual(got, partitions) {
		t.Errorf("ISR change: %v, %v", got, err)
	}
	if got, err := DecodePreferredElection(EncodePreferredElection(partitions)); err != nil || !reflect.DeepEqual(got, partitions) {
		t.Errorf("preferred election: %v, %v", got, err)
	}
	moves := []Reassignment{{TopicPartition{"t", 1}, []int32{2, 1}}}
	if got, err := DecodeReassignments(EncodeReassignments(moves)); err != nil || !reflect.DeepEqual(got, moves) {
		t.Errorf("reassignments: %v, %v", got, err)
	}
	if got, err := DecodeConfigChange(EncodeConfigChange("topics/t")); err != nil || got != "topics/t" {
		t.Errorf("config change: %v, %v", got, err)
	}
	if topic, p, ok := ParsePartitionStatePath(PartitionStatePath("t", 7)); topic != "t" || p != 7 || !ok {
		t.Error("partition state path", topic, p, ok)
	}
}

func TestNodesWithOtherContentAreErrors(t *testing.T) {
	for _, bad := range []string{"", "{", "[]", `{"partitions":{"0":[1],"2":[1]},"topic_id":"AQAAAAAAAAAAAAAAAAAA_w"}`, `{"partitions":{"00":[1]},"topic_id":"AQAAAAAAAAAAAAAAAAAA_w"}`, `{"partitions":{},"topic_id":"short"}`} {
		if _, err := DecodeTopicAssignment([]byte(bad)); err == nil {
			t.Errorf("topic %s passed", bad)
		}
	}
	for _, bad := range []string{"", `{"block_start":"5","block_end":"4"}`, `{"block_start":"-1","block_end":"4"}`, `{"block_start":5,"block_end":"9"}`} {
		if _, err := DecodeProducerIDBlock([]byte(bad)); err == nil {
			t.Errorf("producer ids %s passed", bad)
		}
	}
	if _, err := DecodeClusterID([]byte(`{"version":"1"}`)); err == nil {
		t.Error("cluster id without id passed")
	}
}

// Every decoder refuses what is no object of its kind: a damaged node must not pass for broker 0, epoch 0 or an empty ISR.
func TestDamagedNodesAreErrors(t *testing.T) {
	for _, d := range decoders {
		for _, bad := range append([]string{"", "null", "{", "[]", "7x", `"s"`}, d.damaged...) {
			if err := d.decode([]byte(bad)); err == nil {
				t.Errorf("%s: %q passed", d.name, bad)
			}
		}
	}
}

// Fields that are not ours are passed over, and ours may be missing: Kafka's own nodes can be read.
func TestNodesThatKafkaWroteAreRead(t *testing.T) {
	s, err := DecodePartitionState([]byte(`{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0],"new":{}}`))
	if err != nil || s.LastLeader != NoBroker || len(s.ELR) != 0 || s.Leader != 0 {
		t.Errorf("partition state: %+v, %v", s, err)
	}
	b, err := DecodeBrokerRegistration([]byte(`{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://h:1"],"jmx_port":9999,"port":1,"host":"h","version":5,"timestamp":"3","tags":[1]}`))
	if err != nil || b.BrokerEpoch != -1 || b.CleanEpoch != -1 || b.Port != 1 {
		t.Errorf("registration: %+v, %v", b, err)
	}
	c, err := DecodeController([]byte(`{"version":2,"brokerid":0,"timestamp":"3","kraftMetadataVersion":-1}`))
	if err != nil || c.Broker != 0 {
		t.Errorf("controller: %+v, %v", c, err)
	}
}

func TestSequenceNumbersAreRead(t *testing.T) {
	for name, want := range map[string]int64{"isr_change_0000000012": 12, "0000000000": 0, "x2147483647": 2147483647} {
		if got, ok := ParseSequence(name); !ok || got != want {
			t.Errorf("%s: %d, %v", name, got, ok)
		}
	}
	for _, bad := range []string{"", "isr_change_", "isr_change_12", "x-000000001"} {
		if _, ok := ParseSequence(bad); ok {
			t.Errorf("%s passed", bad)
		}
	}
}

func TestPersistentPathsBringTheirParents(t *testing.T) {
	tree := NewTree()
	for _, path := range PersistentPaths {
		tree.mustApply(Txn{Kind: TxnOps, Ops: []Op{CreateOp(path, nil, Persistent)}})
	}
}

// decoders are all of them, for what must hold of each: how to read and write again, and what of theirs is damage.
var decoders = []struct {
	name    string
	decode  func([]byte) error
	again   func([]byte) []byte // of what decodes
	damaged []string
}{
	{"cluster id", discard(DecodeClusterID), reencode(DecodeClusterID, EncodeClusterID), []string{"{}"}},
	{"registration", discard(DecodeBrokerRegistration), reencode(DecodeBrokerRegistration, BrokerRegistration.Encode),
		[]string{"{}", `{"host":"h","port":1}`, `{"host":"h","port":-1,"timestamp":"1"}`, `{"host":"h","port":1,"timestamp":"1","broker_epoch":"x"}`}},
	{"topic", discard(DecodeTopicAssignment), reencode(DecodeTopicAssignment, TopicAssignment.Encode), []string{"{}",
		`{"partitions":{"0":[1,1]},"topic_id":"AQAAAAAAAAAAAAAAAAAA_w"}`, `{"partitions":{"0":[-1]},"topic_id":"AQAAAAAAAAAAAAAAAAAA_w"}`,
		`{"partitions":{"0":[1]},"adding_replicas":{"1":[2]},"topic_id":"AQAAAAAAAAAAAAAAAAAA_w"}`, `{"partitions":{"0":[1]},"removing_replicas":{"x":[2]},"topic_id":"AQAAAAAAAAAAAAAAAAAA_w"}`}},
	{"partition state", discard(DecodePartitionState), reencode(DecodePartitionState, PartitionState.Encode), []string{"{}",
		`{"controller_epoch":1,"version":1,"leader_epoch":0,"isr":[0]}`, `{"controller_epoch":1,"leader":0,"leader_epoch":0}`, `{"leader":0,"leader_epoch":0,"isr":[]}`,
		`{"controller_epoch":1,"leader":0,"isr":[]}`, `{"controller_epoch":1,"leader":-2,"leader_epoch":0,"isr":[]}`, `{"controller_epoch":1,"leader":0,"leader_epoch":-1,"isr":[]}`,
		`{"controller_epoch":1,"leader":0,"leader_epoch":0,"isr":[1,1]}`, `{"controller_epoch":1,"leader":0,"leader_epoch":0,"isr":[],"elr":[-1]}`, `{"controller_epoch":1,"leader":0,"leader_epoch":0,"isr":[4294967296]}`}},
	{"controller", discard(DecodeController), reencode(DecodeController, Controller.Encode), []string{"{}", `{"brokerid":1}`, `{"timestamp":"1"}`, `{"brokerid":-1,"timestamp":"1"}`}},
	{"controller epoch", discard(DecodeControllerEpoch), reencode(DecodeControllerEpoch, EncodeControllerEpoch), []string{"-1", "2147483648", " 1", "{}"}},
	{"ISR change", discard(DecodeISRChange), reencode(DecodeISRChange, EncodeISRChange), badPartitions},
	{"log directory event", discard(DecodeLogDirEvent), reencode(DecodeLogDirEvent, EncodeLogDirEvent),
		[]string{"{}", `{"event":1}`, `{"broker":1}`, `{"broker":-1,"event":1}`, `{"broker":1,"event":2}`}},
	{"preferred election", discard(DecodePreferredElection), reencode(DecodePreferredElection, EncodePreferredElection), badPartitions},
	{"reassignments", discard(DecodeReassignments), reencode(DecodeReassignments, EncodeReassignments),
		append([]string{`{"partitions":[{"topic":"t","partition":1}]}`, `{"partitions":[{"topic":"t","partition":1,"replicas":[1,1]}]}`}, badPartitions...)},
	{"config", discard(DecodeConfig), reencode(DecodeConfig, EncodeConfig), []string{`{"config":[]}`, `{"config":{"a":1}}`}},
	{"config change", discard(DecodeConfigChange), reencode(DecodeConfigChange, EncodeConfigChange), []string{"{}", `{"entity_path":1}`}},
	{"producer ids", discard(DecodeProducerIDBlock), reencode(DecodeProducerIDBlock, ProducerIDBlock.Encode), []string{"{}"}},
}

var badPartitions = []string{"{}", `{"partitions":{}}`, `{"partitions":[{"topic":"t"}]}`, `{"partitions":[{"partition":1}]}`, `{"partitions":[{"topic":"t","partition":-1}]}`, `{"partitions":[null]}`}

func discard[T any](decode func([]byte) (T, error)) func([]byte) error {
	return func(b []byte) error {
		_, err := decode(b)
		return err
	}
}

func reencode[T any](decode func([]byte) (T, error), encode func(T) []byte) func([]byte) []byte {
	return func(b []byte) []byte {
		v, err := decode(b)
		if err != nil {
			panic(err)
		}
		return encode(v)
	}
}
