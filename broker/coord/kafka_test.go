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
		{"broker", BrokerRegistration{Host: "localhost", Port: 9092, Timestamp: 17}.Encode(), `{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://localhost:9092"],"jmx_port":-1,"features":{},"host":"localhost","timestamp":"17","port":9092,"version":5}`},
		{"broker on IPv6", BrokerRegistration{Host: "::1", Port: 1, Rack: "r"}.Encode(), `{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://[::1]:1"],"jmx_port":-1,"features":{},"host":"::1","timestamp":"0","port":1,"version":5,"rack":"r"}`},
		{"topic", TopicAssignment{id, [][]int32{{1, 2}, {2}}}.Encode(), `{"removing_replicas":{},"partitions":{"0":[1,2],"1":[2]},"topic_id":"AQAAAAAAAAAAAAAAAAAA_w","adding_replicas":{},"version":3}`},
		{"partition", PartitionState{ControllerEpoch: 3, Leader: 1, LeaderEpoch: 2}.Encode(), `{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":2,"isr":[]}`},
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
	topic := TopicAssignment{UUID{3}, make([][]int32, 12)}
	for p := range topic.Replicas {
		topic.Replicas[p] = []int32{int32(p)}
	}
	if got, err := DecodeTopicAssignment(topic.Encode()); err != nil || !reflect.DeepEqual(got, topic) {
		t.Errorf("topic: %v, %v", got, err)
	}
	state := PartitionState{ControllerEpoch: 3, Leader: -1, Version: 1, LeaderEpoch: 2, ISR: []int32{4, 5}}
	if got, err := DecodePartitionState(state.Encode()); err != nil || !reflect.DeepEqual(got, state) {
		t.Errorf("partition: %v, %v", got, err)
	}
	broker := BrokerRegistration{"h", 9, 17, "rack"}
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

func TestPersistentPathsBringTheirParents(t *testing.T) {
	tree := NewTree()
	for _, path := range PersistentPaths {
		tree.mustApply(Txn{Kind: TxnOps, Ops: []Op{CreateOp(path, nil, Persistent)}})
	}
}
