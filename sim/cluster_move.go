package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/sim/ghost"
)

// bootAll starts every broker, the one that a story wants as controller before the others.
func (c *Cluster) bootAll() {
	first := int32(0)
	if c.story != nil {
		first = c.story.Controller
	}
	for _, n := range c.nodes {
		if first == 0 || n.id == first {
			c.boot(n)
			continue
		}
		c.after(nil, 500*time.Millisecond, func() { c.boot(n) })
	}
}

// move makes a replica the leader of a partition without any failure, as an operator does:
// a reassignment to the same replicas in another order, and then a preferred election.
func (c *Cluster) move(at ghost.TP, to []*node) {
	if len(to) == 0 {
		return
	}
	id := to[0].id
	replicas := slices.DeleteFunc(slices.Clone(c.ghost.StateOf(at).Replicas), func(r int32) bool { return r == id })
	c.reassign(at, append([]int32{id}, replicas...))
	c.after(nil, 100*time.Millisecond, func() {
		c.ask(coord.PreferredElectionPath, coord.EncodePreferredElection([]coord.TopicPartition{{Topic: at.Topic, Partition: at.Partition}}))
	})
}

// demand gives a step's condition a deadline: liveness while something is still broken.
func (c *Cluster) demand(step int, f *experiments.Fault) {
	s := c.story
	if s.demanded > step {
		return
	}
	s.demanded = step + 1
	c.after(nil, f.For, func() {
		if s.next == step && !s.due {
			c.violated("%s: not %q within %v", f.Message, f.When, f.For)
		}
	})
}

// reassign asks for other replicas of a partition.
func (c *Cluster) reassign(at ghost.TP, replicas []int32) {
	one := coord.Reassignment{TopicPartition: coord.TopicPartition{Topic: at.Topic, Partition: at.Partition}, Replicas: replicas}
	c.ask(coord.ReassignPartitionsPath, coord.EncodeReassignments([]coord.Reassignment{one}))
}

// ask writes a node by which an operator asks the controller for something.
func (c *Cluster) ask(path string, data []byte) {
	var client *coord.ModelClient
	client = c.service.Open(schedule{&c.loop, nil}, "operator", 10*time.Second, func(s coord.SessionState) {
		if s == coord.Connected {
			client.Create(path, data, coord.Persistent, func(_ string, _ coord.Stat, err error) {
				c.trace.say(c.now, "an operator writes %s: %s (error: %v)", path, string(data), err)
				client.Close(func(error) {})
			})
		}
	})
}

// Conditions of steps that name something: "ISR 1,2", "leader 2" and "held LeaderAndISR".

func isCondition(text string) bool {
	kind, rest, _ := strings.Cut(text, " ")
	switch kind {
	case "ISR":
		_, err := parseIDs(rest)
		return err == nil
	case "leader", "controller":
		_, err := strconv.Atoi(rest)
		return err == nil
	case "held":
		_, _, err := parseMessage(rest)
		return err == nil
	}
	return false
}

func (c *Cluster) isSoOfPartition(text string) bool {
	kind, rest, _ := strings.Cut(text, " ")
	switch kind {
	case "ISR":
		want, _ := parseIDs(rest)
		return c.everyPartition(func(t ghost.TP) bool {
			return slices.Equal(slices.Sorted(slices.Values(c.ghost.StateOf(t).ISR)), want)
		})
	case "leader":
		return c.everyPartition(func(t ghost.TP) bool { return strconv.Itoa(int(c.ghost.Leader(t))) == rest })
	case "controller":
		return strconv.Itoa(int(c.tree.controller)) == rest
	case "held":
		return c.held(rest)
	}
	return false
}

func parseIDs(text string) ([]int32, error) {
	var all []int32
	for _, one := range strings.Split(text, ",") {
		id, err := strconv.ParseInt(one, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("ids %q: %w", text, err)
		}
		all = append(all, int32(id))
	}
	return all, nil
}
