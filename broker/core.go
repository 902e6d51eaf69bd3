package broker

import (
	"fmt"
	"sync/atomic"

	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/broker/rules"
	"github.com/tidemark-log/tidemark/storage"
)

// Broker is one broker incarnation: from New, once through Start, Handle as
// often as wanted, Shutdown. A crash needs nothing: the incarnation is forgotten.
type Broker struct {
	env env.Env
	// observer is the env, if it is an Observer, else nil.
	observer Observer

	static Config                 // as New got it
	cfg    atomic.Pointer[Config] // with the dynamic settings over it
	meta   atomic.Pointer[metadata]
	dirs   []*logDir
	cache  *storage.BlockCache // of all directories; nil under lab.cache=page
	epoch  int32               // leader epoch of this incarnation's partitions

	changes   serial // changes of metadata, one at a time; meta and cfg are stored there alone
	producers producerIDs
	waits     fetchWaits
	requests  [apiKeysMax]atomic.Int64
	state     atomic.Int32
	cluster   cluster

	// Of a replicated cluster; member is nil in a cluster of one.
	rules     rules.Rules
	member    *member
	held      replicas
	fetchers  fetchers
	peers     peers
	gaveAway  atomic.Bool // GiveAway was called
	awaited   awaitedMetadata
	notices   isrNotices
	isrWrites isrWrites
	timers    timers
}

// The states of an incarnation, in order.
const (
	stateNew int32 = iota
	stateStarting
	stateRunning
	stateStopping
	stateStopped
)

// New makes a broker that does nothing until Start.
func New(e env.Env, cfg Config) *Broker {
	b := &Broker{env: e, static: cfg}
	b.observer, _ = e.(Observer)
	if cfg.Log.Cache != storage.CachePage {
		b.cache = storage.NewBlockCache(cfg.Log.CacheBytes)
	}
	b.cfg.Store(&cfg)
	b.meta.Store(newMetadata("", nil))
	off, err := rules.Parse(cfg.RulesOff)
	if err != nil {
		panic("BUG: broker: a Config that was not checked: " + err.Error())
	}
	b.rules, b.fetchers.b = off, b
	if cfg.ZooKeeperConnect != "" {
		b.member, b.held = newMember(b), replicas{}
	}
	for _, path := range cfg.LogDirs {
		b.dirs = append(b.dirs, &logDir{path: path})
	}
	return b
}

// Handle takes one request. reply is called once, now or later, from any
// goroutine; see Request for what may alias the receive buffer.
func (b *Broker) Handle(req Request, reply Reply) {
	key := req.Body.Key()
	if b.state.Load() != stateRunning || elements(req.Body) > elementsMax {
		reply(Answer{Silent: true, Close: true})
		return
	}
	if key >= 0 && int(key) < len(b.requests) {
		b.requests[key].Add(1)
	}
	b.dispatch(req, reply)
}

// Supports says whether ApiVersions advertises this version of this request.
func (b *Broker) Supports(key, version int16) bool { return Supports(key, version) }

// Disconnected drops the long polls of a connection that is gone. It is called
// after the connection's last Handle.
func (b *Broker) Disconnected(c ConnID) {
	for _, op := range b.waits.ofConn(c) {
		if op.claim() {
			op.drop()
		}
	}
}

func (b *Broker) report(level env.Level, format string, args ...any) {
	b.env.Report(level, fmt.Sprintf(format, args...))
}
