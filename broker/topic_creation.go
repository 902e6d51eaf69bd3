package broker

import (
	"errors"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// creation writes what makes a topic of a replicated cluster, once: a topic that somebody has deleted since the
// answer to a try was lost is not made again.
type creation struct {
	b         *Broker
	t         *topic
	ops       []coord.Op
	tried     bool  // some try may have been carried out
	deletions int64 // the last change, before the first try, of what is to be deleted
}

var errDeletedSince = errors.New("the coordination service was not heard meanwhile: the topic may have been made, and deleted since")

func (b *Broker) createReplicated(spec *topicSpec, r *topicResult, replicas [][]int32, done func()) {
	t := r.t
	assignment := coord.TopicAssignment{TopicID: t.id, Replicas: replicas}
	c := &creation{b: b, t: t, ops: []coord.Op{coord.CreateOp(coord.TopicPath(t.name), assignment.Encode(), coord.Persistent)}}
	if len(t.overrides) > 0 {
		// Before the topic, so that who sees the topic sees its settings.
		c.ops = append([]coord.Op{coord.CreateOp(coord.TopicConfigPath(t.name), coord.EncodeConfig(t.overrides), coord.Persistent)}, c.ops...)
	}
	b.settle(spec.wait(), c.try, func(err error) {
		switch {
		case errors.Is(err, coord.ErrNodeExists):
			r.fail(codeTopicAlreadyExists, "topic "+t.name+" exists")
		case err != nil:
			r.fail(codeRequestTimedOut, errMetadata(err))
		default:
			b.await(spec.wait(), func(m *metadata) bool { return m.served(t.id, int(spec.partitions)) }, func(ok bool) {
				if !ok {
					r.fail(codeRequestTimedOut, "topic "+t.name+" is noted, and its partitions have no leaders yet")
				}
				done()
			})
			return
		}
		done()
	})
}

func (c *creation) try(_ bool, done func(error)) {
	if c.tried {
		c.tryAgain(done)
		return
	}
	c.b.cluster.client().Exists(coord.DeleteTopicsPath, nil, func(st coord.Stat, err error) {
		if err != nil {
			done(err)
			return
		}
		c.deletions, c.tried = st.Pzxid, true
		c.b.commit(c.ops, done)
	})
}

// tryAgain makes the topic where it is certain that no try before did. (1) A write that changes nothing is answered: what
// was in flight is carried out and seen from now on, or never will be. (2) The topic is not there: it was never
// made, or is deleted. (3) Nobody has asked for a deletion since: it was never made.
func (c *creation) tryAgain(done func(error)) {
	client := c.b.cluster.client()
	client.Create(coord.TopicsPath, nil, coord.Persistent, func(_ string, _ coord.Stat, err error) {
		if err != nil && !errors.Is(err, coord.ErrNodeExists) {
			done(err)
			return
		}
		client.Get(coord.TopicPath(c.t.name), nil, func(data []byte, _ coord.Stat, err error) {
			a, damaged := coord.DecodeTopicAssignment(data)
			switch {
			case errors.Is(err, coord.ErrNoNode):
				c.unlessDeleted(client, done)
			case err != nil:
				done(err)
			case damaged == nil && a.TopicID == c.t.id:
				done(nil)
			default:
				done(coord.ErrNodeExists)
			}
		})
	})
}

// unlessDeleted makes the topic if no deletion, of this topic or of another, was asked for since the first try.
func (c *creation) unlessDeleted(client coord.Client, done func(error)) {
	client.Exists(coord.DeleteTopicsPath, nil, func(st coord.Stat, err error) {
		switch {
		case err != nil:
			done(err)
		case st.Pzxid != c.deletions:
			done(errDeletedSince)
		default:
			c.b.commit(c.ops, done)
		}
	})
}
