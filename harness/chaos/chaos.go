// Package chaos plays a scenario of experiments on live processes: what a real machine can
// do of its faults, under producers and consumers of franz-go. What the clients saw is judged
// by the checkers that judge the simulator's clients (experiments/history).
//
// While the story goes on it looks at the cluster through its protocol alone: who leads, who is in the ISR, who is the
// controller. In the end the brokers are stopped and their copies compared. What only the simulator can do (a cut network, a held message, lost power) or
// know (a replica's log end) is refused before anything starts.
package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/sut"
)

// Options of a run.
type Options struct {
	Binary  string        // the tidemark executable
	Dir     string        // for everything that is kept
	Brokers int           // 0: as many as the scenario says
	For     time.Duration // the story is told again until so much time has passed; 0: once
	// Say hears what happens, in words; nil: nobody.
	Say func(at time.Duration, what string)
}

// Report is how it went.
type Report struct {
	Scenario  string        `json:"scenario"`
	Brokers   int           `json:"brokers"`
	Rounds    int           `json:"rounds"` // how often the story was told to its end
	Faults    int           `json:"faults"`
	Acked     int           `json:"acked"` // records acknowledged under acks=all
	AckedWeak int           `json:"acked_1"`
	Read      int           `json:"read"`     // by the consumer, while it went on
	Compared  int64         `json:"compared"` // batches that every replica has, in the end
	Took      time.Duration `json:"took_ns"`
	Violation string        `json:"violation"` // "": none
	// Differences between replicas, a line each; the first of each partition.
	Differences []string `json:"differences,omitempty"`
}

const (
	topic = "t" // as in the simulator

	// stepMax is how long a step may wait for its condition.
	stepMax = 3 * time.Minute
	// restMax is how long after the heal everything must have come to rest.
	restMax = 3 * time.Minute
	// lookEvery is how often the cluster is looked at while something is waited for.
	lookEvery = 50 * time.Millisecond
)

// Run starts a cluster, plays the scenario under load, heals, demands that all comes to rest, judges, and compares the replicas.
// A violation is in the report; an error says that it could not be played.
func Run(ctx context.Context, s *experiments.Scenario, o Options) (*Report, error) {
	if err := Check(s); err != nil {
		return nil, err
	}
	r := &run{scenario: s, o: o, report: &Report{Scenario: s.Name, Brokers: cmp.Or(o.Brokers, s.Brokers)}, began: time.Now()}
	if r.report.Brokers < int(s.Replicas) {
		return nil, fmt.Errorf("%s: %d brokers cannot hold %d replicas", s.Name, r.report.Brokers, s.Replicas)
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx)) // processes are stopped, not killed, when ctx ends
	defer cancel()
	settings := map[string]string{"auto.create.topics.enable": "false", "auto.leader.rebalance.enable": "false", "zookeeper.session.timeout.ms": "6000"}
	maps.Copy(settings, s.Settings)
	started, err := sut.StartCluster(own, sut.ClusterSpec{Binary: o.Binary, Dir: o.Dir, Brokers: r.report.Brokers, Overrides: settings})
	if err != nil {
		return nil, err
	}
	r.cluster = newCluster(own, started)
	defer r.cluster.close()
	err = r.play(ctx)
	if r.load != nil {
		r.report.Acked, r.report.AckedWeak, r.report.Read = r.load.counts()
	}
	r.report.Took = time.Since(r.began).Round(time.Millisecond)
	if broken := (*violationError)(nil); errors.As(err, &broken) {
		r.report.Violation, err = broken.text, nil
	}
	return r.report, err
}

// run is a scenario under way.
type run struct {
	scenario *experiments.Scenario
	o        Options
	report   *Report
	cluster  *cluster
	load     *load
	began    time.Time
}

// violationError is a broken invariant on its way up.
type violationError struct{ text string }

func (v *violationError) Error() string { return v.text }

func violated(format string, args ...any) error {
	return &violationError{fmt.Sprintf(format, args...)}
}

func (r *run) say(format string, args ...any) {
	if r.o.Say != nil {
		r.o.Say(time.Since(r.began), fmt.Sprintf(format, args...))
	}
}

func (r *run) play(ctx context.Context) error {
	if err := r.cluster.createTopic(ctx, r.scenario.Partitions, r.scenario.Replicas); err != nil {
		return err
	}
	if err := r.await(ctx, "in sync", stepMax); err != nil {
		return err
	}
	load, err := startLoad(r.cluster.addrs(), r.scenario)
	if err != nil {
		return err
	}
	r.load = load
	defer load.close()
	// Nothing breaks before every producer has its id: franz-go takes a connection that is
	// closed right after its first request for a sign that SASL is missing, and gives up.
	if err := r.until(ctx, stepMax, "every producer has an acknowledgement", load.everyLane); err != nil {
		return err
	}
	r.say("%d brokers serve, %d producers send", r.report.Brokers, len(r.scenario.Acks))
	for told := time.Now(); ; {
		for i := range r.scenario.Steps {
			if err := r.step(ctx, &r.scenario.Steps[i]); err != nil {
				return err
			}
		}
		r.report.Rounds++
		if r.o.For == 0 || time.Since(told) >= r.o.For {
			break
		}
	}
	return r.rest(ctx)
}

// step waits until a step's time has come, and does it.
func (r *run) step(ctx context.Context, f *experiments.Fault) error {
	switch {
	case f.Kind == experiments.FaultDemand:
		err := r.await(ctx, f.When, f.For)
		if late := (*lateError)(nil); errors.As(err, &late) {
			return violated("%s: not %q within %v", f.Message, f.When, f.For)
		}
		return err
	case f.When != "":
		if err := r.await(ctx, f.When, stepMax); err != nil {
			return err
		}
	}
	wait := f.Wait
	if f.At > 0 {
		wait = max(0, f.At-time.Since(r.began))
	}
	if err := r.pause(ctx, wait); err != nil {
		return err
	}
	return r.act(ctx, f)
}

// act does what a step says, and tells it; what had nothing to be done to was no fault.
func (r *run) act(ctx context.Context, f *experiments.Fault) error {
	text, done := f.Deed(), true
	switch f.Kind {
	case experiments.FaultHeal:
		r.cluster.heal()
	case experiments.FaultAway:
		done = r.cluster.takeAway(f.For)
	default:
		target, _ := f.Targets()
		var whom []int32
		// Faults end meanwhile: the one who is waited for may be standing still.
		err := r.until(ctx, stepMax, fmt.Sprintf("somebody is %s", target), func() (bool, error) {
			whom = r.cluster.whom(f)
			return len(whom) > 0, nil
		})
		if err != nil {
			return err
		}
		if target.Role != experiments.RoleBroker && target.Role != experiments.RoleBrokers {
			text += fmt.Sprintf(" (broker %d)", whom[0])
		}
		done = len(r.cluster.act(f, whom)) > 0
	}
	if !done {
		r.say("nothing to be done: %s", text)
		return nil
	}
	r.report.Faults++
	r.say("%s", text)
	return nil
}

// rest heals, and demands what is owed then: of the cluster, of what clients saw, of what each broker has.
func (r *run) rest(ctx context.Context) error {
	r.say("heal, and come to rest")
	r.cluster.healAll()
	r.load.wind()
	for _, demand := range []struct {
		invariant, what string
		holds           func() (bool, error)
	}{
		{"L3", "every broker serves", r.cluster.allUp},
		{"L4", "every broker says that every replica is in sync", r.cluster.allSayInSync},
		{"L6", "every produce is answered", r.load.answered},
		{"L9", "the consumer is at the end", func() (bool, error) { return r.load.caughtUp(ctx) }},
	} {
		if err := r.until(ctx, restMax, demand.what, demand.holds); err != nil {
			var late *lateError
			if errors.As(err, &late) {
				return violated("%s: not so that %s, %v after the heal", demand.invariant, demand.what, restMax)
			}
			return err
		}
	}
	if err := r.load.judge(ctx); err != nil {
		return err
	}
	return r.copies(ctx)
}

// lateError is what did not come about in time.
type lateError struct {
	what   string
	within time.Duration
}

func (e *lateError) Error() string { return fmt.Sprintf("not within %v: %s", e.within, e.what) }

// await waits until a condition of a step holds.
func (r *run) await(ctx context.Context, when string, within time.Duration) error {
	return r.until(ctx, within, fmt.Sprintf("%q", when), func() (bool, error) { return r.holds(when) })
}

func (r *run) holds(when string) (bool, error) {
	acked := 0
	if r.load != nil {
		a, weak, _ := r.load.counts()
		acked = a + weak
	}
	return holds(newest(r.cluster.metadata()), when, acked), nil
}

// until looks again and again whether something holds; what has to be taken back meanwhile is.
func (r *run) until(ctx context.Context, within time.Duration, what string, holds func() (bool, error)) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for limit := time.Now().Add(within); ; {
		if err := r.goesWell(ctx); err != nil {
			return err
		}
		if ok, err := holds(); ok || err != nil {
			return err
		}
		if time.Now().After(limit) {
			return &lateError{what, within}
		}
		<-tick.C
	}
}

// pause lets time pass.
func (r *run) pause(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	if d == 0 {
		return r.goesWell(ctx)
	}
	return r.until(ctx, d+time.Hour, "time passes", func() (bool, error) { return !time.Now().Before(end), nil })
}

// goesWell takes back what is due, and says what has gone wrong since.
func (r *run) goesWell(ctx context.Context) error {
	r.cluster.takeBack(time.Now())
	if err := r.cluster.failed(); err != nil {
		return err
	}
	if r.load != nil {
		if err := r.load.failed(); err != nil {
			return err
		}
	}
	return ctx.Err()
}
