package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/harness/load"
	"github.com/tidemark-log/tidemark/harness/sut"
)

// Crowd measures the big moments of a cluster that has very many partitions in one
// topic: creation, the death of a broker and its return, a clean restart of all
// brokers, and the death of all at once. A moment has passed when every partition
// has acknowledged a record with acks=all, whatever metadata say: from creation on no log is empty.
// A restart's bound is on the part of it from the start of the processes until all are registered and every partition is
// led again; a death's, on the part until every partition that the dead broker led has acknowledged a record again. The embedded ZooKeeper runs through all of it.
type Crowd struct {
	Binary      string
	Dir         string // is emptied before and after
	Brokers     int
	Partitions  int
	Descriptors int               // how many files each broker may have open, hard; 0: as this process
	Overrides   map[string]string // settings of every broker
	Only        *regexp.Regexp    // moments whose names match, after the creation; nil: all
	Progress    func(string)
	OnMoment    func(Moment) // hears of each as it has passed; may be nil
}

// Moment is one of them.
type Moment struct {
	Name  string    `json:"name"`
	Began time.Time `json:"began"`
	Sec   float64   `json:"sec"` // until every partition had taken a record
	Bound Bound     `json:"bound,omitzero"`
	Parts []Part    `json:"parts,omitempty"` // in order of time
	Wrong string    `json:"wrong,omitempty"` // what else did not go as it must
	// What the brokers that lived at its end, and ZooKeeper, spent on it.
	BrokerCPU    float64 `json:"broker_cpu_sec"`
	ZooKeeperCPU float64 `json:"zookeeper_cpu_sec"`
	Syncs        int64   `json:"syncs"`       // of files and directories, by the brokers
	Requests     int64   `json:"zk_requests"` // that ZooKeeper received
	Descriptors  int     `json:"open_files"`  // of the broker that had most, at its end
	RSS          int64   `json:"rss_bytes"`   // of the brokers, at its end
}

// Part is what had happened after so many seconds.
type Part struct {
	What string  `json:"what"`
	Sec  float64 `json:"sec"`
}

// Bound says how long a moment may take, or what of it lies between two of its parts.
type Bound struct {
	From string  `json:"from,omitempty"` // the part that begins it; empty: the moment's beginning
	To   string  `json:"to,omitempty"`   // the part that ends it; empty: the moment's end
	Sec  float64 `json:"sec"`            // 0: as long as it likes
}

// Bounded is how long what is bounded took.
func (m *Moment) Bounded() float64 {
	from, to := 0.0, m.Sec
	for _, p := range m.Parts {
		if p.What == m.Bound.From {
			from = p.Sec
		}
		if p.What == m.Bound.To {
			to = p.Sec
		}
	}
	return to - from
}

// Held is false where the moment took longer than its bound, or something else went wrong.
func (m *Moment) Held() bool {
	return m.Wrong == "" && (m.Bound.Sec == 0 || m.Bounded() <= m.Bound.Sec)
}

const (
	crowdTopic    = "crowd"
	crowdPatience = 3 * time.Minute // for each moment: a slow one is to be measured too
	// The bounds of 10,000 partitions on three brokers.
	crowdCreateMax  = 60.0
	crowdRestartMax = 10.0
	// What the election and the first record of 1,000 partitions may take once the
	// dead leader's session has ended; of fewer as long, of more in proportion.
	crowdElectMax = 0.5
	// The parts that bounds speak of.
	partDead, partStopped, partLed = "all dead", "all stopped", "all partitions led"
	partServed                     = "what it led is served again"
)

// Run goes through all moments.
func (o Crowd) Run(ctx context.Context) (moments []Moment, err error) {
	dir := filepath.Join(o.Dir, "crowd")
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	r := &crowd{Crowd: o, life: ctx}
	r.Progress("starting the cluster")
	r.cluster, err = sut.StartCluster(ctx, sut.ClusterSpec{
		Binary: o.Binary, Dir: dir, Brokers: o.Brokers, Overrides: o.Overrides, Descriptors: o.Descriptors,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		r.cluster.Kill()
		if err == nil {
			err = os.RemoveAll(dir)
		} else {
			err = fmt.Errorf("%w; what the brokers said is in %s", err, filepath.Join(dir, "broker-*", "log"))
		}
	}()
	batch, err := load.BatchSpec{RecordBytes: 100, BatchRecords: 1, Codec: "none", Timestamp: time.Now().UnixMilli()}.Prepare(1)
	if err != nil {
		return nil, err
	}
	r.clients, err = newCrowdClients(r.cluster.Addrs(), o.Partitions, batch[0].Bytes)
	if err != nil {
		return nil, err
	}
	defer r.clients.close()
	for _, m := range []struct {
		name string
		run  func(ctx context.Context, name string) error
	}{
		{"creation", r.create}, {"kill -9 of one broker", r.loseOne}, {"start of that broker", r.regainOne},
		{"clean restart of all", r.restartCleanly}, {"kill -9 of all, and start", r.killAll},
	} {
		if o.Only != nil && len(r.moments) > 0 && !o.Only.MatchString(m.name) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, crowdPatience)
		err := m.run(ctx, m.name)
		cancel()
		if err != nil {
			return r.moments, err
		}
	}
	return r.moments, nil
}

// crowd is a run.
type crowd struct {
	Crowd
	life    context.Context // of the processes
	cluster *sut.Cluster
	clients *crowdClients
	moments []Moment
	victim  int    // the broker that loseOne killed
	wrong   string // Moment.Wrong of the one under way
}

// moment measures what f does until every partition has taken a record.
func (r *crowd) moment(ctx context.Context, name string, bound Bound, survivors []int, f func(part func(string)) error) error {
	m := Moment{Name: name, Bound: bound}
	r.wrong = ""
	before, err := r.spent(survivors)
	if err != nil {
		return err
	}
	began := time.Now()
	part := func(what string) {
		m.Parts = append(m.Parts, Part{what, time.Since(began).Seconds()})
		r.Progress(name + ": " + what)
	}
	r.Progress(name)
	if err := f(part); err != nil {
		return fmt.Errorf("workload: %s: %w", name, errors.Join(err, r.ended()))
	}
	if err := r.clients.untilAllTake(ctx, r.alive()); err != nil {
		return fmt.Errorf("workload: %s: %w", name, errors.Join(err, r.ended()))
	}
	m.Sec = time.Since(began).Seconds()
	after, err := r.spent(r.alive())
	if err != nil {
		return err
	}
	m.BrokerCPU, m.ZooKeeperCPU = after.brokerCPU-before.brokerCPU, after.zookeeperCPU-before.zookeeperCPU
	m.Syncs, m.Requests = after.syncs-before.syncs, after.requests-before.requests
	m.Descriptors, m.RSS = after.descriptors, after.rss
	m.Began, m.Wrong = began, r.wrong
	r.moments = append(r.moments, m)
	if r.OnMoment != nil {
		r.OnMoment(m)
	}
	return nil
}

func (r *crowd) create(ctx context.Context, name string) error {
	return r.moment(ctx, name, Bound{Sec: crowdCreateMax}, r.alive(), func(part func(string)) error {
		assignment := make([][]int32, r.Partitions)
		for p := range assignment {
			for i := range min(3, r.Brokers) {
				assignment[p] = append(assignment[p], int32((p+i)%r.Brokers+1))
			}
		}
		if err := r.clients.create(ctx, assignment); err != nil {
			return err
		}
		part("answered")
		if err := r.clients.untilInSync(ctx, min(3, r.Brokers), r.alive()); err != nil {
			return err
		}
		part("all in sync")
		return nil
	})
}

// loseOne kills a broker that is not the controller: what that adds is another experiment's.
func (r *crowd) loseOne(ctx context.Context, name string) error {
	controller, err := r.clients.controller(ctx)
	if err != nil {
		return err
	}
	r.victim = controller%r.Brokers + 1
	survivors := r.alive()
	survivors = append(survivors[:r.victim-1], survivors[r.victim:]...)
	gone, stop, err := watchRegistration(r.cluster.ZooKeeper, r.victim)
	if err != nil {
		return err
	}
	defer stop()
	timeout, err := strconv.ParseInt(r.Overrides["zookeeper.session.timeout.ms"], 10, 64)
	if err != nil {
		return err
	}
	led, err := r.clients.ledBy(ctx, r.victim)
	if err != nil {
		return err
	}
	bound := Bound{To: partServed, Sec: float64(coord.NegotiateTimeout(timeout)+coord.TickMs)/1e3 + crowdElectMax*max(1, float64(len(led))/1000)}
	return r.moment(ctx, name, bound, survivors, func(part func(string)) error {
		r.cluster.Brokers[r.victim-1].Kill()
		select {
		case <-gone:
			part("its session has ended")
			err := r.clients.untilTake(ctx, survivors, led)
			part(partServed)
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

func (r *crowd) regainOne(ctx context.Context, name string) error {
	if r.victim == 0 {
		return errors.New("workload: no broker was killed before")
	}
	survivors := r.alive()
	return r.moment(ctx, name, Bound{Sec: crowdRestartMax}, survivors, func(part func(string)) error {
		if err := r.cluster.Brokers[r.victim-1].Start(r.life); err != nil {
			return err
		}
		part("registered")
		err := r.clients.untilInSync(ctx, min(3, r.Brokers), r.alive())
		part("in every ISR")
		return err
	})
}

func (r *crowd) restartCleanly(ctx context.Context, name string) error {
	return r.moment(ctx, name, Bound{partStopped, partLed, crowdRestartMax}, nil, func(part func(string)) error {
		if err := r.all(func(b *sut.Broker) error { return b.Process().Stop(crowdPatience) }); err != nil {
			r.wrong = "the stop was not clean: " + err.Error()
		}
		part(partStopped)
		return r.startAll(ctx, part)
	})
}

func (r *crowd) killAll(ctx context.Context, name string) error {
	return r.moment(ctx, name, Bound{partDead, partLed, crowdRestartMax}, nil, func(part func(string)) error {
		if err := r.all(func(b *sut.Broker) error { b.Kill(); return nil }); err != nil {
			return err
		}
		part(partDead)
		return r.startAll(ctx, part)
	})
}

func (r *crowd) startAll(ctx context.Context, part func(string)) error {
	if err := r.all(func(b *sut.Broker) error { return b.Start(r.life) }); err != nil {
		return err
	}
	part("all registered")
	err := r.clients.untilLed(ctx, r.alive())
	part(partLed)
	return err
}

// all does something with every broker, side by side.
func (r *crowd) all(f func(*sut.Broker) error) error {
	errs := make([]error, r.Brokers)
	var done sync.WaitGroup
	for i, b := range r.cluster.Brokers {
		done.Go(func() { errs[i] = f(b) })
	}
	done.Wait()
	return errors.Join(errs...)
}

// alive are the brokers whose processes run, by id.
func (r *crowd) alive() (ids []int) {
	for i, b := range r.cluster.Brokers {
		select {
		case <-b.Process().Exited():
		default:
			ids = append(ids, i+1)
		}
	}
	return ids
}

// ended says what those brokers said last that have ended, for the text of an error.
func (r *crowd) ended() error {
	b := bed{cluster: r.cluster}
	return b.ended()
}
