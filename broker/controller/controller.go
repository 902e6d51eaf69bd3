// Package controller decides who leads and who replicates each partition of a
// cluster: Kafka's controller of the ZooKeeper era.
//
// It decides and never acts. A driver hands Step one Input at a time (what it
// read, what became of a write or a command, who asks, what time it is) and
// carries out the Effects in order. There is no I/O, clock or random number in here.
//
// The work is level-triggered. The controller keeps the last *accepted* state of
// each partition; whatever may change what that should be puts the partition on a
// list, and when its turn comes decide looks at the state and at the brokers as they
// are then. So a conflict or an unknown outcome needs no memory of what was wanted:
// the state is read and decided again. At most one write of a partition is in flight.
//
// What it keeps, always:
//
//   - Commands to brokers are made from accepted states only.
//   - Every write has the version of the state it was decided from, and the driver adds
//     check(/controller_epoch) to each, so a deposed controller changes nothing (C4).
//   - A leader epoch has one leader: it rises with every change or removal of the leader.
//   - A broker takes part only once its start was dealt with: no state names an
//     earlier incarnation of it as leader or in ISR, none keeps in ELR a replica that came back
//     unclean (A6, A7), and that this was done is noted durably (WriteHandled).
//   - One command to a broker is in flight. What failed is sent again before anything
//     that comes after it, as it is or newer (C18).
package controller

import (
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-log/tidemark/broker/rules"
)

// Config is what the controller is told once.
type Config struct {
	Rules rules.Rules

	// ReplaceAfter is lab.replica.replace.after.ms: a broker that stays away so long has
	// its replicas re-created elsewhere. 0: never.
	ReplaceAfter time.Duration
	// ReplacementsMax bounds the partitions that move at a time for that reason. 0: 200.
	ReplacementsMax int
	// PreferredCheck is leader.imbalance.check.interval.seconds; 0: auto.leader.rebalance.enable is off.
	PreferredCheck time.Duration
	// ImbalancePercent is leader.imbalance.per.broker.percentage: below it a broker's
	// partitions are left to their leaders. 0: every partition goes back.
	ImbalancePercent int

	WritesInFlightMax       int           // 0: 512
	CreatesPerWriteMax      int           // states that one CreateStates has; 0: 500
	PartitionsPerTopicWrite int           // states in one WriteTopic; 0: 200
	PartitionsPerCommandMax int           // 0: 5000. A full LeaderAndISR is exempt: it must be complete
	RetryBackoff            time.Duration // before a failed read, write or command is tried again; 0: 100 ms
	// LogsWait bounds how long an election waits for the logs of replicas that live, were not there last, and do not
	// answer. It should be longer than a command to a broker may take. 0: a minute.
	LogsWait time.Duration
}

func (c *Config) setDefaults() {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&c.ReplacementsMax, 200)
	def(&c.WritesInFlightMax, 512)
	def(&c.CreatesPerWriteMax, 500)
	def(&c.PartitionsPerTopicWrite, 200)
	def(&c.PartitionsPerCommandMax, 5000)
	if c.RetryBackoff <= 0 {
		c.RetryBackoff = 100 * time.Millisecond
	}
	if c.LogsWait <= 0 {
		c.LogsWait = time.Minute
	}
}

// Controller is one term of one controller: from its election (Loaded) until it resigns or is dropped.
type Controller struct {
	cfg Config
	now time.Duration

	epoch        int32 // controller epoch
	epochVersion int32 // version of /controller_epoch
	loaded       bool
	resigned     bool

	brokers   map[int32]*broker // every id that is registered or named by a partition
	brokerIDs []int32           // of brokers, ascending
	topics    map[string]*topic

	changes changeList // every partition, by its last change that metadata shows
	liveSeq uint64     // counts changes of the list of live brokers

	commandSeq uint64 // counts the commands of this term

	todo           []*partition // to be decided; each at most once
	topicTodo      []*topic     // with wants, creates or a deletion; each at most once
	writesInFlight int
	retry          []retry    // ascending by time
	logsWaits      []logsWait // ascending by time; one for each time that a partition lost its leader and all who were there last, in Config.LogsWait
	starts         starts
	nextPreferred  time.Duration
	replacing      int // partitions that move because a broker stays away

	out []Effect
}

// New makes a controller that waits for Loaded.
func New(cfg Config) *Controller {
	cfg.setDefaults()
	return &Controller{cfg: cfg, brokers: map[int32]*broker{}, topics: map[string]*topic{}}
}

// Step takes one input and gives what to do about it, in order. The slice is the
// caller's. now must not go back. After Resign it answers nothing any more.
func (c *Controller) Step(now time.Duration, in Input) []Effect {
	if c.resigned {
		return nil
	}
	c.now = max(c.now, now)
	if l, ok := in.(Loaded); ok {
		if c.loaded {
			panic("BUG: controller: loaded twice")
		}
		c.load(l)
	} else if c.loaded {
		c.input(in)
	}
	c.pump()
	out := c.out
	c.out = nil
	return out
}

func (c *Controller) input(in Input) {
	switch in := in.(type) {
	case BrokersRead:
		c.brokersRead(in.Brokers)
	case TopicsRead:
		c.topicsRead(in)
	case DeleteTopics:
		c.deleteTopics(in.Topics)
	case StatesRead:
		c.statesRead(in.States)
	case StatesWritten:
		c.statesWritten(in.Results)
	case StatesCreated:
		c.statesCreated(in)
	case TopicWritten:
		c.topicWritten(in)
	case TopicDeleted:
		c.topicDeleted(in)
	case HandledWritten:
		c.handledWritten(in.Outcome)
	case CommandDone:
		c.commandDone(in)
	case LogDirFailed:
		c.logDirFailed(in.Broker)
	case ControlledShutdown:
		c.controlledShutdown(in)
	case ElectLeaders:
		c.electLeaders(in)
	case Reassign:
		c.reassign(in)
	case Tick:
		c.tick()
	default:
		panic(fmt.Sprintf("BUG: controller: unknown input %T", in))
	}
}

// pump gives out what is due and fits the bounds.
func (c *Controller) pump() {
	if c.resigned || !c.loaded {
		return
	}
	for {
		c.pumpDecisions()
		c.pumpTopics()
		if len(c.todo) == 0 || c.writesInFlight >= c.cfg.WritesInFlightMax || c.resigned {
			break
		}
	}
	c.pumpStarts()
	for _, id := range c.brokerIDs {
		c.pumpCommands(c.brokers[id])
	}
}

func (c *Controller) emit(e Effect) { c.out = append(c.out, e) }

func (c *Controller) resign(reason string) {
	if !c.resigned {
		c.resigned = true
		c.emit(Resign{reason})
	}
}

// load takes the snapshot that a new controller reads, and begins its term: every broker
// gets everything, since what an earlier controller told it is not known.
func (c *Controller) load(l Loaded) {
	c.loaded = true
	c.epoch, c.epochVersion = l.ControllerEpoch, l.EpochVersion
	c.nextPreferred = c.now + c.cfg.PreferredCheck
	for _, h := range l.Handled {
		c.broker(h.Broker).handled = h.Epoch
	}
	c.topicsRead(TopicsRead{Topics: l.Topics})
	for i := range l.States {
		if p := c.find(l.States[i].Partition); p != nil && l.States[i].Found {
			c.adopt(p, l.States[i].State, l.States[i].Version)
		}
	}
	c.brokersRead(l.Brokers)
	for _, id := range c.brokerIDs {
		if b := c.brokers[id]; !b.registered {
			c.away(b)
		}
	}
	c.deleteTopics(l.Delete)
}

// retry is something to try again later.
type retry struct {
	at time.Duration
	do func()
}

// retryLater runs do at the first tick after the backoff. All backoffs are equal, so the list is in order.
func (c *Controller) retryLater(do func()) {
	c.retry = append(c.retry, retry{c.now + c.cfg.RetryBackoff, do})
}

func (c *Controller) tick() {
	n := 0
	for n < len(c.retry) && c.retry[n].at <= c.now {
		n++
	}
	due := c.retry[:n:n]
	c.retry = slices.Clone(c.retry[n:])
	for i := range due {
		due[i].do()
	}
	c.tickLogs()
	c.tickPreferred()
	c.tickReplace()
}

// NextTick is when the next Tick has something to do. The driver may tick at that time, or just regularly.
func (c *Controller) NextTick() (at time.Duration, ok bool) {
	soonest := func(t time.Duration) {
		if !ok || t < at {
			at, ok = t, true
		}
	}
	if len(c.retry) > 0 {
		soonest(c.retry[0].at)
	}
	if len(c.logsWaits) > 0 {
		soonest(c.logsWaits[0].at)
	}
	if c.cfg.PreferredCheck > 0 {
		soonest(c.nextPreferred)
	}
	for _, id := range c.brokerIDs {
		b := c.brokers[id]
		if b.blockedUntil > c.now {
			soonest(b.blockedUntil)
		}
		if c.cfg.ReplaceAfter > 0 && b.away && len(b.partitions) > 0 {
			soonest(b.replaceScan)
		}
	}
	return at, ok
}
