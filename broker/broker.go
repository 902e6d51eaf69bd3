// Package broker is the whole broker: request handlers, partitions, metadata.
//
// It decides, and asks its Env for everything else: it starts no goroutine,
// opens no socket, reads no clock, draws no global random number, and never lets
// map order decide. The live shell (broker/server) and the simulator (sim) drive
// the same code.
//
// The locking contract. Append, read and truncate of one partition run under
// that partition's lock, in order. Replies are collected and called after
// unlock, in order. No lock is held while a Sync is pending. Metadata is an
// immutable snapshot. Record bytes belong to Handle until it returns.
package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/storage"
)

// Request is one request of one connection. Body is decoded (perhaps with
// strings and record bytes that alias the receive buffer: what outlives Handle is copied).
type Request struct {
	Conn     ConnID
	ClientID string
	Body     kmsg.Request // its version is set
	// Local is the address the client connected to, "host:port": what Metadata advertises when advertised.listeners is not set.
	Local string
}

// ConnID names a connection of this incarnation.
type ConnID uint64

// Answer is what goes back on the wire. Exactly one of Body and Fetch is set,
// unless Silent.
type Answer struct {
	Body  kmsg.Response
	Fetch *FetchAnswer // has its own encoder, since its records are file regions
	// Silent: nothing is sent (acks=0). Close: the connection is closed after the answer (an acks=0 produce that failed).
	Silent bool
	Close  bool
}

// FetchAnswer is a fetch response whose record sets are regions, not bytes. The
// shell writes Head parts and regions in turn and then calls Release.
type FetchAnswer struct {
	Version int16
	Parts   []FetchPart
	Tail    []byte // what follows the last region
}

// FetchPart is some encoded bytes and then, unless empty, a region's.
type FetchPart struct {
	Head   []byte
	Region storage.Region
}

// Size is the length in bytes of the encoded body (without the response header).
func (f *FetchAnswer) Size() int {
	n := len(f.Tail)
	for i := range f.Parts {
		n += len(f.Parts[i].Head) + f.Parts[i].Region.Len
	}
	return n
}

// Release gives up the pins of all regions.
func (f *FetchAnswer) Release() {
	for i := range f.Parts {
		f.Parts[i].Region.Release()
	}
}

// Reply receives the answer to one request, exactly once, now or later (long
// poll, acks after a sync), from any goroutine. It never blocks.
type Reply func(Answer)
