package broker

import (
	"bytes"

	"github.com/tidemark-log/tidemark/storage"
)

// putOffQueue holds appends that wait until the syncs of those before them are
// over, as they would behind the lock of a log that is written and synced under it.
//
// Invariant: it is empty while no sync is in flight, and nothing is appended past it.
type putOffQueue struct {
	appends []*appendArgs
	bytes   int
}

// What may be put off on one partition. Further appends are refused with an error that clients
// retry; a connection's requests in flight are bounded long before.
const (
	putOffMax      = 1024
	putOffBytesMax = 64 << 20
)

var errPutOffFull = &storage.ProtocolError{Code: codeRequestTimedOut, Name: "REQUEST_TIMED_OUT"}

// putOffLocked puts an append off where it asks for a sync of its own and one is in flight.
// The batch is copied: it lies in a buffer that is received into again.
func (p *partition) putOffLocked(args *appendArgs) (putOff bool, err error) {
	cfg, q := p.cfg.Load(), &p.sync.putOff
	asks := !cfg.FlushGroup && p.sync.inFlight != nil && p.sync.unflushed+int64(args.header.RecordCount) >= cfg.Log.FlushMessages
	if len(q.appends) == 0 && !asks || cfg.Faults.ShareSyncs {
		return false, nil
	}
	if len(q.appends) >= putOffMax || q.bytes+len(args.batch) > putOffBytesMax {
		return false, errPutOffFull
	}
	later := *args
	later.batch = bytes.Clone(args.batch)
	q.appends = append(q.appends, &later)
	q.bytes += len(later.batch)
	return true, nil
}

// appendPutOff writes what was put off until one of them has begun a sync.
func (p *partition) appendPutOff(fx *effects) {
	for p.sync.inFlight == nil && len(p.sync.putOff.appends) > 0 && fx.dirFailed == nil {
		args := p.sync.putOff.pop()
		fx.placed = append(fx.placed, placed{args.owner, p.appendLocked(fx, args)})
	}
}

// failPutOff answers what was put off and will not be written.
func (p *partition) failPutOff(fx *effects, why error) {
	for len(p.sync.putOff.appends) > 0 {
		fx.placed = append(fx.placed, placed{p.sync.putOff.pop().owner, appended{err: why}})
	}
}

func (q *putOffQueue) pop() *appendArgs {
	args := q.appends[0]
	q.appends[0] = nil
	if q.appends = q.appends[1:]; len(q.appends) == 0 {
		q.appends = nil
	}
	q.bytes -= len(args.batch)
	return args
}

// placed is the outcome of an append that was put off, for its owner.
type placed struct {
	owner appendOwner
	a     appended
}
