package broker

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
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

// producerIDBlock is how many ids are taken from the coordination service at a
// time. A crash loses the rest of a block, which does not matter: there are 2^63.
const producerIDBlock = 1000

// producerIDs hands out ids from a block that was durably taken.
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
	b.cluster.store.get(pathProducerIDs, func(data []byte, version int32, err error) {
		start, op := int64(0), storeOp{kind: opCreate, path: pathProducerIDs}
		switch {
		case errors.Is(err, errNoNode):
		case err != nil:
			b.producerIDsTaken(0, err)
			return
		default:
			op.kind, op.version = opSet, version
			var last producerIDNode
			if err := decodeNode(pathProducerIDs, data, &last); err != nil {
				b.producerIDsTaken(0, err)
				return
			}
			end, err := strconv.ParseInt(last.End, 10, 64)
			if err != nil || end < 0 || end >= noLimit-producerIDBlock {
				b.producerIDsTaken(0, fmt.Errorf("metadata of %s: block_end %q", pathProducerIDs, last.End))
				return
			}
			start = end + 1
		}
		op.data = encodeNode(producerIDNode{
			Version: 1, Broker: b.static.BrokerID,
			Start: strconv.FormatInt(start, 10), End: strconv.FormatInt(start+producerIDBlock-1, 10),
		})
		b.cluster.store.multi([]storeOp{op}, func(err error) { b.producerIDsTaken(start, err) })
	})
}

// producerIDsTaken serves those who waited for a block. Where they are more than
// it holds, the rest waits for the next.
func (b *Broker) producerIDsTaken(start int64, err error) {
	ids := &b.producers
	ids.mu.Lock()
	served := ids.waiting
	if err == nil {
		served = served[:min(len(served), producerIDBlock)]
		ids.next, ids.end = start+int64(len(served)), start+producerIDBlock
	}
	ids.waiting = ids.waiting[len(served):]
	more := len(ids.waiting) > 0
	ids.taking = more
	ids.mu.Unlock()
	for i, done := range served {
		if err != nil {
			done(0, err)
		} else {
			done(start+int64(i), nil)
		}
	}
	if more {
		b.takeProducerIDs()
	}
}
