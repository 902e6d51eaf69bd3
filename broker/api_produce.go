package broker

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/record"
)

// Produce, versions 0-13, topics by id from 13. One record batch (magic 2) per
// partition, as Kafka asks; older formats, which versions 0-2 carry, get
// UNSUPPORTED_FOR_MESSAGE_FORMAT.
//
// acks=1: the leader has it, and where the flush policy says so, durably. acks=all: every
// in-sync replica has, which in a cluster of one is the same. acks=0 is not answered; a failure closes the connection.
//
// Left out: transactions (a transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
// fatal in every client, so that none waits for a coordinator that never comes),
// the error records of version 8 (the message says which), tags about other leaders.

// produceOp is one produce request that may wait for syncs.
type produceOp struct {
	resp    kmsg.ProduceResponse
	pending atomic.Int32 // syncs and put-off appends still to wait for, and 1 while the handler runs
	silent  bool         // acks=0
	reply   Reply
	woken   wokenFetches // by what was appended; completed after the answer, so that a producer does not wait for consumers

	// What there is to hold when the request is for one partition, as most are: allocated with it.
	oneTopic     [1]kmsg.ProduceResponseTopic
	onePartition [1]kmsg.ProduceResponseTopicPartition
	oneAppend    produceAppend
}

func (b *Broker) handleProduce(req *kmsg.ProduceRequest, reply Reply) {
	op := &produceOp{silent: req.Acks == 0, reply: reply}
	op.resp.Version = req.Version
	op.makeTopics(len(req.Topics))
	op.pending.Store(1)
	refused := codeNone
	switch {
	case req.Acks < -1 || req.Acks > 1:
		refused = codeInvalidRequiredAcks
	case req.TransactionID != nil:
		refused = codeTransactionalIDAuthFailed
	}
	m := b.meta.Load()
	for i := range req.Topics {
		rt, t := &req.Topics[i], &op.resp.Topics[i]
		known, unknown := m.produceTopic(req.Version, rt)
		if t.TopicID = rt.TopicID; known != nil {
			t.Topic = known.name
		} else {
			t.Topic = strings.Clone(rt.Topic) // the answer may outlive the receive buffer
		}
		t.Partitions = op.makePartitions(len(rt.Partitions))
		for j := range rt.Partitions {
			rp, answer := &rt.Partitions[j], &t.Partitions[j]
			answer.Default()
			answer.Partition = rp.Partition
			code := refused
			if code == codeNone {
				var p *partition
				if p, code = known.find(rp.Partition, unknown); p != nil {
					code = op.append(p, answer, rp.Records, req.Acks, produceTimeout(req))
				}
			}
			if code != codeNone {
				answer.ErrorCode = code
			}
		}
	}
	op.done()
	op.woken.complete()
}

func (op *produceOp) makeTopics(n int) {
	op.resp.Topics = op.oneTopic[:min(n, 1)]
	if n > 1 {
		op.resp.Topics = make([]kmsg.ProduceResponseTopic, n)
	}
}

func (op *produceOp) makePartitions(n int) []kmsg.ProduceResponseTopicPartition {
	if len(op.resp.Topics) == 1 && n <= 1 {
		return op.onePartition[:n]
	}
	return make([]kmsg.ProduceResponseTopicPartition, n)
}

// produceTopic finds a topic by name or id; unknown is the code for a partition that is not there.
func (m *metadata) produceTopic(version int16, rt *kmsg.ProduceRequestTopic) (t *topic, unknown int16) {
	if version < 13 {
		return m.topics[rt.Topic], codeUnknownTopicOrPartition
	}
	if t = m.byID[rt.TopicID]; t == nil {
		return nil, codeUnknownTopicID
	}
	return t, codeUnknownTopicOrPartition
}

// produceAppend is one partition's part of a produce request: the owner of its append.
type produceAppend struct {
	op     *produceOp
	answer *kmsg.ProduceResponseTopicPartition
}

// synced takes the outcome of the sync that the answer waits for. ErrorCode is
// synced's alone once append said that it waits.
func (w *produceAppend) synced(err error) {
	w.answer.ErrorCode = codeOf(err)
	w.op.done()
}

// placed takes the outcome of an append that was put off.
func (w *produceAppend) placed(a appended) {
	if code := w.op.placed(w.answer, a); code != codeNone {
		w.answer.ErrorCode = code
	}
	w.op.done()
}

// append writes one partition's batch. A code other than none is the answer; else
// the answer is filled in, now, or when the batch is written that was put off, or by the sync that it waits for.
func (op *produceOp) append(p *partition, answer *kmsg.ProduceResponseTopicPartition, records []byte, acks int16, timeout time.Duration) int16 {
	batch, h, err := p.validate(records)
	if err != nil {
		answer.ErrorMessage = reason(err)
		return codeOf(err)
	}
	owner := &op.oneAppend
	if answer != &op.onePartition[0] {
		owner = new(produceAppend)
	}
	*owner = produceAppend{op, answer}
	op.pending.Add(2) // one for synced, one for placed
	a, putOff, woken := p.append(&appendArgs{batch: batch, header: h, acks: acks, timeout: timeout, owner: owner})
	op.woken.addAll(woken)
	if putOff {
		return codeNone
	}
	op.pending.Add(-1)
	return op.placed(answer, a)
}

// placed fills in where a batch went. A code other than none is the answer.
func (op *produceOp) placed(answer *kmsg.ProduceResponseTopicPartition, a appended) int16 {
	if !a.waits {
		op.pending.Add(-1) // never the last: the caller holds one
	}
	answer.LogStartOffset = a.LogStartOffset
	if a.err != nil {
		answer.ErrorMessage = reason(a.err)
		return codeOf(a.err)
	}
	answer.BaseOffset = a.BaseOffset
	answer.LogAppendTime = a.AppendTime
	return codeNone
}

// produceTimeoutMax bounds how long a request waits for the ISR, whatever it asks.
const produceTimeoutMax = 10 * time.Minute

// produceTimeout is how long acks=all waits for the ISR.
func produceTimeout(req *kmsg.ProduceRequest) time.Duration {
	return min(max(time.Duration(req.TimeoutMillis)*time.Millisecond, 0), produceTimeoutMax)
}

// done answers when nothing is left to wait for. Each partition's outcome was
// written before its own done, so the last one sees them all.
func (op *produceOp) done() {
	if op.pending.Add(-1) != 0 {
		return
	}
	failed := false
	for i := range op.resp.Topics {
		for j := range op.resp.Topics[i].Partitions {
			if p := &op.resp.Topics[i].Partitions[j]; p.ErrorCode != codeNone {
				p.BaseOffset, p.LogAppendTime, failed = -1, -1, true
			}
		}
	}
	if op.silent {
		op.reply(Answer{Silent: true, Close: failed})
		return
	}
	op.reply(Answer{Body: &op.resp})
}

// validate checks one partition's records of a produce request and gives the
// batch to append. No lock is held: this is where the time goes. What depends on the
// broker's clock is checked when the batch is appended.
func (p *partition) validate(records []byte) ([]byte, record.Header, error) {
	cfg := p.cfg.Load()
	limits := record.Limits{BatchBytesMax: cfg.Log.MaxMessageBytes, DecompressedBytesMax: cfg.DecompressedMax}
	h, err := record.Validate(records, cfg.Validate, limits)
	switch {
	case err != nil:
		return nil, h, err
	case h.Size() != len(records):
		return nil, h, &record.Error{Code: codeInvalidRecord, Reason: "a produce request has one record batch for each partition, no more"}
	case h.Transactional():
		return nil, h, &record.Error{Code: codeInvalidTxnState, Reason: "a transactional batch outside of a transaction"}
	}
	if !cfg.Recompress {
		return records, h, nil
	}
	codec := h.Codec()
	if cfg.Compression != "producer" {
		codec = targetCodec[cfg.Compression]
	}
	batch, err := record.Recompress(nil, records, codec, cfg.DecompressedMax)
	return batch, h, err
}

// targetCodec is what compression.type says.
var targetCodec = map[string]record.Codec{
	"uncompressed": record.None, "gzip": record.Gzip, "snappy": record.Snappy, "lz4": record.LZ4, "zstd": record.Zstd,
}

// checkCreateTime bounds the timestamps of a batch as its header has them; 'now' is wall time in ms.
func checkCreateTime(h *record.Header, cfg *Config, now int64) error {
	if cfg.Log.LogAppendTime {
		return nil
	}
	const noTimestamp = -1
	late := h.MaxTimestamp != noTimestamp && h.MaxTimestamp-now > cfg.Log.MessageTimestampAfterMaxMs
	early := h.BaseTimestamp != noTimestamp && now-h.BaseTimestamp > cfg.Log.MessageTimestampBeforeMaxMs
	if late || early {
		return errTimestamp
	}
	return nil
}

var errTimestamp = &record.Error{Code: codeInvalidTimestamp, Reason: "a timestamp lies further from the broker's clock than message.timestamp.before.max.ms and message.timestamp.after.max.ms allow"}

// reason is the text that goes with an error's code, for errors of the request; what
// the disk said is the operator's business.
func reason(err error) *string {
	if invalid, ok := errors.AsType[*record.Error](err); ok {
		return &invalid.Reason
	}
	if protocol, ok := errors.AsType[*storage.ProtocolError](err); ok {
		return &protocol.Name
	}
	return nil
}
