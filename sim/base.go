package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
)

// base is what every world is made of: time, chance, the story so far, and the
// wire between processes.
type base struct {
	loop
	seed    uint64
	planted planted
	net     *network      // nil: every message arrives
	slow    time.Duration // longest that an answer waits to be sent: a slow reader

	// answered sees each answer that a broker gives to a request; nil: nobody does.
	answered func(from *incarnation, req kmsg.Request, a *broker.Answer)

	conns    []*conn
	lastConn broker.ConnID

	healed    bool // no faults any more
	violation string
}

func newBase(seed uint64, probes []string, echo func(string)) base {
	b := base{seed: seed}
	b.rng = rand.New(rand.NewPCG(seed, 0x7469_6465_6d61_726b))
	b.trace = &trace{hash: hashOffset, probes: map[string]int64{}, echo: echo}
	for _, name := range probes {
		b.trace.probes[name] = 0
	}
	return b
}

// violated ends the run. The first violation counts.
func (b *base) violated(format string, args ...any) {
	if b.violation == "" {
		b.violation = fmt.Sprintf(format, args...)
		b.trace.say(b.now, "VIOLATION: %s", b.violation)
	}
}

func (b *base) latency() time.Duration {
	return b.between(50*time.Microsecond, 2*time.Millisecond)
}

// sendDelay is how long an answer waits for its reader: mostly not, sometimes long.
func (b *base) sendDelay() time.Duration {
	if b.chance(4) {
		return b.between(0, b.slow)
	}
	return 0
}

func (b *base) wallMs() int64 { return start.Add(b.now).UnixMilli() }
