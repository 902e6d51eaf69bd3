package sim

import (
	"time"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// node is a broker's machine: what outlives a process.
type node struct {
	w       *base
	id      int32 // 0: the only one, which needs no name
	end     end   // of the network
	disk    *vfs.Sim
	syncMax time.Duration // longest fdatasync

	// The wall clock is off by skew, and drift says by how much more each second;
	// the monotonic one drifts alone.
	skew  time.Duration
	drift float64

	live  *incarnation // nil between lives
	lives int
}

// server is what a world asks of a broker: *broker.Broker.
type server interface {
	Start(ready func(error))
	Handle(req broker.Request, reply broker.Reply)
	Disconnected(c broker.ConnID)
	Shutdown(done func(error))
	Status() broker.Status
}

var _ server = (*broker.Broker)(nil)

func newNode(w *base, id int32, syncMax time.Duration) *node {
	n := &node{w: w, id: id, syncMax: syncMax}
	n.disk = vfs.NewSim(n.wall)
	return n
}

// elapsed is a real duration as the node's clock tells it, toReal the reverse.
func (n *node) elapsed(d time.Duration) time.Duration {
	if n.drift == 0 {
		return d
	}
	return d + time.Duration(n.drift*float64(d))
}

func (n *node) toReal(d time.Duration) time.Duration {
	if n.drift == 0 {
		return d
	}
	// Rounded up: when it is over the node's clock must have gone d at least, or who waits
	// for that by a timer waits for nothing again and again.
	return time.Duration(float64(d)/(1+n.drift)) + 3
}

func (n *node) wall() time.Time { return start.Add(n.elapsed(n.w.now) + n.skew) }

// say tells of the node, by its id where there are several.
func (n *node) say(format string, args ...any) {
	if n.id == 0 {
		n.w.trace.say(n.w.now, format, args...)
		return
	}
	n.w.trace.say(n.w.now, "broker %d: "+format, append([]any{n.id}, args...)...)
}

// begin makes the next incarnation, on what the disk holds, without its broker.
func (n *node) begin() *incarnation {
	n.lives++
	i := &incarnation{node: n, number: n.lives, born: n.w.now}
	i.disk = n.w.planted.disk(vfs.WithHook(n.disk, i.hook))
	n.live = i
	return i
}

// end is the death of the node's process, whatever it left on the disk.
func (n *node) endLife() {
	n.live.dead = true
	n.live.held = nil
	n.live = nil
}

// newBroker is the broker of an incarnation.
func newBroker(e env.Env, cfg broker.Config) server { return broker.New(e, cfg) }
