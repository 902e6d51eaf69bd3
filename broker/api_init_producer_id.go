package broker

import (
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// InitProducerID, versions 0-5, for idempotent producers. Each gets an id that no
// other has or had, with epoch 0, also when it names the id it has.
//
// Left out: transactional ids, which get TRANSACTIONAL_ID_AUTHORIZATION_FAILED.

func (b *Broker) handleInitProducerID(req *kmsg.InitProducerIDRequest, reply Reply) {
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil {
		resp.ErrorCode = codeTransactionalIDAuthFailed
		reply(Answer{Body: resp})
		return
	}
	b.nextProducerID(func(id int64, err error) {
		if err != nil {
			resp.ErrorCode = codeCoordinatorNotAvailable // retriable
		} else {
			resp.ProducerID, resp.ProducerEpoch = id, 0
		}
		reply(Answer{Body: resp})
	})
}

// producerIDs hands out ids from a block that was durably taken. A crash loses the
// rest of a block, which does not matter: there are 2^63.
type producerIDs struct {
	mu        sync.Mutex
	next, end int64
	taking    bool
	waiting   []func(int64, error) // bounded by the requests in flight
}

func (b *Broker) nextProducerID(done func(int64, error)) {
	ids := &b.producers
	ids.mu.Lock()
	if ids.next < ids.end {
		id := ids.next
		ids.next++
		ids.mu.Unlock()
		done(id, nil)
		return
	}
	ids.waiting = append(ids.waiting, done)
	taking := ids.taking
	ids.taking = true
	ids.mu.Unlock()
	if !taking {
		b.takeProducerIDs()
	}
}

// takeProducerIDs takes the next block, by a write that fails if somebody else took it meanwhile.
func (b *Broker) takeProducerIDs() {
	const path = coord.LatestProducerIDBlockPath
	b.cluster.client().Get(path, nil, func(data []byte, s coord.Stat, err error) {
		next := coord.ProducerIDBlock{Broker: b.static.BrokerID}
		var take coord.Op
		switch {
		case errors.Is(err, coord.ErrNoNode):
			next.End = coord.ProducerIDBlockSize - 1
			take = coord.CreateOp(path, next.Encode(), coord.Persistent)
		case err == nil:
			var last coord.ProducerIDBlock
			if last, err = coord.DecodeProducerIDBlock(data); err == nil && last.End > noLimit-coord.ProducerIDBlockSize {
				err = errors.New("all producer ids are used up")
			}
			next.Start, next.End = last.End+1, last.End+coord.ProducerIDBlockSize
			take = coord.SetOp(path, next.Encode(), s.Version)
		}
		if err != nil && !errors.Is(err, coord.ErrNoNode) {
			b.producerIDsTaken(next, err)
			return
		}
		b.commit([]coord.Op{take}, func(err error) { b.producerIDsTaken(next, err) })
	})
}

// producerIDsTaken serves those who waited for a block. Where they are more than
// it holds, the rest waits for the next.
func (b *Broker) producerIDsTaken(block coord.ProducerIDBlock, err error) {
	ids := &b.producers
	ids.mu.Lock()
	served := ids.waiting
	if err == nil {
		served = served[:min(len(served), coord.ProducerIDBlockSize)]
		ids.next, ids.end = block.Start+int64(len(served)), block.End+1
	}
	ids.waiting = ids.waiting[len(served):]
	more := len(ids.waiting) > 0
	ids.taking = more
	ids.mu.Unlock()
	for i, done := range served {
		if err != nil {
			done(0, err)
		} else {
			done(block.Start+int64(i), nil)
		}
	}
	if more {
		b.takeProducerIDs()
	}
}
