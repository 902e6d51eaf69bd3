package limits

import (
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/storage/record"
)

// sink is the smallest Kafka broker that a producer accepts: every topic exists,
// every batch is acknowledged with the offset it would have, and forgotten
// unread. What a client reaches against it is the client's own ceiling.
type sink struct {
	host string
	port int32

	mu   sync.Mutex
	next map[string][]int64 // topic → partition → next offset
}

// sinkPartitions is how many partitions every topic of a sink has.
const sinkPartitions = 16

// sinkFrameMax bounds one request, in bytes.
const sinkFrameMax = 100 << 20

// sinkVersions is what the sink serves: key, lowest and highest version.
var sinkVersions = [][3]int16{
	{0, 3, 9},  // Produce
	{3, 1, 9},  // Metadata
	{18, 0, 3}, // ApiVersions
	{22, 0, 4}, // InitProducerID
}

func newSink(addr *net.TCPAddr) *sink {
	return &sink{host: addr.IP.String(), port: int32(addr.Port), next: map[string][]int64{}}
}

func (s *sink) serve(conn *net.TCPConn) error {
	frames := load.NewFrames(conn, sinkFrameMax)
	var out []byte
	for {
		frame, err := frames.Next()
		if err != nil {
			return err
		}
		answer, err := s.answer(frame, out[:0])
		if err != nil {
			return err
		}
		if out = answer; len(out) == 0 {
			continue // acks=0
		}
		if _, err := conn.Write(out); err != nil {
			return err
		}
	}
}

// answer appends the framed answer to one request.
func (s *sink) answer(frame, out []byte) ([]byte, error) {
	if len(frame) < 10 {
		return nil, fmt.Errorf("sink: a request of %d bytes", len(frame))
	}
	key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
	req := kmsg.RequestForKey(key)
	if req == nil {
		return nil, fmt.Errorf("sink: api key %d", key)
	}
	req.SetVersion(version)
	body := frame[8:]
	clientID := max(0, int(int16(binary.BigEndian.Uint16(body))))
	if body = body[min(len(body), 2+clientID):]; req.IsFlexible() {
		if len(body) == 0 || body[0] != 0 {
			return nil, fmt.Errorf("sink: tagged fields in the header of %s", kmsg.NameForKey(key))
		}
		body = body[1:]
	}
	if err := req.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("sink: %s version %d: %w", kmsg.NameForKey(key), version, err)
	}
	resp := s.respond(req)
	if resp == nil {
		return out, nil
	}
	resp.SetVersion(version)
	out = append(out, 0, 0, 0, 0)
	out = append(out, frame[4:8]...)
	if resp.IsFlexible() && key != 18 { // ApiVersions keeps the old header for all time
		out = append(out, 0)
	}
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out, nil
}

func (s *sink) respond(req kmsg.Request) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		resp := kmsg.NewPtrApiVersionsResponse()
		for _, v := range sinkVersions {
			resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: v[0], MinVersion: v[1], MaxVersion: v[2]})
		}
		return resp
	case *kmsg.MetadataRequest:
		return s.metadata(req)
	case *kmsg.InitProducerIDRequest:
		resp := kmsg.NewPtrInitProducerIDResponse()
		resp.ProducerID = 1
		return resp
	case *kmsg.ProduceRequest:
		return s.produce(req)
	}
	return nil
}

func (s *sink) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	resp := kmsg.NewPtrMetadataResponse()
	cluster := "sink"
	resp.ClusterID = &cluster
	resp.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 0, Host: s.host, Port: s.port}}
	for _, t := range req.Topics {
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = t.Topic
		for p := range int32(sinkPartitions) {
			partition := kmsg.NewMetadataResponseTopicPartition()
			partition.Partition, partition.Replicas, partition.ISR = p, []int32{0}, []int32{0}
			topic.Partitions = append(topic.Partitions, partition)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

func (s *sink) produce(req *kmsg.ProduceRequest) kmsg.Response {
	resp := kmsg.NewPtrProduceResponse()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range req.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = t.Topic
		if s.next[t.Topic] == nil {
			s.next[t.Topic] = make([]int64, sinkPartitions)
		}
		for _, p := range t.Partitions {
			partition := kmsg.NewProduceResponseTopicPartition()
			partition.Partition = p.Partition
			if p.Partition < 0 || p.Partition >= sinkPartitions || len(p.Records) < record.HeaderSize {
				partition.ErrorCode = 3 // UNKNOWN_TOPIC_OR_PARTITION
			} else {
				partition.BaseOffset = s.next[t.Topic][p.Partition]
				s.next[t.Topic][p.Partition] += int64(record.ReadHeader(p.Records).RecordCount)
			}
			topic.Partitions = append(topic.Partitions, partition)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	if req.Acks == 0 {
		return nil
	}
	return resp
}

// addrOf is the address in a ready line.
func addrOf(line string) (string, error) {
	addr := line[min(len(line), len(readyPrefix)):]
	if _, port, err := net.SplitHostPort(addr); err != nil {
		return "", fmt.Errorf("limits: ready line %q: %w", line, err)
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("limits: ready line %q: %w", line, err)
	}
	return addr, nil
}
