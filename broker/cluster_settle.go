package broker

import (
	"errors"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// A lost connection to the coordination service, or a session that ended, leaves
// the outcome of a write open. A client that asked for a change is not told of that:
// the write is tried again until the service answers, and what an earlier try may have
// written is recognized.

// open says whether an answer leaves open what became of the write.
func open(err error) bool {
	return errors.Is(err, coord.ErrConnectionLoss) || errors.Is(err, coord.ErrSessionExpired)
}

// settle calls try until its outcome is known, or for so long; also where somebody else was faster, and it has to
// read again. again tells it that an earlier try may have been carried out.
func (b *Broker) settle(limit time.Duration, try func(again bool, done func(error)), done func(error)) {
	b.settleUntil(b.env.Now()+limit, false, try, done)
}

func (b *Broker) settleUntil(deadline time.Duration, again bool, try func(again bool, done func(error)), done func(error)) {
	try(again, func(err error) {
		if !open(err) && !errors.Is(err, coord.ErrBadVersion) || b.env.Now()+coordRetry > deadline {
			done(err)
			return
		}
		b.env.After(coordRetry, func() { b.settleUntil(deadline, true, try, done) })
	})
}
