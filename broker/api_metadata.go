package broker

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Metadata, versions 0-13, topics by id from 10. A topic that is not there is
// created where the request and auto.create.topics.enable allow it, and the answer waits for it.
//
// Left out: authorized operations.

const authorizedOperationsNone = -1 << 31

func (b *Broker) handleMetadata(req *kmsg.MetadataRequest, local string, reply Reply) {
	if b.replicated() && !b.meta.Load().told() {
		own, local := cloneMetadataRequest(req), strings.Clone(local)
		b.await(toldWait, (*metadata).told, func(bool) { b.answerMetadata(own, local, reply) })
		return
	}
	b.answerMetadata(req, local, reply)
}

// toldWait is how long a broker that has just started waits for the controller before it
// answers. To know nothing yet is not to say that there is no such topic: clients give up on that.
const toldWait = 10 * time.Second

// told is true once the controller has spoken.
func (m *metadata) told() bool { return len(m.nodes) > 0 }

// cloneMetadataRequest copies what an answer needs: the request's strings alias the receive buffer.
func cloneMetadataRequest(req *kmsg.MetadataRequest) *kmsg.MetadataRequest {
	own := &kmsg.MetadataRequest{Version: req.Version, AllowAutoTopicCreation: req.AllowAutoTopicCreation}
	if req.Topics != nil {
		own.Topics = make([]kmsg.MetadataRequestTopic, len(req.Topics))
	}
	for i, t := range req.Topics {
		own.Topics[i].TopicID = t.TopicID
		if t.Topic != nil {
			own.Topics[i].Topic = ptr(strings.Clone(*t.Topic))
		}
	}
	return own
}

func (b *Broker) answerMetadata(req *kmsg.MetadataRequest, local string, reply Reply) {
	missing := b.missingTopics(req)
	if len(missing) == 0 {
		reply(Answer{Body: b.metadataAnswer(req, local)})
		return
	}
	own, local := cloneMetadataRequest(req), strings.Clone(local) // the creation outlives this call
	b.createTopics(missing, func(results []topicResult) {
		resp := b.metadataAnswer(own, local)
		explainMissing(resp, missing, results)
		reply(Answer{Body: resp})
	})
}

// explainMissing says of topics that could not be created why: otherwise a client
// would ask for them again and again. That somebody else was faster is worth another question.
func explainMissing(resp *kmsg.MetadataResponse, specs []topicSpec, results []topicResult) {
	codes := make(map[string]int16, len(specs))
	for i, r := range results {
		codes[specs[i].name] = r.code
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.ErrorCode != codeUnknownTopicOrPartition || t.Topic == nil {
			continue
		}
		if code := codes[*t.Topic]; code == codeTopicAlreadyExists {
			t.ErrorCode = codeLeaderNotAvailable
		} else if code != codeNone {
			t.ErrorCode = code
		}
	}
}

// autoCreateMax bounds how many topics one Metadata request may create.
const autoCreateMax = 1000

// missingTopics is what the request asks for, may create and does not find.
func (b *Broker) missingTopics(req *kmsg.MetadataRequest) []topicSpec {
	cfg, m := b.cfg.Load(), b.meta.Load()
	if b.replicated() && !m.told() || !cfg.AutoCreateTopics || req.Version >= 4 && !req.AllowAutoTopicCreation {
		return nil
	}
	var specs []topicSpec
	for _, t := range req.Topics {
		if t.Topic == nil || m.topics[*t.Topic] != nil || checkTopicName(*t.Topic) != "" || len(specs) == autoCreateMax {
			continue
		}
		specs = append(specs, topicSpec{name: strings.Clone(*t.Topic), partitions: cfg.NumPartitions, factor: -1})
	}
	return specs
}

func (b *Broker) metadataAnswer(req *kmsg.MetadataRequest, local string) *kmsg.MetadataResponse {
	m := b.meta.Load()
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	resp.Default()
	resp.ClusterID = &m.clusterID
	nodes, controller := b.nodesFor(m, local)
	for i := range nodes {
		broker := kmsg.NewMetadataResponseBroker()
		broker.NodeID, broker.Host, broker.Port = nodes[i].id, nodes[i].host, nodes[i].port
		if nodes[i].rack != "" {
			broker.Rack = &nodes[i].rack
		}
		resp.Brokers = append(resp.Brokers, broker)
	}
	resp.ControllerID = controller
	resp.AuthorizedOperations = authorizedOperationsNone

	all := req.Topics == nil || req.Version == 0 && len(req.Topics) == 0
	if all {
		resp.Topics = make([]kmsg.MetadataResponseTopic, 0, len(m.sorted))
		for _, t := range m.sorted {
			resp.Topics = append(resp.Topics, b.describeTopic(t))
		}
		return resp
	}
	resp.Topics = make([]kmsg.MetadataResponseTopic, 0, len(req.Topics))
	for i := range req.Topics {
		resp.Topics = append(resp.Topics, b.metadataTopic(m, &req.Topics[i]))
	}
	return resp
}

// metadataTopic answers for one topic of a request, by name or else by id.
func (b *Broker) metadataTopic(m *metadata, want *kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
	missing := kmsg.NewMetadataResponseTopic()
	missing.AuthorizedOperations = authorizedOperationsNone
	missing.Topic = want.Topic
	if want.Topic == nil {
		if t := m.byID[want.TopicID]; t != nil {
			return b.describeTopic(t)
		}
		missing.TopicID, missing.ErrorCode = want.TopicID, codeUnknownTopicID
		return missing
	}
	if t := m.topics[*want.Topic]; t != nil {
		return b.describeTopic(t)
	}
	missing.ErrorCode = codeUnknownTopicOrPartition
	if b.replicated() && !m.told() {
		missing.ErrorCode = codeLeaderNotAvailable
	}
	if checkTopicName(*want.Topic) != "" {
		missing.ErrorCode = codeInvalidTopic
	}
	return missing
}

func (b *Broker) describeTopic(t *topic) kmsg.MetadataResponseTopic {
	answer := kmsg.NewMetadataResponseTopic()
	answer.Topic, answer.TopicID = &t.name, t.id
	answer.AuthorizedOperations = authorizedOperationsNone
	if b.replicated() {
		describePlaced(&answer, t)
		return answer
	}
	answer.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.partitions))
	self := []int32{b.static.BrokerID}
	for i, p := range t.partitions {
		a := &answer.Partitions[i]
		a.Default()
		a.Partition, a.Replicas, a.LeaderEpoch = p.index, self, p.epoch
		if p.dir.isOffline() {
			a.ErrorCode, a.Leader, a.OfflineReplicas = codeLeaderNotAvailable, -1, self
			continue
		}
		a.Leader, a.ISR = b.static.BrokerID, self
	}
	return answer
}

// describePlaced answers as the controller last told.
func describePlaced(answer *kmsg.MetadataResponseTopic, t *topic) {
	answer.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.placed))
	for i := range t.placed {
		p, a := &t.placed[i], &answer.Partitions[i]
		a.Default()
		a.Partition, a.Leader, a.LeaderEpoch = int32(i), p.leader, p.leaderEpoch
		a.Replicas, a.ISR, a.OfflineReplicas = p.replicas, p.isr, p.offline
		if p.leader < 0 {
			a.ErrorCode = codeLeaderNotAvailable
		}
	}
}

// nodesFor are the brokers that a client is told, and the controller. A cluster of one
// is where this client came to.
func (b *Broker) nodesFor(m *metadata, local string) (nodes []node, controller int32) {
	if b.replicated() {
		return m.nodes, m.controller
	}
	host, port := b.advertised(local)
	return []node{{id: b.static.BrokerID, host: host, port: port}}, b.static.BrokerID
}

// advertised is the address that clients are told: advertised.listeners, or the
// one this client came to.
func (b *Broker) advertised(local string) (host string, port int32) {
	address := local
	if a := b.static.AdvertisedListeners; len(a) > 0 {
		address = a[0]
	}
	if _, rest, ok := strings.Cut(address, "://"); ok {
		address = rest
	}
	i := strings.LastIndexByte(address, ':')
	if i < 0 {
		return address, 0
	}
	n, _ := strconv.ParseUint(address[i+1:], 10, 16)
	host = strings.Trim(address[:i], "[]")
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	return host, int32(n)
}
