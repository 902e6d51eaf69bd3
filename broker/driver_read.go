package broker

import (
	"errors"
	"slices"
	"strconv"

	"github.com/tidemark-log/tidemark/broker/controller"
	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env"
)

// load reads everything that a new controller has to know, with the watches set
// before, so that no change goes by unseen.
func (d *driver) load() {
	in := controller.Loaded{ControllerEpoch: d.epoch, EpochVersion: d.version}
	d.watchBrokers(func(brokers []controller.Broker, as coord.Stat) {
		d.newest(coord.BrokerIDsPath, as)
		in.Brokers = brokers
		d.watchTopics(func(names []string) {
			d.topicsOf(names, func(topics []controller.Topic, _ []string) {
				in.Topics = topics
				d.watchDeletions(func(names []string, as coord.Stat) {
					d.newest(coord.DeleteTopicsPath, as)
					in.Delete = names
					d.statesOf(partitionsOf(topics), func(states []controller.StateRead) {
						in.States = states
						d.readHandled(func(h []controller.BrokerEpoch) {
							in.Handled = h
							d.begin(in)
						})
					})
				})
			})
		})
	})
}

func partitionsOf(topics []controller.Topic) (all []controller.TopicPartition) {
	for _, t := range topics {
		for i := range t.Partitions {
			all = append(all, controller.TopicPartition{Topic: t.Name, Partition: int32(i)})
		}
	}
	return all
}

func (d *driver) begin(in controller.Loaded) {
	d.mu.Lock()
	if !d.over {
		d.loaded = true
		for _, t := range in.Topics {
			d.topics[t.Name] = true
		}
		d.stepLocked(in)
	}
	changed := d.changed
	d.changed = nil
	d.mu.Unlock()
	for _, look := range changed {
		look()
	}
	d.watchISRChanges()
	d.watchLogDirs()
	d.watchAdmin()
}

// ready is true once the controller has begun to decide.
func (d *driver) ready() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loaded && !d.over
}

// look looks again at what a watch says has changed; while the rest is still being
// read, once that is done: the controller knows nothing yet that a change could be
// held against, and what was read before the change would undo it.
func (d *driver) look(again func()) {
	d.mu.Lock()
	if !d.loaded && !d.over {
		d.changed = append(d.changed, again) // each watch fires once
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	if !d.s.over.Load() {
		again()
	}
}

// again tries f again after a pause, while the term lasts, if err says that this helps.
func (d *driver) again(err error, f func()) {
	if !d.s.failed(err, f) {
		d.b.report(env.Error, "controller: %v", err)
		d.s.again(coordRetry, f)
	}
}

// watch gives the children of path now, and calls changed when they change, once.
func (d *driver) watch(path string, changed func(), done func(names []string, as coord.Stat)) {
	fired := func(coord.Event) { d.look(changed) }
	d.s.client.Children(path, fired, func(names []string, as coord.Stat, err error) {
		if err != nil {
			d.again(err, func() { d.watch(path, changed, done) })
			return
		}
		done(names, as)
	})
}

// newest says whether a list of children is not older than one that was taken before. Calls end in
// any order: a late answer would bring back who has gone, and take away who has come.
func (d *driver) newest(path string, as coord.Stat) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.newestLocked(path, as)
}

// stepNewest gives the controller what was read, unless something newer was taken.
func (d *driver) stepNewest(path string, as coord.Stat, in controller.Input) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.newestLocked(path, as) {
		d.stepLocked(in)
	}
}

func (d *driver) newestLocked(path string, as coord.Stat) bool {
	if as.Pzxid < d.listed[path] {
		return false
	}
	if d.listed == nil {
		d.listed = map[string]int64{}
	}
	d.listed[path] = as.Pzxid
	return true
}

func (d *driver) watchBrokers(done func([]controller.Broker, coord.Stat)) {
	d.watch(coord.BrokerIDsPath, func() { d.watchBrokers(d.brokersRead) }, func(names []string, as coord.Stat) {
		d.brokersOf(names, func(brokers []controller.Broker) { done(brokers, as) })
	})
}

// readBrokers reads the registrations once more; the watch stays as it is.
func (d *driver) readBrokers() {
	d.s.client.Children(coord.BrokerIDsPath, nil, func(names []string, as coord.Stat, err error) {
		if err != nil {
			d.again(err, d.readBrokers)
			return
		}
		d.brokersOf(names, func(brokers []controller.Broker) { d.brokersRead(brokers, as) })
	})
}

func (d *driver) brokersRead(brokers []controller.Broker, as coord.Stat) {
	d.stepNewest(coord.BrokerIDsPath, as, controller.BrokersRead{Brokers: brokers})
}

// brokersOf reads registrations; one that is gone meanwhile is left out.
func (d *driver) brokersOf(names []string, done func([]controller.Broker)) {
	brokers := make([]controller.Broker, len(names))
	each(len(names), func(i int, end func()) { d.brokerOf(names[i], &brokers[i], end) }, func() {
		brokers = slices.DeleteFunc(brokers, func(b controller.Broker) bool { return b.Host == "" })
		slices.SortFunc(brokers, func(a, b controller.Broker) int { return int(a.ID - b.ID) })
		done(brokers)
	})
}

func (d *driver) brokerOf(name string, into *controller.Broker, end func()) {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		end()
		return
	}
	d.s.client.Get(coord.BrokerIDPath(int32(id)), nil, func(data []byte, _ coord.Stat, err error) {
		if err == nil {
			var r coord.BrokerRegistration
			if r, err = coord.DecodeBrokerRegistration(data); err == nil {
				*into = controller.Broker{ID: int32(id), Epoch: r.BrokerEpoch, CleanEpoch: r.CleanEpoch, CleanRun: r.CleanRun, Host: r.Host, Port: r.Port, Rack: r.Rack}
			} else {
				d.b.report(env.Error, "%s: %v: the broker is taken for absent", coord.BrokerIDPath(int32(id)), err)
				err = nil
			}
		}
		if err != nil && !errors.Is(err, coord.ErrNoNode) {
			d.again(err, func() { d.brokerOf(name, into, end) })
			return
		}
		end()
	})
}

// watchTopics gives all topics now, and later the controller those that come.
func (d *driver) watchTopics(done func([]string)) {
	d.watch(coord.TopicsPath, func() {
		d.watchTopics(func(names []string) { d.readTopics(d.newTopics(names)) })
	}, func(names []string, as coord.Stat) {
		if d.newest(coord.TopicsPath, as) {
			done(names)
		}
	})
}

// newTopics are those of names that were not read yet.
func (d *driver) newTopics(names []string) (fresh []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range names {
		if !d.topics[name] {
			d.topics[name] = true
			fresh = append(fresh, name)
		}
	}
	for _, name := range sortedKeys(d.topics) { // those that are gone may come again
		if _, there := slices.BinarySearch(names, name); !there {
			delete(d.topics, name)
		}
	}
	return fresh
}

// forgetTopic has a topic read when it is there again, also if nobody looked while it was not.
func (d *driver) forgetTopic(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.topics, name)
}

func (d *driver) readTopics(names []string) {
	if len(names) > 0 {
		d.topicsOf(names, func(topics []controller.Topic, missing []string) {
			d.step(controller.TopicsRead{Topics: topics, Missing: missing})
		})
	}
}

// topicsOf reads topics and their settings, and watches their assignments. Damaged ones are left out; missing are those that are not there.
func (d *driver) topicsOf(names []string, done func(topics []controller.Topic, missing []string)) {
	topics := make([]controller.Topic, len(names))
	gone := make([]bool, len(names))
	each(len(names), func(i int, end func()) { d.topicOf(names[i], &topics[i], &gone[i], end) }, func() {
		var missing []string
		for i, name := range names {
			if gone[i] {
				missing = append(missing, name)
			}
		}
		done(slices.DeleteFunc(topics, func(t controller.Topic) bool { return t.Name == "" }), missing)
	})
}

func (d *driver) topicOf(name string, into *controller.Topic, gone *bool, end func()) {
	changed := func(e coord.Event) {
		if e.Type == coord.NodeDataChanged {
			d.look(func() { d.readTopics([]string{name}) })
		}
	}
	d.s.client.Get(coord.TopicPath(name), changed, func(data []byte, st coord.Stat, err error) {
		switch {
		case errors.Is(err, coord.ErrNoNode):
			*gone = true
			end()
		case err != nil:
			d.again(err, func() { d.topicOf(name, into, gone, end) })
		default:
			t, err := decodeTopic(name, data, st.Version)
			if err != nil {
				d.b.report(env.Error, "topic %s: %v: it is left as it is", name, err)
				end()
				return
			}
			d.settingsOf(&t, func() {
				*into = t
				end()
			})
		}
	})
}

// settingsOf puts what the controller needs of a topic's settings into t.
func (d *driver) settingsOf(t *controller.Topic, end func()) {
	d.s.client.Get(coord.TopicConfigPath(t.Name), nil, func(data []byte, _ coord.Stat, err error) {
		var overrides map[string]string
		if err == nil {
			overrides, err = coord.DecodeConfig(data)
			if err != nil {
				d.b.report(env.Error, "topic %s: %v: its settings are taken for the defaults", t.Name, err)
				err = nil
			}
		}
		if err != nil && !errors.Is(err, coord.ErrNoNode) {
			d.again(err, func() { d.settingsOf(t, end) })
			return
		}
		cfg := d.b.topicConfig(overrides)
		t.MinISR, t.Unclean = int(cfg.MinISR), cfg.UncleanElection
		end()
	})
}

func (d *driver) watchDeletions(done func([]string, coord.Stat)) {
	d.watch(coord.DeleteTopicsPath, func() {
		d.watchDeletions(func(names []string, as coord.Stat) {
			d.stepNewest(coord.DeleteTopicsPath, as, controller.DeleteTopics{Topics: names})
		})
	}, done)
}

func (d *driver) readStates(partitions []controller.TopicPartition) {
	if len(partitions) > 0 {
		d.statesOf(partitions, func(states []controller.StateRead) { d.step(controller.StatesRead{States: states}) })
	}
}

func (d *driver) statesOf(partitions []controller.TopicPartition, done func([]controller.StateRead)) {
	states := make([]controller.StateRead, len(partitions))
	each(len(partitions), func(i int, end func()) { d.stateOf(partitions[i], &states[i], end) }, func() { done(states) })
}

func (d *driver) stateOf(p controller.TopicPartition, into *controller.StateRead, end func()) {
	d.s.client.Get(coord.PartitionStatePath(p.Topic, p.Partition), nil, func(data []byte, st coord.Stat, err error) {
		into.Partition = p
		switch {
		case errors.Is(err, coord.ErrNoNode):
		case err != nil:
			d.again(err, func() { d.stateOf(p, into, end) })
			return
		default:
			state, err := coord.DecodePartitionState(data)
			if err != nil {
				d.damagedState(p, err)
				into.Failed = true
				break
			}
			into.Found, into.Version, into.State = true, st.Version, decodeState(state)
		}
		end()
	})
}

// damagedState reports a state that cannot be read, once: it is read again and again, until somebody mends it.
func (d *driver) damagedState(p controller.TopicPartition, err error) {
	d.mu.Lock()
	told := d.damaged[p]
	d.damaged[p] = true
	d.mu.Unlock()
	if !told {
		d.b.report(env.Error, "state of %s-%d: %v: the partition stays as it is", p.Topic, p.Partition, err)
	}
}

func (d *driver) readHandled(done func([]controller.BrokerEpoch)) {
	d.s.client.Get(coord.BrokersHandledPath, nil, func(data []byte, _ coord.Stat, err error) {
		switch {
		case errors.Is(err, coord.ErrNoNode):
			done(nil)
		case err != nil:
			d.again(err, func() { d.readHandled(done) })
		default:
			h, err := decodeHandled(data)
			if err != nil { // nothing was dealt with, then: every broker counts as one that has come back
				d.b.report(env.Error, "%s: %v", coord.BrokersHandledPath, err)
			}
			done(h)
		}
	})
}

// watchISRChanges reads the states that leaders say they have changed. A notice is
// removed once its states are read: the next controller reads all states anyway.
func (d *driver) watchISRChanges() {
	d.watchNotices(coord.ISRChangeNotificationPath, d.watchISRChanges, func(data []byte) error {
		changed, err := coord.DecodeISRChange(data)
		partitions := make([]controller.TopicPartition, len(changed))
		for i, p := range changed {
			partitions[i] = controller.TopicPartition{Topic: p.Topic, Partition: p.Partition}
		}
		d.readChanged(partitions)
		return err
	})
}

// changedStates are partitions whose leaders say that they have changed the ISR, to be read one crowd after the other: of
// one that changes again while it waits here, one read tells both. Each is in it once.
type changedStates struct {
	waiting []controller.TopicPartition
	queued  map[controller.TopicPartition]bool
	reading bool
}

// changedTogetherMax bounds a crowd. The controller decides, and tells all brokers, after each.
const changedTogetherMax = 1024

// readChanged has the states read, for the controller.
func (d *driver) readChanged(partitions []controller.TopicPartition) {
	d.mu.Lock()
	w := &d.isrChanges
	if w.queued == nil {
		w.queued = map[controller.TopicPartition]bool{}
	}
	for _, p := range partitions {
		if !w.queued[p] {
			w.queued[p] = true
			w.waiting = append(w.waiting, p)
		}
	}
	begin := !w.reading
	w.reading = true
	d.mu.Unlock()
	if begin {
		d.readNextChanged()
	}
}

func (d *driver) readNextChanged() {
	d.mu.Lock()
	w := &d.isrChanges
	n := min(len(w.waiting), changedTogetherMax)
	some := w.waiting[:n:n]
	if w.waiting = w.waiting[n:]; len(w.waiting) == 0 {
		w.waiting = nil
	}
	for _, p := range some { // whoever changes it from here on is in the next crowd
		delete(w.queued, p)
	}
	w.reading = n > 0
	d.mu.Unlock()
	if n > 0 {
		d.statesOf(some, func(states []controller.StateRead) {
			d.step(controller.StatesRead{States: states})
			d.readNextChanged()
		})
	}
}

// watchLogDirs hears of log directories that failed. The next controller hears of them
// from each broker's answer to its first LeaderAndISR.
func (d *driver) watchLogDirs() {
	d.watchNotices(coord.LogDirEventPath, d.watchLogDirs, func(data []byte) error {
		id, err := coord.DecodeLogDirEvent(data)
		if err == nil {
			d.step(controller.LogDirFailed{Broker: id})
		}
		return err
	})
}

// watchNotices takes the notices under path, now and, by again, when more come. Each is removed.
func (d *driver) watchNotices(path string, again func(), take func(data []byte) error) {
	d.watch(path, again, func(names []string, _ coord.Stat) {
		for _, name := range names {
			d.takeNotice(path+"/"+name, take)
		}
	})
}

func (d *driver) takeNotice(path string, take func(data []byte) error) {
	d.s.client.Get(path, nil, func(data []byte, _ coord.Stat, err error) {
		switch {
		case errors.Is(err, coord.ErrNoNode): // taken already, with the change before
			return
		case err != nil:
			d.again(err, func() { d.takeNotice(path, take) })
			return
		}
		if err := take(data); err != nil {
			d.b.report(env.Error, "%s: %v", path, err)
		}
		d.s.client.Delete(path, coord.AnyVersion, func(error) {})
	})
}

// watchAdmin takes what tools ask for through nodes below /admin.
func (d *driver) watchAdmin() {
	d.watchRequest(coord.PreferredElectionPath, func(data []byte) (controller.Input, error) {
		asked, err := coord.DecodePreferredElection(data)
		in := controller.ElectLeaders{}
		for _, p := range asked {
			in.Partitions = append(in.Partitions, controller.TopicPartition{Topic: p.Topic, Partition: p.Partition})
		}
		return in, err
	})
	d.watchRequest(coord.ReassignPartitionsPath, func(data []byte) (controller.Input, error) {
		asked, err := coord.DecodeReassignments(data)
		in := controller.Reassign{}
		for _, r := range asked {
			in.Partitions = append(in.Partitions, controller.Reassignment{
				Partition: controller.TopicPartition{Topic: r.Topic, Partition: r.Partition}, Replicas: r.Replicas})
		}
		return in, err
	})
}

// watchRequest takes one request after the other out of a node that is there only while one is asked for.
func (d *driver) watchRequest(path string, decode func([]byte) (controller.Input, error)) {
	next := func(coord.Event) {
		if !d.s.over.Load() {
			d.watchRequest(path, decode)
		}
	}
	d.s.client.Exists(path, next, func(_ coord.Stat, err error) {
		if errors.Is(err, coord.ErrNoNode) {
			return
		}
		if err != nil {
			d.again(err, func() { d.watchRequest(path, decode) })
			return
		}
		d.s.client.Get(path, nil, func(data []byte, _ coord.Stat, err error) {
			if err != nil {
				return
			}
			in, err := decode(data)
			if err != nil {
				d.b.report(env.Error, "%s: %v", path, err)
			} else {
				d.step(in)
			}
			d.s.client.Delete(path, coord.AnyVersion, func(error) {})
		})
	})
}
