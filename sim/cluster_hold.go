package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// hold keeps messages of one kind on their way from one end to another: a story's means to
// have one arrive late. Requests to one broker may overtake each other, so nothing that
// a broker may rely on is broken.
type hold struct {
	from, to end
	key      int16 // of the API; holdWrite, holdRead: a call of the coordination service
	answer   bool
	left     int           // so many more are held, and what comes then passes
	lost     []func()      // of each held: it will not come
	held     []heldMessage // bounded by what brokers have in flight
}

// heldMax is how many messages a hold holds at most: more than brokers have in flight.
const heldMax = 1 << 20

// holdWrite and holdRead stand where the key of an API would.
const (
	holdWrite int16 = -1
	holdRead  int16 = -2
)

// messages are the kinds that can be held.
var messages = map[string]int16{
	"Fetch": int16(kmsg.Fetch), "OffsetForLeaderEpoch": int16(kmsg.OffsetForLeaderEpoch), "LeaderAndISR": int16(kmsg.LeaderAndISR),
	"StopReplica": int16(kmsg.StopReplica), "UpdateMetadata": int16(kmsg.UpdateMetadata), "ControlledShutdown": int16(kmsg.ControlledShutdown),
	"write": holdWrite, "read": holdRead,
}

// parseMessage reads "Fetch" or "Fetch answer".
func parseMessage(text string) (key int16, answer bool, err error) {
	name, answer := strings.CutSuffix(text, " answer")
	key, known := messages[name]
	if !known {
		err = fmt.Errorf("message %q cannot be held", text)
	}
	return key, answer, err
}

// hold begins to hold messages from one end to another. An answer's way is from who answers.
func (c *Cluster) hold(from, to end, message string, lasts time.Duration) {
	h := c.holdFor(from, to, message)
	c.after(nil, lasts, func() { c.release(h) })
}

// holdFor begins to hold until somebody releases it.
func (c *Cluster) holdFor(from, to end, message string) *hold {
	key, answer, _ := parseMessage(message)
	h := &hold{from: from, to: to, key: key, answer: answer, left: heldMax}
	c.holds = append(c.holds, h)
	return h
}

// release lets go what h holds.
func (c *Cluster) release(h *hold) {
	i := slices.Index(c.holds, h)
	if i < 0 {
		return
	}
	c.holds = slices.Delete(c.holds, i, i+1)
	for _, m := range h.held {
		c.after(m.owner, c.net.low, m.f)
	}
	h.held, h.lost = nil, nil // whoever would lose them comes too late
}

// releaseAll lets go all of one kind; "": of every kind.
func (c *Cluster) releaseAll(message string) {
	key, answer, _ := parseMessage(message)
	for _, h := range slices.Clone(c.holds) {
		if message == "" || h.key == key && h.answer == answer {
			c.release(h)
		}
	}
}

// lose breaks the connections of all that is held: who waits hears that, and not what came of it.
func (c *Cluster) lose() {
	for _, h := range c.holds {
		c.loseOf(h)
	}
	c.releaseAll("")
}

func (c *Cluster) loseOf(h *hold) {
	for i, f := range h.lost {
		c.after(h.held[i].owner, c.net.low, f)
	}
	h.held, h.lost = nil, nil
}

// held says whether something of that kind waits.
func (c *Cluster) held(message string) bool {
	key, answer, _ := parseMessage(message)
	return slices.ContainsFunc(c.holds, func(h *hold) bool { return len(h.held) > 0 && h.key == key && h.answer == answer })
}

// pass lets f happen for owner now, or when a message of this kind is let go.
func (c *Cluster) pass(from, to end, key int16, answer bool, owner *process, f, lost func()) {
	for _, h := range c.holds {
		if h.from == from && h.to == to && h.key == key && h.answer == answer && h.left > 0 {
			h.left--
			c.trace.probe("message held")
			c.trace.say(c.now, "a message from %d to %d is held (API %d, answer %v)", int(from), int(to), key, answer)
			h.held, h.lost = append(h.held, heldMessage{owner, f}), append(h.lost, lost)
			return
		}
	}
	f()
}

// heldClient is a session whose writes can be held on their way.
type heldClient struct {
	coord.Client
	e *clusterEnv
}

func (h *heldClient) pass(key int16, answer bool, f, lost func()) {
	from, to := h.e.end, coordEnd
	if answer {
		from, to = to, from
	}
	h.e.c.pass(from, to, key, answer, &h.e.process, f, lost)
}

// Multi holds a transaction, or what came of it.
func (h *heldClient) Multi(ops []coord.Op, done func([]coord.Result, error)) {
	ops = slices.Clone(ops)
	lost := func() { done(nil, coord.ErrConnectionLoss) }
	h.pass(holdWrite, false, func() {
		h.Client.Multi(ops, func(results []coord.Result, err error) {
			h.e.c.witnessWrite(err)
			h.pass(holdWrite, true, func() { done(results, err) }, lost)
		})
	}, lost)
}

// Get holds a read, or what it found.
func (h *heldClient) Get(path string, watch func(coord.Event), done func([]byte, coord.Stat, error)) {
	lost := func() { done(nil, coord.Stat{}, coord.ErrConnectionLoss) }
	h.pass(holdRead, false, func() {
		h.Client.Get(path, watch, func(data []byte, st coord.Stat, err error) {
			h.pass(holdRead, true, func() { done(data, st, err) }, lost)
		})
	}, lost)
}
