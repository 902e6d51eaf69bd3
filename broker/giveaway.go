package broker

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/env"
)

const (
	// giveAwayTries is how often a stopping broker asks the controller to take its leaderships (Kafka: controlled.shutdown.max.retries).
	giveAwayTries = 3
	// giveAwayTimeout is how long it waits for an answer.
	giveAwayTimeout = 10 * time.Second
)

// GiveAway asks the controller to move this broker's leaderships before it stops, and
// calls done when that is so, or cannot be had. Requests are still served, and should
// be until then. Shutdown does it where nobody has before.
func (b *Broker) GiveAway(done func()) {
	if b.gaveAway.Swap(true) || !b.replicated() || !b.cfg.Load().ControlledShutdown || b.member.registered.Load() < 0 {
		done()
		return
	}
	b.askToLeave(giveAwayTries, done)
}

func (b *Broker) askToLeave(tries int, done func()) {
	again := func(why string) {
		if tries <= 1 {
			b.report(env.Warn, "this broker stops although it leads partitions: %s", why)
			done()
			return
		}
		b.env.After(time.Second, func() { b.askToLeave(tries-1, done) })
	}
	to, known := b.peers.get(b.meta.Load().controller)
	if !known {
		again("no controller is known")
		return
	}
	req := kmsg.NewPtrControlledShutdownRequest()
	req.Version, req.BrokerID, req.BrokerEpoch = controlledShutdownVersion, b.static.BrokerID, b.member.registered.Load()
	b.env.Send(to, req, giveAwayTimeout, func(resp kmsg.Response, err error) {
		r, ok := resp.(*kmsg.ControlledShutdownResponse)
		switch {
		case err != nil || !ok:
			again("the controller does not answer")
		case r.ErrorCode != codeNone:
			again(fmt.Sprintf("the controller refuses with error code %d", r.ErrorCode))
		case len(r.PartitionsRemaining) > 0:
			again("no other replica can lead them")
		default:
			done()
		}
	})
}
